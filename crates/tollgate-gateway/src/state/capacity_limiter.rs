//! Concurrency and rate limits of accounts, and of channels with all their accounts: concurrent requests, requests and tokens
//! per minute, counted over all cores.
//!
//! An attempt acquires a [`Permit`] of its account and its channel before it begins; dropping the permit releases it, however
//! the attempt ended. Released capacity is handed to the next waiter directly, so new requests cannot overtake waiting ones.
//! Accounts and channels without a limit are not counted.
//!
//! Bounds: 100 waiters per account or channel; one request waits at no more than 16 accounts and their channels, for a time its
//! caller chooses.

mod queue;
mod usage;
mod wait_queue;

use std::sync::{
    Arc, Mutex, PoisonError,
    atomic::{AtomicU32, AtomicU64, Ordering},
};

use tokio::time::Instant;
use tollgate_core::{Account, AccountId, CapacityLimits as Bounds, CapacityLoad, Channel, ChannelId, Timestamp};

use crate::{
    clock::Clock,
    state::{
        id_map::{IdMap, IdMapSnapshot},
        shares::FairQueue,
    },
};
use queue::{Waiter, wait_queue};
use usage::AtCapacity;

pub use usage::CapacityUsage;
pub(crate) use wait_queue::{AcquireOutcome, QueuedAcquire};

/// The subject of a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum LimitedId {
    Account(AccountId),
    /// All accounts of the channel together.
    Channel(ChannelId),
}

/// An account or a channel, with its limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LimitedRow {
    id: LimitedId,
    limits: Bounds,
}

impl LimitedRow {
    /// The rows that limit an attempt on an account of a channel.
    pub(crate) const fn of_attempt(channel: &Channel, account: &Account) -> [Self; 2] {
        [Self::channel(channel), Self::account(account)]
    }

    /// This row without its limits.
    const fn without_limits(self) -> Self {
        Self { limits: Bounds { concurrency: 0, rpm: 0, tpm: 0 }, ..self }
    }

    pub(crate) const fn account(account: &Account) -> Self {
        Self { id: LimitedId::Account(account.id), limits: account.limits() }
    }

    pub(crate) const fn channel(channel: &Channel) -> Self {
        Self { id: LimitedId::Channel(channel.id), limits: channel.limits() }
    }
}

/// The limiters of all accounts and channels that have a limit.
#[derive(Debug)]
pub(crate) struct CapacityLimiters {
    clock: Arc<dyn Clock>,
    started: Instant,
    entries: IdMap<LimitedId, CapacityLimiter>,
}

/// The limiter of one account or channel. Changes take the lock; checks for capacity mostly read the atomics only.
#[derive(Debug, Default)]
struct CapacityLimiter {
    state: Mutex<LimiterState>,
    running: AtomicU32,
    /// Requests and tokens of the last minute at the time of the last change. They only fall until the next change.
    requests: AtomicU64,
    tokens: AtomicU64,
}

impl CapacityLimiter {
    fn with<T>(&self, now: u64, act: impl FnOnce(&mut LimiterState) -> T) -> T {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let done = act(&mut state);
        self.running.store(state.in_use.running, Ordering::Relaxed);
        self.requests.store(state.in_use.requests.used(now), Ordering::Relaxed);
        self.tokens.store(state.in_use.tokens.used(now), Ordering::Relaxed);
        done
    }

    /// Why the row is at capacity; `None` when the request fits.
    fn full(&self, bounds: Bounds, tokens: u64, now: impl FnOnce() -> u64) -> Option<AtCapacity> {
        if bounds.concurrency != 0 && self.running.load(Ordering::Relaxed) >= bounds.concurrency {
            return Some(AtCapacity::AtConcurrency);
        }
        let within = |used: &AtomicU64, more: u64, bound: u64| {
            bound == 0 || used.load(Ordering::Relaxed).saturating_add(more.min(bound)) <= bound
        };
        if within(&self.requests, 1, u64::from(bounds.rpm)) && within(&self.tokens, tokens, bounds.tpm) {
            return None;
        }
        self.state.lock().unwrap_or_else(PoisonError::into_inner).in_use.full(bounds, tokens, now())
    }
}

#[derive(Debug)]
struct LimiterState {
    in_use: CapacityUsage,
    queue: FairQueue<Waiter>,
}

impl Default for LimiterState {
    fn default() -> Self {
        Self { in_use: CapacityUsage::default(), queue: wait_queue() }
    }
}

impl CapacityLimiters {
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Arc<Self> {
        let started = clock.instant();
        Arc::new(Self { clock, started, entries: IdMap::default() })
    }

