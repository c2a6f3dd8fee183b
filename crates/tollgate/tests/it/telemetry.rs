//! Traces and metrics as a collector receives them over OTLP.

use std::{
    collections::BTreeMap,
    net::{SocketAddr, TcpListener},
    time::Duration,
};

use opentelemetry_proto::tonic::{
    collector::{metrics::v1::ExportMetricsServiceRequest, trace::v1::ExportTraceServiceRequest},
    common::v1::{KeyValue, any_value},
    metrics::v1::{AggregationTemporality, metric::Data, number_data_point},
    trace::v1::{Span, span::SpanKind, status::StatusCode},
};
use prost::Message;
use serde_json::{Value, json};
use tollgate_testkit::{Request, ScriptedResponse, TestGateway, TestGatewayBuilder, Upstream, wait_for};

use crate::support::{self, PROGRAM};

/// The token for the collector.
const TOKEN: &str = "collector-token-CANARY-0123456789";
const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
const PARENT: &str = "b7ad6b7169203331";
/// Time until a span or a metric is exported.
const EXPORT_LIMIT: Duration = Duration::from_secs(2);

/// A collector that accepts everything.
fn collector() -> Upstream {
    let collector = Upstream::start();
    collector.set_default(ScriptedResponse::status(200));
    collector
}

/// Configures a gateway to export to a collector, with metrics five times a second.
fn exporting(builder: TestGatewayBuilder, collector: SocketAddr) -> TestGatewayBuilder {
    builder
        .env("TOLLGATE_TELEMETRY__OTLP_ENDPOINT", &format!("http://{collector}/otlp"))
        .env("TOLLGATE_TELEMETRY__HEADERS", &format!("authorization=Bearer {TOKEN}"))
        .env("TOLLGATE_TELEMETRY__METRICS_INTERVAL_MS", "200")
}

/// A gateway in front of a scripted upstream that exports to a collector.
fn gateway(upstream: &Upstream, collector: &Upstream) -> TestGateway {
    exporting(support::builder(upstream, "cooling = false"), collector.address()).spawn()
}

fn messages<M: Message + Default>(collector: &Upstream, path: &str) -> Vec<M> {
    let received = collector.received().into_iter().filter(|request| request.line == format!("POST {path}"));
    received.map(|request| M::decode(&*request.body).expect("a message of OTLP")).collect()
}

fn spans(collector: &Upstream) -> Vec<Span> {
    let messages: Vec<ExportTraceServiceRequest> = messages(collector, "/otlp/v1/traces");
    let scopes = messages.into_iter().flat_map(|message| message.resource_spans).flat_map(|resource| resource.scope_spans);
    scopes.flat_map(|scope| scope.spans).collect()
}

/// Waits for the spans of this many requests, and returns those of each, the request's own first.
fn traces(collector: &Upstream, requests: usize) -> Vec<Vec<Span>> {
    let is_request = |span: &Span| span.kind == SpanKind::Server as i32;
    wait_for("spans", EXPORT_LIMIT, || spans(collector).iter().filter(|span| is_request(span)).count() >= requests);
    let spans = spans(collector);
    let below = |request: &Span| {
        let mut attempts: Vec<Span> =
            spans.iter().filter(|span| !is_request(span) && span.parent_span_id == request.span_id).cloned().collect();
        attempts.sort_by_key(|span| span.start_time_unix_nano);
        attempts
    };
    let mut traces: Vec<_> =
        spans.iter().filter(|span| is_request(span)).map(|request| [vec![request.clone()], below(request)].concat()).collect();
    traces.sort_by_key(|trace| trace[0].start_time_unix_nano);
    assert_eq!(traces.iter().map(Vec::len).sum::<usize>(), spans.len(), "every attempt is below its request");
    traces
}

