//! JSON members that complete answers and stream events have in common.

use bytes::{BufMut, BytesMut};

use super::finish;
use crate::{
    FinishReason, Protocol, Usage,
    json_text::{arguments_object, write_string},
};

/// Writes `stop_reason`, `stop_sequence` and, for a refusal with an explanation, `stop_details`, without a leading comma.
pub(super) fn write_stop(out: &mut BytesMut, finish: FinishReason, explanation: Option<&str>) {
    out.put_slice(format!("\"stop_reason\":\"{}\",\"stop_sequence\":null", finish::reason_str(finish)).as_bytes());
    if let Some(explanation) = explanation.filter(|_| finish == FinishReason::Filter) {
        out.put_slice(b",\"stop_details\":{\"type\":\"refusal\",\"category\":null,\"explanation\":");
        write_string(out, explanation);
        out.put_u8(b'}');
    }
}

/// Signature of a thinking block from another provider's model. The marker lets the gateway remove the block before the
/// history reaches an Anthropic upstream.
pub(super) fn foreign_signature(from: Protocol) -> String {
    format!("tg1.{}", from.as_str())
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
    let usage = usage.copied().unwrap_or_default();
    let text = format!(
        "{{\"input_tokens\":{},\"output_tokens\":{},\"cache_read_input_tokens\":{},\"cache_creation_input_tokens\":{}}}",
        usage.prompt_total.saturating_sub(usage.cached + usage.cache_write),
        usage.completion_total,
        usage.cached,
        usage.cache_write,
    );
    out.put_slice(text.as_bytes());
}
