//! Small edits in JSON text that is otherwise passed on byte for byte.

use std::ops::Range;

use bytes::Bytes;

/// Byte ranges of one text and what stands there instead.
#[derive(Debug, Default)]
pub(crate) struct Edits<'a> {
    list: Vec<(Range<usize>, &'a [u8])>,
    /// End of the last member taken out at the front of its object, with the comma behind it.
    front: usize,
}

impl<'a> Edits<'a> {
    /// Nothing to change yet.
    #[must_use]
    pub(crate) const fn new() -> Self {
        Self { list: Vec::new(), front: 0 }
    }

    /// Whether the text stays as it is.
    #[must_use]
    pub(crate) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Puts `instead` in the place of `range`; an empty range inserts.
    pub(crate) fn replace(&mut self, range: Range<usize>, instead: &'a [u8]) {
        self.list.push((range, instead));
    }

    /// Takes a member out of its object, with the one comma that has to go with it. `member` reaches from the quote of
    /// the name to the end of the value. Members of one object must come in order.
    pub(crate) fn remove_member(&mut self, text: &[u8], member: Range<usize>) {
        let before = text[..member.start].trim_ascii_end();
        if before.last() == Some(&b',') && before.len() > self.front {
            self.list.push((before.len() - 1..member.end, b""));
            return;
        }
        // The first member that is left: the comma behind it goes.
        let behind = text[member.end..].trim_ascii_start();
        let end = if behind.first() == Some(&b',') { text.len() - behind.len() + 1 } else { member.end };
        self.front = end;
        self.list.push((member.start..end, b""));
    }

    /// The text with the edits made.
    #[must_use]
    pub(crate) fn apply(mut self, text: &[u8]) -> Vec<u8> {
        self.list.sort_by_key(|(range, _)| range.start);
        let grown: usize = self.list.iter().map(|(_, instead)| instead.len()).sum();
        let mut out = Vec::with_capacity(text.len() + grown + 16);
        let mut at = 0;
        for (range, instead) in self.list {
            out.extend_from_slice(&text[at..range.start.max(at)]);
            out.extend_from_slice(instead);
            at = range.end.max(at);
        }
        out.extend_from_slice(&text[at..]);
        out
    }

    /// Like [`Edits::apply`], for a whole body: the same buffer when nothing changes.
    #[must_use]
    pub(crate) fn apply_to(self, body: &Bytes) -> Bytes {
        if self.is_empty() { body.clone() } else { Bytes::from(self.apply(body)) }
    }
}

/// A string as a JSON literal, quotes included.
#[must_use]
pub(crate) fn literal(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Takes every member called `x` out.
    fn without_x(text: &str) -> String {
        let mut edits = Edits::new();
        let mut scanner = crate::scan::Scanner::answer(text.as_bytes()).unwrap();
        let mut doomed = Vec::new();
        scanner
            .members(|scanner, name| {
                let value = scanner.skip()?;
                if name.raw() == "x" {
                    doomed.push(name.inside().start - 1..value.end);
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
    fn a_member_goes_with_one_comma() {
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
    fn replacements_and_insertions_leave_the_rest_alone() {
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
}
