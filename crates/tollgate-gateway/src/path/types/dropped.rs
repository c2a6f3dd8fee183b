//! The entries of `x-tollgate-dropped`, which the usage record keeps too: fields that were dropped from a request or changed.
//! The names come from the caller's body, so they are encoded for a header and limited in length.

use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};

/// ASCII characters that are encoded: they would end or break an entry of the header.
const RESERVED: &AsciiSet = &CONTROLS.add(b' ').add(b',').add(b'%');
/// Maximum length of one entry, in bytes.
const ENTRY_BYTES: usize = 256;
/// Maximum length of all entries and the commas between them, in bytes.
const LIST_BYTES: usize = 4 * 1024;

/// The entry for calls of an answer that were left out because the caller takes one at a time.
pub(crate) const ONE_CALL: &str = "tool_calls=1";

/// Adds an entry about an answer to a list, once, in order.
pub(crate) fn add_entry(list: &mut Vec<String>, entry: &str) {
    if !list.iter().any(|known| known == entry) {
        // The last one may be the number of further entries.
        let at = list.iter().position(|known| known.as_str() > entry || known.starts_with('+')).unwrap_or(list.len());
        list.insert(at, entry.to_owned());
    }
}

/// Encodes entries for a header: characters that would end or break an entry are percent-encoded, an entry that is too long ends in
/// `...`, and entries beyond the limit are counted in a last one, such as `+12`.
pub(crate) fn listed(entries: Vec<String>) -> Vec<String> {
    let all = entries.len();
    let mut bytes = 0;
    let mut list = Vec::with_capacity(all.min(64));
    for entry in entries {
        let entry = encoded(&entry);
        bytes += entry.len() + 1;
        if bytes > LIST_BYTES {
            list.push(format!("+{}", all - list.len()));
            break;
        }
        list.push(entry);
    }
    list
}

/// Encodes an entry and shortens it to [`ENTRY_BYTES`] at a character boundary.
fn encoded(entry: &str) -> String {
    const ELLIPSIS: &str = "...";
    let mut out = String::with_capacity(entry.len().min(ENTRY_BYTES));
    let mut shortened_len = 0;
    let mut utf8 = [0; 4];
    for character in entry.chars() {
        out.extend(utf8_percent_encode(character.encode_utf8(&mut utf8), RESERVED));
        if out.len() > ENTRY_BYTES {
            out.truncate(shortened_len);
            out.push_str(ELLIPSIS);
            break;
        }
        if out.len() + ELLIPSIS.len() <= ENTRY_BYTES {
            shortened_len = out.len();
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn list(entries: &[&str]) -> Vec<String> {
        listed(entries.iter().map(|entry| (*entry).to_owned()).collect())
    }

    #[test]
    fn ordinary_paths_are_not_encoded() {
        let entries = ["reasoning_effort=low", "generationConfig.topK", "messages[3].reasoning_content"];
        assert_eq!(list(&entries), entries);
    }

    #[test]
    fn entry_about_an_answer_is_added_once_and_in_order() {
        let mut entries = list(&["metadata", "user"]);
        add_entry(&mut entries, ONE_CALL);
        add_entry(&mut entries, ONE_CALL);
        assert_eq!(entries, ["metadata", "tool_calls=1", "user"]);
        let mut entries = list(&["metadata", "+12"]);
        add_entry(&mut entries, ONE_CALL);
        assert_eq!(entries, ["metadata", "tool_calls=1", "+12"]);
    }

    #[test]
    fn characters_not_allowed_in_the_header_are_encoded() {
        assert_eq!(
            list(&["größe", "a,b", "a b", "50%", "a\r\nb", ""]),
            ["gr%C3%B6%C3%9Fe", "a%2Cb", "a%20b", "50%25", "a%0D%0Ab", ""]
        );
    }

    #[test]
    fn entries_and_their_number_are_bounded() {
        let long = list(&[&"ü".repeat(10_000), &"x".repeat(10_000)]);
        assert!(long.iter().all(|entry| entry.len() <= ENTRY_BYTES && entry.ends_with("...")), "{long:?}");
        assert_eq!(long[0], format!("{}...", "%C3%BC".repeat(42)), "whole letters only");

        let many = listed((0..10_000).map(|n| format!("messages[{n}].reasoning_content")).collect());
        let text = many.join(",");
        assert!(text.len() <= LIST_BYTES + 8 && many.len() > 100, "{}", text.len());
        assert_eq!(many.last(), Some(&format!("+{}", 10_000 - (many.len() - 1))));
        assert!(HeaderValue::from_str(&text).is_ok());
    }
}
