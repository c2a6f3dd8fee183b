//! Alerts against receivers on loopback.

use tokio::io::AsyncWriteExt as _;
use tollgate_core::{Budget, BudgetAction, NanoUsd, Secret, Window};

use super::*;
use crate::{
    Settings,
    forward::testing::{RawUpstream, read_request},
    testing::{shared, usage_record},
};

fn crossed() -> Crossed {
    let budget = Budget { amount: NanoUsd(50_000_000_000), window: Window::Month, action: BudgetAction::Alert };
    Crossed { subject: Subject::Key(usage_record("m").key), budget, spent: NanoUsd(50_000_000_001) }
}

/// A receiver that answers with these statuses in turn and hands on what it was sent.
async fn receiver(statuses: &'static [u16]) -> (RawUpstream, mpsc::Receiver<String>) {
    let (told, heard) = mpsc::channel(8);
    let server = RawUpstream::start(move |mut socket, number| {
        let told = told.clone();
        async move {
            let request = read_request(&mut socket).await.unwrap();
            told.send(request).await.unwrap();
            let status = statuses[number.min(statuses.len() - 1)];
            let _ = socket.write_all(format!("HTTP/1.1 {status} X\r\ncontent-length: 0\r\n\r\n").as_bytes()).await;
        }
    })
    .await;
    (server, heard)
}

fn to(server: &RawUpstream, private_network: bool) -> (AlertQueue, Alerts) {
    let secret = Some(Secret::new("a shared secret".to_owned()));
    Alerts::to(Webhook { url: Url::parse(&server.url).unwrap(), secret, private_network })
}

#[tokio::test]
async fn a_spent_budget_is_told_signed_and_again_until_it_is_taken() {
    let (server, mut heard) = receiver(&[500, 204]).await;
    let shared = shared(Settings::default(), Catalog::default());
    let (queue, alerts) = to(&server, true);
    let record = usage_record("m");
    queue.tell(&shared, record.id, &record.key_name, &crossed());
    let stop = CancellationToken::new();
    let tasks = TaskTracker::new();
    let running = tasks.spawn(alerts.run(Arc::clone(&shared), stop.clone()));
    let first = heard.recv().await.unwrap();
    let again = heard.recv().await.unwrap();
    assert_eq!(first.split("\r\n\r\n").nth(1), again.split("\r\n\r\n").nth(1), "the same once more");
    let (head, body) = again.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("POST "), "{head}");
    let mut mac = Hmac::<Sha256>::new_from_slice(b"a shared secret").unwrap();
    mac.update(body.as_bytes());
    assert!(head.contains(&format!("{SIGNATURE}: sha256={}", hex::encode(mac.finalize().into_bytes()))), "{head}");
    let said: Value = serde_json::from_str(body).unwrap();
    assert_eq!(
        (&said["event"], &said["of"], &said["window"], &said["amount_usd"], &said["spent_nano_usd"]),
        (&json!("budget_spent"), &json!("key"), &json!("month"), &json!("50.00"), &json!(50_000_000_001_i64))
    );
    while !shared.metrics.render().contains("tollgate_alerts_total{result=\"sent\"} 1") {
        tokio::task::yield_now().await;
    }
    stop.cancel();
    running.await.unwrap();
}

#[tokio::test]
async fn a_private_address_is_not_reached_without_leave() {
    let (server, mut heard) = receiver(&[204]).await;
    let (_, alerts) = to(&server, false);
    assert_eq!(alerts.post(Bytes::from_static(b"{}")).await, Err(ConnectFault::Denied));
    assert!(heard.try_recv().is_err());
}

#[tokio::test]
async fn more_alerts_than_the_queue_holds_are_lost_and_counted() {
    let (server, _heard) = receiver(&[204]).await;
    let shared = shared(Settings::default(), Catalog::default());
    let (queue, alerts) = to(&server, true);
    for _ in 0..QUEUE + 3 {
        queue.tell(&shared, usage_record("m").id, "ci", &crossed());
    }
    assert!(shared.metrics.render().contains("tollgate_alerts_total{result=\"lost\"} 3"));
    let stop = CancellationToken::new();
    stop.cancel();
    alerts.run(Arc::clone(&shared), stop).await;
    assert!(shared.metrics.render().contains(&format!("tollgate_alerts_total{{result=\"lost\"}} {}", QUEUE + 3)));
}
