//! Scripted Anthropic Messages API.

use serde_json::{Value, json};

use super::{ANTHROPIC_SIGNATURE, ModelInput, ModelOutput, ProviderError, ResponseBody, deltas, respond};

pub(crate) fn error(refused: &ProviderError) -> Value {
    let kind = match refused.status {
        400 => "invalid_request_error",
        404 => "not_found_error",
        429 => "rate_limit_error",
        529 => "overloaded_error",
        _ => "api_error",
    };
    json!({"type": "error", "error": {"type": kind, "message": refused.message}, "request_id": "req_scripted"})
}

pub(crate) fn answer(body: &Value) -> Result<ResponseBody, ProviderError> {
    let input = read(body)?;
    let output = respond(&input)?;
    Ok(if input.stream { ResponseBody::Events(events(&output)) } else { ResponseBody::Json(whole(&output)) })
}

fn read(body: &Value) -> Result<ModelInput, ProviderError> {
    if body["max_tokens"].as_u64().is_none() {
        return Err(ProviderError::bad("max_tokens: Field required"));
    }
    let thinking = body["thinking"]["type"].as_str().is_some_and(|kind| ["enabled", "adaptive"].contains(&kind));
    let mut input = ModelInput {
        stream: body["stream"] == true,
        thinking,
        hides_thought: body["thinking"]["display"] == "omitted",
        json: !body["output_config"]["format"].is_null(),
        ..ModelInput::default()
    };
    for tool in body["tools"].as_array().into_iter().flatten() {
        // The provider's own tools have a type and no schema.
        let is_own = tool["type"].as_str().is_none_or(|kind| kind == "custom");
        if is_own && tool["input_schema"]["type"] != "object" {
            return Err(ProviderError::bad("tools.input_schema.type: must be 'object'"));
        }
        input.tools.push(tool["name"].as_str().ok_or_else(|| ProviderError::bad("a tool without a name"))?.to_owned());
    }
    let mut open: Vec<String> = Vec::new();
    for message in body["messages"].as_array().ok_or_else(|| ProviderError::bad("messages: Field required"))? {
        let content = &message["content"];
        let blocks = content
            .as_str()
            .map_or_else(|| content.as_array().cloned().unwrap_or_default(), |text| vec![json!({"type": "text", "text": text})]);
        input.messages += 1;
        match message["role"].as_str() {
            Some("user") => read_user(&blocks, &mut input, &mut open)?,
            Some("assistant") => read_assistant(&blocks, &mut open)?,
            Some("system") => {}
            other => return Err(ProviderError::bad(format!("messages.role: {other:?}"))),
        }
    }
    Ok(input)
}

fn read_assistant(blocks: &[Value], open: &mut Vec<String>) -> Result<(), ProviderError> {
    for block in blocks {
        if block["type"] == "thinking" && block["signature"] != ANTHROPIC_SIGNATURE {
            return Err(ProviderError::bad(format!("Invalid `signature` in `thinking` block: {}", block["signature"])));
        }
        if block["type"] == "tool_use" {
            if !block["input"].is_object() {
                return Err(ProviderError::bad("tool_use.input: must be an object"));
            }
            open.push(block["id"].as_str().unwrap_or_default().to_owned());
        }
    }
    Ok(())
}

fn read_user(blocks: &[Value], input: &mut ModelInput, open: &mut Vec<String>) -> Result<(), ProviderError> {
    let results: Vec<&Value> = blocks.iter().take_while(|block| block["type"] == "tool_result").collect();
    for result in &results {
        let id = result["tool_use_id"].as_str().unwrap_or_default();
        let position =
            open.iter().position(|known| known == id).ok_or_else(|| ProviderError::bad(format!("unexpected tool_use_id: {id}")))?;
        open.remove(position);
        let content = &result["content"];
        let texts =
            content.as_array().into_iter().flatten().filter_map(|block| block["text"].as_str()).collect::<Vec<_>>().join("\n");
        input.results.push(content.as_str().map_or(texts, str::to_owned));
    }
    if !open.is_empty() {
        return Err(ProviderError::bad(format!("tool_use ids without tool_result blocks: {open:?}")));
    }
    input.rounds += usize::from(!results.is_empty());
    let rest = &blocks[results.len()..];
    if !rest.is_empty() {
        let texts: Vec<&str> = rest.iter().filter_map(|block| block["text"].as_str()).collect();
        let (text, media) = (texts.join("\n"), rest.len() - texts.len());
        if results.is_empty() {
            input.begin_turn(text, media);
        }
    }
    Ok(())
}

