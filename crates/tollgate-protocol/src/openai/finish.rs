//! Finish reasons of chat completions, decoded and encoded.

use crate::FinishReason;

/// Decodes a finish reason: the five of the OpenAI API reference, and others that compatible upstreams send.
pub(super) fn read(word: &str) -> FinishReason {
    match word {
        "stop" | "eos" | "end_turn" | "stop_sequence" => FinishReason::Stop,
        "length" | "max_tokens" => FinishReason::Length,
        "tool_calls" | "function_call" | "tool_use" => FinishReason::Tool,
        "content_filter" => FinishReason::Filter,
        "error" => FinishReason::Fail,
        _ => FinishReason::Other,
    }
}

/// `legacy_calls`: the caller declared `functions`.
pub(super) const fn reason_str(finish: FinishReason, legacy_calls: bool) -> &'static str {
    match finish {
        FinishReason::Stop | FinishReason::Other | FinishReason::Fail => "stop",
        FinishReason::Length => "length",
        FinishReason::Tool if legacy_calls => "function_call",
        FinishReason::Tool => "tool_calls",
        FinishReason::Filter => "content_filter",
    }
}
