//! How far the answer of a stream has come.

use tollgate_protocol::{ReplySummary, StreamRelay};

/// Progress of a streamed answer. Comments, empty deltas and growing usage figures are not progress. Pieces of a call are, even if
/// the caller receives the call only once it is complete.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct StreamProgress {
    content_bytes: u64,
    media: u32,
    unknown: u32,
    usage: bool,
    pub(crate) finish: bool,
}

impl StreamProgress {
    pub(crate) fn of(relay: &dyn StreamRelay) -> Self {
        let ReplySummary { media, unknown, usage, finish, .. } = relay.summary();
        let content_bytes = relay.received_content_bytes();
        Self { content_bytes, media, unknown, usage: usage.is_some(), finish: finish.is_some() }
    }
}
