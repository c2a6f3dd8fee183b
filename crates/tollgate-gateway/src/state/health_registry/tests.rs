//! Saving, merging and observing health, and which credential a refusal counts against.

use tollgate_core::{Availability, CoolingReason, CoolingRules, KeyId, MemberId, RestingReason, Secret};

use super::*;
use crate::testing::account as row;

const NOW: Timestamp = Timestamp(1_795_000_000_000_000);

fn account(number: u8) -> AccountId {
    AccountId::from_parts(Timestamp(1), [number; 10])
}

#[test]
fn later_end_applies_when_two_nodes_merge() {
    let (one, other) = (HealthRegistry::default(), HealthRegistry::default());
    one.observe(account(1), &Observation::ConnectFailure, CoolingRules::default(), NOW);
    other.observe(account(1), &Observation::ConnectFailure, CoolingRules::default(), NOW.plus_ms(2_000));
    let (now, until) = (NOW.plus_ms(2_000), NOW.plus_ms(7_000));
    one.merge(other.take_unsaved(), now);
    assert_eq!(one.of(account(1)).availability(NOW), Availability::Cooling { until, why: CoolingReason::ConnectFailure });
    other.merge([(account(1), AccountHealth::default()), (account(2), AccountHealth::default())], now);
    assert_eq!(other.of(account(1)).availability(NOW), Availability::Cooling { until, why: CoolingReason::ConnectFailure });
    assert_eq!(one.take_unsaved().len(), 1, "state merged from another node is saved by that node");
}

#[test]
fn probe_of_the_previous_process_is_due_again_after_a_start() {
    let state = HealthState::Probing { since: NOW, why: Some(CoolingReason::ServerError) };
    let registry = HealthRegistry::from_saved([(account(1), AccountHealth { state, ..AccountHealth::default() })], NOW);
    assert_eq!(registry.of(account(1)).availability(NOW), Availability::ProbeDue);
    registry.begin(account(1), NOW);
    assert!(matches!(registry.of(account(1)).availability(NOW), Availability::Cooling { .. }), "the next request is the probe");
}

#[test]
fn unknown_account_is_healthy_and_a_failure_cools_it() {
    let registry = HealthRegistry::default();
    assert_eq!(registry.of(account(1)).availability(NOW), Availability::Usable);
    registry.observe(account(1), &Observation::ConnectFailure, CoolingRules::default(), NOW);
    let until = NOW.plus_ms(5_000);
    assert_eq!(registry.of(account(1)).availability(NOW), Availability::Cooling { until, why: CoolingReason::ConnectFailure });
    assert_eq!(registry.of(account(2)).availability(NOW), Availability::Usable);
    registry.observe(account(2), &Observation::ConnectFailure, CoolingRules { on: false, ..CoolingRules::default() }, NOW);
    assert_eq!(registry.of(account(2)).availability(NOW), Availability::Usable, "cooling is switched off on its channel");
}

#[test]
fn after_cooling_one_request_is_the_probe() {
    let registry = HealthRegistry::default();
    registry.observe(account(1), &Observation::ConnectFailure, CoolingRules::default(), NOW);
    let later = NOW.plus_ms(6_000);
    assert_eq!(registry.of(account(1)).availability(later), Availability::ProbeDue);
    registry.begin(account(1), later);
    assert!(!matches!(registry.of(account(1)).availability(later), Availability::ProbeDue | Availability::Usable));
    registry.observe(account(1), &Observation::Success { latency: None }, CoolingRules::default(), later);
    assert_eq!(registry.of(account(1)).availability(later), Availability::Usable);
}

#[test]
fn changes_are_taken_once_and_can_be_put_back() {
    let registry = HealthRegistry::default();
    for number in 1..=40 {
        registry.observe(account(number), &Observation::ServerError, CoolingRules::default(), NOW);
        registry.observe(account(number), &Observation::ServerError, CoolingRules::default(), NOW);
    }
    let taken = registry.take_unsaved();
    assert_eq!(taken.len(), 40);
    assert_eq!(registry.take_unsaved().len(), 0);
    registry.put_back(taken.iter().map(|(account, _)| *account));
    assert_eq!(registry.take_unsaved().len(), 40);
    let again = HealthRegistry::from_saved(taken.clone(), NOW);
    assert!(taken.iter().all(|(account, health)| again.of(*account) == *health));
    again.configure(&[row(1), row(99)]);
    assert_eq!(again.of(account(2)), AccountHealth::default());
    assert_eq!((again.of(account(1)), again.entries.snapshot().iter().count()), (registry.of(account(1)), 2));
    assert_eq!(again.take_unsaved(), [], "configuring an account does not mark it unsaved");
}

