//! The frame format: `u32 length | u32 crc32 | u8 version | u8 kind | payload`, little-endian. Length and checksum cover
//! the bytes after the checksum. The payload is an entry as compact JSON, so that an operator can read it.

use serde::Serialize;
use tollgate_core::{AttemptStart, RequestId, StreamProgress, UsageRecord};

use super::error::JournalError;

pub(super) const FRAME_VERSION: u8 = 1;
/// Maximum value of the length field.
pub(super) const MAX_LENGTH: usize = 1 << 20;
/// Bytes of length and checksum.
const PREFIX_LENGTH: usize = 8;
/// Bytes of version and kind.
const TAG_LENGTH: usize = 2;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum EntryKind {
    Begin,
    Progress,
    End,
}

impl EntryKind {
    const fn byte(self) -> u8 {
        match self {
            Self::Begin => 1,
            Self::Progress => 2,
            Self::End => 3,
        }
    }

    const fn from_byte(byte: u8) -> Option<Self> {
        match byte {
            1 => Some(Self::Begin),
            2 => Some(Self::Progress),
            3 => Some(Self::End),
            _ => None,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FrameTooLarge;

impl From<FrameTooLarge> for JournalError {
    fn from(_: FrameTooLarge) -> Self {
        Self::FrameTooLarge
    }
}

/// Encodes one frame into `out`, which is cleared first and keeps its capacity.
pub(super) fn encode(kind: EntryKind, payload: &impl Serialize, out: &mut Vec<u8>) -> Result<(), FrameTooLarge> {
    out.clear();
    out.extend_from_slice(&[0; PREFIX_LENGTH]);
    out.extend_from_slice(&[FRAME_VERSION, kind.byte()]);
    serde_json::to_writer(&mut *out, payload).expect("entries have string keys, and writing to a Vec cannot fail");
    let body = &out[PREFIX_LENGTH..];
    if body.len() > MAX_LENGTH {
        return Err(FrameTooLarge);
    }
    let length = u32::try_from(body.len()).expect("MAX_LENGTH is below 4 GiB");
    let checksum = crc32fast::hash(body);
    out[..4].copy_from_slice(&length.to_le_bytes());
    out[4..PREFIX_LENGTH].copy_from_slice(&checksum.to_le_bytes());
    Ok(())
}

/// The bytes at an offset of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ParsedFrame<'a> {
    Frame {
        kind: EntryKind,
        /// JSON.
        payload: &'a [u8],
        next: usize,
    },
    /// A valid frame of an unknown version or kind.
    Newer {
        version: u8,
    },
    End,
    /// A truncated frame or one that does not match its checksum.
    Broken,
}

/// Parses the frame at offset `at`.
pub(super) fn parse(bytes: &[u8], at: usize) -> ParsedFrame<'_> {
    if at >= bytes.len() {
        return ParsedFrame::End;
    }
    let Some(prefix) = bytes.get(at..at + PREFIX_LENGTH) else { return ParsedFrame::Broken };
    let word = |i: usize| u32::from_le_bytes([prefix[i], prefix[i + 1], prefix[i + 2], prefix[i + 3]]);
    let length = word(0) as usize;
    if !(TAG_LENGTH..=MAX_LENGTH).contains(&length) {
        return ParsedFrame::Broken;
    }
    let next = at + PREFIX_LENGTH + length;
    let Some(body) = bytes.get(at + PREFIX_LENGTH..next) else { return ParsedFrame::Broken };
    if crc32fast::hash(body) != word(4) {
        return ParsedFrame::Broken;
    }
    match (body[0], EntryKind::from_byte(body[1])) {
        (FRAME_VERSION, Some(kind)) => ParsedFrame::Frame { kind, payload: &body[TAG_LENGTH..], next },
        (version, _) => ParsedFrame::Newer { version },
    }
}

/// Offset of the next valid frame after `from`. The checksum is computed only where version and kind match, so that
/// scanning a damaged range stays linear.
pub(super) fn resync(bytes: &[u8], from: usize) -> Option<usize> {
    (from + 1..bytes.len().saturating_sub(PREFIX_LENGTH + TAG_LENGTH)).find(|&at| {
        let tag = (bytes[at + PREFIX_LENGTH], EntryKind::from_byte(bytes[at + PREFIX_LENGTH + 1]));
        matches!(tag, (FRAME_VERSION, Some(_))) && matches!(parse(bytes, at), ParsedFrame::Frame { .. })
    })
}

#[derive(Clone, Debug)]
pub(super) enum DecodedEntry {
    Begin(Box<AttemptStart>),
    Progress(StreamProgress),
    End(Box<UsageRecord>),
}

impl DecodedEntry {
    pub(super) fn parse(kind: EntryKind, payload: &[u8]) -> Result<Self, serde_json::Error> {
        match kind {
            EntryKind::Begin => serde_json::from_slice(payload).map(Self::Begin),
            EntryKind::Progress => serde_json::from_slice(payload).map(Self::Progress),
            EntryKind::End => serde_json::from_slice(payload).map(Self::End),
        }
    }

