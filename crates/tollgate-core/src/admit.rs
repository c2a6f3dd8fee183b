//! Admission: the limits and budgets a request is checked against, and the reservation of its worst case.
//!
//! [`reservation_for`] lists what to check; a store's `Counters` reserves all of it or nothing. The arithmetic of counting is
//! here too ([`SpendTotals`], [`SlidingWindow`]), so that every backend counts alike.

mod counting;
mod exhausted;
mod meter;
mod reservation;
mod worst_case;

use std::fmt;

use serde::{Deserialize, Serialize};
use tollgate_protocol::{FieldPath, Method, Protocol, RequestSummary};

pub use counting::{PackedSpendTotals, SlidingWindow, SpendTotals};
pub use exhausted::{EarlyRequest, exhausted_limit, has_limits};
pub use meter::{Meter, RateCheck, rate_statuses};
pub use reservation::Reservation;
use worst_case::WorstCaseCost;

use crate::{
    Billing, Budget, BudgetAction, Caller, Catalog, Channel, ChannelId, Group, GroupId, Key, KeyId, Limits, MAX_ATTEMPTS, Member,
    MemberId, Multiplier, NanoUsd, Offer, PlannedAttempt, Price, RequestId, Timestamp, Window, estimate_input, estimate_output,
    extras_at,
    route::cost_with_extras,
    settle::{estimate_searches, unseen_tokens},
};

/// Lowest output limit, in tokens, that a reservation may be lowered to. A request that cannot afford it is refused (E33).
pub const MIN_OUTPUT_TOKENS: u64 = 256;
/// Most attempt reservations made together with their request's.
pub const MAX_ATTEMPT_RESERVATIONS: usize = 6;

/// The owner of a limit or a budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Subject {
    Key(KeyId),
    Member(MemberId),
    Group(GroupId),
    /// One channel. Its budgets are on cost, all others on the sale price.
    Channel(ChannelId),
    Gateway,
}

/// A rule that bounds the use of a subject.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limit {
    pub subject: Subject,
    pub rule: LimitRule,
}

/// Requests and tokens are per minute; concurrency is requests in progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum LimitRule {
    Requests(u64),
    Tokens(u64),
    Concurrency(u64),
    /// Money per period.
    Budget(Budget),
    /// A prepaid member's balance, which must not fall below zero.
    Balance,
}

/// The kind of an exceeded rate, for messages and headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RateKind {
    Requests,
    Tokens,
    Concurrency,
}

/// Input of [`reservation_for`]. `at` is the arrival of the request, which decides the periods of budgets.
#[derive(Clone, Copy, Debug)]
pub struct AdmitInput<'a> {
    pub id: RequestId,
    pub at: Timestamp,
    pub caller: &'a Caller,
    /// The model with the group, prices and policies that apply to this caller.
    pub offer: &'a Offer,
    pub summary: &'a RequestSummary,
    pub from: Protocol,
    /// Budgets of the whole gateway.
    pub gateway: &'a [Budget],
}

/// Usage of one rate, as reported by the `x-ratelimit-*` headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RateStatus {
    /// Limit per minute.
    pub limit: u64,
    /// Used in the last minute.
    pub used: u64,
    /// Milliseconds until all usage has left the window.
    pub reset_ms: u64,
}

/// Per kind, the rate with the least left of all that apply.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RateStatuses {
    pub requests: Option<RateStatus>,
    pub tokens: Option<RateStatus>,
}

/// Why a reservation was refused. No part of it is reserved then.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LimitExceeded {
    /// A budget or balance does not cover the amount.
    Money(FundsStatus),
    /// A rate or concurrency limit is exhausted.
    Rate(RateExceeded),
}

/// State of a budget or balance that does not cover a reservation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FundsStatus {
    pub subject: Subject,
    pub budget: Option<Budget>,
    /// Spent so far including open reservations; for a balance, the remaining balance.
    pub spent: NanoUsd,
    /// Remaining amount; may be negative.
    pub left: NanoUsd,
}