    /// The limiters at this moment, for one routing decision.
    pub(crate) fn snapshot(&self) -> LimiterSnapshot<'_> {
        LimiterSnapshot { limiters: self, entries: self.entries.snapshot() }
    }

    /// The load of these rows that keeps a request estimated at `tokens` waiting longest.
    pub(crate) fn load(&self, rows: impl IntoIterator<Item = LimitedRow>, tokens: u64) -> CapacityLoad {
        let snapshot = self.snapshot();
        let loads = rows.into_iter().map(|row| snapshot.load(row.id, row.limits, tokens));
        let longest = loads.max_by_key(|load| match load {
            CapacityLoad::Free => None,
            CapacityLoad::AtConcurrency => Some(Timestamp(0)),
            CapacityLoad::AtRate { until } => Some(*until),
        });
        longest.unwrap_or(CapacityLoad::Free)
    }

    /// Acquires a permit of all these rows, if each has capacity.
    pub(crate) fn try_acquire(self: &Arc<Self>, rows: [LimitedRow; 2], tokens: u64) -> Option<Permit> {
        let mut permit = Permit::default();
        self.extend(&mut permit, rows, tokens).then_some(permit)
    }

    /// Adds those of these rows to a permit that it lacks, which must hold no others ([`Permit::only`]). `false` when one of them has no
    /// capacity.
    pub(crate) fn extend(self: &Arc<Self>, permit: &mut Permit, rows: [LimitedRow; 2], tokens: u64) -> bool {
        // Checked first, so that it is rare to acquire one permit and release it because another row is full.
        let lacks = |row: &LimitedRow| row.limits.any() && !permit.is_on(row.id);
        if rows.iter().filter(|row| lacks(row)).count() > 1 && self.load(rows, tokens) != CapacityLoad::Free {
            return false;
        }
        for (row, held) in rows.into_iter().zip(&mut permit.0) {
            if !row.limits.any() || held.as_ref().is_some_and(|held| held.row == row.id) {
                continue;
            }
            *held = self.try_reserve(row, tokens).map(Box::new);
            if held.is_none() {
                return false;
            }
        }
        true
    }

    fn try_reserve(self: &Arc<Self>, row: LimitedRow, tokens: u64) -> Option<HeldPermit> {
        let (entry, now) = (self.entries.get_or_insert(row.id), self.micros());
        entry.with(now, |state| {
            state.in_use.full(row.limits, tokens, now).is_none().then(|| self.reserve(&entry, state, row.id, tokens, now))
        })
    }

    /// Creates entries for the configured accounts and channels that have limits, so that requests need not, and drops all
    /// other entries without running requests.
    pub(crate) fn configure<'a>(&self, channels: impl IntoIterator<Item = &'a Channel>) {
        let rows = channels.into_iter().flat_map(|channel| {
            let accounts = channel.accounts.iter().map(|account| LimitedRow::account(account));
            std::iter::once(LimitedRow::channel(channel)).chain(accounts)
        });
        let limited = rows.filter(|row| row.limits.any()).map(|row| row.id);
        self.entries.configure(limited, |entry| entry.running.load(Ordering::Relaxed) > 0);
    }

    fn reserve(
        self: &Arc<Self>,
        entry: &Arc<CapacityLimiter>,
        state: &mut LimiterState,
        row: LimitedId,
        tokens: u64,
        now: u64,
    ) -> HeldPermit {
        state.in_use.running += 1;
        let requests_at = state.in_use.requests.add(1, now);
        let tokens_at = state.in_use.tokens.add(tokens, now);
        let (limiters, entry) = (Arc::clone(self), Arc::clone(entry));
        HeldPermit { limiters, entry, row, tokens, requests_at, tokens_at, used: PermitUse::Nothing }
    }

    /// Releases a permit and hands free capacity to waiters.
    fn release(self: &Arc<Self>, held: &HeldPermit) {
        let now = self.micros();
        held.entry.with(now, |state| {
            state.release(held, now);
            while let Some(waiter) = state.next() {
                if state.in_use.full(waiter.limits, waiter.tokens, now).is_some() {
                    waiter.handoff.wake();
                    continue;
                }
                let reserved = self.reserve(&held.entry, state, held.row, waiter.tokens, now);
                if let Some(mut refused) = waiter.handoff.offer(Permit::of(reserved)) {
                    // The waiter has left or was served by another account. Dropping the permit would lock the state again.
                    refused.0.iter_mut().filter_map(Option::take).for_each(|refused| state.release(&refused, now));
                }
            }
        });
    }

    pub(crate) fn in_use(&self, row: LimitedId) -> CapacityUsage {
        let Some(entry) = self.entries.get(row) else { return CapacityUsage::default() };
        entry.state.lock().unwrap_or_else(PoisonError::into_inner).in_use
    }

    /// The current time in the limiters' monotonic microseconds.
    pub(crate) fn micros(&self) -> u64 {
        u64::try_from(self.clock.instant().saturating_duration_since(self.started).as_micros()).unwrap_or(u64::MAX)
    }
}

