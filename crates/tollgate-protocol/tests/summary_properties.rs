//! Properties of request summaries and passthrough for arbitrary bodies: no panic, agreement with `serde_json` on valid JSON,
//! and no changes other than the requested edits.

use bytes::Bytes;
use proptest::prelude::*;
use serde_json::{Value, json};
use tollgate_protocol::{Framing, Malformed, MalformedKind, Method, Protocol, RequestEdits, RequestSummary, Target, codec};

const METHODS: [(Protocol, Method); 11] = [
    (Protocol::OpenAi, Method::Chat),
    (Protocol::OpenAi, Method::Embeddings),
    (Protocol::Gemini, Method::Generate),
    (Protocol::Gemini, Method::StreamGenerate),
    (Protocol::Gemini, Method::CountTokens),
    (Protocol::Gemini, Method::EmbedContent),
    (Protocol::Gemini, Method::BatchEmbedContents),
    (Protocol::Anthropic, Method::Chat),
    (Protocol::Anthropic, Method::CountTokens),
    (Protocol::Responses, Method::Chat),
    (Protocol::Responses, Method::CountTokens),
];

/// Protocols of requests that generate, with a method of each.
const GENERATING: [(Protocol, Method); 4] = [
    (Protocol::OpenAi, Method::Chat),
    (Protocol::Gemini, Method::Generate),
    (Protocol::Anthropic, Method::Chat),
    (Protocol::Responses, Method::Chat),
];

fn summary(protocol: Protocol, method: Method, body: &[u8]) -> Result<RequestSummary, Malformed> {
    let model = (protocol == Protocol::Gemini).then(|| "m".to_owned());
    codec(protocol).summarise(&Target { method, model, framing: Framing::Sse }, body)
}

/// Applies all edits to a body with this summary.
fn forward_all(protocol: Protocol, body: &Bytes, summary: &RequestSummary) -> Bytes {
    let edits = RequestEdits {
        upstream_model: Some("x/\"y"),
        force_usage: true,
        max_output: Some(5),
        output_limit_field: Some("max_tokens"),
        keep_google_signatures: false,
        drop_signatures: false,
    };
    codec(protocol).forward_request(body, summary, &edits)
}

/// Valid and invalid member values.
fn leaf() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(|float| json!(float)),
        "[a-z\"\\\\é\u{1}]{0,8}".prop_map(Value::from),
        prop_oneof![
            Just("user"),
            Just("system"),
            Just("text"),
            Just("function"),
            Just("thinking"),
            Just("c1__sig1_QUJD"),
            Just("dGcxLmEu"),
            Just("tg1.x"),
            Just("image/png"),
            Just("data:image/png;base64,AAAA"),
            Just("data:,"),
            Just("data:;base64"),
            Just("10"),
        ]
        .prop_map(Value::from),
    ]
}

fn name() -> impl Strategy<Value = String> {
    prop_oneof![
        4 => prop::sample::select(vec![
            "model", "messages", "role", "content", "type", "text", "image_url", "url", "input_audio", "data", "file", "file_data",
            "tool_calls", "tool_call_id", "id", "function", "name", "arguments", "tools", "functions", "stream", "stream_options",
            "include_usage", "max_tokens", "max_completion_tokens", "n", "temperature", "prompt_cache_key", "input", "contents", "parts",
            "inlineData", "inline_data", "mimeType", "functionCall", "functionResponse", "thought", "thoughtSignature",
            "thought_signature", "generationConfig", "generation_config", "maxOutputTokens", "max_output_tokens", "candidateCount",
            "systemInstruction", "system_instruction", "toolConfig", "functionDeclarations", "safetySettings",
            "generateContentRequest", "requests", "fileData", "signature", "tool_use_id", "system", "source", "media_type", "input",
            "thinking", "input_schema",
        ])
        .prop_map(str::to_owned),
        1 => any::<String>(),
    ]
}

fn body() -> impl Strategy<Value = Value> {
    let value = leaf().prop_recursive(7, 64, 5, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
            proptest::collection::vec((name(), inner), 0..6).prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    });
    proptest::collection::vec((name(), value), 0..8).prop_map(|members| Value::Object(members.into_iter().collect()))
}

