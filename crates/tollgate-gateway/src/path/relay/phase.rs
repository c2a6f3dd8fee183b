//! The state of a relayed stream, and why it is broken off.

use std::pin::Pin;

use tokio::time::Instant;
use tollgate_protocol::StreamError;

use crate::refusal::Refusal;

/// State of a relayed stream.
pub(super) enum Phase {
    Flowing,
    /// The answer is probably complete, but only the end of the body confirms it. Its last bytes are held until then, at most until
    /// `until`.
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
    /// The stream has ended. The server aborts a connection only after the bytes before the abort are sent.
    Done,
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
    /// The upstream reports, after the status was sent, that the request is too long for the model.
    TooLong,
    /// The upstream reports, after the status was sent, that the account is at its limit; with the seconds to wait, if
    /// stated.
    RateLimited(Option<u32>),
    /// The upstream reports, after the status was sent, that it is overloaded.
    Overloaded(Option<u32>),
    /// The upstream was silent for too long.
    Idle,
    /// There is no memory for the parts of the stream that must be kept, or none within the key's share.
    NoMemory,
    /// The gateway stops, and the drain time is over.
    GatewayStopped,
    /// The caller's key is revoked or disabled, or its member suspended.
    AccessLost(Refusal),
}

impl Break {
    /// The reason for a fault in the upstream's stream.
    pub(super) fn of(fault: &StreamError) -> Self {
        match fault {
            StreamError::Problem(problem) if problem.context_exceeded => Self::TooLong,
            StreamError::Problem(problem) if problem.status == 429 && !problem.quota_exhausted => {
                Self::RateLimited(problem.retry_after)
            }
            StreamError::Problem(problem) if matches!(problem.status, 503 | 529) => Self::Overloaded(problem.retry_after),
            StreamError::Problem(_) | StreamError::Malformed(_) | StreamError::Truncated => Self::Interrupted,
        }
    }
}
