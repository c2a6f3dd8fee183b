//! All bodies that the gateway generates validate against the vendors' schemas, closed variants where available.

mod support;

use std::fs;

use bytes::Bytes;
use serde_json::{Value, json};
use support::Schemas;
use tollgate_protocol::{
    AnthropicErrorFields, EchoBody, EchoCall, FieldViolation, Framing, GeminiErrorFields, Method, OpenAiErrorFields, Problem,
    Protocol, QuotaViolation, ReplyEdits, codec, echo,
    lists::{self, ListedModel},
};

#[test]
fn schemas_accept_and_reject_their_samples() {
    let schemas = Schemas::load();
    let mut checked = 0;
    for entry in fs::read_dir(support::folder().join("samples")).unwrap() {
        let path = entry.unwrap().path();
        let file = path.file_name().unwrap().to_str().unwrap().to_owned();
        let (name, rest) = file.split_once("--").unwrap();
        let text = fs::read_to_string(&path).unwrap();
        let documents = if path.extension().is_some_and(|kind| kind == "sse") { support::events(&text) } else { vec![text] };
        let good = rest.starts_with("ok");
        let closed = format!("{name}.closed");
        for schema in [name, &closed] {
            if schema != name && !(good && schemas.has(schema)) {
                continue;
            }
            let faults: Vec<String> =
                documents.iter().flat_map(|text| schemas.errors(schema, &serde_json::from_str(text).unwrap())).collect();
            assert_eq!(faults.is_empty(), good, "{file} under {schema}: {faults:?}");
            checked += 1;
        }
    }
    assert!(checked >= 80, "{checked}");
}