fn blocks(output: &ModelOutput) -> Vec<Value> {
    let mut blocks: Vec<Value> = output
        .thought
        .iter()
        .map(|thought| json!({"type": "thinking", "thinking": thought, "signature": ANTHROPIC_SIGNATURE}))
        .collect();
    blocks.extend(output.text.iter().map(|text| json!({"type": "text", "text": text, "citations": null})));
    blocks.extend(output.calls.iter().enumerate().map(|(index, (name, input))| {
        json!({"type": "tool_use", "id": format!("toolu_{}_{index}", output.number), "name": name, "input": input})
    }));
    blocks
}

fn stop_reason(output: &ModelOutput) -> &'static str {
    if output.calls.is_empty() { "end_turn" } else { "tool_use" }
}

fn usage(output: usize) -> Value {
    json!({"input_tokens": 9, "cache_read_input_tokens": 2, "cache_creation_input_tokens": 0, "output_tokens": output})
}

fn whole(output: &ModelOutput) -> Value {
    json!({
        "id": format!("msg_scripted_{}", output.number), "type": "message", "role": "assistant", "model": "scripted-1", "content": blocks(output),
        "stop_reason": stop_reason(output), "stop_sequence": null, "usage": usage(output.tokens()),
    })
}

fn events(output: &ModelOutput) -> Vec<String> {
    let event = |kind: &str, mut body: Value| {
        body["type"] = kind.into();
        format!("event: {kind}\ndata: {body}\n\n")
    };
    let mut message = whole(output);
    message["content"] = json!([]);
    message["stop_reason"] = Value::Null;
    message["usage"] = usage(1);
    let mut events = vec![event("message_start", json!({"message": message})), event("ping", json!({}))];
    for (index, block) in blocks(output).iter().enumerate() {
        let delta = |delta: Value| event("content_block_delta", json!({"index": index, "delta": delta}));
        let (start, deltas): (Value, Vec<String>) = match block["type"].as_str() {
            Some("thinking") => {
                let text = block["thinking"].as_str().unwrap_or_default();
                let mut deltas: Vec<String> =
                    deltas(text).iter().map(|piece| delta(json!({"type": "thinking_delta", "thinking": piece}))).collect();
                deltas.push(delta(json!({"type": "signature_delta", "signature": block["signature"]})));
                (json!({"type": "thinking", "thinking": "", "signature": ""}), deltas)
            }
            Some("text") => {
                let text = block["text"].as_str().unwrap_or_default();
                (
                    json!({"type": "text", "text": "", "citations": null}),
                    deltas(text).iter().map(|piece| delta(json!({"type": "text_delta", "text": piece}))).collect(),
                )
            }
            _ => {
                let input = block["input"].to_string();
                let start = json!({"type": "tool_use", "id": block["id"], "name": block["name"], "input": {}});
                (
                    start,
                    deltas(&input).iter().map(|piece| delta(json!({"type": "input_json_delta", "partial_json": piece}))).collect(),
                )
            }
        };
        events.push(event("content_block_start", json!({"index": index, "content_block": start})));
        events.extend(deltas);
        events.push(event("content_block_stop", json!({"index": index})));
    }
    events.push(event(
        "message_delta",
        json!({"delta": {"stop_reason": stop_reason(output), "stop_sequence": null}, "usage": usage(output.tokens())}),
    ));
    events.push(event("message_stop", json!({})));
    events
}
