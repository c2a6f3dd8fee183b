//! Concurrency and rate limits of accounts: concurrent requests, requests and tokens per minute, counted over all cores.
//!
//! An attempt acquires a [`Permit`] before it begins; dropping the permit releases it, however the attempt ended. A
//! released permit is handed to the next waiter directly, so new requests cannot overtake waiting ones. Accounts without
//! a limit are not counted.
//!
//! Bounds: 100 waiters per account; one request waits at no more than 16 accounts, for a time its caller chooses.

mod queue;
mod usage;
mod wait_queue;

use std::{
    mem,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU32, AtomicU64, Ordering},
    },
};

use tokio::time::Instant;
use tollgate_core::{Account, AccountId, AccountLimits as Bounds, AccountLoad};

use crate::{
    clock::Clock,
    state::{
        account_map::{AccountMap, AccountSnapshot},
        shares::FairQueue,
    },
};
use queue::{Waiter, account_queue};
use usage::AtCapacity;

pub use usage::AccountUsage;
pub(crate) use wait_queue::{AcquireOutcome, QueuedAcquire};

/// The limiters of all accounts that have a limit.
#[derive(Debug)]
pub(crate) struct AccountLimiters {
    clock: Arc<dyn Clock>,
    started: Instant,
    entries: AccountMap<AccountLimiter>,
}

/// One account's limiter. Changes take the lock; checks for capacity mostly read the atomics only.
#[derive(Debug, Default)]
struct AccountLimiter {
    state: Mutex<LimiterState>,
    running: AtomicU32,
    /// Requests and tokens of the last minute at the time of the last change. They only fall until the next change.
    requests: AtomicU64,
    tokens: AtomicU64,
}

impl AccountLimiter {
    fn with<T>(&self, now: u64, act: impl FnOnce(&mut LimiterState) -> T) -> T {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let done = act(&mut state);
        self.running.store(state.in_use.running, Ordering::Relaxed);
        self.requests.store(state.in_use.requests.used(now), Ordering::Relaxed);
        self.tokens.store(state.in_use.tokens.used(now), Ordering::Relaxed);
        done
    }

    /// Why the account is at capacity; `None` when the request fits.
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
    in_use: AccountUsage,
    queue: FairQueue<Waiter>,
}

impl Default for LimiterState {
    fn default() -> Self {
        Self { in_use: AccountUsage::default(), queue: account_queue() }
    }
}

impl AccountLimiters {
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Arc<Self> {
        let started = clock.instant();
        Arc::new(Self { clock, started, entries: AccountMap::default() })
    }

    /// The limiters at this moment, for one routing decision.
    pub(crate) fn snapshot(&self) -> LimiterSnapshot<'_> {
        LimiterSnapshot { limiters: self, entries: self.entries.snapshot() }
    }

    /// Whether an account has capacity for a request estimated at `tokens`.
    pub(crate) fn load(&self, account: &Account, tokens: u64) -> AccountLoad {
        self.snapshot().load(account.id, account.limits(), tokens)
    }

    /// Acquires a permit, if the account has capacity.
    pub(crate) fn try_acquire(self: &Arc<Self>, account: &Account, tokens: u64) -> Option<Permit> {
        let bounds = account.limits();
        if !bounds.any() {
            return Some(Permit(None));
        }
        let (entry, now) = (self.entries.get_or_insert(account.id), self.micros());
        entry.with(now, |state| {
            state.in_use.full(bounds, tokens, now).is_none().then(|| self.reserve(&entry, state, account.id, tokens, now))
        })
    }

    /// Creates entries for the configured accounts that have limits, so that requests need not, and drops all other
    /// entries without running requests.
    pub(crate) fn configure<'a>(&self, accounts: impl IntoIterator<Item = &'a Account>) {
        let bounded = accounts.into_iter().filter(|account| account.limits().any()).map(|account| account.id);
        self.entries.configure(bounded, |entry| entry.running.load(Ordering::Relaxed) > 0);
    }

    fn reserve(
        self: &Arc<Self>,
        entry: &Arc<AccountLimiter>,
        state: &mut LimiterState,
        account: AccountId,
        tokens: u64,
        now: u64,
    ) -> Permit {
        state.in_use.running += 1;
        let requests_at = state.in_use.requests.add(1, now);
        let tokens_at = state.in_use.tokens.add(tokens, now);
        let (limiters, entry) = (Arc::clone(self), Arc::clone(entry));
        Permit(Some(HeldPermit { limiters, entry, account, tokens, requests_at, tokens_at, used: PermitUse::Nothing }))
    }

    /// Releases a permit and hands free capacity to waiters.
    fn release(self: &Arc<Self>, held: &HeldPermit) {
        let now = self.micros();
        held.entry.with(now, |state| {
            state.release(held, now);
            while let Some(waiter) = state.next() {
                if state.in_use.full(waiter.bounds, waiter.tokens, now).is_some() {
                    waiter.handoff.wake();
                    continue;
                }
                let permit = self.reserve(&held.entry, state, held.account, waiter.tokens, now);
                if let Some(mut refused) = waiter.handoff.offer(permit)
                    && let Some(refused) = mem::take(&mut refused.0)
                {
                    // The waiter has left or was served by another account. Dropping the permit would lock the state again.
                    state.release(&refused, now);
                }
            }
        });
    }

    pub(crate) fn in_use(&self, account: AccountId) -> AccountUsage {
        let Some(entry) = self.entries.get(account) else { return AccountUsage::default() };
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
    limiters: &'a AccountLimiters,
    entries: AccountSnapshot<AccountLimiter>,
}

impl LimiterSnapshot<'_> {
    /// Whether an account has capacity for a request estimated at `tokens`.
    pub(crate) fn load(&self, account: AccountId, bounds: Bounds, tokens: u64) -> AccountLoad {
        if !bounds.any() {
            return AccountLoad::Free;
        }
        let Some(entry) = self.entries.get(account) else { return AccountLoad::Free };
        match entry.full(bounds, tokens, || self.limiters.micros()) {
            None => AccountLoad::Free,
            Some(full) => full.load(|| self.limiters.clock.now()),
        }
    }
}

impl LimiterState {
    /// The next waiter whose concurrency limit allows another request.
    fn next(&mut self) -> Option<Waiter> {
        let running = self.in_use.running;
        self.queue.next(|waiter| waiter.bounds.concurrency == 0 || running < waiter.bounds.concurrency)
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

/// Reserved capacity on one account, released when dropped. Empty for an account without a limit.
#[derive(Debug)]
pub struct Permit(Option<HeldPermit>);

#[derive(Debug)]
struct HeldPermit {
    limiters: Arc<AccountLimiters>,
    entry: Arc<AccountLimiter>,
    account: AccountId,
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
    pub(crate) fn is_on(&self, account: AccountId) -> bool {
        self.0.as_ref().is_some_and(|held| held.account == account)
    }

    /// Whether usage of the account is counted.
    pub(crate) const fn counts(&self) -> bool {
        self.0.is_some()
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
        if let Some(held) = &mut self.0 {
            held.used = used;
        }
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        if let Some(held) = self.0.take() {
            let limiters = Arc::clone(&held.limiters);
            limiters.release(&held);
        }
    }
}

#[cfg(test)]
mod tests;
