//! The clock of retention: a time that never advances faster than real time, even when the wall clock is wrong.
//!
//! Usage records carry wall-clock times, so they cannot reveal a wrong clock. Retention keeps its own time in the store. It
//! advances with the running time of a process. A wall clock ahead of it (the gateway was stopped, or the clock is wrong) is
//! followed at [`CATCH_UP_FACTOR`] after it has been steady for [`STEADY_PERIOD`] within one process, so any number of shorter
//! runs never moves it past the true time. A wall clock behind it is followed backwards in the same way.

use std::time::Duration;

use crate::Timestamp;

/// How long the wall clock must agree with the monotonic clock, within one process, before it is followed faster.
const STEADY_PERIOD: Duration = Duration::from_hours(1);
/// Deviation that counts as a jump; larger than any correction of a synchronised clock.
const JUMP_US: u64 = 60_000_000;
/// Speed-up while catching up with a steady wall clock: a day per hour.
const CATCH_UP_FACTOR: u32 = 24;

/// The retention time as one process advances it. It is stored between runs and shared with other processes.
#[derive(Clone, Debug)]
pub struct RetentionClock {
    time: Timestamp,
    /// Value in the store when last read or written.
    stored: Timestamp,
    /// Process time of the last advance.
    advanced_at: Duration,
    steady_since: Duration,
    /// Wall clock minus process time, in microseconds.
    offset_us: i64,
}

impl RetentionClock {
    /// Starts from the stored value; `now` is the wall clock, `passed` the running time of the process by its monotonic clock.
    pub fn new(stored: Timestamp, now: Timestamp, passed: Duration) -> Self {
        Self { time: stored, stored, advanced_at: passed, steady_since: passed, offset_us: offset_us(now, passed) }
    }

    /// Advances the time and returns the value to store, provided the store still has `stored`.
    pub fn advance(&mut self, stored: Timestamp, now: Timestamp, passed: Duration) -> Timestamp {
        let ran = passed.saturating_sub(self.advanced_at);
        let offset_us = offset_us(now, passed);
        if offset_us.abs_diff(self.offset_us) > JUMP_US {
            self.steady_since = passed;
        }
        let fast = ran.min(passed.saturating_sub(self.steady_since).saturating_sub(STEADY_PERIOD));
        let followed = follow(self.time, now, ran, fast);
        self.time = match stored.cmp(&self.stored) {
            // Another process moved the stored time back.
            std::cmp::Ordering::Less => stored,
            std::cmp::Ordering::Equal => followed,
            std::cmp::Ordering::Greater => followed.max(stored),
        };
        (self.stored, self.advanced_at, self.offset_us) = (stored, passed, offset_us);
        self.time
    }

    /// Records that the store accepted the result of [`Self::advance`].
    pub const fn mark_stored(&mut self) {
        self.stored = self.time;
    }

    /// The time retention uses while the wall clock shows `now`: the earlier of both.
    pub fn effective_now(&self, now: Timestamp) -> Timestamp {
        now.min(self.time)
    }
}

/// Time after `ran`, of which `fast` is spent catching up with the wall clock.
fn follow(time: Timestamp, now: Timestamp, ran: Duration, fast: Duration) -> Timestamp {
    let caught_up = fast.saturating_mul(CATCH_UP_FACTOR);
    if time > now {
        return now.max(Timestamp(time.0.saturating_sub(micros(caught_up))));
    }
    let max_advance = ran.saturating_sub(fast).saturating_add(caught_up);
    now.min(Timestamp(time.0.saturating_add(micros(max_advance))))
}

fn offset_us(now: Timestamp, passed: Duration) -> i64 {
    now.0.saturating_sub(micros(passed))
}

