//! A light reader of JSON text: walks front to back, checks the grammar, skips what nobody asked for and says where
//! things stand. It builds no tree and allocates nothing, so an answer that is only passed on costs one pass over
//! its bytes. Numbers and unknown members stay text.

use std::{borrow::Cow, ops::Range};

use memchr::memchr2;

/// Deepest nesting that is followed; deeper than any SDK's own parser goes.
pub(crate) const DEPTH_LIMIT: usize = 512;

/// The text is not JSON; says what was expected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NotJson(pub(crate) &'static str);

/// What a value is, by its first character.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// `{`
    Object,
    /// `[`
    Array,
    /// `"`
    Text,
    /// A number.
    Number,
    /// `true` or `false`.
    Bool,
    /// `null`
    Null,
}

/// A string as it stands in the text, without its quotes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Text<'a> {
    /// With its escapes.
    pub raw: &'a str,
    /// Whether there are escapes.
    pub escaped: bool,
}

impl<'a> Text<'a> {
    /// Without escapes. A lone surrogate becomes U+FFFD.
    #[must_use]
    pub(crate) fn decoded(self) -> Cow<'a, str> {
        if self.escaped { Cow::Owned(unescape(self.raw)) } else { Cow::Borrowed(self.raw) }
    }

    /// Length in bytes without escapes.
    #[must_use]
    pub(crate) fn decoded_len(self) -> u64 {
        if self.escaped { escaped_len(self.raw) } else { self.raw.len() as u64 }
    }
}

/// A member of an object, as seen by the closure of [`Peek::object`].
#[derive(Debug)]
pub(crate) struct Member<'a> {
    /// Its name.
    pub name: Cow<'a, str>,
    /// Position among the members of its object.
    pub index: usize,
    /// Where the name's quote stands.
    pub starts: usize,
    /// Where the comma in front of it stands; for the first member just behind the brace.
    pub comma: usize,
}

