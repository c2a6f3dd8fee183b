//! Frames: `u32 length | u32 crc32 | u8 version | u8 kind | payload`, little-endian. The length counts what follows
//! the checksum; the checksum covers the same bytes. The payload is compact JSON, so an operator can read it.

use serde::Serialize;

/// Version of the frames this program writes.
pub(super) const FRAME_VERSION: u8 = 1;
/// Largest length a frame may state.
pub(super) const MAX_LENGTH: usize = 1 << 20;
/// Length and checksum.
const PREFIX: usize = 8;
/// Version and kind.
const MARKS: usize = 2;

/// What a frame tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum EntryKind {
    /// An attempt begins.
    Begin,
    /// A stream goes on.
    Progress,
    /// A request ended.
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

/// A payload larger than a frame may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FrameTooLarge;

impl From<FrameTooLarge> for super::JournalError {
    fn from(_: FrameTooLarge) -> Self {
        Self::FrameTooLarge
    }
}

/// Writes one frame into `out`, which is emptied first and keeps its room.
pub(super) fn encode(kind: EntryKind, payload: &impl Serialize, out: &mut Vec<u8>) -> Result<(), FrameTooLarge> {
    out.clear();
    out.extend_from_slice(&[0; PREFIX]);
    out.extend_from_slice(&[FRAME_VERSION, kind.byte()]);
    serde_json::to_writer(&mut *out, payload).expect("records have string keys only, and memory does not fail to be written");
    let body = &out[PREFIX..];
    if body.len() > MAX_LENGTH {
        return Err(FrameTooLarge);
    }
    let length = u32::try_from(body.len()).expect("checked against a bound below 4 GiB");
    let checksum = crc32fast::hash(body);
    out[..4].copy_from_slice(&length.to_le_bytes());
    out[4..PREFIX].copy_from_slice(&checksum.to_le_bytes());
    Ok(())
}

/// What stands at a place of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ParsedFrame<'a> {
    /// A whole frame.
    Frame {
        /// What it tells.
        kind: EntryKind,
        /// JSON.
        payload: &'a [u8],
        /// Where the next one begins.
        next: usize,
    },
    /// A whole frame of a version or kind this program does not know.
    Newer {
        /// Its version.
        version: u8,
    },
    /// The end of the bytes.
    End,
    /// Nothing that is whole.
    Broken,
}

/// Reads the frame that begins at `at`.
pub(super) fn read(bytes: &[u8], at: usize) -> ParsedFrame<'_> {
    if at >= bytes.len() {
        return ParsedFrame::End;
    }
    let Some(prefix) = bytes.get(at..at + PREFIX) else { return ParsedFrame::Broken };
    let word = |i: usize| u32::from_le_bytes([prefix[i], prefix[i + 1], prefix[i + 2], prefix[i + 3]]);
    let length = word(0) as usize;
    if !(MARKS..=MAX_LENGTH).contains(&length) {
        return ParsedFrame::Broken;
    }
    let next = at + PREFIX + length;
    let Some(body) = bytes.get(at + PREFIX..next) else { return ParsedFrame::Broken };
    if crc32fast::hash(body) != word(4) {
        return ParsedFrame::Broken;
    }
    match (body[0], EntryKind::from_byte(body[1])) {
        (FRAME_VERSION, Some(kind)) => ParsedFrame::Frame { kind, payload: &body[MARKS..], next },
        (version, _) => ParsedFrame::Newer { version },
    }
}

/// The next place behind `at` where a whole frame begins. Only places whose marks fit are checked, so that the walk
/// over a damaged part stays linear.
pub(super) fn resync(bytes: &[u8], at: usize) -> Option<usize> {
    (at + 1..bytes.len().saturating_sub(PREFIX + MARKS)).find(|&place| {
        let marks = (bytes[place + PREFIX], EntryKind::from_byte(bytes[place + PREFIX + 1]));
        matches!(marks, (FRAME_VERSION, Some(_))) && matches!(read(bytes, place), ParsedFrame::Frame { .. })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_reads_back_and_every_flipped_bit_is_noticed() {
        let mut bytes = Vec::new();
        encode(EntryKind::Progress, &serde_json::json!({"a": 1}), &mut bytes).unwrap();
        assert_eq!(read(&bytes, 0), ParsedFrame::Frame { kind: EntryKind::Progress, payload: br#"{"a":1}"#, next: bytes.len() });
        assert_eq!(read(&bytes, bytes.len()), ParsedFrame::End);
        for bit in 0..bytes.len() * 8 {
            let mut wrong = bytes.clone();
            wrong[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(read(&wrong, 0), ParsedFrame::Broken, "bit {bit}");
        }
        for cut in 1..bytes.len() {
            assert_eq!(read(&bytes[..cut], 0), ParsedFrame::Broken, "cut at {cut}");
        }
    }

    #[test]
    fn a_frame_of_another_version_is_told_from_a_damaged_one() {
        let mut bytes = Vec::new();
        encode(EntryKind::End, &1, &mut bytes).unwrap();
        bytes[PREFIX] = 9;
        let checksum = crc32fast::hash(&bytes[PREFIX..]).to_le_bytes();
        bytes[4..PREFIX].copy_from_slice(&checksum);
        assert_eq!(read(&bytes, 0), ParsedFrame::Newer { version: 9 });
    }

    #[test]
    fn the_next_whole_frame_is_found_behind_a_damaged_one() {
        let (mut first, mut second) = (Vec::new(), Vec::new());
        encode(EntryKind::End, &"first", &mut first).unwrap();
        encode(EntryKind::End, &"second", &mut second).unwrap();
        let place = first.len();
        first[2] = 0xff;
        first.extend_from_slice(&second);
        assert_eq!(resync(&first, 0), Some(place));
        assert_eq!(resync(&first[..first.len() - 1], 0), None);
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        assert_eq!(encode(EntryKind::End, &"x".repeat(MAX_LENGTH), &mut Vec::new()), Err(FrameTooLarge));
    }
}
