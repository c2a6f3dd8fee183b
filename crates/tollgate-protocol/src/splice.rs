//! Changing a body without writing it anew: byte ranges are replaced, inserted and removed, everything between them stays
//! as the caller wrote it.

use std::{borrow::Cow, ops::Range};

use bytes::{Bytes, BytesMut};

/// Changes to one body, in any order.
#[derive(Debug, Default)]
pub(crate) struct Splices<'a> {
    changes: Vec<(Range<usize>, Cow<'a, str>)>,
}

impl<'a> Splices<'a> {
    /// Puts `text` in the place of a range.
    pub(crate) fn replace(&mut self, range: Range<usize>, text: impl Into<Cow<'a, str>>) {
        self.changes.push((range, text.into()));
    }

    /// Puts `text` before the byte at `at`.
    pub(crate) fn insert(&mut self, at: usize, text: impl Into<Cow<'a, str>>) {
        self.changes.push((at..at, text.into()));
    }

    /// Takes a range out.
    pub(crate) fn remove(&mut self, range: Range<usize>) {
        self.changes.push((range, Cow::Borrowed("")));
    }

    /// Takes the changes of `other` in.
    pub(crate) fn append(&mut self, mut other: Self) {
        self.changes.append(&mut other.changes);
    }

    /// Takes elements out of an array, or members out of an object, each with its comma. `items` are all of them in order,
    /// with `true` for those that go.
    pub(crate) fn remove_items(&mut self, items: &[(Range<usize>, bool)]) {
        let mut kept_before = false;
        for (index, (range, goes)) in items.iter().enumerate() {
            if !goes {
                kept_before = true;
            } else if kept_before {
                self.remove(items[index - 1].0.end..range.end);
            } else {
                let next = items.get(index + 1).map_or(range.end, |(next, _)| next.start);
                self.remove(range.start..next);
            }
        }
    }

    /// The changed body; the same buffer where there is nothing to change. Changes that overlap an earlier one, or lie
    /// outside of the body, are left out: no body may make us panic.
    pub(crate) fn apply(mut self, body: &Bytes) -> Bytes {
        if self.changes.is_empty() {
            return body.clone();
        }
        self.changes.sort_by_key(|(range, _)| range.start);
        let added: usize = self.changes.iter().map(|(_, text)| text.len()).sum();
        let mut changed = BytesMut::with_capacity(body.len() + added);
        let mut copied = 0;
        for (range, text) in &self.changes {
            if range.start < copied || range.end < range.start || range.end > body.len() {
                continue;
            }
            changed.extend_from_slice(&body[copied..range.start]);
            changed.extend_from_slice(text.as_bytes());
            copied = range.end;
        }
        changed.extend_from_slice(&body[copied..]);
        changed.freeze()
    }
}

/// Text as a JSON string, quotes included.
pub(crate) fn json_string(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// Whether the object or array that opens right before `at` is empty.
pub(crate) fn is_empty_at(body: &[u8], at: usize) -> bool {
    let next = body.get(at..).and_then(|rest| rest.iter().find(|byte| !byte.is_ascii_whitespace()));
    matches!(next, Some(b'}' | b']'))
}

/// `"name":value` as a first member of the object that opens right before `at`.
pub(crate) fn first_member(body: &[u8], at: usize, name: &str, value: &str) -> String {
    let comma = if is_empty_at(body, at) { "" } else { "," };
    format!("\"{name}\":{value}{comma}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn removed(body: &'static str, items: &[(Range<usize>, bool)]) -> Bytes {
        let mut splices = Splices::default();
        splices.remove_items(items);
        splices.apply(&Bytes::from_static(body.as_bytes()))
    }

    #[test]
    fn nothing_to_change_is_the_same_buffer() {
        let body = Bytes::from_static(b"{}");
        assert_eq!(Splices::default().apply(&body).as_ptr(), body.as_ptr());
    }

    #[test]
    fn changes_apply_in_the_order_of_the_body() {
        let mut splices = Splices::default();
        splices.replace(6..7, "22");
        splices.insert(1, "\"x\":0,");
        assert_eq!(splices.apply(&Bytes::from_static(b"{\"a\" :1}")), "{\"x\":0,\"a\" :22}");
    }

    #[test]
    fn items_go_with_one_comma_each() {
        let at = |start: usize, goes: bool| (start..start + 1, goes);
        assert_eq!(removed("[1, 2, 3]", &[at(1, true), at(4, false), at(7, false)]), "[2, 3]");
        assert_eq!(removed("[1, 2, 3]", &[at(1, false), at(4, true), at(7, false)]), "[1, 3]");
        assert_eq!(removed("[1, 2, 3]", &[at(1, false), at(4, true), at(7, true)]), "[1]");
        assert_eq!(removed("[1, 2, 3]", &[at(1, true), at(4, true), at(7, false)]), "[3]");
        assert_eq!(removed("[1, 2, 3]", &[at(1, true), at(4, false), at(7, true)]), "[2]");
        assert_eq!(removed("[ 1, 2 ]", &[at(2, true), at(5, true)]), "[  ]");
    }

    #[test]
    fn changes_that_cannot_be_made_are_left_out() {
        let mut splices = Splices::default();
        splices.replace(1..3, "x");
        splices.replace(2..4, "y");
        splices.replace(9..12, "z");
        assert_eq!(splices.apply(&Bytes::from_static(b"abcdef")), "axdef");
    }

    #[test]
    fn strings_are_written_with_their_escapes() {
        assert_eq!(json_string("a\"b\\\u{1}é"), r#""a\"b\\\u0001é""#);
    }
}
