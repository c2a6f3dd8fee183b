//! Settlement: tokens, cost and sale amount of a finished request, as a usage record.

mod billing;
mod bounds;
mod count;
mod interrupted;
mod price_lines;
mod production;

use std::sync::Arc;

use minicbor::{Decode, Encode};
use serde::{Deserialize, Serialize};
use smallvec::SmallVec;
use tollgate_protocol::{Method, Protocol, ReplySummary};

pub use bounds::{UsageBounds, UsageExcess};
pub use count::{InputCount, amount, count_input, estimate_input, estimate_output, reported_tokens};
pub(crate) use count::{UnseenTokens, estimate_searches, unseen_tokens};
pub use interrupted::{AttemptStart, StartedAttempt, StreamProgress, settle_stopped};
pub use price_lines::{ExactAmount, PriceLine, PriceLines, is_counted_by_piece, price_lines};
pub use production::{RequestSize, usage_excess};

use billing::{BillingInput, PricedAmount, attempt_tokens};
use production::Production;

use crate::{
    AttemptRecord, AttemptResult, Group, Key, Multiplier, NanoUsd, Outcome, PlannedAttempt, RequestId, Revision, SharedPrice,
    ShortText, StreamBreak, Tags, Timestamp, TokenSource, Tokens, TraceEntry, UsageRecord,
};

/// Length limit of recorded model names, in characters.
const MODEL_CHARS: usize = 256;
/// Reason of a record whose amount exceeds 10,000 USD.
pub const OVERFLOW: &str = "overflow";
/// Reason of a record in which part of the reported usage is not billed.
const USAGE_EXCESS: &str = "usage_excess";

/// Everything known about a request when it ends.
#[derive(Clone, Debug)]
pub struct RequestFacts {
    pub id: RequestId,
    pub at: Timestamp,
    pub key: Arc<Key>,
    /// Group that served it, or the one in which a refused request counts.
    pub group: Option<Arc<Group>>,
    pub protocol_in: Protocol,
    pub method: Method,
    /// Requested model; `None` when the body could not be read.
    pub model: Option<ShortText>,
    /// Whether the answer streamed.
    pub stream: bool,
    /// HTTP status sent to the caller; 499 when the caller left before one was sent.
    pub status: u16,
    pub outcome: Outcome,
    /// Error id, exclusion code or another code.
    pub reason: Option<String>,
    /// The message sent to the caller.
    pub detail: Option<String>,
    /// Sale price at routing time, before the group's multiplier; `None`: unpriced.
    pub sale: Option<SharedPrice>,
    /// The group's factor on the sale price of the model at routing time.
    pub sale_multiplier: Multiplier,
    /// Catalog revision the prices come from.
    pub price_version: Revision,
    /// Local count of the input; zero when the body could not be read.
    pub input: InputCount,
    /// Bounds of the usage an upstream may report.
    pub bounds: UsageBounds,
    /// Content that reached the caller.
    pub delivered: DeliveredContent,
    /// Attempts, in order. The answer of a completed or broken request came from the last one.
    pub attempts: SmallVec<[AttemptFacts; 1]>,
    /// Microseconds to the first content byte sent to the caller.
    pub ttft_us: Option<u64>,
    /// Microseconds from arrival to the end.
    pub duration_us: u64,
    pub address: Option<ShortText>,
    /// The caller's own request id.
    pub client_request_id: Option<ShortText>,
    /// See [`UsageRecord::client`].
    pub client: Option<ShortText>,
    /// Bytes of the request's body, unpacked.
    pub request_bytes: u64,
    /// Entries of `x-tollgate-dropped`.
    pub dropped: Vec<String>,
    /// Candidates considered.
    pub trace: Vec<TraceEntry>,
    pub tags: Tags,
}

/// The facts about an attempt from which its entry in the usage record is computed.
#[derive(Clone, Debug)]
pub struct AttemptFacts {
    pub planned: Arc<PlannedAttempt>,
    pub at: Timestamp,
    /// HTTP status of the upstream, if it answered.
    pub status: Option<u16>,
    pub result: AttemptResult,
    /// Error id, when it failed.
    pub error: Option<String>,
    /// Summary of the answer, if one began.
    pub reply_summary: Option<ReplySummary>,
    /// Microseconds to the upstream's first byte.
    pub first_byte_us: Option<u64>,
    /// Microseconds to its end.
    pub duration_us: u64,
    pub upstream_request_id: Option<ShortText>,
    /// A hedged attempt that lost to the one that answered.
    pub hedged: bool,
    /// The failure, for operators.
    pub message: Option<String>,
    /// Microseconds until its first byte was sent.
    pub sent_us: Option<u64>,
}

/// Amount of content of an answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, Encode, Decode)]
#[serde(default)]
pub struct DeliveredContent {
    /// True when there was any content.
    #[n(0)]
    pub content: bool,
    /// Bytes of text, thoughts and call arguments.
    #[n(1)]
    pub text_bytes: u64,
    #[n(2)]
    pub media: u32,
    /// Web searches by the provider; `None`: none were reported.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[n(3)]
    pub searches: Option<u32>,
}

impl From<ReplySummary> for DeliveredContent {
    fn from(reply_summary: ReplySummary) -> Self {
        let ReplySummary { content, text_bytes, media, searches, .. } = reply_summary;
        Self { content, text_bytes, media, searches }
    }
}

impl RequestFacts {
    pub const fn size(&self) -> RequestSize {
        RequestSize { method: self.method, stream: self.stream, input: self.input, bounds: self.bounds }
    }
}

