//! What a request came to: tokens, cost, sale and the usage record.

mod begin;
mod count;

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use tollgate_protocol::{Method, Protocol, Reading};

pub use begin::{Begin, BeginAttempt, Progress, settle_stopped};
pub use count::{InputCount, amount, count_input, count_output, estimate_input, estimate_output, tokens_of};

use crate::{
    AttemptResult, Group, Key, NanoUsd, Outcome, PlannedAttempt, Price, RequestId, Revision, Timestamp, TraceEntry, UsageRecord,
};

/// Everything known of a request at its end.
#[derive(Clone, Debug)]
pub struct Facts {
    /// Request id.
    pub id: RequestId,
    /// Arrival.
    pub at: Timestamp,
    /// Key, with its member.
    pub key: Arc<Key>,
    /// Group that served it; `None` when refused before one was chosen.
    pub group: Option<Arc<Group>>,
    /// Caller's protocol.
    pub protocol_in: Protocol,
    /// What was asked.
    pub method: Method,
    /// Model as asked; `None` when the body could not be read.
    pub model: Option<String>,
    /// Whether the answer streamed.
    pub stream: bool,
    /// HTTP status the caller got; 499 when he left before one was sent.
    pub status: u16,
    /// How it ended.
    pub outcome: Outcome,
    /// Error id, exclusion or other word.
    pub reason: Option<String>,
    /// The message the caller saw.
    pub detail: Option<String>,
    /// The sale list frozen at routing, before the group's multiplier; `None`: not priced.
    pub sale: Option<Price>,
    /// Catalog revision the prices come from.
    pub price_version: Revision,
    /// Local count of the input; zero when the body could not be read.
    pub input: InputCount,
    /// What reached the caller.
    pub delivered: Delivered,
    /// Attempts, in order. For a completed or broken answer the last one gave it.
    pub attempts: Vec<AttemptFacts>,
    /// Microseconds to the first content byte handed to the caller.
    pub ttft_us: Option<u64>,
    /// Microseconds from arrival to the end.
    pub duration_us: u64,
    /// Caller's address.
    pub address: Option<String>,
    /// Caller's own request id.
    pub client_request_id: Option<String>,
    /// Entries of `x-tollgate-dropped`.
    pub dropped: Vec<String>,
    /// Candidates considered.
    pub trace: Vec<TraceEntry>,
}

/// One try, as the attempt loop saw it.
#[derive(Clone, Debug)]
pub struct AttemptFacts {
    /// What was planned.
    pub planned: PlannedAttempt,
    /// When it began.
    pub at: Timestamp,
    /// HTTP status of the upstream, if one came.
    pub status: Option<u16>,
    /// How it ended.
    pub result: AttemptResult,
    /// Error id, when it failed.
    pub error: Option<String>,
    /// What was read of the answer, if one began.
    pub reading: Option<Reading>,
    /// Microseconds to the upstream's first byte.
    pub first_byte_us: Option<u64>,
    /// Microseconds to its end.
    pub duration_us: u64,
    /// The upstream's own request id.
    pub upstream_request_id: Option<String>,
}

/// What of an answer reached the caller.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Delivered {
    /// Whether any content did.
    pub content: bool,
    /// Bytes of text, thought and call arguments.
    pub text_bytes: u64,
    /// Items of media.
    pub media: u32,
}

impl From<Reading> for Delivered {
    fn from(reading: Reading) -> Self {
        Self { content: reading.content, text_bytes: reading.text_bytes, media: reading.media }
    }
}

/// The usage record of a request that ended in this process.
#[must_use]
pub fn settle(facts: Facts) -> UsageRecord {
    let _ = (NanoUsd(0), facts);
    unimplemented!()
}
