//! Counts connections: how many there are, and how many one address has.

use std::{
    collections::HashMap,
    net::IpAddr,
    sync::{Arc, Mutex, PoisonError},
};

/// What counts as one address: an IPv4 address, or the /64 an IPv6 address lies in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct AddressBlock(u64, bool);

impl AddressBlock {
    /// The block an address lies in. IPv4 in IPv6 counts as IPv4.
    pub(crate) fn of(address: IpAddr) -> Self {
        match address.to_canonical() {
            IpAddr::V4(v4) => Self(u64::from(v4.to_bits()), false),
            IpAddr::V6(v6) => {
                let [a, b, c, d, ..] = v6.segments();
                Self(u64::from(a) << 48 | u64::from(b) << 32 | u64::from(c) << 16 | u64::from(d), true)
            }
        }
    }
}

/// The connections of all cores.
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

/// One counted connection; dropped, it is counted no more.
#[derive(Debug)]
pub(crate) struct ConnectionPermit {
    connection_limiter: Arc<ConnectionLimiter>,
    block: AddressBlock,
}

impl ConnectionLimiter {
    /// Loopback is not held to `most_per_address`: behind a proxy on this machine everybody comes from there.
    pub(crate) fn new(most: usize, most_per_address: usize) -> Arc<Self> {
        Arc::new(Self { most, most_per_address, counts: Mutex::default() })
    }

    /// Counts a connection, or says that there are too many.
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

    /// How many there are.
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
    fn both_bounds_hold_and_room_comes_back() {
        let connection_limiter = ConnectionLimiter::new(3, 2);
        let enter = |address: &str| connection_limiter.enter(address.parse().unwrap());
        let one = enter("203.0.113.7").unwrap();
        let _two = enter("203.0.113.7").unwrap();
        assert!(enter("203.0.113.7").is_none(), "third of one address");
        let _three = enter("203.0.113.8").unwrap();
        assert!(enter("203.0.113.9").is_none(), "fourth of all");
        drop(one);
        assert_eq!(connection_limiter.connections(), 2);
        assert!(enter("203.0.113.7").is_some());
    }

    #[test]
    fn loopback_has_no_bound_of_its_own() {
        let connection_limiter = ConnectionLimiter::new(10, 1);
        let kept = (0..5).map(|_| connection_limiter.enter("127.0.0.1".parse().unwrap())).collect::<Vec<_>>();
        assert!(kept.iter().all(Option::is_some));
    }
}
