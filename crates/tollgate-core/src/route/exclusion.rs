//! Why candidates are excluded, and how this is reported to operators.

use std::{fmt, sync::Arc};

use tollgate_protocol::{FieldPath, Protocol};

use super::NoRouteCause;
use crate::{
    Account, BelowCost, Channel, CoolingReason, NanoUsd, PriceLimitOn, RestingReason, ShortText, Timestamp, TraceEntry,
    UnpricedExtra,
};

/// An account, or a whole channel, that a request cannot use, with the reason.
#[derive(Clone, Debug)]
pub struct ExcludedCandidate<'c> {
    pub channel: &'c Channel,
    /// Index in [`Channel::accounts`]; `None`: the whole channel.
    pub account: Option<u32>,
    pub why: Exclusion,
    /// Position in the offer's candidates.
    pub(super) offer_index: u32,
}

/// Why a candidate cannot serve a request. The codes are listed in docs/routing.md.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Exclusion {
    /// The channel has no account.
    NoAccount,
    /// The channel cannot serve the method.
    NoMapping,
    Disabled,
    /// Its base URL names a loopback or private address, and `private_network` is off.
    PrivateNetwork,
    /// Cooling, or being probed by another request.
    Cooling {
        until: Timestamp,
        why: CoolingReason,
    },
    Resting {
        /// End of the rest; `None`: a test must pass.
        until: Option<Timestamp>,
        why: RestingReason,
    },
    /// A price exceeds a price limit.
    PriceAboveLimit(PriceFigures),
    /// A required price is missing.
    Unpriced(MissingPrice),
    /// The margin between sale and cost price is too low.
    Margin,
    /// The group sells nothing below cost, and this account would.
    BelowCost(BelowCost),
    /// Its protocol cannot express these fields.
    CannotTranslate(Vec<FieldPath>),
    /// It recently refused these fields.
    Capability(Vec<FieldPath>),
    /// It speaks this protocol, and translation is disabled.
    OtherProtocol(Protocol),
    Concurrency,
    /// Its limit of requests or tokens per minute is reached.
    Rate {
        /// When it can take the next request.
        until: Timestamp,
    },
    /// The channel's limit of concurrent requests is reached.
    ChannelConcurrency,
    /// The channel's limit of requests or tokens per minute is reached.
    ChannelRate {
        /// When it can take the next request.
        until: Timestamp,
    },
    /// The channel's budget is exhausted.
    Budget {
        /// Start of the next period; `None`: never.
        until: Option<Timestamp>,
    },
}

/// The missing price, and the rule that requires it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum MissingPrice {
    /// The sale price, because the caller's money is bounded.
    SaleForBoundedMoney,
    /// The sale price, because of a price limit.
    SaleForPriceLimit,
    /// The cost price, because of a price limit.
    CostForPriceLimit,
    /// The cost price of an option of the request, because of a price limit. The channel does state the model's own cost price.
    CostOfOption(UnpricedExtra),
}

/// A price above a price limit; nano-USD per million tokens after multipliers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PriceFigures {
    pub level: LimitLevel,
    pub on: PriceLimitOn,
    pub kind: PriceKind,
    pub limit: i64,
    pub price: i64,
}

/// The owner of a price limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LimitLevel {
    Group,
    Key,
    Request,
}

/// The kind of token whose price exceeds a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PriceKind {
    Input,
    Output,
}

/// Entries of a trace, at most; one more entry gives the number omitted.
const MAX_TRACE_ENTRIES: usize = 64;

/// Appends a trace entry per exclusion, up to [`MAX_TRACE_ENTRIES`], then one with the number omitted.
pub(super) fn trace(excluded: &[ExcludedCandidate<'_>], entries: &mut Vec<TraceEntry>) {
    entries.extend(excluded.iter().take(MAX_TRACE_ENTRIES).map(|it| TraceEntry {
        channel: (&it.channel.spec.name).into(),
        account: it.account().map(|account| (&account.spec.name).into()),
        code: it.why.code().into(),
        detail: it.why.detail(),
    }));
    if let Some(more) = excluded.len().checked_sub(MAX_TRACE_ENTRIES).filter(|more| *more > 0) {
        let detail = Some(format!("{more} more candidates are excluded"));
        entries.push(TraceEntry { channel: ShortText::default(), account: None, code: "more".into(), detail });
    }
}

impl<'c> ExcludedCandidate<'c> {
    /// The account; `None`: the whole channel.
    pub fn account(&self) -> Option<&'c Arc<Account>> {
        self.channel.accounts.get(self.account? as usize)
    }
}

