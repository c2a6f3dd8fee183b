//! Carries opaque state of one provider (thought signatures) through another protocol and back with the history
//! (docs/translation.md).

use base64::{Engine, engine::general_purpose::STANDARD};

/// Sent to Gemini 3 where a signature is required and none is known: `skip_thought_signature_validator` in the standard
/// base64 alphabet, because strict clients decode the field.
pub(crate) const PLACEHOLDER: &str = "skip/thought/signature/validator";

/// Separates a tool id from its signature suffix.
pub(crate) const ID_MARK: &str = "__sig1_";

/// Longest signature in a tool id, in bytes.
const ID_SIGNATURE_LIMIT: usize = 16 * 1024;

/// The suffix of a tool id: the mark and the signature in base64url without padding. `None` if the signature is too long or
/// not base64.
pub(crate) fn id_suffix(signature: &str) -> Option<String> {
    if signature.len() > ID_SIGNATURE_LIMIT {
        return None;
    }
    let mut suffix = String::with_capacity(ID_MARK.len() + signature.len());
    suffix.push_str(ID_MARK);
    for character in signature.trim_end_matches('=').chars() {
        match character {
            '+' => suffix.push('-'),
            '/' => suffix.push('_'),
            'A'..='Z' | 'a'..='z' | '0'..='9' | '-' | '_' => suffix.push(character),
            _ => return None,
        }
    }
    Some(suffix)
}

/// Marks the signature of an Anthropic `thinking` block.
pub(crate) const ANTHROPIC_SIGNATURE: &str = "tg1.a.";
/// Marks the data of an Anthropic `redacted_thinking` block.
pub(crate) const ANTHROPIC_REDACTED: &str = "tg1.e.";
/// Marks sealed content of a Responses upstream.
pub(crate) const RESPONSES_SEAL: &str = "tg1.r.";

/// Marks Gemini's signature of the call that follows.
pub(crate) const CALL_SIGNATURE: &str = "tg1.g.";

/// Marks the text of a thought that the caller does not see (in base64): chat upstreams seal nothing, and some refuse a history with tool
/// calls but without it (`reasoning_content` of DeepSeek).
pub(crate) const HIDDEN_THOUGHT: &str = "tg1.o.";
/// Longest hidden thought that is carried, in bytes.
pub(crate) const HIDDEN_THOUGHT_LIMIT: usize = 1024 * 1024;

/// A thought of a chat upstream as the signature of a block without a text. Only its beginning is carried if it is too long.
pub(crate) fn hidden_thought(text: &str) -> String {
    format!("{HIDDEN_THOUGHT}{}", STANDARD.encode(&text[..text.floor_char_boundary(HIDDEN_THOUGHT_LIMIT)]))
}

/// The text of a [`hidden_thought`]; `None` for other signatures.
pub(crate) fn open_hidden_thought(signature: &str) -> Option<String> {
    let text = STANDARD.decode(signature.strip_prefix(HIDDEN_THOUGHT)?).ok()?;
    String::from_utf8(text).ok()
}

/// The item that carries the data of a redacted thinking block.
pub(crate) fn redacted_item(data: &str) -> String {
    format!("{ANTHROPIC_REDACTED}{data}")
}

/// Items as a Gemini `thoughtSignature`.
pub(crate) fn wrap_items(items: &[String]) -> String {
    STANDARD.encode(items.join(","))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signature_suffix_has_only_characters_allowed_in_ids() {
        assert_eq!(id_suffix("+/8=").as_deref(), Some("__sig1_-_8"));
        assert_eq!(id_suffix("QUJD").as_deref(), Some("__sig1_QUJD"));
        assert_eq!(id_suffix("a b"), None);
        assert_eq!(id_suffix(&"A".repeat(16 * 1024)).map(|suffix| suffix.len()), Some(16 * 1024 + 7));
        assert_eq!(id_suffix(&"A".repeat(16 * 1024 + 1)), None);
    }

    #[test]
    fn wrapped_items_begin_with_the_marker_prefix() {
        let signature_item = |signature: &str| format!("{ANTHROPIC_SIGNATURE}{signature}");
        assert_eq!(wrap_items(&[signature_item("SIG")]), "dGcxLmEuU0lH");
        assert_eq!(wrap_items(&[format!("{RESPONSES_SEAL}:SIG")]), "dGcxLnIuOlNJRw==");
        assert_eq!(
            wrap_items(&[signature_item("U0lHMg=="), redacted_item("REFUQQ==")]),
            "dGcxLmEuVTBsSE1nPT0sdGcxLmUuUkVGVVFRPT0="
        );
        assert!(wrap_items(&[redacted_item("REFUQQ==")]).starts_with("dGcxLm"));
    }
}
