//! Why an answer ended: `status` and `incomplete_details.reason`.

use crate::FinishReason;

/// Decodes the end of an answer. `called`: the answer holds a call.
pub(super) fn read(status: &str, reason: Option<&str>, called: bool) -> Option<FinishReason> {
    match (status, reason) {
        ("completed", _) if called => Some(FinishReason::Tool),
        ("completed", _) => Some(FinishReason::Stop),
        ("incomplete", Some("max_output_tokens" | "max_tokens")) => Some(FinishReason::Length),
        ("incomplete", Some("content_filter")) => Some(FinishReason::Filter),
        ("incomplete", _) => Some(FinishReason::Other),
        ("failed" | "cancelled", _) => Some(FinishReason::Fail),
        _ => None,
    }
}

/// The reason of an incomplete answer; `None` for a complete one.
pub(super) const fn incomplete_reason(finish: FinishReason) -> Option<&'static str> {
    match finish {
        FinishReason::Stop | FinishReason::Tool | FinishReason::Other | FinishReason::Fail => None,
        FinishReason::Length => Some("max_output_tokens"),
        FinishReason::Filter => Some("content_filter"),
    }
}