fn micros(duration: Duration) -> i64 {
    i64::try_from(duration.as_micros()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const DAY_MS: i64 = 86_400_000;
    const MINUTE: Duration = Duration::from_mins(1);

    fn day(day: i64) -> Timestamp {
        Timestamp::of_day(day)
    }

    /// Runs one process for `minutes`, advancing every ten, with a wall clock off by `off_ms` milliseconds.
    fn run(stored: &mut Timestamp, begun: Timestamp, minutes: u32, off_ms: i64) {
        let wall = |minute: u32| begun.plus_ms(i64::from(minute) * 60_000 + off_ms);
        let mut time = RetentionClock::new(*stored, wall(0), Duration::ZERO);
        for minute in (10..=minutes).step_by(10) {
            *stored = time.advance(*stored, wall(minute), MINUTE * minute);
            time.mark_stored();
        }
    }

    #[test]
    fn correct_clock_is_followed() {
        let mut stored = day(100);
        run(&mut stored, day(100), 6_000, 0);
        assert_eq!(stored, day(100).plus_ms(6_000 * 60_000));
    }

    #[test]
    fn after_a_long_stop_it_catches_up_a_day_per_hour_from_the_second_hour() {
        let (mut first, mut second, mut all) = (day(100), day(100), day(100));
        run(&mut first, day(140), 60, 0);
        assert_eq!(first, day(100).plus_ms(3_600_000));
        run(&mut second, day(140), 120, 0);
        assert_eq!(second, day(101).plus_ms(3_600_000));
        run(&mut all, day(140), 43 * 60, 0);
        assert_eq!(all, day(140).plus_ms(43 * 3_600_000));
    }

    #[test]
    fn clock_jump_restarts_the_steady_period() {
        let mut time = RetentionClock::new(day(100), day(100), Duration::ZERO);
        let mut stored = day(100);
        for minute in (10..=300).step_by(10) {
            let off = if minute > 180 { 40 * DAY_MS } else { 0 };
            stored = time.advance(stored, day(100).plus_ms(i64::from(minute) * 60_000 + off), MINUTE * minute);
            time.mark_stored();
            let max = if minute <= 250 { i64::from(minute) * 60_000 } else { DAY_MS + 18_000_000 };
            assert!(stored <= day(100).plus_ms(max), "{minute}: {stored}");
        }
        assert!(stored > day(100).plus_ms(DAY_MS / 2));
    }

    #[test]
    fn time_in_the_future_is_moved_back_and_never_effective() {
        let mut stored = day(140);
        assert_eq!(RetentionClock::new(stored, day(100), Duration::ZERO).effective_now(day(100)), day(100));
        run(&mut stored, day(100), 60, 0);
        assert_eq!(stored, day(140));
        run(&mut stored, day(100), 180, 0);
        assert_eq!(stored, day(138));
    }

    #[test]
    fn processes_sharing_a_store_advance_no_faster_and_move_back_together() {
        let mut stored = day(100);
        let mut each: Vec<_> = (0..10).map(|_| RetentionClock::new(stored, day(140), Duration::ZERO)).collect();
        for minute in 1..=60 {
            for time in &mut each {
                stored = time.advance(stored, day(140).plus_ms(i64::from(minute) * 60_000), MINUTE * minute);
                time.mark_stored();
            }
        }
        assert_eq!(stored, day(100).plus_ms(3_600_000));
        assert_eq!(each[1].advance(day(90), day(140), MINUTE * 61), day(90));
    }

    proptest! {
        /// However wrong the clock in any number of runs shorter than an hour, the effective time never passes the true time.
        #[test]
        fn short_runs_with_wrong_clocks_never_pass_the_true_time(
            starts in prop::collection::vec((0_i64..2 * DAY_MS, 1_u32..60, -4_000 * DAY_MS..4_000 * DAY_MS, 0_i64..600_000), 1..200),
            behind in 0_i64..40 * DAY_MS,
        ) {
            let mut truth = day(20_000);
            let mut stored = truth.plus_ms(-behind);
            for (off_for, minutes, wrong, jump) in starts {
                truth = truth.plus_ms(off_for);
                let mut time = RetentionClock::new(stored, truth.plus_ms(wrong), Duration::ZERO);
                for minute in 1..=minutes {
                    truth = truth.plus_ms(60_000);
                    let wall = truth.plus_ms(wrong + i64::from(minute) * jump);
                    stored = time.advance(stored, wall, MINUTE * minute);
                    time.mark_stored();
                    prop_assert!(stored <= truth && time.effective_now(wall) <= truth);
                }
            }
        }
    }
}