/// Problems with every member present and absent.
fn problems() -> Vec<Problem> {
    let names = [
        "INVALID_ARGUMENT",
        "UNAUTHENTICATED",
        "PERMISSION_DENIED",
        "NOT_FOUND",
        "RESOURCE_EXHAUSTED",
        "UNIMPLEMENTED",
        "UNAVAILABLE",
        "INTERNAL",
        "",
    ];
    let statuses = [400, 401, 403, 404, 405, 408, 409, 413, 415, 422, 429, 431, 499, 500, 501, 502, 503, 504, 529];
    let mut all = Vec::new();
    for (index, status) in statuses.into_iter().cycle().take(76).enumerate() {
        let some = |bit: usize| index >> bit & 1 == 1;
        let violation =
            |field: &str| FieldViolation { field: field.to_owned(), description: "Unsupported \"parameter\".\n".to_owned() };
        all.push(Problem {
            status,
            message: format!("Fact {index}: caf\u{e9} \u{2028} \"quoted\" \\ \u{0}. Then what to do."),
            request_id: format!("req_{index}"),
            openai: OpenAiErrorFields {
                kind: "invalid_request_error".to_owned(),
                code: some(0).then(|| "unsupported_parameter".to_owned()),
                param: some(1).then(|| "messages[0].content".to_owned()),
            },
            native: GeminiErrorFields {
                status: names[index % names.len()],
                reason: "UNSUPPORTED_PARAMETER".to_owned(),
                metadata: if some(2) { vec![("model", "m".to_owned()), ("retryable", "true".to_owned())] } else { Vec::new() },
                violations: if some(3) { vec![violation("generationConfig.topK"), violation("")] } else { Vec::new() },
                quota: if some(4) {
                    vec![QuotaViolation { subject: "key".to_owned(), description: "60 requests per minute".to_owned() }]
                } else {
                    Vec::new()
                },
                resource: some(5).then(|| ("model", "models/m".to_owned())),
                upstream_details: if some(1) {
                    vec![r#"{"@type":"type.googleapis.com/google.rpc.Help","links":[{"description":"d","url":"u"}]}"#.to_owned()]
                } else {
                    Vec::new()
                },
            },
            retry_after: some(0).then_some(30),
            stop: some(2),
            anthropic: AnthropicErrorFields {
                kind: some(4).then(|| "conflict_error".to_owned()),
                details: some(5).then(|| r#"{"error_code":"thread_not_found"}"#.to_owned()),
            },
        });
    }
    all
}

#[test]
fn errors_are_valid_in_every_protocol() {
    let schemas = Schemas::load();
    for problem in problems() {
        schemas.check("openai-error.closed", &codec(Protocol::OpenAi).encode_problem(&problem));
        schemas.check("gemini-error", &codec(Protocol::Gemini).encode_problem(&problem));
        schemas.check("anthropic-error.closed", &codec(Protocol::Anthropic).encode_problem(&problem));
    }
}

#[test]
fn error_events_are_valid_and_on_one_line() {
    let schemas = Schemas::load();
    let cases = [
        (Protocol::OpenAi, "openai-error.closed"),
        (Protocol::Gemini, "gemini-error"),
        (Protocol::Anthropic, "anthropic-stream-event.closed"),
    ];
    for problem in problems() {
        for (protocol, schema) in cases {
            let mut relay = codec(protocol).relay(Framing::Sse, &ReplyEdits::default());
            let text = String::from_utf8(relay.problem(&problem).to_vec()).unwrap();
            let data = support::events(&text);
            assert_eq!((data.len(), text.ends_with("\n\n")), (1, true));
            assert!(!text.contains(['\u{2028}', '\r']) || protocol != Protocol::Gemini, "{text}");
            if protocol != Protocol::Anthropic {
                assert!(data[0].starts_with("{\"error\":{"), "SDKs look for the key at the front: {text}");
            }
            schemas.check(schema, data[0].as_bytes());
        }
    }
}

#[test]
fn encoded_errors_can_be_decoded() {
    for problem in problems() {
        let read = codec(Protocol::OpenAi).decode_problem(problem.status, &codec(Protocol::OpenAi).encode_problem(&problem));
        assert_eq!(
            (read.message, read.code, read.param),
            (problem.message.clone(), problem.openai.code.clone(), problem.openai.param.clone())
        );
        let read = codec(Protocol::Gemini).decode_problem(problem.status, &codec(Protocol::Gemini).encode_problem(&problem));
        assert_eq!((read.message, read.retry_after), (problem.message.clone(), problem.retry_after));
    }
}

#[test]
fn lists_and_models_are_valid() {
    let schemas = Schemas::load();
    let model = |index: usize| ListedModel {
        name: format!("vendor/m{index:03}"),
        owned_by: "tollgate".to_owned(),
        description: (index.is_multiple_of(2)).then(|| "A model.".to_owned()),
        context: (index.is_multiple_of(3)).then_some(1_000_000),
        max_output: (index.is_multiple_of(5)).then_some(u64::MAX),
        methods: vec![Method::Chat, Method::Generate, Method::StreamGenerate, Method::CountTokens],
    };
    let models: Vec<_> = (0..120).map(model).collect();
    for some in [&models[..0], &models[..1], &models] {
        schemas.check("openai-models-list.closed", &lists::openai_models(some));
        let page = lists::page(some, None, None).unwrap();
        schemas.check("gemini-list-models-response.closed", &lists::gemini_models(&page));
    }
    for model in &models {
        schemas.check("openai-model.closed", &lists::openai_model(model));
        schemas.check("gemini-model.closed", &lists::gemini_model(model));
    }
}

/// The echo's answer, as one body or as events.
fn echoed(protocol: Protocol, method: Method, body: &Value) -> Vec<Bytes> {
    let call = EchoCall { protocol, method, model: "echo", request_id: "0abc", now: 1_700_000_000 };
    match echo(&call, body.to_string().as_bytes()).body {
        EchoBody::Whole(body) => vec![body],
        EchoBody::Events(events) => {
            let stream: Vec<u8> = events.flatten().collect();
            support::events(&String::from_utf8_lossy(&stream)).into_iter().map(Bytes::from).collect()
        }
    }
}

#[test]
fn echo_answers_are_valid() {
    let schemas = Schemas::load();
    let tools = json!([{"type": "function", "function": {"name": "f"}}]);
    let bare = json!({"messages": [{"role": "user", "content": "a b c"}]});
    let extras = [
        json!({}),
        json!({"max_tokens": 1}),
        json!({"response_format": {"type": "json_object"}}),
        json!({"tools": tools, "tool_choice": "required"}),
        json!({"tool_choice": {"type": "custom", "custom": {"name": "c"}}}),
        json!({"messages": []}),
        json!({"stream_options": {"include_usage": true}}),
    ];
    for extra in &extras {
        let mut body = bare.clone();
        body.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
        for answer in echoed(Protocol::OpenAi, Method::Chat, &body) {
            schemas.check("openai-chat-response.closed", &answer);
        }
        body["stream"] = json!(true);
        for event in echoed(Protocol::OpenAi, Method::Chat, &body) {
            schemas.check("openai-chat-chunk.closed", &event);
        }
    }
    let contents = json!([{"role": "user", "parts": [{"text": "a b c"}]}]);
    let natives = [
        json!({"contents": contents}),
        json!({"contents": []}),
        json!({"contents": contents, "generationConfig": {"maxOutputTokens": 1, "responseMimeType": "application/json"}}),
        json!({"contents": contents, "tools": [{"functionDeclarations": [{"name": "f"}]}], "toolConfig": {"functionCallingConfig": {"mode": "ANY"}}}),
    ];
    for body in &natives {
        for method in [Method::Generate, Method::StreamGenerate] {
            for answer in echoed(Protocol::Gemini, method, body) {
                schemas.check("gemini-generate-content-response.closed", &answer);
            }
        }
        for answer in echoed(Protocol::Gemini, Method::CountTokens, body) {
            schemas.check("gemini-count-tokens-response.closed", &answer);
        }
    }
    schemas.check("openai-error.closed", &echoed(Protocol::OpenAi, Method::Embeddings, &json!({}))[0]);
    schemas.check("gemini-error", &echoed(Protocol::Gemini, Method::EmbedContent, &json!({}))[0]);
}