impl Exclusion {
    pub const fn code(&self) -> &'static str {
        match self {
            Self::NoAccount => "no_account",
            Self::NoMapping => "no_mapping",
            Self::Disabled => "disabled",
            Self::PrivateNetwork => "private_network",
            Self::Cooling { .. } | Self::Resting { .. } => "cooling",
            Self::PriceAboveLimit(_) => "price_above_limit",
            Self::Unpriced(_) => "unpriced",
            Self::Margin => "margin",
            Self::BelowCost(_) => "below_cost",
            Self::CannotTranslate(_) | Self::OtherProtocol(_) => "cannot_translate",
            Self::Capability(_) => "capability",
            Self::Concurrency | Self::ChannelConcurrency => "concurrency",
            Self::Rate { .. } | Self::ChannelRate { .. } => "rate",
            Self::Budget { .. } => "budget",
        }
    }

    /// The cause it contributes to E40, E41 and E42; `None` if it does not count.
    #[must_use]
    pub const fn cause(&self) -> Option<NoRouteCause> {
        Some(match self {
            Self::NoAccount | Self::NoMapping | Self::PrivateNetwork => NoRouteCause::NoneConfigured,
            Self::Disabled => NoRouteCause::Disabled,
            Self::Resting { why: RestingReason::Refused, until: None } => NoRouteCause::Credential,
            Self::Cooling { why: CoolingReason::RateLimited, .. } => NoRouteCause::UpstreamRateLimited,
            // A refusal with an end may concern only one caller: a probe finds out within seconds.
            Self::Resting { why: RestingReason::Refused, until: Some(_) } | Self::Cooling { .. } => NoRouteCause::Cooldown,
            Self::Resting { why: RestingReason::QuotaSpent, .. } | Self::Budget { .. } => NoRouteCause::UpstreamQuota,
            Self::Concurrency | Self::Rate { .. } | Self::ChannelConcurrency | Self::ChannelRate { .. } => {
                NoRouteCause::Concurrency
            }
            Self::PriceAboveLimit(_) | Self::Margin | Self::BelowCost(_) => NoRouteCause::PriceLimit,
            Self::Unpriced(_) => NoRouteCause::NoPrice,
            Self::CannotTranslate(_) | Self::Capability(_) | Self::OtherProtocol(_) => return None,
        })
    }

    /// When it ends, if known.
    pub const fn until(&self) -> Option<Timestamp> {
        match self {
            Self::Cooling { until, .. } | Self::Rate { until } | Self::ChannelRate { until } => Some(*until),
            Self::Resting { until, .. } | Self::Budget { until } => *until,
            Self::NoAccount
            | Self::NoMapping
            | Self::Disabled
            | Self::PrivateNetwork
            | Self::PriceAboveLimit(_)
            | Self::Unpriced(_)
            | Self::Margin
            | Self::BelowCost(_)
            | Self::CannotTranslate(_)
            | Self::Capability(_)
            | Self::OtherProtocol(_)
            | Self::Concurrency
            | Self::ChannelConcurrency => None,
        }
    }

    /// Details for operators. Never shown to callers, because it may contain costs.
    pub fn detail(&self) -> Option<String> {
        let until = self.until().map(|until| format!(" until {until}")).unwrap_or_default();
        match self {
            Self::Cooling { why, .. } => Some(format!("{}{until}", why.as_str())),
            Self::Resting { why, until: None } => Some(format!("{} until a test passes", why.as_str())),
            Self::Resting { why, .. } => Some(format!("{}{until}", why.as_str())),
            Self::PriceAboveLimit(figures) => Some(figures.to_string()),
            Self::BelowCost(figures) => Some(figures.to_string()),
            Self::CannotTranslate(fields) | Self::Capability(fields) => Some(fields.join(", ")),
            Self::OtherProtocol(protocol) => Some(format!("speaks {}", protocol.as_str())),
            Self::ChannelConcurrency | Self::ChannelRate { .. } => Some(format!("limit of the channel{until}")),
            Self::Rate { .. } | Self::Budget { .. } => Some(until.trim_start().to_owned()).filter(|text| !text.is_empty()),
            Self::PrivateNetwork => Some("the base URL is a loopback or private address, and private_network is off".to_owned()),
            Self::Unpriced(missing) => Some(missing.as_str().to_owned()),
            Self::NoAccount | Self::NoMapping | Self::Disabled | Self::Margin | Self::Concurrency => None,
        }
    }

    /// Remedy for the operator.
    pub const fn remedy(&self) -> &'static str {
        match self {
            Self::NoAccount => "give the channel an account",
            Self::NoMapping => "serve the model for this method on the channel",
            Self::Disabled => "switch it on",
            Self::PrivateNetwork => {
                "`tollgate channel set NAME private_network=true`, or `private_network = true` in the catalog file"
            }
            Self::Cooling { .. } => "ends by itself; the next request after it is the probe",
            Self::Resting { why: RestingReason::Refused, until: Some(_) } => "is probed: it ends if the credential works",
            Self::Resting { why: RestingReason::Refused, until: None } => "put the credential right, then `tollgate channel test`",
            Self::Resting { why: RestingReason::QuotaSpent, .. } => "top the account up, or wait",
            Self::PriceAboveLimit(figures) => match figures.level {
                LimitLevel::Group => "raise the group's price limit, or lower the price",
                LimitLevel::Key => "raise the key's price limit, or lower the price",
                LimitLevel::Request => "the request's own bound is too low",
            },
            Self::Unpriced(MissingPrice::CostForPriceLimit) => "state the channel's cost for the model (`tollgate channel set`)",
            Self::Unpriced(MissingPrice::CostOfOption(_)) => {
                "state the option's cost beside the channel's cost for the model (`tollgate channel set`), or leave the option out"
            }
            Self::Unpriced(_) => "price the model, such as `tollgate model set MODEL price=input:0.30,output:2.40`",
            Self::Margin => "lower the least margin, or raise the sale price",
            Self::BelowCost(_) => "raise the sale price, or let the group sell below cost",
            Self::CannotTranslate(_) => {
                "leave the fields out, let the group translate leniently, or add a channel of this protocol"
            }
            Self::Capability(_) => "ends ten minutes after the last refusal",
            Self::OtherProtocol(_) => "add a channel of this protocol",
            Self::Concurrency => "add accounts, or raise its concurrency",
            Self::Rate { .. } => "add accounts, or raise its rpm and tpm",
            Self::ChannelConcurrency => "add a channel, or raise the concurrency of this one",
            Self::ChannelRate { .. } => "add a channel, or raise the rpm and tpm of this one",
            Self::Budget { .. } => "raise the channel's budget, or wait for it to renew",
        }
    }

    /// True when an untranslatable request is a more permanent reason than this one.
    pub(super) const fn yields_to_translation(&self) -> bool {
        match self {
            Self::NoAccount | Self::NoMapping | Self::PrivateNetwork | Self::OtherProtocol(_) | Self::CannotTranslate(_) => false,
            Self::Disabled
            | Self::Cooling { .. }
            | Self::Resting { .. }
            | Self::PriceAboveLimit(_)
            | Self::Unpriced(_)
            | Self::Margin
            | Self::BelowCost(_)
            | Self::Capability(_)
            | Self::Concurrency
            | Self::Rate { .. }
            | Self::ChannelConcurrency
            | Self::ChannelRate { .. }
            | Self::Budget { .. } => true,
        }
    }

    /// True when it ends as soon as another request does.
    pub(super) const fn is_concurrency(&self) -> bool {
        matches!(self, Self::Concurrency | Self::ChannelConcurrency)
    }

    pub(super) const fn fields(&self) -> Option<&Vec<FieldPath>> {
        if let Self::CannotTranslate(fields) | Self::Capability(fields) = self { Some(fields) } else { None }
    }

    pub(crate) const fn figures(&self) -> Option<PriceFigures> {
        if let Self::PriceAboveLimit(figures) = self { Some(*figures) } else { None }
    }

    pub(super) const fn other_protocol(&self) -> Option<Protocol> {
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
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Input => "input",
            Self::Output => "output",
        }
    }
}

impl LimitLevel {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Group => "group",
            Self::Key => "key",
            Self::Request => "request",
        }
    }
}

impl MissingPrice {
    /// Text in traces, for operators.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::SaleForBoundedMoney => "the model has no price, and a budget or balance bounds the caller's money",
            Self::SaleForPriceLimit => "the model has no price, and a price limit requires one",
            Self::CostForPriceLimit => "the channel states no cost, and a price limit requires one",
            Self::CostOfOption(UnpricedExtra::ServiceTier) => {
                "the channel's cost has no factor for the service tier of the request, and a price limit requires one"
            }
            Self::CostOfOption(UnpricedExtra::WebSearch) => {
                "the channel's cost has no price of a web search (web_search), and a price limit requires one"
            }
            Self::CostOfOption(UnpricedExtra::ServerTools) => {
                "the channel's cost has no price of the provider's tools (server_tools), and a price limit requires one"
            }
            Self::CostOfOption(UnpricedExtra::OutputMedia) => {
                "the channel's cost has no price of images and audio in the answer (output_media), and a price limit requires one"
            }
            Self::CostOfOption(UnpricedExtra::Surcharge) => {
                "an option of the request is priced separately, no price list has its price, and a price limit requires one"
            }
        }
    }
}
