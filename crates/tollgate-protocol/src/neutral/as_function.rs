//! Custom (free-text) tools and calls expressed as functions with a JSON object, for upstreams without custom tools.

use super::Schema;
use crate::{
    json_writer::Json,
    tree::{Tree, compact},
};

/// Parameter schema of a custom tool: one string, `input`.
pub(crate) fn free_text() -> Schema {
    Schema::Json(serde_json::json!({"type": "object", "properties": {"input": {"type": "string"}}, "required": ["input"]}))
}

/// Arguments as a JSON object. Text that is not a JSON object is kept verbatim under `_raw`, neither repaired nor dropped.
pub(crate) fn arguments(args: &str, custom: bool) -> Json {
    if custom {
        return Json::object([("input", Json::text(args))]);
    }
    if args.trim().is_empty() {
        return Json::Object(Vec::new());
    }
    match Tree::parse(args.as_bytes()) {
        Ok(tree) if tree.members().is_some() => Json::Raw(compact(tree.text)),
        _ => Json::object([("_raw", Json::text(args))]),
    }
}
