//! Sample values: the smallest Messages body.

use serde_json::{Value, json};

/// A body with one user message; `max_tokens` is required.
pub(crate) fn minimal_body(model: &str, text: &str) -> Value {
    json!({"model": model, "max_tokens": 16, "messages": [{"role": "user", "content": text}]})
}