/// The limiters at one moment, for one routing decision. Not to be stored.
#[derive(Debug)]
pub(crate) struct LimiterSnapshot<'a> {
    limiters: &'a CapacityLimiters,
    entries: IdMapSnapshot<LimitedId, CapacityLimiter>,
}

impl LimiterSnapshot<'_> {
    /// Whether an account or channel has capacity for a request estimated at `tokens`.
    pub(crate) fn load(&self, row: LimitedId, limits: Bounds, tokens: u64) -> CapacityLoad {
        if !limits.any() {
            return CapacityLoad::Free;
        }
        let Some(entry) = self.entries.get(row) else { return CapacityLoad::Free };
        match entry.full(limits, tokens, || self.limiters.micros()) {
            None => CapacityLoad::Free,
            Some(full) => full.load(|| self.limiters.clock.now()),
        }
    }
}

impl LimiterState {
    /// The next waiter whose concurrency limit allows another request.
    fn next(&mut self) -> Option<Waiter> {
        let running = self.in_use.running;
        self.queue.next(|waiter| waiter.limits.concurrency == 0 || running < waiter.limits.concurrency)
    }

    fn release(&mut self, held: &HeldPermit, now: u64) {
        self.in_use.running = self.in_use.running.saturating_sub(1);
        match held.used {
            PermitUse::Nothing => {
                self.in_use.requests.adjust(held.requests_at, 1, 0, now);
                self.in_use.tokens.adjust(held.tokens_at, held.tokens, 0, now);
            }
            PermitUse::Request => {}
            PermitUse::Tokens(actual) => self.in_use.tokens.adjust(held.tokens_at, held.tokens, actual, now),
        }
    }
}

/// Reserved capacity of a channel and of one of its accounts, released when dropped. Empty where there is no limit. A waiter is
/// handed only the part it waited for.
#[derive(Debug, Default)]
pub struct Permit([Option<Box<HeldPermit>>; 2]);

#[derive(Debug)]
struct HeldPermit {
    limiters: Arc<CapacityLimiters>,
    entry: Arc<CapacityLimiter>,
    row: LimitedId,
    tokens: u64,
    requests_at: u64,
    tokens_at: u64,
    used: PermitUse,
}

/// Usage of the attempt.
#[derive(Clone, Copy, Debug)]
enum PermitUse {
    /// No request was sent: nothing counts.
    Nothing,
    /// A request was sent and its tokens are unknown: the estimate counts.
    Request,
    /// A request was sent and used this many tokens.
    Tokens(u64),
}

impl Permit {
    fn of(held: HeldPermit) -> Self {
        let (row, held) = (held.row, Some(Box::new(held)));
        match row {
            LimitedId::Channel(_) => Self([held, None]),
            LimitedId::Account(_) => Self([None, held]),
        }
    }

    /// Whether it holds capacity of this account or channel.
    pub(crate) fn is_on(&self, row: LimitedId) -> bool {
        self.0.iter().flatten().any(|held| held.row == row)
    }

    /// The permit's part for these rows. The rest is released.
    pub(crate) fn only(mut self, rows: [LimitedRow; 2]) -> Self {
        let mut part = Self::default();
        for ((row, held), kept) in rows.iter().zip(&mut self.0).zip(&mut part.0) {
            if held.as_ref().is_some_and(|held| held.row == row.id) {
                *kept = held.take();
            }
        }
        part
    }

    /// Whether usage is counted.
    pub(crate) fn counts(&self) -> bool {
        self.0.iter().any(Option::is_some)
    }

    pub(crate) fn begin(&mut self) {
        self.set_use(PermitUse::Request);
    }

    /// Reverts [`Self::begin`]: no byte of the request was sent.
    pub(crate) fn mark_unsent(&mut self) {
        self.set_use(PermitUse::Nothing);
    }

    pub(crate) fn used_tokens(&mut self, tokens: u64) {
        self.set_use(PermitUse::Tokens(tokens));
    }

    fn set_use(&mut self, used: PermitUse) {
        self.0.iter_mut().flatten().for_each(|held| held.used = used);
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        // The account is released first, so that a waiter of the channel finds it free.
        for held in self.0.iter_mut().rev().filter_map(Option::take) {
            let limiters = Arc::clone(&held.limiters);
            limiters.release(&held);
        }
    }
}

#[cfg(test)]
mod tests;
