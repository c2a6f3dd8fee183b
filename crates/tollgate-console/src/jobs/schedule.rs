//! Backups that the gateway makes by itself: when the next one is due, and whether the last one failed.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tollgate_core::Timestamp;
use tollgate_store::FailedBackup;

const HOUR_MS: i64 = 3_600_000;
/// Pause after a backup that failed.
const RETRY_MS: i64 = 10 * 60_000;

/// What is known of scheduled backups. Cheap to clone.
#[derive(Clone, Debug)]
pub struct ScheduledBackups {
    /// Whether the database is one that backups hold.
    is_supported: bool,
    outcome: Arc<Mutex<ScheduleOutcome>>,
}

#[derive(Debug, Default)]
enum ScheduleOutcome {
    /// Nothing has been tried since the start.
    #[default]
    Unknown,
    /// The last backup succeeded, or there is no schedule.
    Well,
    Failing(FailedBackup),
}

impl ScheduledBackups {
    /// `is_supported`: whether the database is SQLite.
    pub fn new(is_supported: bool) -> Self {
        Self { is_supported, outcome: Arc::default() }
    }

    pub const fn is_supported(&self) -> bool {
        self.is_supported
    }

    fn outcome(&self) -> MutexGuard<'_, ScheduleOutcome> {
        self.outcome.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that the last backup succeeded, or that there is no schedule.
    pub fn set_well(&self) {
        *self.outcome() = ScheduleOutcome::Well;
    }

    /// Notes a failure, and returns it with the first one since a backup was made. `noted`: since when they failed before the start.
    pub fn set_failed(&self, message: String, noted: Option<Timestamp>, now: Timestamp) -> FailedBackup {
        let mut outcome = self.outcome();
        let since = match &*outcome {
            // The time of a note may be ahead of a clock that was set back.
            ScheduleOutcome::Unknown => noted.filter(|noted| *noted <= now).unwrap_or(now),
            ScheduleOutcome::Well => now,
            ScheduleOutcome::Failing(before) => before.since,
        };
        let failure = FailedBackup { since, at: now, message };
        *outcome = ScheduleOutcome::Failing(failure.clone());
        failure
    }

    pub fn failure(&self) -> Option<FailedBackup> {
        if let ScheduleOutcome::Failing(failure) = &*self.outcome() { Some(failure.clone()) } else { None }
    }

    /// Whether nothing has been tried since the start.
    pub fn is_unknown(&self) -> bool {
        matches!(*self.outcome(), ScheduleOutcome::Unknown)
    }

    /// When the next backup is due, if any is: so many hours after `last`, the time of the newest one, and at once without one.
    pub fn next(&self, last: Option<Timestamp>, interval_hours: u64, now: Timestamp) -> Option<Timestamp> {
        let hours = i64::try_from(interval_hours).ok().filter(|hours| *hours > 0 && self.is_supported)?;
        if let Some(failure) = self.failure() {
            return Some(failure.at.plus_ms(RETRY_MS));
        }
        // The time of a backup may be ahead of a clock that was set back.
        Some(last.filter(|last| *last <= now).map_or(now, |last| last.plus_ms(hours.saturating_mul(HOUR_MS))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp(1_795_000_000_000_000);

    #[test]
    fn next_backup_is_due_an_interval_after_the_newest_and_ten_minutes_after_a_failure() {
        let scheduled = ScheduledBackups::new(true);
        assert!(scheduled.is_unknown());
        assert_eq!(scheduled.next(None, 24, NOW), Some(NOW), "the first one at once");
        let last = NOW.plus_ms(-HOUR_MS);
        assert_eq!(scheduled.next(Some(last), 24, NOW), Some(last.plus_ms(24 * HOUR_MS)));
        assert_eq!(scheduled.next(Some(NOW.plus_ms(HOUR_MS)), 24, NOW), Some(NOW), "the clock was set back");
        assert_eq!(scheduled.next(Some(last), 0, NOW), None);
        assert_eq!(ScheduledBackups::new(false).next(None, 24, NOW), None, "not on PostgreSQL");
        scheduled.set_failed("no space".to_owned(), None, NOW);
        scheduled.set_failed("still none".to_owned(), None, NOW.plus_ms(5));
        let failure = FailedBackup { since: NOW, at: NOW.plus_ms(5), message: "still none".to_owned() };
        assert_eq!(scheduled.failure(), Some(failure));
        assert_eq!(scheduled.next(Some(last), 24, NOW), Some(NOW.plus_ms(5 + RETRY_MS)));
        scheduled.set_well();
        assert!(scheduled.failure().is_none() && !scheduled.is_unknown());
    }

    #[test]
    fn failures_in_a_row_are_one_across_a_restart() {
        let (before, later) = (NOW.plus_ms(-HOUR_MS), NOW.plus_ms(HOUR_MS));
        let since = |scheduled: &ScheduledBackups, noted| scheduled.set_failed("no space".to_owned(), noted, NOW).since;
        let scheduled = ScheduledBackups::new(true);
        assert_eq!(since(&scheduled, Some(before)), before);
        assert_eq!(since(&scheduled, None), before, "the one that began before the start");
        scheduled.set_well();
        assert_eq!(since(&scheduled, Some(before)), NOW, "a backup was made since");
        assert_eq!(since(&ScheduledBackups::new(true), None), NOW);
        assert_eq!(since(&ScheduledBackups::new(true), Some(later)), NOW, "the clock was set back");
    }
}
