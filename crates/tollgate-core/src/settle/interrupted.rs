//! What the journal writes before an attempt and in the middle of a stream, and the record made of it when the
//! gateway was killed.

use serde::{Deserialize, Serialize};
use tollgate_protocol::{Method, Protocol, Usage};

use super::{
    DeliveredContent, InputCount,
    billing::{BillingInput, PricedAmount, attempt_tokens},
    count::believed,
};
use crate::{
    AccountId, AttemptRecord, AttemptResult, ChannelId, GroupId, KeyId, MemberId, Multiplier, NanoUsd, Outcome, Price, RequestId,
    Revision, StreamBreak, Timestamp, TokenSource, UsageRecord,
};

/// Written before an attempt's first byte goes upstream: all that a record needs when nothing else gets written.
/// Field names are part of the journal's format, so a new field needs a default.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AttemptStart {
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
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    /// Caller's own request id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_request_id: Option<String>,
    /// Entries of `x-tollgate-dropped`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub dropped: Vec<String>,
    /// Catalog revision the prices come from.
    pub price_version: Revision,
    /// Sale list; `None`: not priced.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sale: Option<Price>,
    /// The group's factor.
    pub sale_multiplier: Multiplier,
    /// The group's policy.
    pub policy: StreamBreak,
    /// Local count of the input.
    pub input: InputCount,
    /// Attempts of this request that ended before this one, settled.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub earlier: Vec<AttemptRecord>,
    /// The attempt that begins.
    pub attempt: StartedAttempt,
}

/// The attempt of a [`AttemptStart`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StartedAttempt {
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
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost: Option<Price>,
    /// The account's factor.
    pub cost_multiplier: Multiplier,
}

/// Written at most every 2 s of a stream: what reached the caller so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StreamProgress {
    /// Request id.
    pub id: RequestId,
    /// When.
    pub at: Timestamp,
    /// What reached the caller.
    pub delivered: DeliveredContent,
    /// What the upstream reported so far.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<Usage>,
}

/// The record of a request whose gateway was killed: outcome `gateway_stopped`, status 0, since nobody can tell what the
/// caller saw. `begins` are its `begin` entries in order, `progress` the last one. Gives the same record whenever it is
/// called. `None` when `begins` is empty.
#[must_use]
pub fn settle_stopped(begins: &[AttemptStart], progress: Option<&StreamProgress>) -> Option<UsageRecord> {
    let last = begins.last()?;
    let delivered = progress.map_or(DeliveredContent::default(), |it| it.delivered);
    let usage = believed(progress.and_then(|it| it.usage));
    let ended = progress.map_or(last.attempt.at, |it| it.at).max(last.at);

    let mut attempts = last.earlier.clone();
    let mut cost = attempts
        .iter()
        .map(|it| it.cost.map_or(PricedAmount::Unpriced, PricedAmount::Known))
        .fold(PricedAmount::Known(NanoUsd::ZERO), PricedAmount::plus);
    // Attempts whose end nobody wrote down are taken as sent and unanswered, the last one with what came of it.
    for (at, begin) in begins.iter().enumerate().skip(attempts.len()) {
        let (given, usage) = if at + 1 == begins.len() { (delivered, usage) } else { (DeliveredContent::default(), None) };
        let (record, priced) = stopped_attempt(begin, given, usage, ended);
        cost = cost.plus(priced);
        attempts.push(record);
    }

    let bill = BillingInput {
        method: last.method,
        outcome: Outcome::GatewayStopped,
        policy: last.policy,
        input: last.input,
        usage,
        usage_source: TokenSource::Provider,
        in_flight: true,
        produced: delivered,
        delivered,
    };
    let billed = bill.tokens();
    let sale = PricedAmount::sale(billed.as_ref(), last.sale.as_ref(), last.sale_multiplier);
    let overflow = sale == PricedAmount::Overflow || cost == PricedAmount::Overflow;
    Some(UsageRecord {
        id: last.id,
        at: last.at,
        key: last.key,
        key_name: last.key_name.clone(),
        member: last.member,
        group: Some(last.group),
        group_name: Some(last.group_name.clone()),
        protocol_in: last.protocol_in,
        protocol_out: Some(last.attempt.protocol),
        method: last.method,
        model: Some(last.model.clone()),
        stream: last.stream,
        status: 0,
        outcome: Outcome::GatewayStopped,
        reason: Some(if overflow { "overflow" } else { "gateway_stopped" }.to_owned()),
        detail: None,
        tokens: billed.unwrap_or_default(),
        cost: cost.known(),
        sale: sale.known(),
        price_version: last.price_version,
        ttft_us: None,
        duration_us: us_between(last.at, ended),
        address: last.address.clone(),
        client_request_id: last.client_request_id.clone(),
        dropped: last.dropped.clone(),
        trace: Vec::new(),
        attempts,
    })
}

fn stopped_attempt(
    begin: &AttemptStart,
    given: DeliveredContent,
    usage: Option<Usage>,
    ended: Timestamp,
) -> (AttemptRecord, PricedAmount) {
    let attempt = &begin.attempt;
    let result = if given.content { AttemptResult::Broke } else { AttemptResult::Failed };
    let usage = usage.map(|usage| (usage, TokenSource::Provider));
    let tokens = attempt_tokens(begin.method, result, begin.input, given, usage);
    let cost = PricedAmount::cost(result, begin.method, &tokens, attempt.cost.as_ref(), attempt.cost_multiplier);
    let record = AttemptRecord {
        channel: attempt.channel,
        channel_name: attempt.channel_name.clone(),
        account: attempt.account,
        account_name: attempt.account_name.clone(),
        protocol: attempt.protocol,
        upstream_model: attempt.upstream_model.clone(),
        at: attempt.at,
        status: None,
        result,
        error: None,
        tokens,
        cost: cost.known(),
        first_byte_us: None,
        duration_us: us_between(attempt.at, ended),
        upstream_request_id: None,
        hedged: false,
    };
    (record, cost)
}

fn us_between(from: Timestamp, to: Timestamp) -> u64 {
    u64::try_from(to.0.saturating_sub(from.0)).unwrap_or(0)
}
