//! The gateway's sources of time and randomness, passed in so that tests can replace them: [`Clock`] and [`CoreRng`].

use std::{
    fmt,
    sync::atomic::{AtomicU64, Ordering},
    time::{Duration, SystemTime},
};

use tollgate_core::{RequestId, Timestamp};

/// A source of wall-clock and monotonic time.
pub trait Clock: Send + Sync + fmt::Debug {
    /// Wall-clock time, for records. It may jump in either direction.
    fn now(&self) -> Timestamp;

    /// Monotonic time, for timeouts and durations.
    fn instant(&self) -> tokio::time::Instant;
}

/// The clocks of the operating system.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    #[expect(clippy::disallowed_methods, reason = "the one implementation of Clock that reads the system time")]
    fn now(&self) -> Timestamp {
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or(Duration::ZERO);
        Timestamp(i64::try_from(since.as_micros()).unwrap_or(i64::MAX))
    }

    fn instant(&self) -> tokio::time::Instant {
        tokio::time::Instant::now()
    }
}

/// Random numbers for load balancing and for ids: splitmix64, seeded once from the operating system. Not
/// cryptographically secure; never used for secrets.
#[derive(Debug)]
pub struct CoreRng {
    state: AtomicU64,
}

impl CoreRng {
    #[must_use]
    pub const fn seeded(seed: u64) -> Self {
        Self { state: AtomicU64::new(seed) }
    }

    pub fn from_os() -> Result<Self, getrandom::Error> {
        Ok(Self::seeded(getrandom::u64()?))
    }

    pub fn next_u64(&self) -> u64 {
        const STEP: u64 = 0x9e37_79b9_7f4a_7c15;
        let mut mixed = self.state.fetch_add(STEP, Ordering::Relaxed).wrapping_add(STEP);
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// 32 random bits, as the selection functions of `tollgate-core` take them.
    pub fn next_u32(&self) -> u32 {
        (self.next_u64() >> 32) as u32
    }

    /// An id for a request that arrived at `now`.
    pub fn request_id(&self, now: Timestamp) -> RequestId {
        let mut random = [0; 10];
        random[..8].copy_from_slice(&self.next_u64().to_le_bytes());
        random[8..].copy_from_slice(&self.next_u64().to_le_bytes()[..2]);
        RequestId::from_parts(now, random)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn system_clock_is_past_2020() {
        assert!(SystemClock.now().seconds() > 1_577_836_800);
    }

    #[test]
    fn random_numbers_spread_and_ids_differ() {
        let rng = CoreRng::seeded(1);
        let low = (0..1_000).filter(|_| rng.next_u32() < u32::MAX / 2).count();
        assert!((400..600).contains(&low), "{low} of 1000 in the lower half");
        assert_ne!(rng.request_id(Timestamp(0)), rng.request_id(Timestamp(0)));
        assert_eq!(CoreRng::seeded(7).next_u64(), CoreRng::seeded(7).next_u64());
    }
}
