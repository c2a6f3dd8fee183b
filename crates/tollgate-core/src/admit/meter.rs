//! The usage of a subject, and whether a reservation fits it. Shared by the counters and by read-only explanations.

use serde::{Deserialize, Serialize};

use super::{
    FundsStatus, Limit, LimitExceeded, LimitRule, RateExceeded, RateKind, RateStatus, RateStatuses, Reservation, SlidingWindow,
    SpendTotals, Subject,
};
use crate::{NanoUsd, Timestamp};

/// Usage and open reservations of one subject.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Meter {
    pub spent: SpendTotals,
    /// A member's balance in nano-USD, open reservations not subtracted.
    pub balance: i64,
    /// Reserved money in nano-USD.
    #[serde(rename = "held")]
    pub reserved: i64,
    /// Requests of the last minute.
    pub requests: SlidingWindow,
    /// Tokens of the last minute.
    pub tokens: SlidingWindow,
    pub running: u64,
}

impl Meter {
    /// True when a reservation is open or a rate is in use at `micros` (monotonic microseconds).
    pub fn in_use(&self, micros: u64) -> bool {
        self.reserved != 0 || self.running > 0 || self.requests.used(micros) > 0 || self.tokens.used(micros) > 0
    }

    /// State of a money limit for a request that arrived at `at`; `None` for other limits.
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

    /// Usage of a rate, and the amount that one more request with `tokens` tokens adds; `None` for limits on money.
    pub fn rate_check(&self, rule: LimitRule, tokens: u64, micros: u64) -> Option<RateCheck> {
        match rule {
            LimitRule::Requests(limit) => Some(RateCheck { limit, used: self.requests.used(micros), wanted: 1 }),
            // A request larger than the limit waits for an empty minute instead of never fitting.
            LimitRule::Tokens(limit) => Some(RateCheck { limit, used: self.tokens.used(micros), wanted: tokens.min(limit) }),
            LimitRule::Concurrency(limit) => Some(RateCheck { limit, used: self.running, wanted: 1 }),
            LimitRule::Budget(_) | LimitRule::Balance => None,
        }
    }

    /// The rate that one more request would exceed: its kind, its state and the wait in milliseconds.
    pub(super) fn exceeded_rate(&self, rule: LimitRule, tokens: u64, micros: u64) -> Option<(RateKind, RateCheck, u64)> {
        let rate = self.rate_check(rule, tokens, micros).filter(|rate| !rate.fits())?;
        let (kind, wait_ms) = match rule {
            LimitRule::Requests(_) => (RateKind::Requests, self.requests.wait_ms(rate.wanted, rate.limit, micros)),
            LimitRule::Tokens(_) => (RateKind::Tokens, self.tokens.wait_ms(rate.wanted, rate.limit, micros)),
            LimitRule::Concurrency(_) => (RateKind::Concurrency, 1_000),
            LimitRule::Budget(_) | LimitRule::Balance => return None,
        };
        Some((kind, rate, wait_ms))
    }
}

/// A rate limit, its current usage, and what one more request would add.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RateCheck {
    pub limit: u64,
    pub used: u64,
    /// Amount that the request adds.
    pub wanted: u64,
}

impl RateCheck {
    /// True when the request fits.
    pub const fn fits(&self) -> bool {
        self.used.saturating_add(self.wanted) <= self.limit
    }
}

/// Per kind, the rate with the least left.
pub fn rate_statuses(limits: &[Limit], micros: u64, mut meter: impl FnMut(Subject) -> Meter) -> RateStatuses {
    let mut rate_statuses = RateStatuses::default();
    for limit in limits {
        let (rate_status, limit_value, sliding) = match limit.rule {
            LimitRule::Requests(limit_value) => (&mut rate_statuses.requests, limit_value, meter(limit.subject).requests),
            LimitRule::Tokens(limit_value) => (&mut rate_statuses.tokens, limit_value, meter(limit.subject).tokens),
            LimitRule::Concurrency(_) | LimitRule::Budget(_) | LimitRule::Balance => continue,
        };
        let found = RateStatus { limit: limit_value, used: sliding.used(micros), reset_ms: sliding.reset_ms(micros) };
        let left = |rate_status: &RateStatus| rate_status.limit.saturating_sub(rate_status.used);
        if rate_status.as_ref().is_none_or(|other| left(&found) < left(other)) {
            *rate_status = Some(found);
        }
    }
    rate_statuses
}

impl Reservation {
    /// The reservation that fits: reduced to the money that is left where its output may be lowered, else unchanged. `micros` is
    /// the time in the monotonic microseconds of the sliding windows.
    pub fn fit_to_limits(&self, micros: u64, mut meter: impl FnMut(Subject) -> Meter) -> Result<Self, LimitExceeded> {
        let funds = match self.check(micros, &mut meter) {
            Ok(()) => return Ok(self.clone()),
            Err(LimitExceeded::Money(funds)) => funds,
            Err(exceeded @ LimitExceeded::Rate(_)) => return Err(exceeded),
        };
        // The lowest remaining amount, so all other money suffices too.
        let lower = self.lowered_to(funds.left).ok_or(LimitExceeded::Money(funds))?;
        lower.check(micros, meter).map(|()| lower)
    }

    /// Checks all limits. Of several insufficient budgets it reports the one with the least left.
    fn check(&self, micros: u64, mut meter: impl FnMut(Subject) -> Meter) -> Result<(), LimitExceeded> {
        if let Some(funds) = self.insufficient_funds(|limit| meter(limit.subject).funds(limit, self.at)) {
            return Err(LimitExceeded::Money(funds));
        }
        for limit in &self.limits {
            if let Some((kind, rate, wait_ms)) = meter(limit.subject).exceeded_rate(limit.rule, self.tokens, micros) {
                let (subject, RateCheck { limit, used, .. }) = (limit.subject, rate);
                let rate_statuses = rate_statuses(&self.limits, micros, meter);
                return Err(LimitExceeded::Rate(RateExceeded { subject, kind, limit, used, wait_ms, rate_statuses }));
            }
        }
        Ok(())
    }
}
