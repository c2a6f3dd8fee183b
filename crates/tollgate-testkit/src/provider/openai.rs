//! Scripted OpenAI chat completions API.

use serde_json::{Value, json};

use super::{ModelInput, ModelOutput, ProviderError, ResponseBody, deltas, respond};

pub(crate) fn error(refused: &ProviderError) -> Value {
    let (code, param) = refused.detail.unzip();
    json!({"error": {"message": refused.message, "type": "invalid_request_error", "param": param, "code": code}})
}

pub(crate) fn embed(body: &Value) -> ResponseBody {
    let count = body["input"].as_array().map_or(1, Vec::len);
    let data: Vec<Value> =
        (0..count).map(|index| json!({"object": "embedding", "index": index, "embedding": [0.25, -0.5]})).collect();
    ResponseBody::Json(
        json!({"object": "list", "model": body["model"], "data": data, "usage": {"prompt_tokens": 4, "total_tokens": 4}}),
    )
}

pub(crate) fn answer(body: &Value) -> Result<ResponseBody, ProviderError> {
    if body["model"] == "missing-model" {
        let message = "The model `missing-model` does not exist or you do not have access to it.".to_owned();
        return Err(ProviderError { status: 404, message, detail: Some(("model_not_found", "model")) });
    }
    let input = read(body)?;
    let output = respond(&input)?;
    Ok(if input.stream { ResponseBody::Events(events(&output, body)) } else { ResponseBody::Json(whole(&output)) })
}

fn read(body: &Value) -> Result<ModelInput, ProviderError> {
    let mut input = ModelInput {
        stream: body["stream"] == true,
        thinking: body["reasoning_effort"].as_str().is_some_and(|effort| effort != "none"),
        ..ModelInput::default()
    };
    input.json = ["json_object", "json_schema"].iter().any(|kind| body["response_format"]["type"] == *kind);
    for tool in body["tools"].as_array().into_iter().flatten() {
        input.tools.push(tool["function"]["name"].as_str().ok_or_else(|| ProviderError::bad("a tool without a name"))?.to_owned());
        let kind = &tool["function"]["parameters"]["type"];
        if kind.as_str().is_some_and(|kind| kind.bytes().any(|byte| byte.is_ascii_uppercase())) {
            return Err(ProviderError::bad("schema types are lower case"));
        }
    }
    let mut open: Vec<String> = Vec::new();
    let mut in_results = false;
    for message in body["messages"].as_array().ok_or_else(|| ProviderError::bad("messages is missing"))? {
        input.messages += 1;
        let role = message["role"].as_str().unwrap_or_default();
        if role != "tool" && !open.is_empty() {
            return Err(ProviderError::bad(format!("calls without results: {open:?}")));
        }
        match role {
            "system" | "developer" => {}
            "user" => {
                let (text, media) = content(&message["content"]);
                // Media of tool results follow in a separate user message.
                if !(in_results && text.is_empty()) {
                    input.begin_turn(text, media);
                }
            }
            "assistant" => {
                for call in message["tool_calls"].as_array().into_iter().flatten() {
                    let id = call["id"].as_str().unwrap_or_default();
                    let fits = !id.is_empty()
                        && id.len() <= 64
                        && id.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-".contains(&byte));
                    if !fits || serde_json::from_str::<Value>(call["function"]["arguments"].as_str().unwrap_or("-")).is_err() {
                        return Err(ProviderError::bad(format!("a call that cannot be: {call}")));
                    }
                    open.push(id.to_owned());
                }
            }
            "tool" => {
                let id = message["tool_call_id"].as_str().unwrap_or_default();
                let position = open
                    .iter()
                    .position(|known| known == id)
                    .ok_or_else(|| ProviderError::bad(format!("a result without its call: {id}")))?;
                open.remove(position);
                input.results.push(content(&message["content"]).0);
            }
            other => return Err(ProviderError::bad(format!("unknown role {other}"))),
        }
        input.rounds += usize::from(role == "tool" && !in_results);
        in_results = role == "tool";
    }
    Ok(input)
}

