//! Refused requests of a key and a member: the first of a kind in a minute leave a record each, the others are counted in one
//! record, so that a caller that is refused cannot fill the database.

use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::time::Instant;

use super::bounds::Bound;

const MINUTE: Duration = Duration::from_mins(1);

/// The refusals of one key, or of one member with all its keys.
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

/// Counts a refused request of a key and its member. When the key has no further record of its own, one more record counts its
/// refusals; when the member has none, one more record counts those of all its keys.
pub(super) fn count([key, member]: [&RefusalWindows; 2], error: &'static str, now: Instant) -> RefusalRecord {
    let [of_key, of_member] = Bound::RecordedRefusals.share().of_callers();
    let [mut key, mut member] = [key, member].map(|windows| windows.0.lock().unwrap_or_else(PoisonError::into_inner));
    let (key, member) = (window(&mut key, error, now), window(&mut member, error, now));
    if key.has_counted() {
        return RefusalRecord::Counted;
    }
    if member.recorded >= of_member.each_minute(u32::MAX) {
        return member.share_record();
    }
    member.recorded += 1;
    if key.recorded < of_key.each_minute(u32::MAX) {
        key.recorded += 1;
        return RefusalRecord::Own;
    }
    key.share_record()
}

/// The window of a kind of refusal at this time.
fn window<'a>(windows: &'a mut Vec<RefusalWindow>, error: &'static str, now: Instant) -> &'a mut RefusalWindow {
    windows.retain(|window| window.ends > now);
    let at = windows.iter().position(|window| window.error == error).unwrap_or_else(|| {
        windows.push(RefusalWindow { error, ends: now + MINUTE, recorded: 0, counted: None });
        windows.len() - 1
    });
    &mut windows[at]
}

impl RefusalWindow {
    /// Adds one to the shared record, if there is one.
    fn has_counted(&self) -> bool {
        let Some(counted) = &self.counted else { return false };
        counted.0.fetch_add(1, Ordering::AcqRel);
        true
    }

    /// Counts one in the shared record, which is created for the first.
    fn share_record(&mut self) -> RefusalRecord {
        if self.has_counted() {
            return RefusalRecord::Counted;
        }
        let counted = Arc::new(RepeatedRefusals(AtomicU64::new(1)));
        self.counted = Some(Arc::clone(&counted));
        RefusalRecord::Shared(counted, self.ends)
    }
}
