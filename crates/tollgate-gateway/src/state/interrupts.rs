//! Wakes the streams that wait for their upstream, so that each looks whether it must end. One bell per core, so that cores do
//! not share a lock with every chunk.

use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::Notify;

/// The bells of all cores.
#[derive(Debug, Default)]
pub(crate) struct Interrupts(Mutex<Vec<Arc<Notify>>>);

impl Interrupts {
    /// The bell of one more core.
    pub(crate) fn core(&self) -> Arc<Notify> {
        let bell = Arc::new(Notify::new());
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::clone(&bell));
        bell
    }

    /// Wakes all streams. Call it after the reason is visible.
    pub(crate) fn notify(&self) {
        for bell in self.0.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            bell.notify_waiters();
        }
    }
}
