//! Members of messages that whole answers and stream events share (Anthropic wire reference, sections 5, 7 and 11).

use bytes::{BufMut, BytesMut};

use crate::{
    Finish, Protocol,
    carriers::id_suffix,
    json_text::{arguments_object, write_string},
    neutral::Signature,
};

/// Our word for a reason.
pub(super) const fn stop_reason(finish: Finish) -> &'static str {
    match finish {
        Finish::Stop | Finish::Other | Finish::Fail => "end_turn",
        Finish::Length => "max_tokens",
        Finish::Tool => "tool_use",
        Finish::Filter => "refusal",
    }
}

/// `stop_reason`, `stop_sequence` and, for a refusal that explains itself, `stop_details`; without a comma.
pub(super) fn write_stop(out: &mut BytesMut, finish: Finish, explanation: Option<&str>) {
    out.put_slice(format!("\"stop_reason\":\"{}\",\"stop_sequence\":null", stop_reason(finish)).as_bytes());
    if let Some(explanation) = explanation.filter(|_| finish == Finish::Filter) {
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
pub(super) fn input(args: &str, finish: Finish) -> Option<String> {
    match arguments_object(args) {
        Some(object) => Some(object),
        None if finish == Finish::Length => None,
        None => Some(serde_json::json!({ "_raw": args }).to_string()),
    }
}

/// What a blocked prompt is explained with.
pub(super) fn blocked_sentence(reason: &str, message: Option<&str>) -> String {
    message.map_or_else(|| format!("The prompt was blocked by the upstream safety filter ({reason})."), ToOwned::to_owned)
}
