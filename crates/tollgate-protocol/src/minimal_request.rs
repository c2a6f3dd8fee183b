//! The smallest request that carries a field and asks for something by it: what a protocol cannot express is then found
//! by translating that request, so that there is no second table of it.

use serde_json::{Map, Value, json};

use crate::{FieldPath, Framing, Method, Protocol, Target, decode_request, neutral::Request};

/// Values for fields of which nothing else is known, in the order in which they are tried.
fn any_value() -> [Value; 8] {
    [json!(true), json!(2), json!(0.5), json!("x"), json!(["x"]), json!([{}]), json!({"x": 1}), json!(false)]
}

/// A request with this field, as it would be read from a body: `logit_bias`, `generationConfig.topK`. The value is one
/// that asks for something that does not happen anyway. `None` where no value can be thought of that the field takes.
#[must_use]
pub fn minimal_request(from: Protocol, field: &str) -> Option<Request> {
    let target = match from {
        Protocol::Gemini => Target { method: Method::Generate, model: Some("m".to_owned()), framing: Framing::Sse },
        Protocol::OpenAi | Protocol::Anthropic => Target { method: Method::Chat, model: None, framing: Framing::Sse },
    };
    let read = |members: &[(&str, Value)]| {
        let mut body = least(from);
        for (path, value) in members {
            put(&mut body, path, value.clone());
        }
        decode_request(from, &target, Value::Object(body).to_string().as_bytes()).ok()
    };
    let known = match from {
        Protocol::OpenAi => chat(field),
        Protocol::Gemini => native(&camel(field)),
        Protocol::Anthropic => Vec::new(),
    };
    let Some(((_, value), along)) = known.split_first() else {
        return any_value().into_iter().find_map(|value| read(&[(field, value)]));
    };
    let mut members: Vec<(&str, Value)> = along.to_vec();
    members.push((field, value.clone()));
    read(&members)
}

/// The least body of a protocol.
fn least(from: Protocol) -> Map<String, Value> {
    let body = match from {
        Protocol::Gemini => json!({"contents": [{"parts": [{"text": "-"}]}]}),
        Protocol::OpenAi => json!({"model": "m", "messages": [{"role": "user", "content": "-"}]}),
        Protocol::Anthropic => json!({"model": "m", "max_tokens": 16, "messages": [{"role": "user", "content": "-"}]}),
    };
    body.as_object().cloned().unwrap_or_default()
}

/// Puts a value where a path says, and objects on the way to it.
fn put(body: &mut Map<String, Value>, path: &str, value: Value) {
    match path.split_once('.') {
        None => drop(body.insert(path.to_owned(), value)),
        Some((first, rest)) => {
            let inner = body.entry(first.to_owned()).or_insert_with(|| json!({}));
            if let Value::Object(inner) = inner {
                put(inner, rest, value);
            }
        }
    }
}

/// Native names in the spelling of the reference: both are taken.
fn camel(field: &str) -> FieldPath {
    let mut upper = false;
    let mut name = String::with_capacity(field.len());
    for character in field.chars() {
        match character {
            '_' if !name.is_empty() && !name.ends_with('.') => upper = true,
            _ if std::mem::take(&mut upper) => name.extend(character.to_uppercase()),
            _ => name.push(character),
        }
    }
    name
}

