//! A JSON document as a tree that borrows from the body and keeps the text of every value, so that numbers and free-form
//! values are passed on as they were written.

use std::borrow::Cow;

use crate::{
    Malformed,
    scan::{Scanner, SyntaxError, Value, ValueKind},
};

#[derive(Clone, Debug)]
pub(crate) struct Tree<'a> {
    /// The value as raw text of the document.
    pub(crate) text: &'a str,
    pub(crate) kind: NodeKind<'a>,
}

#[derive(Clone, Debug)]
pub(crate) enum NodeKind<'a> {
    Null,
    Bool(bool),
    /// A number; its digits are the node's text.
    Number,
    /// A string, unescaped. Each lone surrogate is U+FFFD.
    Text(Cow<'a, str>),
    List(Vec<Tree<'a>>),
    /// An object, members in order, repeated names included.
    Object(Vec<(Cow<'a, str>, Tree<'a>)>),
}

impl<'a> Tree<'a> {
    /// E18 for invalid JSON or more than [`crate::scan::MAX_DEPTH`] levels.
    pub(crate) fn parse(body: &'a [u8]) -> Result<Self, Malformed> {
        let document = || {
            let mut scanner = Scanner::answer(body)?;
            let tree = read(&mut scanner)?;
            scanner.end()?;
            Ok(tree)
        };
        document().map_err(|error: SyntaxError| error.malformed(body))
    }

    /// Like [`Tree::parse`], for a document that must be an object.
    pub(crate) fn parse_object(body: &'a [u8]) -> Result<Self, Malformed> {
        let tree = Self::parse(body)?;
        if tree.members().is_none() {
            return Err(Malformed::not_json("expected an object"));
        }
        Ok(tree)
    }

    /// A member by its exact name, the last one if repeated; `None` if absent or `null`.
    pub(crate) fn get(&self, name: &str) -> Option<&Self> {
        let (_, value) = self.members()?.iter().rev().find(|(key, _)| key == name)?;
        (!value.is_null()).then_some(value)
    }

    /// A member by its camelCase name, written in either proto3 spelling.
    pub(crate) fn get_proto(&self, camel: &str) -> Option<&Self> {
        let (_, value) = self.members()?.iter().rev().find(|(key, _)| same_proto_name(key, camel))?;
        (!value.is_null()).then_some(value)
    }

    pub(crate) const fn is_null(&self) -> bool {
        matches!(self.kind, NodeKind::Null)
    }

    pub(crate) fn members(&self) -> Option<&[(Cow<'a, str>, Self)]> {
        if let NodeKind::Object(members) = &self.kind { Some(members) } else { None }
    }

    pub(crate) fn list(&self) -> Option<&[Self]> {
        if let NodeKind::List(items) = &self.kind { Some(items) } else { None }
    }

    pub(crate) fn str(&self) -> Option<&str> {
        if let NodeKind::Text(text) = &self.kind { Some(text) } else { None }
    }

    pub(crate) const fn bool(&self) -> Option<bool> {
        if let NodeKind::Bool(value) = self.kind { Some(value) } else { None }
    }

    /// A finite number.
    pub(crate) fn number(&self) -> Option<serde_json::Number> {
        if !matches!(self.kind, NodeKind::Number) {
            return None;
        }
        serde_json::from_str::<serde_json::Number>(self.text).ok()
    }

    /// A whole number; `4.0` and `4e1` are whole.
    pub(crate) fn integer(&self) -> Option<i64> {
        if matches!(self.kind, NodeKind::Number) { whole(self.text) } else { None }
    }

    /// The value as a tree that can be edited. Whole numbers beyond 64 bits lose precision; nothing else changes.
    pub(crate) fn value(&self) -> serde_json::Value {
        // Lone surrogates are the one thing that serde_json does not read.
        serde_json::from_str(self.text).unwrap_or_else(|_| self.readable_value())
    }

    fn readable_value(&self) -> serde_json::Value {
        match &self.kind {
            NodeKind::Null => serde_json::Value::Null,
            NodeKind::Bool(value) => (*value).into(),
            NodeKind::Number => serde_json::from_str(self.text).unwrap_or_default(),
            NodeKind::Text(text) => text.as_ref().into(),
            NodeKind::List(items) => items.iter().map(Self::value).collect(),
            NodeKind::Object(members) => members.iter().map(|(name, value)| (name.to_string(), value.value())).collect(),
        }
    }

    pub(crate) fn compact(&self) -> String {
        compact(self.text)
    }
}

/// Whether `key` is the proto3 field `camel`, in lowerCamelCase or `snake_case`. A leading underscore is part of the name.
pub(crate) fn same_proto_name(key: &str, camel: &str) -> bool {
    if key == camel {
        return true;
    }
    let mut wanted = camel.chars();
    let mut raise = false;
    for (index, letter) in key.chars().enumerate() {
        if letter == '_' && index > 0 {
            raise = true;
            continue;
        }
        let letter = if raise { letter.to_ascii_uppercase() } else { letter };
        raise = false;
        if wanted.next() != Some(letter) {
            return false;
        }
    }
    wanted.next().is_none()
}

/// A whole number in JSON notation.
pub(crate) fn whole(text: &str) -> Option<i64> {
    if let Ok(value) = text.parse::<i64>() {
        return Some(value);
    }
    let value: f64 = text.parse().ok()?;
    #[expect(clippy::cast_possible_truncation, reason = "whole and within the range where every whole float is exact")]
    (value.fract() == 0.0 && value.abs() < 9_007_199_254_740_992.0).then_some(value as i64)
}

/// Valid JSON without white space between tokens, with only the escapes that JSON requires.
pub(crate) fn compact(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(quote) = rest.find('"') {
        out.extend(rest[..quote].chars().filter(|letter| !letter.is_ascii_whitespace()));
        let end = quote + string_length(&rest[quote..]);
        let literal = &rest[quote..end];
        match literal.contains('\\').then(|| serde_json::from_str::<String>(literal)) {
            Some(Ok(plain)) => out.push_str(&serde_json::to_string(&plain).unwrap_or_else(|_| literal.to_owned())),
            Some(Err(_)) | None => out.push_str(literal),
        }
        rest = &rest[end..];
    }
    out.extend(rest.chars().filter(|letter| !letter.is_ascii_whitespace()));
    out
}

/// Length of the string literal at the start of `text`, quotes included; the whole length if it is not closed.
fn string_length(text: &str) -> usize {
    let bytes = text.as_bytes();
    let mut at = 1;
    while let Some(found) = bytes.get(at..).and_then(|rest| memchr::memchr2(b'"', b'\\', rest)) {
        at += found;
        if bytes[at] == b'"' {
            return at + 1;
        }
        at += 2;
    }
    text.len()
}

fn read<'a>(scanner: &mut Scanner<'a>) -> Result<Tree<'a>, SyntaxError> {
    let (kind, range) = match scanner.peek() {
        ValueKind::Object => {
            let mut members = Vec::new();
            let range = scanner.object(|scanner, name| {
                members.push((name.into_word(), read(scanner)?));
                Ok(())
            })?;
            (NodeKind::Object(members), range)
        }
        ValueKind::Array => {
            let mut items = Vec::new();
            let range = scanner.array(|scanner, _| {
                items.push(read(scanner)?);
                Ok(())
            })?;
            (NodeKind::List(items), range)
        }
        ValueKind::Null | ValueKind::Bool | ValueKind::Number | ValueKind::Text => {
            let (value, range) = scanner.value()?;
            let kind = match value {
                Value::Bool(value) => NodeKind::Bool(value),
                Value::Number(_) => NodeKind::Number,
                Value::Text(text) => NodeKind::Text(text.decode()),
                Value::Null | Value::Array | Value::Object => NodeKind::Null,
            };
            (kind, range)
        }
    };
    Ok(Tree { text: scanner.slice(range), kind })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_keep_their_text() {
        let tree = Tree::parse(br#" {"a": [1.0, 123456789012345678901234567890 , {"b":"x\u00e9\"y"}], "a2": null} "#).unwrap();
        let list = tree.get("a").unwrap().list().unwrap();
        assert_eq!(list[0].text, "1.0");
        assert_eq!(list[1].text, "123456789012345678901234567890");
        assert_eq!(list[2].get("b").unwrap().str(), Some("xé\"y"));
        assert!(tree.get("a2").is_none());
    }

    #[test]
    fn lone_surrogate_is_one_replacement_character() {
        let tree = Tree::parse(br#"{"a":["x\ud83d","\ude00\ud83d\ude00",1.5,null,{"\ud800":true}]}"#).unwrap();
        let list = tree.get("a").unwrap();
        assert_eq!(list.list().unwrap()[0].str(), Some("x\u{fffd}"));
        assert_eq!(list.value(), serde_json::json!(["x\u{fffd}", "\u{fffd}\u{1f600}", 1.5, null, {"\u{fffd}": true}]));
    }

    #[test]
    fn last_of_repeated_members_wins() {
        assert_eq!(Tree::parse(br#"{"a":1,"a":2}"#).unwrap().get("a").unwrap().integer(), Some(2));
    }

    #[test]
    fn proto_names_match_in_both_spellings() {
        let tree = Tree::parse(br#"{"mime_type":1,"fileUri":2,"_response_json_schema":3}"#).unwrap();
        assert_eq!(tree.get_proto("mimeType").unwrap().integer(), Some(1));
        assert_eq!(tree.get_proto("fileUri").unwrap().integer(), Some(2));
        assert_eq!(tree.get_proto("_responseJsonSchema").unwrap().integer(), Some(3));
        assert!(tree.get_proto("responseJsonSchema").is_none());
    }

    #[test]
    fn compact_removes_white_space_and_needless_escapes() {
        let text = "{ \"a b\" : [ 1.0 , \"x\\u00e9 \\\" \\/\" ] , \"n\" : 1e400 }";
        assert_eq!(compact(text), r#"{"a b":[1.0,"xé \" /"],"n":1e400}"#);
    }

    #[test]
    fn errors_name_the_position() {
        let message = |body: &[u8]| Tree::parse(body).unwrap_err().message;
        assert_eq!(message(b"{\"a\":1 x}"), "The request body is not valid JSON: expected ',' or '}' at line 1 column 8.");
        assert!(message(b"\xff").contains("invalid UTF-8"));
        let deep = format!("{}{}", "[".repeat(200), "]".repeat(200));
        assert!(message(deep.as_bytes()).contains("nested more than 128 levels deep"));
        assert!(Tree::parse(b"{} {}").is_err());
    }
}
