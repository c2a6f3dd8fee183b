//! Refusals of the model.

use tollgate_protocol::Protocol;

use super::{INVALID_REQUEST, RefusalRow};
use crate::{refusal::text::quoted, request::Head};

/// Path of the model list, which the message refers to.
fn list_path(from: Protocol) -> &'static str {
    from.spec().caller.map_or("/v1/models", |caller| caller.model_list_path)
}

/// E13, and E14, which is byte-for-byte identical.
pub(super) fn not_found(model: &str, head: &Head) -> RefusalRow {
    let model = quoted(model);
    let message = format!(
        "The model '{model}' does not exist or your group has no access to it. List the models you can use with GET {}.",
        list_path(head.from)
    );
    let mut row = RefusalRow::new(404, INVALID_REQUEST, Some("model_not_found"), "NOT_FOUND", "MODEL_NOT_FOUND", message)
        .param("model")
        .metadata("model", model.clone());
    row.0.native.resource = Some(("model", format!("models/{model}")));
    row
}

/// E15.
pub(super) fn method_unsupported(model: &str, supports: &[&str], head: &Head) -> RefusalRow {
    let model = quoted(model);
    let message = format!(
        "The model '{model}' is not offered on this endpoint; it supports: {}. See GET {}.",
        supports.join(", "),
        list_path(head.from)
    );
    RefusalRow::new(404, INVALID_REQUEST, Some("model_not_supported_on_endpoint"), "NOT_FOUND", "MODEL_METHOD_UNSUPPORTED", message)
        .param("model")
        .metadata("model", model)
}
