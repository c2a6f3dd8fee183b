//! Usage records: one per request, with an entry for each attempt. The journal keeps them as CBOR (RFC 8949) arrays, in which a
//! field's number is its position; numbers are never used again, and a new field is optional or has a default. JSON omits absent,
//! empty and zero values.

use std::borrow::Cow;

use minicbor::{Decode, Encode};
use serde::{Deserialize, Serialize};
use tollgate_protocol::{FinishReason, Method, Protocol};

use crate::{AccountId, ChannelId, GroupId, KeyId, MemberId, Multiplier, NanoUsd, RequestId, Revision, ShortText, Tags, Timestamp};

/// A request whose key was authenticated. Journals of version 0.1 hold it as JSON, so a new field needs a default.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, Encode, Decode)]
pub struct UsageRecord {
    /// Request id, as shown to the caller.
    #[n(0)]
    pub id: RequestId,
    #[n(1)]
    pub at: Timestamp,
    #[n(2)]
    pub key: KeyId,
    /// Name of the key at the time of the request.
    #[n(3)]
    pub key_name: ShortText,
    #[n(4)]
    pub member: MemberId,
    /// Group that served it, or the one in which a request that was refused before counts; `None` if its key has no group.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[n(5)]
    pub group: Option<GroupId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[n(6)]
    pub group_name: Option<ShortText>,
    #[n(7)]
    pub protocol_in: Protocol,
    /// Protocol of the last attempt's upstream.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[n(8)]
    pub protocol_out: Option<Protocol>,
    #[n(9)]
    pub method: Method,
    /// Requested model, cut to 256 characters; `None` when the body could not be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[n(10)]
    pub model: Option<ShortText>,
    /// Whether the answer streamed.
    #[n(11)]
    pub stream: bool,
    /// HTTP status sent to the caller; 499 when the caller left before one was sent.
    #[n(12)]
    pub status: u16,
    #[n(13)]
    pub outcome: Outcome,
    /// Error id (`E40`), exclusion code or another code; `None` when completed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[n(14)]
    pub reason: Option<String>,
    /// The message sent to the caller.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[n(15)]
    pub detail: Option<String>,
    /// Billed tokens by kind.
    #[n(16)]
    pub tokens: Tokens,
    /// Cost of all attempts; `None`: a cost price is unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[n(17)]
    pub cost: Option<NanoUsd>,
    /// Amount charged to the caller; `None`: unpriced.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[n(18)]
    pub sale: Option<NanoUsd>,
    /// Catalog revision the prices come from.
    #[n(19)]
    pub price_version: Revision,
    /// Microseconds to the first content byte sent to the caller.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[n(20)]
    pub ttft_us: Option<u64>,
    /// Microseconds from arrival to the end.
    #[n(21)]
    pub duration_us: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[n(22)]
    pub address: Option<ShortText>,
    /// The caller's own request id, if sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[n(23)]
    pub client_request_id: Option<ShortText>,
    /// Entries of `x-tollgate-dropped`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[cbor(n(24), skip_if = "Vec::is_empty")]
    pub dropped: Vec<String>,
    /// Candidates considered, and why others were excluded.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[cbor(n(25), skip_if = "Vec::is_empty")]
    pub trace: Vec<TraceEntry>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[cbor(n(26), skip_if = "Vec::is_empty")]
    pub attempts: Vec<AttemptRecord>,
    #[serde(default, skip_serializing_if = "Tags::is_empty")]
    #[cbor(n(27), skip_if = "Tags::is_empty")]
    pub tags: Tags,
    /// The group's factor on the sale price of the model.
    #[serde(default, skip_serializing_if = "Multiplier::is_one")]
    #[cbor(n(28), skip_if = "Multiplier::is_one")]
    pub sale_multiplier: Multiplier,
    /// Why the answer ended, as reported by its upstream; `None`: no answer began, or no reason arrived.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[n(29)]
    pub finish: Option<FinishReason>,
    /// The caller's `user-agent`, cut to 64 visible ASCII characters and spaces; `None` if it sent none, or if the gateway was killed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[n(30)]
    pub client: Option<ShortText>,
    /// Bytes of the request's body, unpacked; 0 if it was not read whole, or if the gateway was killed.
    #[serde(default, skip_serializing_if = "is_zero")]
    #[cbor(n(31), default, skip_if = "is_zero")]
    pub request_bytes: u64,
}

