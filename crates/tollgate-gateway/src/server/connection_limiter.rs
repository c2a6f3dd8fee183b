//! Limits the number of connections, in total and per client address. Above the limits a few more are accepted that serve only
//! the gateway's own pages, so that a health probe does not take a busy gateway for a dead one.

use std::{
    collections::HashMap,
    net::IpAddr,
    sync::{Arc, Mutex, PoisonError},
};

use crate::{
    address_block::AddressBlock,
    state::shares::{Bound, HolderKind},
};

/// Connections above the limits that serve only the gateway's own pages.
const PAGE_CONNECTIONS: usize = 64;

/// Counts the connections of all cores.
#[derive(Debug)]
pub(crate) struct ConnectionLimiter {
    max: usize,
    max_per_address: usize,
    counts: Mutex<ConnectionCounts>,
}

#[derive(Debug, Default)]
struct ConnectionCounts {
    served: AddressCounts,
    pages: AddressCounts,
}

/// Connections of one kind.
#[derive(Debug, Default)]
struct AddressCounts {
    all: usize,
    by_address: HashMap<AddressBlock, usize>,
}

/// The paths that a connection may request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ServedTargets {
    Everything,
    /// `/healthz`, `/readyz` and `/version`: the gateway has as many connections as it may have.
    Pages,
}

/// One counted connection. Dropping it uncounts it.
#[derive(Debug)]
pub(crate) struct ConnectionPermit {
    connection_limiter: Arc<ConnectionLimiter>,
    block: AddressBlock,
    pub(crate) targets: ServedTargets,
}

impl ConnectionLimiter {
    /// Loopback is exempt from `max_per_address`: all callers behind a proxy on this host share that address.
    pub(crate) fn new(max: usize, max_per_address: usize) -> Arc<Self> {
        Arc::new(Self { max, max_per_address, counts: Mutex::default() })
    }

    /// Counts a connection; `None` when all limits are reached.
    pub(crate) fn enter(self: &Arc<Self>, address: IpAddr) -> Option<ConnectionPermit> {
        let block = AddressBlock::of(address);
        let max_per_address = if address.to_canonical().is_loopback() { usize::MAX } else { self.max_per_address };
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        let targets = if counts.served.all < self.max && counts.served.of(block) < max_per_address {
            counts.served.add(block);
            ServedTargets::Everything
        } else {
            let (all, held) = (counts.pages.all + 1, counts.pages.of(block) + 1);
            if all > PAGE_CONNECTIONS
                || held > 1 && !Bound::Connections.share().of(HolderKind::Address).permits(PAGE_CONNECTIONS, all, held)
            {
                return None;
            }
            counts.pages.add(block);
            ServedTargets::Pages
        };
        Some(ConnectionPermit { connection_limiter: Arc::clone(self), block, targets })
    }

    #[cfg(test)]
    pub(crate) fn connections(&self) -> usize {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner).served.all
    }
}

impl AddressCounts {
    fn of(&self, block: AddressBlock) -> usize {
        self.by_address.get(&block).copied().unwrap_or(0)
    }

    fn add(&mut self, block: AddressBlock) {
        self.all += 1;
        *self.by_address.entry(block).or_default() += 1;
    }

    fn remove(&mut self, block: AddressBlock) {
        self.all -= 1;
        if let Some(of_address) = self.by_address.get_mut(&block) {
            *of_address -= 1;
            if *of_address == 0 {
                self.by_address.remove(&block);
            }
        }
    }
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        let mut counts = self.connection_limiter.counts.lock().unwrap_or_else(PoisonError::into_inner);
        match self.targets {
            ServedTargets::Everything => counts.served.remove(self.block),
            ServedTargets::Pages => counts.pages.remove(self.block),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_limits_hold_and_dropped_permits_are_released() {
        let connection_limiter = ConnectionLimiter::new(3, 2);
        let served = |permit: &ConnectionPermit| permit.targets == ServedTargets::Everything;
        let enter = |address: &str| connection_limiter.enter(address.parse().unwrap()).filter(served);
        let one = enter("203.0.113.7").unwrap();
        let _two = enter("203.0.113.7").unwrap();
        assert!(enter("203.0.113.7").is_none(), "third from one address");
        let _three = enter("203.0.113.8").unwrap();
        assert!(enter("203.0.113.9").is_none(), "fourth in total");
        drop(one);
        assert_eq!(connection_limiter.connections(), 2);
        assert!(enter("203.0.113.7").is_some());
    }

    #[test]
    fn loopback_is_exempt_from_the_address_limit() {
        let connection_limiter = ConnectionLimiter::new(10, 1);
        let kept = (0..5).map(|_| connection_limiter.enter("127.0.0.1".parse().unwrap()).unwrap()).collect::<Vec<_>>();
        assert!(kept.iter().all(|permit| permit.targets == ServedTargets::Everything));
    }

    #[test]
    fn pages_have_connections_of_their_own_and_no_address_takes_them_all() {
        let connection_limiter = ConnectionLimiter::new(1, 1);
        let enter = |address: &str| connection_limiter.enter(address.parse().unwrap());
        let served = enter("203.0.113.7").unwrap();
        let pages: Vec<_> = std::iter::from_fn(|| enter("203.0.113.7")).collect();
        assert_eq!(pages.len(), PAGE_CONNECTIONS / 4 * 3);
        assert!(pages.iter().all(|permit| permit.targets == ServedTargets::Pages));
        assert!(enter("203.0.113.8").is_some());
        drop((served, pages));
        let counts = connection_limiter.counts.lock().unwrap();
        assert!(counts.pages.by_address.is_empty() && counts.served.by_address.is_empty());
    }
}
