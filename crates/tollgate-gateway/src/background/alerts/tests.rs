//! Alerts sent to receivers on loopback.

use serde_json::{Value, json};
use tokio::io::AsyncWriteExt as _;
use tollgate_core::{Budget, BudgetAction, BudgetAlert, Catalog, MemberId, NanoUsd, Secret, Subject, Timestamp, Window};
use tollgate_store::{AccessMode, MasterKeySource, OpenOptions, RandomSource, RowFilter, Store, StoreUrl};

use super::*;
use crate::{
    settings::Settings,
    state::alert_queue::{QUEUE_CAPACITY, alert_body},
    testing::{
        raw_upstream::{RawUpstream, read_request},
        shared, usage_record,
    },
};

fn spent_alert() -> BudgetAlert {
    let budget = Budget { amount: NanoUsd(50_000_000_000), window: Window::Month, action: BudgetAction::Alert };
    BudgetAlert { subject: Subject::Key(usage_record("m").key), budget, spent: NanoUsd(50_000_000_001) }
}

/// A receiver that answers with these statuses in turn and forwards the requests it received.
async fn receiver(statuses: &'static [u16]) -> (RawUpstream, mpsc::Receiver<String>) {
    let (sender, requests) = mpsc::channel(8);
    let server = RawUpstream::start(move |mut socket, number| {
        let sender = sender.clone();
        async move {
            let request = read_request(&mut socket).await.unwrap();
            sender.send(request).await.unwrap();
            let status = statuses[number.min(statuses.len() - 1)];
            let _ = socket.write_all(format!("HTTP/1.1 {status} X\r\ncontent-length: 0\r\n\r\n").as_bytes()).await;
        }
    })
    .await;
    (server, requests)
}

/// Queues an alert as the request path does.
fn enqueue(queue: &AlertQueue, shared: &Shared) {
    let record = usage_record("m");
    let (catalog, now) = (shared.catalog.load(), shared.clock.now());
    queue.enqueue(record.id, &record.key_name, &spent_alert(), &catalog, now, &shared.metrics);
}

/// A store in memory, with the member `owner`.
async fn store() -> Store {
    let options = OpenOptions {
        url: StoreUrl::Memory,
        data: std::path::PathBuf::new(),
        master: MasterKeySource::DataFolder,
        access: AccessMode::Command,
        random: RandomSource::system(),
        now: Timestamp(0),
        without_database: None,
    };
    tollgate_store::open(options).await.unwrap()
}

async fn to(server: &RawUpstream, private_network: bool) -> (AlertQueue, Alerts) {
    let secret = Some(Secret::new("a shared secret".to_owned()));
    Alerts::to(Webhook { url: Url::parse(&server.url).unwrap(), secret, private_network }, store().await.listing)
}

#[tokio::test]
async fn alert_about_a_member_has_the_members_name_if_it_is_found() {
    let (server, _requests) = receiver(&[204]).await;
    let store = store().await;
    let (_, alerts) = Alerts::to(
        Webhook { url: Url::parse(&server.url).unwrap(), secret: None, private_network: true },
        Arc::clone(&store.listing),
    );
    let owner = store.listing.page(&RowFilter::of(RowKind::Member, 1)).await.unwrap().remove(0);
    let known = MemberId::parse(&owner.id).unwrap();
    for (member, name) in [(known, json!("owner")), (MemberId::from_parts(Timestamp(9), [9; 10]), Value::Null)] {
        let alert = BudgetAlert { subject: Subject::Member(member), ..spent_alert() };
        let body = alert_body(usage_record("m").id, "ci", &alert, &Catalog::default(), Timestamp(0));
        let body = alerts.body(QueuedAlert { body, member: Some(member) }).await;
        let sent: Value = serde_json::from_slice(&body).unwrap();
        assert_eq!((&sent["of"], &sent["id"], &sent["name"]), (&json!("member"), &json!(member.to_string()), &name));
    }
}

