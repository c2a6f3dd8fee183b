//! Entries as the types they were written from.

use tollgate_core::{AttemptStart, RequestId, StreamProgress, UsageRecord};

use super::frame::{self, EntryKind, FrameTooLarge};

/// One entry, read.
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

/// Encodes a beginning; what makes it too large for a frame is left out.
pub(super) fn encode_begin(begin: &AttemptStart, out: &mut Vec<u8>) -> Result<(), FrameTooLarge> {
    frame::encode(EntryKind::Begin, begin, out).or_else(|FrameTooLarge| {
        let cut = AttemptStart { dropped: Vec::new(), earlier: Vec::new(), client_request_id: None, ..begin.clone() };
        frame::encode(EntryKind::Begin, &cut, out)
    })
}

/// Encodes an end; what makes it too large for a frame is cut: first the trace, then the long texts.
pub(super) fn encode_end(record: &UsageRecord, out: &mut Vec<u8>) -> Result<(), FrameTooLarge> {
    const TEXT: usize = 4_096;
    frame::encode(EntryKind::End, record, out).or_else(|FrameTooLarge| {
        let mut cut = record.clone();
        cut.trace.clear();
        frame::encode(EntryKind::End, &cut, out).or_else(|FrameTooLarge| {
            cut.dropped.clear();
            let texts = [&mut cut.detail, &mut cut.reason, &mut cut.client_request_id, &mut cut.address, &mut cut.model];
            for text in texts.into_iter().flatten() {
                text.truncate(text.floor_char_boundary(TEXT));
            }
            frame::encode(EntryKind::End, &cut, out)
        })
    })
}
