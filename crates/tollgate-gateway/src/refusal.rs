//! Every refusal of the model path. A refusal carries what its message needs; [`Refusal::problem`] maps it to a status,
//! codes and text, and is the only place on the model path that does (docs/errors.md).

mod reasons;
mod redact;
mod respond;
mod table;
mod text;

pub(crate) use redact::redact_secrets;
pub(crate) use respond::REQUEST_ID;

use tollgate_core::{MissingPrice, NanoUsd, NoRouteCause, PriceFigures, Timestamp};
use tollgate_protocol::{ErrorStyle, FieldPath, Malformed, Protocol, UpstreamProblem};

/// Why a request is not served. Each variant names its error id in docs/errors.md.
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
    /// E10: unknown path. The hint is a similar known path.
    UnknownPath {
        /// `Did you mean …?`
        hint: Option<PathHint>,
    },
    /// E11: known path, wrong method. `allow` is the value of the `allow` header.
    MethodNotAllowed {
        /// Such as `POST` or `GET, HEAD`.
        allow: &'static str,
    },
    /// E12: native path without a verb, or with an unknown one.
    UnknownVerb,
    /// E13, E14: the model does not exist for this caller.
    ModelNotFound {
        /// As requested.
        model: String,
        /// The model exists outside the caller's groups (E14). The answer is the same.
        hidden: bool,
    },
    /// E15: the model is not offered for this method or protocol.
    MethodUnsupported {
        /// As requested.
        model: String,
        /// Verbs or endpoints it is offered for.
        supports: Vec<&'static str>,
    },
    /// E16, E18, E20, E21: the body is malformed.
    Malformed(Malformed),
    /// E17: optional fields that the model, or every upstream serving it, does not support. Never empty.
    Unsupported {
        /// In the caller's spelling.
        fields: Vec<FieldPath>,
        /// As requested.
        model: String,
        /// Shown in parentheses after the model's name.
        reason: Option<String>,
    },
    /// E19: a content type that is not JSON.
    MediaType {
        /// As sent.
        sent: String,
    },
    /// E23: a content encoding that is neither identity nor gzip.
    ContentEncoding {
        /// As sent.
        sent: String,
    },
    /// E22: the body is larger than this many bytes.
    BodyTooLarge {
        /// The limit.
        limit: usize,
    },
    /// E18: a compressed body that cannot be decompressed or ends early.
    BodyUnreadable {
        /// The fault, as the end of a sentence.
        fault: &'static str,
    },
    /// 400 `invalid_value` (E21; E20 on native): an invalid header or query parameter.
    InvalidValue {
        /// The header's or parameter's name.
        name: &'static str,
        /// The whole sentence.
        message: String,
    },
    /// E31: requests, tokens or concurrency.
    RateLimited(Box<RateLimit>),
    /// E31 without figures: too many wrong keys from the caller's address.
    WrongKeys {
        /// Seconds until another key may be tried.
        retry_after: u32,
    },
    /// E32: a budget or the balance is spent.
    Spent(Box<SpentBudget>),
    /// E33: this request may cost more than what is left.
    TooDear(BudgetSubject),
    /// E40, E41, E42: no usable upstream account; the cause decides which.
    NoRoute {
        /// As requested.
        model: String,
        /// Why.
        cause: NoRouteCause,
        /// Seconds until the first account becomes usable, if known.
        retry_after: Option<u32>,
        /// Figures of E41, when they may be shown.
        price: Option<PriceFigures>,
        /// The missing price of E42.
        missing_price: Option<MissingPrice>,
    },
    /// E50 to E60: the last upstream attempt failed.
    Upstream {
        /// As requested.
        model: String,
        /// How.
        failure: UpstreamFailure,
    },
    /// E61: draining.
    ShuttingDown,
    /// E62: an internal fault.
    Internal,
    /// E63: too many requests in progress.
    Overloaded,
    /// E64: the caller left; nothing is sent.
    CallerLeft,
    /// E65: head or body did not arrive within the limit.
    TooSlow {
        /// The limit.
        secs: u64,
    },
    /// E66: head larger than this many bytes.
    HeadersTooLarge {
        /// The limit.
        limit: usize,
    },
    /// E66: request target longer than this many bytes.
    TargetTooLong {
        /// The limit.
        limit: usize,
    },
    /// E67: blocked by a content rule of the gateway.
    ContentPolicy,
    /// E68: the key is not cached and cannot be looked up.
    KeyCheckUnavailable,
}

/// A path that exists, similar to one that does not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathHint {
    /// The path.
    pub path: String,
    /// What is wrong with the base URL of the caller's client, as a sentence.
    pub base_url: Option<&'static str>,
}

