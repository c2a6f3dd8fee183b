//! A pull scanner for JSON that allocates nothing: it validates the whole syntax (RFC 8259, UTF-8 included) and returns
//! values as slices of the body with their byte ranges. Linear time, constant memory, no recursion.
//!
//! Bounds: [`MAX_DEPTH`] open brackets, [`MAX_NODES`] values. A `\u` escape of a lone surrogate is legal JSON syntax and
//! is accepted, as upstreams accept it; it decodes to U+FFFD.

mod lenient;
mod number;
mod syntax_error;
mod text;

use std::{borrow::Cow, ops::Range};

pub(crate) use lenient::InvalidCount;
pub(crate) use number::{is_finite, whole};
pub(crate) use syntax_error::SyntaxError;
pub(crate) use text::JsonStr;

/// Most brackets open at once, the outermost included.
pub(crate) const MAX_DEPTH: u32 = 128;
/// Most values in one body, without member names.
pub(crate) const MAX_NODES: u32 = 250_000;

/// Type of the next value, by its first byte alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ValueKind {
    Null,
    Bool,
    /// A number, or an invalid value, which reading rejects.
    Number,
    Text,
    Array,
    Object,
}

/// A value that was read. Arrays and objects are validated but not returned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Value<'a> {
    Null,
    Bool(bool),
    /// A number as written.
    Number(&'a str),
    Text(JsonStr<'a>),
    Array,
    Object,
}

/// The name of a member, decoded.
#[derive(Clone, Debug)]
pub(crate) struct Name<'a> {
    word: Cow<'a, str>,
    quote: usize,
}

impl<'a> Name<'a> {
    pub(crate) fn into_word(self) -> Cow<'a, str> {
        self.word
    }

    #[inline]
    pub(crate) fn word(&self) -> &str {
        &self.word
    }

    /// Offset of the opening quote in the document.
    pub(crate) const fn quote(&self) -> usize {
        self.quote
    }
}

#[derive(Debug)]
pub(crate) struct Scanner<'a> {
    body: &'a str,
    at: usize,
    depth: u32,
    nodes: u32,
    max_nodes: u32,
}

impl<'a> Scanner<'a> {
    pub(crate) fn new(body: &'a [u8]) -> Result<Self, SyntaxError> {
        if let Ok(body) = simdutf8::basic::from_utf8(body) {
            return Ok(Self { body, at: 0, depth: 0, nodes: 0, max_nodes: MAX_NODES });
        }
        // Only this slower check gives the position.
        let valid = std::str::from_utf8(body).map_or_else(|error| error.valid_up_to(), str::len);
        Err(SyntaxError::new(valid, "invalid UTF-8"))
    }

    #[inline]
    pub(crate) fn peek(&mut self) -> ValueKind {
        self.space();
        match self.byte() {
            Some(b'n') => ValueKind::Null,
            Some(b't' | b'f') => ValueKind::Bool,
            Some(b'"') => ValueKind::Text,
            Some(b'[') => ValueKind::Array,
            Some(b'{') => ValueKind::Object,
            _ => ValueKind::Number,
        }
    }

    pub(crate) const fn position(&self) -> usize {
        self.at
    }

