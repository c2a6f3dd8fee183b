//! The reservation of a request or an attempt, and how it is lowered and compared.

use std::mem;

use super::{FundsStatus, Limit, worst_case::WorstCaseCost};
use crate::{NanoUsd, RequestId, Timestamp};

/// Capacity reserved for one request or one of its attempts. It is settled or released when the request ends, whatever the
/// outcome.
#[derive(Clone, Debug)]
pub struct Reservation {
    pub id: RequestId,
    /// Arrival; it decides which day and month the money counts for.
    pub at: Timestamp,
    /// Limits to check: money first, then requests, tokens, concurrency.
    pub limits: Vec<Limit>,
    /// Reserved tokens, input and output.
    pub tokens: u64,
    /// Reserved money; zero when no limit bounds money.
    pub amount: NanoUsd,
    /// Output limit per candidate answer that `amount` is based on and that must be written into the request; `None` keeps the
    /// caller's own limit.
    pub output: Option<u64>,
    pub(super) worst_case: WorstCaseCost,
}

impl Reservation {
    /// The same reservation with as much output as `left` affords. `None` when that is below [`crate::MIN_OUTPUT_TOKENS`] per
    /// candidate answer, or when the caller set the limit.
    #[must_use]
    pub fn lowered_to(&self, left: NanoUsd) -> Option<Self> {
        let worst_case = self.worst_case.lowered_to(left)?;
        Some(Self {
            limits: self.limits.clone(),
            tokens: worst_case.tokens(),
            amount: worst_case.amount(),
            output: Some(worst_case.output()),
            worst_case,
            ..*self
        })
    }

    /// The same reservation with the lowest output limit allowed; `None` when the output may not be lowered.
    #[must_use]
    pub fn lowered_to_min(&self) -> Option<Self> {
        self.lowered_to(self.worst_case.amount_at_min_output()?)
    }

    /// The part of this reservation beyond an `earlier` one of the same request; `None` when that covers it. A rate the request
    /// already counts against is not counted again. Money is reserved again where the amount or the budget changed.
    #[must_use]
    pub fn exceeding(&self, earlier: &Self) -> Option<Self> {
        let is_costlier = self.amount > earlier.amount;
        let same_kind = |one: &Limit, other: &Limit| {
            one.subject == other.subject && mem::discriminant(&one.rule) == mem::discriminant(&other.rule)
        };
        let is_new = |limit: &&Limit| {
            if limit.bounds_money() {
                return is_costlier || !earlier.limits.contains(limit);
            }
            !earlier.limits.iter().any(|other| same_kind(limit, other))
        };
        let limits: Vec<Limit> = self.limits.iter().filter(is_new).copied().collect();
        (!limits.is_empty()).then(|| Self { limits, ..self.clone() })
    }

    /// The insufficient money, of several the one with the least left; `None` when all of it suffices. `left_of` returns the
    /// state of a limit.
    pub fn insufficient_funds(&self, mut left_of: impl FnMut(&Limit) -> Option<FundsStatus>) -> Option<FundsStatus> {
        let mut lowest: Option<FundsStatus> = None;
        for limit in self.limits.iter().filter(|limit| limit.bounds_money()) {
            if let Some(funds) = left_of(limit)
                && self.amount > funds.left
                && lowest.is_none_or(|other| funds.left < other.left)
            {
                lowest = Some(funds);
            }
        }
        // Free requests are served even with nothing left.
        lowest.filter(|_| self.amount > NanoUsd::ZERO)
    }

    /// True when it reserves money.
    pub fn bounds_money(&self) -> bool {
        self.limits.iter().any(Limit::bounds_money)
    }
}