fn attributes(attributes: &[KeyValue]) -> BTreeMap<String, Value> {
    let value = |attribute: &KeyValue| match attribute.value.clone().and_then(|value| value.value) {
        Some(any_value::Value::StringValue(text)) => json!(text),
        Some(any_value::Value::IntValue(number)) => json!(number),
        Some(any_value::Value::DoubleValue(number)) => json!(number),
        Some(any_value::Value::BoolValue(flag)) => json!(flag),
        Some(any_value::Value::ArrayValue(list)) => {
            let text = |value| if let Some(any_value::Value::StringValue(text)) = value { text } else { String::new() };
            list.values.into_iter().map(|value| text(value.value)).collect()
        }
        other => panic!("{other:?}"),
    };
    attributes.iter().map(|attribute| (attribute.key.clone(), value(attribute))).collect()
}

/// Checks that a span has these attributes.
fn assert_attributes(span: &Span, expected: &[(&str, Value)]) {
    let found = attributes(&span.attributes);
    for (name, value) in expected {
        assert_eq!(found.get(*name).unwrap_or(&Value::Null), value, "{name} of {found:#?}");
    }
}

fn code(span: &Span) -> StatusCode {
    span.status.as_ref().map_or(StatusCode::Unset, |status| StatusCode::try_from(status.code).unwrap())
}

/// The value of a sample of `/metrics`; 0 if there is none.
fn sample(gateway: &TestGateway, name: &str) -> u64 {
    let text = gateway.send(&Request::get("/metrics")).text();
    let value = text.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok());
    value.unwrap_or(0)
}

#[test]
fn request_spans_are_children_of_the_callers_spans() {
    let (upstream, collector) = (Upstream::start(), collector());
    upstream.enqueue(ScriptedResponse::chat("well")).enqueue(ScriptedResponse::chat_stream(&["a", "b"]));
    let mut gateway = gateway(&upstream, &collector);
    let parent = format!("00-{TRACE}-{PARENT}-01");
    let request = Request::post("/v1/chat/completions", &support::chat("chat-model")).bearer(gateway.key());
    let answer = gateway.send(&request.header("traceparent", &parent));
    assert_eq!(answer.status, 200);
    let streamed = gateway.chat(&support::chat_stream("chat-model"));
    assert_eq!(streamed.status, 200);
    let [whole, stream] = traces(&collector, 2).try_into().unwrap();

    let [request, attempt] = whole.try_into().unwrap();
    let id = answer.header("x-request-id").unwrap();
    assert_eq!((hex(&request.trace_id).as_str(), hex(&request.parent_span_id).as_str()), (TRACE, PARENT));
    assert_eq!(hex(&attempt.trace_id), TRACE);
    assert_eq!((request.name.as_str(), attempt.name.as_str()), ("chat chat-model", "chat upstream-model"));
    assert_eq!(attempt.kind, SpanKind::Client as i32);
    assert_eq!((code(&request), code(&attempt)), (StatusCode::Unset, StatusCode::Unset));
    assert!(request.start_time_unix_nano <= attempt.start_time_unix_nano);
    let record = gateway.record_of(&answer);
    assert_attributes(
        &request,
        &[
            ("gen_ai.operation.name", json!("chat")),
            ("gen_ai.provider.name", json!("compatible")),
            ("gen_ai.request.model", json!("chat-model")),
            ("gen_ai.response.model", json!("upstream-model")),
            ("gen_ai.response.finish_reasons", json!(["stop"])),
            ("gen_ai.usage.input_tokens", json!(5)),
            ("gen_ai.usage.output_tokens", json!(7)),
            ("gen_ai.request.stream", Value::Null),
            ("http.response.status_code", json!(200)),
            ("tollgate.request.id", json!(id)),
            ("tollgate.key.id", record["key"].clone()),
            ("tollgate.group.name", json!("default")),
            ("tollgate.sale_nano_usd", json!(190_000)),
            ("tollgate.cost_nano_usd", json!(19_000)),
            ("tollgate.outcome", json!("completed")),
            ("error.type", Value::Null),
        ],
    );
    assert_attributes(
        &attempt,
        &[
            ("gen_ai.request.model", json!("upstream-model")),
            ("server.address", json!("127.0.0.1")),
            ("server.port", json!(upstream.address().port())),
            ("tollgate.channel.name", json!("chat")),
            ("tollgate.account.name", json!("chat-account")),
            ("tollgate.attempt.result", json!("answered")),
            ("tollgate.attempt.number", json!(1)),
        ],
    );

    let [request, attempt] = stream.try_into().unwrap();
    assert!(request.parent_span_id.is_empty());
    assert_eq!(request.trace_id, attempt.trace_id);
    assert_attributes(&request, &[("gen_ai.request.stream", json!(true)), ("gen_ai.response.finish_reasons", json!(["stop"]))]);
    assert!(attributes(&request.attributes)["gen_ai.response.time_to_first_chunk"].is_f64());

    assert_nothing_secret(&collector, &[gateway.key(), "well"]);
    for forwarded in upstream.received() {
        assert_eq!(forwarded.header("traceparent"), None, "the caller's trace is not passed on");
    }
    let shown = gateway.run(&["--json", "check"]);
    assert!(!String::from_utf8_lossy(&shown.stdout).contains(TOKEN), "the setting is masked");
    gateway.stop();
    assert!(!gateway.log().contains(TOKEN), "{}", gateway.log());
}

