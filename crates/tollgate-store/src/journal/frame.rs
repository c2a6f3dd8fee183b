//! The frame format: `u32 length | u32 crc32 | u8 version | u8 kind | payload`, little-endian. Length and checksum cover
//! the bytes after the checksum. The payload is an entry in CBOR (RFC 8949); `tollgate journal dump` prints entries as JSON. Frames
//! of version 1 hold JSON.

use std::{borrow::Cow, collections::BTreeSet};

use minicbor::{Decode, Encode};
use serde::{Serialize, de::DeserializeOwned};
use tollgate_core::{AttemptStart, RequestId, StreamProgress, UsageRecord};
use uuid::Uuid;

use super::error::JournalError;

pub(super) const FRAME_VERSION: u8 = 2;
/// Frames with JSON, as version 0.1 wrote them.
const JSON_VERSION: u8 = 1;
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

    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::Begin => "begin",
            Self::Progress => "progress",
            Self::End => "end",
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

/// Appends one frame to `out`. If it is too large, `out` is unchanged.
pub(super) fn encode(kind: EntryKind, payload: &impl Encode<()>, out: &mut Vec<u8>) -> Result<(), FrameTooLarge> {
    let start = out.len();
    out.extend_from_slice(&[0; PREFIX_LENGTH]);
    out.extend_from_slice(&[FRAME_VERSION, kind.byte()]);
    minicbor::encode(payload, &mut *out).expect("writing to a Vec cannot fail");
    let (prefix, body) = out[start..].split_at_mut(PREFIX_LENGTH);
    if body.len() > MAX_LENGTH {
        out.truncate(start);
        return Err(FrameTooLarge);
    }
    let length = u32::try_from(body.len()).expect("MAX_LENGTH is below 4 GiB");
    let checksum = crc32fast::hash(body);
    prefix[..4].copy_from_slice(&length.to_le_bytes());
    prefix[4..].copy_from_slice(&checksum.to_le_bytes());
    Ok(())
}

/// The bytes of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Payload<'a> {
    Cbor(&'a [u8]),
    Json(&'a [u8]),
}

impl<'a> Payload<'a> {
    fn read(body: &'a [u8]) -> Option<Self> {
        let (tag, payload) = body.split_at_checked(TAG_LENGTH)?;
        match tag[0] {
            FRAME_VERSION => Some(Self::Cbor(payload)),
            JSON_VERSION => Some(Self::Json(payload)),
            _ => None,
        }
    }

    pub(super) fn decode<T: Decode<'a, ()> + DeserializeOwned>(self) -> Result<T, PayloadError> {
        match self {
            Self::Cbor(bytes) => Ok(minicbor::decode(bytes)?),
            Self::Json(bytes) => Ok(serde_json::from_slice(bytes)?),
        }
    }
}

