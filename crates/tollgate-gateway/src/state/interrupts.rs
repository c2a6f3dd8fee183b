//! Wakes the streams that wait for their upstream, so that each checks whether it must end. One [`Notify`] per core, so that
//! chunks do not contend for a lock shared by all cores.

use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::Notify;

#[derive(Debug, Default)]
pub(crate) struct Interrupts(Mutex<Vec<Arc<Notify>>>);

impl Interrupts {
    /// Adds a core.
    pub(crate) fn core(&self) -> Arc<Notify> {
        let notify = Arc::new(Notify::new());
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::clone(&notify));
        notify
    }

    /// Wakes all streams. Call it after the reason is visible.
    pub(crate) fn notify(&self) {
        for notify in self.0.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            notify.notify_waiters();
        }
    }
}
