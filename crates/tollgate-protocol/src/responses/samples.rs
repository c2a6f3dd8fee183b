//! Sample values: the smallest body, the optional fields, and values for fields that accept only certain ones.

use serde_json::{Value, json};

/// See `ProtocolSpec::parameters`.
pub(crate) const PARAMETERS: &[&str] = &[
    "background",
    "context_management",
    "conversation",
    "include",
    "instructions",
    "max_output_tokens",
    "max_tool_calls",
    "metadata",
    "moderation",
    "parallel_tool_calls",
    "previous_response_id",
    "prompt",
    "prompt_cache_key",
    "prompt_cache_options",
    "prompt_cache_retention",
    "reasoning.effort",
    "reasoning.summary",
    "safety_identifier",
    "service_tier",
    "store",
    "temperature",
    "text.format",
    "text.verbosity",
    "tool_choice",
    "tools",
    "top_logprobs",
    "top_p",
    "truncation",
    "user",
];

pub(crate) fn minimal_body(model: &str, text: &str) -> Value {
    json!({"model": model, "input": text})
}

/// See `ProtocolSpec::field_sample`.
pub(crate) fn field_sample(field: &str) -> Vec<(&'static str, Value)> {
    let tools = || ("tools", json!([{"type": "function", "name": "f"}]));
    let one = |value: Value| vec![("", value)];
    match field {
        "temperature" | "top_p" => one(json!(0.5)),
        "top_logprobs" => vec![("", json!(2)), ("include", json!(["message.output_text.logprobs"]))],
        "include" => one(json!(["message.output_text.logprobs"])),
        "tools" => one(tools().1),
        "parallel_tool_calls" => vec![("", json!(false)), tools()],
        "tool_choice" => vec![("", json!("required")), tools()],
        "reasoning" => one(json!({"effort": "low"})),
        "reasoning.effort" | "text.verbosity" => one(json!("low")),
        "reasoning.summary" => vec![("", json!("auto")), ("reasoning.effort", json!("low"))],
        "text" => one(json!({"format": {"type": "json_object"}})),
        "text.format" => one(json!({"type": "json_object"})),
        "service_tier" => one(json!("flex")),
        "stream_options" => vec![("", json!({"include_obfuscation": false})), ("stream", json!(true))],
        "background" | "store" => one(json!(true)),
        "truncation" => one(json!("auto")),
        "context_management" => one(json!([{"type": "compaction", "compact_threshold": 1_000}])),
        "prompt" => one(json!({"id": "pmpt_1"})),
        _ => Vec::new(),
    }
}
