//! Entries as the types they were written from.

use tollgate_core::{Begin, Progress, RequestId, UsageRecord};

use super::frame::{self, EntryKind, TooLarge};

/// One entry, read.
#[derive(Clone, Debug)]
pub(super) enum Entry {
    Begin(Box<Begin>),
    Progress(Progress),
    End(Box<UsageRecord>),
}

impl Entry {
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
pub(super) fn encode_begin(begin: &Begin, out: &mut Vec<u8>) -> Result<(), TooLarge> {
    frame::encode(EntryKind::Begin, begin, out).or_else(|TooLarge| {
        let cut = Begin { dropped: Vec::new(), earlier: Vec::new(), client_request_id: None, ..begin.clone() };
        frame::encode(EntryKind::Begin, &cut, out)
    })
}

/// Encodes an end; what makes it too large for a frame is cut: first the trace, then the long texts.
pub(super) fn encode_end(record: &UsageRecord, out: &mut Vec<u8>) -> Result<(), TooLarge> {
    const TEXT: usize = 4_096;
    frame::encode(EntryKind::End, record, out).or_else(|TooLarge| {
        let mut cut = record.clone();
        cut.trace.clear();
        frame::encode(EntryKind::End, &cut, out).or_else(|TooLarge| {
            cut.dropped.clear();
            let texts = [&mut cut.detail, &mut cut.reason, &mut cut.client_request_id, &mut cut.address, &mut cut.model];
            for text in texts.into_iter().flatten() {
                text.truncate(text.floor_char_boundary(TEXT));
            }
            frame::encode(EntryKind::End, &cut, out)
        })
    })
}
