//! Finds and removes the marks that translation adds to histories (docs/translation.md).

use std::{ops::Range, sync::LazyLock};

use memchr::memmem;

use crate::{
    edits::Edits,
    opaque_state::ID_MARK,
    scan::{Scanner, SyntaxError, ValueKind},
};

/// Prefix of a Gemini signature that wraps another provider's: base64 of `tg1.`.
pub(crate) const WRAPPED_SIGNATURE: &str = "dGcxLm";
/// Prefix of a synthetic signature of an Anthropic thinking block.
pub(crate) const THINKING_SIGNATURE: &str = "tg1.";
/// Prefix of the sealed content in a reasoning item that belongs to an upstream of a protocol other than Responses.
pub(crate) const SEALED_REASONING: &str = THINKING_SIGNATURE;

/// Member of chat messages and calls with Google's signature and with sealed thoughts of a Responses upstream. The scan of a body
/// finds it, so that only the suffixes of ids are searched for.
pub(crate) const EXTRA_CONTENT: &str = "extra_content";

/// Prefix of the ids of reasoning items.
const REASONING_ID: &str = "rs_";
/// Length of a request's id without its prefix.
const REQUEST_ID_LENGTH: usize = 26;

static REASONING_IDS: LazyLock<memmem::Finder<'static>> = LazyLock::new(|| memmem::Finder::new("\"rs_"));
static SUFFIXED_IDS: LazyLock<memmem::Finder<'static>> = LazyLock::new(|| memmem::Finder::new(ID_MARK));
static WRAPPED_SIGNATURES: LazyLock<memmem::Finder<'static>> = LazyLock::new(|| memmem::Finder::new(WRAPPED_SIGNATURE));
static THINKING_SIGNATURES: LazyLock<memmem::Finder<'static>> = LazyLock::new(|| memmem::Finder::new("\"tg1."));

/// Whether a body may contain tool ids with a suffix.
pub(crate) fn has_suffixed_ids(body: &[u8]) -> bool {
    SUFFIXED_IDS.find(body).is_some()
}

/// Whether a body may contain wrapped Gemini signatures.
pub(crate) fn has_wrapped_signatures(body: &[u8]) -> bool {
    WRAPPED_SIGNATURES.find(body).is_some()
}

/// Whether a body may contain synthetic thinking blocks.
pub(crate) fn has_thinking_signatures(body: &[u8]) -> bool {
    THINKING_SIGNATURES.find(body).is_some()
}

/// Whether a body may contain reasoning items that were created by translation.
pub(crate) fn has_translated_reasoning(body: &[u8]) -> bool {
    let is_own = |at: usize| {
        let rest = &body[at + 1..];
        let end = memchr::memchr(b'"', &rest[..rest.len().min(64)]);
        end.and_then(|end| std::str::from_utf8(&rest[..end]).ok()).is_some_and(is_translated_reasoning)
    };
    REASONING_IDS.find_iter(body).any(is_own)
}

/// Whether translation gave a reasoning item this id: `rs_`, the digits of the request, `_` and the index of the item. The ids of services
/// that speak Responses have one underscore.
pub(crate) fn is_translated_reasoning(id: &str) -> bool {
    let Some((request, index)) = id.strip_prefix(REASONING_ID).and_then(|rest| rest.split_once('_')) else { return false };
    let is_request =
        request.len() == REQUEST_ID_LENGTH && request.bytes().all(|byte| byte.is_ascii_digit() || byte.is_ascii_lowercase());
    is_request && !index.is_empty() && index.bytes().all(|byte| byte.is_ascii_digit())
}

/// The id without its signature suffix, if it has one.
pub(crate) fn bare_id(id: &str) -> &str {
    match id.split_once(ID_MARK) {
        Some((bare, signature)) if !bare.is_empty() && !signature.is_empty() && signature.bytes().all(is_base64url) => bare,
        _ => id,
    }
}

