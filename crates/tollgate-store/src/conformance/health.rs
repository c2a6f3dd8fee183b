//! The contract of [`crate::HealthStore`] and of [`crate::HealthHistoryStore`].

use tollgate_core::{
    AccountHealth, AccountId, ChannelId, CoolingReason, HealthReason, HealthState, HealthTransition, ImpairedState, Impairment,
    TransitionCause,
};

use super::{actor, put_account, put_channel};
use crate::{Change, ChangeOrigin, LastTest, NodeRun, Store, TransitionFilter, TransitionSubject, samples::MIDNIGHT};

pub(super) async fn health_is_stored_for_existing_accounts(store: &Store) {
    let mut batch = vec![put_channel("main")];
    batch.extend((0..45).map(|n| put_account("main", &format!("a{n:02}"), Some("secret"))));
    store.catalog.apply(&batch, &actor(ChangeOrigin::Cli), MIDNIGHT).await.unwrap();
    let catalog = store.catalog.load().await.unwrap();
    let accounts = &catalog.channel_by_name("main").unwrap().accounts;
    let state = HealthState::Cooling { until: MIDNIGHT.plus_ms(9), why: CoolingReason::RateLimited, since: MIDNIGHT };
    let cooling = AccountHealth { state, failures: 3, error_average: 500_000, ..AccountHealth::default() };
    let mut health: Vec<_> = accounts.iter().map(|account| (account.id, AccountHealth::default())).collect();
    store.health.save_health(&health, MIDNIGHT).await.unwrap();
    health[7].1 = cooling;
    store.health.save_health(&health[7..8], MIDNIGHT.plus_ms(1)).await.unwrap();
    store.health.save_health(&[], MIDNIGHT).await.unwrap();
    health.sort_unstable_by_key(|(id, _)| *id);
    assert_eq!(store.health.load_health().await.unwrap(), health);

    // Writing health does not overwrite the time of a passed test.
    store.health.save_test(health[7].0, MIDNIGHT.plus_ms(2)).await.unwrap();
    store.health.save_test(health[7].0, MIDNIGHT.plus_ms(3)).await.unwrap();
    store.health.save_health(&health[7..8], MIDNIGHT.plus_ms(4)).await.unwrap();
    assert_eq!(store.health.load_tests().await.unwrap(), [(health[7].0, MIDNIGHT.plus_ms(3))]);
    assert_eq!(store.health.load_health().await.unwrap(), health);

    let gone = accounts[7].id;
    let remove = Change::RemoveAccount { channel: "main".to_owned(), account: "a07".to_owned() };
    store.catalog.apply(&[remove], &actor(ChangeOrigin::Cli), MIDNIGHT).await.unwrap();
    let kept = store.health.load_health().await.unwrap();
    assert!(kept.len() == 44 && kept.iter().all(|(id, _)| *id != gone));
}

fn transition(
    (channel, account): (ChannelId, Option<AccountId>),
    since: i64,
    until: Option<i64>,
    ended: Option<i64>,
) -> HealthTransition {
    let at = |seconds: i64| MIDNIGHT.plus_ms(seconds * 1_000);
    let (state, reason) = match account {
        Some(_) => (ImpairedState::Cooling, HealthReason::Cooling(CoolingReason::Timeout)),
        None => (ImpairedState::Unavailable, HealthReason::Accounts),
    };
    let impairment = Impairment { state, reason, since: at(since), until: until.map(at) };
    HealthTransition { channel, account, impairment, cause: TransitionCause::Probe, ended_at: ended.map(at) }
}

/// A channel `main` with the accounts `a` and `b`.
async fn with_accounts(store: &Store) -> (ChannelId, AccountId, AccountId) {
    let batch = [put_channel("main"), put_account("main", "a", Some("secret")), put_account("main", "b", Some("secret"))];
    store.catalog.apply(&batch, &actor(ChangeOrigin::Cli), MIDNIGHT).await.unwrap();
    let catalog = store.catalog.load().await.unwrap();
    let channel = catalog.channel_by_name("main").unwrap();
    (channel.id, channel.accounts[0].id, channel.accounts[1].id)
}

