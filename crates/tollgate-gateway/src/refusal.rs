//! Every refusal of the model path. A refusal carries what its message needs; [`Refusal::problem`] maps it to a status,
//! codes and text, and is the only place on the model path that does (docs/errors.md).

mod redact;
mod refusal_row;
mod respond;
mod table;
mod text;
mod upstream_rows;

pub(crate) use redact::{redact, redact_secrets};
pub(crate) use respond::{REQUEST_ID, write_rates};
pub(crate) use text::seconds_until;

use tollgate_core::{Key, LimitExceeded, MissingPrice, NoRouteCause, NotOffered, PriceFigures, Timestamp};
use tollgate_protocol::{ErrorStyle, FieldPath, Malformed, MalformedKind, Protocol, RequestSummary, UpstreamProblem};

/// Why a request is not served. Each variant names its error id in docs/errors.md. Models and headers are as sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// E1: no key in any accepted place.
    KeyMissing,
    /// E2: unknown, malformed or incomplete key.
    KeyInvalid,
    /// E3: key expired at this time.
    KeyExpired(Timestamp),
    /// E4: key disabled or revoked.
    KeyDisabled,
    /// E5: the key may not be used from the caller's address.
    AddressBlocked,
    /// E6: the member or its group is suspended.
    Suspended,
    /// E7: the key may not be used with the protocol of the request, only with these.
    ProtocolBlocked { allowed: Vec<Protocol> },
    /// E10: unknown path.
    UnknownPath { hint: Option<PathHint> },
    /// E11: known path, wrong method. `allow` is the value of the `allow` header.
    MethodNotAllowed { allow: &'static str },
    /// E12: native path without a verb, or with an unknown one.
    UnknownVerb,
    /// E13, or E14 with the same answer when the model exists outside the caller's groups (`hidden`).
    ModelNotFound { model: String, hidden: bool },
    /// E15: the model is not offered for this method or protocol, only for `supports`.
    MethodUnsupported { model: String, supports: Vec<&'static str> },
    /// E16, E18, E20, E21: the body is malformed.
    Malformed(Malformed),
    /// E17: optional fields that the model, or every upstream serving it, does not support, in the caller's spelling. Never empty.
    /// `reason` is shown in parentheses after the model's name.
    Unsupported { fields: Vec<FieldPath>, model: String, reason: Option<String> },
    /// E19: a content type that is not JSON.
    MediaType { sent: String },
    /// E23: a content encoding that is neither identity nor gzip.
    ContentEncoding { sent: String },
    /// E22: the body is larger than this many bytes.
    BodyTooLarge { limit: usize },
    /// E18: a compressed body that cannot be decompressed or ends early. `fault` ends the sentence.
    BodyUnreadable { fault: &'static str },
    /// 400 `invalid_value` (E21; E20 on native): an invalid header or query parameter. `message` is the whole sentence.
    InvalidValue { name: &'static str, message: String },
    /// E31: requests, tokens or concurrency. E32: a budget or the balance is spent. E33: less is left than this request may cost.
    LimitExceeded(Box<LimitExceeded>),
    /// E31 without figures: too many wrong keys from the caller's address. Another may be tried in `retry_after` seconds.
    WrongKeys { retry_after: u32 },
    /// E40, E41, E42: no usable upstream account; the cause decides which.
    NoRoute {
        model: String,
        cause: NoRouteCause,
        /// Seconds until the first account becomes usable, if known.
        retry_after: Option<u32>,
        /// Figures of E41, when they may be shown.
        price: Option<PriceFigures>,
        /// The missing price of E42.
        missing_price: Option<MissingPrice>,
    },
    /// E50 to E60: the last upstream attempt failed.
    Upstream { model: String, failure: UpstreamFailure },
    /// E61: draining.
    ShuttingDown,
    /// E62: an internal fault.
    Internal,
    /// E63: a limit of the gateway itself is reached, such as requests in progress or memory for bodies and answers.
    Overloaded,
    /// E64: the caller left; nothing is sent.
    CallerLeft,
    /// E65: head or body did not arrive within the limit.
    TooSlow { secs: u64 },
    /// E66: head larger than this many bytes.
    HeadersTooLarge { limit: usize },
    /// E66: request target longer than this many bytes.
    TargetTooLong { limit: usize },
    /// E67: blocked by a content rule of the gateway.
    ContentPolicy,
    /// E68: the key is not cached and cannot be looked up.
    KeyCheckUnavailable,
    /// E69: a stored response or conversation, which OpenAI's service offers and this gateway does not.
    NotStored(NotStored),
    /// E70: a connection that is to be upgraded to a WebSocket.
    UpgradeRequired,
}

/// Objects of OpenAI's API that the gateway does not store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NotStored {
    /// A response, by its id.
    Response(String),
    Conversations,
}

/// The path or API that the caller of an unknown path may have meant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PathHint {
    /// A similar path that exists.
    Similar {
        path: String,
        /// The fault in the base URL of the caller's client, as a sentence.
        base_url: Option<&'static str>,
    },
    NotOffered(ApiNotOffered),
}

/// A well-known API that the gateway does not offer, to which a path belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ApiNotOffered {
    pub name: &'static str,
    /// An equivalent method and path, if there is one.
    pub instead: Option<&'static str>,
}

