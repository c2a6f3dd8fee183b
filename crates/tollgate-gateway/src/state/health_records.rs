//! The health of accounts over time: the queue of changes from requests to the recorder, and the recorded history.
//!
//! Bound: 1,024 changes in the queue. When it is full, changes are left out, and the recorder compares all accounts instead.

use std::sync::{
    Arc, Mutex, MutexGuard, OnceLock, PoisonError,
    atomic::{AtomicBool, Ordering},
};

use tokio::sync::mpsc;
use tollgate_core::{AccountId, AccountStanding, ChannelId, HealthHistory, HealthState, Timestamp, TransitionCause};

pub(crate) const QUEUE_CAPACITY: usize = 1_024;

/// A change of the state that an account has for all callers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HealthChange {
    pub(crate) account: AccountId,
    pub(crate) state: HealthState,
    pub(crate) cause: TransitionCause,
    pub(crate) at: Timestamp,
}

/// The sending end of the queue. Changes are dropped until a recorder follows them.
#[derive(Debug, Default)]
pub(crate) struct HealthChanges {
    follower: OnceLock<mpsc::Sender<HealthChange>>,
    missed: Arc<AtomicBool>,
}

/// The receiving end of the queue.
#[derive(Debug)]
pub(crate) struct ChangeReceiver {
    pub(crate) changes: mpsc::Receiver<HealthChange>,
    missed: Arc<AtomicBool>,
}

impl HealthChanges {
    /// Queues a change; never waits.
    pub(crate) fn send(&self, change: HealthChange) {
        if let Some(follower) = self.follower.get()
            && follower.try_send(change).is_err()
        {
            self.missed.store(true, Ordering::Release);
        }
    }

    /// Begins to queue changes. Only the first follower receives them.
    pub(crate) fn follow(&self) -> ChangeReceiver {
        let (sender, changes) = mpsc::channel(QUEUE_CAPACITY);
        let _ = self.follower.set(sender);
        ChangeReceiver { changes, missed: Arc::clone(&self.missed) }
    }
}

impl ChangeReceiver {
    /// Whether changes were left out since the last call.
    pub(crate) fn take_missed(&self) -> bool {
        self.missed.swap(false, Ordering::AcqRel)
    }
}

/// The recorded history of this node.
#[derive(Debug, Default)]
pub struct HealthRecords(Mutex<HealthHistory>);

impl HealthRecords {
    pub(crate) fn lock(&self) -> MutexGuard<'_, HealthHistory> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether requests may use an account, as of `now`, and since when.
    #[must_use]
    pub fn standing(&self, channel: ChannelId, account: AccountId, now: Timestamp) -> AccountStanding {
        self.lock().standing(channel, account, now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn full_queue_drops_changes_and_reports_it() {
        let changes = HealthChanges::default();
        let change = HealthChange {
            account: AccountId::from_parts(Timestamp(1), [1; 10]),
            state: HealthState::Usable,
            cause: TransitionCause::Request,
            at: Timestamp(1),
        };
        changes.send(change);
        let mut receiver = changes.follow();
        assert!(receiver.changes.try_recv().is_err() && !receiver.take_missed(), "changes before it are not received");
        (0..QUEUE_CAPACITY).for_each(|_| changes.send(change));
        assert!(!receiver.take_missed());
        changes.send(change);
        assert!(receiver.take_missed() && !receiver.take_missed());
        let queued = std::iter::from_fn(|| receiver.changes.try_recv().ok()).count();
        assert_eq!(queued, QUEUE_CAPACITY);
    }
}