/// Checks that exports carry the token, and neither credentials, prompts nor these texts.
fn assert_nothing_secret(collector: &Upstream, texts: &[&str]) {
    let received = collector.received();
    assert!(received.iter().all(|request| request.header("authorization") == Some(format!("Bearer {TOKEN}").as_str())));
    assert!(received.iter().all(|request| request.header("content-type") == Some("application/x-protobuf")));
    for secret in texts.iter().chain(&["prompt-canary", tollgate_testkit::UPSTREAM_CREDENTIAL]) {
        let has = |body: &[u8]| body.windows(secret.len()).any(|window| window == secret.as_bytes());
        assert!(!received.iter().any(|request| has(&request.body)), "an export has '{secret}'");
    }
}

#[test]
fn fail_over_and_refusals_are_exported() {
    let (first, second, collector) = (Upstream::start(), Upstream::start(), collector());
    first.set_default(ScriptedResponse::error(500, &json!({"error": {"message": "broken"}})));
    second.set_default(ScriptedResponse::chat("well"));
    let catalog = support::channel("first", "openai", &first.openai_url(), "chat-model", "cooling = false")
        + &support::channel("second", "openai", &second.openai_url(), "chat-model", "priority = 1\ncooling = false")
        + &support::prices(&["chat-model"])
        + &support::group(&["first", "second"]);
    let gateway = exporting(TestGateway::builder(PROGRAM).catalog(&catalog), collector.address()).spawn();
    assert_eq!(gateway.chat(&support::chat("chat-model")).status, 200);
    let refused = gateway.chat(&support::chat("a-model-of-the-caller"));
    assert_eq!(refused.status, 404);
    second.set_default(ScriptedResponse::error(500, &json!({"error": {"message": "broken"}})));
    assert!(gateway.chat(&support::chat("chat-model")).status >= 500);
    assert_eq!(gateway.send(&Request::post("/v1/chat/completions", &support::chat("chat-model")).bearer("wrong")).status, 401);
    let [failed_over, unknown, failed] = traces(&collector, 3).try_into().unwrap();

    let [request, one, two] = failed_over.try_into().unwrap();
    assert_eq!((code(&request), code(&one), code(&two)), (StatusCode::Unset, StatusCode::Error, StatusCode::Unset));
    assert_eq!(attributes(&request.attributes)["tollgate.attempts"], 2);
    assert_attributes(
        &one,
        &[
            ("tollgate.channel.name", json!("first")),
            ("http.response.status_code", json!(500)),
            ("tollgate.attempt.number", json!(1)),
        ],
    );
    assert!(attributes(&one.attributes)["error.type"].as_str().unwrap().starts_with('E'));
    assert_attributes(&two, &[("tollgate.channel.name", json!("second")), ("tollgate.attempt.number", json!(2))]);

    let [request] = unknown.try_into().unwrap();
    assert_eq!((request.name.as_str(), code(&request)), ("chat", StatusCode::Unset), "a mistake of the caller");
    assert_attributes(
        &request,
        &[
            ("gen_ai.request.model", json!("a-model-of-the-caller")),
            ("gen_ai.provider.name", json!("tollgate")),
            ("tollgate.outcome", json!("refused")),
            ("http.response.status_code", json!(404)),
        ],
    );
    assert!(attributes(&request.attributes)["error.type"].as_str().unwrap().starts_with('E'));
    assert_eq!(code(&failed[0]), StatusCode::Error);
    assert_eq!(failed.len(), 3);
}

