//! Shares of what all callers use together, so that one key cannot take it from the others.
//!
//! A key may hold three times what is free, and so may a member with all its keys: a key that is alone uses three quarters, and
//! two that want everything get three sevenths each. There is always something left for a key that holds nothing yet, and its
//! first request always fits. [`BOUNDS`] lists every shared limit; `docs/operating.md` shows the same rows.

#[cfg(test)]
mod bounds;
mod fair_semaphore;
mod in_flight;
mod recent;
mod refusals;

use std::{
    collections::HashMap,
    hash::Hash,
    sync::{
        Arc, Mutex, PoisonError, Weak,
        atomic::{AtomicUsize, Ordering},
    },
};

use tokio::{sync::Notify, time::Instant};
use tollgate_core::{Key, KeyId, MemberId, Subject};

use super::retry_budget::RetriesLeft;
use crate::condition::Condition;

pub(crate) use self::{
    fair_semaphore::{FairPermit, FairSemaphore, Holder, TooManyWaiting},
    in_flight::{InFlightRequest, Lingering, MemoryCharge},
    refusals::{RefusalRecord, RepeatedRefusals},
};
use self::{recent::RecentUse, refusals::RefusalWindows};

/// How many times of what is free a key, a member or an address may hold.
pub(crate) const TIMES_FREE: usize = 3;

/// Whether a holder may have `held` of `total`, of which `used` are in use, both including the new request.
pub(crate) const fn is_within_share(total: usize, used: usize, held: usize) -> bool {
    held <= TIMES_FREE.saturating_mul(total.saturating_sub(used))
}

/// Resources that a key or a member uses.
#[derive(Debug, Default)]
pub(crate) struct Holdings {
    /// Requests in progress.
    requests: AtomicUsize,
    /// Bytes of bodies and answers.
    bytes: AtomicUsize,
    /// Requests that are authenticated and not admitted yet: their bodies are being received.
    receiving: AtomicUsize,
}

/// The share of one key.
#[derive(Debug)]
pub(crate) struct KeyShare {
    key: KeyId,
    own: Holdings,
    member: Arc<MemberShare>,
    refusals: RefusalWindows,
    recent: RecentUse,
}

/// The share of one member with all its keys.
#[derive(Debug)]
struct MemberShare {
    member: MemberId,
    all: Holdings,
}

impl KeyShare {
    /// Resources that the key and its member use.
    fn holdings(&self) -> [(Subject, &Holdings); 2] {
        [(Subject::Key(self.key), &self.own), (Subject::Member(self.member.member), &self.member.all)]
    }

    /// The holders that a permit of this key counts against.
    pub(crate) fn holders(&self) -> [Holder; 2] {
        [Holder::Key(self.key), Holder::Member(self.member.member)]
    }

    /// Counts a refused request, and says how it is recorded.
    pub(crate) fn count_refusal(&self, error: &'static str, now: Instant) -> RefusalRecord {
        self.refusals.count(error, now)
    }

    /// Counts a request that makes its first attempt.
    pub(crate) fn count_request(&self, retries: RetriesLeft) {
        self.recent.count_request(retries.period);
    }

    /// Counts a retry if the key may make one. The retry budget of all requests is checked separately.
    pub(crate) fn try_retry(&self, retries: RetriesLeft) -> bool {
        self.recent.try_retry(retries.period, retries.left)
    }

    /// Whether a request may be recorded in memory because the journal is full.
    pub(crate) fn may_record(&self, condition: &Condition) -> bool {
        let held = condition.in_memory_only();
        held == 0 || self.recent.may_record(condition.journal_full_times(), held)
    }

    /// Counts a request whose body is about to be received.
    pub(crate) fn begin_receiving(self: &Arc<Self>) -> Receiving {
        let [key, member] = self.holdings().map(|(_, held)| held.receiving.fetch_add(1, Ordering::AcqRel));
        Receiving { share: Arc::clone(self), before: [key, member] }
    }
}

/// A request between authentication and admission. It counts against the limits of its key and member on concurrency and on
/// requests a minute, because its body is received before the reservation can be made.
#[derive(Debug)]
pub(crate) struct Receiving {
    share: Arc<KeyShare>,
    /// Such requests of the key and of the member before this one.
    before: [usize; 2],
}

