//! Why a candidate is not tried, and what that means for the caller.

use std::sync::Arc;

use tollgate_protocol::{FieldPath, Protocol};

use crate::{Channel, CoolingReason, PriceLimitOn, RestingReason, Timestamp, TraceEntry};

/// One candidate that is not tried.
#[derive(Clone, Debug)]
pub struct Excluded {
    /// Channel.
    pub channel: Arc<Channel>,
    /// Position in [`Channel::accounts`]; `None`: the whole channel.
    pub account: Option<usize>,
    /// The reason.
    pub why: Exclusion,
}

/// Why a candidate is not tried.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Exclusion {
    /// The channel has no account.
    NoAccount,
    /// The channel cannot serve the method.
    NoMapping,
    /// Off by hand.
    Disabled,
    /// Cooling, or another request is probing.
    Cooling {
        /// End.
        until: Timestamp,
        /// Cause.
        why: CoolingReason,
    },
    /// Resting.
    Resting {
        /// End; `None`: a test must pass.
        until: Option<Timestamp>,
        /// Cause.
        why: RestingReason,
    },
    /// A price is above a bound.
    PriceAboveLimit(PriceFigures),
    /// A price that must exist does not.
    Unpriced,
    /// Too little is left between cost and sale.
    Margin,
    /// Its protocol cannot express these fields.
    CannotTranslate(Vec<FieldPath>),
    /// It refused these fields lately.
    Capability(Vec<FieldPath>),
    /// It speaks this protocol, and translation is not to be used.
    OtherProtocol(Protocol),
    /// As many requests at once as it takes.
    Concurrency,
    /// As many requests or tokens a minute as it takes.
    Rate {
        /// When there is room again.
        until: Timestamp,
    },
    /// The channel's budget is spent.
    Budget {
        /// When it renews; `None`: it does not.
        until: Option<Timestamp>,
    },
}

/// A price above a bound, nano-USD per million tokens after multipliers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PriceFigures {
    /// Whose limit.
    pub level: LimitLevel,
    /// Which price.
    pub on: PriceLimitOn,
    /// Which kind.
    pub kind: PriceKind,
    /// The bound.
    pub limit: i64,
    /// The price.
    pub price: i64,
}

/// Whose price limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LimitLevel {
    /// The group's.
    Group,
    /// The key's.
    Key,
    /// The request's own.
    Request,
}

/// Which price.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PriceKind {
    /// Input.
    Input,
    /// Output.
    Output,
}

/// Why no account is available, as callers are told (E40, E41).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Cause {
    /// Busy accounts.
    Concurrency,
    /// Cooling after failures.
    Cooldown,
    /// Cooling after 429.
    UpstreamRateLimited,
    /// Spent quota, or our budget on the channel.
    UpstreamQuota,
    /// Price limits.
    PriceLimit,
    /// Off by hand, or refused credentials.
    Disabled,
    /// Nothing there.
    NoneConfigured,
}

/// Every candidate is excluded.
#[derive(Clone, Debug)]
pub struct NoRoute {
    /// All of them, with reasons.
    pub excluded: Vec<Excluded>,
}

impl NoRoute {
    /// The cause to tell.
    #[must_use]
    pub fn cause(&self) -> Cause {
        Cause::NoneConfigured
    }

    /// E41 instead of E40: price limits alone exclude everything.
    #[must_use]
    pub fn price_limit_alone(&self) -> bool {
        false
    }

    /// When the first candidate is back, where that is known.
    #[must_use]
    pub fn earliest_recovery(&self) -> Option<Timestamp> {
        None
    }

    /// Whether waiting can help.
    #[must_use]
    pub fn retryable(&self) -> bool {
        false
    }

    /// The fields that exclude every candidate (E17); `None` when something else does too.
    #[must_use]
    pub fn all_translate(&self) -> Option<Vec<FieldPath>> {
        None
    }

    /// Every candidate speaks another protocol and translation is not to be used (E15): what the model is offered
    /// on instead.
    #[must_use]
    pub fn only_other_protocol(&self) -> Option<Vec<&'static str>> {
        None
    }

    /// The figures E41 may show: of the sale price only.
    #[must_use]
    pub fn price_figures(&self) -> Option<PriceFigures> {
        None
    }

    /// What the usage record keeps of it.
    #[must_use]
    pub fn trace(&self) -> Vec<TraceEntry> {
        Vec::new()
    }
}

impl Cause {
    /// The word on the wire.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Concurrency => "concurrency",
            Self::Cooldown => "cooldown",
            Self::UpstreamRateLimited => "upstream_rate_limited",
            Self::UpstreamQuota => "upstream_quota",
            Self::PriceLimit => "price_limit",
            Self::Disabled => "disabled",
            Self::NoneConfigured => "none_configured",
        }
    }
}
