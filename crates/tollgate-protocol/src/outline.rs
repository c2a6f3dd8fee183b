//! The outline of a JSON object that is read in pieces: its structure with long texts and long lists shortened. It is small enough
//! to keep in memory, and valid JSON, so that the checks for whole answers can be applied to it.

use memchr::memchr2;

use crate::{StreamError, scan::MAX_DEPTH};

/// Bytes of a text that are kept.
const MAX_TEXT_BYTES: usize = 1_024;
/// Beyond this size, further elements of lists are left out, and further members of objects at depth [`DEEP`] or below.
const FULL_BYTES: usize = 64 * 1024;
/// Depth from which no check reads the members of objects one by one.
const DEEP: usize = 5;
/// Maximum size of an outline.
const MAX_BYTES: usize = 192 * 1024;
/// Longest number or word.
const MAX_SCALAR_BYTES: usize = 64;
/// Bytes of a member name that are compared.
const MAX_NAME_BYTES: usize = 64;

/// Members whose texts the output is estimated from.
const TEXTS: [&[u8]; 11] = [
    b"arguments",
    b"code",
    b"content",
    b"input",
    b"output",
    b"reasoning",
    b"reasoning_content",
    b"refusal",
    b"text",
    b"thinking",
    b"transcript",
];

/// Members of the outermost object that hold an answer.
const ANSWERS: [&[u8]; 6] = [b"candidates", b"choices", b"content", b"data", b"embedding", b"embeddings"];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lexeme {
    Between,
    Text,
    Escape,
    Scalar,
}

#[derive(Clone, Copy, Debug)]
struct Level {
    is_object: bool,
    awaits_name: bool,
}

/// The text being read.
#[derive(Clone, Copy, Debug, Default)]
struct TextProgress {
    kept: usize,
    is_cut: bool,
    is_name: bool,
    /// Whether its bytes count as output.
    is_output: bool,
    /// The escape being read.
    escape: [u8; 6],
    escape_bytes: usize,
    /// The text ends with the first half of a surrogate pair.
    is_half: bool,
}

/// Reported by [`JsonOutline::push`]: the begin or end of a text that is the value of a member of the outermost object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mark {
    TextBegins,
    TextEnds,
}

#[derive(Debug)]
pub(crate) struct JsonOutline {
    kept: Vec<u8>,
    levels: Vec<Level>,
    lexeme: Lexeme,
    /// The depth whose further elements are left out.
    skipped: Option<usize>,
    text: TextProgress,
    scalar_bytes: usize,
    /// The member name read last, and the last one of the outermost object.
    name: Vec<u8>,
    top_name: Vec<u8>,
    has_ended: bool,
    has_answer: bool,
    names_error: bool,
    /// The beginning of a character that the last piece did not end.
    partial: Vec<u8>,
    /// Bytes of texts that count as output, and those of them that are cut.
    output_bytes: u64,
    cut_output_bytes: u64,
}

fn malformed(what: &'static str) -> StreamError {
    StreamError::Malformed(what)
}

impl JsonOutline {
    pub(crate) const fn new() -> Self {
        let none = TextProgress {
            kept: 0,
            is_cut: false,
            is_name: false,
            is_output: false,
            escape: [0; 6],
            escape_bytes: 0,
            is_half: false,
        };
        Self {
            kept: Vec::new(),
            levels: Vec::new(),
            lexeme: Lexeme::Between,
            skipped: None,
            text: none,
            scalar_bytes: 0,
            name: Vec::new(),
            top_name: Vec::new(),
            has_ended: false,
            has_answer: false,
            names_error: false,
            partial: Vec::new(),
            output_bytes: 0,
            cut_output_bytes: 0,
        }
    }

    /// The outline so far; complete once [`Self::has_ended`].
    pub(crate) fn kept(&self) -> &[u8] {
        &self.kept
    }

    /// Bytes of memory kept between two pushes.
    pub(crate) const fn held_bytes(&self) -> usize {
        self.kept.capacity() + self.name.capacity() + self.top_name.capacity() + self.levels.capacity() * size_of::<Level>()
    }

    pub(crate) const fn has_ended(&self) -> bool {
        self.has_ended
    }

    pub(crate) const fn output_bytes(&self) -> u64 {
        self.output_bytes
    }

    /// Bytes of output that the outline lacks.
    pub(crate) const fn cut_output_bytes(&self) -> u64 {
        self.cut_output_bytes
    }

    /// The name of the member of the outermost object that is being read, or was read last.
    pub(crate) fn top_name(&self) -> &[u8] {
        &self.top_name
    }

