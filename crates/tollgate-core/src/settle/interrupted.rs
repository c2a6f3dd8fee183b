//! Journal entries written before an attempt and during a stream, and the usage record built from them after the gateway was
//! killed.

use std::borrow::Cow;

use minicbor::{Decode, Encode};
use serde::{Deserialize, Serialize};
use tollgate_protocol::{Method, Protocol, Usage};

use super::{
    DeliveredContent, InputCount, UsageBounds,
    billing::{BillingInput, PricedAmount, attempt_tokens},
    bounds::plausible,
    production::Production,
};
use crate::{
    AccountId, AttemptRecord, AttemptResult, ChannelId, GroupId, KeyId, MemberId, Multiplier, NanoUsd, Outcome, Price, RequestId,
    Revision, StreamBreak, Tags, Timestamp, TokenSource, UsageRecord,
};

/// Written before an attempt's first byte is sent: everything a record needs if nothing else gets written.
/// Numbers and names of fields are part of the journal's format, so a new field is optional or has a default.
/// Texts are borrowed where the entry is written, and owned where it was read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, Encode, Decode)]
pub struct AttemptStart<'a> {
    /// Request id, also the record's.
    #[n(0)]
    pub id: RequestId,
    #[n(1)]
    pub at: Timestamp,
    #[n(2)]
    pub key: KeyId,
    #[n(3)]
    pub key_name: Cow<'a, str>,
    #[n(4)]
    pub member: MemberId,
    #[n(5)]
    pub group: GroupId,
    #[n(6)]
    pub group_name: Cow<'a, str>,
    #[n(7)]
    pub protocol_in: Protocol,
    #[n(8)]
    pub method: Method,
    #[n(9)]
    pub model: Cow<'a, str>,
    /// True when the answer is to be streamed.
    #[n(10)]
    pub stream: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[n(11)]
    pub address: Option<Cow<'a, str>>,
    /// The caller's own request id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[n(12)]
    pub client_request_id: Option<Cow<'a, str>>,
    /// Entries of `x-tollgate-dropped`.
    #[serde(default, skip_serializing_if = "<[String]>::is_empty")]
    #[cbor(n(13), skip_if = "<[String]>::is_empty")]
    pub dropped: Cow<'a, [String]>,
    /// Catalog revision the prices come from.
    #[n(14)]
    pub price_version: Revision,
    /// Sale price; `None`: unpriced.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[n(15)]
    pub sale: Option<Cow<'a, Price>>,
    #[n(16)]
    pub sale_multiplier: Multiplier,
    #[n(17)]
    pub policy: StreamBreak,
    #[n(18)]
    pub input: InputCount,
    #[serde(default)]
    #[n(19)]
    pub bounds: UsageBounds,
    /// Settled attempts of this request that ended before this one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[cbor(n(20), skip_if = "Vec::is_empty")]
    pub earlier: Vec<AttemptRecord>,
    #[n(21)]
    pub attempt: StartedAttempt<'a>,
    #[serde(default, skip_serializing_if = "Tags::is_empty")]
    #[cbor(n(22), skip_if = "Tags::is_empty")]
    pub tags: Cow<'a, Tags>,
}

/// An attempt in the journal's `begin` entry. The numbers are part of the journal's format.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, Encode, Decode)]
pub struct StartedAttempt<'a> {
    #[n(0)]
    pub channel: ChannelId,
    #[n(1)]
    pub channel_name: Cow<'a, str>,
    #[n(2)]
    pub account: AccountId,
    #[n(3)]
    pub account_name: Cow<'a, str>,
    #[n(4)]
    pub protocol: Protocol,
    /// Model name sent upstream.
    #[n(5)]
    pub upstream_model: Cow<'a, str>,
    #[n(6)]
    pub at: Timestamp,
    /// Cost price; `None`: unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[n(7)]
    pub cost: Option<Cow<'a, Price>>,
    #[n(8)]
    pub cost_multiplier: Multiplier,
}

/// Written at most every 2 s during a stream: what reached the caller so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, Encode, Decode)]
pub struct StreamProgress {
    #[n(0)]
    pub id: RequestId,
    #[n(1)]
    pub at: Timestamp,
    /// Content that reached the caller.
    #[n(2)]
    pub delivered: DeliveredContent,
    /// Usage the upstream reported so far.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[n(3)]
    pub usage: Option<Usage>,
}

