//! Counts something by address and minute: wrong keys, or requests without a key.

use std::{
    fmt,
    net::IpAddr,
    sync::{
        Mutex,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use moka::sync::Cache;
use tokio::time::Instant;

use crate::{
    address_block::AddressBlock,
    state::shares::{Bound, HolderKind},
};

/// Maximum addresses remembered; the least used are evicted.
const ADDRESSES: u64 = 100_000;
const MINUTE_SECS: u64 = 60;

/// A limit per minute for each address.
pub struct AddressRate {
    bound: Bound,
    limit: AtomicU32,
    started: Instant,
    counts: Cache<AddressBlock, std::sync::Arc<Mutex<Count>>>,
}

#[derive(Default)]
struct Count {
    minute: u64,
    counted: u32,
}

impl fmt::Debug for AddressRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AddressRate").field("limit", &self.limit).finish_non_exhaustive()
    }
}

impl AddressRate {
    /// Requests for the feeds of the model square.
    #[must_use]
    pub fn for_square(limit: u32, now: Instant) -> Self {
        Self::new(Bound::SquareRequests, limit, now)
    }

    pub(crate) fn new(bound: Bound, limit: u32, now: Instant) -> Self {
        let counts = Cache::builder().max_capacity(ADDRESSES).time_to_idle(Duration::from_secs(2 * MINUTE_SECS)).build();
        let rate = Self { bound, limit: AtomicU32::default(), started: now, counts };
        rate.set_limit(limit);
        rate
    }

    /// Replaces the limit, for the present minute as well.
    pub(crate) fn set_limit(&self, per_minute: u32) {
        self.limit.store(self.bound.share().of(HolderKind::Address).each_minute(per_minute), Ordering::Relaxed);
    }

    /// Counts one event of an address; `None`: a trusted proxy names no address.
    ///
    /// # Errors
    /// The seconds until the next minute, when the address exceeded the limit in this one.
    pub fn count(&self, address: Option<IpAddr>, now: Instant) -> Result<(), u32> {
        let elapsed = now.saturating_duration_since(self.started).as_secs();
        let minute = elapsed / MINUTE_SECS;
        let count = self.counts.get_with(AddressBlock::of_caller(address), std::sync::Arc::default);
        let mut count = count.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if count.minute != minute {
            *count = Count { minute, counted: 0 };
        }
        count.counted = count.counted.saturating_add(1);
        if count.counted <= self.limit.load(Ordering::Relaxed) {
            return Ok(());
        }
        Err(u32::try_from(MINUTE_SECS - elapsed % MINUTE_SECS).unwrap_or(60))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn limit_is_per_address_and_minute() {
        let start = Instant::now();
        let wrong = AddressRate::new(Bound::WrongKeys, 2, start);
        let one: IpAddr = "203.0.113.7".parse().unwrap();
        let other: IpAddr = "203.0.113.8".parse().unwrap();
        let at = |secs| start + Duration::from_secs(secs);
        assert_eq!(wrong.count(Some(one), at(5)), Ok(()));
        assert_eq!(wrong.count(Some(one), at(6)), Ok(()));
        assert_eq!(wrong.count(Some(one), at(7)), Err(53));
        assert_eq!(wrong.count(Some(other), at(8)), Ok(()));
        assert_eq!(wrong.count(Some(one), at(60)), Ok(()));
    }

    #[tokio::test(start_paused = true)]
    async fn changed_limit_applies_to_the_present_minute() {
        let start = Instant::now();
        let wrong = AddressRate::new(Bound::WrongKeys, 1, start);
        let one: Option<IpAddr> = "203.0.113.7".parse().ok();
        assert_eq!(wrong.count(one, start), Ok(()));
        assert_eq!(wrong.count(one, start), Err(60));
        wrong.set_limit(3);
        assert_eq!(wrong.count(one, start), Ok(()));
        assert_eq!(wrong.count(one, start), Err(60));
    }

    #[tokio::test(start_paused = true)]
    async fn ipv6_network_counts_as_one_address() {
        let start = Instant::now();
        let wrong = AddressRate::new(Bound::WrongKeys, 1, start);
        assert_eq!(wrong.count("2001:db8:1:2::1".parse().ok(), start), Ok(()));
        assert_eq!(wrong.count("2001:db8:1:2:ffff::9".parse().ok(), start), Err(60));
        assert_eq!(wrong.count("2001:db8:1:3::1".parse().ok(), start), Ok(()));
    }
}
