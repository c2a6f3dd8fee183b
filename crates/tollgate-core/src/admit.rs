//! What a request is measured against before it may go on, and what is set aside for it: the worst it can come to.
//!
//! [`reservation_for`] says what to check; whoever counts (the store's `Counters`) takes all of it or nothing. The arithmetic of
//! counting is here too ([`SpendTotals`], [`SlidingWindow`]), so that every backend counts alike.

mod counting;
mod meter;
mod worst_case;

use std::{fmt, mem};

use serde::{Deserialize, Serialize};
use tollgate_protocol::{FieldPath, Method, Protocol, RequestSummary};

pub use counting::{PackedSpendTotals, SlidingWindow, SpendTotals};
pub use meter::{Meter, RateCheck, rate_statuses};
use worst_case::WorstCaseCost;

use crate::{
    Billing, Budget, BudgetAction, Caller, Catalog, Channel, ChannelId, Group, GroupId, Key, KeyId, Limits, MAX_ATTEMPTS, Member,
    MemberId, Multiplier, NanoUsd, Offer, PlannedAttempt, Price, RequestId, Timestamp, Window, estimate_input, estimate_output,
    route::cost_of,
};

/// The least output, in tokens, that a limit is lowered to; below it the request is refused (E33).
pub const MIN_OUTPUT_TOKENS: u64 = 256;
/// Most holds of attempts that are asked for along with their request's.
pub const MAX_ATTEMPT_RESERVATIONS: usize = 6;

/// Whose limit, whose money.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Subject {
    /// A key's.
    Key(KeyId),
    /// A member's.
    Member(MemberId),
    /// A group's.
    Group(GroupId),
    /// A channel's; its money is cost, all others' is sale.
    Channel(ChannelId),
    /// Everybody's together.
    Gateway,
}

/// One rule a request is measured against.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit {
    /// Whose.
    pub subject: Subject,
    /// Which.
    pub rule: LimitRule,
}

/// What is limited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LimitRule {
    /// Requests a minute.
    Requests(u64),
    /// Tokens a minute.
    Tokens(u64),
    /// Requests at once.
    Concurrency(u64),
    /// Money per period.
    Budget(Budget),
    /// The member's balance, which must not go below zero.
    Balance,
}

/// What is limited by time, for messages and headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RateKind {
    /// Requests a minute.
    Requests,
    /// Tokens a minute.
    Tokens,
    /// Requests at once.
    Concurrency,
}

/// Capacity reserved for one request, or for one of its attempts. Given back when the request ends, however it does.
#[derive(Clone, Debug)]
pub struct Reservation {
    /// The request.
    pub id: RequestId,
    /// Its arrival: the day and the month it counts for.
    pub at: Timestamp,
    /// What it is measured against: money first, then requests, tokens, concurrency.
    pub limits: Vec<Limit>,
    /// Tokens it may come to, input and output.
    pub tokens: u64,
    /// Money it may come to; zero when nothing bounds money.
    pub amount: NanoUsd,
    /// The output limit, for each candidate answer, that `amount` rests on and the request must be given; `None`: what
    /// the caller wrote stays.
    pub output: Option<u64>,
    worst: WorstCaseCost,
}

/// All that admission looks at.
#[derive(Clone, Copy, Debug)]
pub struct AdmitInput<'a> {
    /// Request id.
    pub id: RequestId,
    /// Arrival.
    pub at: Timestamp,
    /// Who asks.
    pub caller: &'a Caller,
    /// What he gets.
    pub offer: &'a Offer,
    /// What he asks.
    pub summary: &'a RequestSummary,
    /// His protocol.
    pub from: Protocol,
    /// Budgets of the whole gateway.
    pub gateway: &'a [Budget],
}

/// How much of a rate is used, as the `x-ratelimit-*` headers say it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RateStatus {
    /// The limit.
    pub limit: u64,
    /// Used of it.
    pub used: u64,
    /// Milliseconds until nothing of it is used any more.
    pub reset_ms: u64,
}

