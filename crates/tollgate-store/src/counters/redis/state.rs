//! State shared by the requests that count in Redis and the [worker](super::worker).

use std::{
    collections::HashMap,
    fmt,
    pin::pin,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use redis::aio::MultiplexedConnection;
use tokio::{
    sync::Notify,
    time::{Instant, timeout},
};
use tokio_util::task::TaskTracker;
use tollgate_core::{BudgetAlert, Meter, NanoUsd, Subject};

use super::{
    super::{reservation_ttl::ReservationTtl, subjects::lock, traits::Spender},
    connection::RedisOptions,
    deltas::CounterDeltas,
    leases::Leases,
    meter_cache::MeterCache,
    outage_share::OutageShare,
    own_rates::OwnRates,
    recent_charges::RecentCharges,
    reservations::{OpenReservation, ReservationSource, ReservationTable},
    script::{NodeRegistration, Scripts},
    worker::REGISTRATION_TTL_MS,
};
use crate::Spending;

/// Longest wait of a request while the nodes report to Redis: longer than they wait for each other.
const JOINING_TIMEOUT: Duration = Duration::from_secs(12);
pub(super) const MINUTE: u64 = 60_000_000;

pub(super) struct RedisState {
    pub(super) options: RedisOptions,
    pub(super) scripts: Scripts,
    pub(super) reservations: ReservationTable,
    /// Shared by these reservations and those made in an outage.
    pub(super) reservation_ttl: Arc<ReservationTtl>,
    pub(super) leases: Leases,
    pub(super) lease_clock: Mutex<LeaseClock>,
    pub(super) meters: MeterCache,
    pub(super) recent: RecentCharges,
    pub(super) own_rates: OwnRates,
    /// Changes that Redis has not received.
    pub(super) pending: Mutex<CounterDeltas>,
    pub(super) epoch: RwLock<Epoch>,
    /// Crossed budgets that [`Counters::take_budget_alerts`](crate::Counters::take_budget_alerts) has not returned yet.
    pub(super) budget_alerts: Mutex<Vec<(BudgetAlert, Spender)>>,
    /// Signals pending changes or a lost connection to the worker.
    pub(super) wake: Notify,
    /// Signals to requests that this node has joined, or has failed to.
    pub(super) joined: Notify,
    /// Signals to the worker that the ledger in the database has changed.
    pub(super) ledger_changed: Notify,
    nodes: Mutex<NodeCount>,
    pub(super) remote_reservations: AtomicU64,
    /// The registration has ended although it was renewed in time.
    pub(super) registration_lost: AtomicBool,
    /// True while deltas are in flight.
    pub(super) is_sending: AtomicBool,
    pub(super) tracker: TaskTracker,
}

/// Conditions of leases: the validity of this node's registration, and the time of Redis.
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

/// How many nodes there are.
struct NodeCount {
    nodes: u64,
    /// When this number was last registered; `None` until Redis has reported it.
    seen: Option<Instant>,
}

impl NodeCount {
    fn update(&mut self, nodes: u64, now: Instant) {
        let ttl = Duration::from_millis(REGISTRATION_TTL_MS);
        let is_outdated = self.seen.is_none_or(|seen| now.saturating_duration_since(seen) >= ttl);
        if nodes >= self.nodes || is_outdated {
            *self = Self { nodes, seen: Some(now) };
        }
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
    /// Connected, and reporting all reservations and spending of this node. Requests wait for the end of it.
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

    /// The share that applies until the epoch is up.
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
        let reservation_ttl = Arc::new(ReservationTtl::new(options.reservation_ttl));
        let share = Arc::new(OutageShare::new(options.nodes, Arc::clone(&reservation_ttl), HashMap::new()));
        Self {
            scripts: Scripts::new(&options.namespace),
            reservations: ReservationTable::new(Arc::clone(&reservation_ttl)),
            reservation_ttl,
            leases: Leases::new(),
            lease_clock: Mutex::default(),
            meters: MeterCache::new(spending),
            recent: RecentCharges::default(),
            own_rates: OwnRates::new(),
            pending: Mutex::default(),
            epoch: RwLock::new(Epoch { number: 0, connection: ConnectionState::Down { share } }),
            budget_alerts: Mutex::default(),
            wake: Notify::new(),
            joined: Notify::new(),
            ledger_changed: Notify::new(),
            nodes: Mutex::new(NodeCount { nodes: options.nodes.max(1), seen: None }),
            remote_reservations: AtomicU64::new(0),
            registration_lost: AtomicBool::new(false),
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

    /// Records the time of Redis, as of a message sent at `sent`.
    pub(super) fn record_redis_time(&self, sent: Instant, micros: u64) {
        let mut clock = self.lease_clock();
        if clock.redis_time.is_none_or(|(_, known)| known < micros) {
            clock.redis_time = Some((sent, micros));
        }
    }

    /// The time of Redis in microseconds; that of this node if Redis was never reached.
    pub(super) fn redis_micros(&self, now: Instant) -> u64 {
        match self.lease_clock().micros_at(now) {
            0 => u64::try_from((self.options.clock)().0).unwrap_or(0),
            micros => micros,
        }
    }

    /// The meter of a subject, without leases that no request uses.
    pub(super) fn meter(&self, subject: Subject, micros: u64) -> Meter {
        self.leases.exclude_unused(subject, self.meters.get(subject), micros)
    }

    /// The number of nodes to share limits with: the most that were registered within the last registration period. A node
    /// that Redis has lost may still serve from its share.
    pub(super) fn node_count(&self) -> u64 {
        lock(&self.nodes).nodes
    }

    pub(super) fn set_node_count(&self, nodes: u64) {
        lock(&self.nodes).update(nodes.max(1), self.now());
    }

    /// A new share of the limits for an outage. The leases of this node end and become part of it.
    pub(super) fn new_outage_share(&self) -> Arc<OutageShare> {
        let mut unused = CounterDeltas::new();
        let retained = self.leases.drain(&mut unused);
        for (subject, delta) in unused {
            let pending = &mut *self.pending();
            let waiting = pending.entry(subject).or_default();
            waiting.requests.extend(delta.requests);
            waiting.tokens.extend(delta.tokens);
        }
        Arc::new(OutageShare::new(self.node_count(), Arc::clone(&self.reservation_ttl), retained))
    }

    pub(super) fn connection_lost(&self, number: u64, why: &str) {
        let mut epoch = self.epoch_mut();
        if epoch.number != number || epoch.is_down() {
            return;
        }
        let nodes = self.node_count();
        tracing::warn!(nodes, "Redis is unreachable, this node enforces its share of the limits: {why}");
        self.lease_clock().registered_until = None;
        let share = epoch.outage_share().map_or_else(|| self.new_outage_share(), Arc::clone);
        epoch.connection = ConnectionState::Down { share };
        drop(epoch);
        self.joined.notify_waiters();
        self.wake.notify_one();
    }

    /// Records that the registration has ended, unless it was not renewed.
    pub(super) fn registration_lost(&self) {
        let is_renewed = self.lease_clock().registered_until.is_some_and(|until| self.now() < until);
        self.registration_lost.store(is_renewed, Ordering::Release);
    }

    /// Continues with this node's share after a failed join.
    pub(super) fn joining_failed(&self) {
        let mut epoch = self.epoch_mut();
        if let ConnectionState::Joining { share } = &epoch.connection {
            epoch.connection = ConnectionState::Down { share: Arc::clone(share) };
            drop(epoch);
            self.joined.notify_waiters();
        }
    }

    /// Number, connection and registration of the epoch if it is up, after this node has reported to Redis.
    pub(super) async fn connection(&self) -> Option<(u64, MultiplexedConnection, NodeRegistration)> {
        let mut joined = pin!(self.joined.notified());
        joined.as_mut().enable();
        {
            let epoch = self.epoch();
            if !matches!(epoch.connection, ConnectionState::Joining { .. }) {
                return epoch.up();
            }
        }
        // After the time limit the request is served from the share.
        let _ = timeout(JOINING_TIMEOUT, joined).await;
        self.epoch().up()
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forgotten_node_is_counted_until_its_registration_would_have_expired() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut count = NodeCount { nodes: 5, seen: None };
        let mut after = |nodes, seconds| {
            count.update(nodes, at(seconds));
            count.nodes
        };
        assert_eq!([after(3, 1), after(2, 2), after(3, 30), after(2, 89)], [3, 3, 3, 3]);
        assert_eq!([after(2, 90), after(4, 91)], [2, 4]);
    }
}
