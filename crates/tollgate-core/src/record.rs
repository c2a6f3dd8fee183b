//! Usage records: one per request, with an entry for each attempt. In the journal's JSON, absent, empty and zero values are
//! omitted, which halves its size.

use serde::{Deserialize, Serialize};
use tollgate_protocol::{Method, Protocol};

use crate::{AccountId, ChannelId, GroupId, KeyId, MemberId, NanoUsd, RequestId, Revision, Timestamp};

/// A request whose key was authenticated. Serialised as compact JSON in the journal; field names are part of the
/// journal's format, so a new field needs a default.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UsageRecord {
    /// Request id, as shown to the caller.
    pub id: RequestId,
    pub at: Timestamp,
    pub key: KeyId,
    /// Name of the key at the time of the request.
    pub key_name: String,
    pub member: MemberId,
    /// Group that served it; `None` when refused before one was chosen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<GroupId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group_name: Option<String>,
    pub protocol_in: Protocol,
    /// Protocol of the last attempt's upstream.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub protocol_out: Option<Protocol>,
    pub method: Method,
    /// Requested model, cut to 256 characters; `None` when the body could not be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// Whether the answer streamed.
    pub stream: bool,
    /// HTTP status sent to the caller; 499 when the caller left before one was sent.
    pub status: u16,
    pub outcome: Outcome,
    /// Error id (`E40`), exclusion code or another code; `None` when completed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The message sent to the caller.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
    /// Billed tokens by kind.
    pub tokens: Tokens,
    /// Cost of all attempts; `None`: a cost price is unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost: Option<NanoUsd>,
    /// Amount charged to the caller; `None`: unpriced.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sale: Option<NanoUsd>,
    /// Catalog revision the prices come from.
    pub price_version: Revision,
    /// Microseconds to the first content byte sent to the caller.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttft_us: Option<u64>,
    /// Microseconds from arrival to the end.
    pub duration_us: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    /// The caller's own request id, if sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_request_id: Option<String>,
    /// Entries of `x-tollgate-dropped`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub dropped: Vec<String>,
    /// Candidates considered, and why others were excluded.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub trace: Vec<TraceEntry>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub attempts: Vec<AttemptRecord>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// The caller received a complete answer.
    Completed,
    /// The caller closed the connection first.
    CallerLeft,
    /// The upstream failed before or during the answer.
    UpstreamBroke,
    /// The gateway refused the request, or passed on an upstream's refusal.
    Refused,
    /// The gateway was killed while the request was running.
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
/// token not as output.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Tokens {
    /// Input, without the kinds below.
    #[serde(skip_serializing_if = "is_zero")]
    pub input: u64,
    /// Output, without thinking.
    #[serde(skip_serializing_if = "is_zero")]
    pub output: u64,
    /// Input read from the provider's cache.
    #[serde(skip_serializing_if = "is_zero")]
    pub cache_read: u64,
    /// Input written to the provider's cache.
    #[serde(skip_serializing_if = "is_zero")]
    pub cache_write: u64,
    /// Of `cache_write`, what is kept for an hour.
    #[serde(skip_serializing_if = "is_zero")]
    pub cache_write_1h: u64,
    #[serde(skip_serializing_if = "is_zero")]
    pub thinking: u64,
    #[serde(skip_serializing_if = "is_zero")]
    pub image: u64,
    #[serde(skip_serializing_if = "is_zero")]
    pub audio: u64,
    pub source: TokenSource,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it like this")]
const fn is_zero(tokens: &u64) -> bool {
    *tokens == 0
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TokenSource {
    /// Nothing was used.
    #[default]
    None,
    /// Reported by the provider.
    Provider,
    /// Counted locally from existing text.
    Counted,
    Estimated,
}

/// A candidate considered by routing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TraceEntry {
    pub channel: String,
    /// Account name; `None` for the whole channel.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub account: Option<String>,
    /// `planned`, or the code of the exclusion.
    pub code: String,
    /// Details for operators.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
}

/// An attempt of a request on one account.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AttemptRecord {
    pub channel: ChannelId,
    pub channel_name: String,
    pub account: AccountId,
    pub account_name: String,
    pub protocol: Protocol,
    /// Model name sent upstream.
    pub upstream_model: String,
    pub at: Timestamp,
    /// HTTP status of the upstream, if it answered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    pub result: AttemptResult,
    /// Error id, when it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Tokens this attempt used.
    pub tokens: Tokens,
    /// Amount the provider charges for it; `None`: unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost: Option<NanoUsd>,
    /// Microseconds to the upstream's first byte.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_byte_us: Option<u64>,
    /// Microseconds to its end.
    pub duration_us: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub upstream_request_id: Option<String>,
    /// A hedged attempt that lost: it ran beside the one that answered. Its cost is the cost of hedging.
    #[serde(rename = "beside", default, skip_serializing_if = "std::ops::Not::not")]
    pub hedged: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AttemptResult {
    Answered,
    /// Nothing was sent: the connection failed.
    NotSent,
    /// Refused with an error status.
    Refused,
    /// Sent, but without a usable answer.
    Failed,
    /// The answer broke off.
    Broke,
    /// Cancelled by the gateway because the caller left.
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
