//! Refused requests of a key: the first of a kind in a minute leave a record each, the others are counted in one record, so that a
//! caller that is refused cannot fill the database.

use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::time::Instant;

/// Refusals of one key and kind in a minute that leave a record each.
pub(crate) const RECORDED_REFUSALS: u32 = 10;
const MINUTE: Duration = Duration::from_mins(1);

/// The refusals of one key.
#[derive(Debug, Default)]
pub(super) struct RefusalWindows(Mutex<Vec<RefusalWindow>>);

/// Refusals of one kind. There are as many kinds as error ids.
#[derive(Debug)]
struct RefusalWindow {
    error: &'static str,
    ends: Instant,
    recorded: u32,
    counted: Option<Arc<RepeatedRefusals>>,
}

/// The refusals of one minute that have one record together.
#[derive(Debug, Default)]
pub(crate) struct RepeatedRefusals(AtomicU64);

impl RepeatedRefusals {
    /// How many there were.
    pub(crate) fn count(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }
}

/// How a refusal is recorded.
#[derive(Debug)]
pub(crate) enum RefusalRecord {
    /// By a record of its own.
    Own,
    /// It is the first of those that have one record together, which is written at this time.
    Shared(Arc<RepeatedRefusals>, Instant),
    /// It was counted.
    Counted,
}

impl RefusalWindows {
    pub(super) fn count(&self, error: &'static str, now: Instant) -> RefusalRecord {
        let mut windows = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        windows.retain(|window| window.ends > now);
        let Some(window) = windows.iter_mut().find(|window| window.error == error) else {
            windows.push(RefusalWindow { error, ends: now + MINUTE, recorded: 1, counted: None });
            return RefusalRecord::Own;
        };
        if window.recorded < RECORDED_REFUSALS {
            window.recorded += 1;
            return RefusalRecord::Own;
        }
        if let Some(counted) = &window.counted {
            counted.0.fetch_add(1, Ordering::AcqRel);
            return RefusalRecord::Counted;
        }
        let counted = Arc::new(RepeatedRefusals(AtomicU64::new(1)));
        window.counted = Some(Arc::clone(&counted));
        RefusalRecord::Shared(counted, window.ends)
    }
}
