//! The fair queue of one account: at most 100 waiters, of which a key and a member have their share. Members take turns, so do the
//! keys of a member, and each key's requests are served in order of arrival.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, PoisonError},
};

use tokio::sync::oneshot;
use tollgate_core::Requester;

use super::{Bounds, Permit};
use crate::state::shares::Bound;

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
    keys: VecDeque<(Requester, VecDeque<Waiter>)>,
    pub(super) len: usize,
}

impl FairQueue {
    /// Adds a waiter; `false` when the queue is full, or the share of the key or its member.
    pub(super) fn join(&mut self, by: Requester, waiter: Waiter) -> bool {
        let waiting = |counts: &dyn Fn(&Requester) -> bool| {
            self.keys.iter().filter(|(waiting, _)| counts(waiting)).map(|(_, waiters)| waiters.len()).sum::<usize>()
        };
        let held = [waiting(&|other| *other == by), waiting(&|other| other.member == by.member)];
        let mut parts = Bound::AccountQueue.share().of_callers().into_iter().zip(held);
        if self.len >= MAX_WAITERS || !parts.all(|(part, held)| held == 0 || part.permits(MAX_WAITERS, self.len + 1, held + 1)) {
            return false;
        }
        self.len += 1;
        match self.keys.iter_mut().find(|(waiting, _)| *waiting == by) {
            Some((_, waiters)) => waiters.push_back(waiter),
            None => self.keys.push_back((by, VecDeque::from([waiter]))),
        }
        true
    }

    /// Removes the next waiter if the concurrency limit allows it with `running` requests. Its member moves to the back, and its key
    /// behind the others of the member.
    pub(super) fn next(&mut self, running: u32) -> Option<Waiter> {
        let first = self.keys.front()?.1.front()?;
        if first.bounds.concurrency != 0 && running >= first.bounds.concurrency {
            return None;
        }
        let (by, mut waiters) = self.keys.pop_front()?;
        let waiter = waiters.pop_front()?;
        self.len -= 1;
        if !waiters.is_empty() {
            self.keys.push_back((by, waiters));
        }
        // Stable: the order within the member and among the others stays.
        self.keys.make_contiguous().sort_by_key(|(other, _)| other.member == by.member);
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
