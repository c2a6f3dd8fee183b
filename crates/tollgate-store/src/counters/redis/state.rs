//! State shared by the requests that count in Redis and the [worker](super::worker).

use std::{
    collections::HashMap,
    fmt,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use redis::aio::MultiplexedConnection;
use tokio::{sync::Notify, time::Instant};
use tokio_util::task::TaskTracker;
use tollgate_core::{BudgetAlert, Meter, NanoUsd, Subject};

use super::{
    super::{subjects::lock, traits::Spender},
    connection::RedisOptions,
    deltas::CounterDeltas,
    leases::Leases,
    meter_cache::MeterCache,
    outage_share::OutageShare,
    reservations::{OpenReservation, ReservationSource, ReservationTable},
    script::{NodeRegistration, Scripts},
};
use crate::Spending;

pub(super) const MINUTE: u64 = 60_000_000;

pub(super) struct RedisState {
    pub(super) options: RedisOptions,
    pub(super) scripts: Scripts,
    pub(super) reservations: ReservationTable,
    pub(super) leases: Leases,
    pub(super) lease_clock: Mutex<LeaseClock>,
    pub(super) meters: MeterCache,
    /// Changes that Redis has not received.
    pub(super) pending: Mutex<CounterDeltas>,
    pub(super) epoch: RwLock<Epoch>,
    /// Crossed budgets that [`Counters::take_budget_alerts`](crate::Counters::take_budget_alerts) has not returned yet.
    pub(super) budget_alerts: Mutex<Vec<(BudgetAlert, Spender)>>,
    /// Signals pending changes or a lost connection to the worker.
    pub(super) wake: Notify,
    /// Signals to the worker that the ledger in the database has changed.
    pub(super) ledger_changed: Notify,
    pub(super) nodes: AtomicU64,
    pub(super) remote_reservations: AtomicU64,
    /// True while deltas are in flight.
    pub(super) is_sending: AtomicBool,
    pub(super) tracker: TaskTracker,
}

/// What leases depend on: the validity of this node's registration, and the time of Redis.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct LeaseClock {
    /// Until when the registration is certain to be valid.
    pub(super) registered_until: Option<Instant>,
    /// The time of Redis in microseconds, and when it was reported.
    pub(super) redis_time: Option<(Instant, u64)>,
}

impl LeaseClock {
    /// The time of Redis at `now`, in microseconds; 0 if it is unknown.
    pub(super) fn micros_at(&self, now: Instant) -> u64 {
        let elapsed = |at: Instant| micros(now.saturating_duration_since(at));
        self.redis_time.map_or(0, |(at, micros)| micros + elapsed(at))
    }
}

/// The period between two registrations of this node.
pub(super) struct Epoch {
    pub(super) number: u64,
    pub(super) connection: ConnectionState,
}

pub(super) enum ConnectionState {
    /// Redis has all reservations of this node.
    Up { connection: MultiplexedConnection, node: NodeRegistration },
    /// Connected, but Redis does not have all reservations of this node yet.
    Joining { share: Arc<OutageShare> },
    /// Redis is unreachable.
    Down { share: Arc<OutageShare> },
}

impl Epoch {
    pub(super) const fn is_down(&self) -> bool {
        matches!(self.connection, ConnectionState::Down { .. })
    }

    pub(super) fn up(&self) -> Option<(u64, MultiplexedConnection, NodeRegistration)> {
        match &self.connection {
            ConnectionState::Up { connection, node } => Some((self.number, connection.clone(), node.clone())),
            ConnectionState::Joining { .. } | ConnectionState::Down { .. } => None,
        }
    }

    /// The share that applies while the epoch is not up.
    pub(super) const fn outage_share(&self) -> Option<&Arc<OutageShare>> {
        match &self.connection {
            ConnectionState::Joining { share } | ConnectionState::Down { share } => Some(share),
            ConnectionState::Up { .. } => None,
        }
    }
}

impl fmt::Debug for RedisState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisCounters").field("options", &self.options).finish_non_exhaustive()
    }
}

