//! Tools and calls as functions of a JSON object, the one form that upstreams without free-text tools know.

use super::Schema;
use crate::{
    json_writer::Json,
    tree::{Tree, compact},
};

/// The parameters of a tool that takes free text.
pub(crate) fn free_text() -> Schema {
    Schema::Json(serde_json::json!({"type": "object", "properties": {"input": {"type": "string"}}, "required": ["input"]}))
}

/// Arguments as an object. What is no JSON object is kept as text, neither repaired nor thrown away.
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