/// Reads an id and removes its signature suffix.
pub(crate) fn strip_id_suffix(scanner: &mut Scanner<'_>, changes: &mut Edits<'_>) -> Result<(), SyntaxError> {
    if let Some(id) = scanner.optional_string()? {
        let bare = bare_id(id.raw()).len();
        if bare < id.raw().len() {
            changes.remove(id.content_range().start + bare..id.content_range().end);
        }
    }
    Ok(())
}

/// Reads one item of a turn (a part, a block) and records its changes. Returns its range and whether it is removed.
pub(crate) type CleanItem<'a> = fn(&mut Scanner<'a>, &mut Edits<'static>) -> Result<(Range<usize>, bool), SyntaxError>;

/// Cleans a list of turns with their items under `member`. A turn without remaining items is removed, because upstreams
/// refuse it.
pub(crate) fn clean_turns<'a>(
    scanner: &mut Scanner<'a>,
    changes: &mut Edits<'static>,
    member: &str,
    clean: CleanItem<'a>,
) -> Result<(), SyntaxError> {
    if scanner.peek() != ValueKind::Array {
        return scanner.skip().map(drop);
    }
    let mut turns = Vec::new();
    let mut inside = Vec::new();
    scanner.array(|scanner, _| {
        let mut found = Edits::new();
        let (range, emptied) = clean_turn(scanner, &mut found, member, clean)?;
        turns.push((range, emptied));
        if !emptied {
            inside.push(found);
        }
        Ok(())
    })?;
    changes.remove_items(&turns);
    for found in inside {
        changes.append(found);
    }
    Ok(())
}

fn clean_turn<'a>(
    scanner: &mut Scanner<'a>,
    changes: &mut Edits<'static>,
    member: &str,
    clean: CleanItem<'a>,
) -> Result<(Range<usize>, bool), SyntaxError> {
    if scanner.peek() != ValueKind::Object {
        return Ok((scanner.skip()?, false));
    }
    let mut emptied = false;
    let range = scanner.object(|scanner, name| {
        if name.word() != member || scanner.peek() != ValueKind::Array {
            return scanner.skip().map(drop);
        }
        let mut items = Vec::new();
        scanner.array(|scanner, _| {
            items.push(clean(scanner, changes)?);
            Ok(())
        })?;
        emptied = !items.is_empty() && items.iter().all(|(_, removed)| *removed);
        changes.remove_items(&items);
        Ok(())
    })?;
    Ok((range, emptied))
}

const fn is_base64url(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_'
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn translated_reasoning_ids_are_distinguished_from_upstream_ids() {
        let own = "rs_01k9v2m5x4r7t8w9y0z1a2b3c4_12";
        assert!(is_translated_reasoning(own) && has_translated_reasoning(format!("{{\"id\":\"{own}\"}}").as_bytes()));
        for id in [
            "rs_68a1b2c3d4e5f60718293a4b5c6d7e8f0123456789abcdef",
            "rs_1",
            "rs_tmp_abc",
            "rs_01k9v2m5x4r7t8w9y0z1a2b3c4_",
            "rs_01k9v2m5x4r7t8w9y0z1a2b3c4_a",
            "rs_01K9V2M5X4R7T8W9Y0Z1A2B3C4_1",
            "msg_01k9v2m5x4r7t8w9y0z1a2b3c4_1",
        ] {
            assert!(!is_translated_reasoning(id) && !has_translated_reasoning(format!("\"{id}\"").as_bytes()), "{id}");
        }
        assert!(!has_translated_reasoning(b"\"rs_01k9v2m5x4r7t8w9y0z1a2b3c4_12"), "cut");
    }

    #[test]
    fn only_complete_suffixes_are_removed() {
        for (id, bare) in [
            ("c1__sig1_QUJD", "c1"),
            ("c1__sig1_a-b_c", "c1"),
            ("c1__sig1_QUJD__sig1_QUJD", "c1"),
            ("c1", "c1"),
            ("c1__sig1_", "c1__sig1_"),
            ("__sig1_QUJD", "__sig1_QUJD"),
            ("c1__sig1_a b", "c1__sig1_a b"),
            ("c1__sig1_QQ==", "c1__sig1_QQ=="),
        ] {
            assert_eq!(bare_id(id), bare);
        }
    }
}
