//! Turns at something of which only a few may happen at once. A holder at its share waits; the others do not wait behind it.

use std::{
    collections::{HashMap, VecDeque},
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio::sync::oneshot;
use tollgate_core::{KeyId, MemberId};

use super::is_within_share;
use crate::address_block::AddressBlock;

/// Who holds turns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Holder {
    Key(KeyId),
    Member(MemberId),
    /// Callers whose key is not known yet.
    Address(AddressBlock),
}

/// A bounded number of turns, and of callers that wait for one.
pub(crate) struct Turns {
    total: usize,
    /// Most callers that wait.
    most_waiting: usize,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    used: usize,
    held: HashMap<Holder, usize>,
    /// Waiting callers by holders; the holders take turns.
    queues: VecDeque<Queue>,
    waiting: usize,
    next_number: u64,
}

struct Queue {
    holders: Vec<Holder>,
    waiters: VecDeque<Waiter>,
}

struct Waiter {
    number: u64,
    granted: oneshot::Sender<Turn>,
}

/// A turn. Dropping it ends it.
pub(crate) struct Turn {
    turns: Arc<Turns>,
    holders: Vec<Holder>,
}

/// Too many callers of these holders wait already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TooManyWait;

impl fmt::Debug for Turns {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Turns").field("total", &self.total).finish_non_exhaustive()
    }
}

impl fmt::Debug for Turn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Turn").field("holders", &self.holders).finish_non_exhaustive()
    }
}

impl Turns {
    pub(crate) fn new(total: usize, most_waiting: usize) -> Arc<Self> {
        Arc::new(Self { total, most_waiting, state: Mutex::default() })
    }

    /// Takes a turn, or waits for one. Cancel-safe.
    ///
    /// # Errors
    /// When the holders' share of the waiting callers is used up.
    pub(crate) async fn take(self: &Arc<Self>, holders: &[Holder]) -> Result<Turn, TooManyWait> {
        let (granted, turn) = oneshot::channel();
        let number = {
            let mut state = self.state();
            if state.may_take(holders, self.total) {
                state.count(holders);
                return Ok(self.turn(holders));
            }
            state.join(holders, granted, self.most_waiting)?
        };
        let _leaves = QueuePosition { turns: self, number, holders };
        // The sender is dropped only with this place.
        turn.await.map_err(|_| TooManyWait)
    }

    fn turn(self: &Arc<Self>, holders: &[Holder]) -> Turn {
        Turn { turns: Arc::clone(self), holders: holders.to_vec() }
    }

    /// Whether no turn is taken and no caller waits.
    #[cfg(test)]
    pub(super) fn is_idle(&self) -> bool {
        let state = self.state();
        state.used == 0 && state.waiting == 0 && state.held.is_empty() && state.queues.is_empty()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends a turn and grants what is free to those that wait.
    fn end(self: &Arc<Self>, holders: &[Holder]) {
        let mut granted = Vec::new();
        {
            let mut state = self.state();
            state.uncount(holders);
            while let Some((holders, waiter)) = state.next(self.total) {
                granted.push((self.turn(&holders), waiter));
            }
        }
        for (turn, waiter) in granted {
            // A receiver that is gone returns the turn, which then ends.
            let _ = waiter.granted.send(turn);
        }
    }
}

impl State {
    fn may_take(&self, holders: &[Holder], total: usize) -> bool {
        let held = |holder: &Holder| self.held.get(holder).copied().unwrap_or(0);
        let within = |holder: &Holder| held(holder) == 0 || is_within_share(total, self.used + 1, held(holder) + 1);
        self.used < total && holders.iter().all(within)
    }

    fn count(&mut self, holders: &[Holder]) {
        self.used += 1;
        for holder in holders {
            *self.held.entry(*holder).or_default() += 1;
        }
    }

    fn uncount(&mut self, holders: &[Holder]) {
        self.used -= 1;
        for holder in holders {
            if let Some(held) = self.held.get_mut(holder) {
                *held -= 1;
                if *held == 0 {
                    self.held.remove(holder);
                }
            }
        }
    }

    fn join(&mut self, holders: &[Holder], granted: oneshot::Sender<Turn>, most: usize) -> Result<u64, TooManyWait> {
        let of_holders = self.queues.iter().position(|queue| queue.holders == holders);
        let before = of_holders.map_or(0, |at| self.queues[at].waiters.len());
        if self.waiting >= most || before > 0 && !is_within_share(most, self.waiting + 1, before + 1) {
            return Err(TooManyWait);
        }
        let at = of_holders.unwrap_or_else(|| {
            self.queues.push_back(Queue { holders: holders.to_vec(), waiters: VecDeque::new() });
            self.queues.len() - 1
        });
        self.next_number += 1;
        self.waiting += 1;
        self.queues[at].waiters.push_back(Waiter { number: self.next_number, granted });
        Ok(self.next_number)
    }

    /// The next waiting caller that may take a turn, which is counted.
    fn next(&mut self, total: usize) -> Option<(Vec<Holder>, Waiter)> {
        let at = (0..self.queues.len()).find(|at| self.may_take(&self.queues[*at].holders, total))?;
        let mut queue = self.queues.remove(at)?;
        let waiter = queue.waiters.pop_front()?;
        let holders = queue.holders.clone();
        if !queue.waiters.is_empty() {
            self.queues.push_back(queue);
        }
        self.waiting -= 1;
        self.count(&holders);
        Some((holders, waiter))
    }

    fn leave(&mut self, number: u64, holders: &[Holder]) {
        let Some(at) = self.queues.iter().position(|queue| queue.holders == holders) else { return };
        let waiters = &mut self.queues[at].waiters;
        let before = waiters.len();
        waiters.retain(|waiter| waiter.number != number);
        let left = waiters.len();
        self.waiting -= before - left;
        if left == 0 {
            self.queues.remove(at);
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let turns = Arc::clone(&self.turns);
        turns.end(&self.holders);
    }
}

/// A place in the queues, left when dropped.
struct QueuePosition<'a> {
    turns: &'a Turns,
    number: u64,
    holders: &'a [Holder],
}

impl Drop for QueuePosition<'_> {
    fn drop(&mut self) {
        self.turns.state().leave(self.number, self.holders);
    }
}
