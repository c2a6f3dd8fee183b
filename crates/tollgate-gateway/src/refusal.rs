//! Every way to say no. A refusal carries what its message needs; [`Refusal::problem`] turns it into a status, and
//! is the only place of the model path that does (docs/errors.md).

mod reasons;
mod redact;
mod respond;
mod table;
mod text;

pub(crate) use respond::REQUEST_ID;

use tollgate_core::{NanoUsd, NoRouteCause, PriceFigures, Timestamp};
use tollgate_protocol::{ErrorStyle, FieldPath, Malformed, Protocol, UpstreamProblem};

/// Why a request is not served. Each variant names its row in docs/errors.md.
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
    /// E10: unknown path; the hint is a path that would have fitted.
    UnknownPath {
        /// `Did you mean …?`
        hint: Option<String>,
    },
    /// E11: known path, wrong method; the methods that fit, as the `allow` header has them.
    MethodNotAllowed {
        /// Such as `POST` or `GET, HEAD`.
        allow: &'static str,
    },
    /// E12: native path without a verb, or with an unknown one.
    UnknownVerb,
    /// E13, E14: the model does not exist for this caller.
    ModelNotFound {
        /// As asked.
        model: String,
        /// It exists, but outside the caller's groups (E14). The caller cannot tell.
        hidden: bool,
    },
    /// E15: visible, but not offered for this method or protocol.
    MethodUnsupported {
        /// As asked.
        model: String,
        /// Verbs or endpoints it is offered for.
        supports: Vec<&'static str>,
    },
    /// E16, E18, E20, E21: the body cannot be what it should be.
    Malformed(Malformed),
    /// E17: optional fields the model, or every upstream that has it, does not take. Never empty.
    Unsupported {
        /// In the caller's spelling.
        fields: Vec<FieldPath>,
        /// As asked.
        model: String,
        /// Stands in parentheses behind the model's name.
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
    /// E18: compressed body that cannot be unpacked, or that ends early.
    BodyUnreadable {
        /// What is wrong with it, as the end of a sentence.
        fault: &'static str,
    },
    /// 400 `invalid_value` (E21; E20 on native): a header or a query parameter that cannot be read.
    InvalidValue {
        /// The header's or parameter's name.
        name: &'static str,
        /// The whole sentence.
        message: String,
    },
    /// E31: requests, tokens or concurrency.
    RateLimited(Box<RateLimit>),
    /// E31 without details: too many wrong keys from the caller's address.
    WrongKeys {
        /// Seconds until the next may be tried.
        retry_after: u32,
    },
    /// E32: a budget or the balance is spent.
    Spent(Box<SpentBudget>),
    /// E33: this one request would cost more than what is left.
    TooDear(BudgetSubject),
    /// E40, E41: no upstream account.
    NoRoute {
        /// As asked.
        model: String,
        /// Why.
        cause: NoRouteCause,
        /// Price limits alone exclude every account (E41).
        too_dear: bool,
        /// Seconds until the first account recovers, if known.
        retry_after: Option<u32>,
        /// Figures of E41, where they may be shown.
        price: Option<PriceFigures>,
    },
    /// E50 to E60: an upstream failed, after fail-over.
    Upstream {
        /// As asked.
        model: String,
        /// How.
        failure: UpstreamFailure,
    },
    /// E61: draining.
    ShuttingDown,
    /// E62: a fault of ours.
    Internal,
    /// E63: too much under way.
    Overloaded,
    /// E64: the caller left; nothing is sent.
    CallerLeft,
    /// E65: the head or the body did not come within so many seconds.
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
    /// E67: a content rule of the gateway.
    ContentPolicy,
    /// E68: the key is not known here and cannot be looked up.
    KeyCheckUnavailable,
}

/// How an upstream failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UpstreamFailure {
    /// E50: no connection, or lost before a status line.
    Unreachable,
    /// E51: nothing within so many milliseconds.
    TimedOut {
        /// The limit.
        limit_ms: u64,
    },
    /// E52: the request's own fault.
    Rejected(Box<Rejection>),
    /// E53: our account's fault.
    AccountRefused,
    /// E54: 429 on every account tried.
    RateLimited {
        /// The upstream's own figure, in seconds.
        retry_after: Option<u32>,
    },
    /// E55: a server error, or an error answer that no model server wrote.
    Failed {
        /// Its status.
        status: u16,
    },
    /// E56: 503 or 529.
    Overloaded {
        /// The upstream's own figure, in seconds.
        retry_after: Option<u32>,
    },
    /// E57: 504 or 524; the milliseconds are our own limit.
    GatewayTimedOut {
        /// The limit.
        limit_ms: u64,
    },
    /// E58: an answer that is none.
    BadResponse,
    /// E59: a stream that broke.
    StreamInterrupted,
    /// E60: a stream that fell silent for so many milliseconds.
    StreamIdle {
        /// The limit.
        limit_ms: u64,
    },
}

/// What an upstream said about a request it refused. Its texts are redacted when they are written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejection {
    /// The upstream's protocol.
    pub protocol: Protocol,
    /// Its words; `status` is one of 400, 404, 409, 413, 415, 422.
    pub problem: UpstreamProblem,
}

/// What is limited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LimitKind {
    /// Requests a minute.
    Requests,
    /// Tokens a minute.
    Tokens,
    /// Requests at once.
    Concurrency,
}

/// Whose limit it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LimitSubject {
    /// The key's.
    Key,
    /// Its member's.
    Member,
    /// The group's.
    Group,
    /// The caller's address's.
    Address,
}

/// The figures of E31.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RateLimit {
    /// What is limited.
    pub limited: LimitKind,
    /// Whose limit it is.
    pub subject: LimitSubject,
    /// The limit.
    pub limit: u64,
    /// How much of it is used.
    pub used: u64,
    /// Seconds until there is room.
    pub retry_after: u32,
    /// What the six `x-ratelimit-*` headers say.
    pub figures: RateFigures,
}

/// The six `x-ratelimit-*` headers; those without a limit are left out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RateFigures {
    /// Requests a minute.
    pub limit_requests: Option<u64>,
    /// Tokens a minute.
    pub limit_tokens: Option<u64>,
    /// Requests left.
    pub remaining_requests: Option<u64>,
    /// Tokens left.
    pub remaining_tokens: Option<u64>,
    /// Milliseconds until all requests are there again.
    pub reset_requests_ms: Option<u64>,
    /// Milliseconds until all tokens are there again.
    pub reset_tokens_ms: Option<u64>,
}

/// Whose money it is.
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
    /// Whose money it is.
    pub subject: BudgetSubject,
    /// Period; [`tollgate_core::Window::Total`] for a balance.
    pub window: tollgate_core::Window,
    /// Spent so far.
    pub spent: NanoUsd,
    /// Of this much.
    pub amount: NanoUsd,
    /// When it renews by itself.
    pub renews_at: Option<Timestamp>,
}

impl Refusal {
    /// The row in docs/errors.md, such as `E40`, for a caller of this protocol.
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
            Self::NoRoute { too_dear: true, .. } => "E41",
            Self::NoRoute { .. } => "E40",
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
    /// The row in docs/errors.md.
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