#[test]
fn sampling_follows_the_caller_or_the_ratio() {
    let (upstream, collector) = (Upstream::start(), collector());
    upstream.set_default(ScriptedResponse::chat("well"));
    let ask = |gateway: &TestGateway, flags: Option<&str>| {
        let request = Request::post("/v1/chat/completions", &support::chat("chat-model")).bearer(gateway.key());
        let request = match flags {
            Some(flags) => request.header("traceparent", &format!("00-{TRACE}-{PARENT}-{flags}")),
            None => request,
        };
        assert_eq!(gateway.send(&request).status, 200);
    };
    let with = |sampling: &str, ratio: &str| {
        exporting(support::builder(&upstream, ""), collector.address())
            .env("TOLLGATE_TELEMETRY__SAMPLING", sampling)
            .env("TOLLGATE_TELEMETRY__SAMPLE_RATIO", ratio)
            .spawn()
    };
    // A stopped gateway has sent everything.
    let traced = |mut gateway: TestGateway, flags: &[Option<&str>]| {
        let before = spans(&collector).len();
        for flags in flags {
            ask(&gateway, *flags);
        }
        assert_eq!(gateway.stop(), Some(0));
        (spans(&collector).len() - before) / 2
    };
    assert_eq!(traced(with("parent", "0"), &[None, Some("00"), Some("01"), Some("zz")]), 1, "only that of the sampled parent");
    assert_eq!(traced(with("parent", "1"), &[None, Some("00"), Some("01"), Some("zz")]), 3, "all but the unsampled parent's");
    assert_eq!(traced(with("ratio", "0"), &[None, Some("01")]), 0);
    assert_eq!(traced(with("ratio", "1"), &[None, Some("00")]), 2);
}

#[test]
fn exported_metrics_match_the_metrics_page_and_the_conventions() {
    let (upstream, collector) = (Upstream::start(), collector());
    upstream.set_default(ScriptedResponse::chat("well"));
    let gateway = gateway(&upstream, &collector);
    for _ in 0..3 {
        assert_eq!(gateway.chat(&support::chat("chat-model")).status, 200);
    }
    assert_eq!(gateway.chat(&support::chat("a-model-of-the-caller")).status, 404);
    let metric = |name: &str| {
        let messages: Vec<ExportMetricsServiceRequest> = messages(&collector, "/otlp/v1/metrics");
        let scopes = messages.into_iter().flat_map(|message| message.resource_metrics).flat_map(|resource| resource.scope_metrics);
        scopes.flat_map(|scope| scope.metrics).rfind(|metric| metric.name == name)
    };
    let counted = |name: &str, wanted: &[(&str, &str)]| {
        let Some(Data::Sum(sum)) = metric(name)?.data else { panic!("{name} is not a sum") };
        assert!(sum.is_monotonic && sum.aggregation_temporality == AggregationTemporality::Cumulative as i32);
        let has = |point: &[KeyValue]| {
            let found = attributes(point);
            wanted.iter().all(|(name, value)| found.get(*name).is_some_and(|it| it == value))
        };
        sum.data_points.into_iter().find(|point| has(&point.attributes)).map(|point| {
            assert!(point.start_time_unix_nano > 0 && point.start_time_unix_nano < point.time_unix_nano);
            point.value.unwrap()
        })
    };
    let three = Some(number_data_point::Value::AsInt(3));
    wait_for("the requests", EXPORT_LIMIT, || counted("tollgate_requests", &[("model", "chat-model"), ("status", "200")]) == three);
    let attributes_of_chat = [
        ("gen_ai.operation.name", "chat"),
        ("gen_ai.provider.name", "compatible"),
        ("gen_ai.request.model", "chat-model"),
        ("gen_ai.token.modality", "unknown"),
    ];
    wait_for("the tokens", EXPORT_LIMIT, || {
        let output = counted("gen_ai.client.inference.usage.output_tokens", &attributes_of_chat);
        output == Some(number_data_point::Value::AsInt(21))
    });
    for (name, unit, count) in [
        ("gen_ai.client.inference.duration", "s", 3),
        ("gen_ai.client.operation.duration", "s", 3),
        ("gen_ai.client.token.usage", "{token}", 3),
        ("gen_ai.server.request.duration", "s", 3),
        ("tollgate_request_duration_seconds", "s", 4),
    ] {
        wait_for(name, EXPORT_LIMIT, || {
            let Some(metric) = metric(name) else { return false };
            assert_eq!(metric.unit, unit);
            let Some(Data::Histogram(histogram)) = metric.data else { panic!("{name} is not a histogram") };
            histogram.data_points.iter().any(|point| {
                assert_eq!(point.bucket_counts.len(), point.explicit_bounds.len() + 1);
                assert_eq!(point.bucket_counts.iter().sum::<u64>(), point.count);
                point.count == count
            })
        });
    }
    let page = gateway.send(&Request::get("/metrics")).text();
    for line in page.lines().filter(|line| line.starts_with("# TYPE ")) {
        let name = line.split(' ').nth(2).unwrap();
        let has_samples = page.lines().any(|line| line.starts_with(name));
        if has_samples {
            wait_for(name, EXPORT_LIMIT, || metric(name).or_else(|| metric(&format!("{name}_info"))).is_some());
        }
    }
    assert!(!page.contains("gen_ai"), "their names are not Prometheus names");
    assert!(!page.contains("a-model-of-the-caller"));
}

