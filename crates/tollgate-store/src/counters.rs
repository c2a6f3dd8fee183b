//! Counting what runs: who has used how much of what, and what is set aside for requests under way. One node counts in
//! memory ([`memory`]); what was spent before the start comes from the database.

#[cfg(test)]
mod conformance;
mod memory;
mod redis;
#[cfg(test)]
mod test_callers;

use std::{fmt, sync::Arc, time::Duration};

use async_trait::async_trait;
use tokio::time::Instant;
use tollgate_core::{
    BudgetAlert, LimitExceeded, MemberId, Meter, NanoUsd, RequestId, Reservation, ReservationReceipt, SpendTotals, Subject,
    Timestamp, UsageRecord, Window,
};

use crate::{LedgerPosition, StoreError};

/// Counts what runs. Every check of a hold is taken in one step, or none is.
#[async_trait]
pub trait Counters: Send + Sync + fmt::Debug {
    /// Takes a hold, with as much output as money affords where that may be lowered, or says what does not suffice. A
    /// request may hold more than once, for itself and for its attempts: what these may still ask for is `ahead`, so that
    /// it can be asked for at once.
    async fn reserve(
        &self,
        hold: &Reservation,
        ahead: &[Reservation],
        now: Instant,
    ) -> Result<Result<ReservationReceipt, LimitExceeded>, StoreError>;

    /// An attempt answers, so that there will be no further one: what was set aside ahead of those goes back.
    fn answering(&self, _: RequestId) {}

    /// The request still runs: its holds live on.
    fn renew(&self, id: RequestId, now: Instant);

    /// A request ended: its holds go back, and what it came to is counted. Never waits, so that it can be called when a
    /// request is dropped. Returns the alerting budgets it has spent.
    fn settle(&self, record: &UsageRecord, now: Instant) -> Vec<BudgetAlert>;

    /// Money spent and set aside in the period that `at` lies in, as far as it is known here.
    fn spent(&self, subject: Subject, window: Window, at: Timestamp) -> NanoUsd;

    /// How these subjects stand, as far as it is known here.
    fn look(&self, subjects: &[Subject], now: Instant) -> CounterSnapshot;

    /// Who has something set aside, under way or counted in the last minutes, as far as it is known here.
    fn in_use(&self, most: usize, now: Instant) -> CounterSnapshot;

    /// Whether other nodes count with this one, so that what is known here may lag behind.
    fn is_shared(&self) -> bool {
        false
    }

    /// Money was posted to a member's balance by hand.
    fn posted(&self, member: MemberId, amount: NanoUsd);

    /// Holds that are open.
    fn open(&self) -> usize;

    /// Alerting budgets that were found to be spent after their requests had ended, with the requests that crossed them; each
    /// is told once, by one node.
    fn crossed(&self) -> Vec<(BudgetAlert, Spender)> {
        Vec::new()
    }
}

pub use redis::{RedisAddress, RedisOptions, RedisWorker, SharedHealth, check_redis, counters_in_redis};

/// Counters of one node, beginning with what was spent. A hold without a sign of life ends after `life`.
#[must_use]
pub fn counters_in_memory(spending: &Spending, life: Duration) -> Arc<dyn Counters> {
    Arc::new(memory::MemoryCounters::new(spending, life))
}

/// How subjects stand at a moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CounterSnapshot {
    /// The moment, in the microseconds that their minutes are counted in.
    pub micros: u64,
    /// Each with its meter.
    pub meters: Vec<(Subject, Meter)>,
    /// Whether nobody is left out for want of room.
    pub is_all: bool,
}

impl CounterSnapshot {
    fn at_most(mut self, most: usize) -> Self {
        self.is_all = self.meters.len() <= most;
        self.meters.truncate(most);
        self
    }
}

/// A request that spent something.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spender {
    /// The request.
    pub request: RequestId,
    /// Name of its key.
    pub key: String,
}

/// What was spent until now, as the database has it; all of one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Spending {
    /// By subject.
    pub spent: Vec<(Subject, SpendTotals)>,
    /// By member.
    pub balances: Vec<(MemberId, NanoUsd)>,
    /// How far the ledger had come.
    pub ledger: LedgerPosition,
}

/// What changed of what was spent; all of one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SpendingChanges {
    /// By subject, all they spent.
    pub spent: Vec<(Subject, SpendTotals)>,
    /// What came on top for subjects that many share, by the day it counts for.
    pub added: Vec<(Subject, Timestamp, NanoUsd)>,
    /// By member.
    pub balances: Vec<(MemberId, NanoUsd)>,
    /// How far of the ledger this is; behind it, if it has come further, there is more.
    pub until: LedgerPosition,
    /// How far the ledger had come.
    pub ledger: LedgerPosition,
}