#[test]
fn snapshot_reflects_every_change() {
    let registry = HealthRegistry::default();
    registry.configure(&(1..=200).map(row).collect::<Vec<_>>());
    for (at, what) in [Observation::ConnectFailure, Observation::Refused, Observation::TestPassed].iter().enumerate() {
        for number in 1..=200 {
            let now = NOW.plus_ms(i64::try_from(at).unwrap() * 1_000);
            registry.observe(account(number), what, CoolingRules::default(), now);
            assert_eq!(registry.snapshot().status(account(number), now), registry.of(account(number)).status(now));
        }
    }
    assert_eq!(registry.snapshot().status(account(250), NOW), HealthStatus::HEALTHY);
}

#[test]
fn concurrent_observations_are_all_counted() {
    let registry = HealthRegistry::default();
    std::thread::scope(|threads| {
        for _ in 0..4 {
            threads.spawn(|| {
                (0..200).for_each(|number| {
                    registry.observe(
                        account(number),
                        &Observation::ServerError,
                        CoolingRules { on: false, ..CoolingRules::default() },
                        NOW,
                    );
                });
            });
        }
    });
    let failures = |number| registry.of(account(number)).recent.iter().map(|bucket| bucket.failed).sum::<u32>();
    assert!((0..200).all(|number| failures(number) == 4));
}

/// An account with this credential.
fn with(number: u8, credential: &str) -> Account {
    Account { credential: Some(Secret::new(credential.to_owned())), ..row(number) }
}

fn refuse(registry: &HealthRegistry, account: &Account, sent: Timestamp, now: Timestamp) {
    registry.observe_probe(account, &Observation::Refused, CoolingRules::default(), sent, now);
}

#[test]
fn refusal_counts_against_the_credential_it_was_observed_with() {
    let (old, new) = (with(1, "old"), with(1, "new"));
    let registry = HealthRegistry::default();
    registry.configure([&old]);
    registry.configure([&new]);
    refuse(&registry, &old, NOW, NOW);
    assert_eq!(registry.of(new.id).availability(NOW), Availability::Usable, "the refused credential was already replaced");
    let before = registry.recoveries.version();
    refuse(&registry, &new, NOW, NOW);
    registry.configure([&new, &row(2)]);
    assert!(registry.of(new.id).is_refused(), "nothing was replaced");
    registry.observe_probe(&old, &Observation::TestPassed, CoolingRules::default(), NOW, NOW);
    assert!(registry.of(new.id).is_refused(), "a passed test of the old credential is ignored");
    assert_eq!(registry.recoveries.version(), before);
    registry.take_unsaved();
    registry.configure([&with(1, "newest"), &row(2)]);
    assert_eq!(registry.of(new.id), AccountHealth::default());
    assert_ne!(registry.recoveries.version(), before, "waiting requests are notified");
    assert_eq!(registry.take_unsaved(), [(new.id, AccountHealth::default())]);
}

#[test]
fn other_failures_count_for_any_credential_and_a_stale_probe_is_due_again() {
    let (old, new) = (with(1, "old"), with(1, "new"));
    let registry = HealthRegistry::default();
    registry.configure([&new]);
    registry.observe_probe(&old, &Observation::ConnectFailure, CoolingRules::default(), NOW, NOW);
    let later = NOW.plus_ms(6_000);
    assert_eq!(registry.of(new.id).availability(later), Availability::ProbeDue);
    registry.begin(new.id, later);
    refuse(&registry, &old, later, later);
    assert_eq!(registry.of(new.id).availability(later), Availability::ProbeDue);
}

#[test]
fn refusal_counts_from_when_the_attempt_was_sent() {
    let registry = HealthRegistry::default();
    refuse(&registry, &row(1), NOW, NOW.plus_ms(3_000));
    let state = HealthState::Resting { why: RestingReason::Refused, since: NOW, until: None };
    assert_eq!(registry.of(row(1).id).state, state);
}

#[test]
fn saved_or_merged_refusal_of_a_replaced_credential_is_ignored() {
    let (old, new) = (with(1, "old"), with(1, "new"));
    let registry = HealthRegistry::default();
    registry.configure([&old]);
    refuse(&registry, &old, NOW, NOW);
    let saved: Vec<(AccountId, AccountHealth)> =
        serde_json::from_str(&serde_json::to_string(&registry.take_unsaved()).unwrap()).unwrap();

    let again = HealthRegistry::from_saved(saved.clone(), NOW);
    again.configure([&old]);
    assert!(again.of(old.id).is_refused());
    let again = HealthRegistry::from_saved(saved.clone(), NOW);
    again.configure([&new]);
    assert_eq!(again.of(new.id).availability(NOW), Availability::Usable);
    again.merge(saved.clone(), NOW);
    assert_eq!(again.of(new.id).availability(NOW), Availability::Usable, "another node does not have the new credential yet");

    // State saved without a fingerprint counts against the current credential.
    let mut older = saved;
    older[0].1.refused_credential = None;
    let again = HealthRegistry::from_saved(older, NOW);
    again.configure([&old]);
    assert!(again.of(old.id).is_refused());
    again.configure([&new]);
    assert!(!again.of(new.id).is_refused());
}

