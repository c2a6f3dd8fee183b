//! Limits the number of connections, in total and per client address.

use std::{
    collections::HashMap,
    net::IpAddr,
    sync::{Arc, Mutex, PoisonError},
};

use crate::address_block::AddressBlock;

/// Counts the connections of all cores.
#[derive(Debug)]
pub(crate) struct ConnectionLimiter {
    most: usize,
    most_per_address: usize,
    counts: Mutex<ConnectionCounts>,
}

#[derive(Debug, Default)]
struct ConnectionCounts {
    all: usize,
    by_address: HashMap<AddressBlock, usize>,
}

/// One counted connection. Dropping it releases its place.
#[derive(Debug)]
pub(crate) struct ConnectionPermit {
    connection_limiter: Arc<ConnectionLimiter>,
    block: AddressBlock,
}

impl ConnectionLimiter {
    /// Loopback is exempt from `most_per_address`: all callers behind a proxy on this host share that address.
    pub(crate) fn new(most: usize, most_per_address: usize) -> Arc<Self> {
        Arc::new(Self { most, most_per_address, counts: Mutex::default() })
    }

    /// Counts a connection; `None` when a limit is reached.
    pub(crate) fn enter(self: &Arc<Self>, address: IpAddr) -> Option<ConnectionPermit> {
        let block = AddressBlock::of(address);
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        if counts.all >= self.most {
            return None;
        }
        let of_address = counts.by_address.entry(block).or_default();
        if *of_address >= self.most_per_address && !address.to_canonical().is_loopback() {
            return None;
        }
        *of_address += 1;
        counts.all += 1;
        Some(ConnectionPermit { connection_limiter: Arc::clone(self), block })
    }

    #[cfg(test)]
    pub(crate) fn connections(&self) -> usize {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner).all
    }
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        let mut counts = self.connection_limiter.counts.lock().unwrap_or_else(PoisonError::into_inner);
        counts.all -= 1;
        if let Some(of_address) = counts.by_address.get_mut(&self.block) {
            *of_address -= 1;
            if *of_address == 0 {
                counts.by_address.remove(&self.block);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_limits_hold_and_dropped_permits_are_released() {
        let connection_limiter = ConnectionLimiter::new(3, 2);
        let enter = |address: &str| connection_limiter.enter(address.parse().unwrap());
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
        let kept = (0..5).map(|_| connection_limiter.enter("127.0.0.1".parse().unwrap())).collect::<Vec<_>>();
        assert!(kept.iter().all(Option::is_some));
    }
}
