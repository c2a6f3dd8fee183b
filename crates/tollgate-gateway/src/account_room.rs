//! Room on accounts: requests at once, requests and tokens a minute, counted for all cores together.
//!
//! Room is set aside before an attempt begins and carried by it as a [`Slot`], which gives it back when it is dropped:
//! once, whatever ended the attempt. A slot that comes free goes to whoever waits for it, never back to the crowd, so
//! that nobody is overtaken. Accounts without a bound are not counted at all.
//!
//! Bounds: 100 waiters an account, each for as long as its caller says, at no more than 16 accounts.

mod line;
mod queue;

use std::{
    mem,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU32, AtomicU64, Ordering},
    },
};

use serde::{Deserialize, Serialize};
use tokio::time::Instant;
use tollgate_core::{Account, AccountBounds as Bounds, AccountId, AccountLoad, Sliding, Timestamp};

use crate::{
    Clock,
    account_places::{AccountPlaces, PlacesLook},
};
use queue::Queue;

pub(crate) use line::{Joined, Line};

/// Room on the accounts that have a bound.
#[derive(Debug)]
pub(crate) struct AccountRooms {
    clock: Arc<dyn Clock>,
    begun: Instant,
    places: AccountPlaces<Place>,
    waits: AtomicU64,
}

/// One account's room. Changing it locks it; whether there is some can mostly be read without.
#[derive(Debug, Default)]
struct Place {
    room: Mutex<Room>,
    /// Requests at once.
    running: AtomicU32,
    /// Requests and tokens of a minute when they changed last: it is never more until they change again.
    requests: AtomicU64,
    tokens: AtomicU64,
}

impl Place {
    fn with<T>(&self, now: u64, act: impl FnOnce(&mut Room) -> T) -> T {
        let mut room = self.room.lock().unwrap_or_else(PoisonError::into_inner);
        let done = act(&mut room);
        self.running.store(room.in_use.running, Ordering::Relaxed);
        self.requests.store(room.in_use.requests.used(now), Ordering::Relaxed);
        self.tokens.store(room.in_use.tokens.used(now), Ordering::Relaxed);
        done
    }

    /// Why there is no room now.
    fn full(&self, bounds: Bounds, tokens: u64, now: impl FnOnce() -> u64) -> Option<Full> {
        if bounds.concurrency != 0 && self.running.load(Ordering::Relaxed) >= bounds.concurrency {
            return Some(Full::AtConcurrency);
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
struct Room {
    in_use: InUse,
    queue: Queue,
}

/// What of an account's bounds is in use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct InUse {
    /// Requests at once.
    pub running: u32,
    /// Requests of a minute.
    pub requests: Sliding,
    /// Tokens of a minute.
    pub tokens: Sliding,
}

impl InUse {
    /// Whether anything is, at a time in monotonic microseconds.
    pub(crate) fn any(&self, now: u64) -> bool {
        self.running > 0 || self.requests.used(now) > 0 || self.tokens.used(now) > 0
    }

    /// Whether a request that is estimated at `tokens` finds room. `now` is a time in monotonic microseconds, `at` the same
    /// by the clock.
    pub(crate) fn load(&self, bounds: Bounds, tokens: u64, now: u64, at: Timestamp) -> AccountLoad {
        match self.full(bounds, tokens, now) {
            None => AccountLoad::Free,
            Some(Full::AtConcurrency) => AccountLoad::AtConcurrency,
            Some(Full::AtRate { wait_ms }) => AccountLoad::AtRate { until: at.plus_ms(i64::try_from(wait_ms).unwrap_or(i64::MAX)) },
        }
    }

    fn full(&self, bounds: Bounds, tokens: u64, now: u64) -> Option<Full> {
        if bounds.concurrency != 0 && self.running >= bounds.concurrency {
            return Some(Full::AtConcurrency);
        }
        let mut wait_ms = 0;
        if bounds.rpm != 0 {
            wait_ms = self.requests.wait_ms(1, u64::from(bounds.rpm), now);
        }
        if bounds.tpm != 0 {
            // What is estimated at more than a whole minute's tokens goes when nothing else does.
            wait_ms = wait_ms.max(self.tokens.wait_ms(tokens.min(bounds.tpm), bounds.tpm, now));
        }
        (wait_ms > 0).then_some(Full::AtRate { wait_ms })
    }
}

/// Why there is no room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Full {
    AtConcurrency,
    AtRate { wait_ms: u64 },
}

impl AccountRooms {
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Arc<Self> {
        let begun = clock.instant();
        Arc::new(Self { clock, begun, places: AccountPlaces::default(), waits: AtomicU64::new(0) })
    }

    /// All accounts as they are, for one choice.
    pub(crate) fn look(&self) -> RoomsLook<'_> {
        RoomsLook { rooms: self, places: self.places.look() }
    }

    /// Whether an account has room for a request that is estimated at `tokens`.
    pub(crate) fn load(&self, account: &Account, tokens: u64) -> AccountLoad {
        self.look().load(account.id, account.bounds(), tokens)
    }

    /// Sets room aside, if there is some.
    pub(crate) fn take(self: &Arc<Self>, account: &Account, tokens: u64) -> Option<Slot> {
        let bounds = account.bounds();
        if !bounds.any() {
            return Some(Slot(None));
        }
        let (place, now) = (self.places.get_or_make(account.id), self.micros());
        place.with(now, |room| room.full(bounds, tokens, now).is_none().then(|| self.occupy(&place, room, account.id, tokens, now)))
    }

