//! Stop reasons of messages, both ways (translation reference, section 2.5).

use crate::Finish;

/// What a stop reason means.
pub(super) fn read(word: &str) -> Finish {
    match word {
        "end_turn" | "stop_sequence" | "pause_turn" | "compaction" => Finish::Stop,
        "tool_use" => Finish::Tool,
        "max_tokens" | "model_context_window_exceeded" => Finish::Length,
        "refusal" => Finish::Filter,
        _ => Finish::Other,
    }
}

/// The stop reason for what an answer of another protocol says.
pub(super) const fn reason_str(finish: Finish) -> &'static str {
    match finish {
        Finish::Stop | Finish::Other | Finish::Fail => "end_turn",
        Finish::Length => "max_tokens",
        Finish::Tool => "tool_use",
        Finish::Filter => "refusal",
    }
}
