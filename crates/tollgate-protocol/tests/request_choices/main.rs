//! Request translation that depends on the operator's options, the model's profile or the method.

mod thinking;

use std::sync::Arc;

use Protocol::{Anthropic, Gemini, OpenAi, Responses};
use serde_json::{Value, json};
use tollgate_protocol::{
    CanDisableThinking, DownloadedMedia, FetchedMedia, Framing, MalformedKind, Method, Profile, Protocol, RemoteMedia, Target,
    Thinking, TranslateError, TranslateOptions, decode_request, effective_profile, encode_request,
    neutral::{AnswerKind, EncodedRequest},
    pending_media,
};

fn profile(to: Protocol) -> Profile {
    let model = match to {
        OpenAi | Responses => "gpt-4o",
        Gemini => "gemini-3-flash",
        Anthropic => "claude-opus-4-8",
    };
    effective_profile(to.as_str(), to, model, &Profile::default())
}

fn translate_as(
    (from, to): (Protocol, Protocol),
    method: Method,
    body: &Value,
    profile: &Profile,
    options: &TranslateOptions<'_>,
) -> Result<EncodedRequest, TranslateError> {
    let target = Target { method, model: (from == Gemini).then(|| "m".to_owned()), framing: Framing::Sse };
    let request = decode_request(from, &target, body.to_string().as_bytes())?;
    encode_request(to, &request, "up", profile, options)
}

fn translate(
    direction: (Protocol, Protocol),
    body: &Value,
    options: &TranslateOptions<'_>,
) -> Result<EncodedRequest, TranslateError> {
    let method = if direction.0 == Gemini { Method::Generate } else { Method::Chat };
    translate_as(direction, method, body, &profile(direction.1), options)
}

fn encoded_body(encoded: &EncodedRequest) -> Value {
    serde_json::from_slice(&encoded.body).expect("the encoded body is JSON")
}

fn openai(more: Value) -> Value {
    let mut body = json!({"model": "m", "messages": [{"role": "user", "content": "hi"}]});
    if let (Value::Object(body), Value::Object(more)) = (&mut body, more) {
        body.extend(more);
    }
    body
}

fn gemini(config: &Value) -> Value {
    json!({"contents": [{"parts": [{"text": "hi"}]}], "generationConfig": config})
}

fn unsupported(outcome: Result<EncodedRequest, TranslateError>) -> (Vec<String>, Option<String>) {
    match outcome {
        Err(TranslateError::Unsupported { fields, reason }) => (fields, reason),
        other => panic!("{other:?}"),
    }
}

// === options ===

#[test]
fn all_unsupported_fields_are_named_at_once() {
    let body = openai(json!({"logit_bias": {"1": 1}, "n": 3, "stop": ["1", "2", "3", "4", "5", "6"], "min_p": 1}));
    let (fields, reason) = unsupported(translate((OpenAi, Gemini), &body, &TranslateOptions::default()));
    assert_eq!((fields, reason), (vec!["logit_bias".into(), "min_p".into(), "n".into(), "stop".into()], None));
}

#[test]
fn lenient_translation_drops_and_reports_parameters() {
    let options = TranslateOptions { lenient: true, ..TranslateOptions::default() };
    let body = openai(json!({"logit_bias": {"1": 1}, "n": 3, "user": "u"}));
    let encoded = translate((OpenAi, Gemini), &body, &options).unwrap();
    assert_eq!(encoded.dropped, ["logit_bias", "n", "user"]);
    assert_eq!(encoded_body(&encoded), json!({"contents": [{"role": "user", "parts": [{"text": "hi"}]}]}));
}

