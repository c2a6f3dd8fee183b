//! Wakes tasks when shared state changed. The signal carries no value: a woken task reads the state again.

use std::{
    pin::pin,
    sync::atomic::{AtomicU64, Ordering},
};

use tokio::sync::Notify;

/// A counter of changes that tasks can wait on.
#[derive(Debug, Default)]
pub(crate) struct ChangeSignal {
    version: AtomicU64,
    listeners: Notify,
}

/// The number of changes seen at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Version(u64);

impl ChangeSignal {
    /// Announces a change. Call it after the new state is visible.
    pub(crate) fn notify(&self) {
        self.version.fetch_add(1, Ordering::SeqCst);
        self.listeners.notify_waiters();
    }

    /// The current version. Read it before reading the state, so that a change in between is not missed.
    pub(crate) fn version(&self) -> Version {
        Version(self.version.load(Ordering::SeqCst))
    }

    /// Waits until the version differs from `seen`.
    pub(crate) async fn changed_since(&self, seen: Version) {
        let mut notified = pin!(self.listeners.notified());
        // Register before comparing, so that a change between the comparison and the wait is not missed.
        notified.as_mut().enable();
        if self.version() == seen {
            notified.await;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::timeout;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[tokio::test(start_paused = true)]
    async fn each_change_wakes_a_waiter_once() {
        let signal = ChangeSignal::default();
        let before = signal.version();
        assert!(timeout(SECOND, signal.changed_since(before)).await.is_err(), "no change yet");
        signal.notify();
        signal.changed_since(before).await;
        let after = signal.version();
        assert!(timeout(SECOND, signal.changed_since(after)).await.is_err(), "that change was already seen");
        tokio::join!(biased; signal.changed_since(after), async { signal.notify() });
    }
}