    #[inline]
    pub(crate) fn slice(&self, range: Range<usize>) -> &'a str {
        self.body.get(range).unwrap_or_default()
    }

    /// Checks that only white space follows.
    pub(crate) fn end(&mut self) -> Result<(), SyntaxError> {
        self.space();
        match self.byte() {
            None => Ok(()),
            Some(_) => Err(SyntaxError::new(self.at, "expected the end of the document")),
        }
    }

    /// Reads an object: `each` is called after every member's `:` and must read exactly one value. Returns the object's
    /// range, braces included.
    pub(crate) fn object(
        &mut self,
        mut each: impl FnMut(&mut Self, Name<'a>) -> Result<(), SyntaxError>,
    ) -> Result<Range<usize>, SyntaxError> {
        self.space();
        let start = self.at;
        self.node()?;
        self.open(b'{', "expected '{'")?;
        self.space();
        if self.byte() != Some(b'}') {
            loop {
                let name = self.name()?;
                each(self, name)?;
                if !self.comma(b'}', "expected ',' or '}'")? {
                    break;
                }
            }
        }
        self.close();
        Ok(start..self.at)
    }

    /// Reads an array: `each` is called before every element with its index and must read exactly one value. Returns the
    /// array's range, brackets included.
    pub(crate) fn array(
        &mut self,
        mut each: impl FnMut(&mut Self, usize) -> Result<(), SyntaxError>,
    ) -> Result<Range<usize>, SyntaxError> {
        self.space();
        let start = self.at;
        self.node()?;
        self.open(b'[', "expected '['")?;
        self.space();
        if self.byte() != Some(b']') {
            let mut index = 0;
            loop {
                each(self, index)?;
                index += 1;
                if !self.comma(b']', "expected ',' or ']'")? {
                    break;
                }
            }
        }
        self.close();
        Ok(start..self.at)
    }

    pub(crate) fn value(&mut self) -> Result<(Value<'a>, Range<usize>), SyntaxError> {
        let kind = self.peek();
        let start = self.at;
        let value = match kind {
            ValueKind::Text => {
                self.node()?;
                Value::Text(self.text()?)
            }
            ValueKind::Array | ValueKind::Object => {
                self.skip()?;
                if kind == ValueKind::Array { Value::Array } else { Value::Object }
            }
            ValueKind::Null | ValueKind::Bool | ValueKind::Number => {
                self.node()?;
                self.plain()?;
                match self.body.as_bytes()[start] {
                    b'n' => Value::Null,
                    b't' => Value::Bool(true),
                    b'f' => Value::Bool(false),
                    _ => Value::Number(self.slice(start..self.at)),
                }
            }
        };
        Ok((value, start..self.at))
    }

    /// Reads one value of any type and returns its range only.
    #[inline]
    pub(crate) fn skip(&mut self) -> Result<Range<usize>, SyntaxError> {
        self.space();
        let start = self.at;
        self.skip_value()?;
        Ok(start..self.at)
    }

    /// Reads one value that no white space precedes.
    fn skip_value(&mut self) -> Result<(), SyntaxError> {
        match self.byte() {
            Some(b'{' | b'[') => self.skip_nested(),
            Some(b'"') => {
                self.node()?;
                self.text().map(drop)
            }
            _ => {
                self.node()?;
                self.plain()
            }
        }
    }

    /// Reads an array or an object.
    fn skip_nested(&mut self) -> Result<(), SyntaxError> {
        let outside = self.depth;
        // One bit for each bracket opened here, the innermost lowest; 1 is an object. MAX_DEPTH bits are enough.
        let mut objects: u128 = 0;
        loop {
            self.space();
            self.node()?;
            match self.byte() {
                Some(b'"') => {
                    self.text()?;
                }
                Some(open @ (b'{' | b'[')) => {
                    self.open(open, "")?;
                    self.space();
                    objects = (objects << 1) | u128::from(open == b'{');
                    let close = if open == b'{' { b'}' } else { b']' };
                    if self.byte() != Some(close) {
                        if open == b'{' {
                            self.name()?;
                        }
                        continue;
                    }
                    self.close();
                    objects >>= 1;
                }
                _ => self.plain()?,
            }
            loop {
                if self.depth == outside {
                    return Ok(());
                }
                self.space();
                let in_object = objects & 1 == 1;
                match (self.byte(), in_object) {
                    (Some(b','), true) => {
                        self.at += 1;
                        self.name()?;
                        break;
                    }
                    (Some(b','), false) => {
                        self.at += 1;
                        break;
                    }
                    (Some(b'}'), true) | (Some(b']'), false) => {
                        self.close();
                        objects >>= 1;
                    }
                    (_, true) => return Err(SyntaxError::new(self.at, "expected ',' or '}'")),
                    (_, false) => return Err(SyntaxError::new(self.at, "expected ',' or ']'")),
                }
            }
        }
    }

    // --- the pieces ---

    #[inline]
    fn rest(&self) -> &'a [u8] {
        self.body.as_bytes().get(self.at..).unwrap_or_default()
    }

    #[inline]
    fn byte(&self) -> Option<u8> {
        self.body.as_bytes().get(self.at).copied()
    }

    #[inline]
    fn space(&mut self) {
        // Most JSON is written without white space: one comparison suffices.
        if self.byte().is_some_and(|byte| byte <= b' ') {
            self.skip_space();
        }
    }

    #[inline(never)]
    fn skip_space(&mut self) {
        while let Some(b' ' | b'\n' | b'\r' | b'\t') = self.byte() {
            self.at += 1;
        }
    }

    #[inline]
    fn node(&mut self) -> Result<(), SyntaxError> {
        self.nodes += 1;
        if self.nodes > self.max_nodes { Err(SyntaxError::new(self.at, "more than 250000 values")) } else { Ok(()) }
    }

    #[inline]
    fn open(&mut self, bracket: u8, expected: &'static str) -> Result<(), SyntaxError> {
        if self.byte() != Some(bracket) {
            return Err(SyntaxError::new(self.at, expected));
        }
        if self.depth == MAX_DEPTH {
            return Err(SyntaxError::new(self.at, "nested more than 128 levels deep"));
        }
        self.depth += 1;
        self.at += 1;
        Ok(())
    }

    #[inline]
    fn close(&mut self) {
        self.depth -= 1;
        self.at += 1;
    }

    /// A member's name and the `:` after it.
    #[inline(never)]
    fn name(&mut self) -> Result<Name<'a>, SyntaxError> {
        self.expect(b'"', "expected a member name in double quotes")?;
        let quote = self.at;
        let bytes = self.body.as_bytes();
        let Some(end) = text::next_special_of_short(bytes, quote + 1) else { return self.unusual_name() };
        if !matches!(bytes.get(end..), Some([b'"', b':', ..])) {
            return self.unusual_name();
        }
        self.at = end + 2;
        Ok(Name { word: Cow::Borrowed(self.slice(quote + 1..end)), quote })
    }

    /// [`Scanner::name`] for a name that is long, has escapes, or is followed by white space before the colon.
    #[cold]
    fn unusual_name(&mut self) -> Result<Name<'a>, SyntaxError> {
        let quote = self.at;
        let name = self.text()?;
        self.expect(b':', "expected ':'")?;
        self.at += 1;
        Ok(Name { word: name.decode(), quote })
    }

    /// Checks the next byte after white space, which is rarely present.
    #[inline]
    fn expect(&mut self, byte: u8, expected: &'static str) -> Result<(), SyntaxError> {
        if self.byte() == Some(byte) {
            return Ok(());
        }
        self.skip_space();
        if self.byte() == Some(byte) { Ok(()) } else { Err(SyntaxError::new(self.at, expected)) }
    }

    /// The byte after a member or an element: true for a comma, which is read, and false for the bracket that closes.
    #[inline]
    fn comma(&mut self, close: u8, expected: &'static str) -> Result<bool, SyntaxError> {
        if !matches!(self.byte(), Some(byte) if byte == b',' || byte == close) {
            self.skip_space();
        }
        match self.byte() {
            Some(b',') => self.at += 1,
            Some(byte) if byte == close => return Ok(false),
            _ => return Err(SyntaxError::new(self.at, expected)),
        }
        Ok(true)
    }

    /// A string; the next byte is its opening quote.
    #[inline]
    fn text(&mut self) -> Result<JsonStr<'a>, SyntaxError> {
        let bytes = self.body.as_bytes();
        let start = self.at + 1;
        let mut end = text::next_special(bytes, start);
        let mut decoded = end - start;
        if bytes.get(end) != Some(&b'"') {
            (end, decoded) = text::scan(bytes, start, end)?;
        }
        self.at = end + 1;
        Ok(JsonStr::new(self.body, start..end, decoded))
    }

    /// A number, `true`, `false` or `null`.
    fn plain(&mut self) -> Result<(), SyntaxError> {
        self.at += match self.rest() {
            [b'n', b'u', b'l', b'l', ..] | [b't', b'r', b'u', b'e', ..] => 4,
            [b'f', b'a', b'l', b's', b'e', ..] => 5,
            [b'-' | b'0'..=b'9', ..] => number::end(self.body.as_bytes(), self.at)? - self.at,
            _ => return Err(SyntaxError::new(self.at, "expected a value")),
        };
        Ok(())
    }
}

#[cfg(test)]
mod tests;