impl UsageRecord {
    /// The attempt that answered, else the last one: channel and account of the record are those of this attempt.
    pub fn subject(&self) -> Option<usize> {
        let last = self.attempts.len().checked_sub(1);
        self.attempts.iter().rposition(|attempt| attempt.result == AttemptResult::Answered).or(last)
    }

    /// The model, if a group of the key offered it. Any other name is arbitrary text of the caller.
    pub fn offered_model(&self) -> Option<&str> {
        let is_unknown = self.attempts.is_empty() && matches!(self.reason.as_deref(), Some("E13" | "E14"));
        self.model.as_deref().filter(|_| self.group.is_some() && !is_unknown)
    }

    /// True if the caller got a complete answer without text, such as one whose limit was spent on thinking. Images and audio do not
    /// count as text.
    pub const fn is_empty_answer(&self) -> bool {
        let generates = matches!(self.method, Method::Chat | Method::Generate | Method::StreamGenerate);
        let Tokens { output, image, audio, .. } = self.tokens;
        matches!(self.outcome, Outcome::Completed) && generates && output == 0 && image == 0 && audio == 0
    }

    /// Microseconds in which no attempt was running: the gateway's own work and waits for capacity. `None` for requests without an
    /// attempt.
    pub fn overhead_us(&self) -> Option<u64> {
        let (mut covered_until, mut waited) = (self.at.0, 0_u64);
        let mut cover = |attempt: &AttemptRecord| {
            let end = attempt.at.0.saturating_add(i64::try_from(attempt.duration_us).unwrap_or(i64::MAX));
            waited = waited.saturating_add(u64::try_from(end - attempt.at.0.max(covered_until)).unwrap_or(0));
            covered_until = covered_until.max(end);
        };
        match &*self.attempts {
            [] => return None,
            [only] => cover(only),
            attempts => {
                // Hedged attempts overlap, and need not be recorded in the order in which they began.
                let mut attempts: Vec<&AttemptRecord> = attempts.iter().collect();
                attempts.sort_by_key(|attempt| attempt.at);
                attempts.into_iter().for_each(cover);
            }
        }
        Some(self.duration_us.saturating_sub(waited))
    }
}

/// How a request ended, as its usage record states it. The numbers are part of the journal's format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, Encode, Decode)]
#[serde(rename_all = "snake_case")]
#[cbor(index_only)]
pub enum Outcome {
    /// The caller received a complete answer.
    #[n(0)]
    Completed,
    /// The caller closed the connection first.
    #[n(1)]
    CallerLeft,
    /// The upstream failed before or during the answer.
    #[n(2)]
    UpstreamBroke,
    /// The gateway refused the request, or passed on an upstream's refusal.
    #[n(3)]
    Refused,
    /// The gateway was killed while the request was running.
    #[n(4)]
    GatewayStopped,
}

impl Outcome {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Completed => "completed",
            Self::CallerLeft => "caller_left",
            Self::UpstreamBroke => "upstream_broke",
            Self::Refused => "refused",
            Self::GatewayStopped => "gateway_stopped",
        }
    }
}

