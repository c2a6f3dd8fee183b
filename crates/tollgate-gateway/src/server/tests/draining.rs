//! Graceful shutdown.

use super::*;

async fn draining(gate: &Gate) {
    gate.shutdown.cancel();
    let begun = async {
        while !gate.shared.serving.is_draining() {
            tokio::task::yield_now().await;
        }
    };
    timeout(TIMEOUT, begun).await.expect("the drain begins");
}

#[tokio::test]
async fn requests_in_progress_complete_and_new_ones_are_refused() {
    let gate = Gate::open(Settings::default());
    let mut streaming = gate.connect().await;
    streaming.send(chat("X-Script: hang midway\r\n", "")).await;
    streaming.until("piece").await;
    draining(&gate).await;

    let refused = gate.say(chat("", "")).await;
    assert!(statuses(&refused) == [503] && refused.contains("shutting_down"), "{refused}");
    assert!(refused.contains("connection: close\r\n") && refused.contains("retry-after: 2\r\n"), "{refused}");
    let ready = gate.say("GET /readyz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").await;
    assert!(statuses(&ready) == [503] && ready.contains("draining"), "{ready}");
    let health = gate.say("GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").await;
    assert_eq!(statuses(&health), [200]);

    assert_eq!(gate.shared.serving.in_flight(), 1, "the stream continues");
    drop(streaming);
    assert_eq!(timeout(TIMEOUT, gate.run).await.unwrap().unwrap().unwrap(), Drained::Complete);
    assert!(TcpStream::connect(gate.address).await.is_err(), "the port is closed");
}

#[tokio::test]
async fn idle_connections_do_not_delay_shutdown() {
    let gate = Gate::open(Settings::default());
    let mut silent = gate.connect().await;
    let mut used = gate.connect().await;
    used.send(chat("", "")).await;
    used.until("length 0").await;
    draining(&gate).await;
    assert_eq!(used.rest().await, "");
    assert_eq!(timeout(TIMEOUT, gate.run).await.unwrap().unwrap().unwrap(), Drained::Complete);
    assert_eq!(silent.rest().await, "");
}

#[tokio::test]
async fn drain_ends_at_its_deadline() {
    let settings = Settings { drain: Duration::from_millis(100), ..Settings::default() };
    let gate = Gate::open(settings);
    let mut streaming = gate.connect().await;
    streaming.send(chat("X-Script: hang midway\r\n", "")).await;
    streaming.until("piece").await;
    let shared = Arc::clone(&gate.shared);
    assert_eq!(gate.close().await, Drained::CutOff(1));
    assert_eq!(shared.serving.in_flight(), 0, "requests that were cut off are dropped");
    assert!(!streaming.rest().await.ends_with("0\r\n\r\n"), "a truncated answer does not look complete");
}

#[tokio::test]
async fn core_that_cannot_start_is_an_error() {
    let settings = Settings { listen: SocketAddr::from(([127, 0, 0, 1], 0)), cores: 2, ..Settings::default() };
    let listening = listen(&settings).unwrap();
    let shared = shared(settings, Catalog::default());
    let inner = Arc::clone(&shared);
    let path = move |index| if index == 1 { Err("no memory".into()) } else { Ok(Script(Arc::clone(&inner))) };
    let error = run(shared, listening, path, Arc::new(NotFound), CancellationToken::new()).await.unwrap_err();
    assert_eq!(error.to_string(), "cannot set up core 1: no memory");
}