/// The record of a request whose gateway was killed: outcome `gateway_stopped`, status 0, because the caller's view is unknown.
/// `begins` are its `begin` entries in order, `progress` is the last one. Deterministic, so recovery may run again. `None` when
/// `begins` is empty.
pub fn settle_stopped(begins: &[AttemptStart<'_>], progress: Option<&StreamProgress>) -> Option<UsageRecord> {
    let last = begins.last()?;
    let delivered = progress.map_or(DeliveredContent::default(), |it| it.delivered);
    let searches = last.bounds.searches(delivered.searches, last.attempt.protocol);
    let produced = Production { content: delivered, usage: reported(last, progress), searches, ..Production::default() };
    let ended = progress.map_or(last.attempt.at, |it| it.at).max(last.at);

    let mut attempts = last.earlier.clone();
    let mut cost = attempts
        .iter()
        .map(|it| it.cost.map_or(PricedAmount::Unpriced, PricedAmount::Known))
        .fold(PricedAmount::Known(NanoUsd::ZERO), PricedAmount::plus);
    // Attempts without a recorded end count as sent and unanswered; the last one has the content of `progress`.
    for (at, begin) in begins.iter().enumerate().skip(attempts.len()) {
        let produced = if at + 1 == begins.len() { produced } else { Production::default() };
        let (record, priced) = stopped_attempt(begin, &produced, ended);
        cost = cost.plus(priced);
        attempts.push(record);
    }

    let billing_input = BillingInput {
        method: last.method,
        outcome: Outcome::GatewayStopped,
        policy: last.policy,
        input: last.input,
        production: produced,
        in_flight: true,
        delivered,
    };
    let billed = billing_input.tokens();
    let sale = PricedAmount::sale(billed.as_ref(), last.sale.as_deref(), last.sale_multiplier);
    let overflow = sale == PricedAmount::Overflow || cost == PricedAmount::Overflow;
    Some(UsageRecord {
        id: last.id,
        at: last.at,
        key: last.key,
        key_name: (&*last.key_name).into(),
        member: last.member,
        group: Some(last.group),
        group_name: Some((&*last.group_name).into()),
        protocol_in: last.protocol_in,
        protocol_out: Some(last.attempt.protocol),
        method: last.method,
        model: Some((&*last.model).into()),
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
        address: last.address.as_deref().map(Into::into),
        client_request_id: last.client_request_id.as_deref().map(Into::into),
        dropped: last.dropped.to_vec(),
        trace: Vec::new(),
        attempts,
        tags: last.tags.clone().into_owned(),
        sale_multiplier: last.sale_multiplier,
        finish: None,
        client: None,
        request_bytes: 0,
    })
}

/// The usage reported before the end, cut to the bounds of a model that thinks.
fn reported(begin: &AttemptStart<'_>, progress: Option<&StreamProgress>) -> Option<(Usage, TokenSource)> {
    let progress = progress?;
    let usage = plausible(progress.usage)?;
    Some(match begin.bounds.cut(usage, progress.delivered, || true) {
        (cut, Some(_)) => (cut, TokenSource::Estimated),
        (usage, None) => (usage, TokenSource::Provider),
    })
}

fn stopped_attempt(begin: &AttemptStart<'_>, produced: &Production, ended: Timestamp) -> (AttemptRecord, PricedAmount) {
    let attempt = &begin.attempt;
    let result = if produced.content.content { AttemptResult::Broke } else { AttemptResult::Failed };
    let tokens = attempt_tokens(begin.method, result, begin.input, produced);
    let cost = PricedAmount::cost(result, begin.method, &tokens, attempt.cost.as_deref(), attempt.cost_multiplier);
    let record = AttemptRecord {
        channel: attempt.channel,
        channel_name: (&*attempt.channel_name).into(),
        account: attempt.account,
        account_name: (&*attempt.account_name).into(),
        protocol: attempt.protocol,
        upstream_model: (&*attempt.upstream_model).into(),
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
        cost_multiplier: attempt.cost_multiplier,
        message: None,
        sent_us: None,
    };
    (record, cost)
}

fn us_between(from: Timestamp, to: Timestamp) -> u64 {
    u64::try_from(to.0.saturating_sub(from.0)).unwrap_or(0)
}