/// The rates that leave least room, of all that apply.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RateStatuses {
    /// Requests a minute.
    pub requests: Option<RateStatus>,
    /// Tokens a minute.
    pub tokens: Option<RateStatus>,
}

/// Why a hold was not taken. Nothing of it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LimitExceeded {
    /// Money does not suffice.
    Money(FundsStatus),
    /// A rate is used up.
    Rate(RateExceeded),
}

/// Money that does not suffice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FundsStatus {
    /// Whose.
    pub subject: Subject,
    /// Which budget; `None`: the balance.
    pub budget: Option<Budget>,
    /// Spent of it, open holds included; for a balance what is left of it.
    pub spent: NanoUsd,
    /// What is left; zero or less: nothing.
    pub left: NanoUsd,
}

/// A rate that is used up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RateExceeded {
    /// Whose.
    pub subject: Subject,
    /// Which.
    pub kind: RateKind,
    /// The limit.
    pub limit: u64,
    /// Used of it.
    pub used: u64,
    /// Milliseconds until the request would find room.
    pub wait_ms: u64,
    /// All rates.
    pub rate_statuses: RateStatuses,
}

/// What was set aside.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReservationReceipt {
    /// The rates with least room.
    pub rate_statuses: RateStatuses,
    /// The output limit that it rests on, where the request must be given one; lower than asked where less was left.
    pub output: Option<u64>,
}

/// A budget that only alerts, at the moment it was spent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BudgetAlert {
    /// Whose.
    pub subject: Subject,
    /// Which.
    pub budget: Budget,
    /// Spent of it now.
    pub spent: NanoUsd,
}

/// What a request has to be measured against; `None`: nothing at all.
#[must_use]
pub fn reservation_for(input: &AdmitInput<'_>) -> Option<Reservation> {
    let AdmitInput { id, at, caller, offer, summary, from, gateway } = *input;
    // Counting tokens costs nothing and uses none.
    let counts = summary.method == Method::CountTokens;
    let limits = limits_of(&caller.key, &offer.group, gateway, !counts);
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
            worst: WorstCaseCost::nothing(),
        });
    }
    let input_tokens = estimate_input(summary);
    let bounded = limits.iter().any(Limit::bounds_money);
    let asked = estimate_output(summary, &offer.model) / u64::from(summary.candidates.max(1));
    let worst = match &offer.sale {
        Some(price) if bounded => WorstCaseCost::of(price, offer.group.sale_multiplier, input_tokens, summary, asked),
        Some(_) | None => WorstCaseCost::unpriced(input_tokens, summary, asked),
    };
    let splices = worst.output_costs() && offer.takes_output_limit(from) && summary.method.generates();
    let output = (splices && summary.max_output.is_none_or(|wanted| wanted > asked)).then_some(asked);
    let lowers = splices && summary.max_output.is_none();
    let worst = if lowers { worst.may_be_lowered() } else { worst };
    Some(Reservation { id, at, limits, tokens: worst.tokens(), amount: worst.amount(), output, worst })
}

/// What an attempt has to be measured against: the budgets of its channel, on cost. `None`: it has none.
#[must_use]
pub fn reservation_for_attempt(
    id: RequestId,
    at: Timestamp,
    planned: &PlannedAttempt,
    summary: &RequestSummary,
    offer: &Offer,
) -> Option<Reservation> {
    if planned.channel.budgets.is_empty() || summary.method == Method::CountTokens {
        return None;
    }
    let PlannedAttempt { channel, account, cost, .. } = planned;
    Some(channel_reservation(id, at, channel, cost.as_ref(), account.cost_multiplier, summary, offer))
}

/// The most an attempt can be estimated to cost: its input and all the output it may give. `None`: its cost is not known.
#[must_use]
pub fn max_attempt_cost(planned: &PlannedAttempt, summary: &RequestSummary, offer: &Offer) -> Option<NanoUsd> {
    let PlannedAttempt { account, cost, .. } = planned;
    cost.as_ref().map(|cost| worst_case_of_attempt(Some(cost), account.cost_multiplier, summary, offer).amount())
}