fn content(content: &Value) -> (String, usize) {
    if let Some(text) = content.as_str() {
        return (text.to_owned(), 0);
    }
    let parts = content.as_array().map(Vec::as_slice).unwrap_or_default();
    let texts: Vec<&str> = parts.iter().filter_map(|part| part["text"].as_str()).collect();
    (texts.join("\n"), parts.len() - texts.len())
}

fn calls(output: &ModelOutput) -> Vec<Value> {
    output.calls
        .iter()
        .enumerate()
        .map(|(index, (name, arguments))| json!({"index": index, "id": format!("call_scripted_{}_{index}", output.number), "type": "function", "function": {"name": name, "arguments": arguments.to_string()}}))
        .collect()
}

fn finish(output: &ModelOutput) -> &'static str {
    if output.calls.is_empty() { "stop" } else { "tool_calls" }
}

fn usage(output: &ModelOutput) -> Value {
    let reasoning = if output.thought.is_some() { 3 } else { 0 };
    let completion = output.tokens() + reasoning;
    json!({
        "prompt_tokens": 11, "completion_tokens": completion, "total_tokens": 11 + completion,
        "prompt_tokens_details": {"cached_tokens": 2}, "completion_tokens_details": {"reasoning_tokens": reasoning},
    })
}

fn whole(output: &ModelOutput) -> Value {
    let mut message = json!({"role": "assistant", "content": output.text, "refusal": null});
    if let Some(thought) = &output.thought {
        message["reasoning_content"] = thought.as_str().into();
    }
    if !output.calls.is_empty() {
        let mut calls = calls(output);
        for call in &mut calls {
            call.as_object_mut().expect("calls are objects").remove("index");
        }
        message["tool_calls"] = calls.into();
    }
    json!({
        "id": "chatcmpl-scripted", "object": "chat.completion", "created": 1_700_000_000, "model": "scripted-1",
        "choices": [{"index": 0, "message": message, "logprobs": null, "finish_reason": finish(output)}], "usage": usage(output),
    })
}

fn events(output: &ModelOutput, body: &Value) -> Vec<String> {
    let wants_usage = body["stream_options"]["include_usage"] == true;
    let chunk = |choices: Value, usage: Option<Value>| {
        let mut chunk = json!({"id": "chatcmpl-scripted", "object": "chat.completion.chunk", "created": 1_700_000_000, "model": "scripted-1", "choices": choices});
        if wants_usage {
            chunk["usage"] = usage.unwrap_or_default();
        }
        format!("data: {chunk}\n\n")
    };
    let delta = |delta: Value, finish: Value| json!([{"index": 0, "delta": delta, "logprobs": null, "finish_reason": finish}]);
    let mut events = vec![chunk(delta(json!({"role": "assistant", "content": "", "refusal": null}), Value::Null), None)];
    for piece in output.thought.iter().flat_map(|thought| deltas(thought)) {
        events.push(chunk(delta(json!({"reasoning_content": piece}), Value::Null), None));
    }
    for piece in output.text.iter().flat_map(|text| deltas(text)) {
        events.push(chunk(delta(json!({"content": piece}), Value::Null), None));
    }
    for mut call in calls(output) {
        let arguments = call["function"]["arguments"].as_str().unwrap_or_default().to_owned();
        call["function"]["arguments"] = "".into();
        let index = call["index"].clone();
        events.push(chunk(delta(json!({"tool_calls": [call]}), Value::Null), None));
        for piece in deltas(&arguments) {
            events
                .push(chunk(delta(json!({"tool_calls": [{"index": index, "function": {"arguments": piece}}]}), Value::Null), None));
        }
    }
    events.push(chunk(delta(json!({}), finish(output).into()), None));
    if wants_usage {
        events.push(chunk(json!([]), Some(usage(output))));
    }
    events.push("data: [DONE]\n\n".to_owned());
    events
}