pub(super) async fn transitions_are_found_by_time_and_subject(store: &Store) {
    let (channel, a, b) = with_accounts(store).await;
    let (of_a, of_b, of_all) = ((channel, Some(a)), (channel, Some(b)), (channel, None));
    let open = transition(of_a, 100, Some(160), None);
    store.health_history.record_transitions("one", &[transition(of_a, 10, Some(20), None), open]).await.unwrap();
    // The first transition ends, in the same batch as another state of it.
    let first = transition(of_a, 10, Some(20), Some(30));
    let of_channel = transition(of_all, 50, None, Some(60));
    store.health_history.record_transitions("one", &[transition(of_a, 10, Some(25), None), of_channel, first]).await.unwrap();
    store.health_history.record_transitions("one", &[]).await.unwrap();
    let elsewhere = transition(of_b, 100, None, None);
    store.health_history.record_transitions("two", &[elsewhere]).await.unwrap();

    let find = async |filter: TransitionFilter| store.health_history.transitions(&filter).await.unwrap();
    let all = TransitionFilter { limit: 100, ..TransitionFilter::default() };
    let found = find(all.clone()).await;
    let mut newest = [open, elsewhere];
    newest.sort_by_key(|row| std::cmp::Reverse(row.account.map(|account| account.to_string())));
    assert_eq!(found.iter().map(|row| row.transition).collect::<Vec<_>>(), [newest[0], newest[1], of_channel, first]);
    assert_eq!((found[2].channel_name.as_str(), &found[2].account_name, found[2].node.as_str()), ("main", &None, "one"));
    assert_eq!(found[3].account_name.as_deref(), Some("a"));
    let at = |seconds: i64| Some(MIDNIGHT.plus_ms(seconds * 1_000));
    let count = async |filter: TransitionFilter| find(filter).await.len();
    assert_eq!(count(TransitionFilter { since: at(30), ..all.clone() }).await, 3, "what had ended by then is left out");
    assert_eq!(count(TransitionFilter { until: at(50), ..all.clone() }).await, 1);
    assert_eq!(count(TransitionFilter { node: Some("two".to_owned()), ..all.clone() }).await, 1);
    assert_eq!(count(TransitionFilter { subject: TransitionSubject::Channels, ..all.clone() }).await, 1);
    assert_eq!(count(TransitionFilter { subject: TransitionSubject::Account(a), ..all.clone() }).await, 2);
    assert_eq!(count(TransitionFilter { channel: Some(ChannelId::from_parts(MIDNIGHT, [9; 10])), ..all.clone() }).await, 0);

    let (mut pages, mut before) = (Vec::new(), None);
    loop {
        let page = find(TransitionFilter { before, limit: 1, ..all.clone() }).await;
        let Some(last) = page.last() else { break };
        before = Some(last.position());
        pages.extend(page);
    }
    assert_eq!(pages, found, "pages have no gap and no overlap");

    let mut last = store.health_history.last_transitions("one").await.unwrap();
    last.sort_by_key(|row| row.impairment.since);
    assert_eq!(last, [first, open]);
    assert_eq!(store.health_history.last_transitions("two").await.unwrap(), [elsewhere]);
    let remove = Change::RemoveChannel { channel: "main".to_owned() };
    store.catalog.apply(&[remove], &actor(ChangeOrigin::Cli), MIDNIGHT).await.unwrap();
    assert_eq!(find(all).await, found, "removed accounts keep their history and their names");
}