#[test]
fn later_system_texts_are_hoisted_only_where_configured() {
    let body = json!({"model": "m", "messages": [{"role": "user", "content": "a"}, {"role": "system", "content": "s"}]});
    let options = TranslateOptions { hoist: true, ..TranslateOptions::default() };
    let hoisted = encoded_body(&translate((OpenAi, Gemini), &body, &options).unwrap());
    assert_eq!(hoisted["systemInstruction"], json!({"parts": [{"text": "s"}]}));
    assert_eq!(hoisted["contents"], json!([{"role": "user", "parts": [{"text": "a"}]}]));
    let hoisted = encoded_body(&translate((OpenAi, Anthropic), &body, &options).unwrap());
    assert_eq!((&hoisted["system"], &hoisted["messages"]), (&json!("s"), &json!([{"role": "user", "content": "a"}])));
}

#[test]
fn server_tools_and_end_user_ids_must_be_allowed_by_the_channel() {
    let options = TranslateOptions { server_tools: true, pass_user: true, ..TranslateOptions::default() };
    let search = encoded_body(&translate((OpenAi, Gemini), &openai(json!({"web_search_options": {}})), &options).unwrap());
    assert_eq!(search["tools"], json!([{"googleSearch": {}}]));
    let encoded = translate((OpenAi, Anthropic), &openai(json!({"user": "u"})), &options).unwrap();
    assert_eq!((encoded.dropped.len(), &encoded_body(&encoded)["metadata"]), (0, &json!({"user_id": "u"})));
}

#[test]
fn remote_media_is_listed_downloaded_and_sent_inline() {
    let address = "https://img.test/cat";
    let image = json!({"type": "image_url", "image_url": {"url": address}});
    let body = json!({"model": "m", "messages": [{"role": "user", "content": [image.clone(), image]}]});
    let target = Target { method: Method::Chat, model: None, framing: Framing::Sse };
    let request = decode_request(OpenAi, &target, body.to_string().as_bytes()).unwrap();
    assert_eq!(pending_media(Gemini, &request, &profile(Gemini)), [address]);
    assert!(pending_media(Anthropic, &request, &profile(Anthropic)).is_empty(), "the upstream fetches URLs");
    let reads = Profile { fetches_urls: Some(true), ..profile(Gemini) };
    assert!(pending_media(Gemini, &request, &reads).is_empty());
    let outcome = |media: RemoteMedia<'_>| {
        let options = TranslateOptions { media, ..TranslateOptions::default() };
        encode_request(Gemini, &request, "up", &profile(Gemini), &options)
    };
    let fields = vec!["messages[0].content[0].image_url".to_owned(), "messages[0].content[1].image_url".to_owned()];
    let found = |mime: &str| Ok(Arc::new(DownloadedMedia { mime: mime.into(), data: "AAAA".into() }));
    let unknown = FetchedMedia::from([(address.to_owned(), found("application/x-unknown"))]);
    assert_eq!(unsupported(outcome(RemoteMedia::Fetched(&unknown))).0, fields, "an unknown type is never skipped");
    let failed = FetchedMedia::from([(address.to_owned(), Err("the address could not be fetched"))]);
    let because = Some("the address could not be fetched".to_owned());
    assert_eq!(unsupported(outcome(RemoteMedia::Fetched(&failed))), (fields.clone(), because));
    assert_eq!(unsupported(outcome(RemoteMedia::Refused)).0, fields);
    let sent = |media| encoded_body(&outcome(media).unwrap())["contents"][0]["parts"][1]["inlineData"].clone();
    assert_eq!(sent(RemoteMedia::Deferred), json!({"mimeType": "image/png", "data": ""}), "placeholder for the download");
    let fetched = FetchedMedia::from([(address.to_owned(), found("image/webp"))]);
    assert_eq!(sent(RemoteMedia::Fetched(&fetched)), json!({"mimeType": "image/webp", "data": "AAAA"}));
}

// === tools and results ===

#[test]
fn custom_tools_are_sent_as_functions_and_recorded() {
    let call = json!({"id": "c", "type": "custom", "custom": {"name": "sh", "input": "ls"}});
    let messages = json!([{"role": "user", "content": "a"}, {"role": "assistant", "tool_calls": [call]}, {"role": "tool", "tool_call_id": "c", "content": "r"}]);
    let body = json!({"model": "m", "messages": messages, "tools": [{"type": "custom", "custom": {"name": "sh"}}]});
    let encoded = translate((OpenAi, Anthropic), &body, &TranslateOptions::default()).unwrap();
    assert_eq!(encoded.custom_tools, ["sh"]);
    let written = encoded_body(&encoded);
    assert_eq!(written["messages"][1]["content"][0]["input"], json!({"input": "ls"}));
    assert_eq!(written["tools"][0]["input_schema"]["required"], json!(["input"]));
}

