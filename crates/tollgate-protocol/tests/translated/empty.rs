//! Answers without any content that can be forwarded are errors, not empty successes.

use bytes::Bytes;
use serde_json::{Value, json};
use tollgate_protocol::{
    CheckedReply, InvalidReply, Protocol, StreamError,
    neutral::{AnswerKind, ReplyContext},
    translate_reply,
};

use crate::{framed, relay};

fn context() -> ReplyContext {
    ReplyContext { carry_thinking: true, ..ReplyContext::new("r", 7, "m") }
}

fn translate(upstream: Protocol, body: &Value) -> Result<CheckedReply, InvalidReply> {
    let caller = if upstream == Protocol::OpenAi { Protocol::Gemini } else { Protocol::OpenAi };
    translate_reply(upstream, caller, &Bytes::from(body.to_string()), &context())
}

fn gemini(parts: &Value, finish: Option<&str>) -> Value {
    json!({ "candidates": [{ "content": { "parts": parts }, "finishReason": finish }] })
}

#[test]
fn answer_without_finish_reason_and_content_is_an_error() {
    let message = |block: Value| json!({ "type": "message", "content": [block], "stop_reason": null });
    for (upstream, body) in [
        (Protocol::Gemini, gemini(&json!([{ "text": "" }]), None)),
        (Protocol::Gemini, gemini(&json!([{ "text": "", "thoughtSignature": "QUJD" }]), None)),
        (Protocol::Anthropic, message(json!({ "type": "text", "text": "" }))),
        (Protocol::Anthropic, message(json!({ "type": "thinking", "thinking": "", "signature": "U0lH" }))),
        (Protocol::OpenAi, json!({ "choices": [{ "message": { "content": "" }, "finish_reason": null }] })),
    ] {
        let result = translate(upstream, &body);
        assert!(matches!(result, Err(InvalidReply::Unreadable(_))), "{body}: {result:?}");
    }
    let ended = translate(Protocol::Gemini, &gemini(&json!([{ "text": "" }]), Some("STOP")));
    assert!(ended.is_ok(), "an empty answer with a finish reason is valid: {ended:?}");
}

#[test]
fn answer_with_only_unsupported_content_is_an_error() {
    let sound = json!({ "inlineData": { "mimeType": "audio/wav", "data": "QUJD" } });
    let speech = |text: Value| json!({ "content": text, "audio": { "id": "a", "data": "QUJD", "transcript": "hello" } });
    let openai = |text: Value| json!({ "choices": [{ "message": speech(text), "finish_reason": "stop" }] });
    for (upstream, alone, beside) in [
        (Protocol::Gemini, gemini(&json!([sound]), Some("STOP")), gemini(&json!([sound, { "text": "a" }]), Some("STOP"))),
        (Protocol::OpenAi, openai(Value::Null), openai("a".into())),
    ] {
        let result = translate(upstream, &alone);
        assert!(matches!(result, Err(InvalidReply::Unreadable(_))), "{alone}: {result:?}");
        let translated = translate(upstream, &beside).expect("the text is an answer");
        assert_eq!((translated.summary.unknown, translated.summary.text_bytes), (1, 1), "{beside}");
    }
    let filtered = translate(Protocol::Gemini, &gemini(&json!([sound]), Some("SAFETY"))).expect("a filtered answer");
    assert!(String::from_utf8_lossy(&filtered.body).contains("content_filter"));
}

#[test]
fn stream_with_only_unsupported_content_fails_before_any_output() {
    let context = ReplyContext { stream: true, ..context() };
    let sound = json!({ "inlineData": { "mimeType": "audio/wav", "data": "QUJD" } });
    let (out, fault) = relay(
        (Protocol::Gemini, Protocol::OpenAi),
        &context,
        [&framed(Protocol::Gemini, &[gemini(&json!([sound]), Some("STOP"))])[..]],
    );
    assert!(out.is_empty() && matches!(fault, Some(StreamError::Malformed(_))), "{fault:?}");
    let delta =
        |delta: Value, finish: Option<&str>| json!({ "choices": [{ "index": 0, "delta": delta, "finish_reason": finish }] });
    let speech = [delta(json!({ "audio": { "id": "a", "transcript": "hel" } }), None), delta(json!({}), Some("stop"))];
    let (out, fault) = relay((Protocol::OpenAi, Protocol::Gemini), &context, [&framed(Protocol::OpenAi, &speech)[..]]);
    assert!(out.is_empty() && matches!(fault, Some(StreamError::Malformed(_))), "{fault:?}");
}

#[test]
fn number_of_vectors_must_match_the_inputs() {
    let openai = |vectors: usize| json!({ "data": vec![json!({ "embedding": [1] }); vectors] });
    let gemini = |vectors: usize| json!({ "embeddings": vec![json!({ "values": [1] }); vectors] });
    for count in [1, 2] {
        let context = ReplyContext { kind: AnswerKind::Embeddings { list: true, base64: false, count }, ..context() };
        for vectors in [1, 2, 3] {
            for (upstream, caller, body) in
                [(Protocol::OpenAi, Protocol::Gemini, openai(vectors)), (Protocol::Gemini, Protocol::OpenAi, gemini(vectors))]
            {
                let result = translate_reply(upstream, caller, &Bytes::from(body.to_string()), &context);
                assert_eq!(result.is_ok(), vectors == count, "{vectors} for {count}: {result:?}");
            }
        }
    }
}
