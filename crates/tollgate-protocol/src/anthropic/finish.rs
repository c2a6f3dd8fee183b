//! Stop reasons of messages, both ways (translation reference, section 2.5).

use crate::FinishReason;

/// What a stop reason means.
pub(super) fn read(word: &str) -> FinishReason {
    match word {
        "end_turn" | "stop_sequence" | "pause_turn" | "compaction" => FinishReason::Stop,
        "tool_use" => FinishReason::Tool,
        "max_tokens" | "model_context_window_exceeded" => FinishReason::Length,
        "refusal" => FinishReason::Filter,
        _ => FinishReason::Other,
    }
}

/// The stop reason for what an answer of another protocol says.
pub(super) const fn reason_str(finish: FinishReason) -> &'static str {
    match finish {
        FinishReason::Stop | FinishReason::Other | FinishReason::Fail => "end_turn",
        FinishReason::Length => "max_tokens",
        FinishReason::Tool => "tool_use",
        FinishReason::Filter => "refusal",
    }
}
