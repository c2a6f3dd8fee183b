//! Exports to collectors on loopback.

use opentelemetry_proto::tonic::collector::trace::v1::ExportTracePartialSuccess;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio_util::task::TaskTracker;
use tollgate_core::{Catalog, Key, KeyId, Member, MemberId, RequestFacts};

use super::*;
use crate::{
    settings::Settings,
    state::{
        shares::{KeyShare, ShareRegistry},
        trace_queue::QUEUE_CAPACITY,
    },
    testing::{raw_upstream::RawUpstream, shared, usage_record},
};

/// A message as a collector received it.
#[derive(Debug)]
struct Received {
    head: String,
    body: Vec<u8>,
}

/// Reads a request with its body.
async fn read(socket: &mut tokio::net::TcpStream) -> Received {
    let (mut bytes, mut chunk) = (Vec::new(), [0; 4_096]);
    loop {
        let count = socket.read(&mut chunk).await.unwrap();
        bytes.extend_from_slice(&chunk[..count]);
        let end = bytes.windows(4).position(|window| window == b"\r\n\r\n");
        let Some(end) = end else { continue };
        let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
        let length = head.lines().find_map(|line| line.to_lowercase().strip_prefix("content-length: ")?.parse::<usize>().ok());
        if bytes.len() >= end + 4 + length.unwrap_or(0) {
            return Received { head, body: bytes[end + 4..].to_vec() };
        }
    }
}

/// A collector that sends these responses in turn, repeats the last one, and forwards the requests that it received.
async fn collector(answers: Vec<Vec<u8>>) -> (RawUpstream, mpsc::Receiver<Received>) {
    let (sender, received) = mpsc::channel(64);
    let answers = Arc::new(answers);
    let server = RawUpstream::start(move |mut socket, number| {
        let (sender, answers) = (sender.clone(), Arc::clone(&answers));
        async move {
            let message = read(&mut socket).await;
            // The request is answered before it is forwarded, so that it is counted once a test has received it.
            let _ = socket.write_all(&answers[number.min(answers.len() - 1)]).await;
            let _ = sender.send(message).await;
        }
    })
    .await;
    (server, received)
}

fn status(status: &str) -> Vec<u8> {
    format!("HTTP/1.1 {status}\r\ncontent-length: 0\r\n\r\n").into_bytes()
}

fn endpoint(server: &RawUpstream) -> Url {
    Url::parse(server.url.trim_end_matches("/v1")).unwrap()
}

fn settings(server: &RawUpstream) -> TelemetrySettings {
    TelemetrySettings {
        endpoint: endpoint(server),
        headers: vec![(HeaderName::from_static("authorization"), HeaderValue::from_static("Bearer secret"))],
        service_name: "gateway".to_owned(),
        instance: "node-1".to_owned(),
        version: "1.2.3".to_owned(),
        sampler: Sampler { ratio: 1.0, follows_parent: true },
        metrics_interval: None,
        private_network: true,
    }
}

/// The share of a key. It is the only key of its member.
fn share(number: u8) -> Arc<KeyShare> {
    let key = crate::testing::key();
    let member = Member { id: MemberId::from_parts(Timestamp(0), [number; 10]), ..key.member.clone() };
    ShareRegistry::default().of(&Key { id: KeyId::from_parts(Timestamp(0), [number; 10]), member, ..key })
}

/// Adds a request without attempts to the queue, of a key.
fn enqueue(queue: &TraceQueue, shared: &Shared, share: &Arc<KeyShare>) {
    let mut record = usage_record("m");
    record.attempts.clear();
    let facts = facts(&record);
    let trace = queue.begin(&facts, None).expect("every request is sampled");
    let dropped = queue.send(trace, &record, share);
    if dropped > 0 {
        shared.metrics.telemetry_spans(SpanEnd::Dropped, dropped);
    }
}

fn facts(record: &tollgate_core::UsageRecord) -> RequestFacts {
    RequestFacts {
        id: record.id,
        at: record.at,
        key: Arc::new(crate::testing::key()),
        group: None,
        protocol_in: record.protocol_in,
        method: record.method,
        model: record.model.clone(),
        stream: false,
        status: 200,
        outcome: record.outcome,
        reason: None,
        detail: None,
        sale: None,
        sale_multiplier: tollgate_core::Multiplier::ONE,
        price_version: record.price_version,
        input: tollgate_core::InputCount::default(),
        bounds: tollgate_core::UsageBounds::default(),
        delivered: tollgate_core::DeliveredContent::default(),
        attempts: smallvec::SmallVec::new(),
        ttft_us: None,
        duration_us: 0,
        address: None,
        client_request_id: None,
        client: None,
        request_bytes: 0,
        dropped: Vec::new(),
        trace: Vec::new(),
        tags: tollgate_core::Tags::default(),
    }
}

