//! The gateway's sources of time and randomness, passed in so that tests can replace them: [`Clock`] and [`CoreRng`].

use std::{
    cell::Cell,
    fmt,
    sync::atomic::{AtomicU64, Ordering},
    time::{Duration, SystemTime},
};

use tokio::time::Instant;
use tollgate_core::{RequestId, Timestamp};

/// A source of wall-clock and monotonic time.
pub trait Clock: Send + Sync + fmt::Debug {
    /// Wall-clock time, for records. It may jump in either direction.
    fn now(&self) -> Timestamp;

    /// Monotonic time, for timeouts and durations.
    fn instant(&self) -> Instant;

    /// Monotonic time that is read again even within [`with_one_time`]: for beginnings and ends of durations that contain the
    /// gateway's own work.
    fn fresh_instant(&self) -> Instant {
        self.instant()
    }
}

/// The clocks of the operating system. Within [`with_one_time`] each is read once.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

/// How this thread reads a clock of the operating system.
#[derive(Clone, Copy)]
enum Reading<T> {
    /// Every reading asks the system.
    Fresh,
    /// The next reading asks the system and is kept.
    Next,
    Kept(T),
}

thread_local! {
    static WALL: Cell<Reading<Timestamp>> = const { Cell::new(Reading::Fresh) };
    static MONOTONIC: Cell<Reading<Instant>> = const { Cell::new(Reading::Fresh) };
}

fn reading<T: Copy>(kept: &Cell<Reading<T>>, read: impl FnOnce() -> T) -> T {
    match kept.get() {
        Reading::Fresh => read(),
        Reading::Next => {
            let time = read();
            kept.set(Reading::Kept(time));
            time
        }
        Reading::Kept(time) => time,
    }
}

/// Runs a poll of a task during which [`SystemClock`] reads each clock at most once. A poll does not wait, so all of its work can use
/// one time. Without this, a request reads the clock some twenty times in four polls. Do not nest.
pub(crate) fn with_one_time<T>(poll: impl FnOnce() -> T) -> T {
    /// Ends on a panic, too.
    struct End;
    impl Drop for End {
        fn drop(&mut self) {
            WALL.set(Reading::Fresh);
            MONOTONIC.set(Reading::Fresh);
        }
    }
    let _end = End;
    WALL.set(Reading::Next);
    MONOTONIC.set(Reading::Next);
    poll()
}

/// Offset by which tests have moved the wall clock, in microseconds.
#[cfg(debug_assertions)]
static SHIFT_US: std::sync::atomic::AtomicI64 = std::sync::atomic::AtomicI64::new(0);

#[cfg(debug_assertions)]
impl SystemClock {
    /// Moves the wall clock of this process, for tests of wrong clocks.
    pub fn shift(micros: i64) {
        SHIFT_US.store(micros, Ordering::Relaxed);
    }
}

impl Clock for SystemClock {
    #[expect(clippy::disallowed_methods, reason = "the one implementation of Clock that reads the system time")]
    fn now(&self) -> Timestamp {
        WALL.with(|kept| {
            reading(kept, || {
                let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or(Duration::ZERO);
                let micros = i64::try_from(since.as_micros()).unwrap_or(i64::MAX);
                #[cfg(debug_assertions)]
                let micros = micros.saturating_add(SHIFT_US.load(Ordering::Relaxed));
                Timestamp(micros)
            })
        })
    }

    fn instant(&self) -> Instant {
        MONOTONIC.with(|kept| reading(kept, Instant::now))
    }

    fn fresh_instant(&self) -> Instant {
        MONOTONIC.with(|kept| {
            if let Reading::Kept(_) = kept.get() {
                kept.set(Reading::Next);
            }
            reading(kept, Instant::now)
        })
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
    fn clocks_stand_still_within_one_poll_and_go_on_after_it() {
        let clock = SystemClock;
        let later = |since: Instant| {
            std::thread::sleep(Duration::from_millis(2));
            clock.instant() > since
        };
        let (instant, wall) = with_one_time(|| {
            let (instant, wall) = (clock.instant(), clock.now());
            assert!(!later(instant) && clock.fresh_instant() > instant);
            assert!(clock.instant() > instant, "what was read again is kept");
            assert_eq!(clock.now(), wall);
            (instant, wall)
        });
        assert!(clock.instant() > instant && clock.now() > wall);
        assert!(later(clock.instant()), "outside of a poll each reading is a new one");
        let panicked = std::panic::catch_unwind(|| with_one_time(|| panic!("in a poll"))).is_err();
        assert!(panicked && later(clock.instant()));
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