/// A rate or concurrency limit that is exhausted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RateExceeded {
    pub subject: Subject,
    pub kind: RateKind,
    pub limit: u64,
    pub used: u64,
    /// Milliseconds until the request fits, if nothing else arrives.
    pub wait_ms: u64,
    pub rate_statuses: RateStatuses,
}

/// The result of a reservation: the state of the rates, for the headers of the answer, and the output limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReservationReceipt {
    pub rate_statuses: RateStatuses,
    /// Output limit to write into the request; lower than reserved at first where less money was left.
    pub output: Option<u64>,
}

/// An alert-only budget at the moment it was exhausted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BudgetAlert {
    pub subject: Subject,
    pub budget: Budget,
    pub spent: NanoUsd,
}

/// The reservation a request needs; `None` when no limit applies.
pub fn reservation_for(input: &AdmitInput<'_>) -> Option<Reservation> {
    let AdmitInput { id, at, caller, offer, summary, from, gateway } = *input;
    let counts = summary.method == Method::CountTokens;
    let kind = RequestKind { costs_money: !counts, counts_tokens: counts };
    let limits = limits_of(&caller.key, Some(&offer.group), gateway, kind);
    if limits.is_empty() {
        return None;
    }
    if counts {
        return Some(Reservation {
            id,
            at,
            limits,
            tokens: 0,
            amount: NanoUsd::ZERO,
            output: None,
            worst_case: WorstCaseCost::nothing(),
        });
    }
    let (seen, unseen) = (estimate_input(summary), unseen_tokens(summary, &offer.model));
    let searches = estimate_searches(summary, summary.extras);
    let bounded = limits.iter().any(Limit::bounds_money);
    let output_tokens = estimate_output(summary, &offer.model) / u64::from(summary.candidates.max(1));
    let worst_case = match &offer.sale {
        Some(price) if bounded => WorstCaseCost::of(price, offer.sale_multiplier, seen, unseen, searches, summary, output_tokens),
        Some(_) | None => WorstCaseCost::unpriced(seen, summary, output_tokens),
    };
    let limits_output = worst_case.output_costs() && offer.takes_output_limit(from) && summary.method.takes_output_limit();
    let output = (limits_output && summary.max_output.is_none_or(|wanted| wanted > output_tokens)).then_some(output_tokens);
    let lowerable = limits_output && summary.max_output.is_none();
    let worst_case = if lowerable { worst_case.lowerable() } else { worst_case };
    Some(Reservation { id, at, limits, tokens: worst_case.tokens(), amount: worst_case.amount(), output, worst_case })
}

/// The reservation an attempt needs on its channel's budgets, in cost. `None` when the channel has no budget.
pub fn reservation_for_attempt(
    id: RequestId,
    at: Timestamp,
    planned: &PlannedAttempt,
    (from, summary): (Protocol, &RequestSummary),
    offer: &Offer,
) -> Option<Reservation> {
    if planned.channel.spec.budgets.is_empty() || summary.method == Method::CountTokens {
        return None;
    }
    let PlannedAttempt { channel, account, cost, .. } = planned;
    Some(channel_reservation(id, at, channel, (cost.as_deref(), account.spec.cost_multiplier), (from, summary), offer))
}

/// Highest estimated cost of an attempt: its input and all the output it may produce. `None` when the cost price is unknown.
pub fn max_attempt_cost(planned: &PlannedAttempt, asked: (Protocol, &RequestSummary), offer: &Offer) -> Option<NanoUsd> {
    let PlannedAttempt { channel, account, cost, .. } = planned;
    let amount = |cost| worst_case_of_attempt(channel, (Some(cost), account.spec.cost_multiplier), asked, offer).amount();
    cost.as_deref().map(amount)
}

