//! Refusals caused by the gateway itself.

use tollgate_protocol::ErrorStyle;

use super::{INVALID_REQUEST, RefusalRow, SERVER_ERROR, UNAVAILABLE_ERROR};
use crate::request::Head;

/// E61.
pub(super) fn shutting_down() -> RefusalRow {
    unavailable("shutting_down", "SHUTTING_DOWN", "The gateway is restarting.").retry(2)
}

/// E62.
pub(super) fn internal(head: &Head) -> RefusalRow {
    let message = format!("Internal error. Quote request id {} to the operator.", head.request_id);
    RefusalRow::new(500, SERVER_ERROR, Some("internal_error"), "INTERNAL", "INTERNAL", message)
}

/// E63. The wait is spread by the id's random part, so that refused callers do not all retry at the same moment.
pub(super) fn overloaded(head: &Head) -> RefusalRow {
    let secs = u32::from(head.request_id.uuid().as_bytes()[15] % 5) + 1;
    unavailable("server_overloaded", "SERVER_OVERLOADED", "The gateway is overloaded.").retry(secs)
}

/// E64: used in records only, because the caller has left.
pub(super) fn caller_left() -> RefusalRow {
    let message = "The caller closed the connection.".to_owned();
    RefusalRow::new(499, INVALID_REQUEST, Some("client_closed_request"), "CANCELLED", "CALLER_LEFT", message)
}

/// E65.
pub(super) fn too_slow(secs: u64) -> RefusalRow {
    let message = format!("The request was not received within {secs} s.");
    RefusalRow::new(408, INVALID_REQUEST, Some("request_timeout"), "DEADLINE_EXCEEDED", "REQUEST_TIMEOUT", message)
}

/// E66 of the head.
pub(super) fn headers_too_large(limit: usize) -> RefusalRow {
    too_large(431, format!("Request headers are larger than {limit} bytes."))
}

/// E66 of the request target.
pub(super) fn target_too_long(limit: usize) -> RefusalRow {
    too_large(414, format!("The request target is longer than {limit} bytes."))
}

/// E67. On native a blocked prompt is a 200; its body is written with the answer.
pub(super) fn content_policy(head: &Head) -> RefusalRow {
    let status = if head.from.spec().error_style == ErrorStyle::Gemini { 200 } else { 400 };
    let message = "The request was blocked by the content rules of this gateway.".to_owned();
    RefusalRow::new(status, INVALID_REQUEST, Some("content_policy_violation"), "INVALID_ARGUMENT", "CONTENT_POLICY", message).stop()
}

/// E68.
pub(super) fn key_check() -> RefusalRow {
    let message = "The service key cannot be checked at the moment.";
    unavailable("key_check_unavailable", "KEY_CHECK_UNAVAILABLE", message).retry(5)
}

fn unavailable(code: &str, reason: &str, message: &str) -> RefusalRow {
    RefusalRow::new(503, UNAVAILABLE_ERROR, Some(code), "UNAVAILABLE", reason, message.to_owned())
}

fn too_large(status: u16, message: String) -> RefusalRow {
    RefusalRow::new(status, INVALID_REQUEST, Some("header_too_large"), "INVALID_ARGUMENT", "HEADER_TOO_LARGE", message)
}
