//! A semaphore whose permits and queue are shared fairly: a holder at its share waits, and other holders do not queue behind it.

use std::{
    collections::{HashMap, VecDeque},
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio::sync::oneshot;
use tollgate_core::{KeyId, MemberId};

use super::bounds::{Bound, HolderKind, Share};
use crate::address_block::AddressBlock;

/// The share that a permit counts against.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Holder {
    Key(KeyId),
    Member(MemberId),
    /// Callers whose key is not known yet.
    Address(AddressBlock),
}

impl Holder {
    const fn kind(self) -> HolderKind {
        match self {
            Self::Key(_) => HolderKind::Key,
            Self::Member(_) => HolderKind::Member,
            Self::Address(_) => HolderKind::Address,
        }
    }

    /// Whether a holder that has `held` may have one more; the first one always.
    fn may_add(self, held: usize, share: Share, total: usize, used: usize) -> bool {
        held == 0 || share.of(self.kind()).permits(total, used + 1, held + 1)
    }
}

/// A bounded number of permits, and of callers that wait for one.
pub(crate) struct FairSemaphore {
    bound: Bound,
    total: usize,
    /// Maximum of waiting callers.
    max_waiting: usize,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    used: usize,
    held: HashMap<Holder, usize>,
    /// Waiting callers by holders; the queues are served round-robin.
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
    granted: oneshot::Sender<FairPermit>,
}

/// A permit. Dropping it releases it.
pub(crate) struct FairPermit {
    semaphore: Arc<FairSemaphore>,
    holders: Vec<Holder>,
}

/// Too many callers of these holders are waiting already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TooManyWaiting;

impl fmt::Debug for FairSemaphore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FairSemaphore").field("total", &self.total).finish_non_exhaustive()
    }
}

impl fmt::Debug for FairPermit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FairPermit").field("holders", &self.holders).finish_non_exhaustive()
    }
}

impl FairSemaphore {
    pub(crate) fn new(bound: Bound, total: usize, max_waiting: usize) -> Arc<Self> {
        Arc::new(Self { bound, total, max_waiting, state: Mutex::default() })
    }

    /// Acquires a permit, or waits for one. Cancel-safe.
    ///
    /// # Errors
    /// When the holders' share of the waiting callers is used up.
    pub(crate) async fn acquire(self: &Arc<Self>, holders: &[Holder]) -> Result<FairPermit, TooManyWaiting> {
        let (granted, permit) = oneshot::channel();
        let number = {
            let mut state = self.state();
            if state.may_acquire(holders, self.bound.share(), self.total) {
                state.count(holders);
                return Ok(self.permit(holders));
            }
            state.join(holders, granted, self.bound.share(), self.max_waiting)?
        };
        let _leaves = QueuePosition { semaphore: self, number, holders };
        // The sender is dropped only together with this position.
        permit.await.map_err(|_| TooManyWaiting)
    }

    fn permit(self: &Arc<Self>, holders: &[Holder]) -> FairPermit {
        FairPermit { semaphore: Arc::clone(self), holders: holders.to_vec() }
    }

    /// Whether no permit is held and no caller waits.
    #[cfg(test)]
    pub(super) fn is_idle(&self) -> bool {
        let state = self.state();
        state.used == 0 && state.waiting == 0 && state.held.is_empty() && state.queues.is_empty()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Releases a permit, and grants what is free to waiting callers.
    fn release(self: &Arc<Self>, holders: &[Holder]) {
        let mut granted = Vec::new();
        {
            let mut state = self.state();
            state.uncount(holders);
            while let Some((holders, waiter)) = state.next(self.bound.share(), self.total) {
                granted.push((self.permit(&holders), waiter));
            }
        }
        for (permit, waiter) in granted {
            // If the receiver is gone, the permit is dropped and thereby released.
            let _ = waiter.granted.send(permit);
        }
    }
}

impl State {
    fn may_acquire(&self, holders: &[Holder], share: Share, total: usize) -> bool {
        let held = |holder: &Holder| self.held.get(holder).copied().unwrap_or(0);
        self.used < total && holders.iter().all(|holder| holder.may_add(held(holder), share, total, self.used))
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

    fn join(
        &mut self,
        holders: &[Holder],
        granted: oneshot::Sender<FairPermit>,
        share: Share,
        max: usize,
    ) -> Result<u64, TooManyWaiting> {
        let waiting = |holder: &Holder| {
            let queues = self.queues.iter().filter(|queue| queue.holders.contains(holder));
            queues.map(|queue| queue.waiters.len()).sum::<usize>()
        };
        let may_wait = |holder: &Holder| holder.may_add(waiting(holder), share, max, self.waiting);
        if self.waiting >= max || !holders.iter().all(may_wait) {
            return Err(TooManyWaiting);
        }
        let of_holders = self.queues.iter().position(|queue| queue.holders == holders);
        let at = of_holders.unwrap_or_else(|| {
            self.queues.push_back(Queue { holders: holders.to_vec(), waiters: VecDeque::new() });
            self.queues.len() - 1
        });
        self.next_number += 1;
        self.waiting += 1;
        self.queues[at].waiters.push_back(Waiter { number: self.next_number, granted });
        Ok(self.next_number)
    }

    /// Removes the next waiting caller that may have a permit, and counts the permit.
    fn next(&mut self, share: Share, total: usize) -> Option<(Vec<Holder>, Waiter)> {
        let at = (0..self.queues.len()).find(|at| self.may_acquire(&self.queues[*at].holders, share, total))?;
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

impl Drop for FairPermit {
    fn drop(&mut self) {
        let semaphore = Arc::clone(&self.semaphore);
        semaphore.release(&self.holders);
    }
}

/// A position in the queues. Dropping it leaves the queue.
struct QueuePosition<'a> {
    semaphore: &'a FairSemaphore,
    number: u64,
    holders: &'a [Holder],
}

impl Drop for QueuePosition<'_> {
    fn drop(&mut self) {
        self.semaphore.state().leave(self.number, self.holders);
    }
}
