//! Incremental parser for event streams (WHATWG HTML, "Server-sent events").
//!
//! [`SseParser`] emits complete events, independent of chunk boundaries. An event inside one chunk is parsed in place, and if its
//! bytes already have a canonical form ([`SseEvent::as_sent`], [`SseEvent::as_sent_named`]) it can be forwarded without a copy. Only
//! an event that spans chunks is buffered.

use std::ops::Range;

use bytes::Bytes;
use memchr::memchr2;

use crate::StreamError;

/// Largest event accepted from an upstream, in bytes.
pub(crate) const EVENT_LIMIT: usize = 16 * 1024 * 1024;

/// Prefix of the name of an event in canonical form.
const EVENT: &[u8] = b"event: ";
/// Prefix of the data of every event in canonical form.
pub(crate) const DATA: &[u8] = b"data: ";
/// End of every event in canonical form.
pub(crate) const END: &[u8] = b"\n\n";

const BOM: &[u8] = "\u{feff}".as_bytes();
const TOO_LARGE: StreamError = StreamError::Malformed("an event larger than the limit");

/// An event of a stream, as slices of the chunk or of the parser's buffer.
#[derive(Debug)]
pub struct SseEvent<'a> {
    /// Last `event:` line; empty if there is none.
    pub name: &'a [u8],
    /// The data; several `data:` lines are joined with line feeds. Never empty.
    pub data: &'a [u8],
    buffer: &'a Bytes,
    /// Range of the event in `buffer`, if it is in canonical form, with or without a name.
    sent: Option<Range<usize>>,
    /// Length of `data:` and of the space after it, if any.
    lead: usize,
}

impl SseEvent<'_> {
    /// The whole event as a slice of the input, if its bytes are exactly one `data:` line and two line feeds.
    pub fn as_sent(&self) -> Option<Bytes> {
        self.canonical(false).map(|range| self.buffer.slice(range))
    }

    /// [`SseEvent::as_sent`] of an event with a name, if its bytes are exactly an `event: ` line, a `data: ` line and two line feeds.
    pub fn as_sent_named(&self) -> Option<Bytes> {
        self.canonical(true).map(|range| self.buffer.slice(range))
    }

    /// Range of [`SseEvent::as_sent`] in `chunk`, if it is in that chunk.
    pub fn range_in(&self, chunk: &Bytes) -> Option<Range<usize>> {
        self.canonical(false).filter(|_| std::ptr::eq(self.buffer, chunk))
    }

    /// Range of [`SseEvent::as_sent_named`] in `chunk`, if it is in that chunk.
    pub fn named_range_in(&self, chunk: &Bytes) -> Option<Range<usize>> {
        self.canonical(true).filter(|_| std::ptr::eq(self.buffer, chunk))
    }

    fn canonical(&self, named: bool) -> Option<Range<usize>> {
        let is_form = if named { !self.name.is_empty() && self.has_space() } else { self.name.is_empty() };
        self.sent.clone().filter(|_| is_form)
    }

    /// Whether there is a space between `data:` and the data.
    pub fn has_space(&self) -> bool {
        self.lead == DATA.len()
    }
}

/// The event under construction. Offsets are relative to the event's first byte.
#[derive(Debug, Default)]
struct Building {
    /// A `data` or `event` line was read.
    begun: bool,
    data_lines: usize,
    /// Value of the first `data` line.
    value: Range<usize>,
    /// Length of `data:` and of the space after it.
    lead: usize,
    /// Data of several lines, joined.
    joined: Vec<u8>,
    /// Value of the last `event` line.
    name: Range<usize>,
    /// Offset of the `data` line of an event in canonical form: after a first line `event: ` with a name, else 0.
    data_line: usize,
    /// The event is not in canonical form: it has another line, a carriage return or a byte order mark.
    non_canonical: bool,
}

/// Parses an event stream from chunks of any size. Keeps at most one event, up to a limit in bytes.
#[derive(Debug)]
pub struct SseParser {
    limit: usize,
    /// Bytes of an event that began in an earlier chunk, without ignored leading lines.
    carry: Vec<u8>,
    /// Offset of the unfinished line in `carry`.
    carry_line: usize,
    building: Building,
    /// The last chunk ended with a carriage return; a line feed at the start of the next chunk belongs to it.
    skip_line_feed: bool,
    /// No line has ended yet, so a byte order mark may precede it.
    first_line: bool,
}

