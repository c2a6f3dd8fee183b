//! Content of `encrypted_content` in reasoning items for upstreams of other protocols (docs/translation.md): a mark, and the data that
//! the upstream sealed. Only the mark determines which upstream gets it back; a value without a mark is OpenAI's own.

use crate::{
    Protocol,
    markers::SEALED_REASONING,
    neutral::{
        PartKind, Signature,
        signature::{SealedItem, ThoughtMember},
    },
    opaque_state::CALL_SIGNATURE,
};

/// The content that was carried in a reasoning item.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Carried {
    /// A thought, with the signature that its own upstream needs to accept it again.
    Thought(PartKind, Option<Signature>),
    /// The signature of the call that follows (Gemini).
    CallSignature(Signature),
    /// The signature of a text that precedes (Gemini).
    TextSignature(Signature),
}

/// The seal of a Gemini signature for the call that follows.
pub(super) fn of_call(signature: &str) -> String {
    format!("{CALL_SIGNATURE}{signature}")
}

/// The seal of a Gemini signature of the preceding text.
pub(super) fn of_text(signature: &str) -> String {
    format!("{SEALED_REASONING}h.{signature}")
}

/// The seal of an Anthropic `thinking` block.
pub(super) fn of_thinking(signature: &str) -> String {
    format!("{SEALED_REASONING}a.{signature}")
}

/// The seal of an Anthropic `redacted_thinking` block.
pub(super) fn of_redacted(data: &str) -> String {
    format!("{SEALED_REASONING}e.{data}")
}

/// Opens a reasoning item. `text` is its summary.
pub(super) fn open(sealed: Option<&str>, text: String) -> Carried {
    let signed = |owner, value: &str| Signature { owner, value: value.to_owned() };
    let thought = |text, signature| Carried::Thought(PartKind::Think { text, redacted: None }, signature);
    let Some(sealed) = sealed else { return thought(text, None) };
    let Some(marked) = sealed.strip_prefix(SEALED_REASONING) else {
        return thought(text, Some(SealedItem { id: None, content: sealed }.signature()));
    };
    if let Some(member) = ThoughtMember::of_mark(sealed) {
        return thought(text, Some(member.signature()));
    }
    match marked.split_once('.') {
        Some(("g", value)) => Carried::CallSignature(signed(Protocol::Gemini, value)),
        Some(("h", value)) => Carried::TextSignature(signed(Protocol::Gemini, value)),
        Some(("a", value)) => thought(text, Some(signed(Protocol::Anthropic, value))),
        Some(("e", data)) => Carried::Thought(PartKind::Think { text: String::new(), redacted: Some(data.to_owned()) }, None),
        // An unknown mark.
        Some(_) | None => thought(text, None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn thought(text: &str, signature: Option<(Protocol, &str)>) -> Carried {
        let signature = signature.map(|(owner, value)| Signature { owner, value: value.to_owned() });
        Carried::Thought(PartKind::Think { text: text.to_owned(), redacted: None }, signature)
    }

    #[test]
    fn encrypted_content_values_round_trip() {
        let gemini = |value: &str| Signature { owner: Protocol::Gemini, value: value.to_owned() };
        assert_eq!(open(Some(&of_call("+/8=")), String::new()), Carried::CallSignature(gemini("+/8=")));
        assert_eq!(open(Some(&of_text("a.b")), String::new()), Carried::TextSignature(gemini("a.b")));
        assert_eq!(open(Some(&of_thinking("SIG")), "t".to_owned()), thought("t", Some((Protocol::Anthropic, "SIG"))));
        let redacted = PartKind::Think { text: String::new(), redacted: Some("RED".to_owned()) };
        assert_eq!(open(Some(&of_redacted("RED")), "t".to_owned()), Carried::Thought(redacted, None));
        for member in [ThoughtMember::ReasoningContent, ThoughtMember::Reasoning] {
            assert_eq!(open(Some(member.mark()), "t".to_owned()), thought("t", Some((Protocol::OpenAi, member.as_str()))));
        }
    }

    #[test]
    fn value_without_a_marker_belongs_to_openai_and_unknown_markers_are_dropped() {
        assert_eq!(open(Some("gAAAA"), "t".to_owned()), thought("t", Some((Protocol::Responses, ":gAAAA"))));
        for unknown in [Some("tg1.x.y"), Some("tg1."), Some("tg1.gemini"), None] {
            assert_eq!(open(unknown, "t".to_owned()), thought("t", None), "{unknown:?}");
        }
    }
}
