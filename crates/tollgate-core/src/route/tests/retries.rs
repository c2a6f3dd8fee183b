//! Routing after failed attempts: tried, skipped, unreachable and disabled candidates, and the last resort.

use super::*;
use crate::AccountSpec;
use crate::ChannelSpec;

/// Plans and records the first attempt, and returns its account.
fn try_first(case: &mut Case) -> String {
    let plan = case.run().unwrap();
    case.history.record_attempt(&plan.first);
    plan.first.account.spec.name.clone()
}

#[test]
fn tried_accounts_are_not_candidates() {
    let mut case = Case::accounts(5);
    let mut planned = Vec::new();
    for left in [3, 2, 1] {
        assert_eq!(case.planned().len(), left, "as many as attempts are left");
        planned.push(try_first(&mut case));
    }
    planned.sort();
    planned.dedup();
    assert_eq!(planned.len(), 3);
    assert!(
        Case { history: case.history.clone(), ..Case::accounts(3) }.fails().excluded.is_empty(),
        "no candidate is left, none is excluded"
    );
}

#[test]
fn retry_avoids_accounts_that_became_busy() {
    let mut case = Case::over(vec![bounded(with_accounts(channel("c", &["m"]), 5))]);
    try_first(&mut case);
    let planned = case.planned();
    for name in &planned {
        case = case.load(name, CapacityLoad::AtConcurrency);
    }
    let plan = case.run().unwrap();
    assert!(!planned.contains(&plan.first.account.spec.name), "an account that the first plan did not contain");
    let codes: Vec<_> = plan.trace().into_iter().map(|it| it.code).collect();
    assert_eq!(codes, ["planned", "planned", "concurrency", "concurrency"], "the record has the reason why they are skipped");
}

#[test]
fn conversation_retries_on_its_next_account() {
    let mut case = Case::accounts(10);
    case.summary.affinity = Some(7);
    let planned = case.planned();
    for name in planned {
        assert_eq!(try_first(&mut case), name);
    }
}

#[test]
fn skipped_channel_is_excluded_with_its_reason() {
    let mut case = Case::over(vec![
        with_accounts(channel("a", &["m"]), 3),
        Channel { spec: ChannelSpec { priority: 1, ..channel("b", &["m"]).spec }, ..channel("b", &["m"]) },
    ]);
    let until = Some(NOW.plus_ms(9_000));
    assert!(case.history.clone().skip_channel(&case.run().unwrap().first, Exclusion::Budget { until }));
    let first = case.run().unwrap().first;
    assert!(case.history.skip_channel(&first, Exclusion::Budget { until }));
    assert_eq!(case.planned(), ["b/0"]);
    let first = case.run().unwrap().first;
    assert!(case.history.skip_channel(&first, Exclusion::Budget { until: None }));
    let no = case.fails();
    assert_eq!((no.cause(), no.earliest_recovery(), no.excluded.len()), (NoRouteCause::UpstreamQuota, until, 2));
}

#[test]
fn insufficient_budget_still_allows_cheaper_accounts() {
    let mut row = with_accounts(channel("a", &["m"]), 3);
    for (at, millionths) in [(0, 3_000_000), (1, 1_000_000), (2, 2_000_000)] {
        row.accounts[at] = Arc::new(Account {
            spec: AccountSpec { cost_multiplier: Multiplier(millionths), ..account("a", at).spec },
            ..account("a", at)
        });
    }
    let mut case = Case::over(vec![row]);
    let all = case.run().unwrap();
    let middle = all.attempts().find(|it| it.account.spec.cost_multiplier == Multiplier(2_000_000)).unwrap().clone();
    assert!(case.history.skip_channel(&middle, Exclusion::Budget { until: None }));
    let plan = case.run().unwrap();
    let left: Vec<_> = plan.attempts().map(|it| it.account.spec.cost_multiplier).collect();
    assert_eq!(left, [Multiplier::ONE]);
    assert!(case.history.skip_channel(&plan.first.clone(), Exclusion::Budget { until: None }));
    let no = case.fails();
    assert_eq!((no.cause(), no.excluded.len(), no.excluded[0].account().is_none()), (NoRouteCause::UpstreamQuota, 1, true));
}

#[test]
fn number_of_skipped_channels_is_bounded() {
    let (first, mut history) = (Case::accounts(1).run().unwrap().first, AttemptHistory::default());
    let passed = (0..1_000).take_while(|_| history.skip_channel(&first, Exclusion::NoMapping)).count();
    assert!(passed < 100, "{passed}");
}

