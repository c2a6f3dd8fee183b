//! Sample values: the smallest chat completions and embeddings bodies, the optional fields, and values for fields that accept only
//! certain ones.

use serde_json::{Value, json};

/// See `ProtocolSpec::parameters`.
pub(crate) const PARAMETERS: &[&str] = &[
    "audio",
    "extra_body",
    "frequency_penalty",
    "function_call",
    "functions",
    "logit_bias",
    "logprobs",
    "max_completion_tokens",
    "max_tokens",
    "metadata",
    "modalities",
    "moderation",
    "n",
    "parallel_tool_calls",
    "prediction",
    "presence_penalty",
    "prompt_cache_key",
    "prompt_cache_options",
    "prompt_cache_retention",
    "reasoning_effort",
    "response_format",
    "safety_identifier",
    "seed",
    "service_tier",
    "stop",
    "store",
    "temperature",
    "tool_choice",
    "tools",
    "top_logprobs",
    "top_p",
    "user",
    "verbosity",
    "web_search_options",
];

/// See `ProtocolSpec::embedding_parameters`.
pub(crate) const EMBEDDING_PARAMETERS: &[&str] = &["dimensions", "encoding_format", "user"];

pub(crate) fn minimal_embedding_body(model: &str, text: &str) -> Value {
    json!({"model": model, "input": text})
}

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
        "encoding_format" => one(json!("base64")),
        "logit_bias" => one(json!({"1": 1})),
        "modalities" => one(json!(["text", "audio"])),
        _ => Vec::new(),
    }
}
