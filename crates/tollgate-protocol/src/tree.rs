//! A JSON document as a tree that borrows from the body and keeps every value's own text, so that numbers and free-form
//! values can be handed on exactly as they were written.

use std::borrow::Cow;

use serde::de::IgnoredAny;

/// Deepest nesting that is read (E18).
const MAX_DEPTH: usize = 128;

/// A value and its text.
#[derive(Clone, Debug)]
pub(crate) struct Tree<'a> {
    /// The bytes of the value in the document, without blanks around it.
    pub(crate) text: &'a str,
    /// What it is.
    pub(crate) kind: NodeKind<'a>,
}

/// What a value is.
#[derive(Clone, Debug)]
pub(crate) enum NodeKind<'a> {
    /// `null`.
    Null,
    /// `true`, `false`.
    Bool(bool),
    /// A number; its digits are the node's text.
    Number,
    /// A string, unescaped.
    Text(Cow<'a, str>),
    /// An array.
    List(Vec<Tree<'a>>),
    /// An object, members in order, repeated names included.
    Object(Vec<(Cow<'a, str>, Tree<'a>)>),
}

impl<'a> Tree<'a> {
    /// Reads a document.
    ///
    /// # Errors
    /// What is wrong and where, as a phrase without a full stop.
    pub(crate) fn parse(body: &'a [u8]) -> Result<Self, String> {
        let text = std::str::from_utf8(body).map_err(|error| format!("invalid UTF-8 at byte {}", error.valid_up_to()))?;
        serde_json::from_str::<IgnoredAny>(text).map_err(|error| error.to_string().replace('`', "'"))?;
        let mut parser = Parser { text, at: 0 };
        parser.blanks();
        parser.value(0)
    }

    /// A member by its exact name; the last one where it is repeated, none where it is `null`.
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

    /// A whole number; `4.0` and `4e1` count as whole.
    pub(crate) fn integer(&self) -> Option<i64> {
        if matches!(self.kind, NodeKind::Number) { whole(self.text) } else { None }
    }

    /// The value as a tree that can be edited. Whole numbers beyond 64 bits lose precision; nothing else changes.
    pub(crate) fn value(&self) -> serde_json::Value {
        serde_json::from_str(self.text).unwrap_or(serde_json::Value::Null)
    }

    /// The value's text without blanks between tokens and without needless escapes.
    pub(crate) fn compact(&self) -> String {
        compact(self.text)
    }
}

/// Whether `key` is the proto3 field `camel`, in lowerCamelCase or `snake_case`. A leading underscore counts.
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

/// JSON text without blanks between tokens; strings keep their letters, escapes only where JSON demands them.
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

/// Length of the string literal that begins `text`, quotes included; the whole text when it does not end.
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

/// Walks a text that is known to be JSON.
struct Parser<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Parser<'a> {
    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn blanks(&mut self) {
        while self.peek().is_some_and(|byte| byte.is_ascii_whitespace()) {
            self.at += 1;
        }
    }

    fn value(&mut self, depth: usize) -> Result<Tree<'a>, String> {
        if depth > MAX_DEPTH {
            return Err(format!("nested deeper than {MAX_DEPTH} levels"));
        }
        let start = self.at;
        let kind = match self.peek() {
            Some(b'{') => self.object(depth)?,
            Some(b'[') => self.array(depth)?,
            Some(b'"') => NodeKind::Text(self.string()?),
            _ => self.scalar(),
        };
        Ok(Tree { text: &self.text[start..self.at], kind })
    }

    fn object(&mut self, depth: usize) -> Result<NodeKind<'a>, String> {
        let mut members = Vec::new();
        self.at += 1;
        loop {
            self.blanks();
            match self.peek() {
                Some(b'"') => {}
                Some(b',') => {
                    self.at += 1;
                    continue;
                }
                _ => break,
            }
            let name = self.string()?;
            self.blanks();
            self.at += 1;
            self.blanks();
            members.push((name, self.value(depth + 1)?));
        }
        self.at = (self.at + 1).min(self.text.len());
        Ok(NodeKind::Object(members))
    }

    fn array(&mut self, depth: usize) -> Result<NodeKind<'a>, String> {
        let mut items = Vec::new();
        self.at += 1;
        loop {
            self.blanks();
            match self.peek() {
                Some(b']') | None => break,
                Some(b',') => self.at += 1,
                Some(_) => items.push(self.value(depth + 1)?),
            }
        }
        self.at = (self.at + 1).min(self.text.len());
        Ok(NodeKind::List(items))
    }

    fn string(&mut self) -> Result<Cow<'a, str>, String> {
        let length = string_length(&self.text[self.at..]);
        let literal = &self.text[self.at..self.at + length];
        self.at += length;
        if literal.contains('\\') {
            return serde_json::from_str::<String>(literal).map(Cow::Owned).map_err(|error| {
                let text = error.to_string();
                text.split(" at line ").next().unwrap_or("invalid string").to_owned()
            });
        }
        Ok(Cow::Borrowed(literal.trim_matches('"')))
    }

    fn scalar(&mut self) -> NodeKind<'a> {
        let start = self.at;
        while self.peek().is_some_and(|byte| !matches!(byte, b',' | b'}' | b']') && !byte.is_ascii_whitespace()) {
            self.at += 1;
        }
        match &self.text[start..self.at] {
            "null" => NodeKind::Null,
            "true" => NodeKind::Bool(true),
            "false" => NodeKind::Bool(false),
            _ => NodeKind::Number,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_keep_their_own_text() {
        let tree = Tree::parse(br#" {"a": [1.0, 123456789012345678901234567890 , {"b":"x\u00e9\"y"}], "a2": null} "#).unwrap();
        let list = tree.get("a").unwrap().list().unwrap();
        assert_eq!(list[0].text, "1.0");
        assert_eq!(list[1].text, "123456789012345678901234567890");
        assert_eq!(list[2].get("b").unwrap().str(), Some("xé\"y"));
        assert!(tree.get("a2").is_none());
    }

    #[test]
    fn repeated_member_the_last_counts() {
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
    fn compact_drops_blanks_and_needless_escapes_only() {
        let text = "{ \"a b\" : [ 1.0 , \"x\\u00e9 \\\" \\/\" ] , \"n\" : 1e400 }";
        assert_eq!(compact(text), r#"{"a b":[1.0,"xé \" /"],"n":1e400}"#);
    }

    #[test]
    fn faults_are_named() {
        assert_eq!(Tree::parse(b"{\"a\":1 x}").unwrap_err(), "expected ',' or '}' at line 1 column 8");
        assert!(Tree::parse(b"\xff").unwrap_err().starts_with("invalid UTF-8"));
        let deep = format!("{}{}", "[".repeat(200), "]".repeat(200));
        assert_eq!(Tree::parse(deep.as_bytes()).unwrap_err(), "nested deeper than 128 levels");
        assert!(Tree::parse(br#""\ud800""#).is_err());
    }
}
