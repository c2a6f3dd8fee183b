//! Fields are never lost silently: those that the upstream cannot express are named, all others are sent.

use Protocol::{Anthropic, Gemini, OpenAi};
use serde_json::{Value, json};
use tollgate_protocol::{
    Framing, Method, Profile, Protocol, Target, TranslateError, TranslateOptions, decode_request, effective_profile, encode_request,
};

/// The upstream body and the dropped fields, or the refused fields. For a malformed body, the message instead of fields.
fn translate(from: Protocol, to: Protocol, body: &Value) -> Result<(Value, Vec<String>), Vec<String>> {
    let method = if from == Gemini { Method::Generate } else { Method::Chat };
    translate_as((from, to), method, body, &TranslateOptions::default())
}

fn translate_as(
    (from, to): (Protocol, Protocol),
    method: Method,
    body: &Value,
    options: &TranslateOptions<'_>,
) -> Result<(Value, Vec<String>), Vec<String>> {
    let model = match to {
        OpenAi => "gpt-4o",
        Gemini => "gemini-3-flash",
        Anthropic => "claude-opus-4-8",
        Protocol::Responses => "gpt-5.5",
    };
    let profile = effective_profile(to.as_str(), to, model, &Profile::default());
    let target = Target { method, model: (from == Gemini).then(|| "m".to_owned()), framing: Framing::Sse };
    let outcome = decode_request(from, &target, body.to_string().as_bytes())
        .and_then(|request| encode_request(to, &request, "up", &profile, options));
    match outcome {
        Ok(encoded) => Ok((serde_json::from_slice(&encoded.body).expect("JSON"), encoded.dropped)),
        Err(TranslateError::Unsupported { fields, .. }) => Err(fields),
        Err(TranslateError::Malformed(fault)) => Err(vec![fault.message]),
        // The gateway counts itself.
        Err(TranslateError::NoCounter) => Ok((Value::Null, Vec::new())),
    }
}

#[track_caller]
fn refused(from: Protocol, to: Protocol, body: &Value) -> Vec<String> {
    translate(from, to, body).expect_err("a refusal")
}

#[track_caller]
fn sent(from: Protocol, to: Protocol, body: &Value) -> Value {
    let (body, dropped) = translate(from, to, body).expect("a translated request");
    assert_eq!(dropped, Vec::<String>::new());
    body
}

fn openai(members: &Value) -> Value {
    let mut body = json!({"model": "m", "messages": [{"role": "user", "content": "hi"}]});
    for (name, value) in members.as_object().expect("members") {
        body[name] = value.clone();
    }
    body
}

fn gemini(part: &Value) -> Value {
    json!({"contents": [{"role": "user", "parts": [part]}]})
}

#[test]
fn media_resolution_without_a_counterpart_is_refused() {
    let body = |level: &str| {
        let mut body = gemini(&json!({"inlineData": {"mimeType": "image/png", "data": "iVBO"}}));
        body["generationConfig"] = json!({"mediaResolution": level});
        body
    };
    for level in ["MEDIA_RESOLUTION_LOW", "MEDIA_RESOLUTION_MEDIUM", "MEDIA_RESOLUTION_HIGH"] {
        assert_eq!(refused(Gemini, Anthropic, &body(level)), ["generationConfig.mediaResolution"]);
    }
    assert_eq!(refused(Gemini, OpenAi, &body("MEDIA_RESOLUTION_MEDIUM")), ["generationConfig.mediaResolution"]);
    let image = &sent(Gemini, OpenAi, &body("MEDIA_RESOLUTION_LOW"))["messages"][0]["content"][0]["image_url"];
    assert_eq!(image["detail"], "low");
    sent(Gemini, Anthropic, &body("MEDIA_RESOLUTION_UNSPECIFIED"));
}