/// Reservations that the attempts of a request may need. They can be made together with the request's own. There is one per
/// channel with a blocking budget, for its most expensive account, and one more for each further account, because a failed
/// attempt may cost money, too. At most [`MAX_ATTEMPT_RESERVATIONS`].
pub fn attempt_reservations(input: &AdmitInput<'_>, catalog: &Catalog) -> Vec<Reservation> {
    let AdmitInput { id, at, offer, summary, from, .. } = *input;
    if summary.method == Method::CountTokens {
        return Vec::new();
    }
    let mut first_per_channel = Vec::new();
    let mut further = Vec::new();
    for mapping in &offer.candidates {
        let Some(channel) = catalog.channel_at(mapping.channel) else { continue };
        if first_per_channel.len() >= MAX_ATTEMPT_RESERVATIONS
            || !channel.spec.budgets.iter().any(|budget| budget.action == BudgetAction::Block)
        {
            continue;
        }
        let accounts = channel.accounts.iter().filter(|account| account.spec.on).count();
        let Some(highest_multiplier) = channel.accounts.iter().filter(|it| it.spec.on).map(|it| it.spec.cost_multiplier).max()
        else {
            continue;
        };
        let cost = cost_with_extras(channel, mapping.mapping as usize, at, (from, summary.extras));
        let reservation = channel_reservation(
            id,
            at,
            channel,
            (cost.as_ref().map(|price| &***price), highest_multiplier),
            (from, summary),
            offer,
        );
        for _ in 1..accounts.min(MAX_ATTEMPTS) {
            further.push(reservation.clone());
        }
        first_per_channel.push(reservation);
    }
    first_per_channel.extend(further);
    first_per_channel.truncate(MAX_ATTEMPT_RESERVATIONS);
    first_per_channel
}

fn channel_reservation(
    id: RequestId,
    at: Timestamp,
    channel: &Channel,
    cost: (Option<&Price>, Multiplier),
    asked: (Protocol, &RequestSummary),
    offer: &Offer,
) -> Reservation {
    let subject = Subject::Channel(channel.id);
    let limits = channel.spec.budgets.iter().map(|budget| Limit { subject, rule: LimitRule::Budget(*budget) }).collect();
    let worst_case = worst_case_of_attempt(channel, cost, asked, offer);
    Reservation { id, at, limits, tokens: 0, amount: worst_case.amount(), output: None, worst_case }
}

fn worst_case_of_attempt(
    channel: &Channel,
    (cost, multiplier): (Option<&Price>, Multiplier),
    (from, summary): (Protocol, &RequestSummary),
    offer: &Offer,
) -> WorstCaseCost {
    let searches = estimate_searches(summary, extras_at(channel, from, summary.extras));
    let (seen, unseen) = (estimate_input(summary), unseen_tokens(summary, &offer.model));
    let output_tokens = estimate_output(summary, &offer.model) / u64::from(summary.candidates.max(1));
    match cost {
        Some(price) => WorstCaseCost::of(price, multiplier, seen, unseen, searches, summary, output_tokens),
        None => WorstCaseCost::unpriced(seen, summary, output_tokens),
    }
}

/// The field that carries the output limit, in the caller's protocol: the one present in the request, else the default one.
pub fn output_limit_field(summary: &RequestSummary, from: Protocol) -> FieldPath {
    let names = from.spec().output_limit_fields;
    let used = names.iter().find(|name| summary.fields.iter().any(|field| field == *name));
    (*used.unwrap_or(&names[0])).to_owned()
}

/// The properties of a request that decide which limits apply to it.
#[derive(Clone, Copy, Debug)]
struct RequestKind {
    costs_money: bool,
    /// True for a token count: it uses no tokens and does not count as a request. [`token_counts_per_minute`] limits these.
    counts_tokens: bool,
}

/// Token counts allowed for each request that the limit on requests per minute allows; never fewer than [`MIN_COUNTS_PER_MINUTE`].
const COUNTS_PER_REQUEST: u64 = 10;
const MIN_COUNTS_PER_MINUTE: u64 = 120;

/// Token counts that a key may request per minute. They have a separate limit because clients send dozens at once, one for each
/// part of a context whose size they show. `None` when nothing limits the key's requests.
#[must_use]
pub fn token_counts_per_minute(key: &Key, group: &Group) -> Option<u64> {
    let limits = [key.limits.rpm, key.member.limits.rpm, group.limits.rpm];
    let rpm = limits.into_iter().filter(|rpm| *rpm > 0).min()?;
    Some((u64::from(rpm) * COUNTS_PER_REQUEST).max(MIN_COUNTS_PER_MINUTE))
}