impl Receiving {
    /// Requests of `subject` that were being received when this one began.
    pub(crate) fn before(&self, subject: Subject) -> u64 {
        let held = self.share.holdings().into_iter().zip(self.before).find(|((holder, _), _)| *holder == subject);
        held.map_or(0, |(_, before)| before as u64)
    }
}

impl Drop for Receiving {
    fn drop(&mut self) {
        for (_, held) in self.share.holdings() {
            held.receiving.fetch_sub(1, Ordering::AcqRel);
        }
    }
}

/// A share that is exceeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ShareExceeded {
    /// The key or the member.
    pub(crate) subject: Subject,
    /// What it holds.
    pub(crate) held: usize,
    /// What it may hold at this moment.
    pub(crate) max: usize,
}

/// Units that all requests share. The total is a setting.
#[derive(Debug, Default)]
pub(crate) struct Pool {
    used: AtomicUsize,
    /// Tasks that wait for units.
    waiting: AtomicUsize,
    released: Notify,
}

impl Pool {
    pub(crate) fn used(&self) -> usize {
        self.used.load(Ordering::Acquire)
    }

    /// Takes units from the total; `None` when they are not there.
    fn take(&self, units: usize, total: usize) -> Option<()> {
        if self.used.fetch_add(units, Ordering::AcqRel).saturating_add(units) <= total {
            return Some(());
        }
        self.put_back(units);
        None
    }

    /// Returns units that were taken and not used. Nothing became free, so no task is woken: one that tries in vain would wake
    /// itself.
    fn put_back(&self, units: usize) {
        self.used.fetch_sub(units, Ordering::AcqRel);
    }

    /// Returns units to the total; the number before.
    fn release(&self, units: usize) -> usize {
        let before = self.used.fetch_sub(units, Ordering::AcqRel);
        if units > 0 && self.waiting.load(Ordering::Acquire) > 0 {
            self.released.notify_waiters();
        }
        before
    }

    /// Counts units that were taken from the total in `held`. `own`: what of `held` is then the request's own; a holder's only
    /// request is within its share.
    fn charge(&self, held: &AtomicUsize, units: usize, own: usize, total: usize) -> Result<(), (usize, usize)> {
        let after = held.fetch_add(units, Ordering::AcqRel) + units;
        let used = self.used();
        if after <= own || is_within_share(total, used, after) {
            return Ok(());
        }
        held.fetch_sub(units, Ordering::AcqRel);
        Err((after - units, TIMES_FREE.saturating_mul(total.saturating_sub(used - units.min(used)))))
    }
}

/// The shares of keys that are cached, that an open connection had last, or that have requests in progress. A key that is read again from the store keeps its share.
#[derive(Debug, Default)]
pub(crate) struct ShareRegistry(Mutex<RegistryState>);

#[derive(Debug, Default)]
struct RegistryState {
    keys: HashMap<KeyId, Weak<KeyShare>>,
    members: HashMap<MemberId, Weak<MemberShare>>,
    /// Entries after which those of gone keys are removed.
    next_sweep: usize,
}

/// Fewer entries are not searched for gone ones.
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
        let member_id = key.member.id;
        let member = live(&state.members, &member_id).unwrap_or_else(|| {
            let share = Arc::new(MemberShare { member: member_id, all: Holdings::default() });
            state.members.insert(member_id, Arc::downgrade(&share));
            share
        });
        // A key does not change its member.
        live(&state.keys, &key.id).unwrap_or_else(|| {
            let (refusals, recent) = (RefusalWindows::default(), RecentUse::default());
            let share = Arc::new(KeyShare { key: key.id, own: Holdings::default(), member, refusals, recent });
            state.keys.insert(key.id, Arc::downgrade(&share));
            share
        })
    }
}

fn live<I: Eq + Hash, S>(entries: &HashMap<I, Weak<S>>, id: &I) -> Option<Arc<S>> {
    entries.get(id).and_then(Weak::upgrade)
}

#[cfg(test)]
mod tests;