/// How an upstream failed. `retry_after` is in seconds, as reported by the upstream; `limit_ms` is the gateway's own limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UpstreamFailure {
    /// E50: no connection, or lost before a status line.
    Unreachable,
    /// E51: no answer within the limit.
    TimedOut { limit_ms: u64 },
    /// E52: the upstream rejected the request itself.
    Rejected(Box<Rejection>),
    /// E53: the upstream refused our account.
    AccountRefused,
    /// E54: 429 from every account tried.
    RateLimited { retry_after: Option<u32> },
    /// E55: a server error, or an error answer from an intermediary.
    Failed { status: u16 },
    /// E56: 503 or 529.
    Overloaded { retry_after: Option<u32> },
    /// E57: 408, 504 or 524.
    GatewayTimedOut { status: u16 },
    /// E58: an invalid answer.
    BadResponse,
    /// E59: a stream that broke.
    StreamInterrupted,
    /// E60: a stream without data for longer than the limit.
    StreamIdle { limit_ms: u64 },
    /// E60: a stream that took longer than an attempt of the channel may.
    StreamTooLong { limit_ms: u64 },
}

/// An upstream's error about a request it rejected. Texts are redacted when they are written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejection {
    /// The upstream's protocol.
    pub protocol: Protocol,
    /// The decoded error; `status` is one of 400, 404, 409, 413, 415, 422.
    pub problem: UpstreamProblem,
}

impl Refusal {
    /// E7: the key may be used with other protocols only.
    pub(crate) fn protocol_blocked(key: &Key) -> Self {
        Self::ProtocolBlocked { allowed: key.protocols.clone() }
    }

    /// E13 to E17: the model is not offered for this caller or request.
    pub(crate) fn not_offered(reason: NotOffered, summary: &RequestSummary) -> Self {
        let model = summary.model.clone();
        match reason {
            NotOffered::Unknown => Self::ModelNotFound { model, hidden: false },
            NotOffered::OutsideGroup => Self::ModelNotFound { model, hidden: true },
            NotOffered::Method { supports } => Self::MethodUnsupported { model, supports },
            NotOffered::Unsupported { fields } => Self::Unsupported { fields, model, reason: None },
            NotOffered::Unpriced { fields } => {
                let reason = "it is charged apart, the price of the model does not include it (or the model has no context window \
                              as a bound of input that the request does not show), and the money of this key is limited";
                Self::Unsupported { fields, model, reason: Some(reason.to_owned()) }
            }
        }
    }

    /// The error id in docs/errors.md, such as `E40`, for a caller of this protocol.
    #[must_use]
    pub fn id(&self, from: Protocol) -> &'static str {
        match self {
            Self::KeyMissing => "E1",
            Self::KeyInvalid => "E2",
            Self::KeyExpired(_) => "E3",
            Self::KeyDisabled => "E4",
            Self::AddressBlocked => "E5",
            Self::Suspended => "E6",
            Self::ProtocolBlocked { .. } => "E7",
            Self::UnknownPath { .. } => "E10",
            Self::MethodNotAllowed { .. } => "E11",
            Self::UnknownVerb => "E12",
            Self::ModelNotFound { hidden: false, .. } => "E13",
            Self::ModelNotFound { hidden: true, .. } => "E14",
            Self::MethodUnsupported { .. } => "E15",
            Self::Unsupported { .. } => "E17",
            Self::BodyUnreadable { .. } => "E18",
            Self::Malformed(fault) if fault.kind == MalformedKind::NotJson => "E18",
            Self::Malformed(fault) if fault.violations.first().is_some_and(|first| first.field == "model") => "E16",
            Self::Malformed(_) | Self::InvalidValue { .. } if from.spec().error_style == ErrorStyle::Gemini => "E20",
            Self::Malformed(_) | Self::InvalidValue { .. } => "E21",
            Self::MediaType { .. } => "E19",
            Self::BodyTooLarge { .. } => "E22",
            Self::ContentEncoding { .. } => "E23",
            Self::WrongKeys { .. } => "E31",
            Self::LimitExceeded(exceeded) => match **exceeded {
                LimitExceeded::Rate(_) => "E31",
                LimitExceeded::Money(funds) if funds.left.0 <= 0 => "E32",
                LimitExceeded::Money(_) => "E33",
            },
            Self::NoRoute { cause, .. } => cause.error_id(),
            Self::Upstream { failure, .. } => failure.id(),
            Self::ShuttingDown => "E61",
            Self::Internal => "E62",
            Self::Overloaded => "E63",
            Self::CallerLeft => "E64",
            Self::TooSlow { .. } => "E65",
            Self::HeadersTooLarge { .. } | Self::TargetTooLong { .. } => "E66",
            Self::ContentPolicy => "E67",
            Self::KeyCheckUnavailable => "E68",
            Self::NotStored(_) => "E69",
            Self::UpgradeRequired => "E70",
        }
    }
}

impl UpstreamFailure {
    /// The error id in docs/errors.md.
    #[must_use]
    pub const fn id(&self) -> &'static str {
        match self {
            Self::Unreachable => "E50",
            Self::TimedOut { .. } => "E51",
            Self::Rejected(_) => "E52",
            Self::AccountRefused => "E53",
            Self::RateLimited { .. } => "E54",
            Self::Failed { .. } => "E55",
            Self::Overloaded { .. } => "E56",
            Self::GatewayTimedOut { .. } => "E57",
            Self::BadResponse => "E58",
            Self::StreamInterrupted => "E59",
            Self::StreamIdle { .. } | Self::StreamTooLong { .. } => "E60",
        }
    }
}

#[cfg(test)]
mod tests;