/// The record of one attempt, for [`AttemptStart::earlier`] and the usage record.
pub fn settle_attempt(attempt: &AttemptFacts, size: &RequestSize) -> AttemptRecord {
    priced_attempt(attempt, size, &Production::of(attempt, size)).0
}

/// The usage record of a request that ended in this process.
pub fn settle(facts: RequestFacts) -> UsageRecord {
    let mut cost = PricedAmount::Known(NanoUsd::ZERO);
    let mut attempts = Vec::with_capacity(facts.attempts.len());
    let (size, mut production) = (facts.size(), Production::default());
    for attempt in &facts.attempts {
        production = Production::of(attempt, &size);
        let (record, priced) = priced_attempt(attempt, &size, &production);
        cost = cost.plus(priced);
        attempts.push(record);
    }
    let billed = billing_input(&facts, production).tokens();
    let sale = PricedAmount::sale(billed.as_ref(), facts.sale.as_deref(), facts.sale_multiplier);
    let overflow = sale == PricedAmount::Overflow || cost == PricedAmount::Overflow;
    // A count by the gateway itself is marked as estimated.
    let own_count = facts.method == Method::CountTokens && facts.outcome == Outcome::Completed && attempts.is_empty();
    let unbilled = Tokens { source: if own_count { TokenSource::Estimated } else { TokenSource::None }, ..Tokens::default() };
    let (reason, detail) = marked(&facts, overflow);
    let finish = facts.attempts.last().and_then(|attempt| attempt.reply_summary?.finish);
    UsageRecord {
        id: facts.id,
        at: facts.at,
        key: facts.key.id,
        key_name: (&facts.key.name).into(),
        member: facts.key.member.id,
        group: facts.group.as_ref().map(|group| group.id),
        group_name: facts.group.as_ref().map(|group| (&group.name).into()),
        protocol_in: facts.protocol_in,
        protocol_out: attempts.last().map(|attempt| attempt.protocol),
        method: facts.method,
        model: facts.model.map(cut_model),
        stream: facts.stream,
        status: facts.status,
        outcome: facts.outcome,
        reason,
        detail,
        tokens: billed.unwrap_or(unbilled),
        cost: cost.known(),
        sale: sale.known(),
        price_version: facts.price_version,
        ttft_us: facts.ttft_us,
        duration_us: facts.duration_us,
        address: facts.address,
        client_request_id: facts.client_request_id,
        dropped: facts.dropped,
        trace: facts.trace,
        attempts,
        tags: facts.tags,
        sale_multiplier: facts.sale_multiplier,
        finish,
        client: facts.client,
        request_bytes: facts.request_bytes,
    }
}

/// Reason and detail of the record.
fn marked(facts: &RequestFacts, overflow: bool) -> (Option<String>, Option<String>) {
    if overflow {
        return (Some(OVERFLOW.to_owned()), facts.detail.clone());
    }
    let excess = facts.attempts.last().and_then(|last| usage_excess(last, &facts.bounds));
    match excess.filter(|_| facts.reason.is_none()) {
        Some(excess) => (Some(USAGE_EXCESS.to_owned()), Some(excess.detail())),
        None => (facts.reason.clone(), facts.detail.clone()),
    }
}

fn billing_input(facts: &RequestFacts, production: Production) -> BillingInput {
    let last = facts.attempts.last();
    let answered = last.is_some_and(|attempt| attempt.reply_summary.is_some());
    BillingInput {
        method: facts.method,
        outcome: facts.outcome,
        policy: facts.group.as_ref().map_or(StreamBreak::default(), |group| group.stream_break),
        input: facts.input,
        production: if answered { production } else { Production { content: facts.delivered, ..production } },
        in_flight: last.is_some_and(|attempt| match attempt.result {
            AttemptResult::Answered | AttemptResult::Broke | AttemptResult::Cancelled => true,
            AttemptResult::NotSent | AttemptResult::Refused | AttemptResult::Failed => false,
        }),
        delivered: facts.delivered,
    }
}

fn priced_attempt(attempt: &AttemptFacts, size: &RequestSize, production: &Production) -> (AttemptRecord, PricedAmount) {
    let planned = &attempt.planned;
    let tokens = attempt_tokens(size.method, attempt.result, size.input, production);
    let cost =
        PricedAmount::cost(attempt.result, size.method, &tokens, planned.cost.as_deref(), planned.account.spec.cost_multiplier);
    let record = AttemptRecord {
        channel: planned.channel.id,
        channel_name: (&planned.channel.spec.name).into(),
        account: planned.account.id,
        account_name: (&planned.account.spec.name).into(),
        protocol: planned.protocol,
        upstream_model: (&planned.mapping().upstream).into(),
        at: attempt.at,
        status: attempt.status,
        result: attempt.result,
        error: attempt.error.clone(),
        tokens,
        cost: cost.known(),
        first_byte_us: attempt.first_byte_us,
        duration_us: attempt.duration_us,
        upstream_request_id: attempt.upstream_request_id.clone(),
        hedged: attempt.hedged,
        cost_multiplier: planned.account.spec.cost_multiplier,
        message: attempt.message.clone(),
        sent_us: attempt.sent_us,
    };
    (record, cost)
}

fn cut_model(model: ShortText) -> ShortText {
    match model.char_indices().nth(MODEL_CHARS) {
        Some((end, _)) => model[..end].into(),
        None => model,
    }
}

#[cfg(test)]
mod tests;
