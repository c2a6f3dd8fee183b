//! Raw HTTP/2 frames: encodes those of the corpus and parses the parts of a response that are checked.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde::Deserialize;

use crate::corpus::{Names, Segment};

/// A stream: a number, or the loop's counter.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Stream {
    Number(u32),
    Counter(#[expect(dead_code, reason = "only shows that it is the counter")] String),
}

impl Stream {
    fn number(this: Option<&Self>, absent: u32, counter: u32) -> u32 {
        match this {
            None => absent,
            Some(Self::Number(number)) => *number,
            Some(Self::Counter(_)) => counter,
        }
    }
}

/// A frame; `len` overrides its length field.
#[derive(Debug, Deserialize)]
pub(crate) struct Frame {
    #[serde(rename = "type")]
    kind: u8,
    #[serde(default)]
    flags: u8,
    stream: Option<Stream>,
    #[serde(default)]
    p: String,
    pb: Option<String>,
    x: Option<usize>,
    len: Option<u32>,
}

/// A header block.
#[derive(Debug, Deserialize)]
pub(crate) struct Headers {
    #[serde(rename = "headers")]
    fields: Vec<(String, String)>,
    #[serde(rename = "type")]
    kind: Option<u8>,
    flags: Option<u8>,
    stream: Option<Stream>,
    /// Repeats each value.
    vx: Option<usize>,
    /// Repeats the block.
    blkx: Option<usize>,
}

/// Repeated segments; the counter stream id increases.
#[derive(Debug, Deserialize)]
pub(crate) struct Loop {
    n: u32,
    start: Option<u32>,
    step: Option<u32>,
    seq: Vec<Segment>,
}

/// Preface and empty settings.
pub(crate) fn preface() -> Vec<u8> {
    let mut out = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
    out.extend(frame(4, 0, 0, &[]));
    out
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).expect("payloads are small").to_be_bytes();
    let mut out = vec![length[1], length[2], length[3], kind, flags];
    out.extend(stream.to_be_bytes());
    out.extend(payload);
    out
}

impl Frame {
    pub(crate) fn bytes(&self, names: &Names, counter: u32) -> Vec<u8> {
        let payload = match &self.pb {
            Some(base64) => STANDARD.decode(base64).expect("the corpus is base64"),
            None => names.bytes(&self.p, 0).repeat(self.x.unwrap_or(1)),
        };
        let mut out = frame(self.kind, self.flags, Stream::number(self.stream.as_ref(), 0, counter), &payload);
        if let Some(length) = self.len {
            out[..3].copy_from_slice(&length.to_be_bytes()[1..]);
        }
        out
    }
}

impl Headers {
    pub(crate) fn bytes(&self, names: &Names, counter: u32) -> Vec<u8> {
        let mut block = Vec::new();
        for (name, value) in &self.fields {
            block.push(0);
            block.extend(text(&names.bytes(name, 0)));
            block.extend(text(&names.bytes(value, 0).repeat(self.vx.unwrap_or(1))));
        }
        let block = block.repeat(self.blkx.unwrap_or(1));
        frame(self.kind.unwrap_or(1), self.flags.unwrap_or(5), Stream::number(self.stream.as_ref(), 1, counter), &block)
    }
}

impl Loop {
    pub(crate) fn bytes(&self, names: &Names) -> Vec<u8> {
        let (start, step) = (self.start.unwrap_or(1), self.step.unwrap_or(2));
        (0..self.n).flat_map(|n| self.seq.iter().flat_map(move |segment| segment.bytes(names, 0, start + n * step))).collect()
    }
}

/// A plain HPACK string.
fn text(bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    if let Some(length) = u8::try_from(bytes.len()).ok().filter(|length| *length < 127) {
        out.push(length);
    } else {
        out.push(0x7f);
        let mut rest = bytes.len() - 127;
        while rest >= 128 {
            out.push(u8::try_from(rest % 128).expect("below 128") | 0x80);
            rest /= 128;
        }
        out.push(u8::try_from(rest).expect("below 128"));
    }
    out.extend(bytes);
    out
}

/// A parsed response: its statuses, and whether a stream or the connection was ended.
#[derive(Debug, Default)]
pub(crate) struct Read {
    pub(crate) statuses: Vec<u16>,
    pub(crate) reset: bool,
    pub(crate) goaway: bool,
}

/// Reads whole frames.
pub(crate) fn read(mut bytes: &[u8]) -> Read {
    let mut read = Read::default();
    while bytes.len() >= 9 {
        let length = usize::from(bytes[0]) << 16 | usize::from(bytes[1]) << 8 | usize::from(bytes[2]);
        if bytes.len() < 9 + length {
            break;
        }
        match bytes[3] {
            1 => read.statuses.extend(status(&bytes[9..9 + length])),
            3 => read.reset = true,
            7 => read.goaway = true,
            _ => {}
        }
        bytes = &bytes[9 + length..];
    }
    read
}

/// The status at the beginning of a header block: from the static table, or a literal.
fn status(mut block: &[u8]) -> Option<u16> {
    while block.first().is_some_and(|first| first & 0xe0 == 0x20) {
        block = &block[1..];
    }
    let first = *block.first()?;
    if first & 0x80 != 0 {
        return Some(match first & 0x7f {
            8 => 200,
            9 => 204,
            10 => 206,
            11 => 304,
            12 => 400,
            13 => 404,
            14 => 500,
            _ => return None,
        });
    }
    let length = block.get(1)?;
    let value = block.get(2..2 + usize::from(length & 0x7f))?;
    if length & 0x80 == 0 { std::str::from_utf8(value).ok()?.parse().ok() } else { huffman(value)?.parse().ok() }
}

/// Three digits in the Huffman code of HPACK (RFC 7541, appendix B): `0` to `2` have 5 bits, the others 6.
fn huffman(bytes: &[u8]) -> Option<String> {
    let bits = bytes.iter().flat_map(|byte| (0..8).rev().map(move |bit| byte >> bit & 1)).collect::<Vec<_>>();
    let (mut at, mut out) = (0, String::new());
    while out.len() < 3 {
        let value = |length: usize| Some(bits.get(at..at + length)?.iter().fold(0, |value, bit| value << 1 | bit));
        let short = value(5)?;
        let (digit, length) = if short <= 2 { (short, 5) } else { (value(6)?.checked_sub(0b01_1001)? + 3, 6) };
        at += length;
        out.push(char::from_digit(u32::from(digit), 10)?);
    }
    Some(out)
}
