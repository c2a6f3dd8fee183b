//! Finish reasons of chat completions, both ways (chat wire reference, section 5; translation reference, section 2.5).

use crate::FinishReason;

/// What a reason means: the five of the protocol, and others that compatible upstreams are known to send.
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

/// The reason for what an answer of another protocol says.
pub(super) const fn reason_str(finish: FinishReason) -> &'static str {
    match finish {
        FinishReason::Stop | FinishReason::Other | FinishReason::Fail => "stop",
        FinishReason::Length => "length",
        FinishReason::Tool => "tool_calls",
        FinishReason::Filter => "content_filter",
    }
}
