//! No account can serve a request: the causes as reported to callers and operators, and what could change them.

use tollgate_protocol::{FieldPath, Method, Protocol};

use super::exclusion::{self, ExcludedCandidate, Exclusion, MissingPrice, PriceFigures};
use crate::{
    Account, Channel, PriceLimitOn, Timestamp, TraceEntry,
    offer::{ModelPurpose, supports},
};

/// Why no account is available, as reported to callers (E40; E41 for price limits, E42 for missing prices). Of several causes the
/// first variant is reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum NoRouteCause {
    Concurrency,
    /// Cooling after failures.
    Cooldown,
    /// Cooling after 429.
    UpstreamRateLimited,
    /// Exhausted quota of an account, or our budget on the channel.
    UpstreamQuota,
    PriceLimit,
    /// A price is missing that bounded money or a price limit requires.
    NoPrice,
    /// The provider refused the credentials.
    Credential,
    /// Disabled by an operator.
    Disabled,
    NoneConfigured,
}

/// The result of routing when no account can serve a request: every candidate with its reason.
#[derive(Clone, Debug)]
pub struct NoRoute<'c> {
    pub excluded: Vec<ExcludedCandidate<'c>>,
    pub method: Method,
}

/// An account that is worth waiting for.
#[derive(Clone, Copy, Debug)]
pub struct BusyAccount<'a> {
    pub channel: &'a Channel,
    pub account: &'a Account,
    /// True when the channel is at its own limit, and only that is waited for: any of its accounts will do then.
    pub is_channel_full: bool,
}

impl NoRoute<'_> {
    /// The cause to report: the first one present, in the order of [`NoRouteCause`]'s variants.
    pub fn cause(&self) -> NoRouteCause {
        self.excluded.iter().filter_map(|it| it.why.cause()).min().unwrap_or(NoRouteCause::NoneConfigured)
    }

    /// True for E41 and E42 instead of E40: prices exclude every candidate that is neither disabled nor missing, so waiting does
    /// not help.
    #[must_use]
    pub fn price_alone(&self) -> bool {
        self.cause().is_price()
    }

    /// The missing price that E42 reports; that of bounded money if reasons differ.
    #[must_use]
    pub fn missing_price(&self) -> Option<MissingPrice> {
        let missing = |it: &ExcludedCandidate<'_>| if let Exclusion::Unpriced(missing) = it.why { Some(missing) } else { None };
        self.excluded.iter().filter_map(missing).min()
    }

    /// When the first candidate becomes available again, if known.
    pub fn earliest_recovery(&self) -> Option<Timestamp> {
        self.excluded.iter().filter_map(|it| it.why.until()).min()
    }

    /// When the next candidate becomes available after `now`, if known.
    pub fn recovery_after(&self, now: Timestamp) -> Option<Timestamp> {
        self.excluded.iter().filter_map(|it| it.why.until()).filter(|until| *until > now).min()
    }

    /// Accounts excluded only because they are busy, in the offer's order. They are worth waiting for.
    pub fn busy_accounts(&self) -> Vec<BusyAccount<'_>> {
        let mut last_full = None;
        let busy = self.excluded.iter().filter(|it| it.why.is_concurrency()).filter_map(|it| {
            let (channel, account) = (it.channel, it.account()?);
            let is_channel_full = it.why == Exclusion::ChannelConcurrency;
            // One account represents all of a full channel. The accounts of a channel are adjacent.
            let is_known = is_channel_full && last_full.replace(channel.id) == Some(channel.id);
            (!is_known).then_some(BusyAccount { channel, account, is_channel_full })
        });
        busy.collect()
    }

    pub fn retryable(&self) -> bool {
        self.cause().retryable()
    }

    /// The smallest set of fields whose removal makes a candidate usable (E17); `None` when any candidate is excluded for another
    /// reason. Candidates of other protocols do not count while translation is disabled.
    pub fn fewest_unsupported_fields(&self) -> Option<Vec<FieldPath>> {
        if self.excluded.iter().any(|it| it.why.cause().is_some()) {
            return None;
        }
        self.excluded.iter().filter_map(|it| it.why.fields()).min_by_key(|fields| fields.len()).cloned()
    }

    /// The methods the model is offered on, when all candidates speak another protocol and the request cannot be translated (E15).
    pub fn other_protocol_methods(&self) -> Option<Vec<&'static str>> {
        let protocols: Option<Vec<Protocol>> = self.excluded.iter().map(|it| it.why.other_protocol()).collect();
        let protocols = protocols.filter(|it| !it.is_empty())?;
        Some(supports(ModelPurpose::of_method(self.method), &protocols))
    }

    /// Prices that E41 may show. Only limits on the sale price, because callers never see costs; the cheapest candidate if they
    /// differ.
    pub fn price_figures(&self) -> Option<PriceFigures> {
        let figures = self.excluded.iter().filter_map(|it| it.why.figures()).filter(|it| it.on == PriceLimitOn::Sale);
        figures.min_by_key(|figures| figures.price)
    }

    /// The usage record's trace of the exclusions.
    pub fn trace(&self) -> Vec<TraceEntry> {
        let mut entries = Vec::new();
        exclusion::trace(&self.excluded, &mut entries);
        entries
    }
}

impl NoRouteCause {
    /// The error's id.
    #[must_use]
    pub const fn error_id(self) -> &'static str {
        match self {
            Self::PriceLimit => "E41",
            Self::NoPrice => "E42",
            Self::Concurrency
            | Self::Cooldown
            | Self::UpstreamRateLimited
            | Self::UpstreamQuota
            | Self::Credential
            | Self::Disabled
            | Self::NoneConfigured => "E40",
        }
    }

    /// True for causes that only a change of prices or price limits removes.
    #[must_use]
    pub const fn is_price(self) -> bool {
        matches!(self, Self::PriceLimit | Self::NoPrice)
    }

    /// Name on the wire.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Concurrency => "concurrency",
            Self::Cooldown => "cooldown",
            Self::UpstreamRateLimited => "upstream_rate_limited",
            Self::UpstreamQuota => "upstream_quota",
            Self::PriceLimit => "price_limit",
            Self::NoPrice => "no_price",
            Self::Credential => "credential",
            Self::Disabled => "disabled",
            Self::NoneConfigured => "none_configured",
        }
    }

    /// True when waiting alone can help.
    pub const fn retryable(self) -> bool {
        match self {
            Self::Concurrency | Self::Cooldown | Self::UpstreamRateLimited | Self::UpstreamQuota => true,
            Self::PriceLimit | Self::NoPrice | Self::Credential | Self::Disabled | Self::NoneConfigured => false,
        }
    }
}
