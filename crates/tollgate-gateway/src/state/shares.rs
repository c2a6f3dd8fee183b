//! Fair shares of the resources that all callers use, so that one key cannot use up what the others need.
//!
//! A key may hold three times the free capacity, and so may a member with all its keys: a single key gets at most three
//! quarters, and two that take all they can get three sevenths each. Some capacity is always left for a key that holds none, and
//! the first request of a key is always admitted. [`Bound`] lists everything that is shared.

mod bounds;
mod fair_queue;
mod fair_semaphore;
mod in_flight;
mod queue_capacity;
mod recent;
mod refusals;
mod start_queue;

use std::{
    collections::HashMap,
    hash::Hash,
    ops::Deref,
    sync::{
        Arc, Mutex, PoisonError, Weak,
        atomic::{AtomicUsize, Ordering},
    },
};

use tokio::{sync::Notify, time::Instant};
use tollgate_core::{Key, KeyId, MemberId, Requester, Subject};

use super::retry_budget::RetriesLeft;
use crate::serving_state::ServingState;

#[cfg(test)]
pub(crate) use self::recent::HELD_REQUESTS;
pub(crate) use self::{
    bounds::{Bound, HolderKind},
    fair_queue::{FairQueue, Holder, TooManyWaiting},
    fair_semaphore::{FairPermit, FairSemaphore},
    in_flight::{InFlightRequest, Lingering, MemoryCharge, MemoryExhausted, NotAdmitted},
    queue_capacity::{QueueCapacity, QueueCharge},
    refusals::{RefusalRecord, RepeatedRefusals},
    start_queue::StartQueue,
};
use self::{recent::RecentUse, refusals::RefusalWindows};

/// Resources that a key, or a member with all its keys, uses and used recently. Both have all counts, so that nothing is counted for
/// one of them only.
#[derive(Debug)]
pub(crate) struct Holdings {
    subject: Subject,
    /// Requests in progress.
    requests: AtomicUsize,
    /// Bytes of bodies and answers.
    bytes: AtomicUsize,
    /// Requests that are authenticated and not admitted yet: their bodies are being received.
    receiving: AtomicUsize,
    /// Requests whose spans wait for the collector.
    traces: AtomicUsize,
    /// Bytes of contents that wait for the database.
    contents: AtomicUsize,
    refusals: RefusalWindows,
    recent: RecentUse,
}

impl Holdings {
    fn new(subject: Subject) -> Self {
        Self {
            subject,
            requests: AtomicUsize::default(),
            bytes: AtomicUsize::default(),
            receiving: AtomicUsize::default(),
            traces: AtomicUsize::default(),
            contents: AtomicUsize::default(),
            refusals: RefusalWindows::default(),
            recent: RecentUse::default(),
        }
    }
}

/// The share of one key, with that of its member.
#[derive(Debug)]
pub(crate) struct KeyShare {
    requester: Requester,
    own: Holdings,
    member: Arc<Holdings>,
}

impl KeyShare {
    /// Resources that the key and its member use, in the order of [`bounds::Share::of_callers`].
    fn holdings(&self) -> [&Holdings; 2] {
        [&self.own, &self.member]
    }

    /// The holders that a permit of this key counts against.
    pub(crate) fn holders(&self) -> [Holder; 2] {
        Holder::of_caller(self.requester)
    }

    /// Counts a refused request, and says how it is recorded.
    pub(crate) fn count_refusal(&self, error: &'static str, model: Option<&str>, now: Instant) -> RefusalRecord {
        refusals::count(self.holdings().map(|held| &held.refusals), error, model, now)
    }

    /// Counts a request that makes its first attempt in these ten seconds.
    pub(crate) fn count_request(&self, period: u64) {
        self.holdings().into_iter().for_each(|held| held.recent.count_request(period));
    }

    /// Counts a retry if the key and its member may make one. The retry budget of all requests is checked separately.
    pub(crate) fn try_retry(&self, retries: RetriesLeft) -> bool {
        recent::try_retry(self.holdings().map(|held| &held.recent), retries)
    }

    /// Whether a request may be recorded in memory because the journal is full.
    pub(crate) fn may_record(&self, serving: &ServingState) -> bool {
        let held = serving.in_memory_only();
        held == 0 || recent::may_record(self.holdings().map(|of| &of.recent), serving.journal_full_times(), held)
    }

    /// Counts a request whose body is about to be received.
    pub(crate) fn begin_receiving(self: &Arc<Self>) -> Receiving {
        let before = self.holdings().map(|held| held.receiving.fetch_add(1, Ordering::AcqRel));
        Receiving { share: Arc::clone(self), before }
    }
}

/// A request between authentication and admission. It counts against the limits of its key and member on concurrency and on
/// requests a minute, because its body is received before the reservation can be made.
#[derive(Debug)]
pub(crate) struct Receiving {
    share: Arc<KeyShare>,
    /// Earlier requests of the key and of the member in this state.
    before: [usize; 2],
}

impl Receiving {
    /// The share of the request's key.
    pub(crate) const fn share(&self) -> &Arc<KeyShare> {
        &self.share
    }

    /// Requests of `subject` that were being received when this one began.
    pub(crate) fn before(&self, subject: Subject) -> u64 {
        let held = self.share.holdings().into_iter().zip(self.before).find(|(held, _)| held.subject == subject);
        held.map_or(0, |(_, before)| before as u64)
    }
}