#[test]
fn log_names_the_telemetry_endpoint_and_its_variable() {
    let (upstream, collector) = (Upstream::start(), collector());
    upstream.set_default(ScriptedResponse::chat("well"));
    let endpoint = format!("http://{}/otlp", collector.address());
    let mut gateway = support::builder(&upstream, "").env("OTEL_EXPORTER_OTLP_ENDPOINT", &endpoint).spawn();
    assert_eq!(gateway.chat(&support::chat("chat-model")).status, 200);
    assert_eq!(traces(&collector, 1).len(), 1);
    gateway.stop();
    let log = gateway.log();
    assert!(log.lines().any(|line| line.contains(&endpoint) && line.contains("OTEL_EXPORTER_OTLP_ENDPOINT")), "{log}");
}

#[test]
fn failing_collector_delays_no_request_and_exports_resume() {
    let upstream = Upstream::start();
    upstream.set_default(ScriptedResponse::chat("well"));
    let collector = collector();
    let busy = |status| ScriptedResponse::status(status).header("retry-after-ms", "20");
    // Slow, refused temporarily, refused permanently; then it accepts everything.
    collector.enqueue(ScriptedResponse::status(200).delay(Duration::from_secs(3)));
    collector.enqueue(busy(429)).enqueue(busy(503)).enqueue(ScriptedResponse::status(400));
    let builder = exporting(support::builder(&upstream, ""), collector.address());
    let mut gateway = builder.env("TOLLGATE_TELEMETRY__METRICS_INTERVAL_MS", "0").spawn();
    let ask = || assert_eq!(gateway.chat(&support::chat("chat-model")).status, 200);
    ask();
    wait_for("the first export", EXPORT_LIMIT, || !collector.received().is_empty());
    ask();
    wait_for("retries", EXPORT_LIMIT, || {
        sample(&gateway, "tollgate_telemetry_exports_total{signal=\"traces\",result=\"retried\"}") == 2
    });
    wait_for("a lost batch", EXPORT_LIMIT, || sample(&gateway, "tollgate_telemetry_spans_total{result=\"lost\"}") == 2);
    ask();
    wait_for("spans", EXPORT_LIMIT, || sample(&gateway, "tollgate_telemetry_spans_total{result=\"sent\"}") == 4);
    assert!(gateway.log().contains("telemetry cannot be exported and is lost"), "{}", gateway.log());
    assert!(gateway.log().contains("telemetry reaches the collector again"), "{}", gateway.log());
    assert_eq!(gateway.stop(), Some(0));
    assert!(!gateway.log().contains(TOKEN));
}

