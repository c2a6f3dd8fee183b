//! Limits the number of connections, in total and per client address. Near a limit, connections that carry no request are closed.
//! Above the limits a few more are accepted that serve only the status endpoints, so that a health probe does not mistake a busy
//! gateway for a stopped one.

use std::{
    collections::HashMap,
    net::IpAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

use super::{
    connection_eviction::{MIN_REST, Open, RestingConnection, admits, excess, select},
    connection_timers::ConnectionTimers,
};
use crate::{
    address_block::AddressBlock,
    state::shares::{Bound, HolderKind},
};

/// Connections above the limits that serve only the status endpoints.
const STATUS_CONNECTIONS: usize = 64;
/// Time until the next search for connections at rest after one that found too few.
const SEARCH_PAUSE: Duration = Duration::from_millis(100);
/// Time between two reports about connections that were closed.
const REPORT_INTERVAL: Duration = Duration::from_mins(1);

/// Counts the connections of all cores.
#[derive(Debug, Default)]
pub(crate) struct ConnectionLimiter {
    open: Mutex<OpenConnections>,
}

#[derive(Debug, Default)]
struct OpenConnections {
    served: ServedConnections,
    status_only: StatusConnections,
    reports: Reports,
}

/// Connections that may request all paths.
#[derive(Debug, Default)]
struct ServedConnections {
    all: usize,
    /// Connections that were asked to close and are still open.
    evicted: usize,
    next_id: u64,
    search_at: Option<Instant>,
    by_address: HashMap<AddressBlock, AddressConnections>,
}

/// The most connections that may be open.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ConnectionLimits {
    pub(crate) all: usize,
    /// Limit for one address. Loopback is exempt: all callers behind a proxy on this host share that address.
    pub(crate) of_address: usize,
}

/// A connection with its address.
#[derive(Debug)]
struct AddressConnection<T> {
    block: AddressBlock,
    timers: T,
}

#[derive(Debug, Default)]
struct AddressConnections {
    evicted: usize,
    search_at: Option<Instant>,
    open: HashMap<u64, Arc<ConnectionTimers>>,
}

#[derive(Debug, Default)]
struct StatusConnections {
    all: usize,
    by_address: HashMap<AddressBlock, usize>,
}

/// Connections that were closed and not reported yet.
#[derive(Debug, Default)]
struct Reports {
    evicted: usize,
    next_at: Option<Instant>,
}

/// The paths that a connection may request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ServedTargets {
    Everything,
    /// `/healthz`, `/readyz` and `/version`, because the gateway is at its limit of connections.
    StatusOnly,
}

/// One counted connection. Dropping it uncounts it.
#[derive(Debug)]
pub(crate) struct ConnectionPermit {
    connection_limiter: Arc<ConnectionLimiter>,
    block: AddressBlock,
    id: u64,
    pub(crate) targets: ServedTargets,
}

/// Outcome of accepting a connection.
#[derive(Debug)]
pub(crate) struct Entered {
    /// `None` when all limits are reached.
    pub(crate) permit: Option<ConnectionPermit>,
    /// Connections at rest that were asked to close.
    pub(crate) evicted: usize,
    /// Set at intervals while connections are asked to close.
    pub(crate) report: Option<EvictionReport>,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct EvictionReport {
    /// Connections that were asked to close since the last report.
    pub(crate) evicted: usize,
    pub(crate) open: usize,
    /// The most connections that are open from one address.
    pub(crate) most_of_one_address: usize,
}

impl ConnectionLimiter {
    fn open(&self) -> MutexGuard<'_, OpenConnections> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a connection. Near a limit, connections at rest are asked to close.
    pub(crate) fn enter(
        self: &Arc<Self>,
        address: IpAddr,
        limits: ConnectionLimits,
        timers: &Arc<ConnectionTimers>,
        now: Instant,
    ) -> Entered {
        let block = AddressBlock::of(address);
        let of_address = if address.to_canonical().is_loopback() { usize::MAX } else { limits.of_address };
        let limits = ConnectionLimits { of_address, ..limits };
        let mut open = self.open();
        let evicted = open.served.evict(block, limits, now);
        let counted = if open.served.admits(block, limits) {
            Some((open.served.add(block, timers), ServedTargets::Everything))
        } else {
            open.status_only.add(block).then_some((0, ServedTargets::StatusOnly))
        };
        let report = open.report(evicted.len(), now);
        drop(open);
        for timers in &evicted {
            timers.wake();
        }
        let permit = counted.map(|(id, targets)| ConnectionPermit { connection_limiter: Arc::clone(self), block, id, targets });
        Entered { permit, evicted: evicted.len(), report }
    }