/// How an upstream failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UpstreamFailure {
    /// E50: no connection, or lost before a status line.
    Unreachable,
    /// E51: no answer within the limit.
    TimedOut {
        /// The limit.
        limit_ms: u64,
    },
    /// E52: the upstream rejected the request itself.
    Rejected(Box<Rejection>),
    /// E53: the upstream refused our account.
    AccountRefused,
    /// E54: 429 from every account tried.
    RateLimited {
        /// Seconds reported by the upstream.
        retry_after: Option<u32>,
    },
    /// E55: a server error, or an error answer from an intermediary.
    Failed {
        /// The upstream's status.
        status: u16,
    },
    /// E56: 503 or 529.
    Overloaded {
        /// Seconds reported by the upstream.
        retry_after: Option<u32>,
    },
    /// E57: 504 or 524; the message states our own limit in milliseconds.
    GatewayTimedOut {
        /// The limit.
        limit_ms: u64,
    },
    /// E58: an invalid answer.
    BadResponse,
    /// E59: a stream that broke.
    StreamInterrupted,
    /// E60: a stream without data for longer than the limit.
    StreamIdle {
        /// The limit.
        limit_ms: u64,
    },
}

/// An upstream's error about a request it rejected. Texts are redacted when they are written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejection {
    /// The upstream's protocol.
    pub protocol: Protocol,
    /// The decoded error; `status` is one of 400, 404, 409, 413, 415, 422.
    pub problem: UpstreamProblem,
}

/// The limited quantity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LimitKind {
    /// Requests per minute.
    Requests,
    /// Tokens per minute.
    Tokens,
    /// Concurrent requests.
    Concurrency,
}

/// The subject of the limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LimitSubject {
    /// The key.
    Key,
    /// The key's member.
    Member,
    /// The group.
    Group,
    /// The caller's address.
    Address,
}

/// The figures of E31.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RateLimit {
    /// The limited quantity.
    pub limited: LimitKind,
    /// The subject of the limit.
    pub subject: LimitSubject,
    /// The limit.
    pub limit: u64,
    /// Used amount.
    pub used: u64,
    /// Seconds until the request fits.
    pub retry_after: u32,
    /// Values of the six `x-ratelimit-*` headers.
    pub figures: RateFigures,
}

/// Values of the six `x-ratelimit-*` headers; headers without a value are omitted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RateFigures {
    /// Requests per minute.
    pub limit_requests: Option<u64>,
    /// Tokens per minute.
    pub limit_tokens: Option<u64>,
    /// Requests left.
    pub remaining_requests: Option<u64>,
    /// Tokens left.
    pub remaining_tokens: Option<u64>,
    /// Milliseconds until the request window is empty.
    pub reset_requests_ms: Option<u64>,
    /// Milliseconds until the token window is empty.
    pub reset_tokens_ms: Option<u64>,
}

/// The subject of the budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BudgetSubject {
    /// The key's budget.
    Key,
    /// The member's budget.
    Member,
    /// The group's budget.
    Group,
    /// The member's balance.
    Balance,
    /// The whole gateway's budget.
    Gateway,
}

/// The figures of E32.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpentBudget {
    /// The subject of the budget.
    pub subject: BudgetSubject,
    /// Period; [`tollgate_core::Window::Total`] for a balance.
    pub window: tollgate_core::Window,
    /// Spent so far.
    pub spent: NanoUsd,
    /// The budget's amount.
    pub amount: NanoUsd,
    /// When the budget renews.
    pub renews_at: Option<Timestamp>,
}

impl Refusal {
    /// The error id in docs/errors.md, such as `E40`, for a caller of this protocol.
    #[must_use]
    pub fn id(&self, from: Protocol) -> &'static str {
        use tollgate_protocol::MalformedKind::NotJson;
        match self {
            Self::KeyMissing => "E1",
            Self::KeyInvalid => "E2",
            Self::KeyExpired(_) => "E3",
            Self::KeyDisabled => "E4",
            Self::AddressBlocked => "E5",
            Self::Suspended => "E6",
            Self::UnknownPath { .. } => "E10",
            Self::MethodNotAllowed { .. } => "E11",
            Self::UnknownVerb => "E12",
            Self::ModelNotFound { hidden: false, .. } => "E13",
            Self::ModelNotFound { hidden: true, .. } => "E14",
            Self::MethodUnsupported { .. } => "E15",
            Self::Unsupported { .. } => "E17",
            Self::BodyUnreadable { .. } => "E18",
            Self::Malformed(fault) if fault.kind == NotJson => "E18",
            Self::Malformed(fault) if fault.violations.first().is_some_and(|first| first.field == "model") => "E16",
            Self::Malformed(_) | Self::InvalidValue { .. } if from.spec().error_style == ErrorStyle::Gemini => "E20",
            Self::Malformed(_) | Self::InvalidValue { .. } => "E21",
            Self::MediaType { .. } => "E19",
            Self::BodyTooLarge { .. } => "E22",
            Self::ContentEncoding { .. } => "E23",
            Self::RateLimited(_) | Self::WrongKeys { .. } => "E31",
            Self::Spent(_) => "E32",
            Self::TooDear(_) => "E33",
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
            Self::StreamIdle { .. } => "E60",
        }
    }
}

#[cfg(test)]
mod tests;
