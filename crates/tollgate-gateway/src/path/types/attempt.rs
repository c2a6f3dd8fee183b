//! An attempt that may be sent, and its answer.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use tokio::time::Instant;
use tollgate_core::PlannedAttempt;
use tollgate_protocol::{ReplySummary, StreamError, StreamRelay};

use super::{
    context::RouteContext, failure::Failure, request_bodies::UpstreamRequest, stream_memory::StreamMemory,
    usage_guard::AttemptProgress,
};
use crate::upstream::call::UpstreamBody;

/// An attempt that may be sent: its beginning is in the journal.
pub(crate) struct StartedAttempt<'a> {
    pub(crate) context: &'a RouteContext<'a>,
    pub(crate) planned: Arc<PlannedAttempt>,
    pub(crate) request: UpstreamRequest,
    pub(crate) progress: Arc<AttemptProgress>,
    /// Longest wait for the first content of a stream whose upstream is alive; then the status is sent without it. `None`: no limit.
    pub(crate) answer_after: Option<Duration>,
}

/// Deadline for the complete answer of an attempt, and the channel's limit that sets it, in milliseconds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AttemptLimit {
    pub at: Instant,
    pub ms: u64,
}

/// How an attempt ended, and which one it was.
pub(crate) type AttemptOutcome = Result<(AttemptAnswer, Arc<PlannedAttempt>), (Failure, Arc<PlannedAttempt>)>;

/// An answer for the caller.
pub(crate) enum AttemptAnswer {
    /// A complete answer, checked.
    Whole {
        body: Bytes,
        summary: ReplySummary,
        /// Whether the body is an event stream.
        events: bool,
    },
    /// A stream whose first content has arrived or whose model has been thinking for long, or a complete answer in pieces.
    Stream(Streaming),
}

/// A stream whose status 200 may be sent.
pub(crate) struct Streaming {
    /// Converts the upstream's bytes for the caller.
    pub relay: Box<dyn StreamRelay>,
    /// Chunks for the caller that were read so far.
    pub first: Vec<Bytes>,
    pub rest: Rest,
    /// Counts the memory that the relay and `first` keep.
    pub memory: StreamMemory,
    /// Longest silence allowed to the upstream, in milliseconds.
    pub idle_ms: u64,
    /// Silence allowed until the first content, in milliseconds, if the status is sent before it: the model thinks.
    pub before_content_ms: Option<u64>,
    /// Deadline for the complete answer, if the channel limits the attempt.
    pub limit: Option<AttemptLimit>,
    /// Deadline for a complete answer that is passed on in pieces; `None` for an event stream.
    pub whole_by: Option<Instant>,
}

/// The rest of a stream after its first content.
pub(crate) enum Rest {
    Pending(UpstreamBody),
    /// The upstream ended and the relay is finished.
    Ended,
    /// The chunk that contained the first content also broke the stream.
    Broken(StreamError),
}

/// Whether the status 200 may be sent: content has arrived, or the answer is complete without any.
pub(crate) fn may_send_status(summary: &ReplySummary, relay: &dyn StreamRelay) -> bool {
    summary.content || relay.complete()
}
