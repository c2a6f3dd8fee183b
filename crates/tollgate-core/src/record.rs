//! What is remembered of a request: one usage record, with one entry for every attempt. As JSON, in the journal, what is
//! absent, empty or zero is left out: half of a record would be that.

use serde::{Deserialize, Serialize};
use tollgate_protocol::{Method, Protocol};

use crate::{AccountId, ChannelId, GroupId, KeyId, MemberId, NanoUsd, RequestId, Revision, Timestamp};

/// One request that got past the door. Serialised as compact JSON in the journal; field names are part of the
/// journal's format, so a new field needs a default.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UsageRecord {
    /// Also the request id shown to the caller.
    pub id: RequestId,
    /// Arrival.
    pub at: Timestamp,
    /// Key.
    pub key: KeyId,
    /// Key name at that time.
    pub key_name: String,
    /// Member.
    pub member: MemberId,
    /// Group that served it; `None` when refused before one was chosen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<GroupId>,
    /// Group name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group_name: Option<String>,
    /// Caller's protocol.
    pub protocol_in: Protocol,
    /// Upstream's protocol, of the last attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub protocol_out: Option<Protocol>,
    /// What was asked.
    pub method: Method,
    /// Model as asked; `None` when the body could not be read. Cut to 256 characters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// Whether the answer streamed.
    pub stream: bool,
    /// HTTP status the caller got; 499 when he left before one was sent.
    pub status: u16,
    /// How it ended.
    pub outcome: Outcome,
    /// Error id (`E40`), exclusion or other word; `None` when completed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// More about the reason: the message the caller saw.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
    /// Billed tokens by kind.
    pub tokens: Tokens,
    /// What the provider charges, sum over the attempts; `None`: no cost price known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost: Option<NanoUsd>,
    /// What the caller pays; `None`: not priced.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sale: Option<NanoUsd>,
    /// Catalog revision the prices come from.
    pub price_version: Revision,
    /// Microseconds to the first content byte handed to the caller.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttft_us: Option<u64>,
    /// Microseconds from arrival to the end.
    pub duration_us: u64,
    /// Caller's address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    /// Caller's own request id, if sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_request_id: Option<String>,
    /// Entries of `x-tollgate-dropped`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub dropped: Vec<String>,
    /// Candidates considered and why they were excluded.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub trace: Vec<TraceEntry>,
    /// Attempts, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub attempts: Vec<AttemptRecord>,
}

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// The caller got a whole answer.
    Completed,
    /// The caller went away first.
    CallerLeft,
    /// The upstream failed, before or in the middle of the answer.
    UpstreamBroke,
    /// The gateway said no, or passed an upstream's no on.
    Refused,
    /// The gateway was killed in the middle.
    GatewayStopped,
}

impl Outcome {
    /// The word in records, logs and metrics.
    #[must_use]
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

/// Tokens by kind. The kinds partition the tokens: a cached token is not also an input token, a thinking token not
/// also an output token.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Tokens {
    /// Plain input.
    #[serde(skip_serializing_if = "is_zero")]
    pub input: u64,
    /// Plain output.
    #[serde(skip_serializing_if = "is_zero")]
    pub output: u64,
    /// Read from cache.
    #[serde(skip_serializing_if = "is_zero")]
    pub cache_read: u64,
    /// Written to cache.
    #[serde(skip_serializing_if = "is_zero")]
    pub cache_write: u64,
    /// Thinking.
    #[serde(skip_serializing_if = "is_zero")]
    pub thinking: u64,
    /// Image input.
    #[serde(skip_serializing_if = "is_zero")]
    pub image: u64,
    /// Audio input.
    #[serde(skip_serializing_if = "is_zero")]
    pub audio: u64,
    /// Where the figures come from.
    pub source: TokenSource,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it like this")]
const fn is_zero(tokens: &u64) -> bool {
    *tokens == 0
}

/// Where token counts come from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TokenSource {
    /// Nothing was used.
    #[default]
    None,
    /// The provider's own figures.
    Provider,
    /// A local count of text that exists.
    Counted,
    /// A guess.
    Estimated,
}

/// One candidate that was looked at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TraceEntry {
    /// Channel name.
    pub channel: String,
    /// Account name; `None` when the whole channel is meant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub account: Option<String>,
    /// `planned`, or the exclusion's code.
    pub code: String,
    /// More, for the operator.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
}

/// One try of one account.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AttemptRecord {
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
    /// HTTP status of the upstream, if one came.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// How it ended.
    pub result: AttemptResult,
    /// Error id, when it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Tokens this attempt used.
    pub tokens: Tokens,
    /// What the provider charges for it; `None`: not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost: Option<NanoUsd>,
    /// Microseconds to the upstream's first byte.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_byte_us: Option<u64>,
    /// Microseconds to its end.
    pub duration_us: u64,
    /// The upstream's own request id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub upstream_request_id: Option<String>,
    /// It ran beside the attempt that went on, and was given up or failed: what hedging cost.
    #[serde(rename = "beside", default, skip_serializing_if = "std::ops::Not::not")]
    pub hedged: bool,
}

/// How an attempt ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AttemptResult {
    /// Answered.
    Answered,
    /// Nothing was sent: no connection.
    NotSent,
    /// Refused with a status.
    Refused,
    /// Sent, no usable answer.
    Failed,
    /// Broke in the middle.
    Broke,
    /// We gave it up because the caller left.
    Cancelled,
}

impl AttemptResult {
    /// The word in records and metrics.
    #[must_use]
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

    /// A record as the first journals had it, with everything that is absent spelt out.
    const SPELT_OUT: &str = r#"{"id":"req_01m7zaz1p2f84a09ys9kcm036w","at":1795274278594533,
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
    fn what_is_absent_is_left_out_and_may_be_spelt_out() {
        let record: UsageRecord = serde_json::from_str(SPELT_OUT).unwrap();
        assert_eq!((record.tokens.input, record.tokens.cache_read, record.sale), (19, 0, None));
        let text = serde_json::to_string(&record).unwrap();
        for absent in ["null", "[]", ":0"] {
            assert!(!text.contains(absent), "{absent} in {text}");
        }
        assert_eq!(serde_json::from_str::<UsageRecord>(&text).unwrap(), record);
    }

    #[test]
    fn words_are_those_that_are_serialised() {
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
