//! Encoding and decoding of journal entries.

use tollgate_core::{AttemptStart, RequestId, StreamProgress, UsageRecord};

use super::frame::{self, EntryKind, FrameTooLarge};

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
    frame::encode(EntryKind::Begin, begin, out).or_else(|FrameTooLarge| {
        let shortened = AttemptStart { dropped: Vec::new(), earlier: Vec::new(), client_request_id: None, ..begin.clone() };
        frame::encode(EntryKind::Begin, &shortened, out)
    })
}

/// Encodes the end of a request. If it exceeds a frame, first the trace is omitted, then long texts are truncated.
pub(super) fn encode_end(record: &UsageRecord, out: &mut Vec<u8>) -> Result<(), FrameTooLarge> {
    const TEXT_LIMIT: usize = 4_096;
    frame::encode(EntryKind::End, record, out).or_else(|FrameTooLarge| {
        let mut shortened = record.clone();
        shortened.trace.clear();
        frame::encode(EntryKind::End, &shortened, out).or_else(|FrameTooLarge| {
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
            frame::encode(EntryKind::End, &shortened, out)
        })
    })
}