    #[cfg(test)]
    pub(crate) fn connections(&self) -> usize {
        self.open().served.all
    }
}

impl OpenConnections {
    fn report(&mut self, evicted: usize, now: Instant) -> Option<EvictionReport> {
        self.reports.evicted += evicted;
        if self.reports.evicted == 0 || self.reports.next_at.is_some_and(|at| now < at) {
            return None;
        }
        self.reports.next_at = Some(now + REPORT_INTERVAL);
        let most_of_one_address = self.served.by_address.values().map(|address| address.open.len()).max().unwrap_or(0);
        Some(EvictionReport { evicted: std::mem::take(&mut self.reports.evicted), open: self.served.all, most_of_one_address })
    }
}

impl ServedConnections {
    fn admits(&self, block: AddressBlock, limits: ConnectionLimits) -> bool {
        let (of_address, evicted_of_address) =
            self.by_address.get(&block).map_or((0, 0), |address| (address.open.len(), address.evicted));
        of_address < limits.of_address && admits(limits.all, Open { all: self.all, of_address, evicted_of_address })
    }

    fn add(&mut self, block: AddressBlock, timers: &Arc<ConnectionTimers>) -> u64 {
        self.all += 1;
        self.next_id += 1;
        self.by_address.entry(block).or_default().open.insert(self.next_id, Arc::clone(timers));
        self.next_id
    }

    fn remove(&mut self, block: AddressBlock, id: u64) {
        let Some(address) = self.by_address.get_mut(&block) else { return };
        let Some(timers) = address.open.remove(&id) else { return };
        self.all -= 1;
        if timers.is_evicted() {
            self.evicted -= 1;
            address.evicted -= 1;
        }
        if address.open.is_empty() {
            self.by_address.remove(&block);
        }
    }

    /// Marks connections that have to close before one more of an address is accepted, of all addresses or of this one.
    fn evict(&mut self, block: AddressBlock, limits: ConnectionLimits, now: Instant) -> Vec<Arc<ConnectionTimers>> {
        let chosen = self.choose(block, limits, now);
        self.evicted += chosen.len();
        for connection in &chosen {
            connection.timers.mark_evicted();
            if let Some(address) = self.by_address.get_mut(&connection.block) {
                address.evicted += 1;
            }
        }
        chosen.into_iter().map(|connection| connection.timers).collect()
    }

    /// Chooses among the connections of all addresses if these are too many, else among those of this address.
    fn choose(
        &mut self,
        block: AddressBlock,
        limits: ConnectionLimits,
        now: Instant,
    ) -> Vec<AddressConnection<Arc<ConnectionTimers>>> {
        let is_due = |search_at: Option<Instant>| search_at.is_none_or(|at| at <= now);
        let search_again_at = |wanted, found| (found < wanted).then_some(now + SEARCH_PAUSE);
        let wanted = excess(limits.all, self.all - self.evicted + 1);
        if wanted > 0 && is_due(self.search_at) {
            let resting = self.by_address.iter().map(|(block, address)| address.resting(*block, now));
            let chosen = shared(select(resting, wanted));
            self.search_at = search_again_at(wanted, chosen.len());
            return chosen;
        }
        let Some(address) = self.by_address.get_mut(&block) else { return Vec::new() };
        let wanted = excess(limits.of_address, address.open.len() - address.evicted + 1);
        if wanted == 0 || !is_due(address.search_at) {
            return Vec::new();
        }
        let chosen = shared(select([address.resting(block, now)], wanted));
        address.search_at = search_again_at(wanted, chosen.len());
        chosen
    }
}

fn shared(chosen: Vec<AddressConnection<&Arc<ConnectionTimers>>>) -> Vec<AddressConnection<Arc<ConnectionTimers>>> {
    chosen.into_iter().map(|it| AddressConnection { block: it.block, timers: Arc::clone(it.timers) }).collect()
}

impl AddressConnections {
    /// Connections that can be asked to close.
    fn resting(&self, block: AddressBlock, now: Instant) -> Vec<RestingConnection<AddressConnection<&Arc<ConnectionTimers>>>> {
        let kept = self.open.values().filter(|timers| !timers.is_evicted());
        let resting = kept.filter_map(|timers| {
            let since = timers.rest_since().filter(|since| *since + MIN_REST <= now)?;
            Some(RestingConnection { connection: AddressConnection { block, timers }, since })
        });
        resting.collect()
    }
}

impl StatusConnections {
    /// Counts a connection; false when there are too many.
    fn add(&mut self, block: AddressBlock) -> bool {
        let (all, held) = (self.all + 1, self.by_address.get(&block).copied().unwrap_or(0) + 1);
        if all > STATUS_CONNECTIONS
            || held > 1 && !Bound::Connections.share().of(HolderKind::Address).permits(STATUS_CONNECTIONS, all, held)
        {
            return false;
        }
        self.all = all;
        self.by_address.insert(block, held);
        true
    }

