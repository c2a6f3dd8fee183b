//! How far the answer of a stream has come.

use tollgate_protocol::{ReplySummary, StreamRelay};

/// How far the answer of a stream has come. Comments, empty deltas and growing usage figures do not count as progress; pieces of a
/// call do, also where the caller gets nothing of it before it is whole.
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
