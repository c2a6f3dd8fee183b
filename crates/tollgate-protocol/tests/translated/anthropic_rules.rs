//! Requests to Anthropic upstreams keep the rules of that API: no blank texts, closed schemas, tokens left for an answer after the
//! thinking, and one sampling parameter for models that accept only one.

use serde_json::{Value, json};
use tollgate_protocol::{
    Framing, Method, Profile, Protocol, Target, TranslateError, TranslateOptions, decode_request, effective_profile, encode_request,
};

type Translated = Result<(Value, Vec<String>), (Vec<String>, Option<String>)>;

fn translate(from: Protocol, model: &str, body: &Value) -> Translated {
    let profile = effective_profile("anthropic", Protocol::Anthropic, model, &Profile::default());
    let method = if from == Protocol::Gemini { Method::Generate } else { Method::Chat };
    let target = Target { method, model: (from == Protocol::Gemini).then(|| "m".to_owned()), framing: Framing::Sse };
    let request = decode_request(from, &target, body.to_string().as_bytes()).expect("a request");
    match encode_request(Protocol::Anthropic, &request, model, &profile, &TranslateOptions::default()) {
        Ok(encoded) => Ok((serde_json::from_slice(&encoded.body).expect("JSON"), encoded.dropped)),
        Err(TranslateError::Unsupported { fields, reason }) => Err((fields, reason)),
        Err(other) => panic!("{other:?}"),
    }
}

fn chat(members: &Value) -> Value {
    let mut body = json!({"model": "m", "messages": [{"role": "user", "content": "hi"}]});
    body.as_object_mut().expect("a valid case").extend(members.as_object().expect("a valid case").clone());
    body
}

fn messages(messages: &Value) -> Value {
    translate(Protocol::OpenAi, "claude-sonnet-4-5", &json!({"model": "m", "messages": messages})).expect("a request").0
}

const MODEL: &str = "claude-sonnet-4-5";

#[test]
fn objects_of_a_response_schema_disallow_additional_properties() {
    let native = json!({
        "contents": [{"parts": [{"text": "hi"}]}],
        "generationConfig": {"responseMimeType": "application/json", "responseSchema": {
            "type": "OBJECT",
            "properties": {"age": {"type": "INTEGER", "minimum": 0, "format": "int32"}, "who": {"type": "OBJECT", "nullable": true,
                "properties": {"name": {"type": "STRING", "maxLength": "9"}}}},
            "required": ["age"]
        }}
    });
    let (body, dropped) = translate(Protocol::Gemini, MODEL, &native).expect("a valid case");
    let schema = &body["output_config"]["format"]["schema"];
    assert_eq!(
        (&schema["additionalProperties"], &schema["properties"]["who"]["additionalProperties"]),
        (&json!(false), &json!(false))
    );
    assert_eq!(schema["properties"]["age"], json!({"type": "integer", "description": "{minimum: 0, format: \"int32\"}"}));
    let path = "generationConfig.responseSchema.properties";
    let named = [format!("{path}.age.format"), format!("{path}.age.minimum"), format!("{path}.who.properties.name.maxLength")];
    assert_eq!(dropped, named);

    let schema = json!({"type": "object", "properties": {"a": {"type": "string", "pattern": "^a"}}, "additionalProperties": true});
    let format = json!({"type": "json_schema", "json_schema": {"name": "n", "schema": schema}});
    let (body, dropped) = translate(Protocol::OpenAi, MODEL, &chat(&json!({"response_format": format}))).expect("a valid case");
    assert_eq!(body["output_config"]["format"]["schema"]["additionalProperties"], false);
    let path = "response_format.json_schema.schema";
    assert_eq!(dropped, [format!("{path}.additionalProperties=false"), format!("{path}.properties.a.pattern")]);

    let map = json!({"type": "object", "additionalProperties": {"type": "string"}});
    let format = json!({"type": "json_schema", "json_schema": {"name": "n", "schema": map}});
    let (fields, _) = translate(Protocol::OpenAi, MODEL, &chat(&json!({"response_format": format}))).unwrap_err();
    assert_eq!(fields, [format!("{path}.additionalProperties")]);
}