#[test]
fn unreachable_collector_delays_neither_requests_nor_shutdown() {
    let upstream = Upstream::start();
    upstream.set_default(ScriptedResponse::chat("well"));
    // A port on which nothing listens, and one on which nothing is answered.
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    for address in [closed, silent.local_addr().unwrap()] {
        let mut gateway = exporting(support::builder(&upstream, ""), address).spawn();
        for _ in 0..5 {
            assert_eq!(gateway.chat(&support::chat("chat-model")).status, 200);
        }
        assert_eq!(gateway.stop(), Some(0), "{}", gateway.log());
        let log = gateway.log();
        assert!(!log.contains(TOKEN));
        let lost = log.lines().find(|line| line.contains("the last spans could not be exported before the end and are lost"));
        assert!(lost.is_some_and(|line| line.contains("\"spans\":10")), "a request and its attempt have a span each: {log}");
    }
}

#[test]
fn nothing_is_exported_by_default() {
    let (upstream, collector) = (Upstream::start(), collector());
    upstream.set_default(ScriptedResponse::chat("well"));
    let gateway = support::builder(&upstream, "").spawn();
    let request = Request::post("/v1/chat/completions", &support::chat("chat-model")).bearer(gateway.key());
    assert_eq!(gateway.send(&request.header("traceparent", &format!("00-{TRACE}-{PARENT}-01"))).status, 200);
    assert_eq!(upstream.connections(), 1);
    let page = gateway.send(&Request::get("/metrics")).text();
    assert!(!page.contains("tollgate_telemetry_spans_total") && !page.contains("tollgate_telemetry_exports_total"), "{page}");
    assert_eq!(collector.connections(), 0);
    assert_eq!(peers(gateway.pid(), gateway.address()), [upstream.address().port()], "no other connection is open");
}

/// Ports of the loopback peers that a process has connected to.
fn peers(pid: u32, own: SocketAddr) -> Vec<u16> {
    let descriptors = std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap();
    let links = descriptors.filter_map(|entry| std::fs::read_link(entry.unwrap().path()).ok());
    let sockets: Vec<String> =
        links.filter_map(|link| Some(link.to_str()?.strip_prefix("socket:[")?.trim_end_matches(']').to_owned())).collect();
    let tables = ["tcp", "tcp6"].map(|table| std::fs::read_to_string(format!("/proc/{pid}/net/{table}")).unwrap_or_default());
    let port = |address: &str| u16::from_str_radix(address.rsplit(':').next().unwrap(), 16).unwrap();
    let mut ports = Vec::new();
    for line in tables.iter().flat_map(|table| table.lines().skip(1)) {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let is_established = fields[3] == "01";
        if is_established && port(fields[1]) != own.port() && sockets.iter().any(|socket| socket == fields[9]) {
            ports.push(port(fields[2]));
        }
    }
    ports
}

#[test]
fn wrong_settings_are_refused_without_their_secrets() {
    for (name, value, fault) in [
        ("OTLP_ENDPOINT", "127.0.0.1:4318", "telemetry.otlp_endpoint takes an address such as http://127.0.0.1:4318"),
        ("OTLP_ENDPOINT", "http://me:secret-of-mine@127.0.0.1:4318", "put credentials into telemetry.headers"),
        ("SAMPLE_RATIO", "2", "takes a number from 0 to 1"),
        ("SERVICE_NAME", "mine", "telemetry.service_name is set without telemetry.otlp_endpoint"),
    ] {
        let name = format!("TOLLGATE_TELEMETRY__{name}");
        let refused = TestGateway::builder(PROGRAM).env(&name, value).without_record_check().run_to_exit();
        let said = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert_eq!(refused.status.code(), Some(3), "{said}");
        assert!(said.contains(fault) && !said.contains("secret-of-mine"), "{said}");
    }
    let refused = TestGateway::builder(PROGRAM)
        .env("TOLLGATE_TELEMETRY__OTLP_ENDPOINT", "http://127.0.0.1:4318")
        .env("TOLLGATE_TELEMETRY__HEADERS", "secret-of-mine")
        .without_record_check()
        .run_to_exit();
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!(refused.status.code(), Some(3), "{said}");
    assert!(said.contains("telemetry.headers: entry 1 is not NAME=VALUE") && !said.contains("secret-of-mine"), "{said}");
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
