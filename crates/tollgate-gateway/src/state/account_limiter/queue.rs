//! Who waits for room on one account: at most 100, the keys taking turns, each key's requests in the order they came.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, PoisonError},
};

use tokio::sync::oneshot;
use tollgate_core::KeyId;

use super::{Bounds, Permit};

/// Most who wait for one account.
const MOST: usize = 100;

/// One request's place.
#[derive(Debug)]
pub(super) struct Waiter {
    /// Which wait it belongs to.
    pub(super) number: u64,
    /// What the account allowed when it joined.
    pub(super) bounds: Bounds,
    /// What it is estimated at.
    pub(super) tokens: u64,
    /// Where room is put.
    pub(super) hand: Handoff,
}

/// Where room is put, once, from whichever queue has some first.
#[derive(Clone, Debug)]
pub(super) struct Handoff(Arc<Mutex<Option<oneshot::Sender<Option<Permit>>>>>);

impl Handoff {
    pub(super) fn new(sender: oneshot::Sender<Option<Permit>>) -> Self {
        Self(Arc::new(Mutex::new(Some(sender))))
    }

    /// Puts room there; returns it when no waiter is left.
    pub(super) fn offer(&self, permit: Permit) -> Option<Permit> {
        match self.sender() {
            Some(sender) => sender.send(Some(permit)).err().flatten(),
            None => Some(permit),
        }
    }

    /// Wakes all waiters without a permit.
    pub(super) fn wake(&self) {
        if let Some(sender) = self.sender() {
            let _ = sender.send(None);
        }
    }

    fn sender(&self) -> Option<oneshot::Sender<Option<Permit>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// The queue.
#[derive(Debug, Default)]
pub(super) struct FairQueue {
    /// The key whose turn it is stands first; none without a request.
    keys: VecDeque<(KeyId, VecDeque<Waiter>)>,
    len: usize,
}

impl FairQueue {
    /// Takes a place; `false`: there is none.
    pub(super) fn join(&mut self, key: KeyId, turn: Waiter) -> bool {
        if self.len >= MOST {
            return false;
        }
        self.len += 1;
        match self.keys.iter_mut().find(|(waiting, _)| *waiting == key) {
            Some((_, turns)) => turns.push_back(turn),
            None => self.keys.push_back((key, VecDeque::from([turn]))),
        }
        true
    }

    /// The next one, if there is a permit for it while so many are taken. Its key goes to the end of the row.
    pub(super) fn next(&mut self, running: u32) -> Option<Waiter> {
        let first = self.keys.front()?.1.front()?;
        if first.bounds.concurrency != 0 && running >= first.bounds.concurrency {
            return None;
        }
        let (key, mut turns) = self.keys.pop_front()?;
        let turn = turns.pop_front()?;
        self.len -= 1;
        if !turns.is_empty() {
            self.keys.push_back((key, turns));
        }
        Some(turn)
    }

    /// Gives a place up.
    pub(super) fn leave(&mut self, number: u64) {
        for (_, turns) in &mut self.keys {
            let before = turns.len();
            turns.retain(|turn| turn.number != number);
            self.len -= before - turns.len();
        }
        self.keys.retain(|(_, turns)| !turns.is_empty());
    }

    #[cfg(test)]
    pub(super) const fn len(&self) -> usize {
        self.len
    }
}