#[test]
fn only_parameters_of_strict_tools_disallow_additional_properties() {
    let parameters = json!({"type": "object", "properties": {"a": {"type": "integer", "maximum": 9}}});
    let tool = |strict: bool| json!({"type": "function", "function": {"name": "f", "strict": strict, "parameters": parameters}});
    let (body, dropped) = translate(Protocol::OpenAi, MODEL, &chat(&json!({"tools": [tool(true)]}))).expect("a valid case");
    assert_eq!(body["tools"][0]["input_schema"]["additionalProperties"], false);
    assert_eq!(dropped, ["tools[0].function.parameters.properties.a.maximum"]);
    let (body, dropped) = translate(Protocol::OpenAi, MODEL, &chat(&json!({"tools": [tool(false)]}))).expect("a valid case");
    assert_eq!((&body["tools"][0]["input_schema"], dropped.len()), (&parameters, 0));
}

/// Whether a text block or string content is blank.
fn has_blank(value: &Value) -> bool {
    match value {
        Value::Object(object) => object.iter().any(|(name, value)| {
            let is_text = matches!(name.as_str(), "text" | "content" | "system");
            is_text && value.as_str().is_some_and(|text| text.trim().is_empty()) || has_blank(value)
        }),
        Value::Array(items) => items.iter().any(has_blank),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}

#[test]
fn blank_text_is_never_sent() {
    let call = json!({"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}});
    let image = json!({"type": "image_url", "image_url": {"url": "https://x.test/a.png"}});
    let histories = [
        json!([{"role": "user", "content": "hi"}, {"role": "assistant", "content": "\n\n", "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "c", "content": "r"}]),
        json!([{"role": "user", "content": "hi"}, {"role": "assistant", "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "c", "content": ""}]),
        json!([{"role": "user", "content": "hi"}, {"role": "assistant", "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "c", "content": " \n"}, {"role": "user", "content": "go on"}]),
        json!([{"role": "user", "content": [{"type": "text", "text": "  "}, image]}]),
        json!([{"role": "system", "content": " "}, {"role": "user", "content": "hi"}]),
        json!([{"role": "user", "content": ""}]),
        json!([{"role": "user", "content": " "}, {"role": "assistant", "content": "a"}, {"role": "user", "content": "b"}]),
        json!([{"role": "user", "content": "a"}, {"role": "assistant", "content": " "}, {"role": "user", "content": "b"}]),
        json!([{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}, {"role": "user", "content": "\n"}]),
    ];
    for history in histories {
        let body = messages(&history);
        assert!(!has_blank(&body), "{history} became {body}");
        let roles: Vec<&str> = body["messages"]
            .as_array()
            .expect("a valid case")
            .iter()
            .map(|message| message["role"].as_str().expect("a valid case"))
            .collect();
        assert!(roles.first() == Some(&"user") && roles.windows(2).all(|pair| pair[0] != pair[1]), "{roles:?}");
    }
}

#[test]
fn blank_tool_result_has_no_content_unless_it_is_an_error() {
    let result = |response: Value| {
        let call = json!({"role": "model", "parts": [{"functionCall": {"name": "f", "args": {}}}]});
        let answer = json!({"role": "user", "parts": [{"functionResponse": {"name": "f", "response": response}}]});
        let body = json!({"contents": [{"role": "user", "parts": [{"text": "hi"}]}, call, answer]});
        let (body, _) = translate(Protocol::Gemini, MODEL, &body).expect("a valid case");
        assert!(!has_blank(&body), "{body}");
        body["messages"][2]["content"][0].clone()
    };
    let chat = json!([{"role": "user", "content": "hi"},
        {"role": "assistant", "tool_calls": [{"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}]},
        {"role": "tool", "tool_call_id": "c", "content": " "}]);
    assert_eq!(messages(&chat)["messages"][2]["content"][0], json!({"type": "tool_result", "tool_use_id": "c"}));
    let error = result(json!({"error": " "}));
    assert_eq!((&error["content"], &error["is_error"]), (&json!("error"), &json!(true)), "{error}");
    assert!(result(json!({"output": ""}))["content"].as_str().is_none_or(|text| !text.trim().is_empty()));
}

#[test]
fn history_starting_with_the_assistant_is_prefixed_with_a_user_turn() {
    let body = messages(&json!([{"role": "assistant", "content": "Hello!"}, {"role": "user", "content": "hi"}]));
    assert_eq!(body["messages"][0], json!({"role": "user", "content": "."}));
    assert_eq!(body["messages"][1]["role"], "assistant");
}

#[test]
fn trailing_white_space_is_removed_from_an_assistant_prefill() {
    let body = messages(&json!([{"role": "user", "content": "hi"}, {"role": "assistant", "content": "The answer is \n"}]));
    assert_eq!(body["messages"][1]["content"], "The answer is");
}

#[test]
fn thinking_budget_leaves_tokens_for_the_answer_and_reports_clamping() {
    let model = "claude-sonnet-4-5";
    let cases = [
        (json!({"reasoning_effort": "high"}), 32_000, 24_576, vec![]),
        (json!({"reasoning_effort": "low"}), 17_408, 1_024, vec![]),
        (json!({"reasoning_effort": "max"}), 32_000, 25_600, vec!["reasoning_effort=high"]),
        (json!({"reasoning_effort": "high", "max_tokens": 1_500}), 1_500, 1_200, vec!["reasoning_effort=low"]),
        (json!({"reasoning_effort": "high", "max_tokens": 16_384}), 16_384, 13_108, vec!["reasoning_effort=medium"]),
        (json!({"reasoning_effort": "high", "max_tokens": 60_000}), 60_000, 24_576, vec![]),
    ];
    for (members, limit, budget, named) in cases {
        let (body, dropped) = translate(Protocol::OpenAi, model, &chat(&members)).expect("a valid case");
        assert_eq!((&body["max_tokens"], &body["thinking"]["budget_tokens"]), (&json!(limit), &json!(budget)), "{members}");
        assert_eq!(dropped, named, "{members}");
    }
    let (body, dropped) =
        translate(Protocol::OpenAi, model, &chat(&json!({"reasoning_effort": "high", "max_tokens": 1_200}))).expect("a valid case");
    assert_eq!((body["thinking"]["type"].as_str(), dropped), (Some("disabled"), vec!["reasoning_effort=none".to_owned()]));
}

#[test]
fn clamped_thinking_budget_is_reported_once() {
    let native = |budget: u64, limit: Option<u64>| {
        let mut config = json!({"thinkingConfig": {"thinkingBudget": budget}});
        if let Some(limit) = limit {
            config["maxOutputTokens"] = limit.into();
        }
        let body = json!({"contents": [{"parts": [{"text": "hi"}]}], "generationConfig": config});
        let (body, dropped) = translate(Protocol::Gemini, "claude-sonnet-4-5", &body).expect("a valid case");
        (
            body["thinking"]["budget_tokens"].as_u64().expect("a valid case"),
            body["max_tokens"].as_u64().expect("a valid case"),
            dropped,
        )
    };
    let path = "generationConfig.thinkingConfig.thinkingBudget";
    assert_eq!(native(100_000, None), (25_600, 32_000, vec![format!("{path}=25600")]));
    assert_eq!(native(100_000, Some(10_000)), (8_000, 10_000, vec![format!("{path}=8000")]));
    assert_eq!(native(9_000, Some(10_000)), (9_000, 10_000, vec![]));
    assert_eq!(native(2_000, None), (2_000, 18_384, vec![]));
}

#[test]
fn temperature_and_top_p_are_not_sent_together_to_models_that_take_one() {
    let both = |temperature: f64, top_p: f64| chat(&json!({"temperature": temperature, "top_p": top_p}));
    let (fields, reason) = translate(Protocol::OpenAi, "claude-sonnet-4-5", &both(0.5, 0.9)).unwrap_err();
    assert_eq!((fields, reason.as_deref()), (vec!["top_p".to_owned()], Some("this model takes it only without a temperature")));
    let sent = |temperature, top_p| {
        let (body, dropped) = translate(Protocol::OpenAi, "claude-opus-4-1", &both(temperature, top_p)).expect("a valid case");
        assert!(dropped.is_empty());
        (body["temperature"].as_f64(), body["top_p"].as_f64())
    };
    assert_eq!(sent(0.5, 1.0), (Some(0.5), None));
    assert_eq!(sent(1.0, 0.9), (None, Some(0.9)));
    assert_eq!(sent(1.0, 1.0), (Some(1.0), None));
    let (body, _) = translate(Protocol::OpenAi, "claude-sonnet-4-20250514", &both(0.5, 0.9)).expect("a valid case");
    assert_eq!((body["temperature"].as_f64(), body["top_p"].as_f64()), (Some(0.5), Some(0.9)));
}

#[test]
fn names_and_media_resolutions_without_a_counterpart_are_reported() {
    let named = json!({"model": "m", "messages": [{"role": "user", "name": "ann", "content": "hi"}]});
    assert_eq!(translate(Protocol::OpenAi, MODEL, &named).expect("a valid case").1, ["messages[0].name"]);
    let part =
        json!({"inlineData": {"mimeType": "image/png", "data": "iVBO"}, "mediaResolution": {"level": "MEDIA_RESOLUTION_LOW"}});
    let native = json!({"contents": [{"parts": [part]}]});
    assert_eq!(translate(Protocol::Gemini, MODEL, &native).expect("a valid case").1, ["contents[0].parts[0].mediaResolution"]);
}

#[test]
fn options_of_a_web_search_are_reported() {
    let profile = effective_profile("gemini", Protocol::Gemini, "gemini-3-flash", &Profile::default());
    let options = TranslateOptions { server_tools: true, ..TranslateOptions::default() };
    let translate = |search: Value| {
        let target = Target { method: Method::Chat, model: None, framing: Framing::Sse };
        let body = chat(&json!({"web_search_options": search})).to_string();
        let request = decode_request(Protocol::OpenAi, &target, body.as_bytes()).expect("a valid case");
        encode_request(Protocol::Gemini, &request, "gemini-3-flash", &profile, &options).map(|encoded| encoded.dropped)
    };
    assert_eq!(translate(json!({"search_context_size": "medium"})), Ok(vec![]));
    let expected = ["web_search_options.search_context_size", "web_search_options.user_location"].map(str::to_owned).to_vec();
    assert_eq!(translate(json!({"search_context_size": "high", "user_location": {"type": "approximate"}})), Ok(expected));
    let fields = vec!["web_search_options.filters".to_owned()];
    assert_eq!(translate(json!({"filters": {}})), Err(TranslateError::Unsupported { fields, reason: None }));
}

#[test]
fn lone_surrogate_in_a_request_is_translated_as_one_replacement_character() {
    let target = Target { method: Method::Chat, model: None, framing: Framing::Sse };
    let body = br#"{"model":"m","messages":[{"role":"user","content":"a\ud83d b"}]}"#;
    let request = decode_request(Protocol::OpenAi, &target, body).expect("a valid case");
    let encoded = encode_request(Protocol::Anthropic, &request, "m", &Profile::default(), &TranslateOptions::default())
        .expect("a valid case");
    let body: Value = serde_json::from_slice(&encoded.body).expect("a valid case");
    assert_eq!(body["messages"][0]["content"], "a\u{fffd} b");
}
