//! Spans of requests.

use std::sync::Arc;

use opentelemetry_proto::tonic::common::v1::any_value::Value;
use tollgate_core::{AttemptRecord, NanoUsd, UsageRecord};
use tollgate_protocol::{FinishReason, Method, Protocol};

use super::*;
use crate::{
    state::trace_queue::own_trace,
    testing::{channel, usage_record},
};

fn traced(record: &UsageRecord) -> TracedRequest {
    let attempts = record.attempts.iter().map(|record| TracedAttempt {
        channel: Arc::new(channel("http://user:secret@10.1.2.3:8443/v1?key=secret")),
        finish: (record.result == AttemptResult::Answered).then_some(FinishReason::Length),
        record: record.clone(),
    });
    TracedRequest {
        trace: own_trace(record.id),
        parent: None,
        id: record.id,
        at: record.at,
        key: record.key,
        group: record.group_name.clone(),
        protocol: record.protocol_in,
        method: record.method,
        model: record.model.clone(),
        is_offered: record.offered_model().is_some(),
        stream: record.stream,
        status: record.status,
        outcome: record.outcome,
        reason: record.reason.clone(),
        tokens: record.tokens,
        cost: record.cost,
        sale: record.sale,
        ttft_us: record.ttft_us,
        duration_us: record.duration_us,
        attempts: attempts.collect(),
    }
}

/// An attribute as JSON.
fn get(span: &Span, key: &str) -> serde_json::Value {
    let found: Vec<_> = span.attributes.iter().filter(|attribute| attribute.key == key).collect();
    assert!(found.len() < 2, "{key} occurs twice");
    let value = found.first().and_then(|attribute| attribute.value.clone()?.value);
    match value {
        None => serde_json::Value::Null,
        Some(Value::StringValue(text)) => text.into(),
        Some(Value::IntValue(number)) => number.into(),
        Some(Value::DoubleValue(number)) => number.into(),
        Some(Value::BoolValue(flag)) => flag.into(),
        Some(Value::ArrayValue(array)) => format!("{array:?}").into(),
        Some(other) => panic!("{other:?}"),
    }
}

#[test]
fn answered_request_has_a_span_with_one_attempt_below_it() {
    let mut record = usage_record("m");
    record.at = Timestamp(1_795_000_000_000_000);
    record.attempts[0].at = Timestamp(1_795_000_000_100_000);
    record.stream = true;
    record.tokens.cache_write = 4;
    let [request, attempt] = spans_of(&traced(&record)).try_into().unwrap();
    assert_eq!((request.name.as_str(), request.kind), ("chat m", SpanKind::Server as i32));
    assert_eq!((attempt.name.as_str(), attempt.kind), ("chat upstream", SpanKind::Client as i32));
    assert_eq!(request.trace_id, record.id.uuid().into_bytes());
    assert_eq!((&attempt.trace_id, &attempt.parent_span_id), (&request.trace_id, &request.span_id));
    assert!(request.parent_span_id.is_empty() && attempt.span_id != request.span_id);
    assert_eq!(request.start_time_unix_nano, 1_795_000_000_000_000_000);
    assert_eq!(request.end_time_unix_nano, 1_795_000_002_000_000_000);
    assert_eq!(attempt.start_time_unix_nano, 1_795_000_000_100_000_000);
    assert_eq!(attempt.end_time_unix_nano - attempt.start_time_unix_nano, 1_500_000_000);
    for span in [&request, &attempt] {
        assert_eq!(span.status, Some(Status::default()));
        assert_eq!(get(span, "error.type"), serde_json::Value::Null);
        assert_eq!(get(span, "gen_ai.operation.name"), "chat");
        assert_eq!(get(span, "gen_ai.provider.name"), "compatible");
        assert_eq!(get(span, "gen_ai.request.stream"), true);
        assert_eq!(get(span, "gen_ai.usage.output_tokens"), 20);
        assert_eq!(get(span, "http.response.status_code"), 200);
        assert_eq!(get(span, "tollgate.request.id"), record.id.to_string());
        assert!(get(span, "gen_ai.response.finish_reasons").to_string().contains("length"));
        assert!(!format!("{span:?}").contains("secret"), "{span:?}");
    }
    assert_eq!((get(&request, "gen_ai.request.model"), get(&attempt, "gen_ai.request.model")), ("m".into(), "upstream".into()));
    assert_eq!(get(&request, "gen_ai.response.model"), "upstream");
    assert_eq!((get(&request, "gen_ai.usage.input_tokens"), get(&attempt, "gen_ai.usage.input_tokens")), (14.into(), 10.into()));
    assert_eq!(get(&request, "gen_ai.usage.cache_write.input_tokens"), 4);
    assert_eq!(get(&request, "gen_ai.usage.cache_read.input_tokens"), serde_json::Value::Null);
    assert_eq!(get(&request, "gen_ai.response.time_to_first_chunk"), 1.0);
    assert_eq!(
        (get(&request, "tollgate.sale_nano_usd"), get(&request, "tollgate.cost_nano_usd")),
        (500_000_000.into(), 250_000_000.into())
    );
    assert_eq!(get(&request, "tollgate.group.name"), "default");
    assert_eq!((get(&attempt, "server.address"), get(&attempt, "server.port")), ("10.1.2.3".into(), 8443.into()));
    assert_eq!((get(&attempt, "tollgate.channel.name"), get(&attempt, "tollgate.account.name")), ("main".into(), "a".into()));
    assert_eq!((get(&attempt, "tollgate.attempt.result"), get(&attempt, "tollgate.attempt.number")), ("answered".into(), 1.into()));
}

