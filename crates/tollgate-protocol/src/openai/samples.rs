//! Sample values: the smallest chat completions body, and values for fields that accept only certain ones.

use serde_json::{Value, json};

pub(crate) fn minimal_body(model: &str, text: &str) -> Value {
    json!({"model": model, "messages": [{"role": "user", "content": text}]})
}

/// See `ProtocolSpec::field_sample`.
pub(crate) fn field_sample(field: &str) -> Vec<(&'static str, Value)> {
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