#[test]
fn state_from_a_clock_ahead_is_bounded_when_loaded_merged_or_kept() {
    const DAY_MS: i64 = 86_400_000;
    let ahead = HealthRegistry::default();
    ahead.observe(account(1), &Observation::ConnectFailure, CoolingRules::default(), NOW.plus_ms(30 * DAY_MS));
    let wrong = ahead.take_unsaved();
    let merged = HealthRegistry::default();
    merged.merge(wrong.clone(), NOW);
    let before = ahead.recoveries.version();
    ahead.follow_clock(NOW);
    assert_ne!(ahead.recoveries.version(), before, "waiting requests are notified");
    for registry in [HealthRegistry::from_saved(wrong, NOW), merged, ahead] {
        let until = NOW.plus_ms(5_000);
        assert_eq!(registry.of(account(1)).availability(NOW), Availability::Cooling { until, why: CoolingReason::ConnectFailure });
        registry.follow_clock(NOW.plus_ms(1_000));
        assert_eq!(registry.of(account(1)).availability(until), Availability::ProbeDue, "it does not start again");
    }
}

#[test]
fn test_passed_on_another_node_ends_earlier_states() {
    let registry = HealthRegistry::default();
    registry.observe(account(1), &Observation::ConnectFailure, CoolingRules::default(), NOW);
    registry.end([(account(1), NOW.plus_ms(-1)), (account(2), NOW)]);
    assert!(matches!(registry.of(account(1)).state, HealthState::Cooling { .. }), "it began after the test");
    assert_eq!(registry.take_ended(), []);
    registry.end([(account(1), NOW.plus_ms(1))]);
    assert_eq!(registry.of(account(1)).state, HealthState::Usable);
    assert_eq!(registry.take_ended(), [], "the other node reports it to the others");
    registry.observe(account(1), &Observation::TestPassed, CoolingRules::default(), NOW);
    assert_eq!((registry.take_ended(), registry.take_ended()), (vec![account(1)], vec![]), "even if it was usable here");
}

/// Key `key` of member `member`. Ids of a key and of a member with the same number differ.
fn requester(key: u8, member: u8) -> Requester {
    let (key, member) = (KeyId::from_parts(Timestamp(0), [key; 10]), MemberId::from_parts(Timestamp(0), [100 + member; 10]));
    Requester { key, member }
}

#[test]
fn failures_of_one_key_affect_only_that_key() {
    let (registry, account) = (HealthRegistry::default(), &row(1));
    let key = |number| requester(number, number);
    let fails = |by| registry.observe_request(account, &Observation::Timeout, CoolingRules::default(), NOW, NOW, Some(key(by)));
    let usable = |by| registry.snapshot_for(key(by)).status(account.id, NOW).availability == Availability::Usable;
    (0..3).for_each(|_| fails(1));
    assert!(!usable(1) && usable(2));
    assert!(registry.resting(NOW).is_empty(), "nothing is reported to other nodes");
    assert_eq!(registry.take_unsaved().len(), 1, "but operators see it");
    // When the time is over, no probe is due for the other key.
    registry.begin_request(account.id, Some(key(2)), NOW.plus_ms(20_000));
    assert_eq!(registry.snapshot_for(key(1)).status(account.id, NOW.plus_ms(20_000)).availability, Availability::ProbeDue);
    fails(2);
    assert!(!usable(1) && !usable(2), "two keys saw it");
    assert_eq!(registry.resting(NOW).len(), 1);
    registry.observe_request(account, &Observation::TestPassed, CoolingRules::default(), NOW, NOW, None);
    assert!(usable(1) && usable(2));
    // A failure that no request can provoke concerns all keys at once.
    registry.observe_request(account, &Observation::ConnectFailure, CoolingRules::default(), NOW, NOW, Some(key(1)));
    assert!(!usable(1) && !usable(2));
}

#[test]
fn failures_of_one_member_affect_only_that_member() {
    let (registry, account) = (HealthRegistry::default(), &row(1));
    let fails = |by| registry.observe_request(account, &Observation::BadAnswer, CoolingRules::default(), NOW, NOW, Some(by));
    let usable = |by| registry.snapshot_for(by).status(account.id, NOW).availability == Availability::Usable;
    let (one, sibling, third, other) = (requester(1, 1), requester(2, 1), requester(3, 1), requester(4, 2));
    (0..3).for_each(|_| fails(one));
    assert_eq!([one, sibling, other].map(usable), [false, true, true]);
    fails(sibling);
    assert_eq!([one, sibling, third, other].map(usable), [false, false, false, true]);
    assert!(registry.resting(NOW).is_empty(), "nothing is reported to other nodes");
    fails(other);
    assert_eq!([one, third, other].map(usable), [false; 3], "two members saw it");
    assert_eq!(registry.resting(NOW).len(), 1);
}