#[test]
fn parent_and_failed_attempts_are_shown() {
    let mut record = usage_record("m");
    let failed = AttemptRecord {
        result: AttemptResult::Failed,
        error: Some("E46".to_owned()),
        status: Some(503),
        protocol: Protocol::Gemini,
        tokens: Tokens::default(),
        cost: Some(NanoUsd(0)),
        ..record.attempts[0].clone()
    };
    record.attempts.insert(0, failed);
    let request = TracedRequest { trace: [9; 16], parent: Some([8; 8]), ..traced(&record) };
    let [request, failed, answered] = spans_of(&request).try_into().unwrap();
    assert_eq!((request.trace_id, request.parent_span_id), (vec![9; 16], vec![8; 8]));
    assert_eq!(request.status, Some(Status::default()), "it was answered in the end");
    assert_eq!(failed.name, "generate_content upstream", "the operation of the upstream's protocol");
    assert_eq!(failed.status.unwrap(), Status { code: StatusCode::Error.into(), message: "E46".to_owned() });
    assert_eq!((&failed.parent_span_id, &answered.parent_span_id), (&request.span_id, &request.span_id));
    assert_ne!(failed.span_id, answered.span_id);
}

#[test]
fn refusals_are_errors_of_the_gateway_only_if_it_could_not_serve() {
    let mut record = usage_record("anything that a caller writes");
    record.attempts.clear();
    record.outcome = Outcome::Refused;
    record.tokens = Tokens::default();
    for (status, reason, code) in [(404, "E13", StatusCode::Unset), (503, "E40", StatusCode::Error)] {
        (record.status, record.reason) = (status, Some(reason.to_owned()));
        record.group = record.group.filter(|_| reason == "E13");
        let [span] = spans_of(&traced(&record)).try_into().unwrap();
        assert_eq!(span.name, "chat", "no name that callers choose");
        assert_eq!(span.status.unwrap().code, code as i32);
        assert_eq!(span.attributes.iter().filter(|attribute| attribute.key.starts_with("gen_ai.usage")).count(), 0);
    }
    record.outcome = Outcome::CallerLeft;
    record.reason = Some("E64".to_owned());
    record.method = Method::StreamGenerate;
    record.protocol_in = Protocol::Gemini;
    let [span] = spans_of(&traced(&record)).try_into().unwrap();
    assert_eq!((get(&span, "error.type"), span.status.clone().unwrap().code), ("E64".into(), 0));
    assert_eq!(
        (get(&span, "gen_ai.operation.name"), get(&span, "gen_ai.provider.name")),
        ("generate_content".into(), "tollgate".into())
    );
}