#[test]
fn unreachable_address_comes_after_all_others() {
    let at = |name: &str, url: &str| Channel {
        spec: ChannelSpec { base_url: url.to_owned(), ..with_accounts(channel(name, &["m"]), 3).spec },
        ..with_accounts(channel(name, &["m"]), 3)
    };
    let mut case = Case::over(vec![
        at("dead", "http://a"),
        Channel { spec: ChannelSpec { priority: 9, ..at("other", "http://b").spec }, ..at("other", "http://b") },
        Channel { spec: ChannelSpec { weight: 0, ..at("twin", "http://a").spec }, ..at("twin", "http://a") },
    ]);
    let first = case.run().unwrap().first;
    assert_eq!(first.channel.spec.name, "dead");
    case.history.record_attempt(&first);
    case.history.record_unreachable(&first);
    assert!(case.planned().iter().all(|name| name.starts_with("other/")), "{:?}", case.planned());
    case.channels[1].spec.on = false;
    let left = case.planned();
    assert!(left.len() == 2 && left[0].starts_with("dead/"), "{left:?}");
}

#[test]
fn rows_disabled_in_the_latest_catalog_are_excluded() {
    let mut case = Case::accounts(3);
    let newer = |change: &dyn Fn(&mut Channel)| {
        let mut row = with_accounts(channel("c", &["m"]), 3);
        change(&mut row);
        catalog(vec![row], vec![group("default", &["c"])], Vec::new())
    };
    case.newer = Some(newer(&|row| {
        row.accounts.remove(0);
        row.accounts[0] = Arc::new(Account { spec: AccountSpec { on: false, ..account("c", 1).spec }, ..account("c", 1) });
    }));
    assert_eq!(case.planned(), ["c/2"], "one was removed, one switched off");
    case.newer = Some(newer(&|row| row.spec.on = false));
    assert_eq!(case.why(), Exclusion::Disabled);
    case.newer = Some(catalog(Vec::new(), Vec::new(), Vec::new()));
    assert_eq!(case.why(), Exclusion::Disabled);
}

#[test]
fn last_resort_attempt_is_made_once_per_request() {
    let cools = |case: Case, name: &str| case.cooling(name, CoolingReason::ConnectFailure, 5_000);
    let mut case = (0..3).fold(Case::accounts(3), |case, n| cools(case, &format!("c/{n}")));
    assert!(case.run().unwrap().first.last_resort);
    try_first(&mut case);
    assert_eq!(case.fails().excluded.len(), 2, "a total outage costs one such attempt a request");
    let mut case = cools(Case::accounts(2), "c/1");
    assert_eq!(try_first(&mut case), "c/0");
    assert_eq!(try_first(&mut case), "c/1", "the last account is tried although it cools");
}

#[test]
fn rate_limited_account_does_not_prevent_the_last_resort() {
    let case = Case::over(vec![bounded(with_accounts(channel("c", &["m"]), 2))])
        .cooling("c/0", CoolingReason::ServerError, 5_000)
        .load("c/1", CapacityLoad::AtRate { until: NOW.plus_ms(30_000) });
    assert_eq!(case.planned(), ["c/0"], "a rate limit is not waited for");
}

#[test]
fn account_freed_during_translation_check_keeps_its_reason() {
    // The reasons come from one pass over the candidates, so there is always one, and waiting is possible.
    let mut case = Case { translates: true, ..Case::over(vec![foreign("a"), bounded(foreign("b")), foreign("c")]) };
    case.untranslatable.insert("a".to_owned(), vec!["logit_bias".to_owned()]);
    case.untranslatable.insert("c".to_owned(), vec!["logit_bias".to_owned()]);
    case.freed_meanwhile = true;
    let case = case.load("b/0", CapacityLoad::AtConcurrency);
    let no = case.fails();
    assert_eq!((no.cause(), no.busy_accounts().len()), (NoRouteCause::Concurrency, 1));
    let codes: Vec<_> = no.trace().into_iter().map(|it| (it.channel, it.code)).collect();
    let named = |channel: &str, code: &str| (channel.into(), code.to_owned().into());
    assert_eq!(codes.len(), 3);
    for expected in [named("a", "cannot_translate"), named("b", "concurrency"), named("c", "cannot_translate")] {
        assert!(codes.contains(&expected), "{codes:?}");
    }
}