pub(super) async fn old_transitions_are_removed(store: &Store) {
    let (channel, a, b) = with_accounts(store).await;
    let rows: Vec<_> = (0..20).map(|n| transition((channel, Some(a)), n * 10, None, Some(n * 10 + 5))).collect();
    let history = &store.health_history;
    history.record_transitions("one", &rows).await.unwrap();
    history.record_transitions("gone", &[transition((channel, Some(b)), 1, None, None)]).await.unwrap();
    let lasting = transition((channel, Some(b)), 2, None, None);
    history.record_transitions("one", &[lasting]).await.unwrap();
    let at = |seconds: i64| MIDNIGHT.plus_ms(seconds * 1_000);
    for (node, seen) in [("one", 0), ("gone", 7), ("one", 300)] {
        history.note_node(node, at(seen)).await.unwrap();
    }
    let count = async || {
        let all = TransitionFilter { limit: 100, ..TransitionFilter::default() };
        history.transitions(&all).await.unwrap().len()
    };
    assert_eq!(history.prune_transitions(at(5), 1_000).await.unwrap(), 0);
    assert_eq!((count().await, history.node_runs().await.unwrap().len()), (22, 2));
    assert_eq!(history.prune_transitions(at(46), 1_000).await.unwrap(), 5);
    assert_eq!(count().await, 16, "transitions of a vanished node do not stay open; an earlier run of a node is not its end");
    assert_eq!(history.node_runs().await.unwrap(), [NodeRun { node: "one".to_owned(), since: at(300), seen_at: at(300) }]);
    assert_eq!(history.prune_transitions(at(46), 6).await.unwrap(), 10, "more than may be kept");
    assert_eq!(history.prune_transitions(at(46), 6).await.unwrap(), 0);
    let left = history.transitions(&TransitionFilter { limit: 100, ..TransitionFilter::default() }).await.unwrap();
    assert_eq!((left.len(), left[0].transition), (6, rows[19]));
    assert_eq!(left[5].transition.ended_at, None, "one that lasts is never removed");
}

pub(super) async fn runs_of_a_node_end_with_a_pause_of_three_minutes(store: &Store) {
    let history = &store.health_history;
    let at = |seconds: i64| MIDNIGHT.plus_ms(seconds * 1_000);
    for (node, seen) in [("two", 30), ("one", 0), ("one", 60), ("one", 240), ("one", 421), ("one", 480)] {
        history.note_node(node, at(seen)).await.unwrap();
    }
    let runs = history.node_runs().await.unwrap();
    let runs: Vec<_> = runs.iter().map(|run| (run.node.as_str(), run.since, run.seen_at)).collect();
    assert_eq!(runs, [("one", at(0), at(240)), ("one", at(421), at(480)), ("two", at(30), at(30))]);
}

pub(super) async fn last_test_of_an_account_replaces_the_one_before(store: &Store) {
    let (_, a, b) = with_accounts(store).await;
    let history = &store.health_history;
    let test = |ms: i64, error: Option<String>| LastTest { at: MIDNIGHT.plus_ms(ms), model: "m".to_owned(), took_ms: 812, error };
    let (passed, failed) = (test(10, None), test(20, Some("status 401: wrong key".to_owned())));
    let (first, last) = (a.min(b), a.max(b));
    assert_eq!(history.last_tests(first..=last).await.unwrap(), []);
    history.save_last_tests(&[(a, passed.clone()), (b, passed.clone())]).await.unwrap();
    history.save_last_tests(&[(a, failed.clone())]).await.unwrap();
    // A test of another node that ended earlier is not the last one.
    history.save_last_tests(&[(a, test(15, None))]).await.unwrap();
    history.save_last_tests(&[]).await.unwrap();
    let mut expected = vec![(a, failed), (b, passed.clone())];
    expected.sort_by_key(|(account, _)| *account);
    assert_eq!(history.last_tests(first..=last).await.unwrap(), expected);
    assert_eq!(history.last_tests(b..=b).await.unwrap(), [(b, passed)]);
    assert_eq!(history.last_tests(last..=first).await.unwrap(), [], "an empty range");
    history.save_last_tests(&[(b, test(30, Some("x".repeat(5_000))))]).await.unwrap();
    let long = history.last_tests(b..=b).await.unwrap();
    assert_eq!(long[0].1.error.as_deref().map(str::len), Some(1_000), "errors are bounded");
}
