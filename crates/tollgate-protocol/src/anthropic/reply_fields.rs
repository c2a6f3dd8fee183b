//! JSON members that complete answers and stream events have in common.

use bytes::{BufMut, BytesMut};

use super::finish;
use crate::{
    FinishReason, Protocol, Usage,
    json_text::{arguments_object, write_string},
    neutral::signature::ThoughtMember,
};

/// Why an answer ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Stop {
    pub(super) finish: Option<FinishReason>,
    /// The upstream's own reason and its explanation.
    pub(super) native: Option<String>,
    pub(super) explanation: Option<String>,
}

impl Stop {
    pub(super) fn refused(explanation: String) -> Self {
        Self { finish: Some(FinishReason::Filter), native: None, explanation: Some(explanation) }
    }

    pub(super) fn finish(&self) -> FinishReason {
        self.finish.unwrap_or(FinishReason::Stop)
    }
}

/// Writes `stop_reason`, `stop_sequence` and, for a refusal, `stop_details`, without a leading comma.
pub(super) fn write_stop(out: &mut BytesMut, stop: &Stop, from: Protocol) {
    let finish = stop.finish();
    out.put_slice(format!("\"stop_reason\":\"{}\",\"stop_sequence\":null", finish::reason_str(finish)).as_bytes());
    if finish != FinishReason::Filter {
        return;
    }
    out.put_slice(b",\"stop_details\":{\"type\":\"refusal\",\"category\":null,\"explanation\":");
    match &stop.explanation {
        Some(explanation) => write_string(out, explanation),
        // Chat completions give no reason to write.
        None if from == Protocol::OpenAi => out.put_slice(b"null"),
        None => {
            let native = stop.native.as_deref().unwrap_or("SAFETY");
            write_string(out, &format!("The response was blocked by the upstream safety filter ({native})."));
        }
    }
    out.put_u8(b'}');
}

pub(super) const UNKNOWN_USAGE: &[u8] = b"{\"input_tokens\":0,\"output_tokens\":0}";

/// Signature of a thinking block from another provider's model. The marker lets the gateway remove the block before the
/// history reaches an Anthropic upstream.
pub(super) fn foreign_signature(from: Protocol) -> String {
    if from == Protocol::OpenAi { ThoughtMember::ReasoningContent.mark().to_owned() } else { format!("tg1.{}", from.as_str()) }
}

/// The input of a call, always an object. Other text is wrapped in an object, so that the caller's tool can reject it and
/// report that to the model. `None` for input truncated by the token limit.
pub(super) fn input(args: &str, finish: FinishReason) -> Option<String> {
    match arguments_object(args) {
        Some(object) => Some(object),
        None if finish == FinishReason::Length => None,
        None => Some(serde_json::json!({ "_raw": args }).to_string()),
    }
}

/// Writes the `usage` object. Client libraries require it, so unknown usage is written as zeros.
pub(super) fn write_usage(out: &mut BytesMut, usage: Option<&Usage>) {
    let Some(usage) = usage else { return out.put_slice(UNKNOWN_USAGE) };
    let text = format!(
        "{{\"input_tokens\":{},\"output_tokens\":{},\"cache_read_input_tokens\":{},\"cache_creation_input_tokens\":{}}}",
        usage.prompt_total.saturating_sub(usage.cached + usage.cache_write),
        usage.completion_total,
        usage.cached,
        usage.cache_write,
    );
    out.put_slice(text.as_bytes());
}
