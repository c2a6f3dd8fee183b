//! Changes of this node's counters that Redis has not received yet.

use std::collections::{BTreeMap, HashMap};

use tollgate_core::{Budget, NanoUsd, Subject, Timestamp, UsageRecord, Window};

use super::{
    super::{subjects::charges_of, traits::Spender},
    own_rates::RateWindows,
};

/// Limit of the requests that one [`BudgetWatch`] lists.
const MAX_SPENDERS: usize = 64;

pub(super) type CounterDeltas = HashMap<Subject, CounterDelta>;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct CounterDelta {
    /// Reserved money, in nano-USD.
    pub(super) reserved: i64,
    pub(super) running: i64,
    /// Requests and tokens of two minutes that Redis does not have.
    pub(super) counted: Vec<RateWindows>,
    /// Corrections of estimates: minute, estimated tokens, actual tokens.
    pub(super) tokens: Vec<(u64, u64, u64)>,
    /// Leased requests that were not made: minute and count.
    pub(super) requests: Vec<(u64, u64)>,
    /// Money spent, by day and month of the requests' arrival.
    pub(super) spends: BTreeMap<(i64, i64), i64>,
    /// Alerting budgets to check, each once per day.
    pub(super) watches: Vec<BudgetWatch>,
}

impl CounterDelta {
    pub(super) fn spent(&self, window: Window, at: Timestamp) -> i64 {
        let within = self.spends.iter().filter(|((day, month), _)| match window {
            Window::Day => *day == at.day(),
            Window::Month => *month == at.month(),
            Window::Total => true,
        });
        within.fold(0, |sum, (_, amount)| sum.saturating_add(*amount))
    }
}

/// An alerting budget and the requests that may have crossed it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct BudgetWatch {
    pub(super) budget: Budget,
    pub(super) at: Timestamp,
    /// Requests and their amounts, in the order they ended. Beyond [`MAX_SPENDERS`] the last entry is the sum of the rest.
    spenders: Vec<(Spender, i64)>,
}

impl BudgetWatch {
    pub(super) const fn new(budget: Budget, at: Timestamp) -> Self {
        Self { budget, at, spenders: Vec::new() }
    }

    /// True if this watch covers the budget in the same day as `at`.
    pub(super) fn covers(&self, budget: &Budget, at: Timestamp) -> bool {
        self.budget == *budget && self.at.day() == at.day()
    }

    pub(super) fn add_spender(&mut self, spender: Spender, amount: i64) {
        let is_full = self.spenders.len() >= MAX_SPENDERS;
        let rest = self.spenders.pop_if(|_| is_full).map_or(0, |(_, rest)| rest);
        self.spenders.push((spender, amount.saturating_add(rest)));
    }

    /// The request that crossed the budget, and the total at that point. `after` is the total now, `sent` the part of it
    /// that was sent together with this watch.
    pub(super) fn crossed_by(&self, after: i64, sent: i64) -> Option<(&Spender, i64)> {
        let listed = self.spenders.iter().fold(0_i64, |sum, (_, amount)| sum.saturating_add(*amount));
        // Requests without this budget are counted before the listed ones.
        let mut spent = after.saturating_sub(sent).saturating_add(sent.saturating_sub(listed));
        let found = self.spenders.iter().find(|(_, amount)| {
            spent = spent.saturating_add(*amount);
            spent >= self.budget.amount.0
        });
        found.or(self.spenders.last()).map(|(spender, _)| (spender, spent.min(after)))
    }
}

/// Adds the charges of a request, and returns them.
pub(super) fn add_charges(deltas: &mut CounterDeltas, record: &UsageRecord) -> Vec<(Subject, NanoUsd)> {
    let charges: Vec<_> = charges_of(record).collect();
    for (subject, amount) in &charges {
        let period = (record.at.day(), record.at.month());
        let spent = deltas.entry(*subject).or_default().spends.entry(period).or_default();
        *spent = spent.saturating_add(amount.0);
    }
    charges
}