/// An entry cannot be read although its checksum is right.
#[derive(Debug, thiserror::Error)]
pub(super) enum PayloadError {
    #[error(transparent)]
    Cbor(#[from] minicbor::decode::Error),
    #[error(transparent)]
    Json(#[from] serde_json::Error),
}

/// The bytes at an offset of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ParsedFrame<'a> {
    Frame {
        kind: EntryKind,
        payload: Payload<'a>,
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
    match (Payload::read(body), EntryKind::from_byte(body[1])) {
        (Some(payload), Some(kind)) => ParsedFrame::Frame { kind, payload, next },
        _ => ParsedFrame::Newer { version: body[0] },
    }
}

/// Offset of the next valid frame after `from`. The checksum is computed only where version and kind match, so that
/// scanning a damaged range stays linear.
pub(super) fn resync(bytes: &[u8], from: usize) -> Option<usize> {
    (from + 1..bytes.len().saturating_sub(PREFIX_LENGTH + TAG_LENGTH)).find(|&at| {
        let tag = (bytes[at + PREFIX_LENGTH], EntryKind::from_byte(bytes[at + PREFIX_LENGTH + 1]));
        matches!(tag, (JSON_VERSION | FRAME_VERSION, Some(_))) && matches!(parse(bytes, at), ParsedFrame::Frame { .. })
    })
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub(super) enum DecodedEntry {
    Begin(Box<AttemptStart<'static>>),
    Progress(StreamProgress),
    End(Box<UsageRecord>),
}

impl DecodedEntry {
    pub(super) fn parse(kind: EntryKind, payload: Payload<'_>) -> Result<Self, PayloadError> {
        match kind {
            EntryKind::Begin => payload.decode().map(Box::new).map(Self::Begin),
            EntryKind::Progress => payload.decode().map(Self::Progress),
            EntryKind::End => payload.decode().map(Box::new).map(Self::End),
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

/// Appends the begin of an attempt to `out`. If it exceeds a frame, its unbounded fields are omitted.
pub(super) fn encode_begin(begin: &AttemptStart<'_>, out: &mut Vec<u8>) -> Result<(), FrameTooLarge> {
    encode(EntryKind::Begin, begin, out).or_else(|FrameTooLarge| {
        let shortened = AttemptStart { dropped: Cow::default(), earlier: Vec::new(), client_request_id: None, ..begin.clone() };
        encode(EntryKind::Begin, &shortened, out)
    })
}

/// Appends the end of a request to `out`. If it exceeds a frame, first the trace is omitted, then long texts are truncated.
pub(super) fn encode_end(record: &UsageRecord, out: &mut Vec<u8>) -> Result<(), FrameTooLarge> {
    const TEXT_LIMIT: usize = 4_096;
    encode(EntryKind::End, record, out).or_else(|FrameTooLarge| {
        let mut shortened = record.clone();
        shortened.trace.clear();
        encode(EntryKind::End, &shortened, out).or_else(|FrameTooLarge| {
            shortened.dropped.clear();
            for text in [&mut shortened.detail, &mut shortened.reason].into_iter().flatten() {
                text.truncate(text.floor_char_boundary(TEXT_LIMIT));
            }
            let texts = [&mut shortened.client_request_id, &mut shortened.address, &mut shortened.model];
            for text in texts.into_iter().flatten() {
                *text = text[..text.floor_char_boundary(TEXT_LIMIT)].into();
            }
            encode(EntryKind::End, &shortened, out)
        })
    })
}

/// The request ids that can still be read in a damaged range, sorted. The first field of an entry is the id.
pub(super) fn request_ids(bytes: &[u8]) -> Vec<RequestId> {
    let starts = 0..bytes.len();
    let ids = starts.filter_map(|at| cbor_id(&bytes[at..]).or_else(|| json_id(&bytes[at..])));
    ids.collect::<BTreeSet<_>>().into_iter().collect()
}

/// The id behind a frame's version and kind: the head of an array, of one byte or two, then 16 bytes.
fn cbor_id(bytes: &[u8]) -> Option<RequestId> {
    const ID: u8 = 0x50;
    let ([FRAME_VERSION, 1..=3, 0x80..=0x97, ID, id @ ..] | [FRAME_VERSION, 1..=3, 0x98, _, ID, id @ ..]) = bytes else {
        return None;
    };
    let id = Uuid::from_slice(id.get(..16)?).ok()?;
    (id.get_version_num() == 7).then(|| RequestId::from_uuid(id))
}

fn json_id(bytes: &[u8]) -> Option<RequestId> {
    const LENGTH: usize = 30;
    let text = bytes.strip_prefix(b"\"id\":\"")?.get(..LENGTH)?;
    RequestId::parse(std::str::from_utf8(text).ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples::{begin, progress, record};

    #[test]
    fn frame_round_trips_and_every_flipped_bit_is_detected() {
        let mut bytes = Vec::new();
        encode(EntryKind::Progress, &7_u8, &mut bytes).unwrap();
        let payload = Payload::Cbor(&[7]);
        assert_eq!(parse(&bytes, 0), ParsedFrame::Frame { kind: EntryKind::Progress, payload, next: bytes.len() });
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
    fn entries_round_trip() {
        let (mut bytes, begin, record, progress) = (Vec::new(), begin(1), record(1), progress(1, 70_000));
        encode_begin(&begin, &mut bytes).unwrap();
        let begin_length = bytes.len();
        encode_end(&record, &mut bytes).unwrap();
        let end_length = bytes.len() - begin_length;
        encode(EntryKind::Progress, &progress, &mut bytes).unwrap();
        assert_eq!(decoded(&bytes), DecodedEntry::Begin(Box::new(begin)));
        assert_eq!(decoded(&bytes[begin_length..]), DecodedEntry::End(Box::new(record)));
        assert_eq!(decoded(&bytes[begin_length + end_length..]), DecodedEntry::Progress(progress));
        assert!(begin_length < 250 && end_length < 460, "{begin_length} and {end_length} bytes");
    }

    fn decoded(bytes: &[u8]) -> DecodedEntry {
        let ParsedFrame::Frame { kind, payload, .. } = parse(bytes, 0) else { panic!("a frame was written") };
        DecodedEntry::parse(kind, payload).unwrap()
    }

    #[test]
    fn entry_of_version_0_1_is_json() {
        let record = record(3);
        let mut body = vec![JSON_VERSION, EntryKind::End.byte()];
        serde_json::to_writer(&mut body, &record).unwrap();
        let mut bytes = u32::try_from(body.len()).unwrap().to_le_bytes().to_vec();
        bytes.extend_from_slice(&crc32fast::hash(&body).to_le_bytes());
        bytes.extend_from_slice(&body);
        assert_eq!(request_ids(&bytes), [record.id]);
        assert_eq!(decoded(&bytes), DecodedEntry::End(Box::new(record)));
    }

    #[test]
    fn frame_of_a_newer_version_is_not_reported_as_damage() {
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
        let mut out = vec![7];
        assert_eq!(encode(EntryKind::End, &"x".repeat(MAX_LENGTH), &mut out), Err(FrameTooLarge));
        assert_eq!(out, [7]);
    }
}
