//! Members of messages that whole answers and stream events share (Anthropic wire reference, sections 5, 7 and 11).

use bytes::{BufMut, BytesMut};

use super::finish;
use crate::{
    FinishReason, Protocol, Usage,
    json_text::{arguments_object, write_string},
    neutral::Signature,
    opaque_state::id_suffix,
};

/// `stop_reason`, `stop_sequence` and, for a refusal that explains itself, `stop_details`; without a comma.
pub(super) fn write_stop(out: &mut BytesMut, finish: FinishReason, explanation: Option<&str>) {
    out.put_slice(format!("\"stop_reason\":\"{}\",\"stop_sequence\":null", finish::reason_str(finish)).as_bytes());
    if let Some(explanation) = explanation.filter(|_| finish == FinishReason::Filter) {
        out.put_slice(b",\"stop_details\":{\"type\":\"refusal\",\"category\":null,\"explanation\":");
        write_string(out, explanation);
        out.put_u8(b'}');
    }
}

/// The signature of a thinking block that another family's model wrote: recognisable, so that it is taken out before the
/// history reaches a real upstream of this protocol.
pub(super) fn foreign_signature(from: Protocol) -> String {
    format!("tg1.{}", from.as_str())
}

/// A call's id with Google's signature behind it.
pub(super) fn signed_id(id: &str, signature: Option<&Signature>) -> String {
    let signature = signature.filter(|signature| signature.owner == Protocol::Gemini);
    let suffix = signature.and_then(|signature| id_suffix(&signature.value)).unwrap_or_default();
    format!("{id}{suffix}")
}

/// A call's input: always an object. What is none is kept as text in one, so that the caller's tool can refuse it and
/// the model see why; `None` where the token limit cut it off.
pub(super) fn input(args: &str, finish: FinishReason) -> Option<String> {
    match arguments_object(args) {
        Some(object) => Some(object),
        None if finish == FinishReason::Length => None,
        None => Some(serde_json::json!({ "_raw": args }).to_string()),
    }
}

/// What a blocked prompt is explained with.
pub(super) fn blocked_sentence(reason: &str, message: Option<&str>) -> String {
    message.map_or_else(|| format!("The prompt was blocked by the upstream safety filter ({reason})."), ToOwned::to_owned)
}

/// The usage object of an answer. The protocol's libraries need one, so an unknown usage is all zeros.
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
