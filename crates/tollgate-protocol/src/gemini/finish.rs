//! Finish reasons of Gemini, decoded and encoded.

use crate::{FinishReason, reply_summary::ACCOUNT_LIMITED};

/// Decodes a finish reason; an unknown one counts as a natural end.
pub(super) fn read(native: &str) -> FinishReason {
    match native {
        "MAX_TOKENS" | "CONTINUATION" => FinishReason::Length,
        "SAFETY"
        | "RECITATION"
        | "BLOCKLIST"
        | "PROHIBITED_CONTENT"
        | "SPII"
        | "IMAGE_SAFETY"
        | "IMAGE_PROHIBITED_CONTENT"
        | "IMAGE_RECITATION"
        | "MODEL_ARMOR"
        | "ESCALATION"
        | "LANGUAGE"
        | "OTHER" => FinishReason::Filter,
        "MALFORMED_FUNCTION_CALL"
        | "UNEXPECTED_TOOL_CALL"
        | "TOO_MANY_TOOL_CALLS"
        | "MALFORMED_RESPONSE"
        | "MISSING_THOUGHT_SIGNATURE"
        | "NO_IMAGE"
        | "IMAGE_OTHER"
        | ACCOUNT_LIMITED => FinishReason::Fail,
        _ => FinishReason::Stop,
    }
}

pub(super) const fn reason_str(finish: FinishReason) -> &'static str {
    match finish {
        FinishReason::Stop | FinishReason::Tool => "STOP",
        FinishReason::Length => "MAX_TOKENS",
        FinishReason::Filter => "SAFETY",
        FinishReason::Fail | FinishReason::Other => "OTHER",
    }
}
