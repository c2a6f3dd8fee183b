//! How a subject stands, and whether a hold fits: the same for whoever counts, and for whoever only wants to know.

use serde::{Deserialize, Serialize};

use super::{
    FundsStatus, Limit, LimitExceeded, LimitRule, RateExceeded, RateKind, RateStatus, RateStatuses, Reservation, SlidingWindow,
    SpendTotals, Subject,
};
use crate::{NanoUsd, Timestamp};

/// What one subject has used and holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Meter {
    /// Settled money.
    pub spent: SpendTotals,
    /// A member's balance, in nano-USD, without what is set aside.
    pub balance: i64,
    /// Money set aside, in nano-USD.
    #[serde(rename = "held")]
    pub reserved: i64,
    /// Requests of a minute.
    pub requests: SlidingWindow,
    /// Tokens of a minute.
    pub tokens: SlidingWindow,
    /// Requests at once.
    pub running: u64,
}

impl Meter {
    /// Whether anything of it is in use beyond what was spent, at a time in monotonic microseconds.
    #[must_use]
    pub fn in_use(&self, micros: u64) -> bool {
        self.reserved != 0 || self.running > 0 || self.requests.used(micros) > 0 || self.tokens.used(micros) > 0
    }

    /// What is left of some money, for a request that arrived at `at`; `None`: the limit is none of money.
    #[must_use]
    pub fn funds(&self, limit: &Limit, at: Timestamp) -> Option<FundsStatus> {
        let (budget, spent, left) = match limit.rule {
            LimitRule::Budget(budget) => {
                let spent = self.spent.within(budget.window, at).0.saturating_add(self.reserved);
                (Some(budget), spent, budget.amount.0.saturating_sub(spent))
            }
            LimitRule::Balance => {
                let left = self.balance.saturating_sub(self.reserved);
                (None, left, left)
            }
            LimitRule::Requests(_) | LimitRule::Tokens(_) | LimitRule::Concurrency(_) => return None,
        };
        Some(FundsStatus { subject: limit.subject, budget, spent: NanoUsd(spent), left: NanoUsd(left) })
    }

    /// How much of a rate is used, and how much one more request of so many tokens wants; `None`: the rule is no rate.
    #[must_use]
    pub fn rate_check(&self, rule: LimitRule, tokens: u64, micros: u64) -> Option<RateCheck> {
        match rule {
            LimitRule::Requests(limit) => Some(RateCheck { limit, used: self.requests.used(micros), wanted: 1 }),
            // More than the whole limit waits for an empty minute, instead of being refused for ever.
            LimitRule::Tokens(limit) => Some(RateCheck { limit, used: self.tokens.used(micros), wanted: tokens.min(limit) }),
            LimitRule::Concurrency(limit) => Some(RateCheck { limit, used: self.running, wanted: 1 }),
            LimitRule::Budget(_) | LimitRule::Balance => None,
        }
    }

    /// What stands against one more request: what of it, the rate, and the wait in milliseconds.
    fn exceeded_rate(&self, rule: LimitRule, tokens: u64, micros: u64) -> Option<(RateKind, RateCheck, u64)> {
        let rate = self.rate_check(rule, tokens, micros).filter(|rate| !rate.fits())?;
        let (rated, wait_ms) = match rule {
            LimitRule::Requests(_) => (RateKind::Requests, self.requests.wait_ms(rate.wanted, rate.limit, micros)),
            LimitRule::Tokens(_) => (RateKind::Tokens, self.tokens.wait_ms(rate.wanted, rate.limit, micros)),
            LimitRule::Concurrency(_) => (RateKind::Concurrency, 1_000),
            LimitRule::Budget(_) | LimitRule::Balance => return None,
        };
        Some((rated, rate, wait_ms))
    }
}

/// A rate as one more request meets it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RateCheck {
    /// The limit.
    pub limit: u64,
    /// Used of it.
    pub used: u64,
    /// What the request takes of it.
    pub wanted: u64,
}

impl RateCheck {
    /// Whether the request finds room.
    #[must_use]
    pub const fn fits(&self) -> bool {
        self.used.saturating_add(self.wanted) <= self.limit
    }
}

/// The rates with least room.
#[must_use]
pub fn rate_statuses(limits: &[Limit], micros: u64, mut meter: impl FnMut(Subject) -> Meter) -> RateStatuses {
    let mut rate_statuses = RateStatuses::default();
    for limit in limits {
        let (rate_status, most, sliding) = match limit.rule {
            LimitRule::Requests(most) => (&mut rate_statuses.requests, most, meter(limit.subject).requests),
            LimitRule::Tokens(most) => (&mut rate_statuses.tokens, most, meter(limit.subject).tokens),
            LimitRule::Concurrency(_) | LimitRule::Budget(_) | LimitRule::Balance => continue,
        };
        let found = RateStatus { limit: most, used: sliding.used(micros), reset_ms: sliding.reset_ms(micros) };
        let left = |rate_status: &RateStatus| rate_status.limit.saturating_sub(rate_status.used);
        if rate_status.as_ref().is_none_or(|other| left(&found) < left(other)) {
            *rate_status = Some(found);
        }
    }
    rate_statuses
}

impl Reservation {
    /// The hold as it fits: lowered to what is left where it may be, and otherwise whole. `micros` is the time in the
    /// monotonic microseconds that minutes are counted in.
    ///
    /// # Errors
    /// What does not suffice.
    pub fn fit_to_limits(&self, micros: u64, mut meter: impl FnMut(Subject) -> Meter) -> Result<Self, LimitExceeded> {
        let short = match self.check(micros, &mut meter) {
            Ok(()) => return Ok(self.clone()),
            Err(LimitExceeded::Money(short)) => short,
            Err(busy @ LimitExceeded::Rate(_)) => return Err(busy),
        };
        // The money with least left, so that all other money suffices too.
        let lower = self.lowered_to(short.left).ok_or(LimitExceeded::Money(short))?;
        lower.check(micros, meter).map(|()| lower)
    }

    /// Whether all of it fits. Of several budgets that do not suffice, the one with least left.
    fn check(&self, micros: u64, mut meter: impl FnMut(Subject) -> Meter) -> Result<(), LimitExceeded> {
        if let Some(short) = self.insufficient_funds(|limit| meter(limit.subject).funds(limit, self.at)) {
            return Err(LimitExceeded::Money(short));
        }
        for limit in &self.limits {
            if let Some((rated, rate, wait_ms)) = meter(limit.subject).exceeded_rate(limit.rule, self.tokens, micros) {
                let (subject, RateCheck { limit, used, .. }) = (limit.subject, rate);
                let rate_statuses = rate_statuses(&self.limits, micros, meter);
                return Err(LimitExceeded::Rate(RateExceeded { subject, kind: rated, limit, used, wait_ms, rate_statuses }));
            }
        }
        Ok(())
    }
}
