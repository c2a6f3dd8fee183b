//! A semaphore whose permits and queue are shared fairly: a holder at its share waits, and other holders do not queue behind it.

use std::{
    collections::HashMap,
    fmt,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
};

use smallvec::SmallVec;
use tokio::sync::oneshot;

use super::{
    bounds::{Bound, Share},
    fair_queue::{FairQueue, Holder, TooManyWaiting},
};

/// A bounded number of permits, and of callers that wait for one.
pub(crate) struct FairSemaphore {
    bound: Bound,
    total: AtomicUsize,
    state: Mutex<State>,
}

/// The holders whose shares a permit counts against: a key and its member, or an address.
type Holders = SmallVec<[Holder; 2]>;

struct State {
    permits: Permits,
    queue: FairQueue<Waiter>,
}

/// Permits in use.
#[derive(Default)]
struct Permits {
    used: usize,
    held: HashMap<Holder, usize>,
}

struct Waiter {
    holders: Holders,
    granted: oneshot::Sender<FairPermit>,
}

/// A permit. Dropping it releases it.
pub(crate) struct FairPermit {
    semaphore: Arc<FairSemaphore>,
    holders: Holders,
}

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
        let state = State { permits: Permits::default(), queue: FairQueue::new(bound, max_waiting) };
        Arc::new(Self { bound, total: AtomicUsize::new(total), state: Mutex::new(state) })
    }

    /// Changes how many permits there are. Those that are held above the new number stay valid.
    pub(crate) fn resize(self: &Arc<Self>, total: usize) {
        self.total.store(total, Ordering::Relaxed);
        self.grant();
    }

    /// Acquires a permit, or waits for one. Cancel-safe.
    ///
    /// # Errors
    /// When the holders' share of the waiting callers is used up.
    pub(crate) async fn acquire(self: &Arc<Self>, holders: &[Holder]) -> Result<FairPermit, TooManyWaiting> {
        let (granted, permit) = oneshot::channel();
        let number = {
            let mut state = self.state();
            if state.permits.may_acquire(holders, self.bound.share(), self.total()) {
                state.permits.count(holders);
                return Ok(self.permit(holders));
            }
            state.queue.join(holders, Waiter { holders: Holders::from_slice(holders), granted })?
        };
        let _leaves = QueuePosition { semaphore: self, number, holders };
        // The sender is dropped only together with this position.
        permit.await.map_err(|_| TooManyWaiting)
    }

    fn permit(self: &Arc<Self>, holders: &[Holder]) -> FairPermit {
        FairPermit { semaphore: Arc::clone(self), holders: Holders::from_slice(holders) }
    }

    fn total(&self) -> usize {
        self.total.load(Ordering::Relaxed)
    }

    /// Whether no permit is held and no caller waits.
    #[cfg(test)]
    pub(super) fn is_idle(&self) -> bool {
        let State { permits, queue } = &*self.state();
        permits.used == 0 && permits.held.is_empty() && queue.len() == 0
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Releases a permit, and grants free permits to waiting callers.
    fn release(self: &Arc<Self>, holders: &[Holder]) {
        let is_awaited = {
            let mut state = self.state();
            state.permits.uncount(holders);
            state.queue.len() > 0
        };
        if is_awaited {
            self.grant();
        }
    }

    /// Grants free permits to waiting callers.
    fn grant(self: &Arc<Self>) {
        let mut granted = Vec::new();
        {
            let State { permits, queue } = &mut *self.state();
            while let Some(waiter) = queue.next(|waiter| permits.may_acquire(&waiter.holders, self.bound.share(), self.total())) {
                permits.count(&waiter.holders);
                granted.push((self.permit(&waiter.holders), waiter.granted));
            }
        }
        for (permit, waiter) in granted {
            // If the receiver is dropped, so is the permit, which releases it.
            let _ = waiter.send(permit);
        }
    }
}

impl Permits {
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
        self.semaphore.state().queue.leave(self.holders, self.number);
    }
}