    fn remove(&mut self, block: AddressBlock) {
        self.all -= 1;
        if let Some(held) = self.by_address.get_mut(&block) {
            *held -= 1;
            if *held == 0 {
                self.by_address.remove(&block);
            }
        }
    }
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        let mut open = self.connection_limiter.open();
        match self.targets {
            ServedTargets::Everything => open.served.remove(self.block, self.id),
            ServedTargets::StatusOnly => open.status_only.remove(self.block),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Enters connections at one time; all are at rest from then on.
    #[derive(Clone)]
    struct Callers {
        connection_limiter: Arc<ConnectionLimiter>,
        limits: ConnectionLimits,
        now: Instant,
    }

    impl Callers {
        fn new(all: usize, of_address: usize) -> Self {
            Self { connection_limiter: Arc::default(), limits: ConnectionLimits { all, of_address }, now: Instant::now() }
        }

        fn after(&self, time: Duration) -> Self {
            Self { now: self.now + time, ..self.clone() }
        }

        fn enter(&self, address: &str) -> Entered {
            self.enter_with(address, &Arc::new(ConnectionTimers::new(self.now)))
        }

        fn enter_with(&self, address: &str, timers: &Arc<ConnectionTimers>) -> Entered {
            self.connection_limiter.enter(address.parse().unwrap(), self.limits, timers, self.now)
        }

        fn served(&self, address: &str) -> Option<ConnectionPermit> {
            self.enter(address).permit.filter(|permit| permit.targets == ServedTargets::Everything)
        }
    }

    #[tokio::test(start_paused = true)]
    async fn both_limits_hold_and_dropped_permits_are_released() {
        let callers = Callers::new(3, 2);
        let one = callers.served("203.0.113.7").unwrap();
        let _two = callers.served("203.0.113.7").unwrap();
        assert!(callers.served("203.0.113.7").is_none(), "third from one address");
        let _three = callers.served("203.0.113.8").unwrap();
        assert!(callers.served("203.0.113.9").is_none(), "fourth in total");
        drop(one);
        assert_eq!(callers.connection_limiter.connections(), 2);
        assert!(callers.served("203.0.113.7").is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn changed_limits_apply_to_the_next_connection() {
        let callers = Callers::new(1, 1);
        let _one = callers.served("203.0.113.7").unwrap();
        assert!(callers.served("203.0.113.8").is_none());
        let raised = Callers { limits: ConnectionLimits { all: 8, of_address: 2 }, ..callers.clone() };
        let _two = raised.served("203.0.113.7").unwrap();
        assert!(raised.served("203.0.113.7").is_none(), "third from one address");
        assert!(raised.served("203.0.113.8").is_some());
        assert!(callers.served("203.0.113.9").is_none(), "lowered again, none is admitted until some have closed");
    }

    #[tokio::test(start_paused = true)]
    async fn loopback_is_exempt_from_the_address_limit() {
        let callers = Callers::new(10, 1);
        let kept: Vec<_> = (0..5).map(|_| callers.served("127.0.0.1").unwrap()).collect();
        assert_eq!(callers.connection_limiter.connections(), kept.len());
    }

    #[tokio::test(start_paused = true)]
    async fn status_connections_have_their_own_limit_and_a_share_per_address() {
        let callers = Callers::new(1, 1);
        let served = callers.served("203.0.113.7").unwrap();
        let more: Vec<_> = std::iter::from_fn(|| callers.enter("203.0.113.7").permit).collect();
        assert_eq!(more.len(), STATUS_CONNECTIONS / 4 * 3);
        assert!(more.iter().all(|permit| permit.targets == ServedTargets::StatusOnly));
        assert!(callers.enter("203.0.113.8").permit.is_some());
        drop((served, more));
        let open = callers.connection_limiter.open();
        assert!(open.status_only.by_address.is_empty() && open.served.by_address.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn idle_connections_are_evicted_near_the_limit_and_busy_ones_are_not() {
        let callers = Callers::new(16, 16);
        let timers: Vec<_> = (0..14).map(|_| Arc::new(ConnectionTimers::new(callers.now))).collect();
        timers[0].begin(callers.now);
        let held: Vec<_> = timers.iter().map(|timers| callers.enter_with("203.0.113.7", timers)).collect();
        assert!(held.iter().all(|entered| entered.evicted == 0 && entered.report.is_none()));
        assert!(callers.served("203.0.113.7").is_none(), "the address holds more than its share, and no rest is long enough");
        let later = callers.after(MIN_REST);
        let entered = later.enter("203.0.113.8");
        assert_eq!(entered.permit.unwrap().targets, ServedTargets::Everything);
        let evicted: Vec<_> = timers.iter().filter(|timers| timers.is_evicted()).collect();
        assert_eq!((entered.evicted, evicted.len()), (2, 2));
        assert!(!timers[0].is_evicted());
        assert_eq!(entered.report, Some(EvictionReport { evicted: 2, open: 15, most_of_one_address: 14 }));
        assert!(later.served("203.0.113.7").is_some(), "connections that close are replaced");
        drop(held);
        let open = callers.connection_limiter.open();
        assert_eq!((open.served.all, open.served.evicted, open.served.by_address.len()), (0, 0, 0));
    }

    #[tokio::test(start_paused = true)]
    async fn address_near_its_own_limit_evicts_its_own_connections() {
        let callers = Callers::new(1_000, 16);
        let _others: Vec<_> = (0..14).map(|_| callers.served("203.0.113.8").unwrap()).collect();
        let timers: Vec<_> = (0..14).map(|_| Arc::new(ConnectionTimers::new(callers.now))).collect();
        let _held: Vec<_> = timers.iter().map(|timers| callers.enter_with("203.0.113.7", timers)).collect();
        let entered = callers.after(MIN_REST).enter("203.0.113.7");
        assert_eq!((entered.evicted, timers.iter().filter(|timers| timers.is_evicted()).count()), (2, 2));
        assert_eq!(entered.permit.unwrap().targets, ServedTargets::Everything);
    }

    #[tokio::test(start_paused = true)]
    async fn busy_connections_are_searched_at_intervals_and_reported_once_a_minute() {
        let callers = Callers::new(16, 16);
        let timers: Vec<_> = (0..14).map(|_| Arc::new(ConnectionTimers::new(callers.now))).collect();
        for busy in &timers {
            busy.begin(callers.now);
        }
        let _held: Vec<_> = timers.iter().map(|timers| callers.enter_with("203.0.113.7", timers)).collect();
        let at = |millis| callers.after(Duration::from_millis(millis));
        assert_eq!(at(600).enter("203.0.113.8").evicted, 0);
        let rests = || Arc::new(ConnectionTimers::new(callers.now));
        let _resting = ["203.0.113.9", "203.0.113.10"].map(|address| at(600).enter_with(address, &rests()));
        assert_eq!(at(699).enter("203.0.113.8").evicted, 0);
        let entered = at(700).enter("203.0.113.8");
        assert_eq!((entered.evicted, entered.report.map(|report| report.evicted)), (2, Some(2)));
    }
}