    /// Whether the first part of an answer has begun, in a list of the outermost object.
    pub(crate) const fn has_answer(&self) -> bool {
        self.has_answer
    }

    /// True if the outermost object has a member `error`, whatever its value.
    pub(crate) const fn names_error(&self) -> bool {
        self.names_error
    }

    /// Reads a piece. `mark` is called for texts that are members of the outermost object, with the position of their quotes.
    ///
    /// # Errors
    /// When it cannot be part of a JSON object, or is too deep or too wide.
    pub(crate) fn push(&mut self, piece: &[u8], mut mark: impl FnMut(&Self, Mark, usize)) -> Result<(), StreamError> {
        self.check_utf8(piece)?;
        let mut at = 0;
        while at < piece.len() {
            match self.lexeme {
                Lexeme::Text => {
                    let rest = &piece[at..];
                    let run = memchr2(b'"', b'\\', rest).unwrap_or(rest.len());
                    self.plain(&rest[..run])?;
                    at += run;
                    if run == rest.len() {
                        break;
                    }
                    if piece[at] == b'"' {
                        self.end_text();
                        if self.levels.len() == 1 && !self.text.is_name {
                            mark(self, Mark::TextEnds, at);
                        }
                    } else {
                        (self.text.escape[0], self.text.escape_bytes) = (b'\\', 1);
                        self.lexeme = Lexeme::Escape;
                    }
                }
                Lexeme::Escape => self.escape(piece[at])?,
                Lexeme::Scalar => {
                    if matches!(piece[at], b',' | b']' | b'}' | b':' | b'"' | b'[' | b'{' | b' ' | b'\t' | b'\n' | b'\r') {
                        self.lexeme = Lexeme::Between;
                        continue;
                    }
                    self.scalar_bytes += 1;
                    self.keep(piece[at]);
                    if self.scalar_bytes > MAX_SCALAR_BYTES {
                        return Err(malformed("a number is too long"));
                    }
                }
                Lexeme::Between => {
                    self.between(piece[at])?;
                    if self.lexeme == Lexeme::Text && self.levels.len() == 1 && !self.text.is_name {
                        mark(self, Mark::TextBegins, at);
                    }
                }
            }
            at += 1;
        }
        if self.kept.len() > MAX_BYTES { Err(malformed("too many members")) } else { Ok(()) }
    }

    /// Checks that the document is complete.
    ///
    /// # Errors
    /// [`StreamError::Truncated`] when it is not.
    pub(crate) fn finish(&self) -> Result<(), StreamError> {
        if self.has_ended && self.partial.is_empty() { Ok(()) } else { Err(StreamError::Truncated) }
    }

    fn between(&mut self, byte: u8) -> Result<(), StreamError> {
        if matches!(byte, b' ' | b'\t' | b'\n' | b'\r') {
            return Ok(());
        }
        let depth = self.levels.len();
        if self.has_ended || depth == 0 && byte != b'{' {
            return Err(malformed("not a JSON object"));
        }
        match byte {
            b'"' => self.begin_text(),
            b'{' | b'[' => {
                if self.levels.len() >= MAX_DEPTH as usize {
                    return Err(malformed("it is nested too deeply"));
                }
                self.keep(byte);
                self.levels.push(Level { is_object: byte == b'{', awaits_name: byte == b'{' });
                self.has_answer |= depth == 2 && ANSWERS.contains(&self.top_name.as_slice());
            }
            b'}' | b']' => {
                if self.levels.pop().is_none_or(|level| level.is_object != (byte == b'}')) {
                    return Err(malformed("brackets that do not match"));
                }
                if self.skipped == Some(depth) {
                    self.skipped = None;
                }
                self.keep(byte);
                self.has_ended = self.levels.is_empty();
            }
            b',' => {
                let is_object = self.levels[depth - 1].is_object;
                self.levels[depth - 1].awaits_name = is_object;
                if self.skipped.is_none() && self.kept.len() > FULL_BYTES && (!is_object || depth >= DEEP) {
                    self.skipped = Some(depth);
                }
                self.keep(byte);
            }
            b':' => self.keep(byte),
            _ => {
                self.lexeme = Lexeme::Scalar;
                self.scalar_bytes = 1;
                self.keep(byte);
            }
        }
        Ok(())
    }

    fn keep(&mut self, byte: u8) {
        if self.skipped.is_none() {
            self.kept.push(byte);
        }
    }