impl RedisState {
    pub(super) fn new(options: RedisOptions, spending: &Spending) -> Self {
        let share = Arc::new(OutageShare::new(options.nodes, options.reservation_ttl, HashMap::new()));
        Self {
            scripts: Scripts::new(&options.namespace),
            reservations: ReservationTable::new(options.reservation_ttl),
            leases: Leases::new(),
            lease_clock: Mutex::default(),
            meters: MeterCache::new(spending),
            pending: Mutex::default(),
            epoch: RwLock::new(Epoch { number: 0, connection: ConnectionState::Down { share } }),
            budget_alerts: Mutex::default(),
            wake: Notify::new(),
            ledger_changed: Notify::new(),
            nodes: AtomicU64::new(options.nodes.max(1)),
            remote_reservations: AtomicU64::new(0),
            is_sending: AtomicBool::new(false),
            tracker: TaskTracker::new(),
            options,
        }
    }

    pub(super) fn epoch(&self) -> RwLockReadGuard<'_, Epoch> {
        self.epoch.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn epoch_mut(&self) -> RwLockWriteGuard<'_, Epoch> {
        self.epoch.write().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn pending(&self) -> MutexGuard<'_, CounterDeltas> {
        lock(&self.pending)
    }

    pub(super) fn lease_clock(&self) -> MutexGuard<'_, LeaseClock> {
        lock(&self.lease_clock)
    }

    pub(super) fn now(&self) -> Instant {
        (self.options.instant)()
    }

    /// The meter of a subject, without leases that no request uses.
    pub(super) fn meter(&self, subject: Subject, micros: u64) -> Meter {
        self.leases.exclude_unused(subject, self.meters.get(subject), micros)
    }

    pub(super) fn node_count(&self) -> u64 {
        self.nodes.load(Ordering::Relaxed)
    }

    pub(super) fn set_node_count(&self, nodes: u64) {
        self.nodes.store(nodes.max(1), Ordering::Relaxed);
    }

    /// A new share of the limits for an outage. The leases of this node end and become part of it.
    pub(super) fn new_outage_share(&self) -> Arc<OutageShare> {
        Arc::new(OutageShare::new(self.node_count(), self.options.reservation_ttl, self.leases.drain()))
    }

    pub(super) fn connection_lost(&self, number: u64, why: &str) {
        let mut epoch = self.epoch_mut();
        if epoch.number != number || epoch.is_down() {
            return;
        }
        let nodes = self.node_count();
        tracing::warn!(nodes, "Redis is unreachable, this node enforces its share of the limits: {why}");
        *self.lease_clock() = LeaseClock::default();
        epoch.connection = ConnectionState::Down { share: self.new_outage_share() };
        drop(epoch);
        self.wake.notify_one();
    }

    /// Changes the pending deltas and wakes the worker.
    pub(super) fn update_pending(&self, update: impl FnOnce(&mut CounterDeltas)) {
        update(&mut self.pending());
        self.wake.notify_one();
    }

    /// Releases reservations: to the leases they were taken from, less what their request spent, or to Redis.
    pub(super) fn release(
        &self,
        released: &[OpenReservation],
        charges: &[(Subject, NanoUsd)],
        epoch: &Epoch,
        now: Instant,
        deltas: &mut CounterDeltas,
    ) {
        // When Redis is reached again it receives all reservations that are open by then.
        let is_down = epoch.is_down();
        let from_leases =
            leased_totals(released.iter().filter(|open| !is_down && open.source == ReservationSource::Lease(epoch.number)));
        for open in released {
            if open.is_prepared {
                open.leased_amounts().for_each(|(subject, money, _)| self.leases.add_prepared(subject, -money, now));
            }
            if !is_down && open.source != ReservationSource::Lease(epoch.number) {
                open.subtract_from(deltas);
            }
        }
        for (subject, (money, permits)) in from_leases {
            let spent = charges.iter().filter(|(charged, _)| *charged == subject).map(|(_, amount)| amount.0).sum();
            let used_up = self.leases.settle(subject, money, spent, permits, now);
            if used_up != 0 {
                deltas.entry(subject).or_default().reserved -= used_up;
            }
        }
    }

    pub(super) fn release_unused(&self, released: &[OpenReservation], epoch: &Epoch) {
        self.update_pending(|deltas| self.release(released, &[], epoch, self.now(), deltas));
    }
}

fn leased_totals<'a>(reservations: impl Iterator<Item = &'a OpenReservation>) -> HashMap<Subject, (i64, u64)> {
    let mut totals: HashMap<Subject, (i64, u64)> = HashMap::new();
    for (subject, money, permits) in reservations.flat_map(OpenReservation::leased_amounts) {
        let total = totals.entry(subject).or_default();
        *total = (total.0.saturating_add(money), total.1 + permits);
    }
    totals
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}
