//! The requests that wait for one account or channel: at most 100, in a [`FairQueue`].

use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::oneshot;

use super::{Bounds, Permit};
use crate::state::shares::{Bound, FairQueue};

/// Maximum waiters per account or channel.
const MAX_WAITERS: usize = 100;

/// The queue of an account or channel.
pub(super) fn wait_queue() -> FairQueue<Waiter> {
    FairQueue::new(Bound::CapacityQueue, MAX_WAITERS)
}

#[derive(Debug)]
pub(super) struct Waiter {
    /// The limits when the request joined.
    pub(super) limits: Bounds,
    pub(super) tokens: u64,
    pub(super) handoff: Handoff,
}

/// Delivers one permit to a waiter, from the first of its queues that has one.
#[derive(Clone, Debug)]
pub(super) struct Handoff(Arc<Mutex<Option<oneshot::Sender<Option<Permit>>>>>);

impl Handoff {
    pub(super) fn new(sender: oneshot::Sender<Option<Permit>>) -> Self {
        Self(Arc::new(Mutex::new(Some(sender))))
    }

    /// Delivers a permit; returns it when the waiter has left or was already served.
    pub(super) fn offer(&self, permit: Permit) -> Option<Permit> {
        match self.sender() {
            Some(sender) => sender.send(Some(permit)).err().flatten(),
            None => Some(permit),
        }
    }

    /// Wakes the waiter without a permit, so that it selects again.
    pub(super) fn wake(&self) {
        if let Some(sender) = self.sender() {
            let _ = sender.send(None);
        }
    }

    fn sender(&self) -> Option<oneshot::Sender<Option<Permit>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}