#[test]
fn description_of_a_format_moves_into_its_schema() {
    let format = |more: Value| {
        let mut named = json!({"name": "n", "schema": {"type": "object", "properties": {}}});
        for (name, value) in more.as_object().expect("members") {
            named[name] = value.clone();
        }
        openai(&json!({"response_format": {"type": "json_schema", "json_schema": named}}))
    };
    let described = format(json!({"description": "d"}));
    assert_eq!(sent(OpenAi, Gemini, &described)["generationConfig"]["responseJsonSchema"]["description"], "d");
    assert_eq!(sent(OpenAi, Anthropic, &described)["output_config"]["format"]["schema"]["description"], "d");
    let twice = format(json!({"description": "d", "schema": {"type": "object", "description": "own"}}));
    for to in [Gemini, Anthropic] {
        assert_eq!(refused(OpenAi, to, &twice), ["response_format.json_schema.description"]);
        assert_eq!(refused(OpenAi, to, &format(json!({"x": 1}))), ["response_format.json_schema.x"]);
    }
}

#[test]
fn unknown_members_of_thinking_config_are_refused() {
    let body = openai(&json!({"extra_body": {"google": {"thinking_config": {"include_thoughts": true, "foo": 1, "bar": null}}}}));
    assert_eq!(refused(OpenAi, Gemini, &body), ["extra_body.google.thinking_config.foo"]);
}

#[test]
fn images_from_the_model_are_sent_or_refused() {
    let image = json!({"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBO"}, "index": 0});
    let body = openai(&json!({"messages": [{"role": "user", "content": "draw"},
        {"role": "assistant", "content": "here", "images": [image]}, {"role": "user", "content": "again"}]}));
    let parts = &sent(OpenAi, Gemini, &body)["contents"][1]["parts"];
    assert_eq!(*parts, json!([{"text": "here"}, {"inlineData": {"mimeType": "image/png", "data": "iVBO"}}]));
    assert_eq!(refused(OpenAi, Anthropic, &body), ["messages[1].images[0].image_url"]);
}

#[test]
fn strict_tools_stay_strict_for_anthropic() {
    let tool = |strict: Value| {
        let schema = json!({"type": "object", "properties": {"a": {"type": "string"}}});
        let body =
            openai(&json!({"tools": [{"type": "function", "function": {"name": "f", "strict": strict, "parameters": schema}}]}));
        sent(OpenAi, Anthropic, &body)["tools"][0].clone()
    };
    assert_eq!(tool(json!(true))["strict"], true);
    assert_eq!(tool(json!(false)).get("strict"), None);
    assert_eq!(tool(Value::Null).get("strict"), None);
}

#[test]
fn part_with_two_kinds_of_content_is_refused() {
    for to in [OpenAi, Anthropic] {
        let part = json!({"text": "a", "functionCall": {"name": "f"}});
        let body =
            json!({"contents": [{"parts": [{"text": "hi"}]}, {"role": "model", "parts": [part]}, {"parts": [{"text": "b"}]}]});
        assert_eq!(refused(Gemini, to, &body), ["contents[1].parts[0]"]);
    }
}

#[test]
fn image_details_without_a_gemini_resolution_are_ignored() {
    let body = |detail: &str| {
        let image = json!({"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBO", "detail": detail}});
        openai(&json!({"messages": [{"role": "user", "content": [image]}]}))
    };
    for detail in ["auto", "original", "xhigh", "medium", "bogus"] {
        assert_eq!(sent(OpenAi, Gemini, &body(detail))["contents"][0]["parts"][0].get("mediaResolution"), None, "{detail}");
    }
    for (detail, level) in [("low", "MEDIA_RESOLUTION_LOW"), ("high", "MEDIA_RESOLUTION_HIGH")] {
        assert_eq!(sent(OpenAi, Gemini, &body(detail))["contents"][0]["parts"][0]["mediaResolution"]["level"], level);
    }
}

