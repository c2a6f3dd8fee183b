//! Small edits in JSON text that is otherwise forwarded byte for byte.

use std::{borrow::Cow, ops::Range};

use bytes::Bytes;
use smallvec::SmallVec;

use crate::{SplicePoints, scan::whole};

/// Ranges of one member, which nearly always occurs once.
pub(crate) type Ranges = SmallVec<[Range<usize>; 1]>;

/// Replacements of byte ranges of one text, in any order.
#[derive(Debug, Default)]
pub(crate) struct Edits<'a> {
    list: Vec<(Range<usize>, Cow<'a, [u8]>)>,
    /// End of the last member removed from the front of its object, including the comma after it.
    front: usize,
}

impl<'a> Edits<'a> {
    pub(crate) const fn new() -> Self {
        Self { list: Vec::new(), front: 0 }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Replaces `range` with `instead`; an empty range inserts.
    pub(crate) fn replace(&mut self, range: Range<usize>, instead: impl Into<Cow<'a, [u8]>>) {
        self.list.push((range, instead.into()));
    }

    /// Replaces every range, if there is something to replace it with.
    pub(crate) fn replace_all(&mut self, ranges: impl IntoIterator<Item = Range<usize>>, instead: Option<&'a str>) {
        let Some(instead) = instead else { return };
        self.list.extend(ranges.into_iter().map(|range| (range, instead.as_bytes().into())));
    }

    pub(crate) fn insert(&mut self, at: usize, text: impl Into<Cow<'a, [u8]>>) {
        self.replace(at..at, text);
    }

    pub(crate) fn remove(&mut self, range: Range<usize>) {
        self.replace(range, b"");
    }

    pub(crate) fn append(&mut self, mut other: Self) {
        self.list.append(&mut other.list);
    }

    /// Removes elements from an array, or members from an object, each with its comma. `items` are all of them in order, with
    /// `true` for those to remove.
    pub(crate) fn remove_items(&mut self, items: &[(Range<usize>, bool)]) {
        let mut kept_before = false;
        for (index, (range, removed)) in items.iter().enumerate() {
            if !removed {
                kept_before = true;
            } else if kept_before {
                self.remove(items[index - 1].0.end..range.end);
            } else {
                let next = items.get(index + 1).map_or(range.end, |(next, _)| next.start);
                self.remove(range.start..next);
            }
        }
    }

    /// Removes a member from its object, with one adjacent comma. `member` is the range from the quote of the name to the end of
    /// the value. Members of one object must be removed in order.
    pub(crate) fn remove_member(&mut self, text: &[u8], member: Range<usize>) {
        let before = text[..member.start].trim_ascii_end();
        if before.last() == Some(&b',') && before.len() > self.front {
            self.remove(before.len() - 1..member.end);
            return;
        }
        // No member remains before this one, so the comma after it is removed.
        let rest = text[member.end..].trim_ascii_start();
        let end = if rest.first() == Some(&b',') { text.len() - rest.len() + 1 } else { member.end };
        self.front = end;
        self.remove(member.start..end);
    }

    /// The text with the edits applied. Overlapping and out-of-range edits are applied as far as possible: no input may cause a
    /// panic.
    pub(crate) fn apply(mut self, text: &[u8]) -> Vec<u8> {
        self.list.sort_by_key(|(range, _)| range.start);
        let grown: usize = self.list.iter().map(|(_, instead)| instead.len()).sum();
        let mut out = Vec::with_capacity(text.len() + grown + 16);
        let mut at = 0;
        for (range, instead) in self.list {
            let start = range.start.clamp(at, text.len());
            out.extend_from_slice(&text[at..start]);
            out.extend_from_slice(&instead);
            at = range.end.clamp(start, text.len());
        }
        out.extend_from_slice(&text[at..]);
        out
    }

    /// Inserts the output limit `field` of a body, or lowers a larger one.
    pub(crate) fn limit_output(&mut self, body: &[u8], points: &SplicePoints, field: &str, limit: u64) {
        for range in &points.max_output {
            let given = body.get(range.clone()).and_then(|bytes| std::str::from_utf8(bytes).ok());
            if given.and_then(whole).is_none_or(|requested| requested > limit) {
                self.replace(range.clone(), limit.to_string().into_bytes());
            }
        }
        if points.max_output.is_empty() {
            self.insert(points.body_open, first_member(body, points.body_open, field, &limit.to_string()));
        }
    }

    /// Like [`Edits::apply`] for a whole body; returns the same buffer if nothing changes.
    pub(crate) fn apply_to(self, body: &Bytes) -> Bytes {
        if self.is_empty() { body.clone() } else { Bytes::from(self.apply(body)) }
    }
}

/// A string as a JSON literal, including quotes.
pub(crate) fn literal(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// `"name":value` as the first member of an object whose brace is right before `at`, with a comma if members follow.
pub(crate) fn first_member(text: &[u8], at: usize, name: &str, value: &str) -> Vec<u8> {
    let next = text.get(at..).and_then(|rest| rest.trim_ascii_start().first());
    let comma = if next == Some(&b'}') { "" } else { "," };
    format!("\"{name}\":{value}{comma}").into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Removes every member named `x`.
    fn without_x(text: &str) -> String {
        let mut edits = Edits::new();
        let mut scanner = crate::scan::Scanner::answer(text.as_bytes()).unwrap();
        let mut doomed = Vec::new();
        scanner
            .members(|scanner, name| {
                let value = scanner.skip()?;
                if name.word() == "x" {
                    doomed.push(name.quote()..value.end);
                }
                Ok(())
            })
            .unwrap();
        for member in doomed {
            edits.remove_member(text.as_bytes(), member);
        }
        String::from_utf8(edits.apply(text.as_bytes())).unwrap()
    }

    #[test]
    fn member_is_removed_with_one_comma() {
        for (text, expected) in [
            (r#"{"a":1,"x":null}"#, r#"{"a":1}"#),
            (r#"{"a":1 , "x" : null , "b":2}"#, r#"{"a":1  , "b":2}"#),
            (r#"{ "x":null, "b":2}"#, r#"{  "b":2}"#),
            (r#"{"x":null}"#, r"{}"),
            (r#"{"x":1,"x":2,"b":3}"#, r#"{"b":3}"#),
            (r#"{"x":1,"x":2}"#, r"{}"),
            (r#"{"a":1,"x":1,"x":2}"#, r#"{"a":1}"#),
            (r#"{"x":1,"a":1,"x":2,"b":",\"x\":1"}"#, r#"{"a":1,"b":",\"x\":1"}"#),
        ] {
            let edited = without_x(text);
            assert_eq!(edited, expected);
            assert!(serde_json::from_str::<serde_json::Value>(&edited).is_ok());
        }
    }

    #[test]
    fn replacements_and_insertions_keep_other_bytes() {
        let mut edits = Edits::new();
        edits.replace(7..8, b"22");
        edits.replace(1..1, b"\"n\":0,");
        assert_eq!(edits.apply(br#"{"a" : 1 }"#), br#"{"n":0,"a" : 22 }"#);
        let body = Bytes::from_static(b"{}");
        assert_eq!(Edits::new().apply_to(&body).as_ptr(), body.as_ptr());
    }

    #[test]
    fn literals_are_escaped() {
        assert_eq!(literal("a\"b\\c\n\u{e9}"), "\"a\\\"b\\\\c\\n\u{e9}\"");
    }

    fn removed(text: &str, items: &[(Range<usize>, bool)]) -> String {
        let mut edits = Edits::new();
        edits.remove_items(items);
        String::from_utf8(edits.apply(text.as_bytes())).unwrap()
    }

    #[test]
    fn items_are_removed_with_one_comma_each() {
        let at = |start: usize, removed: bool| (start..start + 1, removed);
        assert_eq!(removed("[1, 2, 3]", &[at(1, true), at(4, false), at(7, false)]), "[2, 3]");
        assert_eq!(removed("[1, 2, 3]", &[at(1, false), at(4, true), at(7, false)]), "[1, 3]");
        assert_eq!(removed("[1, 2, 3]", &[at(1, false), at(4, true), at(7, true)]), "[1]");
        assert_eq!(removed("[1, 2, 3]", &[at(1, true), at(4, true), at(7, false)]), "[3]");
        assert_eq!(removed("[1, 2, 3]", &[at(1, true), at(4, false), at(7, true)]), "[2]");
        assert_eq!(removed("[ 1, 2 ]", &[at(2, true), at(5, true)]), "[  ]");
    }

    #[test]
    fn invalid_edits_are_ignored() {
        let mut edits = Edits::new();
        edits.replace(1..3, b"x");
        edits.remove(2..4);
        edits.remove(5..12);
        edits.insert(20, b"z");
        assert_eq!(edits.apply(b"abcdef"), b"axez");
    }
}