fn spans(received: &Received) -> usize {
    let message = ExportTraceServiceRequest::decode(&*received.body).unwrap();
    message.resource_spans.iter().flat_map(|resource| &resource.scope_spans).map(|scope| scope.spans.len()).sum()
}

fn counted(shared: &Shared, line: &str) -> bool {
    shared.metrics.render().lines().any(|found| found == line)
}

/// Yields until a line is in the metrics.
async fn until_counted(shared: &Shared, line: &str) {
    while !counted(shared, line) {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn spans_of_many_requests_are_sent_together() {
    let (server, mut received) = collector(vec![status("200 OK")]).await;
    let shared = shared(Settings::default(), Catalog::default());
    let (queue, telemetry) = Telemetry::to(settings(&server));
    for _ in 0..20 {
        enqueue(&queue, &shared, &share(1));
    }
    let (stop, tasks) = (CancellationToken::new(), TaskTracker::new());
    let running = tasks.spawn(telemetry.run(Arc::clone(&shared), stop.clone()));
    let message = received.recv().await.unwrap();
    assert!(message.head.starts_with("POST /v1/traces HTTP/1.1"), "{}", message.head);
    for header in ["content-type: application/x-protobuf", "authorization: Bearer secret"] {
        assert!(message.head.contains(header), "{}", message.head);
    }
    assert_eq!(spans(&message), 20);
    let sent = ExportTraceServiceRequest::decode(&*message.body).unwrap();
    let resource = sent.resource_spans[0].resource.clone().unwrap();
    for attribute in [text("service.name", "gateway"), text("service.version", "1.2.3"), text("service.instance.id", "node-1")] {
        assert!(resource.attributes.contains(&attribute), "{resource:?}");
    }
    until_counted(&shared, "tollgate_telemetry_spans_total{result=\"sent\"} 20").await;
    stop.cancel();
    running.await.unwrap();
}

#[tokio::test]
async fn queued_telemetry_is_sent_at_shutdown() {
    let (server, mut received) = collector(vec![status("200 OK")]).await;
    let shared = shared(Settings::default(), Catalog::default());
    let interval = Some(Duration::from_hours(1));
    let (queue, telemetry) = Telemetry::to(TelemetrySettings { metrics_interval: interval, ..settings(&server) });
    enqueue(&queue, &shared, &share(1));
    let stop = CancellationToken::new();
    stop.cancel();
    telemetry.run(Arc::clone(&shared), stop).await;
    assert!(counted(&shared, "tollgate_telemetry_spans_total{result=\"sent\"} 1"), "{}", shared.metrics.render());
    let mut paths = [received.recv().await.unwrap(), received.recv().await.unwrap()]
        .map(|message| message.head.lines().next().unwrap_or_default().to_owned());
    paths.sort();
    assert_eq!(paths, ["POST /v1/metrics HTTP/1.1", "POST /v1/traces HTTP/1.1"]);
}

/// Paused time advances as soon as every task is idle, so shutdown ends before a response arrives.
#[tokio::test(start_paused = true)]
async fn exports_cut_off_by_shutdown_are_counted_as_lost() {
    let server = RawUpstream::start(|_socket, _| std::future::pending()).await;
    let shared = shared(Settings::default(), Catalog::default());
    let interval = Some(Duration::from_hours(1));
    let (queue, telemetry) = Telemetry::to(TelemetrySettings { metrics_interval: interval, ..settings(&server) });
    for number in 0..MAX_SPANS + 3 {
        enqueue(&queue, &shared, &share(u8::try_from(number % 8).unwrap()));
    }
    let stop = CancellationToken::new();
    stop.cancel();
    telemetry.run(Arc::clone(&shared), stop).await;
    for line in [
        "tollgate_telemetry_spans_total{result=\"lost\"} 2051",
        "tollgate_telemetry_exports_total{signal=\"traces\",result=\"lost\"} 1",
        "tollgate_telemetry_exports_total{signal=\"metrics\",result=\"lost\"} 1",
    ] {
        assert!(counted(&shared, line), "{line} is not in\n{}", shared.metrics.render());
    }
}

#[tokio::test]
async fn spans_beyond_the_share_of_a_key_are_dropped_and_counted() {
    let (server, _received) = collector(vec![status("200 OK")]).await;
    let shared = shared(Settings::default(), Catalog::default());
    let (queue, mut telemetry) = Telemetry::to(settings(&server));
    let (flooding, other) = (share(1), share(2));
    let dropped = |count: usize| counted(&shared, &format!("tollgate_telemetry_spans_total{{result=\"dropped\"}} {count}"));
    for _ in 0..QUEUE_CAPACITY {
        enqueue(&queue, &shared, &flooding);
    }
    assert!(dropped(QUEUE_CAPACITY / 4), "{}", shared.metrics.render());
    drop(telemetry.requests.recv().await);
    enqueue(&queue, &shared, &flooding);
    assert!(dropped(QUEUE_CAPACITY / 4), "the place of a request whose spans are built is free");
    enqueue(&queue, &shared, &other);
    assert!(dropped(QUEUE_CAPACITY / 4), "another key has places");
    drop(telemetry);
    enqueue(&queue, &shared, &other);
    assert!(dropped(QUEUE_CAPACITY / 4 + 1), "nothing takes them");
}

#[tokio::test]
async fn transient_refusals_are_retried_and_permanent_ones_are_not() {
    let soon = |line: &str| format!("HTTP/1.1 {line}\r\nretry-after-ms: 10\r\ncontent-length: 0\r\n\r\n").into_bytes();
    let answers = vec![soon("429 Busy"), soon("503 Unavailable"), status("200 OK"), status("400 Bad"), soon("503 Unavailable")];
    let (server, mut received) = collector(answers).await;
    let shared = shared(Settings::default(), Catalog::default());
    let exporter = Exporter::new(endpoint(&server), HeaderMap::new(), true, Arc::clone(&shared));
    let message = Bytes::from_static(b"spans");
    exporter.export(Signal::Traces, &message, MAX_TRIES).await.unwrap();
    for _ in 0..3 {
        assert_eq!(received.recv().await.unwrap().body, b"spans");
    }
    assert_eq!(exporter.export(Signal::Traces, &message, MAX_TRIES).await, Err(ExportLost), "400");
    received.recv().await.unwrap();
    assert_eq!(exporter.export(Signal::Metrics, &message, MAX_TRIES).await, Err(ExportLost), "503 again and again");
    for _ in 0..MAX_TRIES {
        received.recv().await.unwrap();
    }
    assert!(received.try_recv().is_err());
    for line in [
        "tollgate_telemetry_exports_total{signal=\"traces\",result=\"sent\"} 1",
        "tollgate_telemetry_exports_total{signal=\"traces\",result=\"retried\"} 2",
        "tollgate_telemetry_exports_total{signal=\"traces\",result=\"lost\"} 1",
        "tollgate_telemetry_exports_total{signal=\"metrics\",result=\"retried\"} 4",
        "tollgate_telemetry_exports_total{signal=\"metrics\",result=\"lost\"} 1",
    ] {
        assert!(counted(&shared, line), "{line} is not in\n{}", shared.metrics.render());
    }
}

#[tokio::test]
async fn rejected_spans_are_counted() {
    let partial = ExportTracePartialSuccess { rejected_spans: 2, error_message: "no".to_owned() };
    let body = ExportTraceServiceResponse { partial_success: Some(partial) }.encode_to_vec();
    let mut answer = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", body.len()).into_bytes();
    answer.extend_from_slice(&body);
    let (server, _received) = collector(vec![answer]).await;
    let shared = shared(Settings::default(), Catalog::default());
    let (queue, telemetry) = Telemetry::to(settings(&server));
    for _ in 0..5 {
        enqueue(&queue, &shared, &share(1));
    }
    let stop = CancellationToken::new();
    stop.cancel();
    telemetry.run(Arc::clone(&shared), stop).await;
    for line in ["tollgate_telemetry_spans_total{result=\"sent\"} 3", "tollgate_telemetry_spans_total{result=\"rejected\"} 2"] {
        assert!(counted(&shared, line), "{}", shared.metrics.render());
    }
}

#[tokio::test]
async fn private_collectors_need_the_setting() {
    let (server, _received) = collector(vec![status("200 OK")]).await;
    let shared = shared(Settings::default(), Catalog::default());
    let exporter = Exporter::new(endpoint(&server), HeaderMap::new(), false, Arc::clone(&shared));
    assert_eq!(exporter.export(Signal::Traces, &Bytes::new(), 1).await, Err(ExportLost));
}

#[tokio::test]
async fn credentials_of_the_collector_are_not_shown() {
    let (server, _received) = collector(vec![status("200 OK")]).await;
    let (queue, telemetry) = Telemetry::to(settings(&server));
    let shown = format!("{telemetry:?} {queue:?}");
    assert!(!shown.contains("Bearer"), "{shown}");
}
