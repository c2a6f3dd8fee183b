//! Counting while Redis is unreachable: each node enforces its share of the amount that was left when it last reached Redis, so that
//! all nodes together stay near the limits. Money, requests and tokens per minute, and concurrency are divided by the number
//! of nodes; rates and concurrency stay at least 1, so that a node is never blocked entirely.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
};

use tokio::time::Instant;
use tollgate_core::{
    Budget, BudgetAction, Limit, LimitExceeded, LimitRule, Meter, NanoUsd, Reservation, ReservationReceipt, Subject, UsageRecord,
    Window,
};

use super::{
    super::{memory::MemoryCounters, reservation_ttl::ReservationTtl, subjects::lock, traits::Counters as _},
    leases::RetainedLeases,
};
use crate::Spending;

#[derive(Debug)]
pub(super) struct OutageShare {
    counters: MemoryCounters,
    nodes: u64,
    /// The state of each subject when it was first used in this outage.
    bases: Mutex<HashMap<Subject, ShareBase>>,
    /// Leases of this node, which belong to it in addition to its share.
    retained: RetainedLeases,
}

/// A subject as it was when it was first used in an outage.
#[derive(Clone, Copy, Debug)]
pub(super) struct ShareBase {
    meter: Meter,
    /// The subject's requests that were running on this node.
    running: u64,
    /// Requests and tokens that all nodes had counted in the minute before.
    rates: (u64, u64),
}

impl ShareBase {
    /// `micros`: the time of Redis.
    pub(super) fn of(meter: &Meter, running: u64, micros: u64) -> Self {
        Self { meter: *meter, running, rates: (meter.requests.used(micros), meter.tokens.used(micros)) }
    }
}

impl OutageShare {
    pub(super) fn new(nodes: u64, reservation_ttl: Arc<ReservationTtl>, retained: RetainedLeases) -> Self {
        let counters = MemoryCounters::with_ttl(&Spending::default(), reservation_ttl);
        Self { counters, nodes: nodes.max(1), bases: Mutex::default(), retained }
    }

    /// Makes a reservation within this node's share. Returns the reservation that was made.
    pub(super) fn reserve(
        &self,
        reservation: &Reservation,
        now: Instant,
        base: impl Fn(Subject) -> ShareBase,
    ) -> Result<(ReservationReceipt, Reservation), LimitExceeded> {
        let mut shared = reservation.clone();
        shared.limits = reservation.limits.iter().map(|limit| self.share_of(limit, reservation, now, &base)).collect();
        let made = self.counters.try_reserve(&shared, now);
        let (receipt, mut made) = made.map_err(|exceeded| with_whole_limit(exceeded, reservation))?;
        made.limits.clone_from(&reservation.limits);
        Ok((receipt, made))
    }

    pub(super) fn settle(&self, record: &UsageRecord, now: Instant) {
        let _ = self.counters.settle(record, now);
    }

    /// Releases the reservations of a request that used nothing.
    pub(super) fn release(&self, reservation: &Reservation, now: Instant) {
        self.counters.release(reservation.id, now);
    }

    fn share_of(&self, limit: &Limit, reservation: &Reservation, now: Instant, base: &impl Fn(Subject) -> ShareBase) -> Limit {
        let ShareBase { meter, running, .. } = *lock(&self.bases).entry(limit.subject).or_insert_with(|| {
            let base = base(limit.subject);
            let (requests, tokens) = base.rates;
            // This node's part of the requests and tokens that all nodes have used in this minute.
            self.counters.count_rates(limit.subject, requests / self.nodes, tokens / self.nodes, now);
            base
        });
        let (retained_money, retained_permits) = self.retained.get(&limit.subject).copied().unwrap_or_default();
        let money = |left: i64| {
            let nodes = i64::try_from(self.nodes).unwrap_or(i64::MAX);
            let amount = NanoUsd((left.max(0) / nodes).saturating_add(retained_money));
            // A total, so that an outage past midnight does not renew it.
            LimitRule::Budget(Budget { amount, window: Window::Total, action: BudgetAction::Block })
        };
        let rule = match limit.rule {
            LimitRule::Budget(budget) if limit.bounds_money() => {
                let spent = meter.spent.within(budget.window, reservation.at).0;
                money(budget.amount.0.saturating_sub(spent).saturating_sub(meter.reserved))
            }
            LimitRule::Budget(budget) => LimitRule::Budget(budget),
            LimitRule::Balance => money(meter.balance.saturating_sub(meter.reserved)),
            LimitRule::Requests(limit) => LimitRule::Requests((limit / self.nodes).max(1)),
            LimitRule::Tokens(limit) => LimitRule::Tokens((limit / self.nodes).max(1)),
            LimitRule::Concurrency(limit) => {
                let share = limit.div_ceil(self.nodes).max(running.saturating_add(retained_permits).min(limit));
                LimitRule::Concurrency(share.saturating_sub(running).max(1))
            }
        };
        Limit { subject: limit.subject, rule }
    }
}

/// The error with the figures of the whole limit instead of the share.
fn with_whole_limit(exceeded: LimitExceeded, reservation: &Reservation) -> LimitExceeded {
    match exceeded {
        LimitExceeded::Money(mut funds) => {
            let limit = reservation.limits.iter().find(|limit| limit.subject == funds.subject && limit.bounds_money());
            if let Some(limit) = limit {
                if let LimitRule::Budget(budget) = limit.rule {
                    funds.budget = Some(budget);
                    funds.spent = NanoUsd(budget.amount.0.saturating_sub(funds.left.0));
                } else {
                    (funds.budget, funds.spent) = (None, funds.left);
                }
            }
            LimitExceeded::Money(funds)
        }
        rate @ LimitExceeded::Rate(_) => rate,
    }
}
