//! Scripted Gemini API (`generateContent`).

use serde_json::{Value, json};

use super::{GEMINI_SIGNATURE, ModelInput, ModelOutput, ProviderError, ResponseBody, deltas, respond};

/// Placeholders for it in histories of other origin, in both alphabets.
const PLACEHOLDERS: [&str; 2] = ["skip_thought_signature_validator", "skip/thought/signature/validator"];

pub(crate) fn error(refused: &ProviderError) -> Value {
    let status = match refused.status {
        400 => "INVALID_ARGUMENT",
        404 => "NOT_FOUND",
        429 => "RESOURCE_EXHAUSTED",
        503 => "UNAVAILABLE",
        _ => "INTERNAL",
    };
    json!({"error": {"code": refused.status, "message": refused.message, "status": status, "details": []}})
}

pub(crate) fn answer(path: &str, body: &Value) -> Result<ResponseBody, ProviderError> {
    if path.contains(":countTokens") {
        return Ok(ResponseBody::Json(json!({"totalTokens": 11})));
    }
    if path.contains(":batchEmbedContents") {
        let count = body["requests"].as_array().map_or(0, Vec::len);
        return Ok(ResponseBody::Json(json!({"embeddings": vec![json!({"values": [0.25, -0.5]}); count]})));
    }
    if path.contains(":embedContent") {
        return Ok(ResponseBody::Json(json!({"embedding": {"values": [0.25, -0.5]}})));
    }
    let input = read(body)?;
    let output = respond(&input)?;
    if path.contains(":streamGenerateContent") {
        Ok(ResponseBody::Events(events(&output)))
    } else {
        Ok(ResponseBody::Json(whole(&output)))
    }
}

/// Both spellings of a member.
fn get<'a>(value: &'a Value, camel: &str, snake: &str) -> &'a Value {
    value.get(camel).or_else(|| value.get(snake)).unwrap_or(&Value::Null)
}

fn read(body: &Value) -> Result<ModelInput, ProviderError> {
    let config = get(body, "generationConfig", "generation_config");
    let thinking = get(config, "thinkingConfig", "thinking_config");
    let mut input = ModelInput { thinking: get(thinking, "includeThoughts", "include_thoughts") == true, ..ModelInput::default() };
    input.json = get(config, "responseMimeType", "response_mime_type") == "application/json";
    for tool in body["tools"].as_array().into_iter().flatten() {
        for declaration in get(tool, "functionDeclarations", "function_declarations").as_array().into_iter().flatten() {
            input
                .tools
                .push(declaration["name"].as_str().ok_or_else(|| ProviderError::bad("a declaration without a name"))?.to_owned());
        }
    }
    let mut open: Vec<String> = Vec::new();
    for content in body["contents"].as_array().ok_or_else(|| ProviderError::bad("contents is not specified"))? {
        input.messages += 1;
        let parts = content["parts"].as_array().map(Vec::as_slice).unwrap_or_default();
        match content["role"].as_str() {
            None | Some("user") => read_user(parts, &mut input, &mut open)?,
            Some("model") => read_model(parts, &mut open)?,
            Some(role) => return Err(ProviderError::bad(format!("Please use a valid role: user, model (not {role})."))),
        }
    }
    Ok(input)
}

fn read_user(parts: &[Value], input: &mut ModelInput, open: &mut Vec<String>) -> Result<(), ProviderError> {
    let results: Vec<&Value> =
        parts.iter().map(|part| get(part, "functionResponse", "function_response")).filter(|result| !result.is_null()).collect();
    if results.is_empty() {
        if !open.is_empty() {
            return Err(ProviderError::bad(format!("calls without responses: {open:?}")));
        }
        let texts: Vec<&str> = parts.iter().filter_map(|part| part["text"].as_str()).collect();
        input.begin_turn(texts.join("\n"), parts.len() - texts.len());
        return Ok(());
    }
    if results.len() != open.len() {
        return Err(ProviderError::bad("the number of function response parts must equal the number of function call parts"));
    }
    for (result, name) in results.iter().zip(open.drain(..)) {
        if result["name"] != name.as_str() {
            return Err(ProviderError::bad(format!("a response named {} to a call of {name}", result["name"])));
        }
        let response = &result["response"];
        let text = ["output", "result"].iter().find_map(|key| response[*key].as_str().map(str::to_owned));
        input.results.push(text.unwrap_or_else(|| response.to_string()));
    }
    input.rounds += 1;
    Ok(())
}

fn read_model(parts: &[Value], open: &mut Vec<String>) -> Result<(), ProviderError> {
    for part in parts {
        let call = get(part, "functionCall", "function_call");
        if call.is_null() {
            continue;
        }
        if !call["args"].is_object() {
            return Err(ProviderError::bad(format!("args is not an object: {call}")));
        }
        let signature = get(part, "thoughtSignature", "thought_signature").as_str().unwrap_or_default();
        if open.is_empty() && signature != GEMINI_SIGNATURE && !PLACEHOLDERS.contains(&signature) {
            return Err(ProviderError::bad(format!(
                "Function call is missing a thought_signature in functionCall parts (found '{signature}')."
            )));
        }
        open.push(call["name"].as_str().unwrap_or_default().to_owned());
    }
    Ok(())
}

fn call_parts(output: &ModelOutput) -> Vec<Value> {
    output
        .calls
        .iter()
        .enumerate()
        .map(|(index, (name, args))| {
            let mut part = json!({"functionCall": {"name": name, "args": args}});
            if index == 0 {
                part["thoughtSignature"] = GEMINI_SIGNATURE.into();
            }
            part
        })
        .collect()
}

fn response(parts: &[Value], last: bool, output: &ModelOutput) -> Value {
    let mut candidate = json!({"content": {"role": "model", "parts": parts}, "index": 0});
    if last {
        candidate["finishReason"] = "STOP".into();
    }
    let thoughts = if output.thought.is_some() { 3 } else { 0 };
    let candidates = output.tokens();
    let mut usage = json!({
        "promptTokenCount": 11, "candidatesTokenCount": candidates, "cachedContentTokenCount": 2,
        "totalTokenCount": 11 + candidates + thoughts,
    });
    if thoughts > 0 {
        usage["thoughtsTokenCount"] = thoughts.into();
    }
    json!({"candidates": [candidate], "usageMetadata": usage, "modelVersion": "scripted-1", "responseId": "scripted"})
}

fn whole(output: &ModelOutput) -> Value {
    let mut parts: Vec<Value> = output.thought.iter().map(|thought| json!({"text": thought, "thought": true})).collect();
    parts.extend(output.text.iter().map(|text| json!({"text": text})));
    parts.extend(call_parts(output));
    response(&parts, true, output)
}

fn events(output: &ModelOutput) -> Vec<String> {
    let mut parts: Vec<Value> = output.thought.iter().map(|thought| json!({"text": thought, "thought": true})).collect();
    parts.extend(output.text.iter().flat_map(|text| deltas(text)).map(|piece| json!({"text": piece})));
    parts.extend(call_parts(output));
    let last = parts.len().saturating_sub(1);
    parts
        .into_iter()
        .enumerate()
        .map(|(index, part)| format!("data: {}\r\n\r\n", response(&[part], index == last, output)))
        .collect()
}