impl Drop for Receiving {
    fn drop(&mut self) {
        for held in self.share.holdings() {
            held.receiving.fetch_sub(1, Ordering::AcqRel);
        }
    }
}

/// A share that is exceeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ShareExceeded {
    /// The key or the member.
    pub(crate) subject: Subject,
    /// Units it holds.
    pub(crate) held: usize,
    /// Units it may hold at this moment.
    pub(crate) max: usize,
}

/// Units of which there is a limited number. The total is a setting.
#[derive(Debug, Default)]
pub(crate) struct Capacity {
    used: AtomicUsize,
    /// Tasks that wait for units.
    waiting: AtomicUsize,
    released: Notify,
}

impl Capacity {
    pub(crate) fn used(&self) -> usize {
        self.used.load(Ordering::Acquire)
    }

    /// Takes units from the total; `None` if not enough are free.
    fn take(&self, units: usize, total: usize) -> Option<()> {
        if self.used.fetch_add(units, Ordering::AcqRel).saturating_add(units) <= total {
            return Some(());
        }
        self.put_back(units);
        None
    }

    /// Returns units that were taken but not used. No task is woken, because no capacity became free: a task whose attempt
    /// failed would otherwise wake itself.
    fn put_back(&self, units: usize) {
        self.used.fetch_sub(units, Ordering::AcqRel);
    }

    /// Returns units to the total.
    fn release(&self, units: usize) {
        self.used.fetch_sub(units, Ordering::AcqRel);
        if units > 0 && self.waiting.load(Ordering::Acquire) > 0 {
            self.released.notify_waiters();
        }
    }
}

/// Capacity that all callers share.
#[derive(Debug)]
pub(crate) struct Pool {
    bound: Bound,
    capacity: Capacity,
}

impl Deref for Pool {
    type Target = Capacity;

    fn deref(&self) -> &Capacity {
        &self.capacity
    }
}

impl Pool {
    pub(crate) fn new(bound: Bound) -> Self {
        Self { bound, capacity: Capacity::default() }
    }

    /// Counts units that were taken from the total against a key and its member; `units_of` selects the counter. `own` is the
    /// number of units that the request itself then holds: a holder without any other request is always within its share.
    fn charge(
        &self,
        share: &KeyShare,
        units_of: fn(&Holdings) -> &AtomicUsize,
        units: usize,
        own: usize,
        total: usize,
    ) -> Result<(), ShareExceeded> {
        let holdings = share.holdings();
        for (at, (part, holding)) in self.bound.share().of_callers().into_iter().zip(holdings).enumerate() {
            let after = units_of(holding).fetch_add(units, Ordering::AcqRel) + units;
            let used = self.used();
            if after > own && !part.permits(total, used, after) {
                uncharge(&holdings[..=at], units_of, units);
                let max = part.max(total, used - units.min(used));
                return Err(ShareExceeded { subject: holding.subject, held: after - units, max });
            }
        }
        Ok(())
    }
}

/// Reverses [`Pool::charge`] for these holders.
fn uncharge(holdings: &[&Holdings], units_of: fn(&Holdings) -> &AtomicUsize, units: usize) {
    for holding in holdings {
        units_of(holding).fetch_sub(units, Ordering::AcqRel);
    }
}

/// The shares of keys that are cached, that an open connection had last, or that have requests in progress. A key that is read
/// again from the store keeps its share.
#[derive(Debug, Default)]
pub(crate) struct ShareRegistry(Mutex<RegistryState>);

#[derive(Debug, Default)]
struct RegistryState {
    keys: HashMap<KeyId, Weak<KeyShare>>,
    members: HashMap<MemberId, Weak<Holdings>>,
    /// Number of entries at which those of keys and members without a share in use are removed.
    next_sweep: usize,
}

/// Fewer entries are never searched for unused ones.
const MIN_SWEEP: usize = 1_024;

impl ShareRegistry {
    /// The share of a key, created when there is none.
    pub(crate) fn of(&self, key: &Key) -> Arc<KeyShare> {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if state.keys.len() + state.members.len() >= state.next_sweep.max(MIN_SWEEP) {
            state.keys.retain(|_, share| share.strong_count() > 0);
            state.members.retain(|_, share| share.strong_count() > 0);
            state.next_sweep = 2 * (state.keys.len() + state.members.len());
        }
        let requester = key.requester();
        let member = live(&state.members, &requester.member).unwrap_or_else(|| {
            let share = Arc::new(Holdings::new(Subject::Member(requester.member)));
            state.members.insert(requester.member, Arc::downgrade(&share));
            share
        });
        // A key does not change its member.
        live(&state.keys, &key.id).unwrap_or_else(|| {
            let share = Arc::new(KeyShare { requester, own: Holdings::new(Subject::Key(key.id)), member });
            state.keys.insert(key.id, Arc::downgrade(&share));
            share
        })
    }
}

fn live<I: Eq + Hash, S>(entries: &HashMap<I, Weak<S>>, id: &I) -> Option<Arc<S>> {
    entries.get(id).and_then(Weak::upgrade)
}

#[cfg(test)]
mod exercise;
#[cfg(test)]
mod tests;
