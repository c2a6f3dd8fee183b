//! Reading thought signatures back out of histories (translation reference, section 1.6): the suffix on tool ids, and
//! the values that carry an Anthropic upstream's thinking blocks through a native caller.

use base64::{
    Engine,
    alphabet::URL_SAFE,
    engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig},
};

use super::{Part, PartKind, Signature, media::standard_base64};
use crate::{Protocol, markers::bare_id, opaque_state::ID_MARK};

/// What a native caller may send where no real signature is known.
pub(crate) const PLACEHOLDER: &str = "skip_thought_signature_validator";

/// Reads both alphabets (after [`standard_base64`] has unified them).
const DECODER: GeneralPurpose = GeneralPurpose::new(
    &base64::alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent).with_decode_allow_trailing_bits(true),
);

/// Reads the suffix of tool ids.
const SUFFIX_DECODER: GeneralPurpose = GeneralPurpose::new(
    &URL_SAFE,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent).with_decode_allow_trailing_bits(true),
);

/// Splits a tool id that a caller sent back into the id proper and the signature that rode on it.
pub(crate) fn split_id(id: &str) -> (&str, Option<Signature>) {
    let bare = bare_id(id);
    if bare.len() == id.len() {
        return (id, None);
    }
    let suffix = id.rsplit(ID_MARK).next().unwrap_or_default();
    let value = SUFFIX_DECODER.decode(suffix).ok().filter(|bytes| !bytes.is_empty()).and_then(|_| standard_base64(suffix));
    (bare, value.map(|value| Signature { owner: Protocol::Gemini, value }))
}

/// A block that a native signature value carries.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Item {
    /// The signature of a `thinking` block.
    Signature(String),
    /// The data of a `redacted_thinking` block.
    Redacted(String),
}

/// The blocks a native signature value carries; `None` for a real signature or the placeholder.
fn items(value: &str) -> Option<Vec<Item>> {
    let bytes = DECODER.decode(standard_base64(value)?).ok()?;
    let text = std::str::from_utf8(&bytes).ok().filter(|text| text.starts_with("tg1."))?;
    let mut found = Vec::new();
    let mut rest = text;
    loop {
        let end = rest.find(",tg1.").unwrap_or(rest.len());
        let item = &rest[..end];
        if let Some(signature) = item.strip_prefix("tg1.a.") {
            found.push(Item::Signature(signature.to_owned()));
        } else if let Some(data) = item.strip_prefix("tg1.e.") {
            found.push(Item::Redacted(data.to_owned()));
        }
        if end == rest.len() {
            return Some(found);
        }
        rest = &rest[end + 1..];
    }
}

/// Turns the carried values of a native model turn back into thinking blocks, each in its place.
pub(crate) fn unwrap_carried(parts: Vec<Part>) -> Vec<Part> {
    let mut out = Vec::with_capacity(parts.len());
    let mut open: Vec<Part> = Vec::new(); // Thought texts whose block has not ended yet.
    for mut part in parts {
        let carried = part.signature.as_ref().and_then(|signature| items(&signature.value));
        let is_thought = matches!(part.kind, PartKind::Think { .. });
        let Some(carried) = carried else {
            if is_thought && part.signature.is_none() {
                open.push(part);
            } else {
                out.append(&mut open);
                out.push(part);
            }
            continue;
        };
        part.signature = None;
        if is_thought {
            close_block(carried, part, &mut open, &mut out);
        } else {
            out.append(&mut open);
            out.extend(carried.into_iter().map(|item| block(item, String::new(), &part.path)));
            out.push(part);
        }
    }
    out.append(&mut open);
    out
}

/// Ends a block on a thought part: its own item takes the text, the others stand on their own around it.
fn close_block(carried: Vec<Item>, part: Part, open: &mut Vec<Part>, out: &mut Vec<Part>) {
    let own = carried.iter().rposition(|item| matches!(item, Item::Signature(_)));
    if own.is_none() {
        out.append(open);
    }
    let mut text: String = open.drain(..).map(|thought| thought_text(&thought).to_owned()).collect();
    text.push_str(thought_text(&part));
    for (index, item) in carried.into_iter().enumerate() {
        let words = if Some(index) == own { std::mem::take(&mut text) } else { String::new() };
        out.push(block(item, words, &part.path));
    }
    if own.is_none() && !text.is_empty() {
        out.push(part);
    }
}

fn thought_text(part: &Part) -> &str {
    if let PartKind::Think { text, .. } = &part.kind { text } else { "" }
}

fn block(item: Item, text: String, path: &str) -> Part {
    let (redacted, signature) = match item {
        Item::Signature(value) => (None, Some(Signature { owner: Protocol::Anthropic, value })),
        Item::Redacted(data) => (Some(data), None),
    };
    Part { kind: PartKind::Think { text, redacted }, signature, path: path.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn thought(text: &str, signature: Option<&str>) -> Part {
        let signature = signature.map(|value| Signature { owner: Protocol::Gemini, value: carried(value) });
        Part { kind: PartKind::Think { text: text.into(), redacted: None }, signature, path: String::new() }
    }

    fn carried(plain: &str) -> String {
        base64::engine::general_purpose::STANDARD.encode(plain)
    }

    fn told(parts: Vec<Part>) -> Vec<String> {
        let tell = |part: Part| {
            let PartKind::Think { text, redacted } = &part.kind else { return part.as_text().unwrap_or("?").to_owned() };
            let signature = part.signature.as_ref().map_or("", |signature| signature.value.as_str());
            format!("{text}|{signature}|{}", redacted.as_deref().unwrap_or_default())
        };
        unwrap_carried(parts).into_iter().map(tell).collect()
    }

    #[test]
    fn suffix_is_cut_from_ids_and_read_as_standard_base64() {
        assert_eq!(split_id("c1__sig1_-_8"), ("c1", Some(Signature { owner: Protocol::Gemini, value: "+/8=".into() })));
        assert_eq!(split_id("c1__sig1_a"), ("c1", None));
        assert_eq!(split_id("c1"), ("c1", None));
    }

    #[test]
    fn ids_are_cut_where_pass_through_cuts_them() {
        for id in ["a__sig1_QUJD__sig1_REVG", "__sig1_abc", "c1__sig1_!", "c1__sig1_", "c1__sig1_QUJD", "c1__sig1_a", "c1"] {
            assert_eq!(split_id(id).0, bare_id(id), "{id}");
        }
        let (bare, signature) = split_id("a__sig1_QUJD__sig1_REVG");
        assert_eq!((bare, signature.map(|signature| signature.value).as_deref()), ("a", Some("REVG")));
    }

    #[test]
    fn streamed_thought_takes_the_text_since_the_block_before() {
        let parts = vec![thought("he", None), thought("llo", None), thought("", Some("tg1.e.RED,tg1.a.SIG")), thought("x", None)];
        assert_eq!(told(parts), ["||RED", "hello|SIG|", "x||"]);
    }

    #[test]
    fn items_on_text_stand_in_front_of_it() {
        let mut text = thought("", Some("tg1.a.A,b,tg1.a.B"));
        text.kind = PartKind::Text("answer".into());
        assert_eq!(told(vec![text]), ["|A,b|", "|B|", "answer"]);
    }

    #[test]
    fn real_signatures_and_placeholders_are_left_alone() {
        let mut parts = vec![thought("t", None)];
        for value in ["QUJD", PLACEHOLDER, "skip/thought/signature/validator"] {
            parts[0].signature = Some(Signature { owner: Protocol::Gemini, value: value.into() });
            assert_eq!(unwrap_carried(parts.clone()), parts);
        }
    }
}
