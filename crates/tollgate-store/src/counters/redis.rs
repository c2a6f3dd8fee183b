//! Counters in Redis (or Valkey), shared by several nodes: the same checks as in memory, as atomic scripts. The usage of a
//! request is sent afterwards, in batches, and is counted once even if a batch is sent again.
//!
//! A request waits for Redis at most once. Far from its limits it does not wait at all, because the node holds leases that
//! cover it ([`lease`]). Near a limit one script decides everything: the reservation, lowered to the remaining amount if
//! that is permitted, the reservations that attempts may need on their channels' budgets, and the leases granted with them.
//!
//! Each node is registered. The registration is renewed every 10 s, expires after 60 s, and ends when the node starts again.
//! Reservations count as long as the registration of their node, so those of a crashed node expire. A lost connection ends
//! the registration: the next one begins with all open reservations of the node, and late messages of the old one have no
//! effect.
//!
//! While Redis is unreachable each node enforces its [share of the limits](outage_share), and sends what was spent in the
//! meantime once Redis is back. If Redis has lost its data, it is restored from the database ([`ledger_sync`]) and from
//! spending that the nodes have not booked yet ([`join`]).

mod access_reports;
mod admission;
mod connection;
mod deltas;
mod health;
mod join;
mod lease;
mod leases;
mod ledger_sync;
mod meter_cache;
mod outage_share;
mod own_rates;
mod recent_charges;
mod reservations;
mod script;
mod state;
mod worker;

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use tokio::time::Instant;
use tollgate_core::{
    BudgetAlert, LimitExceeded, MemberId, NanoUsd, RequestId, Reservation, ReservationReceipt, Subject, Timestamp, UsageRecord,
    Window,
};

use super::{
    subjects::lock,
    traits::{CounterSnapshot, Counters, Spender},
};
use crate::{LedgerStore, Spending, StoreError};
use reservations::ReservationSource;
use state::RedisState;

pub use access_reports::{AccessReport, AccessState, SharedAccessReports};
pub use connection::RedisOptions;
pub use connection::{RedisAddress, check as check_redis};
pub use health::{SharedHealth, SharedHealthUpdate};
pub use worker::RedisWorker;

/// Counters in Redis and their worker, which has to run as long as they are used. Waits up to 5 s for the first connection.
/// `spending` comes from the database; Redis may have more.
pub async fn counters_in_redis(
    options: RedisOptions,
    spending: &Spending,
    ledger: Arc<dyn LedgerStore>,
) -> Result<(Arc<dyn Counters>, RedisWorker), StoreError> {
    let state = Arc::new(RedisState::new(options, spending));
    let worker = RedisWorker::start(Arc::clone(&state), ledger, spending.clone()).await?;
    Ok((Arc::new(RedisCounters(state)), worker))
}

#[derive(Debug)]
struct RedisCounters(Arc<RedisState>);

#[async_trait]
impl Counters for RedisCounters {
    async fn reserve(
        &self,
        reservation: &Reservation,
        attempts: &[Reservation],
        now: Instant,
    ) -> Result<Result<ReservationReceipt, LimitExceeded>, StoreError> {
        Ok(admission::reserve(&self.0, reservation, attempts, now).await)
    }

    fn attempt_answered(&self, id: RequestId) {
        let epoch = self.0.epoch();
        let prepared = self.0.reservations.remove_prepared(id);
        if !prepared.is_empty() {
            self.0.release_unused(&prepared, &epoch);
        }
    }

    fn set_reservation_ttl(&self, ttl: Duration) {
        self.0.reservation_ttl.set(ttl);
    }

    fn renew(&self, id: RequestId, now: Instant) {
        self.0.reservations.renew(id, now);
    }

    fn settle(&self, record: &UsageRecord, now: Instant) -> Vec<BudgetAlert> {
        let state = &self.0;
        let epoch = state.epoch();
        let released = state.reservations.remove(record.id);
        let tokens = record.tokens.prompt().saturating_add(record.tokens.completion());
        if let Some(share) = epoch.outage_share()
            && released.iter().any(|open| open.source == ReservationSource::OutageShare)
        {
            share.settle(record, now);
        }
        let mut charges = Vec::new();
        state.update_pending(|deltas| {
            charges = deltas::add_charges(deltas, record);
            state.recent.add(record, &charges);
            state.release(&released, &charges, &epoch, now, deltas);
            for open in &released {
                open.correct_tokens(deltas, tokens);
            }
            reservations::watch_budgets(deltas, &released, &charges, record);
        });
        drop(epoch);
        for (subject, amount) in charges {
            state.meters.add_spending(subject, amount, record.at);
        }
        Vec::new()
    }

    fn spent(&self, subject: Subject, window: Window, at: Timestamp) -> NanoUsd {
        let meter = self.0.meter(subject, 0);
        NanoUsd(meter.spent.within(window, at).0.saturating_add(meter.reserved))
    }

    fn snapshot(&self, subjects: &[Subject], now: Instant) -> CounterSnapshot {
        let micros = self.0.lease_clock().micros_at(now);
        let meters = subjects.iter().map(|subject| (*subject, self.0.meter(*subject, micros)));
        CounterSnapshot { micros, meters: meters.collect(), is_complete: true }
    }

    fn active_subjects(&self, limit: usize, now: Instant) -> CounterSnapshot {
        let micros = self.0.lease_clock().micros_at(now);
        let (meters, is_complete) = self.0.meters.active(|subject| {
            let meter = self.0.meter(subject, micros);
            meter.in_use(micros).then_some(meter)
        });
        CounterSnapshot { micros, meters, is_complete }.truncated(limit)
    }

    fn is_shared(&self) -> bool {
        true
    }

    /// The other nodes, and Redis, read the posting from the ledger in the database.
    fn record_posting(&self, member: MemberId, amount: NanoUsd) {
        self.0.meters.add_balance(member, amount);
        self.0.ledger_changed.notify_one();
    }

    fn open_reservations(&self) -> usize {
        self.0.reservations.len()
    }

    fn take_budget_alerts(&self) -> Vec<(BudgetAlert, Spender)> {
        std::mem::take(&mut *lock(&self.0.budget_alerts))
    }
}

#[cfg(test)]
mod tests;
