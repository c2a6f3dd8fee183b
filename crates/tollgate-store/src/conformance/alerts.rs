//! Alerts: each is raised once until it ends, and one node at a time sends its messages.

use tollgate_core::{AlertCondition, AlertRule, KeyStatus, Secret, Timestamp};

use super::{apply, refusal};
use crate::{
    AlertDestinationSpec, AlertFilter, Change, ChangeRefusal, KeySpec, MessageKind, MessageResult, MessageState,
    PLAYGROUND_KEY_NAME, RowFilter, RowKind, Store, fields::DestinationInput, samples::MIDNIGHT,
};

fn condition(subject: &str) -> AlertCondition {
    AlertCondition::new(AlertRule::ChannelDown, subject, format!("{subject} is down")).with("reason", "timeout")
}

fn later(seconds: i64) -> Timestamp {
    MIDNIGHT.plus_ms(seconds * 1_000)
}

fn put(name: &str, url: Option<&str>, secret: Option<&str>) -> Change {
    let spec = AlertDestinationSpec { name: name.to_owned(), url: "https://x.example.com/***".to_owned(), ..Default::default() };
    let text = |text: &str| Secret::new(text.to_owned());
    Change::PutAlertDestination(Box::new(DestinationInput { spec, url: url.map(text), secret: secret.map(text) }))
}

pub(super) async fn destination_keeps_its_secrets_sealed(store: &Store) {
    apply(store, &[put("ops", Some("https://x.example.com/canary"), Some("key"))]).await.unwrap();
    let read = || async { store.alerts.destinations().await.unwrap().pop().unwrap() };
    let found = read().await;
    assert_eq!((found.secrets.url.as_str(), found.secrets.secret.as_deref()), ("https://x.example.com/canary", Some("key")));
    let rows = store.listing.page(&RowFilter::of(RowKind::AlertDestination, 10)).await.unwrap();
    assert!(rows[0].keeps_secret && rows[0].read::<AlertDestinationSpec>().unwrap().url.ends_with("/***"));
    // A secret that is not given is kept; an empty one removes it.
    apply(store, &[put("ops", None, None)]).await.unwrap();
    assert_eq!(read().await.secrets, found.secrets);
    apply(store, &[put("ops", None, Some(""))]).await.unwrap();
    assert_eq!((read().await.secrets.url, read().await.secrets.secret), (found.secrets.url, None));
    let refused = refusal(apply(store, &[put("other", None, None)]).await.unwrap_err());
    assert!(matches!(refused, ChangeRefusal::Invalid(_)), "{refused:?}");
    let events = store.catalog.audit(None, 10).await.unwrap();
    assert!(events.iter().all(|event| !event.detail.contains("canary")));
    apply(store, &[Change::RemoveAlertDestination { destination: "ops".to_owned() }]).await.unwrap();
    assert!(store.alerts.destinations().await.unwrap().is_empty());
}