    pub(super) const fn id(&self) -> RequestId {
        match self {
            Self::Begin(begin) => begin.id,
            Self::Progress(progress) => progress.id,
            Self::End(record) => record.id,
        }
    }
}

/// Encodes the begin of an attempt. If it exceeds a frame, its unbounded fields are omitted.
pub(super) fn encode_begin(begin: &AttemptStart, out: &mut Vec<u8>) -> Result<(), FrameTooLarge> {
    encode(EntryKind::Begin, begin, out).or_else(|FrameTooLarge| {
        let shortened = AttemptStart { dropped: Vec::new(), earlier: Vec::new(), client_request_id: None, ..begin.clone() };
        encode(EntryKind::Begin, &shortened, out)
    })
}

/// Encodes the end of a request. If it exceeds a frame, first the trace is omitted, then long texts are truncated.
pub(super) fn encode_end(record: &UsageRecord, out: &mut Vec<u8>) -> Result<(), FrameTooLarge> {
    const TEXT_LIMIT: usize = 4_096;
    encode(EntryKind::End, record, out).or_else(|FrameTooLarge| {
        let mut shortened = record.clone();
        shortened.trace.clear();
        encode(EntryKind::End, &shortened, out).or_else(|FrameTooLarge| {
            shortened.dropped.clear();
            let texts = [
                &mut shortened.detail,
                &mut shortened.reason,
                &mut shortened.client_request_id,
                &mut shortened.address,
                &mut shortened.model,
            ];
            for text in texts.into_iter().flatten() {
                text.truncate(text.floor_char_boundary(TEXT_LIMIT));
            }
            encode(EntryKind::End, &shortened, out)
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frame_round_trips_and_every_flipped_bit_is_detected() {
        let mut bytes = Vec::new();
        encode(EntryKind::Progress, &serde_json::json!({"a": 1}), &mut bytes).unwrap();
        assert_eq!(parse(&bytes, 0), ParsedFrame::Frame { kind: EntryKind::Progress, payload: br#"{"a":1}"#, next: bytes.len() });
        assert_eq!(parse(&bytes, bytes.len()), ParsedFrame::End);
        for bit in 0..bytes.len() * 8 {
            let mut wrong = bytes.clone();
            wrong[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(parse(&wrong, 0), ParsedFrame::Broken, "bit {bit}");
        }
        for cut in 1..bytes.len() {
            assert_eq!(parse(&bytes[..cut], 0), ParsedFrame::Broken, "cut at {cut}");
        }
    }

    #[test]
    fn frame_of_another_version_is_not_damage() {
        let mut bytes = Vec::new();
        encode(EntryKind::End, &1, &mut bytes).unwrap();
        bytes[PREFIX_LENGTH] = 9;
        let checksum = crc32fast::hash(&bytes[PREFIX_LENGTH..]).to_le_bytes();
        bytes[4..PREFIX_LENGTH].copy_from_slice(&checksum);
        assert_eq!(parse(&bytes, 0), ParsedFrame::Newer { version: 9 });
    }

    #[test]
    fn resync_finds_the_next_valid_frame() {
        let (mut first, mut second) = (Vec::new(), Vec::new());
        encode(EntryKind::End, &"first", &mut first).unwrap();
        encode(EntryKind::End, &"second", &mut second).unwrap();
        let at = first.len();
        first[2] = 0xff;
        first.extend_from_slice(&second);
        assert_eq!(resync(&first, 0), Some(at));
        assert_eq!(resync(&first[..first.len() - 1], 0), None);
    }

    #[test]
    fn oversized_payload_is_rejected() {
        assert_eq!(encode(EntryKind::End, &"x".repeat(MAX_LENGTH), &mut Vec::new()), Err(FrameTooLarge));
    }
}
