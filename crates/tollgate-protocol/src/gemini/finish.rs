//! Finish reasons of the native protocol (translation reference, section 2.5).

use crate::{Finish, reply_summary::ACCOUNT_LIMITED};

/// What a native reason means; one we do not know is a natural end.
pub(super) fn read(native: &str) -> Finish {
    match native {
        "MAX_TOKENS" | "CONTINUATION" => Finish::Length,
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
        | "OTHER" => Finish::Filter,
        "MALFORMED_FUNCTION_CALL"
        | "UNEXPECTED_TOOL_CALL"
        | "TOO_MANY_TOOL_CALLS"
        | "MALFORMED_RESPONSE"
        | "MISSING_THOUGHT_SIGNATURE"
        | "NO_IMAGE"
        | "IMAGE_OTHER"
        | ACCOUNT_LIMITED => Finish::Fail,
        _ => Finish::Stop,
    }
}

/// The native reason for what an answer of another protocol says.
pub(super) const fn reason_str(finish: Finish) -> &'static str {
    match finish {
        Finish::Stop | Finish::Tool => "STOP",
        Finish::Length => "MAX_TOKENS",
        Finish::Filter => "SAFETY",
        Finish::Fail | Finish::Other => "OTHER",
    }
}
