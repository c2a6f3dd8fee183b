//! The translation follows from the caller's request and the catalog.

use serde_json::{Value, json};
use tollgate_protocol::{ParameterChange, ParameterEdit};

use super::*;
use crate::samples::{self, attempt, catalog, channel, group, model};

fn record(to: Protocol, dropped: &[&str]) -> UsageRecord {
    UsageRecord {
        group_name: Some("g".into()),
        protocol_out: Some(to),
        dropped: dropped.iter().map(|entry| (*entry).to_owned()).collect(),
        attempts: vec![AttemptRecord { protocol: to, ..attempt("c") }],
        ..samples::record()
    }
}

fn snapshot(to: Protocol, edits: Vec<ParameterEdit>) -> Catalog {
    let mut served = channel("c", &["m"]);
    served.spec.protocol = to;
    served.spec.parameter_edits = edits;
    catalog(vec![served], vec![group("g", &["c"])], vec![model("m")])
}

fn body(body: &Value) -> Bytes {
    Bytes::from(body.to_string())
}

fn outcome<'a>(written: &'a Retranslation, name: &str) -> &'a ParameterOutcome {
    let parameter = written.parameters.iter().find(|it| it.name == name);
    &parameter.unwrap_or_else(|| panic!("no {name}: {:?}", written.parameters)).outcome
}

#[test]
fn chat_request_is_written_for_a_native_upstream_with_the_names_of_its_parameters() {
    let sent = body(&json!({
        "model": "m", "messages": [{"role": "user", "content": "hi"}], "temperature": 0.5, "max_tokens": 40, "stop": ["x"], "logit_bias": {"1": 2},
    }));
    let written = retranslate(&snapshot(Protocol::Gemini, Vec::new()), &record(Protocol::Gemini, &["logit_bias"]), &sent).unwrap();
    let upstream: Value = serde_json::from_slice(&written.body).unwrap();
    assert_eq!(upstream["contents"][0]["parts"][0]["text"], "hi");
    assert_eq!(upstream["generationConfig"]["maxOutputTokens"], 40);
    assert!(written.path.contains("m-up:generateContent"), "{}", written.path);
    assert_eq!(*outcome(&written, "temperature"), ParameterOutcome::Renamed("generationConfig.temperature".to_owned()));
    assert_eq!(*outcome(&written, "stop"), ParameterOutcome::Renamed("generationConfig.stopSequences".to_owned()));
    assert_eq!(*outcome(&written, "logit_bias"), ParameterOutcome::Dropped);

    let answer = json!({
        "id": "x", "object": "chat.completion", "created": 1, "model": "m",
        "choices": [{"index": 0, "message": {"role": "assistant", "content": "hello"}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3},
    });
    let answer = written.upstream_answer(&answer.to_string()).unwrap();
    let answer: Value = serde_json::from_str(&answer).unwrap();
    assert_eq!(answer["candidates"][0]["content"]["parts"][0]["text"], "hello");
    assert_eq!(written.upstream_answer("{\"choices\":"), None);
}

#[test]
fn request_of_the_same_protocol_has_the_name_of_the_upstream_and_the_edits_of_the_channel() {
    let edits = vec![
        ParameterEdit { parameter: "seed".to_owned(), change: ParameterChange::Drop },
        ParameterEdit { parameter: "user".to_owned(), change: ParameterChange::Rename { to: "end_user".to_owned() } },
    ];
    let sent =
        body(&json!({"model": "m", "messages": [{"role": "user", "content": "hi"}], "seed": 1, "user": "u", "temperature": 1}));
    let entries = ["seed", "user->end_user", "max_completion_tokens=64"];
    let written = retranslate(&snapshot(Protocol::OpenAi, edits), &record(Protocol::OpenAi, &entries), &sent).unwrap();
    let upstream: Value = serde_json::from_slice(&written.body).unwrap();
    assert_eq!((&upstream["model"], &upstream["end_user"], &upstream["seed"]), (&json!("m-up"), &json!("u"), &Value::Null));
    assert_eq!(upstream["max_completion_tokens"], 64);
    assert_eq!(*outcome(&written, "temperature"), ParameterOutcome::Kept);
    assert_eq!(*outcome(&written, "seed"), ParameterOutcome::Dropped);
    assert_eq!(*outcome(&written, "user"), ParameterOutcome::Renamed("end_user".to_owned()));
    assert_eq!(*outcome(&written, "max_completion_tokens"), ParameterOutcome::Set("64".to_owned()));
}

#[test]
fn streamed_answer_is_written_as_events_of_the_upstream() {
    let streamed = UsageRecord { stream: true, ..record(Protocol::Anthropic, &[]) };
    let sent = body(&json!({"model": "m", "messages": [{"role": "user", "content": "hi"}], "stream": true, "max_tokens": 9}));
    let written = retranslate(&snapshot(Protocol::Anthropic, Vec::new()), &streamed, &sent).unwrap();
    let chunk = |delta: Value, finish: Value| {
        let chunk = json!({"id": "x", "object": "chat.completion.chunk", "created": 1, "model": "m",
            "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]});
        format!("data: {chunk}\n\n")
    };
    let answer = chunk(json!({"role": "assistant", "content": "hel"}), Value::Null)
        + &chunk(json!({"content": "lo"}), Value::Null)
        + &chunk(json!({}), json!("stop"))
        + "data: [DONE]\n\n";
    let events = written.upstream_answer(&answer).unwrap();
    assert!(events.contains("event: message_start") && events.contains("\"lo\"") && events.contains("message_stop"), "{events}");
}

#[test]
fn streamed_array_is_written_as_the_events_that_its_upstream_sent() {
    let sent = body(&json!({"contents": [{"role": "user", "parts": [{"text": "hi"}]}]}));
    let answer = json!([{"candidates": [{"content": {"role": "model", "parts": [{"text": "hello"}]}, "finishReason": "STOP"}]}]);
    for to in [Protocol::Gemini, Protocol::OpenAi] {
        let native = UsageRecord { protocol_in: Protocol::Gemini, method: Method::StreamGenerate, stream: true, ..record(to, &[]) };
        let written = retranslate(&snapshot(to, Vec::new()), &native, &sent).unwrap();
        let events = written.upstream_answer(&answer.to_string()).unwrap();
        assert!(events.starts_with("data: ") && events.contains("hello"), "{events}");
    }
}

#[test]
fn what_cannot_be_translated_again_is_reported() {
    let known = snapshot(Protocol::Gemini, Vec::new());
    let of = |record: &UsageRecord, body: &[u8]| retranslate(&known, record, &Bytes::copy_from_slice(body)).unwrap_err();
    let refused = UsageRecord { attempts: Vec::new(), ..record(Protocol::Gemini, &[]) };
    assert_eq!(of(&refused, b"{}"), RetranslationFault::NoAttempt);
    assert!(matches!(of(&record(Protocol::Gemini, &[]), b"{\"model\":\"m\""), RetranslationFault::Malformed(_)));
    let nothing = catalog(Vec::new(), Vec::new(), Vec::new());
    let gone = retranslate(&nothing, &record(Protocol::Gemini, &[]), &Bytes::from_static(b"{}")).unwrap_err();
    assert_eq!(gone, RetranslationFault::ChannelGone);
    let unknown = body(&json!({"model": "m", "messages": [{"role": "user", "content": "hi"}], "logit_bias": {"1": 2}}));
    assert_eq!(of(&record(Protocol::Gemini, &[]), &unknown), RetranslationFault::Unsupported(vec!["logit_bias".to_owned()]));
}