/// The reader.
#[derive(Clone, Debug)]
pub(crate) struct Peek<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Peek<'a> {
    /// Begins at the front of `text`.
    #[must_use]
    pub(crate) fn new(text: &'a str) -> Self {
        Self { text, at: 0 }
    }

    /// Where the reader stands.
    #[must_use]
    pub(crate) fn at(&self) -> usize {
        self.at
    }

    fn bytes(&self) -> &'a [u8] {
        self.text.as_bytes()
    }

    fn blanks(&mut self) {
        while let Some(b' ' | b'\t' | b'\n' | b'\r') = self.bytes().get(self.at) {
            self.at += 1;
        }
    }

    /// What the next value is; moves to its first character.
    pub(crate) fn kind(&mut self) -> Result<Kind, NotJson> {
        self.blanks();
        match self.bytes().get(self.at) {
            Some(b'{') => Ok(Kind::Object),
            Some(b'[') => Ok(Kind::Array),
            Some(b'"') => Ok(Kind::Text),
            Some(b'-' | b'0'..=b'9') => Ok(Kind::Number),
            Some(b't' | b'f') => Ok(Kind::Bool),
            Some(b'n') => Ok(Kind::Null),
            Some(_) => Err(NotJson("expected a value")),
            None => Err(NotJson("the text ends early")),
        }
    }

    /// Walks an object. `visit` stands in front of the value and reads it, or leaves it to be skipped. The result is
    /// the object's range. Any other value is skipped, with an empty range.
    pub(crate) fn object(
        &mut self,
        mut visit: impl FnMut(&mut Self, &Member<'a>) -> Result<(), NotJson>,
    ) -> Result<Range<usize>, NotJson> {
        if self.kind()? != Kind::Object {
            self.skip()?;
            return Ok(self.at..self.at);
        }
        let begins = self.at;
        self.at += 1;
        self.blanks();
        if self.bytes().get(self.at) == Some(&b'}') {
            self.at += 1;
            return Ok(begins..self.at);
        }
        let mut comma = begins + 1;
        let mut index = 0;
        loop {
            self.blanks();
            let starts = self.at;
            if self.bytes().get(self.at) != Some(&b'"') {
                return Err(NotJson("expected a member name"));
            }
            let name = self.string()?.decoded();
            self.blanks();
            if self.bytes().get(self.at) != Some(&b':') {
                return Err(NotJson("expected ':'"));
            }
            self.at += 1;
            self.blanks();
            let value = self.at;
            visit(self, &Member { name, index, starts, comma })?;
            if self.at == value {
                self.skip()?;
            }
            self.blanks();
            match self.bytes().get(self.at) {
                Some(b',') => comma = self.at,
                Some(b'}') => {
                    self.at += 1;
                    return Ok(begins..self.at);
                }
                _ => return Err(NotJson("expected ',' or '}'")),
            }
            self.at += 1;
            index += 1;
        }
    }

    /// Walks an array like [`Peek::object`]; the result is the number of elements, `None` for any other value, which
    /// is skipped.
    pub(crate) fn array(
        &mut self,
        mut visit: impl FnMut(&mut Self, usize) -> Result<(), NotJson>,
    ) -> Result<Option<usize>, NotJson> {
        if self.kind()? != Kind::Array {
            self.skip()?;
            return Ok(None);
        }
        self.at += 1;
        self.blanks();
        if self.bytes().get(self.at) == Some(&b']') {
            self.at += 1;
            return Ok(Some(0));
        }
        let mut index = 0;
        loop {
            self.blanks();
            let value = self.at;
            visit(self, index)?;
            if self.at == value {
                self.skip()?;
            }
            index += 1;
            self.blanks();
            match self.bytes().get(self.at) {
                Some(b',') => self.at += 1,
                Some(b']') => {
                    self.at += 1;
                    return Ok(Some(index));
                }
                _ => return Err(NotJson("expected ',' or ']'")),
            }
        }
    }

    /// The next value if it is a string; any other value is skipped.
    pub(crate) fn text(&mut self) -> Result<Option<Text<'a>>, NotJson> {
        if self.kind()? == Kind::Text {
            return self.string().map(Some);
        }
        self.skip()?;
        Ok(None)
    }

    /// The next value if it is `true` or `false`; any other value is skipped.
    pub(crate) fn flag(&mut self) -> Result<Option<bool>, NotJson> {
        let kind = self.kind()?;
        let value = self.skip()?;
        Ok((kind == Kind::Bool).then(|| &self.text[value] == "true"))
    }

    /// The next value as a count, read leniently: a whole or a fractional number, or a string that holds one.
    /// `None` for `null`, negative and absurd figures (above 2^32: no answer has as many tokens) and anything else.
    pub(crate) fn count(&mut self) -> Result<Option<u64>, NotJson> {
        let kind = self.kind()?;
        let value = self.skip()?;
        let text = match kind {
            Kind::Number => &self.text[value],
            Kind::Text => self.text[value.start + 1..value.end - 1].trim(),
            Kind::Object | Kind::Array | Kind::Bool | Kind::Null => return Ok(None),
        };
        Ok(count(text))
    }

    /// Skips the next value, checking it; the result is its range.
    pub(crate) fn skip(&mut self) -> Result<Range<usize>, NotJson> {
        let kind = self.kind()?;
        let begins = self.at;
        match kind {
            Kind::Object | Kind::Array => self.skip_nested()?,
            Kind::Text | Kind::Number | Kind::Bool | Kind::Null => self.skip_plain(kind)?,
        }
        Ok(begins..self.at)
    }

    /// Skips blanks behind the document; anything else is an error.
    pub(crate) fn end(&mut self) -> Result<(), NotJson> {
        self.blanks();
        if self.at == self.text.len() { Ok(()) } else { Err(NotJson("something stands behind the document")) }
    }

    fn skip_plain(&mut self, kind: Kind) -> Result<(), NotJson> {
        match kind {
            Kind::Text => self.string().map(|_| ()),
            Kind::Number => self.number(),
            Kind::Bool if self.bytes()[self.at] == b't' => self.word("true"),
            Kind::Bool => self.word("false"),
            Kind::Null | Kind::Object | Kind::Array => self.word("null"),
        }
    }

    /// Skips an object or array without recursion: one bit for each open bracket tells which kind it is.
    fn skip_nested(&mut self) -> Result<(), NotJson> {
        let mut objects = [0_u64; DEPTH_LIMIT / 64];
        let mut depth = 0;
        // Whether a value is due, as opposed to a comma or a closing bracket.
        let mut value_due = true;
        loop {
            if value_due {
                let kind = self.kind()?;
                if let Kind::Object | Kind::Array = kind {
                    if depth == DEPTH_LIMIT {
                        return Err(NotJson("nested too deep"));
                    }
                    let bit = 1_u64 << (depth % 64);
                    if kind == Kind::Object {
                        objects[depth / 64] |= bit
                    } else {
                        objects[depth / 64] &= !bit
                    }
                    depth += 1;
                    self.at += 1;
                    value_due = !self.closes(kind == Kind::Object)?;
                } else {
                    self.skip_plain(kind)?;
                    value_due = false;
                }
                continue;
            }
            // Behind a value, or inside an empty object or array.
            if depth == 0 {
                return Ok(());
            }
            let is_object = objects[(depth - 1) / 64] & (1_u64 << ((depth - 1) % 64)) != 0;
            self.blanks();
            match self.bytes().get(self.at) {
                Some(b'}') if is_object => depth -= 1,
                Some(b']') if !is_object => depth -= 1,
                Some(b',') => {
                    value_due = true;
                    if is_object {
                        self.at += 1;
                        self.member_name()?;
                        continue;
                    }
                }
                _ => return Err(NotJson("expected ',' or a closing bracket")),
            }
            self.at += 1;
        }
    }

    /// Behind an opening bracket: whether it closes at once. Else reads up to the first value.
    fn closes(&mut self, is_object: bool) -> Result<bool, NotJson> {
        self.blanks();
        let close = if is_object { b'}' } else { b']' };
        if self.bytes().get(self.at) == Some(&close) {
            return Ok(true);
        }
        if is_object {
            self.member_name()?;
        }
        Ok(false)
    }

    fn member_name(&mut self) -> Result<(), NotJson> {
        self.blanks();
        if self.bytes().get(self.at) != Some(&b'"') {
            return Err(NotJson("expected a member name"));
        }
        self.string()?;
        self.blanks();
        if self.bytes().get(self.at) != Some(&b':') {
            return Err(NotJson("expected ':'"));
        }
        self.at += 1;
        Ok(())
    }

    /// Reads a string; the reader stands on its opening quote.
    fn string(&mut self) -> Result<Text<'a>, NotJson> {
        let begins = self.at + 1;
        let bytes = self.bytes();
        let mut at = begins;
        let mut escaped = false;
        loop {
            let Some(found) = memchr2(b'"', b'\\', &bytes[at..]) else { return Err(NotJson("a string has no end")) };
            // Folded without leaving early, so that the compiler can look at many bytes at once.
            if !bytes[at..at + found].iter().fold(true, |sound, byte| sound & (*byte >= 0x20)) {
                return Err(NotJson("a control character in a string"));
            }
            at += found;
            if bytes[at] == b'"' {
                self.at = at + 1;
                return Ok(Text { raw: &self.text[begins..at], escaped });
            }
            escaped = true;
            at += match bytes.get(at + 1) {
                Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => 2,
                Some(b'u') if bytes.get(at + 2..at + 6).is_some_and(|hex| hex.iter().all(u8::is_ascii_hexdigit)) => 6,
                _ => return Err(NotJson("an unknown escape")),
            };
        }
    }

    fn number(&mut self) -> Result<(), NotJson> {
        if self.bytes()[self.at] == b'-' {
            self.at += 1;
        }
        match self.bytes().get(self.at) {
            Some(b'0') => self.at += 1,
            Some(b'1'..=b'9') => self.digits(),
            _ => return Err(NotJson("not a number")),
        }
        if self.bytes().get(self.at) == Some(&b'.') {
            self.at += 1;
            self.some_digits()?;
        }
        if let Some(b'e' | b'E') = self.bytes().get(self.at) {
            self.at += 1;
            if let Some(b'+' | b'-') = self.bytes().get(self.at) {
                self.at += 1;
            }
            self.some_digits()?;
        }
        Ok(())
    }

    fn digits(&mut self) {
        while let Some(b'0'..=b'9') = self.bytes().get(self.at) {
            self.at += 1;
        }
    }

    fn some_digits(&mut self) -> Result<(), NotJson> {
        let begins = self.at;
        self.digits();
        if self.at == begins { Err(NotJson("not a number")) } else { Ok(()) }
    }

    fn word(&mut self, word: &'static str) -> Result<(), NotJson> {
        if self.bytes()[self.at..].starts_with(word.as_bytes()) {
            self.at += word.len();
            return Ok(());
        }
        Err(NotJson("expected a value"))
    }
}