/// All limits of key, member, group and gateway, money first.
fn limits_of(key: &Key, group: Option<&Group>, gateway: &[Budget], kind: RequestKind) -> Vec<Limit> {
    let member = &key.member;
    let subjects: [(Subject, &[Budget], Limits); 4] = [
        (Subject::Key(key.id), &key.budgets, key.limits),
        (Subject::Member(member.id), &member.budgets, member.limits),
        (
            group.map_or(Subject::Gateway, |group| Subject::Group(group.id)),
            group.map_or(&[], |group| &group.budgets),
            group.map_or_else(Limits::default, |group| group.limits),
        ),
        (Subject::Gateway, gateway, Limits::default()),
    ];
    let mut limits = Vec::new();
    if kind.costs_money {
        for (subject, budgets, _) in &subjects {
            limits.extend(budgets.iter().map(|budget| Limit { subject: *subject, rule: LimitRule::Budget(*budget) }));
        }
        limits.extend(balance_of(member));
    }
    let rates: [fn(&Limits) -> LimitRule; 3] = [
        |it| LimitRule::Requests(u64::from(it.rpm)),
        |it| LimitRule::Tokens(it.tpm),
        |it| LimitRule::Concurrency(u64::from(it.concurrency)),
    ];
    for rule in rates {
        let bound = subjects.iter().map(|(subject, _, limits)| Limit { subject: *subject, rule: rule(limits) });
        let applies = |limit: &Limit| !kind.counts_tokens || matches!(limit.rule, LimitRule::Concurrency(_));
        limits.extend(bound.filter(|limit| limit.rule.is_bounded() && applies(limit)));
    }
    limits
}

fn balance_of(member: &Member) -> Option<Limit> {
    let prepaid = member.billing == Billing::Prepaid;
    prepaid.then_some(Limit { subject: Subject::Member(member.id), rule: LimitRule::Balance })
}

// === impl Limit ===

impl Limit {
    /// True when a request is refused if this money is insufficient.
    pub const fn bounds_money(&self) -> bool {
        match self.rule {
            LimitRule::Budget(budget) => matches!(budget.action, BudgetAction::Block),
            LimitRule::Balance => true,
            LimitRule::Requests(_) | LimitRule::Tokens(_) | LimitRule::Concurrency(_) => false,
        }
    }
}

impl LimitRule {
    /// The kind of a rate; `None` for limits on money.
    const fn rate_kind(self) -> Option<RateKind> {
        match self {
            Self::Requests(_) => Some(RateKind::Requests),
            Self::Tokens(_) => Some(RateKind::Tokens),
            Self::Concurrency(_) => Some(RateKind::Concurrency),
            Self::Budget(_) | Self::Balance => None,
        }
    }

    /// True when it sets a bound: zero means unbounded.
    const fn is_bounded(self) -> bool {
        match self {
            Self::Requests(max) | Self::Tokens(max) | Self::Concurrency(max) => max > 0,
            Self::Budget(_) | Self::Balance => true,
        }
    }
}

// === impl Window ===

impl Window {
    /// End of the period that `at` is in; `None` for a total.
    pub const fn ends(self, at: Timestamp) -> Option<Timestamp> {
        match self {
            Self::Day => Some(Timestamp::of_day(at.day() + 1)),
            Self::Month => Some(Timestamp::of_month(at.month() + 1)),
            Self::Total => None,
        }
    }

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Day => "day",
            Self::Month => "month",
            Self::Total => "total",
        }
    }
}

// === impl Subject ===

impl fmt::Display for Subject {
    /// `key key_…`: the form used in logs.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Key(id) => write!(f, "key {id}"),
            Self::Member(id) => write!(f, "member {id}"),
            Self::Group(id) => write!(f, "group {id}"),
            Self::Channel(id) => write!(f, "channel {id}"),
            Self::Gateway => f.write_str("gateway"),
        }
    }
}

#[cfg(test)]
mod tests;