#[test]
fn renamed_tools_are_recorded() {
    let body =
        json!({"contents": [{"parts": [{"text": "a"}]}], "tools": [{"functionDeclarations": [{"name": "a.b"}, {"name": "a_b"}]}]});
    let encoded = translate((Gemini, Anthropic), &body, &TranslateOptions::default()).unwrap();
    assert_eq!(encoded.name_map, [("a_b_2".to_owned(), "a.b".to_owned())]);
}

#[test]
fn disabled_parallel_calls_are_emulated_for_gemini() {
    let encoded =
        translate((OpenAi, Gemini), &openai(json!({"parallel_tool_calls": false})), &TranslateOptions::default()).unwrap();
    assert!(!encoded.parallel);
    assert!(!encoded.reply_context("1", 0, "m", Framing::Sse).parallel);
}

#[test]
fn images_of_a_result_follow_it_where_results_cannot_contain_media() {
    let result = json!({"type": "tool_result", "tool_use_id": "t", "content": [{"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBO"}}]});
    let messages = json!([{"role": "user", "content": "a"}, {"role": "assistant", "content": [{"type": "tool_use", "id": "t", "name": "f", "input": {}}]}, {"role": "user", "content": [result]}]);
    let body = json!({"model": "m", "max_tokens": 5, "messages": messages});
    let chat = encoded_body(&translate((Anthropic, OpenAi), &body, &TranslateOptions::default()).unwrap());
    assert_eq!(chat["messages"][2], json!({"role": "tool", "tool_call_id": "t", "content": ""}));
    assert_eq!(chat["messages"][3]["content"][0]["image_url"]["url"], "data:image/png;base64,iVBO");
    let older = effective_profile("gemini", Gemini, "gemini-2.5-pro", &Profile::default());
    let native = translate_as((Anthropic, Gemini), Method::Chat, &body, &older, &TranslateOptions::default()).unwrap();
    assert_eq!(
        encoded_body(&native)["contents"][3],
        json!({"role": "user", "parts": [{"inlineData": {"mimeType": "image/png", "data": "iVBO"}}]})
    );
}

#[test]
fn error_result_is_marked_as_error() {
    let body = json!({"contents": [
        {"parts": [{"text": "a"}]},
        {"role": "model", "parts": [{"functionCall": {"name": "f"}}]},
        {"parts": [{"functionResponse": {"name": "f", "response": {"error": "no net"}}}]}
    ]});
    let encoded = encoded_body(&translate((Gemini, Anthropic), &body, &TranslateOptions::default()).unwrap());
    assert_eq!(
        encoded["messages"][2]["content"][0],
        json!({"type": "tool_result", "tool_use_id": "call_0", "content": "no net", "is_error": true})
    );
}

