//! Finish reasons of chat completions, both ways (chat wire reference, section 5; translation reference, section 2.5).

use crate::Finish;

/// What a reason means: the five of the protocol, and others that compatible upstreams are known to send.
pub(super) fn read(word: &str) -> Finish {
    match word {
        "stop" | "eos" | "end_turn" | "stop_sequence" => Finish::Stop,
        "length" | "max_tokens" => Finish::Length,
        "tool_calls" | "function_call" | "tool_use" => Finish::Tool,
        "content_filter" => Finish::Filter,
        "error" => Finish::Fail,
        _ => Finish::Other,
    }
}

/// The reason for what an answer of another protocol says.
pub(super) const fn reason_str(finish: Finish) -> &'static str {
    match finish {
        Finish::Stop | Finish::Other | Finish::Fail => "stop",
        Finish::Length => "length",
        Finish::Tool => "tool_calls",
        Finish::Filter => "content_filter",
    }
}