#[test]
fn refusals_limits_and_spent_quotas_of_one_key_affect_only_that_key() {
    let mentioned = Observation::QuotaMentioned { until: Some(NOW.plus_ms(60_000)) };
    for what in [Observation::Refused, Observation::RateLimited { until: None }, Observation::QuotaSpent { until: None }, mentioned]
    {
        let (registry, account) = (HealthRegistry::default(), &row(1));
        let sees = |what: &Observation, by| registry.observe_request(account, what, CoolingRules::default(), NOW, NOW, Some(by));
        let usable = |by| registry.snapshot_for(by).status(account.id, NOW).availability == Availability::Usable;
        let (one, sibling, third, other) = (requester(1, 1), requester(2, 1), requester(3, 1), requester(4, 2));
        let callers = [one, sibling, third, other];
        (0..3).for_each(|_| sees(&what, one));
        assert_eq!(callers.map(usable), [false, true, true, true], "{what:?}");
        sees(&what, sibling);
        assert_eq!(callers.map(usable), [false, false, false, true], "{what:?}");
        assert!(registry.resting(NOW).is_empty(), "nothing is reported to other nodes");
        assert_eq!(registry.of_all(account.id).state, HealthState::Usable);
        let saved = registry.take_unsaved();
        assert!(saved[0].1.concerns_some && saved[0].1.state != HealthState::Usable, "but operators see it: {saved:?}");
        assert_eq!(HealthRegistry::from_saved(saved, NOW).of(account.id).state, HealthState::Usable, "a start makes it no wider");
        sees(&what, other);
        assert_eq!(callers.map(usable), [false; 4], "two members saw it: {what:?}");
        assert!(!registry.of(account.id).concerns_some);
        assert_eq!(registry.resting(NOW).len(), 1);
        registry.observe_probe(account, &Observation::TestPassed, CoolingRules::default(), NOW, NOW);
        assert_eq!(callers.map(usable), [true; 4]);
        sees(&what, one);
        registry.end([(account.id, NOW)]);
        assert_eq!(callers.map(usable), [true; 4], "a test on another node passed");
    }
}

#[test]
fn rate_limit_with_a_stated_end_affects_all_keys() {
    let end = Some(NOW.plus_ms(60_000));
    for what in [
        Observation::RateLimited { until: end },
        Observation::QuotaSpent { until: end },
        Observation::Overloaded { until: NOW.plus_ms(60_000) },
    ] {
        let (registry, account) = (HealthRegistry::default(), &row(1));
        registry.observe_request(account, &what, CoolingRules::default(), NOW, NOW, Some(requester(1, 1)));
        let other = registry.snapshot_for(requester(2, 2)).status(account.id, NOW).availability;
        assert!(!matches!(other, Availability::Usable | Availability::ProbeDue), "{what:?}");
    }
}

#[test]
fn probe_refused_for_one_key_leaves_the_probe_due_for_others() {
    let (registry, account) = (HealthRegistry::default(), &row(1));
    let (one, other) = (requester(1, 1), requester(2, 2));
    registry.observe(account.id, &Observation::ConnectFailure, CoolingRules::default(), NOW);
    let later = NOW.plus_ms(6_000);
    registry.begin_request(account.id, Some(one), later);
    registry.observe_request(account, &Observation::Refused, CoolingRules::default(), later, later, Some(one));
    let availability = |by| registry.snapshot_for(by).status(account.id, later).availability;
    assert_eq!(availability(other), Availability::ProbeDue);
    assert!(matches!(availability(one), Availability::Resting { .. }));
}

#[test]
fn new_credential_clears_refusals_seen_by_one_key() {
    let (old, new) = (with(1, "old"), with(1, "new"));
    let registry = HealthRegistry::default();
    registry.configure([&old]);
    registry.observe_request(&old, &Observation::Refused, CoolingRules::default(), NOW, NOW, Some(requester(1, 1)));
    let usable = || registry.snapshot_for(requester(1, 1)).status(new.id, NOW).availability == Availability::Usable;
    assert!(!usable());
    let before = registry.recoveries.version();
    registry.configure([&new]);
    assert!(usable());
    assert_ne!(registry.recoveries.version(), before, "waiting requests are notified");
    registry.observe_request(&old, &Observation::Refused, CoolingRules::default(), NOW, NOW, Some(requester(1, 1)));
    assert!(usable() && registry.unproven_refusal(new.id).is_none(), "late refusals of the old credential do not count");
}