/// What attempts of a request may have to set aside, so that it can be asked for along with the request's own hold: for each
/// channel that blocks by a budget the dearest of its accounts, then once more for each further account, since an attempt
/// that failed may cost as well. At most [`MAX_ATTEMPT_RESERVATIONS`].
#[must_use]
pub fn attempt_reservations(input: &AdmitInput<'_>, catalog: &Catalog) -> Vec<Reservation> {
    let AdmitInput { id, at, offer, summary, .. } = *input;
    if summary.method == Method::CountTokens {
        return Vec::new();
    }
    let mut firsts = Vec::new();
    let mut further = Vec::new();
    for served in &offer.candidates {
        let Some(channel) = catalog.channel_at(served.channel) else { continue };
        if firsts.len() >= MAX_ATTEMPT_RESERVATIONS || !channel.budgets.iter().any(|budget| budget.action == BudgetAction::Block) {
            continue;
        }
        let accounts = channel.accounts.iter().filter(|account| account.on).count();
        let Some(dearest) = channel.accounts.iter().filter(|it| it.on).map(|it| it.cost_multiplier).max() else { continue };
        let cost = cost_of(channel, served.mapping as usize, at);
        let hold = channel_reservation(id, at, channel, cost.as_deref(), dearest, summary, offer);
        for _ in 1..accounts.min(MAX_ATTEMPTS) {
            further.push(hold.clone());
        }
        firsts.push(hold);
    }
    firsts.extend(further);
    firsts.truncate(MAX_ATTEMPT_RESERVATIONS);
    firsts
}

fn channel_reservation(
    id: RequestId,
    at: Timestamp,
    channel: &Channel,
    cost: Option<&Price>,
    multiplier: Multiplier,
    summary: &RequestSummary,
    offer: &Offer,
) -> Reservation {
    let subject = Subject::Channel(channel.id);
    let limits = channel.budgets.iter().map(|budget| Limit { subject, rule: LimitRule::Budget(*budget) }).collect();
    let worst = worst_case_of_attempt(cost, multiplier, summary, offer);
    Reservation { id, at, limits, tokens: 0, amount: worst.amount(), output: None, worst }
}

fn worst_case_of_attempt(cost: Option<&Price>, multiplier: Multiplier, summary: &RequestSummary, offer: &Offer) -> WorstCaseCost {
    let input_tokens = estimate_input(summary);
    let asked = estimate_output(summary, &offer.model) / u64::from(summary.candidates.max(1));
    match cost {
        Some(price) => WorstCaseCost::of(price, multiplier, input_tokens, summary, asked),
        None => WorstCaseCost::unpriced(input_tokens, summary, asked),
    }
}

/// The field an output limit is written to, in the caller's spelling: the one he used, else the usual one.
#[must_use]
pub fn output_limit_field(summary: &RequestSummary, from: Protocol) -> FieldPath {
    let (names, usual): (&[&str], _) = match from {
        Protocol::OpenAi => (&["max_completion_tokens", "max_tokens"], "max_completion_tokens"),
        Protocol::Gemini => (&["generationConfig.maxOutputTokens"], "generationConfig.maxOutputTokens"),
        Protocol::Anthropic => (&["max_tokens"], "max_tokens"),
    };
    let used = names.iter().find(|name| summary.fields.iter().any(|field| field == *name));
    (*used.unwrap_or(&usual)).to_owned()
}

/// Every rule on key, member, group and gateway, money first.
fn limits_of(key: &Key, group: &Group, gateway: &[Budget], costs: bool) -> Vec<Limit> {
    let member = &key.member;
    let subjects: [(Subject, &[Budget], Limits); 4] = [
        (Subject::Key(key.id), &key.budgets, key.limits),
        (Subject::Member(member.id), &member.budgets, member.limits),
        (Subject::Group(group.id), &group.budgets, group.limits),
        (Subject::Gateway, gateway, Limits::default()),
    ];
    let mut limits = Vec::new();
    if costs {
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
        limits.extend(bound.filter(|limit| limit.rule.binds()));
    }
    limits
}