#[test]
fn gemini_file_without_a_type_is_not_an_image() {
    let untyped = |uri: &str| gemini(&json!({"fileData": {"fileUri": uri}}));
    for to in [OpenAi, Anthropic] {
        assert_eq!(refused(Gemini, to, &untyped("https://www.youtube.com/watch?v=x")), ["contents[0].parts[0]"]);
        sent(Gemini, to, &untyped("https://x.test/a.png"));
    }
    let request = openai(
        &json!({"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "https://x.test/a"}}]}]}),
    );
    sent(OpenAi, Anthropic, &request);
}

#[test]
fn anthropic_gets_all_tools_unless_restricted() {
    let tools = json!([{"type": "function", "function": {"name": "f"}}, {"type": "function", "function": {"name": "g"}}]);
    let allowed = |mode: &str, names: &[&str]| {
        let list: Vec<Value> = names.iter().map(|name| json!({"type": "function", "function": {"name": name}})).collect();
        openai(&json!({"tools": tools, "tool_choice": {"type": "allowed_tools", "allowed_tools": {"mode": mode, "tools": list}}}))
    };
    assert_eq!(sent(OpenAi, Anthropic, &allowed("auto", &["g"]))["tools"].as_array().map(Vec::len), Some(1));
    for (mode, names) in [("auto", &["x"][..]), ("auto", &["f", "x"]), ("required", &["f", "x"])] {
        let message = refused(OpenAi, Anthropic, &allowed(mode, names)).remove(0);
        assert!(message.contains("'tool_choice'") && message.contains("not among the tools"), "{message}");
    }
    let named = openai(&json!({"tools": tools, "tool_choice": {"type": "function", "function": {"name": "x"}}}));
    for to in [Gemini, Anthropic] {
        assert!(refused(OpenAi, to, &named)[0].contains("'tool_choice'"));
    }
    let mut none = gemini(&json!({"text": "hi"}));
    none["tools"] = json!([{"functionDeclarations": [{"name": "f"}, {"name": "g"}, {"name": "h"}]}]);
    none["toolConfig"] = json!({"functionCallingConfig": {"mode": "NONE", "allowedFunctionNames": ["f", "g"]}});
    let body = sent(Gemini, Anthropic, &none);
    assert_eq!((body["tools"].as_array().map(Vec::len), &body["tool_choice"]), (Some(3), &json!({"type": "none"})));
}

#[test]
fn signature_suffixes_are_removed_from_gemini_histories() {
    let body = json!({"contents": [{"parts": [{"text": "hi"}]},
        {"role": "model", "parts": [{"functionCall": {"id": "c__sig1_QUJD", "name": "f"}}]},
        {"parts": [{"functionResponse": {"id": "c__sig1_QUJD", "name": "f", "response": {"output": "r"}}}]}]});
    for to in [OpenAi, Anthropic] {
        let text = sent(Gemini, to, &body).to_string();
        assert!(!text.contains("__sig1_") && text.matches(r#""c""#).count() == 2, "{text}");
    }
}

/// Parameters that add input are refused as in a request for an answer. Others do not matter to a count.
#[test]
fn token_counts_refuse_the_same_parameters_that_hold_input() {
    for (name, value) in [
        ("thread", json!({"type": "continue", "previous_message_id": "msg_1"})),
        ("container", json!({"skills": [{"type": "anthropic", "skill_id": "pptx"}]})),
        ("mcp_servers", json!([{"type": "url", "url": "https://example.com", "name": "s"}])),
    ] {
        let mut body = json!({"model": "m", "max_tokens": 9, "speed": "fast", "messages": [{"role": "user", "content": "a"}]});
        body[name] = value;
        for to in [OpenAi, Gemini, Protocol::Responses] {
            let refused = |method, lenient| {
                let options = TranslateOptions { lenient, ..TranslateOptions::default() };
                translate_as((Anthropic, to), method, &body, &options).err().unwrap_or_default()
            };
            assert_eq!(refused(Method::CountTokens, false), [name], "{to:?}");
            assert!(refused(Method::Chat, false).iter().any(|field| field == name), "{to:?} {name}");
            // The field refers to the conversation so far, without which the answer would be different.
            let lenient: &[&str] = if name == "thread" { &["thread"] } else { &[] };
            assert_eq!([Method::CountTokens, Method::Chat].map(|method| refused(method, true)), [lenient, lenient], "{to:?}");
        }
    }
    let inner = json!({"contents": [{"parts": [{"text": "a"}]}], "cachedContent": "cachedContents/a", "safetySettings": []});
    for to in [OpenAi, Anthropic, Protocol::Responses] {
        let body = json!({"generateContentRequest": inner});
        let refused = translate_as((Gemini, to), Method::CountTokens, &body, &TranslateOptions::default());
        assert_eq!(refused, Err(vec!["generateContentRequest.cachedContent".to_owned()]), "{to:?}");
    }
}