    /// These accounts are configured now: makes room for those with bounds, so that no request has to, and forgets all
    /// others that nobody uses.
    pub(crate) fn configure<'a>(&self, accounts: impl IntoIterator<Item = &'a Account>) {
        let bounded = accounts.into_iter().filter(|account| account.bounds().any()).map(|account| account.id);
        self.places.configure(bounded, |place| place.running.load(Ordering::Relaxed) > 0);
    }

    fn occupy(self: &Arc<Self>, place: &Arc<Place>, room: &mut Room, account: AccountId, tokens: u64, now: u64) -> Slot {
        room.in_use.running += 1;
        let requests_at = room.in_use.requests.take(1, now);
        let tokens_at = room.in_use.tokens.take(tokens, now);
        let (rooms, place) = (Arc::clone(self), Arc::clone(place));
        Slot(Some(Held { rooms, place, account, tokens, requests_at, tokens_at, used: Used::Nothing }))
    }

    /// Gives room back and hands what is free now to those who wait.
    fn release(self: &Arc<Self>, held: &Held) {
        let now = self.micros();
        held.place.with(now, |room| {
            room.vacate(held, now);
            while let Some(turn) = room.queue.next(room.in_use.running) {
                if room.full(turn.bounds, turn.tokens, now).is_some() {
                    turn.hand.wake();
                    continue;
                }
                let slot = self.occupy(&held.place, room, held.account, turn.tokens, now);
                if let Some(mut refused) = turn.hand.offer(slot)
                    && let Some(refused) = mem::take(&mut refused.0)
                {
                    // Whoever waited has left or was served elsewhere. Dropping the slot would lock the room again.
                    room.vacate(&refused, now);
                }
            }
        });
    }

    /// Requests that hold room on an account.
    #[cfg(test)]
    pub(crate) fn running(&self, account: AccountId) -> u32 {
        self.places.get_or_make(account).with(0, |room| room.in_use.running)
    }

    /// Requests that wait for room on an account.
    #[cfg(test)]
    pub(crate) fn waiting(&self, account: AccountId) -> usize {
        self.places.get_or_make(account).with(0, |room| room.queue.len())
    }

    /// What is in use of an account.
    pub(crate) fn in_use(&self, account: AccountId) -> InUse {
        let Some(place) = self.places.get(account) else { return InUse::default() };
        place.room.lock().unwrap_or_else(PoisonError::into_inner).in_use
    }

    /// The time rooms count in.
    pub(crate) fn micros(&self) -> u64 {
        u64::try_from(self.clock.instant().saturating_duration_since(self.begun).as_micros()).unwrap_or(u64::MAX)
    }
}

/// All accounts' room as choosing reads it: for one choice, not to be kept.
pub(crate) struct RoomsLook<'a> {
    rooms: &'a AccountRooms,
    places: PlacesLook<Place>,
}

impl RoomsLook<'_> {
    /// Whether an account has room for a request that is estimated at `tokens`.
    pub(crate) fn load(&self, account: AccountId, bounds: Bounds, tokens: u64) -> AccountLoad {
        if !bounds.any() {
            return AccountLoad::Free;
        }
        let Some(place) = self.places.get(account) else { return AccountLoad::Free };
        match place.full(bounds, tokens, || self.rooms.micros()) {
            None => AccountLoad::Free,
            Some(Full::AtConcurrency) => AccountLoad::AtConcurrency,
            Some(Full::AtRate { wait_ms }) => {
                let wait_ms = i64::try_from(wait_ms).unwrap_or(i64::MAX);
                AccountLoad::AtRate { until: self.rooms.clock.now().plus_ms(wait_ms) }
            }
        }
    }
}

impl Room {
    fn full(&self, bounds: Bounds, tokens: u64, now: u64) -> Option<Full> {
        self.in_use.full(bounds, tokens, now)
    }

    fn vacate(&mut self, held: &Held, now: u64) {
        self.in_use.running = self.in_use.running.saturating_sub(1);
        match held.used {
            Used::Nothing => {
                self.in_use.requests.correct(held.requests_at, 1, 0, now);
                self.in_use.tokens.correct(held.tokens_at, held.tokens, 0, now);
            }
            Used::Request => {}
            Used::Tokens(actual) => self.in_use.tokens.correct(held.tokens_at, held.tokens, actual, now),
        }
    }
}

/// Room on one account, given back when dropped. Empty for an account without a bound.
#[derive(Debug)]
pub struct Slot(Option<Held>);

#[derive(Debug)]
struct Held {
    rooms: Arc<AccountRooms>,
    place: Arc<Place>,
    account: AccountId,
    tokens: u64,
    requests_at: u64,
    tokens_at: u64,
    used: Used,
}

/// What came of it.
#[derive(Clone, Copy, Debug)]
enum Used {
    /// Nothing was sent: nothing counts.
    Nothing,
    /// A request was sent; what it used is not known, so the estimate counts.
    Request,
    /// A request was sent and used so many tokens.
    Tokens(u64),
}

impl Slot {
    /// Whether it is room on this account.
    pub(crate) fn is_on(&self, account: AccountId) -> bool {
        self.0.as_ref().is_some_and(|held| held.account == account)
    }

    /// Whether anybody wants to know what it was used for.
    pub(crate) const fn counts(&self) -> bool {
        self.0.is_some()
    }

    /// The attempt begins.
    pub(crate) fn begin(&mut self) {
        self.used(Used::Request);
    }

    /// Nothing was sent after all.
    pub(crate) fn not_sent(&mut self) {
        self.used(Used::Nothing);
    }

    /// The attempt used so many tokens.
    pub(crate) fn used_tokens(&mut self, tokens: u64) {
        self.used(Used::Tokens(tokens));
    }

    fn used(&mut self, used: Used) {
        if let Some(held) = &mut self.0 {
            held.used = used;
        }
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        if let Some(held) = self.0.take() {
            let rooms = Arc::clone(&held.rooms);
            rooms.release(&held);
        }
    }
}

#[cfg(test)]
mod tests;