fn balance_of(member: &Member) -> Option<Limit> {
    let prepaid = member.billing == Billing::Prepaid;
    prepaid.then_some(Limit { subject: Subject::Member(member.id), rule: LimitRule::Balance })
}

// === impl Limit ===

impl Limit {
    /// Whether a request is refused for want of this money.
    #[must_use]
    pub const fn bounds_money(&self) -> bool {
        match self.rule {
            LimitRule::Budget(budget) => matches!(budget.action, BudgetAction::Block),
            LimitRule::Balance => true,
            LimitRule::Requests(_) | LimitRule::Tokens(_) | LimitRule::Concurrency(_) => false,
        }
    }
}

impl LimitRule {
    /// Whether it bounds anything: zero stands for no bound.
    const fn binds(self) -> bool {
        match self {
            Self::Requests(most) | Self::Tokens(most) | Self::Concurrency(most) => most > 0,
            Self::Budget(_) | Self::Balance => true,
        }
    }
}

// === impl Reservation ===

impl Reservation {
    /// The same hold with as much output as this money affords; `None` when that is less than [`MIN_OUTPUT_TOKENS`] tokens an
    /// answer, or when the caller set the limit himself.
    #[must_use]
    pub fn lowered_to(&self, left: NanoUsd) -> Option<Self> {
        let worst = self.worst.lowered_to(left)?;
        Some(Self {
            limits: self.limits.clone(),
            tokens: worst.tokens(),
            amount: worst.amount(),
            output: Some(worst.output()),
            worst,
            ..*self
        })
    }

    /// The same hold with the least output it may be lowered to; `None`: it may not be.
    #[must_use]
    pub fn lowered_to_min(&self) -> Option<Self> {
        self.lowered_to(self.worst.with_least_output()?)
    }

    /// What this hold asks for beyond one that the same request has already, on other terms; `None`: nothing. A rate that
    /// the request counts in is not counted again; money is set aside where more of it may be spent, or by other bounds.
    #[must_use]
    pub fn exceeding(&self, earlier: &Self) -> Option<Self> {
        let dearer = self.amount > earlier.amount;
        let same_kind = |one: &Limit, other: &Limit| {
            one.subject == other.subject && mem::discriminant(&one.rule) == mem::discriminant(&other.rule)
        };
        let is_new = |limit: &&Limit| {
            if limit.bounds_money() {
                return dearer || !earlier.limits.contains(limit);
            }
            !earlier.limits.iter().any(|other| same_kind(limit, other))
        };
        let limits: Vec<Limit> = self.limits.iter().filter(is_new).copied().collect();
        (!limits.is_empty()).then(|| Self { limits, ..self.clone() })
    }

    /// The money that does not suffice, of several the one with least left; `None`: all of it does. `left_of` knows what
    /// is left.
    #[must_use]
    pub fn insufficient_funds(&self, mut left_of: impl FnMut(&Limit) -> Option<FundsStatus>) -> Option<FundsStatus> {
        let mut least: Option<FundsStatus> = None;
        for limit in self.limits.iter().filter(|limit| limit.bounds_money()) {
            if let Some(short) = left_of(limit)
                && self.amount > short.left
                && least.is_none_or(|other| short.left < other.left)
            {
                least = Some(short);
            }
        }
        // What costs nothing is served with nothing left.
        least.filter(|_| self.amount > NanoUsd::ZERO)
    }

    /// Whether money is set aside.
    #[must_use]
    pub fn bounds_money(&self) -> bool {
        self.limits.iter().any(Limit::bounds_money)
    }
}

// === impl Window ===

impl Window {
    /// When the period that `at` lies in ends; `None`: never.
    #[must_use]
    pub const fn ends(self, at: Timestamp) -> Option<Timestamp> {
        match self {
            Self::Day => Some(Timestamp::of_day(at.day() + 1)),
            Self::Month => Some(Timestamp::of_month(at.month() + 1)),
            Self::Total => None,
        }
    }

    /// The word in settings, messages and logs.
    #[must_use]
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
    /// `key key_…`, as logs name it.
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