/// Reads a token count.
fn count(text: &str) -> Option<u64> {
    const MOST: u64 = u32::MAX as u64;
    if let Ok(whole) = text.parse::<u64>() {
        return (whole <= MOST).then_some(whole);
    }
    let figure: f64 = text.parse().ok()?;
    if !(0.0..=4_294_967_295.0).contains(&figure) {
        return None;
    }
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the range was just checked")]
    let whole = figure.round() as u64;
    Some(whole)
}

/// Bytes of a checked string without its escapes.
fn escaped_len(raw: &str) -> u64 {
    let bytes = raw.as_bytes();
    let mut length = 0;
    let mut at = 0;
    while at < bytes.len() {
        if bytes[at] != b'\\' {
            at += 1;
            length += 1;
        } else if bytes[at + 1] == b'u' {
            let code = u32::from_str_radix(&raw[at + 2..at + 6], 16).unwrap_or_default();
            // Half of a pair counts 2: a whole pair is 4 bytes of UTF-8.
            length += match code {
                0..0x80 => 1,
                0x80..0x800 | 0xd800..0xe000 => 2,
                _ => 3,
            };
            at += 6;
        } else {
            length += 1;
            at += 2;
        }
    }
    length
}

/// A checked string without its escapes.
fn unescape(raw: &str) -> String {
    let mut out = String::with_capacity(raw.len());
    let mut rest = raw;
    while let Some(at) = rest.find('\\') {
        out.push_str(&rest[..at]);
        let (unit, mut used) = unit(&rest[at..]);
        let character = match unit {
            0xd800..0xdc00 if rest[at + used..].starts_with("\\u") => {
                let (low, more) = self::unit(&rest[at + used..]);
                if (0xdc00..0xe000).contains(&low) {
                    used += more;
                    char::from_u32(0x1_0000 + ((unit - 0xd800) << 10) + (low - 0xdc00))
                } else {
                    None
                }
            }
            other => char::from_u32(other),
        };
        out.push(character.unwrap_or(char::REPLACEMENT_CHARACTER));
        rest = &rest[at + used..];
    }
    out.push_str(rest);
    out
}

/// The code unit of the escape at the front of `rest`, and its length.
fn unit(rest: &str) -> (u32, usize) {
    match rest.as_bytes()[1] {
        b'u' => (u32::from_str_radix(&rest[2..6], 16).unwrap_or_default(), 6),
        b'b' => (0x08, 2),
        b'f' => (0x0c, 2),
        b'n' => (0x0a, 2),
        b'r' => (0x0d, 2),
        b't' => (0x09, 2),
        plain => (u32::from(plain), 2),
    }
}

#[cfg(test)]
mod tests;
