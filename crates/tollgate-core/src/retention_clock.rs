//! What time it has come to be for the usage log: what retention believes instead of a wall clock.
//!
//! Records say what the clock said, so a clock that was wrong once cannot be told by them. The log's time is kept apart: it
//! passes as fast as a process runs, never faster than the truth. A wall clock that is ahead of it (a gateway was off, or the
//! clock is wrong) is followed at [`CATCH_UP`] once it has been steady for [`STEADY`] of one process's running: starts that
//! are shorter, however many, never move it past the truth. A clock behind it is followed back in the same way.

use std::time::Duration;

use crate::Timestamp;

/// How long a wall clock must have passed as evenly as the machine's own, in one process, before it is followed faster.
const STEADY: Duration = Duration::from_hours(1);
/// A difference between wall clock and passing time that is a jump: more than a clock that is kept right is ever moved.
const JUMP_US: u64 = 60_000_000;
/// How much faster than time passes a steady wall clock is followed: a day each hour.
const CATCH_UP: u32 = 24;

/// The log's time as one process follows it; kept in the store between processes, and beside others.
#[derive(Clone, Debug)]
pub struct RetentionClock {
    time: Timestamp,
    /// As the store had it when it was last looked at, or was told.
    stored: Timestamp,
    /// When that was, by the time that passed in this process.
    looked: Duration,
    steady_since: Duration,
    /// Wall clock less passing time.
    ahead_us: i64,
}

impl RetentionClock {
    /// Begins with what the store has; `now` is the wall clock, `passed` what passed in this process, whatever clocks say.
    #[must_use]
    pub fn new(stored: Timestamp, now: Timestamp, passed: Duration) -> Self {
        Self { time: stored, stored, looked: passed, steady_since: passed, ahead_us: ahead(now, passed) }
    }

    /// Looks again: the log's time as it is to be stored where the store still has `stored`.
    pub fn advance(&mut self, stored: Timestamp, now: Timestamp, passed: Duration) -> Timestamp {
        let ran = passed.saturating_sub(self.looked);
        let ahead = ahead(now, passed);
        if ahead.abs_diff(self.ahead_us) > JUMP_US {
            self.steady_since = passed;
        }
        let fast = ran.min(passed.saturating_sub(self.steady_since).saturating_sub(STEADY));
        let mine = followed(self.time, now, ran, fast);
        self.time = match stored.cmp(&self.stored) {
            // Another process found that it was too late a time.
            std::cmp::Ordering::Less => stored,
            std::cmp::Ordering::Equal => mine,
            std::cmp::Ordering::Greater => mine.max(stored),
        };
        (self.stored, self.looked, self.ahead_us) = (stored, passed, ahead);
        self.time
    }

    /// The store took what [`Self::advance`] said.
    pub const fn mark_stored(&mut self) {
        self.stored = self.time;
    }

    /// What retention believes while the wall clock says `now`: the earlier of both.
    #[must_use]
    pub fn effective_now(&self, now: Timestamp) -> Timestamp {
        now.min(self.time)
    }
}

/// Where a time has come to after `ran`, of which the wall clock is believed for `fast`.
fn followed(time: Timestamp, now: Timestamp, ran: Duration, fast: Duration) -> Timestamp {
    let caught_up = fast.saturating_mul(CATCH_UP);
    if time > now {
        return now.max(Timestamp(time.0.saturating_sub(micros(caught_up))));
    }
    let most = ran.saturating_sub(fast).saturating_add(caught_up);
    now.min(Timestamp(time.0.saturating_add(micros(most))))
}

fn ahead(now: Timestamp, passed: Duration) -> i64 {
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

    /// Runs one process for so many minutes, looking each ten, on a clock that is `off` by so many milliseconds.
    fn run(stored: &mut Timestamp, begun: Timestamp, minutes: u32, off_ms: i64) {
        let wall = |minute: u32| begun.plus_ms(i64::from(minute) * 60_000 + off_ms);
        let mut time = RetentionClock::new(*stored, wall(0), Duration::ZERO);
        for minute in (10..=minutes).step_by(10) {
            *stored = time.advance(*stored, wall(minute), MINUTE * minute);
            time.mark_stored();
        }
    }

    #[test]
    fn a_clock_that_is_right_is_followed_as_it_passes() {
        let mut stored = day(100);
        run(&mut stored, day(100), 6_000, 0);
        assert_eq!(stored, day(100).plus_ms(6_000 * 60_000));
    }

    #[test]
    fn after_a_long_stop_it_catches_up_at_a_day_an_hour_from_the_second_hour_on() {
        let (mut first, mut second, mut all) = (day(100), day(100), day(100));
        run(&mut first, day(140), 60, 0);
        assert_eq!(first, day(100).plus_ms(3_600_000));
        run(&mut second, day(140), 120, 0);
        assert_eq!(second, day(101).plus_ms(3_600_000));
        run(&mut all, day(140), 43 * 60, 0);
        assert_eq!(all, day(140).plus_ms(43 * 3_600_000));
    }

    #[test]
    fn a_clock_that_jumps_is_steady_only_an_hour_later() {
        let mut time = RetentionClock::new(day(100), day(100), Duration::ZERO);
        let mut stored = day(100);
        for minute in (10..=300).step_by(10) {
            let off = if minute > 180 { 40 * DAY_MS } else { 0 };
            stored = time.advance(stored, day(100).plus_ms(i64::from(minute) * 60_000 + off), MINUTE * minute);
            time.mark_stored();
            let most = if minute <= 250 { i64::from(minute) * 60_000 } else { DAY_MS + 18_000_000 };
            assert!(stored <= day(100).plus_ms(most), "{minute}: {stored}");
        }
        assert!(stored > day(100).plus_ms(DAY_MS / 2));
    }

    #[test]
    fn a_time_that_is_too_late_is_taken_back_and_never_believed() {
        let mut stored = day(140);
        assert_eq!(RetentionClock::new(stored, day(100), Duration::ZERO).effective_now(day(100)), day(100));
        run(&mut stored, day(100), 60, 0);
        assert_eq!(stored, day(140));
        run(&mut stored, day(100), 180, 0);
        assert_eq!(stored, day(138));
    }

    #[test]
    fn processes_on_one_store_pass_no_faster_together_and_take_back_together() {
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
        /// Whatever clocks say at however many starts of less than an hour: what is believed is never later than the truth.
        #[test]
        fn short_starts_with_wrong_clocks_never_get_past_the_truth(
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
