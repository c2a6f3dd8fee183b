//! Room on accounts: requests at once, requests and tokens a minute, counted for all cores together.
//!
//! Room is set aside before an attempt begins and carried by it as a [`Slot`], which gives it back when it is dropped:
//! once, whatever ended the attempt. A slot that comes free goes to whoever waits for it, never back to the crowd, so
//! that nobody is overtaken. Accounts without a bound are not counted at all.
//!
//! Bounds: 100 waiters an account, each for as long as its caller says, at no more than 16 accounts.

mod in_use;
mod line;
mod queue;
mod slot;

use std::{
    mem,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU32, AtomicU64, Ordering},
    },
};

use tokio::time::Instant;
use tollgate_core::{Account, AccountBounds as Bounds, AccountId, AccountLoad};

use crate::{
    Clock,
    account_places::{AccountPlaces, PlacesLook},
};
use in_use::Full;
use queue::Queue;
use slot::{Held, Used};

pub use in_use::InUse;
pub(crate) use line::{Joined, Line};
pub use slot::Slot;

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

#[cfg(test)]
mod tests;
