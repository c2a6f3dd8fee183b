//! Properties of request translation: no input panics, decoding and encoding in one protocol preserves the request, and
//! encoded requests validate against the upstream's schema.

mod conversation;

use std::sync::LazyLock;

use conversation::{Conversation, conversations};
use jsonschema::Validator;
use proptest::prelude::*;
use serde_json::{Value, json};
use tollgate_protocol::{
    CanDisableThinking, Framing, Method, Profile, Protocol, Target, Thinking, TranslateOptions, decode_request, effective_profile,
    encode_request, neutral, pending_media,
};

const PROTOCOLS: [Protocol; 4] = Protocol::ALL;

static SCHEMAS: LazyLock<[Validator; 4]> = LazyLock::new(|| {
    let names =
        ["openai-chat-request", "gemini-generate-content-request", "anthropic-messages-request", "openai-responses-request"];
    names.map(|name| {
        let path = format!("{}/fixtures/schemas/{name}.schema.json", env!("CARGO_MANIFEST_DIR"));
        let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
        jsonschema::validator_for(&serde_json::from_str(&text).expect("valid")).expect("valid")
    })
});

fn validator(protocol: Protocol) -> &'static Validator {
    match protocol {
        Protocol::OpenAi => &SCHEMAS[0],
        Protocol::Gemini => &SCHEMAS[1],
        Protocol::Anthropic => &SCHEMAS[2],
        Protocol::Responses => &SCHEMAS[3],
    }
}

fn target(from: Protocol, stream: bool) -> Target {
    let method = match from {
        Protocol::Gemini if stream => Method::StreamGenerate,
        Protocol::Gemini => Method::Generate,
        Protocol::OpenAi | Protocol::Anthropic | Protocol::Responses => Method::Chat,
    };
    Target { method, model: (from == Protocol::Gemini).then(|| "m".to_owned()), framing: Framing::Sse }
}

/// A model that supports everything its protocol has.
fn full_profile(to: Protocol) -> Profile {
    let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
    let (thinking, off) = match to {
        Protocol::OpenAi | Protocol::Responses => {
            (Thinking::Effort(words(&["none", "minimal", "low", "medium", "high", "xhigh", "max"])), CanDisableThinking::Yes)
        }
        Protocol::Gemini => (Thinking::Budget([1, 100_000]), CanDisableThinking::Yes),
        Protocol::Anthropic => (Thinking::Adaptive(words(&["low", "medium", "high", "xhigh", "max"])), CanDisableThinking::Yes),
    };
    Profile {
        thinking: Some(thinking),
        can_disable_thinking: Some(off),
        thinking_display: Some(true),
        call_ids: Some(true),
        part_media_resolution: Some(true),
        media_in_results: Some(true),
        top_k: Some(true),
        ..Profile::default()
    }
}

fn decoded(from: Protocol, conversation: &Conversation) -> neutral::Request {
    let body = conversation.body_for(from);
    decode_request(from, &target(from, conversation.stream), body.to_string().as_bytes())
        .unwrap_or_else(|error| panic!("{error}: {body}"))
}

/// The request without paths, which differ between protocols.
fn without_paths(request: &neutral::Request) -> String {
    let printed = format!("{request:#?}");
    printed.lines().filter(|line| !line.trim_start().starts_with("path: ")).collect::<Vec<_>>().join("\n")
}

/// Member names of some protocol.
const NAMES: [&str; 48] = [
    "model",
    "messages",
    "contents",
    "role",
    "content",
    "parts",
    "text",
    "type",
    "tool_calls",
    "function",
    "functionCall",
    "functionResponse",
    "name",
    "arguments",
    "args",
    "response",
    "id",
    "tool_call_id",
    "tools",
    "functionDeclarations",
    "parameters",
    "toolConfig",
    "functionCallingConfig",
    "generationConfig",
    "thinkingConfig",
    "inlineData",
    "mimeType",
    "data",
    "image_url",
    "url",
    "thoughtSignature",
    "thought",
    "system",
    "systemInstruction",
    "max_tokens",
    "thinking",
    "output_config",
    "tool_use",
    "tool_use_id",
    "input",
    "input_schema",
    "tool_choice",
    "response_format",
    "json_schema",
    "schema",
    "extra_body",
    "google",
    "stop",
];

/// String values of some protocol.
const TEXTS: [&str; 20] = [
    "user",
    "assistant",
    "model",
    "tool",
    "system",
    "text",
    "function",
    "image_url",
    "tool_use",
    "tool_result",
    "thinking",
    "data:image/png;base64,iVBO",
    "https://x.test/a",
    "dGcxLmEuU0lH",
    "c1__sig1_-_8",
    "{\"a\":1}",
    "auto",
    "ANY",
    "",
    "é\u{2028}",
];

fn arbitrary_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(|number| json!(number)),
        proptest::sample::select(&TEXTS[..]).prop_map(Value::from),
    ];
    leaf.prop_recursive(6, 60, 6, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
            proptest::collection::vec((proptest::sample::select(&NAMES[..]), inner), 0..6)
                .prop_map(|members| Value::Object(members.into_iter().map(|(name, value)| (name.to_owned(), value)).collect())),
        ]
    })
}