/// Token counts by kind. The kinds do not overlap, except `cache_write_1h`: a cached token is not counted as input, a thinking
/// token not as output. The journal keeps them as a map without zeros.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, Encode, Decode)]
#[serde(default)]
#[cbor(map)]
pub struct Tokens {
    /// Input, without the kinds below.
    #[serde(skip_serializing_if = "is_zero")]
    #[cbor(n(0), default, skip_if = "is_zero")]
    pub input: u64,
    /// Output, without thinking.
    #[serde(skip_serializing_if = "is_zero")]
    #[cbor(n(1), default, skip_if = "is_zero")]
    pub output: u64,
    /// Input read from the provider's cache.
    #[serde(skip_serializing_if = "is_zero")]
    #[cbor(n(2), default, skip_if = "is_zero")]
    pub cache_read: u64,
    /// Input written to the provider's cache.
    #[serde(skip_serializing_if = "is_zero")]
    #[cbor(n(3), default, skip_if = "is_zero")]
    pub cache_write: u64,
    /// The part of `cache_write` that is kept for an hour.
    #[serde(skip_serializing_if = "is_zero")]
    #[cbor(n(4), default, skip_if = "is_zero")]
    pub cache_write_1h: u64,
    #[serde(skip_serializing_if = "is_zero")]
    #[cbor(n(5), default, skip_if = "is_zero")]
    pub thinking: u64,
    #[serde(skip_serializing_if = "is_zero")]
    #[cbor(n(6), default, skip_if = "is_zero")]
    pub image: u64,
    #[serde(skip_serializing_if = "is_zero")]
    #[cbor(n(7), default, skip_if = "is_zero")]
    pub audio: u64,
    #[n(8)]
    pub source: TokenSource,
    /// Web searches by the provider, which are not tokens and are charged separately.
    #[serde(skip_serializing_if = "is_zero")]
    #[cbor(n(9), default, skip_if = "is_zero")]
    pub web_searches: u64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it like this")]
const fn is_zero(tokens: &u64) -> bool {
    *tokens == 0
}

/// The origin of the token counts of a record. The numbers are part of the journal's format.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, Encode, Decode)]
#[serde(rename_all = "lowercase")]
#[cbor(index_only)]
pub enum TokenSource {
    /// Nothing was used.
    #[default]
    #[n(0)]
    None,
    /// Reported by the provider.
    #[n(1)]
    Provider,
    /// Counted locally from existing text.
    #[n(2)]
    Counted,
    #[n(3)]
    Estimated,
}

/// A candidate considered by routing.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, Encode, Decode)]
pub struct TraceEntry {
    #[n(0)]
    pub channel: ShortText,
    /// Account name; `None` for the whole channel.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[n(1)]
    pub account: Option<ShortText>,
    /// `planned`, or the code of the exclusion.
    #[n(2)]
    pub code: Cow<'static, str>,
    /// Details for operators.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[n(3)]
    pub detail: Option<String>,
}

/// An attempt of a request on one account.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, Encode, Decode)]
pub struct AttemptRecord {
    #[n(0)]
    pub channel: ChannelId,
    #[n(1)]
    pub channel_name: ShortText,
    #[n(2)]
    pub account: AccountId,
    #[n(3)]
    pub account_name: ShortText,
    #[n(4)]
    pub protocol: Protocol,
    /// Model name sent upstream.
    #[n(5)]
    pub upstream_model: ShortText,
    #[n(6)]
    pub at: Timestamp,
    /// HTTP status of the upstream, if it answered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[n(7)]
    pub status: Option<u16>,
    #[n(8)]
    pub result: AttemptResult,
    /// Error id, when it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[n(9)]
    pub error: Option<String>,
    /// Tokens this attempt used.
    #[n(10)]
    pub tokens: Tokens,
    /// Amount the provider charges for it; `None`: unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[n(11)]
    pub cost: Option<NanoUsd>,
    /// Microseconds to the upstream's first byte.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[n(12)]
    pub first_byte_us: Option<u64>,
    /// Microseconds to its end.
    #[n(13)]
    pub duration_us: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[n(14)]
    pub upstream_request_id: Option<ShortText>,
    /// A hedged attempt that lost: it ran beside the one that answered. Its cost is the cost of hedging.
    #[serde(rename = "beside", default, skip_serializing_if = "std::ops::Not::not")]
    #[n(15)]
    pub hedged: bool,
    /// The account's factor on the cost price of the model.
    #[serde(default, skip_serializing_if = "Multiplier::is_one")]
    #[cbor(n(16), skip_if = "Multiplier::is_one")]
    pub cost_multiplier: Multiplier,
    /// The failure, for operators: the text of the upstream's error without secrets and hosts, or the gateway's expectation that the
    /// answer did not meet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[n(17)]
    pub message: Option<String>,
    /// Microseconds until its first byte was sent: waiting for a connection, and making one. `None`: nothing was sent, or the gateway
    /// was killed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[n(18)]
    pub sent_us: Option<u64>,
}

/// How an attempt ended. The numbers are part of the journal's format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, Encode, Decode)]
#[serde(rename_all = "snake_case")]
#[cbor(index_only)]
pub enum AttemptResult {
    #[n(0)]
    Answered,
    /// Nothing was sent: the connection failed.
    #[n(1)]
    NotSent,
    /// Refused with an error status.
    #[n(2)]
    Refused,
    /// Sent, but without a usable answer.
    #[n(3)]
    Failed,
    /// The answer broke off.
    #[n(4)]
    Broke,
    /// Cancelled by the gateway because the caller left.
    #[n(5)]
    Cancelled,
}

impl AttemptResult {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Answered => "answered",
            Self::NotSent => "not_sent",
            Self::Refused => "refused",
            Self::Failed => "failed",
            Self::Broke => "broke",
            Self::Cancelled => "cancelled",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A record of an early journal, in which absent values are spelled out.
    const SPELLED_OUT: &str = r#"{"id":"req_01m7zaz1p2f84a09ys9kcm036w","at":1795274278594533,
        "key":"key_01m7zayzp4ff9vgzj1v8m06jak","key_name":"bench","member":"mbr_01m7zayzgkfz6tamnmwvvzsrh8",
        "group":"grp_01m7zayzp4f6fbcq932pxc7a4s","group_name":"default","protocol_in":"openai","protocol_out":"openai",
        "method":"chat","model":"fast","stream":false,"status":200,"outcome":"completed","reason":null,"detail":null,
        "tokens":{"input":19,"output":26,"cache_read":0,"cache_write":0,"thinking":0,"image":0,"audio":0,"source":"provider"},
        "cost":56750,"sale":null,"price_version":2,"ttft_us":7744,"duration_us":7751,"address":"127.0.0.1",
        "client_request_id":null,"dropped":[],"trace":[{"channel":"main","account":"a","code":"planned","detail":null}],
        "attempts":[{"channel":"chn_01m7zayzp4ff482dgh6q14aqxn","channel_name":"main","account":"acc_01m7zayzp4fe2vwgp88rzd0ge0",
        "account_name":"a","protocol":"openai","upstream_model":"fast-1","at":1795274278599784,"status":200,"result":"answered",
        "error":null,"tokens":{"input":19,"output":26,"cache_read":0,"cache_write":0,"thinking":0,"image":0,"audio":0,
        "source":"provider"},"cost":56750,"first_byte_us":2463,"duration_us":2493,"upstream_request_id":null}]}"#;

    #[test]
    fn absent_values_are_omitted_but_accepted() {
        let record: UsageRecord = serde_json::from_str(SPELLED_OUT).unwrap();
        assert_eq!((record.tokens.input, record.tokens.cache_read, record.sale), (19, 0, None));
        let text = serde_json::to_string(&record).unwrap();
        for absent in ["null", "[]", ":0"] {
            assert!(!text.contains(absent), "{absent} in {text}");
        }
        assert_eq!(serde_json::from_str::<UsageRecord>(&text).unwrap(), record);
    }

    #[test]
    fn names_match_their_serialised_form() {
        let word = |value: serde_json::Value| value.as_str().map(str::to_owned).expect("a word");
        use AttemptResult::{Answered, Broke, Cancelled, Failed, NotSent, Refused};
        for result in [Answered, NotSent, Refused, Failed, Broke, Cancelled] {
            assert_eq!(word(serde_json::to_value(result).unwrap()), result.as_str());
        }
        for source in [TokenSource::None, TokenSource::Provider, TokenSource::Counted, TokenSource::Estimated] {
            assert_eq!(word(serde_json::to_value(source).unwrap()), source.as_str());
        }
    }
}
