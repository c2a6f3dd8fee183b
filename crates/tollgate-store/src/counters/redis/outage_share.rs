//! Redis is away: this node goes on with its share of what was left when it was last seen, so that all nodes together
//! stay near the bounds. Shares are of money, of minutes and of slots; a share is never so small that nothing runs.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use tokio::time::Instant;
use tollgate_core::{
    Budget, BudgetAction, Limit, LimitExceeded, LimitRule, Meter, NanoUsd, Reservation, ReservationReceipt, Subject, UsageRecord,
    Window,
};

use super::{
    super::{Counters as _, Spending, memory::MemoryCounters},
    leases::RetainedLeases,
};

/// One outage.
#[derive(Debug)]
pub(super) struct OutageShare {
    counters: MemoryCounters,
    nodes: u64,
    /// How subjects stood when they were first asked for in this outage, and what this node had running then.
    bases: Mutex<HashMap<Subject, (Meter, u64)>>,
    /// Money and places that were on lease here: nobody else has them.
    kept: RetainedLeases,
}

impl OutageShare {
    pub(super) fn new(nodes: u64, life: Duration, kept: RetainedLeases) -> Self {
        let counters = MemoryCounters::new(&Spending::default(), life);
        Self { counters, nodes: nodes.max(1), bases: Mutex::default(), kept }
    }

    /// Takes a hold out of this node's share: the hold as it was taken.
    pub(super) fn reserve(
        &self,
        hold: &Reservation,
        now: Instant,
        of: impl Fn(Subject) -> (Meter, u64),
    ) -> Result<(ReservationReceipt, Reservation), LimitExceeded> {
        let mut part = hold.clone();
        part.limits = hold.limits.iter().map(|limit| self.part(limit, hold, &of)).collect();
        let (taken, mut as_taken) = self.counters.take_as(&part, now).map_err(|exhausted| whole(exhausted, hold))?;
        as_taken.limits.clone_from(&hold.limits);
        Ok((taken, as_taken))
    }

    /// A request that took from this share has ended.
    pub(super) fn settle(&self, record: &UsageRecord, now: Instant) {
        let _ = self.counters.settle(record, now);
    }

    /// A hold goes back unused.
    pub(super) fn let_go(&self, hold: &Reservation, now: Instant) {
        self.counters.let_go(hold.id, now);
    }

    fn part(&self, limit: &Limit, hold: &Reservation, of: &impl Fn(Subject) -> (Meter, u64)) -> Limit {
        let (base, running) = {
            let mut bases = self.bases.lock().unwrap_or_else(PoisonError::into_inner);
            *bases.entry(limit.subject).or_insert_with(|| of(limit.subject))
        };
        let (kept_money, kept_places) = self.kept.get(&limit.subject).copied().unwrap_or_default();
        let money = |left: i64| {
            let nodes = i64::try_from(self.nodes).unwrap_or(i64::MAX);
            let amount = NanoUsd((left.max(0) / nodes).saturating_add(kept_money));
            // Of all time, so that an outage over midnight does not renew it.
            LimitRule::Budget(Budget { amount, window: Window::Total, action: BudgetAction::Block })
        };
        let rule = match limit.rule {
            LimitRule::Budget(budget) if limit.bounds_money() => {
                let spent = base.spent.within(budget.window, hold.at).0;
                money(budget.amount.0.saturating_sub(spent).saturating_sub(base.reserved))
            }
            LimitRule::Budget(budget) => LimitRule::Budget(budget),
            LimitRule::Balance => money(base.balance.saturating_sub(base.reserved)),
            LimitRule::Requests(most) => LimitRule::Requests((most / self.nodes).max(1)),
            LimitRule::Tokens(most) => LimitRule::Tokens((most / self.nodes).max(1)),
            LimitRule::Concurrency(most) => {
                let share = most.div_ceil(self.nodes).max(running.saturating_add(kept_places).min(most));
                LimitRule::Concurrency(share.saturating_sub(running).max(1))
            }
        };
        Limit { subject: limit.subject, rule }
    }
}

/// The same refusal, in the figures of the whole limit.
fn whole(exhausted: LimitExceeded, hold: &Reservation) -> LimitExceeded {
    match exhausted {
        LimitExceeded::Money(mut short) => {
            let limit = hold.limits.iter().find(|limit| limit.subject == short.subject && limit.bounds_money());
            if let Some(limit) = limit {
                if let LimitRule::Budget(budget) = limit.rule {
                    short.budget = Some(budget);
                    short.spent = NanoUsd(budget.amount.0.saturating_sub(short.left.0));
                } else {
                    (short.budget, short.spent) = (None, short.left);
                }
            }
            LimitExceeded::Money(short)
        }
        rate @ LimitExceeded::Rate(_) => rate,
    }
}