/// Replaces the `index`th value inside `tree`, in document order, by `value`.
fn replace(tree: &mut Value, index: &mut usize, value: &Value) {
    if *index == 0 {
        tree.clone_from(value);
    }
    *index = index.wrapping_sub(1);
    match tree {
        Value::Array(items) => items.iter_mut().for_each(|item| replace(item, index, value)),
        Value::Object(members) => members.values_mut().for_each(|item| replace(item, index, value)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// A valid request with one value replaced by another.
fn damaged_request() -> impl Strategy<Value = Value> {
    (conversations(), proptest::sample::select(&PROTOCOLS[..]), 1_usize..60, arbitrary_json()).prop_map(
        |(conversation, protocol, mut index, value)| {
            let mut body = conversation.body_for(protocol);
            replace(&mut body, &mut index, &value);
            body
        },
    )
}

/// Arbitrary JSON, mostly in the shape of a request.
fn nearly_a_request() -> impl Strategy<Value = Value> {
    let shaped = |list: &'static str| {
        (proptest::collection::vec(arbitrary_json(), 0..4), arbitrary_json()).prop_map(move |(items, rest)| {
            let mut body = json!({"model": "m", "max_tokens": 5});
            if let Value::Object(rest) = rest {
                body.as_object_mut().expect("valid").extend(rest);
            }
            body[list] = items.into();
            body
        })
    };
    prop_oneof![arbitrary_json(), shaped("messages"), shaped("contents"), shaped("input"), damaged_request(), damaged_request()]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn translation_never_panics_and_encodes_json(body in nearly_a_request()) {
        let bytes = body.to_string();
        for from in PROTOCOLS {
            for method in [Method::Chat, Method::Embeddings, Method::BatchEmbedContents, Method::CountTokens] {
                let target = Target { method, model: None, framing: Framing::Sse };
                let Ok(request) = decode_request(from, &target, bytes.as_bytes()) else { continue };
                for to in PROTOCOLS {
                    let profile = effective_profile("", to, "m", &Profile::default());
                    prop_assert!(pending_media(to, &request, &profile).iter().all(|address| address.starts_with("http")));
                    for lenient in [false, true] {
                        let options = TranslateOptions { lenient, hoist: lenient, ..TranslateOptions::default() };
                        if let Ok(encoded) = encode_request(to, &request, "u", &profile, &options) {
                            prop_assert!(serde_json::from_slice::<Value>(&encoded.body).is_ok());
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn round_trip_in_one_protocol_preserves_the_request(conversation in conversations()) {
        for protocol in PROTOCOLS {
            let first = decoded(protocol, &conversation);
            let encoded = encode_request(protocol, &first, "m", &full_profile(protocol), &TranslateOptions::default())
                .unwrap_or_else(|error| panic!("{error}: {}", conversation.body_for(protocol)));
            prop_assert_eq!(&encoded.dropped, &Vec::<String>::new());
            let mut again = decode_request(protocol, &target(protocol, conversation.stream), &encoded.body).unwrap();
            // Always requested from upstreams, whether or not the caller asked for it.
            again.params.include_usage = first.params.include_usage;
            // The answer to the caller repeats these members. The request to the upstream need not have all of them.
            again.echo.clone_from(&first.echo);
            prop_assert_eq!(without_paths(&again), without_paths(&first));
        }
    }

    #[test]
    fn encoded_requests_validate_against_the_schema(conversation in conversations()) {
        for from in PROTOCOLS {
            let request = decoded(from, &conversation);
            for to in PROTOCOLS {
                let profiles = [full_profile(to), effective_profile("", to, "claude-3", &Profile::default()), effective_profile("", to, "gemini-2.0", &Profile::default())];
                for profile in profiles {
                    let options = TranslateOptions { lenient: true, ..TranslateOptions::default() };
                    let Ok(encoded) = encode_request(to, &request, "m", &profile, &options) else { continue };
                    let body: Value = serde_json::from_slice(&encoded.body).unwrap();
                    let fault = validator(to).iter_errors(&body).next().map(|error| format!("{} at {}", error, error.instance_path()));
                    prop_assert_eq!(fault, None, "{:?} to {:?}: {}", from, to, body);
                }
            }
        }
    }

    #[test]
    fn conversation_decodes_equally_from_every_protocol(conversation in conversations()) {
        let turns = |from: Protocol| {
            let request = decoded(from, &conversation);
            let say = |turn: &neutral::Turn| {
                let parts = turn.parts.iter().map(|part| match &part.kind {
                    neutral::PartKind::Call { name, args, .. } => format!("call {name} {args}"),
                    neutral::PartKind::Result { name, content, .. } => format!("result {name} {content}"),
                    neutral::PartKind::Media(media) => format!("media {} {:?}", media.mime, media.source),
                    neutral::PartKind::Text(_)
                    | neutral::PartKind::Think { .. }
                    | neutral::PartKind::Code { .. }
                    | neutral::PartKind::CodeOutput { .. }
                    | neutral::PartKind::Opaque { .. } => format!("{:?}", part.kind),
                });
                format!("{:?} {:?}", turn.role, parts.collect::<Vec<_>>())
            };
            request.turns.iter().map(say).collect::<Vec<_>>()
        };
        prop_assert_eq!(turns(Protocol::OpenAi), turns(Protocol::Gemini));
        prop_assert_eq!(turns(Protocol::OpenAi), turns(Protocol::Anthropic));
        prop_assert_eq!(turns(Protocol::OpenAi), turns(Protocol::Responses));
    }

    #[test]
    fn history_is_encoded_completely_for_every_upstream(conversation in conversations()) {
        // Each upstream gets the complete conversation, or the request is refused by name.
        for from in PROTOCOLS {
            let request = decoded(from, &conversation);
            for to in PROTOCOLS {
                let options = TranslateOptions { lenient: true, ..TranslateOptions::default() };
                let outcome = encode_request(to, &request, "m", &full_profile(to), &options);
                prop_assert!(outcome.is_ok(), "{:?} to {:?}: {:?}", from, to, outcome);
            }
        }
    }
}
