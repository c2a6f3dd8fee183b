//! The interface of all counters.

use std::{fmt, time::Duration};

use async_trait::async_trait;
use tokio::time::Instant;
use tollgate_core::{
    BudgetAlert, LimitExceeded, MemberId, Meter, NanoUsd, RequestId, Reservation, ReservationReceipt, Subject, Timestamp,
    UsageRecord, Window,
};

use super::memory::CounterHandOver;
use crate::StoreError;

/// Counts running requests. A reservation is atomic: it is checked against all its limits and made, or nothing is changed.
#[async_trait]
pub trait Counters: Send + Sync + fmt::Debug {
    /// Makes a reservation, with its output lowered to the affordable amount where that is permitted, or returns the limit
    /// that it exceeds. A request may make several: for itself and for each attempt. `attempts` are those its attempts may
    /// still need; an implementation may prepare them in the same step.
    async fn reserve(
        &self,
        reservation: &Reservation,
        attempts: &[Reservation],
        now: Instant,
    ) -> Result<Result<ReservationReceipt, LimitExceeded>, StoreError>;

    /// Releases the reservations prepared for further attempts, because an attempt has answered.
    fn attempt_answered(&self, _: RequestId) {}

    /// How long reservations made or renewed from now on are kept without a renewal.
    fn set_reservation_ttl(&self, ttl: Duration);

    /// Extends the reservations of a request that is still running.
    fn renew(&self, id: RequestId, now: Instant);

    /// Releases the reservations of a request that has ended, and counts its usage. Never blocks, so that it can be
    /// called from `Drop`. Returns the alerting budgets that the request has crossed.
    fn settle(&self, record: &UsageRecord, now: Instant) -> Vec<BudgetAlert>;

    /// Money spent and reserved in the period that contains `at`, as known to this node.
    fn spent(&self, subject: Subject, window: Window, at: Timestamp) -> NanoUsd;

    /// The meters of these subjects, as known to this node.
    fn snapshot(&self, subjects: &[Subject], now: Instant) -> CounterSnapshot;

    /// The meters of at most `limit` subjects with reservations or with requests or tokens counted in the last minutes, as
    /// known to this node.
    fn active_subjects(&self, limit: usize, now: Instant) -> CounterSnapshot;

    /// True if several nodes share these counters, so that the values known to this node may lag behind.
    fn is_shared(&self) -> bool {
        false
    }

    fn record_posting(&self, member: MemberId, amount: NanoUsd);

    fn open_reservations(&self) -> usize;

    /// The open reservations of requests that run in this process.
    fn own_reservations(&self) -> usize {
        self.open_reservations()
    }

    /// True if this process counts a reservation of the request, its own or one that was handed over.
    fn has_reservation(&self, _: RequestId) -> bool {
        false
    }

    /// State that a process that takes over needs besides the database; nothing if the counters are shared.
    fn hand_over(&self, _: Instant) -> CounterHandOver {
        CounterHandOver::default()
    }

    /// Continues with the counters that another process has handed over. Call this before the first reservation.
    fn take_over(&self, _: CounterHandOver, _: Instant) {}

    /// Takes the alerting budgets found to be crossed after [`settle`](Self::settle) returned, each with the request that
    /// crossed it. Each crossing is returned once, by one node.
    fn take_budget_alerts(&self) -> Vec<(BudgetAlert, Spender)> {
        Vec::new()
    }
}

/// The meters of active subjects at one time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CounterSnapshot {
    /// The time, in microseconds of the clock that the meters' minutes are counted in.
    pub micros: u64,
    pub meters: Vec<(Subject, Meter)>,
    /// False if subjects were left out because of a limit.
    pub is_complete: bool,
}

impl CounterSnapshot {
    pub(super) fn truncated(mut self, limit: usize) -> Self {
        self.is_complete &= self.meters.len() <= limit;
        self.meters.truncate(limit);
        self
    }
}

/// The request that crossed an alerting budget, and the name of its key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spender {
    pub request: RequestId,
    pub key: String,
}
