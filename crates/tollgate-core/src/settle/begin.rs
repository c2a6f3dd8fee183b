//! What the journal writes before an attempt and in the middle of a stream, and the record made of it when the
//! gateway was killed.

use serde::{Deserialize, Serialize};
use tollgate_protocol::{Method, Protocol, Usage};

use super::{Delivered, InputCount};
use crate::{
    AccountId, AttemptRecord, ChannelId, GroupId, KeyId, MemberId, Multiplier, Price, RequestId, Revision, StreamBreak, Timestamp,
    UsageRecord,
};

/// Written before an attempt's first byte goes upstream: all that a record needs when nothing else gets written.
/// Field names are part of the journal's format, so a new field needs a default.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Begin {
    /// Request id, also the record's.
    pub id: RequestId,
    /// Arrival.
    pub at: Timestamp,
    /// Key.
    pub key: KeyId,
    /// Key name.
    pub key_name: String,
    /// Member.
    pub member: MemberId,
    /// Group.
    pub group: GroupId,
    /// Group name.
    pub group_name: String,
    /// Caller's protocol.
    pub protocol_in: Protocol,
    /// What was asked.
    pub method: Method,
    /// Model as asked.
    pub model: String,
    /// Whether the answer is to stream.
    pub stream: bool,
    /// Caller's address.
    #[serde(default)]
    pub address: Option<String>,
    /// Caller's own request id.
    #[serde(default)]
    pub client_request_id: Option<String>,
    /// Entries of `x-tollgate-dropped`.
    #[serde(default)]
    pub dropped: Vec<String>,
    /// Catalog revision the prices come from.
    pub price_version: Revision,
    /// Sale list; `None`: not priced.
    pub sale: Option<Price>,
    /// The group's factor.
    pub sale_multiplier: Multiplier,
    /// The group's policy.
    pub policy: StreamBreak,
    /// Local count of the input.
    pub input: InputCount,
    /// Attempts of this request that ended before this one, settled.
    #[serde(default)]
    pub earlier: Vec<AttemptRecord>,
    /// The attempt that begins.
    pub attempt: BeginAttempt,
}

/// The attempt of a [`Begin`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BeginAttempt {
    /// Channel.
    pub channel: ChannelId,
    /// Channel name.
    pub channel_name: String,
    /// Account.
    pub account: AccountId,
    /// Account name.
    pub account_name: String,
    /// Protocol spoken.
    pub protocol: Protocol,
    /// Name sent upstream.
    pub upstream_model: String,
    /// When it began.
    pub at: Timestamp,
    /// Cost list; `None`: not known.
    pub cost: Option<Price>,
    /// The account's factor.
    pub cost_multiplier: Multiplier,
}

/// Written at most every 2 s of a stream: what reached the caller so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Progress {
    /// Request id.
    pub id: RequestId,
    /// When.
    pub at: Timestamp,
    /// What reached the caller.
    pub delivered: Delivered,
    /// What the upstream reported so far.
    #[serde(default)]
    pub usage: Option<Usage>,
}

/// The record of a request whose gateway was killed: outcome `gateway_stopped`. `begins` are its `begin` entries in
/// order, `progress` the last one. Gives the same record whenever it is called. `None` when `begins` is empty.
#[must_use]
pub fn settle_stopped(begins: &[Begin], progress: Option<&Progress>) -> Option<UsageRecord> {
    let _ = (begins, progress);
    unimplemented!()
}
