//! Why a candidate is not tried, and what that means for the caller.

use std::{fmt, sync::Arc};

use tollgate_protocol::{FieldPath, Method, Protocol};

use crate::{
    Account, Channel, CoolingReason, NanoUsd, PriceLimitOn, RestingReason, Timestamp, TraceEntry,
    offer::{ModelPurpose, supports},
};

/// One candidate that is not tried.
#[derive(Clone, Debug)]
pub struct ExcludedCandidate<'c> {
    /// Channel.
    pub channel: &'c Channel,
    /// Position in [`Channel::accounts`]; `None`: the whole channel.
    pub account: Option<u32>,
    /// The reason.
    pub why: Exclusion,
    /// Position in the offer's candidates.
    pub(super) candidate: u32,
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

/// Why no account is available, as callers are told (E40; E41 for price limits). Of several the first in this order is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum NoRouteCause {
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
pub struct NoRoute<'c> {
    /// All of them, with reasons.
    pub excluded: Vec<ExcludedCandidate<'c>>,
    /// What was asked.
    pub method: Method,
}

/// Most entries of a trace; the rest is summed up in one more.
const MAX_TRACE_ENTRIES: usize = 64;

impl NoRoute<'_> {
    /// The cause to tell: the first present in the order of [`NoRouteCause`]'s variants.
    #[must_use]
    pub fn cause(&self) -> NoRouteCause {
        self.excluded.iter().filter_map(|it| it.why.cause()).min().unwrap_or(NoRouteCause::NoneConfigured)
    }

    /// E41 instead of E40: price limits exclude everything that is not off or missing anyway, so that no wait helps.
    #[must_use]
    pub fn price_limit_alone(&self) -> bool {
        self.cause() == NoRouteCause::PriceLimit
    }

    /// When the first candidate is back, where that is known.
    #[must_use]
    pub fn earliest_recovery(&self) -> Option<Timestamp> {
        self.excluded.iter().filter_map(|it| it.why.until()).min()
    }

    /// When the next candidate is back after a time, where that is known.
    #[must_use]
    pub fn recovery_after(&self, now: Timestamp) -> Option<Timestamp> {
        self.excluded.iter().filter_map(|it| it.why.until()).filter(|until| *until > now).min()
    }

    /// Accounts that are only busy, in the offer's order: waiting for one of them is worth while.
    #[must_use]
    pub fn busy_accounts(&self) -> Vec<Arc<Account>> {
        let busy = self.excluded.iter().filter(|it| it.why == Exclusion::Concurrency);
        busy.filter_map(|it| it.account().cloned()).collect()
    }

    /// Whether waiting can help.
    #[must_use]
    pub fn retryable(&self) -> bool {
        self.cause().retryable()
    }

    /// The fewest fields whose removal gives a candidate (E17); `None` when something else excludes one too. Candidates
    /// that speak another protocol while translation is not to be used do not count.
    #[must_use]
    pub fn fewest_unsupported_fields(&self) -> Option<Vec<FieldPath>> {
        if self.excluded.iter().any(|it| it.why.cause().is_some()) {
            return None;
        }
        self.excluded.iter().filter_map(|it| it.why.fields()).min_by_key(|fields| fields.len()).cloned()
    }

    /// Every candidate speaks another protocol and translation is not to be used (E15): what the model is offered
    /// on instead.
    #[must_use]
    pub fn other_protocol_methods(&self) -> Option<Vec<&'static str>> {
        let protocols: Option<Vec<Protocol>> = self.excluded.iter().map(|it| it.why.other_protocol()).collect();
        protocols.filter(|it| !it.is_empty()).map(|protocols| supports(ModelPurpose::of_method(self.method), &protocols))
    }

    /// The figures E41 may show: of limits on the sale price only, since cost is never shown to a caller; the cheapest
    /// where candidates differ.
    #[must_use]
    pub fn price_figures(&self) -> Option<PriceFigures> {
        let figures = self.excluded.iter().filter_map(|it| it.why.figures()).filter(|it| it.on == PriceLimitOn::Sale);
        figures.min_by_key(|figures| figures.price)
    }

    /// What the usage record keeps of it.
    #[must_use]
    pub fn trace(&self) -> Vec<TraceEntry> {
        let mut entries = Vec::new();
        trace(&self.excluded, &mut entries);
        entries
    }
}

