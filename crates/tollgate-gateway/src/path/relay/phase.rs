//! Where the relaying of a stream stands, how far its answer has come, and why it is broken off.

use std::pin::Pin;

use tokio::time::Instant;
use tollgate_protocol::ReplySummary;

use crate::refusal::Refusal;

/// Where the relaying of a stream stands.
pub(super) enum Phase {
    Flowing,
    /// The answer is probably complete, but only the end of the body will tell. Until then, or for a moment, its bytes wait.
    Holding {
        until: Instant,
    },
    /// The answer is complete. Its last bytes wait until the upstream ends or usage is known.
    Ending {
        until: Instant,
    },
    /// The record is written. The last bytes wait for the journal's flush.
    Flushing {
        flush: Pin<Box<dyn Future<Output = ()> + Send>>,
        then: Close,
    },
    Closing(Close),
    /// Nothing is left. The server aborts a connection only after the bytes before the abort are sent.
    Done,
}

/// How far an answer has come. Comments, empty deltas and growing usage figures do not count as progress.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Progress {
    pub(super) text_bytes: u64,
    pub(super) media: u32,
    pub(super) unknown: u32,
    pub(super) usage: bool,
    pub(super) finish: bool,
}

impl Progress {
    pub(super) fn of(summary: &ReplySummary) -> Self {
        let ReplySummary { text_bytes, media, unknown, usage, finish, .. } = summary;
        let (text_bytes, media, unknown) = (*text_bytes, *media, *unknown);
        Self { text_bytes, media, unknown, usage: usage.is_some(), finish: finish.is_some() }
    }
}

#[derive(Clone, Copy)]
pub(super) enum Close {
    Cleanly,
    Abort,
}

/// Why a stream is broken off.
pub(super) enum Break {
    /// The upstream's connection broke, or its bytes are invalid.
    Interrupted,
    /// The upstream was silent for too long.
    Idle,
    /// There is no memory for what has to be kept of the stream, or none within the key's share.
    NoMemory,
    /// The gateway stops, and the drain time is over.
    GatewayStopped,
    /// The caller's key is revoked or disabled, or its member suspended.
    AccessLost(Refusal),
}