impl Default for SseParser {
    fn default() -> Self {
        Self::new()
    }
}

impl SseParser {
    /// A parser with the default limit of 16 MiB per event.
    pub fn new() -> Self {
        Self::with_limit(EVENT_LIMIT)
    }

    pub fn with_limit(limit: usize) -> Self {
        Self { limit, carry: Vec::new(), carry_line: 0, building: Building::default(), skip_line_feed: false, first_line: true }
    }

    /// Parses the next chunk and calls `on` for every event that is now complete.
    ///
    /// # Errors
    /// An event above the limit, or the first error of `on`. The parser must not be used after an error.
    pub fn push<E: From<StreamError>>(
        &mut self,
        chunk: &Bytes,
        mut on: impl FnMut(SseEvent<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut at = 0;
        if self.skip_line_feed && !chunk.is_empty() {
            self.skip_line_feed = false;
            at = usize::from(chunk[0] == b'\n');
        }
        // Offset in `chunk` of the event under construction; valid while `carry` is empty.
        let mut start = at;
        while let Some(found) = memchr2(b'\n', b'\r', &chunk[at..]) {
            let end = at + found;
            let next = self.after_line_end(chunk, end);
            if chunk[end] == b'\r' {
                self.building.non_canonical = true;
            }
            if self.carry.is_empty() {
                self.check_size(end - start)?;
                let blank = self.line(&chunk[start..end], at - start);
                if blank {
                    self.dispatch(chunk, start..next, &mut on)?;
                }
                if !self.building.begun {
                    start = next;
                }
            } else {
                self.check_size(self.carry.len() + next - at)?;
                self.carry.extend_from_slice(&chunk[at..next]);
                self.carried_line(next - end, &mut on)?;
                start = next;
            }
            at = next;
        }
        self.keep(chunk, start, at)
    }

    /// Ends the stream; a last event without its blank line is emitted too.
    pub fn finish<E: From<StreamError>>(&mut self, mut on: impl FnMut(SseEvent<'_>) -> Result<(), E>) -> Result<(), E> {
        self.building.non_canonical = true;
        let carry = std::mem::take(&mut self.carry);
        let begins = std::mem::take(&mut self.carry_line);
        if carry.len() > begins {
            self.line(&carry, begins);
        }
        let end = carry.len();
        self.dispatch(&Bytes::from(carry), 0..end, &mut on)
    }

    /// Whether an event has begun and not ended. Comments and blank lines are not part of one.
    pub(crate) fn has_unfinished_event(&self) -> bool {
        self.building.begun
            || self.carry.get(self.carry_line..).is_some_and(|line| line.first().is_some_and(|first| *first != b':'))
    }

    /// Bytes of memory kept between two pushes.
    pub(crate) fn held_bytes(&self) -> usize {
        self.carry.capacity() + self.building.joined.capacity()
    }

    /// The offset after the line end at `end`. Records a carriage return whose line feed may be in the next chunk.
    fn after_line_end(&mut self, chunk: &Bytes, end: usize) -> usize {
        if chunk[end] == b'\n' {
            return end + 1;
        }
        match chunk.get(end + 1) {
            Some(b'\n') => end + 2,
            Some(_) => end + 1,
            None => {
                self.skip_line_feed = true;
                end + 1
            }
        }
    }

    /// Processes a complete line in `carry`; its last `terminator` bytes are the line end.
    fn carried_line<E: From<StreamError>>(
        &mut self,
        terminator: usize,
        on: &mut impl FnMut(SseEvent<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        let carry = std::mem::take(&mut self.carry);
        let blank = self.line(&carry[..carry.len() - terminator], self.carry_line);
        if blank {
            self.carry_line = 0;
            let end = carry.len();
            return self.dispatch(&Bytes::from(carry), 0..end, on);
        }
        self.carry = carry;
        if self.building.begun {
            self.carry_line = self.carry.len();
        } else {
            self.carry.clear();
            self.carry_line = 0;
        }
        Ok(())
    }

    /// Buffers the rest of a chunk.
    fn keep<E: From<StreamError>>(&mut self, chunk: &Bytes, start: usize, line: usize) -> Result<(), E> {
        let rest = &chunk[start..];
        if rest.is_empty() {
            return Ok(());
        }
        self.check_size(self.carry.len() + rest.len())?;
        if self.carry.is_empty() {
            self.carry_line = line - start;
        }
        self.carry.extend_from_slice(rest);
        Ok(())
    }

    fn check_size(&self, size: usize) -> Result<(), StreamError> {
        if size > self.limit { Err(TOO_LARGE) } else { Ok(()) }
    }

    /// Parses one line, `event[begins..]`, without its end. True if it is blank.
    fn line(&mut self, event: &[u8], mut begins: usize) -> bool {
        if std::mem::take(&mut self.first_line) && event[begins..].starts_with(BOM) {
            begins += BOM.len();
            self.building.non_canonical = true;
        }
        let line = &event[begins..];
        if line.is_empty() {
            return true;
        }
        let building = &mut self.building;
        if let Some(lead) = field(line, b"data") {
            building.begun = true;
            building.data_lines += 1;
            if building.data_lines == 1 {
                building.value = begins + lead..event.len();
                building.lead = lead;
                building.non_canonical |= begins != building.data_line || lead < 5;
            } else {
                if building.data_lines == 2 {
                    building.joined.extend_from_slice(&event[building.value.clone()]);
                    building.non_canonical = true;
                }
                building.joined.push(b'\n');
                building.joined.extend_from_slice(&line[lead..]);
            }
        } else if let Some(lead) = field(line, b"event") {
            building.begun = true;
            building.name = begins + lead..event.len();
            if begins == 0 && lead == EVENT.len() && !building.name.is_empty() {
                building.data_line = event.len() + 1;
            } else {
                building.non_canonical = true;
            }
        } else if building.begun {
            building.non_canonical = true;
        }
        false
    }

    /// Emits the event after a blank line, if it has data.
    fn dispatch<E>(
        &mut self,
        buffer: &Bytes,
        range: Range<usize>,
        on: &mut impl FnMut(SseEvent<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        let building = std::mem::take(&mut self.building);
        let data = match building.data_lines {
            0 => return Ok(()),
            1 => &buffer[range.start + building.value.start..range.start + building.value.end],
            _ => building.joined.as_slice(),
        };
        if data.is_empty() {
            return Ok(());
        }
        let name = &buffer[range.start + building.name.start..range.start + building.name.end];
        let sent = if building.non_canonical { None } else { Some(range) };
        on(SseEvent { name, data, buffer, sent, lead: building.lead })
    }
}

/// Length of `name`, the colon and one following space, if `line` is that field. A line without a colon is a field with an empty
/// value.
fn field(line: &[u8], name: &[u8]) -> Option<usize> {
    let rest = line.strip_prefix(name)?;
    match rest {
        [] => Some(name.len()),
        [b':', b' ', ..] => Some(name.len() + 2),
        [b':', ..] => Some(name.len() + 1),
        _ => None,
    }
}

/// One event in canonical form: `data: `, the data, two line feeds. `data` must be one line.
pub(crate) fn event(data: &[u8]) -> Bytes {
    let mut out = Vec::with_capacity(DATA.len() + data.len() + END.len());
    out.extend_from_slice(DATA);
    out.extend_from_slice(data);
    out.extend_from_slice(END);
    Bytes::from(out)
}

/// Whether a text can be the name of an event: one line, and not empty.
pub(crate) fn is_name(text: &str) -> bool {
    !text.is_empty() && memchr2(b'\n', b'\r', text.as_bytes()).is_none()
}

/// Writes an event with a name. [`is_name`] must hold for the name.
pub(crate) fn named_event(name: &str, data: &[u8]) -> Bytes {
    let mut out = Vec::with_capacity(EVENT.len() + name.len() + 1 + DATA.len() + data.len() + END.len());
    out.extend_from_slice(EVENT);
    out.extend_from_slice(name.as_bytes());
    out.push(b'\n');
    out.extend_from_slice(DATA);
    out.extend_from_slice(data);
    out.extend_from_slice(END);
    Bytes::from(out)
}

#[cfg(test)]
mod tests;