pub(super) async fn alert_is_raised_once_until_it_is_over(store: &Store) {
    let raise = |at| async move { store.alerts.raise(&condition("c"), "node", &[], later(at)).await.unwrap() };
    let first = raise(0).await.unwrap();
    assert_eq!(raise(1).await, None);
    let open = (AlertRule::ChannelDown, "c".to_owned());
    assert_eq!(store.alerts.open_alerts(None).await.unwrap(), std::slice::from_ref(&open));
    assert_eq!(store.alerts.open_alerts(Some("node")).await.unwrap(), [open]);
    assert!(store.alerts.open_alerts(Some("other")).await.unwrap().is_empty());
    assert!(store.alerts.end(AlertRule::ChannelDown, "c", later(2)).await.unwrap());
    assert!(!store.alerts.end(AlertRule::ChannelDown, "c", later(3)).await.unwrap());
    let second = raise(4).await.unwrap();
    let event = AlertCondition::new(AlertRule::UsageExcess, "c", "too much");
    for (at, is_raised) in [(5, true), (3_500, false), (3_605, true)] {
        let raised = store.alerts.raise(&event, "node", &[], later(at)).await.unwrap();
        assert_eq!(raised.is_some(), is_raised, "once an hour: after {at} s");
    }
    let list = |filter: AlertFilter| async move { store.alerts.alerts(&filter).await.unwrap() };
    let all = list(AlertFilter { limit: 10, ..AlertFilter::default() }).await;
    assert_eq!(all.len(), 4);
    assert_eq!((all[2].id, all[3].id, all[3].ended_at), (second, first, Some(later(2))));
    assert_eq!((all[3].detail.as_str(), all[3].node.as_str()), (r#"{"reason":"timeout"}"#, "node"));
    let open = list(AlertFilter { is_open: Some(true), limit: 10, ..AlertFilter::default() }).await;
    assert_eq!((open.len(), open[1].id), (2, second));
    store.alerts.end_events(later(7_300)).await.unwrap();
    assert_eq!(store.alerts.open_alerts(None).await.unwrap(), [(AlertRule::ChannelDown, "c".to_owned())]);
    let older = AlertFilter { rule: Some(AlertRule::ChannelDown), before: Some(second), is_open: Some(false), limit: 1 };
    assert_eq!(list(older).await.iter().map(|alert| alert.id).collect::<Vec<_>>(), [first]);
    store.alerts.prune_alerts(later(91 * 86_400)).await.unwrap();
    assert_eq!(list(AlertFilter { limit: 10, ..AlertFilter::default() }).await.len(), 1, "open alerts are kept");
}

pub(super) async fn message_is_claimed_by_one_node_at_a_time(store: &Store) {
    apply(store, &[put("ops", Some("https://x.example.com/a"), None)]).await.unwrap();
    let destination = store.alerts.destinations().await.unwrap()[0].id;
    let notified = |state| [(destination, state)];
    let id = store.alerts.raise(&condition("c"), "node", &notified(MessageState::Waiting), MIDNIGHT).await.unwrap().unwrap();
    let claim = |at, until| async move { store.alerts.claim_messages(later(at), later(until), 10).await.unwrap() };
    let claimed = claim(0, 60).await;
    assert_eq!((claimed.len(), claimed[0].alert, claimed[0].kind, claimed[0].attempts), (1, id, MessageKind::Raised, 1));
    assert!(claim(1, 61).await.is_empty(), "another node sends it");
    let again = claim(60, 120).await;
    assert_eq!(again[0].attempts, 2, "that node ended");
    store.alerts.settle_message(&again[0], &MessageResult::Retry(later(70), "timed out".to_owned())).await.unwrap();
    assert!(claim(69, 129).await.is_empty());
    let third = claim(70, 130).await;
    store.alerts.settle_message(&third[0], &MessageResult::Sent).await.unwrap();
    assert!(claim(200, 260).await.is_empty());
    assert!(store.alerts.end(AlertRule::ChannelDown, "c", later(300)).await.unwrap());
    let ended = claim(300, 360).await;
    store.alerts.settle_message(&ended[0], &MessageResult::Failed("status 500".to_owned())).await.unwrap();
    let alert = store.alerts.alert(id).await.unwrap().unwrap();
    let seen: Vec<_> = alert.messages.iter().map(|it| (it.kind, it.state, it.attempts, it.fault.as_str())).collect();
    assert_eq!(
        seen,
        [(MessageKind::Raised, MessageState::Sent, 3, ""), (MessageKind::Ended, MessageState::Failed, 1, "status 500")]
    );
    // A destination that was notified of the beginning during a database outage gets only the message about the end.
    store.alerts.raise(&condition("d"), "node", &notified(MessageState::Sent), later(400)).await.unwrap().unwrap();
    assert!(claim(400, 460).await.is_empty());
    assert!(store.alerts.end(AlertRule::ChannelDown, "d", later(401)).await.unwrap());
    let ended = claim(401, 461).await;
    assert_eq!((ended.len(), ended[0].kind), (1, MessageKind::Ended));
    store.alerts.settle_message(&ended[0], &MessageResult::Sent).await.unwrap();
    // The message about the end waits for the one about the beginning, and a slow node does not settle a message that another one
    // has claimed.
    store.alerts.raise(&condition("f"), "node", &notified(MessageState::Waiting), later(410)).await.unwrap().unwrap();
    let slow = claim(410, 420).await;
    assert!(store.alerts.end(AlertRule::ChannelDown, "f", later(411)).await.unwrap());
    assert!(claim(412, 470).await.is_empty(), "the message about its beginning is being sent");
    let claimed = claim(420, 430).await;
    assert_eq!((claimed.len(), claimed[0].kind), (1, MessageKind::Raised));
    store.alerts.settle_message(&slow[0], &MessageResult::Sent).await.unwrap();
    assert!(claim(421, 470).await.is_empty());
    store.alerts.settle_message(&claimed[0], &MessageResult::Sent).await.unwrap();
    let ended = claim(422, 470).await;
    assert_eq!((ended.len(), ended[0].kind), (1, MessageKind::Ended));
    store.alerts.settle_message(&ended[0], &MessageResult::Sent).await.unwrap();
    // An alert without destinations ends without a message.
    store.alerts.raise(&condition("e"), "node", &[], later(500)).await.unwrap().unwrap();
    assert!(store.alerts.end(AlertRule::ChannelDown, "e", later(501)).await.unwrap());
    assert!(claim(502, 562).await.is_empty());
}

pub(super) async fn one_node_evaluates_until_it_stops_claiming(store: &Store) {
    let claim = |node, at| async move { store.alerts.claim_evaluation(node, later(at), 30_000).await.unwrap() };
    assert_eq!([claim("a", 0).await, claim("b", 1).await, claim("a", 20).await, claim("b", 40).await], [true, false, true, false]);
    assert_eq!([claim("b", 50).await, claim("a", 51).await], [true, false], "the first one was removed");
    assert!(claim("a", -1_000).await, "the clock was wrong");
}

pub(super) async fn keys_that_expire_are_found(store: &Store) {
    let secret = |n: u8| store.hasher.import(&Secret::new(format!("a-secret-of-a-key-{n}"))).unwrap();
    let key = |name: &str, expires_at, status| {
        Box::new(KeySpec { name: name.to_owned(), member: "owner".to_owned(), expires_at, status, ..KeySpec::default() })
    };
    let active = KeyStatus::Active;
    let keys = [
        key("soon", Some(later(100)), active),
        key("sooner", Some(later(50)), active),
        key("past", Some(later(-1)), active),
        key("far", Some(later(10_000)), active),
        key("never", None, active),
        key("off", Some(later(60)), KeyStatus::Disabled),
        key(PLAYGROUND_KEY_NAME, Some(later(60)), active),
    ];
    let changes = keys.into_iter().zip(0..).map(|(key, n)| Change::PutKey { key, secret: Some(secret(n)) });
    apply(store, &changes.collect::<Vec<_>>()).await.unwrap();
    let found = store.alerts.expiring_keys(MIDNIGHT, later(1_000)).await.unwrap();
    assert_eq!(found.iter().map(|key| key.name.as_str()).collect::<Vec<_>>(), ["sooner", "soon"]);
}