    fn begin_text(&mut self) {
        let is_name = self.levels.last().is_some_and(|level| level.awaits_name);
        let is_output = !is_name && TEXTS.contains(&self.name.as_slice());
        self.text = TextProgress { is_name, is_output, ..TextProgress::default() };
        if is_name {
            self.name.clear();
        }
        self.keep(b'"');
        self.lexeme = Lexeme::Text;
    }

    fn end_text(&mut self) {
        self.keep(b'"');
        self.lexeme = Lexeme::Between;
        if !self.text.is_name {
            return;
        }
        if self.name.contains(&b'\\') {
            let literal = [b"\"", self.name.as_slice(), b"\""].concat();
            self.name = serde_json::from_slice::<String>(&literal).unwrap_or_default().into_bytes();
        }
        if let Some(level) = self.levels.last_mut() {
            level.awaits_name = false;
        }
        if self.levels.len() == 1 {
            self.top_name.clone_from(&self.name);
            self.names_error |= self.name == b"error";
        }
    }

    /// Part of a text without escapes.
    fn plain(&mut self, run: &[u8]) -> Result<(), StreamError> {
        if run.is_empty() {
            return Ok(());
        }
        if run.iter().any(|byte| *byte < 0x20) {
            return Err(malformed("a control character in a text"));
        }
        self.text.is_half = false;
        let mut taken = if self.text.is_cut { 0 } else { run.len().min(MAX_TEXT_BYTES.saturating_sub(self.text.kept)) };
        // A character is kept whole.
        while !self.text.is_cut && taken < run.len() && run[taken] & 0xc0 == 0x80 {
            taken += 1;
        }
        self.add(&run[..taken]);
        self.text.is_cut |= taken < run.len();
        self.count(run.len(), run.len() - taken);
        Ok(())
    }

    /// The next byte of an escape.
    fn escape(&mut self, byte: u8) -> Result<(), StreamError> {
        let (at, is_unicode) = (self.text.escape_bytes, self.text.escape_bytes > 1);
        let is_valid = if is_unicode { byte.is_ascii_hexdigit() } else { br#""\/bfnrtu"#.contains(&byte) };
        if !is_valid {
            return Err(malformed("an invalid escape"));
        }
        self.text.escape[at] = byte;
        self.text.escape_bytes += 1;
        if byte == b'u' && at == 1 || is_unicode && at < 5 {
            return Ok(());
        }
        self.lexeme = Lexeme::Text;
        let (escape, length) = (self.text.escape, self.text.escape_bytes);
        let code = std::str::from_utf8(&escape[2..length]).ok().and_then(|hex| u32::from_str_radix(hex, 16).ok());
        let decoded = match code {
            None | Some(..0x80) => 1,
            // Each half of a surrogate pair is two of the four bytes.
            Some(..0x800 | 0xd800..0xe000) => 2,
            Some(_) => 3,
        };
        // The second half follows the first one.
        let fits = !self.text.is_cut && (self.text.kept < MAX_TEXT_BYTES || self.text.is_half);
        if fits {
            self.add(&escape[..length]);
        }
        self.text.is_half = code.is_some_and(|code| (0xd800..0xdc00).contains(&code));
        self.text.is_cut |= !fits;
        self.count(decoded, if fits { 0 } else { decoded });
        Ok(())
    }

    fn add(&mut self, bytes: &[u8]) {
        self.text.kept += bytes.len();
        if self.text.is_name {
            let room = MAX_NAME_BYTES.saturating_sub(self.name.len());
            self.name.extend_from_slice(&bytes[..bytes.len().min(room)]);
        }
        if self.skipped.is_none() {
            self.kept.extend_from_slice(bytes);
        }
    }

    fn count(&mut self, bytes: usize, cut: usize) {
        if self.text.is_output {
            self.output_bytes += bytes as u64;
            self.cut_output_bytes += if self.skipped.is_some() { bytes } else { cut } as u64;
        }
    }

    fn check_utf8(&mut self, mut piece: &[u8]) -> Result<(), StreamError> {
        let invalid = || malformed("invalid UTF-8");
        while !self.partial.is_empty() {
            let Some((first, rest)) = piece.split_first() else { return Ok(()) };
            self.partial.push(*first);
            piece = rest;
            match std::str::from_utf8(&self.partial) {
                Ok(_) => self.partial.clear(),
                Err(error) if error.error_len().is_none() => {}
                Err(_) => return Err(invalid()),
            }
        }
        match std::str::from_utf8(piece) {
            Ok(_) => Ok(()),
            Err(error) if error.error_len().is_none() => {
                self.partial.extend_from_slice(&piece[error.valid_up_to()..]);
                Ok(())
            }
            Err(_) => Err(invalid()),
        }
    }
}