#[test]
fn numbers_and_characters_in_arguments_are_preserved() {
    let body = r#"{"contents":[{"parts":[{"text":"a"}]},{"role":"model","parts":[{"functionCall":{"name":"f","args":{ "n": 12345678901234567890123, "x": 1.0, "e": "\u00e9" }}}]}]}"#;
    let target = Target { method: Method::Generate, model: Some("m".into()), framing: Framing::Sse };
    let request = decode_request(Gemini, &target, body.as_bytes()).unwrap();
    let encoded = encode_request(OpenAi, &request, "up", &profile(OpenAi), &TranslateOptions::default()).unwrap();
    let arguments = &encoded_body(&encoded)["messages"][1]["tool_calls"][0]["function"]["arguments"];
    assert_eq!(arguments, r#"{"n":12345678901234567890123,"x":1.0,"e":"é"}"#);
}

#[test]
fn forced_tool_choice_without_tools_is_malformed() {
    let outcome = translate((OpenAi, Gemini), &openai(json!({"tool_choice": "required"})), &TranslateOptions::default());
    assert!(matches!(outcome, Err(TranslateError::Malformed(fault)) if fault.violations[0].field == "tool_choice"));
    let body = json!({"contents": [{"parts": [{"text": "a"}]}], "toolConfig": {"functionCallingConfig": {"mode": "ANY"}}});
    for to in [OpenAi, Anthropic] {
        let outcome = translate((Gemini, to), &body, &TranslateOptions::default());
        assert!(matches!(outcome, Err(TranslateError::Malformed(_))), "{outcome:?}");
    }
}

// === other methods ===

#[test]
fn token_count_refuses_unsupported_parts_for_every_upstream() {
    let image = json!({"type": "image", "source": {"type": "file", "file_id": "file_1"}});
    let body = json!({"model": "m", "messages": [{"role": "user", "content": [image]}]});
    for to in [OpenAi, Gemini, Responses] {
        let outcome = translate_as((Anthropic, to), Method::CountTokens, &body, &profile(to), &TranslateOptions::default());
        let Err(TranslateError::Unsupported { fields, .. }) = outcome else { panic!("{to:?}: {outcome:?}") };
        assert!(fields[0].starts_with("messages[0].content[0]"), "{to:?}: {fields:?}");
    }
}

#[test]
fn unknown_field_of_a_token_count_is_refused() {
    let body = json!({"model": "m", "messages": [{"role": "user", "content": "hi"}], "temperature": 0.5, "surprise": 1});
    for to in [OpenAi, Gemini, Responses] {
        let count =
            |options: &TranslateOptions<'_>| translate_as((Anthropic, to), Method::CountTokens, &body, &profile(to), options);
        assert_eq!(unsupported(count(&TranslateOptions::default())).0, ["surprise"], "{to:?}");
        let lenient = count(&TranslateOptions { lenient: true, ..TranslateOptions::default() });
        assert!(matches!(lenient, Err(TranslateError::NoCounter) | Ok(_)), "{to:?}: {lenient:?}");
    }
}

#[test]
fn lost_error_flag_of_a_tool_result_is_reported() {
    let calls = json!([{"type": "tool_use", "id": "t", "name": "f", "input": {}}]);
    let results = json!([{"type": "tool_result", "tool_use_id": "t", "content": "r", "is_error": true}]);
    let body = json!({"model": "m", "max_tokens": 90, "messages": [
        {"role": "user", "content": "hi"}, {"role": "assistant", "content": calls}, {"role": "user", "content": results},
    ]});
    for (to, dropped) in
        [(OpenAi, &["messages[2].content[0].is_error"][..]), (Responses, &["messages[2].content[0].is_error"]), (Gemini, &[])]
    {
        let encoded = translate((Anthropic, to), &body, &TranslateOptions::default()).unwrap();
        assert_eq!(encoded.dropped, dropped, "{to:?}");
    }
}

#[test]
fn token_count_is_never_streamed() {
    let body = json!({"model": "m", "stream": true, "messages": [{"role": "user", "content": "a"}]});
    for to in [Gemini, Responses] {
        let encoded =
            translate_as((Anthropic, to), Method::CountTokens, &body, &profile(to), &TranslateOptions::default()).unwrap();
        assert!(!encoded.stream, "{to:?}");
    }
}

#[test]
fn token_counts_need_an_upstream_with_a_counter() {
    let inner = json!({"model": "models/m", "contents": [{"parts": [{"text": "a"}]}], "systemInstruction": {"parts": [{"text": "s"}]}, "generationConfig": {"speechConfig": {}, "topK": 4}});
    let body = json!({"generateContentRequest": inner});
    let count = |to: Protocol| translate_as((Gemini, to), Method::CountTokens, &body, &profile(to), &TranslateOptions::default());
    assert_eq!(count(OpenAi), Err(TranslateError::NoCounter));
    let encoded = count(Anthropic).unwrap();
    assert_eq!((encoded.method, encoded.kind), (Method::CountTokens, AnswerKind::Count));
    assert_eq!(encoded_body(&encoded), json!({"model": "up", "system": "s", "messages": [{"role": "user", "content": "a"}]}));
    let messages = json!({"model": "m", "system": "s", "messages": [{"role": "user", "content": "a"}]});
    let encoded =
        translate_as((Anthropic, Gemini), Method::CountTokens, &messages, &profile(Gemini), &TranslateOptions::default()).unwrap();
    assert_eq!(
        encoded_body(&encoded),
        json!({"generateContentRequest": {"model": "models/up", "contents": [{"role": "user", "parts": [{"text": "a"}]}], "systemInstruction": {"parts": [{"text": "s"}]}}})
    );
}

#[test]
fn embeddings_are_translated_in_both_directions() {
    let body = json!({"model": "m", "input": ["a", "b"], "dimensions": 3, "encoding_format": "base64", "user": "u"});
    let encoded =
        translate_as((OpenAi, Gemini), Method::Embeddings, &body, &profile(Gemini), &TranslateOptions::default()).unwrap();
    let one = |text: &str| json!({"model": "models/up", "content": {"parts": [{"text": text}]}, "outputDimensionality": 3});
    assert_eq!(encoded_body(&encoded), json!({"requests": [one("a"), one("b")]}));
    let kind = AnswerKind::Embeddings { list: true, base64: true, count: 2 };
    assert_eq!((encoded.method, encoded.kind), (Method::BatchEmbedContents, kind));
    assert_eq!(encoded.dropped, ["user"]);
    let body = json!({"content": {"parts": [{"text": "a"}]}, "output_dimensionality": "3"});
    let encoded =
        translate_as((Gemini, OpenAi), Method::EmbedContent, &body, &profile(OpenAi), &TranslateOptions::default()).unwrap();
    assert_eq!(encoded_body(&encoded), json!({"model": "up", "input": ["a"], "dimensions": 3, "encoding_format": "float"}));
    let kind = AnswerKind::Embeddings { list: false, base64: false, count: 1 };
    assert_eq!((encoded.method, encoded.kind), (Method::Embeddings, kind));
}

#[test]
fn unsupported_embedding_fields_are_refused() {
    let reasoned = |direction: (Protocol, Protocol), method: Method, body: Value| {
        unsupported(translate_as(direction, method, &body, &profile(direction.1), &TranslateOptions::default()))
    };
    let refused = |direction: (Protocol, Protocol), method: Method, body: Value| reasoned(direction, method, body).0;
    assert_eq!(refused((OpenAi, Gemini), Method::Embeddings, json!({"model": "m", "input": [1, 2]})), ["input"]);
    let texts = |count: usize| json!({"model": "m", "input": vec!["a"; count]});
    assert_eq!(refused((OpenAi, Gemini), Method::Embeddings, texts(101)), ["input"]);
    let most = texts(100);
    translate_as((OpenAi, Gemini), Method::Embeddings, &most, &profile(Gemini), &TranslateOptions::default()).unwrap();
    let task = json!({"content": {"parts": [{"text": "a"}]}, "taskType": "CLUSTERING"});
    let (fields, reason) = reasoned((Gemini, OpenAi), Method::EmbedContent, task);
    assert_eq!(
        (fields, reason.as_deref()),
        (vec!["taskType".to_owned()], Some("embeddings of OpenAI's protocol have no such field"))
    );
    let one = |size: u32| json!({"content": {"parts": [{"text": "a"}]}, "outputDimensionality": size});
    let uneven = json!({"requests": [one(1), one(2)]});
    let (fields, reason) = reasoned((Gemini, OpenAi), Method::BatchEmbedContents, uneven);
    assert_eq!(fields, ["requests[1]"]);
    assert!(reason.as_deref().is_some_and(|reason| reason.contains("one setting for all texts")), "{reason:?}");
    assert_eq!(refused((OpenAi, Anthropic), Method::Embeddings, json!({"model": "m", "input": "a"})), ["input"]);
}

// === malformed bodies ===

#[test]
fn errors_name_the_path() {
    let fault = |from: Protocol, body: &str| {
        let target =
            Target { method: if from == Gemini { Method::Generate } else { Method::Chat }, model: None, framing: Framing::Sse };
        match decode_request(from, &target, body.as_bytes()) {
            Err(TranslateError::Malformed(fault)) => {
                (fault.kind, fault.violations.first().map(|v| v.field.clone()).unwrap_or_default())
            }
            other => panic!("{other:?}"),
        }
    };
    let hi = r#"[{"role":"user","content":"hi"}]"#;
    let with = |more: &str| format!(r#"{{"model":"m","messages":{hi},{more}}}"#);
    for (from, body, kind, field) in [
        (OpenAi, "[]".to_owned(), MalformedKind::NotJson, ""),
        (OpenAi, r#"{"model":"m""#.to_owned(), MalformedKind::NotJson, ""),
        (OpenAi, r#"{"model":"m","contents":[]}"#.to_owned(), MalformedKind::Missing, "messages"),
        (OpenAi, r#"{"model":"m","messages":[{"role":"x"}]}"#.to_owned(), MalformedKind::InvalidValue, "messages[0].role"),
        (OpenAi, with(r#""max_tokens":0"#), MalformedKind::InvalidValue, "max_tokens"),
        (OpenAi, with(r#""temperature":"1""#), MalformedKind::WrongType, "temperature"),
        (OpenAi, with(r#""stop":[1]"#), MalformedKind::WrongType, "stop[0]"),
        (Gemini, r#"{"contents":[{"parts":[{"text":1}]}]}"#.to_owned(), MalformedKind::WrongType, "contents[0].parts[0].text"),
        (
            Gemini,
            r#"{"contents":[{"parts":[{"inlineData":{"data":"AAAA"}}]}]}"#.to_owned(),
            MalformedKind::Missing,
            "contents[0].parts[0].inlineData.mimeType",
        ),
        (Gemini, r#"{"contents":[{"role":"x","parts":[]}]}"#.to_owned(), MalformedKind::InvalidValue, "contents[0].role"),
        (Anthropic, format!(r#"{{"model":"m","messages":{hi}}}"#), MalformedKind::Missing, "max_tokens"),
        (
            Anthropic,
            r#"{"model":"m","max_tokens":1,"messages":[{"role":"user"}]}"#.to_owned(),
            MalformedKind::Missing,
            "messages[0].content",
        ),
    ] {
        assert_eq!(fault(from, &body), (kind, field.to_owned()), "{body}");
    }
}

// === large bodies ===

#[test]
fn refusal_names_at_most_100_fields() {
    let more: serde_json::Map<String, Value> = (0..50_000).map(|number| (format!("x{number}"), json!(1))).collect();
    let (fields, _) = unsupported(translate((OpenAi, Gemini), &openai(Value::Object(more)), &TranslateOptions::default()));
    assert_eq!(fields.len(), 100);
}

#[test]
fn many_calls_and_colliding_names_take_linear_time() {
    let letter = |number: u32| char::from_u32(0x4e00 + number % 20_000).unwrap_or('x');
    let calls: Vec<Value> = (0..20_000).map(|number| json!({"functionCall": {"name": letter(number).to_string()}})).collect();
    let responses: Vec<Value> =
        (0..20_000).rev().map(|number| json!({"functionResponse": {"name": letter(number).to_string(), "response": {}}})).collect();
    let body = json!({"contents": [
        {"parts": [{"text": "a"}]},
        {"role": "model", "parts": calls},
        {"parts": responses}
    ]});
    let encoded = translate((Gemini, OpenAi), &body, &TranslateOptions::default()).unwrap();
    assert_eq!(encoded.name_map.len(), 20_000);
    assert_eq!(encoded_body(&encoded)["messages"].as_array().unwrap().len(), 20_002);
}