/// Appends what is excluded, summing up what goes beyond the bound.
pub(super) fn trace(excluded: &[ExcludedCandidate<'_>], entries: &mut Vec<TraceEntry>) {
    entries.extend(excluded.iter().take(MAX_TRACE_ENTRIES).map(|it| TraceEntry {
        channel: it.channel.name.clone(),
        account: it.account().map(|account| account.name.clone()),
        code: it.why.code().to_owned(),
        detail: it.why.detail(),
    }));
    if let Some(more) = excluded.len().checked_sub(MAX_TRACE_ENTRIES).filter(|more| *more > 0) {
        let detail = Some(format!("{more} more candidates are excluded"));
        entries.push(TraceEntry { channel: String::new(), account: None, code: "more".to_owned(), detail });
    }
}

impl<'c> ExcludedCandidate<'c> {
    /// The account; `None`: the whole channel.
    #[must_use]
    pub fn account(&self) -> Option<&'c Arc<Account>> {
        self.channel.accounts.get(self.account? as usize)
    }
}

impl Exclusion {
    /// The word in traces.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        match self {
            Self::NoAccount => "no_account",
            Self::NoMapping => "no_mapping",
            Self::Disabled => "disabled",
            Self::Cooling { .. } | Self::Resting { .. } => "cooling",
            Self::PriceAboveLimit(_) => "price_above_limit",
            Self::Unpriced => "unpriced",
            Self::Margin => "margin",
            Self::CannotTranslate(_) | Self::OtherProtocol(_) => "cannot_translate",
            Self::Capability(_) => "capability",
            Self::Concurrency => "concurrency",
            Self::Rate { .. } => "rate",
            Self::Budget { .. } => "budget",
        }
    }

    /// What it contributes to E40 and E41; `None`: it does not count.
    #[must_use]
    pub const fn cause(&self) -> Option<NoRouteCause> {
        Some(match self {
            Self::NoAccount | Self::NoMapping => NoRouteCause::NoneConfigured,
            Self::Disabled | Self::Resting { why: RestingReason::Refused, .. } => NoRouteCause::Disabled,
            Self::Cooling { why: CoolingReason::RateLimited, .. } => NoRouteCause::UpstreamRateLimited,
            Self::Cooling { .. } => NoRouteCause::Cooldown,
            Self::Resting { why: RestingReason::QuotaSpent, .. } | Self::Budget { .. } => NoRouteCause::UpstreamQuota,
            Self::Concurrency | Self::Rate { .. } => NoRouteCause::Concurrency,
            Self::PriceAboveLimit(_) | Self::Unpriced | Self::Margin => NoRouteCause::PriceLimit,
            Self::CannotTranslate(_) | Self::Capability(_) | Self::OtherProtocol(_) => return None,
        })
    }

    /// When it ends, where that is known.
    #[must_use]
    pub const fn until(&self) -> Option<Timestamp> {
        match self {
            Self::Cooling { until, .. } | Self::Rate { until } => Some(*until),
            Self::Resting { until, .. } | Self::Budget { until } => *until,
            Self::NoAccount
            | Self::NoMapping
            | Self::Disabled
            | Self::PriceAboveLimit(_)
            | Self::Unpriced
            | Self::Margin
            | Self::CannotTranslate(_)
            | Self::Capability(_)
            | Self::OtherProtocol(_)
            | Self::Concurrency => None,
        }
    }

    /// More for the operator. Never shown to callers: it may name costs.
    #[must_use]
    pub fn detail(&self) -> Option<String> {
        let until = self.until().map(|until| format!(" until {until}")).unwrap_or_default();
        match self {
            Self::Cooling { why, .. } => Some(format!("{}{until}", why.as_str())),
            Self::Resting { why, until: None } => Some(format!("{} until a test passes", why.as_str())),
            Self::Resting { why, .. } => Some(format!("{}{until}", why.as_str())),
            Self::PriceAboveLimit(figures) => Some(figures.to_string()),
            Self::CannotTranslate(fields) | Self::Capability(fields) => Some(fields.join(", ")),
            Self::OtherProtocol(protocol) => Some(format!("speaks {}", protocol.as_str())),
            Self::Rate { .. } | Self::Budget { .. } => Some(until.trim_start().to_owned()).filter(|text| !text.is_empty()),
            Self::NoAccount | Self::NoMapping | Self::Disabled | Self::Unpriced | Self::Margin | Self::Concurrency => None,
        }
    }

    /// What would change it, for the operator.
    #[must_use]
    pub const fn remedy(&self) -> &'static str {
        match self {
            Self::NoAccount => "give the channel an account",
            Self::NoMapping => "serve the model for this method on the channel",
            Self::Disabled => "switch it on",
            Self::Cooling { .. } => "ends by itself; the next request after it is the probe",
            Self::Resting { why: RestingReason::Refused, .. } => "put the credential right, then `tollgate channel test`",
            Self::Resting { why: RestingReason::QuotaSpent, .. } => "top the account up, or wait",
            Self::PriceAboveLimit(figures) => match figures.level {
                LimitLevel::Group => "raise the group's price limit, or lower the price",
                LimitLevel::Key => "raise the key's price limit, or lower the price",
                LimitLevel::Request => "the request's own bound is too low",
            },
            Self::Unpriced => "state the price",
            Self::Margin => "lower the least margin, or raise the sale price",
            Self::CannotTranslate(_) => {
                "leave the fields out, let the group translate leniently, or add a channel of this protocol"
            }
            Self::Capability(_) => "ends ten minutes after the last refusal",
            Self::OtherProtocol(_) => "add a channel of this protocol",
            Self::Concurrency => "add accounts, or raise its concurrency",
            Self::Rate { .. } => "add accounts, or raise its rpm and tpm",
            Self::Budget { .. } => "raise the channel's budget, or wait for it to renew",
        }
    }

    /// Whether that a channel's protocol cannot express the request counts before it.
    pub(super) const fn is_less_than_translation(&self) -> bool {
        match self {
            Self::NoAccount | Self::NoMapping | Self::OtherProtocol(_) | Self::CannotTranslate(_) => false,
            Self::Disabled
            | Self::Cooling { .. }
            | Self::Resting { .. }
            | Self::PriceAboveLimit(_)
            | Self::Unpriced
            | Self::Margin
            | Self::Capability(_)
            | Self::Concurrency
            | Self::Rate { .. }
            | Self::Budget { .. } => true,
        }
    }

    /// The fields it is about.
    const fn fields(&self) -> Option<&Vec<FieldPath>> {
        if let Self::CannotTranslate(fields) | Self::Capability(fields) = self { Some(fields) } else { None }
    }

    const fn figures(&self) -> Option<PriceFigures> {
        if let Self::PriceAboveLimit(figures) = self { Some(*figures) } else { None }
    }

    const fn other_protocol(&self) -> Option<Protocol> {
        if let Self::OtherProtocol(protocol) = self { Some(*protocol) } else { None }
    }
}

impl fmt::Display for PriceFigures {
    /// `sale input 2.00 above the group's 1.50 USD per 1M tokens`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let on = match self.on {
            PriceLimitOn::Sale => "sale",
            PriceLimitOn::Cost => "cost",
        };
        let price = NanoUsd(self.price).to_usd_string();
        let limit = NanoUsd(self.limit).to_usd_string();
        write!(f, "{on} {} {price} above the {}'s {limit} USD per 1M tokens", self.kind.as_str(), self.level.as_str())
    }
}

impl PriceKind {
    /// The word in messages.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Input => "input",
            Self::Output => "output",
        }
    }
}

impl LimitLevel {
    /// The word in messages.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Group => "group",
            Self::Key => "key",
            Self::Request => "request",
        }
    }
}

impl NoRouteCause {
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

    /// Whether waiting helps of itself.
    #[must_use]
    pub const fn retryable(self) -> bool {
        match self {
            Self::Concurrency | Self::Cooldown | Self::UpstreamRateLimited | Self::UpstreamQuota => true,
            Self::PriceLimit | Self::Disabled | Self::NoneConfigured => false,
        }
    }
}
