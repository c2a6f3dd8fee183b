//! ChangeSignal for those who wait: that something changed which may be what they wait for. Nothing is said but that it did;
//! receivers look again.

use std::{
    pin::pin,
    sync::atomic::{AtomicU64, Ordering},
};

use tokio::sync::Notify;

/// One kind of news.
#[derive(Debug, Default)]
pub(crate) struct ChangeSignal {
    told: AtomicU64,
    listeners: Notify,
}

/// How much of some news was known at a moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Version(u64);

impl ChangeSignal {
    /// Something changed, and can be seen already.
    pub(crate) fn notify(&self) {
        self.told.fetch_add(1, Ordering::SeqCst);
        self.listeners.notify_waiters();
    }

    /// What is known now. To be asked before looking, so that what changes during the look is heard too.
    pub(crate) fn version(&self) -> Version {
        Version(self.told.load(Ordering::SeqCst))
    }

    /// Waits for something that was not known then.
    pub(crate) async fn changed_since(&self, heard: Version) {
        let mut told = pin!(self.listeners.notified());
        // Listening first: what is told between the comparison and the wait is not missed.
        told.as_mut().enable();
        if self.version() == heard {
            told.await;
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
    async fn signal_before_or_during_a_wait_is_received_once() {
        let news = ChangeSignal::default();
        let before = news.version();
        assert!(timeout(SECOND, news.changed_since(before)).await.is_err(), "nothing was told");
        news.notify();
        news.changed_since(before).await;
        let after = news.version();
        assert!(timeout(SECOND, news.changed_since(after)).await.is_err(), "that is known already");
        tokio::join!(biased; news.changed_since(after), async { news.notify() });
    }
}