type MemberList = Vec<(&'static str, Value)>;

/// Chat fields that want a certain value, and what stands beside them, as their own and other members. The first one is
/// the field itself.
fn chat(field: &str) -> MemberList {
    let tools = || ("tools", json!([{"type": "function", "function": {"name": "f"}}]));
    let functions = || ("functions", json!([{"name": "f"}]));
    let one = |value: Value| vec![("", value)];
    match field {
        "temperature" | "top_p" | "presence_penalty" | "frequency_penalty" => one(json!(0.5)),
        "top_logprobs" => vec![("", json!(2)), ("logprobs", json!(true))],
        "tools" => one(tools().1),
        "functions" => one(functions().1),
        "parallel_tool_calls" => vec![("", json!(false)), tools()],
        "tool_choice" => vec![("", json!("required")), tools()],
        "function_call" => vec![("", json!({"name": "f"})), functions()],
        "web_search_options" => one(json!({})),
        "stream_options" => vec![("", json!({"include_usage": true})), ("stream", json!(true))],
        "response_format" => one(json!({"type": "json_object"})),
        "reasoning_effort" => one(json!("low")),
        "extra_body" => one(json!({"google": {"thinking_config": {"include_thoughts": true, "thinking_budget": 1_024}}})),
        "extra_body.google" => one(json!({"thinking_config": {"include_thoughts": true, "thinking_budget": 1_024}})),
        "extra_body.google.thinking_config" => one(json!({"include_thoughts": true, "thinking_budget": 1_024})),
        "service_tier" => one(json!("flex")),
        "logit_bias" => one(json!({"1": 1})),
        "modalities" => one(json!(["text", "audio"])),
        _ => Vec::new(),
    }
}

/// The same of native fields.
fn native(field: &str) -> MemberList {
    let tools = || ("tools", json!([{"functionDeclarations": [{"name": "f"}]}]));
    let mime = || ("generationConfig.responseMimeType", json!("application/json"));
    let one = |value: Value| vec![("", value)];
    match field {
        "systemInstruction" => one(json!({"parts": [{"text": "-"}]})),
        "tools" => one(tools().1),
        "toolConfig" => vec![("", json!({"functionCallingConfig": {"mode": "ANY"}})), tools()],
        "safetySettings" => one(json!([{"category": "HARM_CATEGORY_HARASSMENT", "threshold": "BLOCK_NONE"}])),
        "serviceTier" => one(json!("flex")),
        "labels" => one(json!({"a": "b"})),
        "generationConfig" => one(json!({"temperature": 0.5})),
        "generationConfig.temperature"
        | "generationConfig.topP"
        | "generationConfig.presencePenalty"
        | "generationConfig.frequencyPenalty" => one(json!(0.5)),
        "generationConfig.stopSequences" => one(json!(["x"])),
        "generationConfig.logprobs" => vec![("", json!(2)), ("generationConfig.responseLogprobs", json!(true))],
        "generationConfig.mediaResolution" => one(json!("MEDIA_RESOLUTION_LOW")),
        "generationConfig.responseMimeType" => one(json!("application/json")),
        "generationConfig.responseSchema" => {
            vec![("", json!({"type": "OBJECT", "properties": {"a": {"type": "STRING"}}})), mime()]
        }
        "generationConfig.responseJsonSchema" | "generationConfig._responseJsonSchema" => {
            vec![("", json!({"type": "object", "properties": {"a": {"type": "string"}}})), mime()]
        }
        "generationConfig.responseModalities" => one(json!(["IMAGE"])),
        // What holds others holds all that may be told apart from nothing: one of them may be what cannot be expressed.
        "generationConfig.thinkingConfig" => one(json!({"includeThoughts": true, "thinkingBudget": 1_024})),
        "generationConfig.thinkingConfig.thinkingLevel" => one(json!("low")),
        "generationConfig.thinkingConfig.thinkingBudget" => one(json!(1_024)),
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Profile, RemoteMedia, TranslateError, TranslateOptions, encode_request};

    fn refused(from: Protocol, to: Protocol, field: &str) -> Vec<FieldPath> {
        let request = minimal_request(from, field).unwrap_or_else(|| panic!("no request with {field} can be read"));
        let options =
            TranslateOptions { lenient: false, hoist: true, server_tools: false, pass_user: false, media: RemoteMedia::Refused };
        match encode_request(to, &request, "up", &Profile::default(), &options) {
            Err(TranslateError::Unsupported { fields, .. }) => fields,
            Ok(_) | Err(_) => Vec::new(),
        }
    }

    #[test]
    fn what_translation_refuses_is_found_by_the_name_of_the_field() {
        for field in ["logit_bias", "store", "verbosity", "modalities", "frobnicate", "audio"] {
            assert_eq!(refused(Protocol::OpenAi, Protocol::Gemini, field), [field], "{field}");
        }
        for field in ["generationConfig.topK", "generationConfig.speechConfig", "frobnicate"] {
            assert_eq!(refused(Protocol::Gemini, Protocol::OpenAi, field), [field], "{field}");
        }
        assert_eq!(refused(Protocol::Gemini, Protocol::OpenAi, "generation_config.top_k"), ["generation_config.top_k"]);
        let budget = "generationConfig.thinkingConfig.thinkingBudget";
        for field in [budget, "generationConfig.thinkingConfig"] {
            assert_eq!(refused(Protocol::Gemini, Protocol::OpenAi, field), [budget], "{field}");
        }
    }

    #[test]
    fn what_can_be_expressed_is_not_refused() {
        let chat = "temperature top_p max_tokens max_completion_tokens stop seed tools tool_choice response_format stream \
                    stream_options metadata functions function_call";
        for field in chat.split_whitespace() {
            assert_eq!(refused(Protocol::OpenAi, Protocol::Gemini, field), Vec::<String>::new(), "{field}");
        }
        let config = "temperature topP maxOutputTokens stopSequences seed presencePenalty frequencyPenalty responseMimeType \
                      responseSchema responseJsonSchema candidateCount responseLogprobs logprobs";
        for field in config.split_whitespace().map(|name| format!("generationConfig.{name}")) {
            assert_eq!(refused(Protocol::Gemini, Protocol::OpenAi, &field), Vec::<String>::new(), "{field}");
        }
        for field in ["systemInstruction", "tools", "toolConfig", "labels"] {
            assert_eq!(refused(Protocol::Gemini, Protocol::OpenAi, field), Vec::<String>::new(), "{field}");
        }
    }

    #[test]
    fn every_field_that_wants_a_certain_value_can_be_read_with_it() {
        let chat_fields = "temperature top_logprobs logprobs tools functions parallel_tool_calls tool_choice function_call \
                           web_search_options stream_options response_format reasoning_effort extra_body extra_body.google \
                           extra_body.google.thinking_config extra_body.google.cached_content service_tier logit_bias modalities \
                           n user verbosity store prediction max_tokens presence_penalty";
        for field in chat_fields.split_whitespace() {
            assert!(minimal_request(Protocol::OpenAi, field).is_some(), "{field}");
        }
        let native_fields = "systemInstruction tools toolConfig safetySettings serviceTier labels cachedContent store \
                             generationConfig generationConfig.mediaResolution generationConfig.responseModalities \
                             generationConfig.thinkingConfig generationConfig.thinkingConfig.thinkingLevel \
                             generationConfig.thinkingConfig.thinkingBudget generationConfig.enableAffectiveDialog \
                             generation_config.response_json_schema";
        for field in native_fields.split_whitespace() {
            assert!(minimal_request(Protocol::Gemini, field).is_some(), "{field}");
        }
    }

    #[test]
    fn a_value_asks_for_something_that_does_not_happen_anyway() {
        assert_eq!(minimal_request(Protocol::OpenAi, "n").unwrap().params.n.unwrap().value, 2);
        assert!(!minimal_request(Protocol::OpenAi, "parallel_tool_calls").unwrap().params.parallel.unwrap().value);
        assert_eq!(minimal_request(Protocol::Gemini, "serviceTier").unwrap().params.tier.unwrap().value, "flex");
    }
}