#[tokio::test]
async fn alert_is_signed_and_retried_until_it_is_accepted() {
    let (server, mut requests) = receiver(&[500, 204]).await;
    let shared = shared(Settings::default(), Catalog::default());
    let (queue, alerts) = to(&server, true).await;
    enqueue(&queue, &shared);
    let stop = CancellationToken::new();
    let tasks = TaskTracker::new();
    let running = tasks.spawn(alerts.run(Arc::clone(&shared), stop.clone()));
    let first = requests.recv().await.unwrap();
    let again = requests.recv().await.unwrap();
    assert_eq!(first.split("\r\n\r\n").nth(1), again.split("\r\n\r\n").nth(1), "the retry has the same body");
    let (head, body) = again.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("POST "), "{head}");
    let mut mac = Hmac::<Sha256>::new_from_slice(b"a shared secret").unwrap();
    mac.update(body.as_bytes());
    assert!(head.contains(&format!("{SIGNATURE}: sha256={}", hex::encode(mac.finalize().into_bytes()))), "{head}");
    let sent: Value = serde_json::from_str(body).unwrap();
    assert_eq!(
        (&sent["event"], &sent["of"], &sent["window"], &sent["amount"], &sent["spent"]),
        (&json!("budget_spent"), &json!("key"), &json!("month"), &json!("50.00"), &json!("50.000000001"))
    );
    while !shared.metrics.render().contains("tollgate_alerts_total{result=\"sent\"} 1") {
        tokio::task::yield_now().await;
    }
    stop.cancel();
    running.await.unwrap();
}

#[tokio::test]
async fn sale_below_cost_and_impossible_usage_are_reported_once_an_hour() {
    use crate::state::alert_queue::MoneyAlert;

    let shared = shared(Settings::default(), Catalog::default());
    let (queue, mut waiting) = AlertQueue::new();
    let record = usage_record("m");
    let excess = tollgate_core::UsageExcess { reported_output: 1_000, output_bound: 69, ..tollgate_core::UsageExcess::default() };
    let attempt = &record.attempts[0];
    for _ in 0..2 {
        let lying = MoneyAlert::UsageExcess { channel: attempt.channel, name: &attempt.channel_name, excess: &excess };
        queue.enqueue_money(&record, &lying, Timestamp(0), &shared.metrics);
        let below = MoneyAlert::SoldBelowCost { sale: NanoUsd(10), cost: NanoUsd(2_000_000_000) };
        queue.enqueue_money(&record, &below, Timestamp(0), &shared.metrics);
    }
    let first = waiting.try_recv().unwrap().body;
    assert_eq!((&first["event"], &first["of"], &first["tokens"]), (&json!("usage_excess"), &json!("channel"), &json!(931)));
    let second = waiting.try_recv().unwrap().body;
    assert_eq!((&second["event"], &second["cost"], &second["model"]), (&json!("sold_below_cost"), &json!("2.00"), &json!("m")));
    assert!(waiting.try_recv().is_err(), "each once");
}

#[tokio::test]
async fn private_address_is_denied_unless_allowed() {
    let (server, mut requests) = receiver(&[204]).await;
    let (_, alerts) = to(&server, false).await;
    assert_eq!(alerts.post(Bytes::from_static(b"{}")).await, Err(ConnectFault::Denied));
    assert!(requests.try_recv().is_err());
}

#[tokio::test]
async fn alerts_beyond_the_queue_capacity_are_lost_and_counted() {
    let (server, _requests) = receiver(&[204]).await;
    let shared = shared(Settings::default(), Catalog::default());
    let (queue, alerts) = to(&server, true).await;
    for _ in 0..QUEUE_CAPACITY + 3 {
        enqueue(&queue, &shared);
    }
    assert!(shared.metrics.render().contains("tollgate_alerts_total{result=\"lost\"} 3"));
    let stop = CancellationToken::new();
    stop.cancel();
    alerts.run(Arc::clone(&shared), stop).await;
    assert!(shared.metrics.render().contains(&format!("tollgate_alerts_total{{result=\"lost\"}} {}", QUEUE_CAPACITY + 3)));
}
