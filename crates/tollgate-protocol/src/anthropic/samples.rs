//! Sample values: the smallest Messages body, the optional fields, and values for fields that accept only certain ones.

use serde_json::{Value, json};

/// See `ProtocolSpec::parameters`.
pub(crate) const PARAMETERS: &[&str] = &[
    "cache_control",
    "container",
    "context_management",
    "diagnostics",
    "fallbacks",
    "inference_geo",
    "mcp_servers",
    "metadata",
    "output_config.effort",
    "output_config.format",
    "service_tier",
    "speed",
    "stop_sequences",
    "temperature",
    "thinking",
    "thread",
    "tool_choice",
    "tools",
    "top_k",
    "top_p",
];

/// One user message, and `max_tokens`, which is required.
pub(crate) fn minimal_body(model: &str, text: &str) -> Value {
    json!({"model": model, "max_tokens": 16, "messages": [{"role": "user", "content": text}]})
}

/// See `ProtocolSpec::field_sample`.
pub(crate) fn field_sample(field: &str) -> Vec<(&'static str, Value)> {
    let tools = || ("tools", json!([{"name": "f", "input_schema": {"type": "object"}}]));
    let one = |value: Value| vec![("", value)];
    match field {
        "temperature" | "top_p" => one(json!(0.5)),
        "tools" => one(tools().1),
        "tool_choice" => vec![("", json!({"type": "any"})), tools()],
        "thinking" => one(json!({"type": "enabled", "budget_tokens": 1_024})),
        "output_config" => one(json!({"effort": "low"})),
        "output_config.effort" => one(json!("low")),
        "output_config.format" => one(json!({"type": "json_schema", "schema": {"type": "object"}})),
        "context_management" => one(json!({"edits": [{"type": "clear_tool_uses_20250919"}]})),
        "metadata" => one(json!({"user_id": "u"})),
        "cache_control" => one(json!({"type": "ephemeral"})),
        "mcp_servers" => one(json!([{"type": "url", "url": "https://example.com", "name": "s"}])),
        "thread" => one(json!({"type": "create"})),
        "speed" => one(json!("fast")),
        "service_tier" => one(json!("priority")),
        "inference_geo" => one(json!("eu")),
        "system" => one(json!("s")),
        _ => Vec::new(),
    }
}
