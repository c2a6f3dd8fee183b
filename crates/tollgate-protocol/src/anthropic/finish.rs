//! Conversion of stop reasons (Anthropic API docs, "Handling stop reasons").

use crate::FinishReason;

pub(super) fn read(word: &str) -> FinishReason {
    match word {
        "end_turn" | "stop_sequence" | "pause_turn" | "compaction" => FinishReason::Stop,
        "tool_use" => FinishReason::Tool,
        "max_tokens" | "model_context_window_exceeded" => FinishReason::Length,
        "refusal" => FinishReason::Filter,
        _ => FinishReason::Other,
    }
}

/// The stop reason for the finish reason of an answer from another protocol.
pub(super) const fn reason_str(finish: FinishReason) -> &'static str {
    match finish {
        FinishReason::Stop | FinishReason::Other | FinishReason::Fail => "end_turn",
        FinishReason::Length => "max_tokens",
        FinishReason::Tool => "tool_use",
        FinishReason::Filter => "refusal",
    }
}
