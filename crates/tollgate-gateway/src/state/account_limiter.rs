//! Room on accounts: requests at once, requests and tokens a minute, counted for all cores together.
//!
//! Capacity is reserved before an attempt begins and held as a [`Permit`], which releases it on drop:
//! once, whatever ended the attempt. A released permit goes to the next waiter directly, so
//! that no waiter is overtaken. Accounts without a bound are not counted at all.
//!
//! Bounds: 100 waiters an account, each for as long as its caller says, at no more than 16 accounts.

mod permit;
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
    state::account_map::{AccountMap, AccountSnapshot},
};
use permit::{HeldPermit, PermitUse};
use queue::FairQueue;
use usage::AtCapacity;

pub use permit::Permit;
pub use usage::AccountUsage;
pub(crate) use wait_queue::{AcquireOutcome, WaitQueue};

/// Room on the accounts that have a bound.
#[derive(Debug)]
pub(crate) struct AccountLimiters {
    clock: Arc<dyn Clock>,
    begun: Instant,
    places: AccountMap<AccountLimiter>,
    waits: AtomicU64,
}

/// One account's room. Changing it locks it; whether there is some can mostly be read without.
#[derive(Debug, Default)]
struct AccountLimiter {
    room: Mutex<LimiterState>,
    /// Requests at once.
    running: AtomicU32,
    /// Requests and tokens of a minute when they changed last: it is never more until they change again.
    requests: AtomicU64,
    tokens: AtomicU64,
}

impl AccountLimiter {
    fn with<T>(&self, now: u64, act: impl FnOnce(&mut LimiterState) -> T) -> T {
        let mut room = self.room.lock().unwrap_or_else(PoisonError::into_inner);
        let done = act(&mut room);
        self.running.store(room.in_use.running, Ordering::Relaxed);
        self.requests.store(room.in_use.requests.used(now), Ordering::Relaxed);
        self.tokens.store(room.in_use.tokens.used(now), Ordering::Relaxed);
        done
    }

    /// Why there is no room now.
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
        self.room.lock().unwrap_or_else(PoisonError::into_inner).full(bounds, tokens, now())
    }
}

/// What is in use of one account.
#[derive(Debug, Default)]
struct LimiterState {
    in_use: AccountUsage,
    queue: FairQueue,
}

impl AccountLimiters {
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Arc<Self> {
        let begun = clock.instant();
        Arc::new(Self { clock, begun, places: AccountMap::default(), waits: AtomicU64::new(0) })
    }

    /// All accounts as they are, for one choice.
    pub(crate) fn snapshot(&self) -> LimiterSnapshot<'_> {
        LimiterSnapshot { limiters: self, places: self.places.snapshot() }
    }

    /// Whether an account has room for a request that is estimated at `tokens`.
    pub(crate) fn load(&self, account: &Account, tokens: u64) -> AccountLoad {
        self.snapshot().load(account.id, account.limits(), tokens)
    }

    /// Sets room aside, if there is some.
    pub(crate) fn try_acquire(self: &Arc<Self>, account: &Account, tokens: u64) -> Option<Permit> {
        let bounds = account.limits();
        if !bounds.any() {
            return Some(Permit(None));
        }
        let (place, now) = (self.places.get_or_insert(account.id), self.micros());
        place
            .with(now, |room| room.full(bounds, tokens, now).is_none().then(|| self.reserve(&place, room, account.id, tokens, now)))
    }

    /// These accounts are configured now: makes room for those with bounds, so that no request has to, and forgets all
    /// others that are unused.
    pub(crate) fn configure<'a>(&self, accounts: impl IntoIterator<Item = &'a Account>) {
        let bounded = accounts.into_iter().filter(|account| account.limits().any()).map(|account| account.id);
        self.places.configure(bounded, |place| place.running.load(Ordering::Relaxed) > 0);
    }

    fn reserve(
        self: &Arc<Self>,
        place: &Arc<AccountLimiter>,
        room: &mut LimiterState,
        account: AccountId,
        tokens: u64,
        now: u64,
    ) -> Permit {
        room.in_use.running += 1;
        let requests_at = room.in_use.requests.add(1, now);
        let tokens_at = room.in_use.tokens.add(tokens, now);
        let (limiters, place) = (Arc::clone(self), Arc::clone(place));
        Permit(Some(HeldPermit { limiters, place, account, tokens, requests_at, tokens_at, used: PermitUse::Nothing }))
    }

    /// Gives room back and hands what is free now to those who wait.
    fn release(self: &Arc<Self>, held: &HeldPermit) {
        let now = self.micros();
        held.place.with(now, |room| {
            room.release(held, now);
            while let Some(turn) = room.queue.next(room.in_use.running) {
                if room.full(turn.bounds, turn.tokens, now).is_some() {
                    turn.hand.wake();
                    continue;
                }
                let permit = self.reserve(&held.place, room, held.account, turn.tokens, now);
                if let Some(mut refused) = turn.hand.offer(permit)
                    && let Some(refused) = mem::take(&mut refused.0)
                {
                    // The waiter has left or was served by another account. Dropping the permit would lock the room again.
                    room.release(&refused, now);
                }
            }
        });
    }

    /// Requests that hold room on an account.
    #[cfg(test)]
    pub(crate) fn running(&self, account: AccountId) -> u32 {
        self.places.get_or_insert(account).with(0, |room| room.in_use.running)
    }

    /// Requests that wait for room on an account.
    #[cfg(test)]
    pub(crate) fn waiting(&self, account: AccountId) -> usize {
        self.places.get_or_insert(account).with(0, |room| room.queue.len())
    }

    /// What is in use of an account.
    pub(crate) fn in_use(&self, account: AccountId) -> AccountUsage {
        let Some(place) = self.places.get(account) else { return AccountUsage::default() };
        place.room.lock().unwrap_or_else(PoisonError::into_inner).in_use
    }

    /// The time limiters count in.
    pub(crate) fn micros(&self) -> u64 {
        u64::try_from(self.clock.instant().saturating_duration_since(self.begun).as_micros()).unwrap_or(u64::MAX)
    }
}

/// All accounts' room as choosing reads it: for one choice, not to be kept.
pub(crate) struct LimiterSnapshot<'a> {
    limiters: &'a AccountLimiters,
    places: AccountSnapshot<AccountLimiter>,
}

impl LimiterSnapshot<'_> {
    /// Whether an account has room for a request that is estimated at `tokens`.
    pub(crate) fn load(&self, account: AccountId, bounds: Bounds, tokens: u64) -> AccountLoad {
        if !bounds.any() {
            return AccountLoad::Free;
        }
        let Some(place) = self.places.get(account) else { return AccountLoad::Free };
        match place.full(bounds, tokens, || self.limiters.micros()) {
            None => AccountLoad::Free,
            Some(AtCapacity::AtConcurrency) => AccountLoad::AtConcurrency,
            Some(AtCapacity::AtRate { wait_ms }) => {
                let wait_ms = i64::try_from(wait_ms).unwrap_or(i64::MAX);
                AccountLoad::AtRate { until: self.limiters.clock.now().plus_ms(wait_ms) }
            }
        }
    }
}

impl LimiterState {
    fn full(&self, bounds: Bounds, tokens: u64, now: u64) -> Option<AtCapacity> {
        self.in_use.full(bounds, tokens, now)
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

#[cfg(test)]
mod tests;
