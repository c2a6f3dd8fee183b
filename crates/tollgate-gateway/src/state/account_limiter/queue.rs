//! The fair queue of one account: at most 100 waiters; keys take waiters, and each key's requests are served in order of
//! arrival.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, PoisonError},
};

use tokio::sync::oneshot;
use tollgate_core::KeyId;

use super::{Bounds, Permit};

/// Maximum waiters per account.
const MAX_WAITERS: usize = 100;

#[derive(Debug)]
pub(super) struct Waiter {
    /// Identifies the request in all queues it joined.
    pub(super) number: u64,
    /// The account's limits when the request joined.
    pub(super) bounds: Bounds,
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

/// Waiters grouped by key.
#[derive(Debug, Default)]
pub(super) struct FairQueue {
    /// The next key to serve is first; every key has at least one waiter.
    keys: VecDeque<(KeyId, VecDeque<Waiter>)>,
    pub(super) len: usize,
}

impl FairQueue {
    /// Adds a waiter; `false` when the queue is full.
    pub(super) fn join(&mut self, key: KeyId, waiter: Waiter) -> bool {
        if self.len >= MAX_WAITERS {
            return false;
        }
        self.len += 1;
        match self.keys.iter_mut().find(|(waiting, _)| *waiting == key) {
            Some((_, waiters)) => waiters.push_back(waiter),
            None => self.keys.push_back((key, VecDeque::from([waiter]))),
        }
        true
    }

    /// Removes the next waiter if the concurrency limit allows it with `running` requests. Its key moves to the back.
    pub(super) fn next(&mut self, running: u32) -> Option<Waiter> {
        let first = self.keys.front()?.1.front()?;
        if first.bounds.concurrency != 0 && running >= first.bounds.concurrency {
            return None;
        }
        let (key, mut waiters) = self.keys.pop_front()?;
        let waiter = waiters.pop_front()?;
        self.len -= 1;
        if !waiters.is_empty() {
            self.keys.push_back((key, waiters));
        }
        Some(waiter)
    }

    pub(super) fn leave(&mut self, number: u64) {
        for (_, waiters) in &mut self.keys {
            let before = waiters.len();
            waiters.retain(|waiter| waiter.number != number);
            self.len -= before - waiters.len();
        }
        self.keys.retain(|(_, waiters)| !waiters.is_empty());
    }
}