/// A body that is well formed for every protocol.
fn accepted() -> impl Strategy<Value = Value> {
    body().prop_map(|extra| {
        let mut body =
            json!({"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "hi"}], "contents": [{"parts": [{"text": "hi"}]}], "input": "hi"});
        let read = [
            "system",
            "model",
            "messages",
            "contents",
            "stream",
            "temperature",
            "max_tokens",
            "max_completion_tokens",
            "max_output_tokens",
            "input",
            "instructions",
            "tools",
            "generationConfig",
            "generation_config",
            "systemInstruction",
            "system_instruction",
            "safetySettings",
        ];
        for (name, value) in extra.as_object().into_iter().flatten().filter(|(name, _)| !read.contains(&name.as_str())) {
            body[name] = value.clone();
        }
        body
    })
}

fn text_of(value: &Value, pretty: bool) -> Vec<u8> {
    if pretty { serde_json::to_vec_pretty(value) } else { serde_json::to_vec(value) }.expect("serialises")
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, ..ProptestConfig::default() })]

    #[test]
    fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        for (protocol, method) in METHODS {
            prop_assert!(summary(protocol, method, &bytes).is_err() || serde_json::from_slice::<Value>(&bytes).is_ok());
        }
    }

    #[test]
    fn not_json_is_reported_only_for_invalid_json(value in body(), pretty in any::<bool>(), cut in any::<prop::sample::Index>()) {
        let bytes = text_of(&value, pretty);
        let torn = &bytes[..cut.index(bytes.len())];
        for (protocol, method) in METHODS {
            if let Err(refusal) = summary(protocol, method, &bytes) {
                prop_assert_ne!(refusal.kind, MalformedKind::NotJson, "{}", refusal.message);
                prop_assert!((1..=20).contains(&refusal.violations.len()));
            }
            prop_assert_eq!(summary(protocol, method, torn).expect_err("cut short").kind, MalformedKind::NotJson);
        }
    }

    #[test]
    fn mutated_bodies_never_panic(value in body(), at in any::<prop::sample::Index>(), byte in any::<u8>()) {
        let mut bytes = text_of(&value, false);
        let at = at.index(bytes.len());
        bytes[at] = byte;
        let bytes = Bytes::from(bytes);
        for (protocol, method) in METHODS {
            if let Ok(summary) = summary(protocol, method, &bytes) {
                forward_all(protocol, &bytes, &summary);
            }
        }
    }

    #[test]
    fn forwarded_bodies_are_valid_json(value in accepted(), pretty in any::<bool>()) {
        let body = Bytes::from(text_of(&value, pretty));
        for (protocol, method) in GENERATING {
            let summary = summary(protocol, method, &body).expect("well formed");
            let forwarded = forward_all(protocol, &body, &summary);
            prop_assert!(serde_json::from_slice::<Value>(&forwarded).is_ok(), "{}", String::from_utf8_lossy(&forwarded));
        }
    }

    #[test]
    fn cleaned_histories_are_valid_json(value in body(), pretty in any::<bool>()) {
        let value = json!({
            "model": "m",
            "messages": [{"role": "assistant", "tool_calls": [value], "content": [value]}, value],
            "contents": [{"parts": [value, {"text": "a"}, value]}, {"parts": [value]}, value],
            "input": [value, {"type": "reasoning", "encrypted_content": "tg1.a.x"}, value],
        });
        let body = Bytes::from(text_of(&value, pretty));
        // The summary of an accepted body; cleaning scans the body itself.
        let accepted = br#"{"model":"m","max_tokens":9,"messages":[{"role":"tool","content":"","tool_call_id":"c__sig1_QQ"}],
            "contents":[{"role":"dGcxLm"}],"input":[{"type":"reasoning","encrypted_content":"tg1.x"}]}"#;
        for (protocol, method) in GENERATING {
            let summary = summary(protocol, method, accepted).expect("well formed");
            prop_assert!(summary.splices.markers);
            let cleaned = codec(protocol).forward_request(&body, &summary, &RequestEdits::default());
            prop_assert!(serde_json::from_slice::<Value>(&cleaned).is_ok(), "{}", String::from_utf8_lossy(&cleaned));
        }
    }

    #[test]
    fn buffer_is_reused_without_edits_and_markers(value in accepted(), pretty in any::<bool>()) {
        let body = Bytes::from(text_of(&value, pretty));
        for (protocol, method) in GENERATING {
            let summary = summary(protocol, method, &body).expect("well formed");
            if !summary.splices.markers {
                let forwarded = codec(protocol).forward_request(&body, &summary, &RequestEdits::default());
                prop_assert_eq!(forwarded.as_ptr(), body.as_ptr());
                prop_assert_eq!(forwarded.len(), body.len());
            }
        }
    }

    #[test]
    fn summary_of_another_body_is_harmless(value in accepted(), other in proptest::collection::vec(any::<u8>(), 0..60)) {
        let summary = summary(Protocol::OpenAi, Method::Chat, &text_of(&value, true)).expect("well formed");
        let other = Bytes::from(other);
        for protocol in [Protocol::OpenAi, Protocol::Gemini, Protocol::Anthropic] {
            forward_all(protocol, &other, &summary);
        }
    }
}
