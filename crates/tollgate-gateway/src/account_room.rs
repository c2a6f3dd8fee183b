//! Room on accounts: requests at once, requests and tokens a minute, counted for all cores together.
//!
//! Room is set aside before an attempt begins and carried by it as a [`Slot`], which gives it back when it is dropped:
//! once, whatever ended the attempt. A slot that comes free goes to whoever waits for it, never back to the crowd, so
//! that nobody is overtaken. Accounts without a bound are not counted at all.
//!
//! Bounds: 100 waiters an account, each for as long as its caller says, at no more than 16 accounts.

mod queue;

use std::{
    collections::HashMap,
    mem,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use tokio::{
    sync::oneshot,
    time::{Instant, timeout_at},
};
use tollgate_core::{Account, AccountId, AccountLoad, KeyId, Sliding};

use crate::Clock;
use queue::{Hand, Queue, Turn};

const SHARDS: usize = 16;
/// Accounts that one request waits for.
const MOST_AWAITED: usize = 16;

/// Room on the accounts that have a bound.
#[derive(Debug)]
pub(crate) struct AccountRooms {
    clock: Arc<dyn Clock>,
    begun: Instant,
    shards: [Mutex<HashMap<AccountId, Room>>; SHARDS],
    waits: AtomicU64,
}

/// What is in use of one account.
#[derive(Debug, Default)]
struct Room {
    running: u32,
    requests: Sliding,
    tokens: Sliding,
    queue: Queue,
}

/// What an account allows; 0 is unbounded.
#[derive(Clone, Copy, Debug)]
struct Bounds {
    concurrency: u32,
    rpm: u32,
    tpm: u64,
}

impl Bounds {
    const fn of(account: &Account) -> Self {
        Self { concurrency: account.concurrency, rpm: account.rpm, tpm: account.tpm }
    }

    const fn any(self) -> bool {
        self.concurrency != 0 || self.rpm != 0 || self.tpm != 0
    }
}

/// Why there is no room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Full {
    AtConcurrency,
    AtRate { wait_ms: u64 },
}

/// How waiting ended.
#[derive(Debug)]
pub(crate) enum Waited {
    /// Room is set aside.
    Slot(Slot),
    /// Something changed that is no room: choosing again says what.
    LookAgain,
    /// Nothing came free, or nobody may wait any more.
    InVain,
}

impl AccountRooms {
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Arc<Self> {
        let begun = clock.instant();
        Arc::new(Self { clock, begun, shards: Default::default(), waits: AtomicU64::new(0) })
    }

    /// Whether an account has room for a request that is estimated at `tokens`.
    pub(crate) fn load(&self, account: &Account, tokens: u64) -> AccountLoad {
        let bounds = Bounds::of(account);
        if !bounds.any() {
            return AccountLoad::Free;
        }
        let full = self.shard(account.id).get(&account.id).and_then(|room| room.full(bounds, tokens, self.micros()));
        match full {
            None => AccountLoad::Free,
            Some(Full::AtConcurrency) => AccountLoad::AtConcurrency,
            Some(Full::AtRate { wait_ms }) => {
                let wait_ms = i64::try_from(wait_ms).unwrap_or(i64::MAX);
                AccountLoad::AtRate { until: self.clock.now().plus_ms(wait_ms) }
            }
        }
    }

    /// Sets room aside, if there is some.
    pub(crate) fn take(self: &Arc<Self>, account: &Account, tokens: u64) -> Option<Slot> {
        let bounds = Bounds::of(account);
        if !bounds.any() {
            return Some(Slot(None));
        }
        let now = self.micros();
        let mut shard = self.shard(account.id);
        let room = shard.entry(account.id).or_default();
        room.full(bounds, tokens, now).is_none().then(|| self.occupy(room, account.id, tokens, now))
    }

    /// Waits for room on one of these accounts, the keys that wait for it taking turns.
    pub(crate) async fn wait(self: &Arc<Self>, accounts: &[Arc<Account>], key: KeyId, tokens: u64, until: Instant) -> Waited {
        let (sender, receiver) = oneshot::channel();
        let hand = Hand::new(sender);
        // Dropped before the receiver: what is handed over in between is given back by the receiver's own end.
        let mut line = Line { rooms: self, number: self.waits.fetch_add(1, Ordering::Relaxed), accounts: Vec::new() };
        for account in accounts.iter().take(MOST_AWAITED) {
            let bounds = Bounds::of(account);
            let now = self.micros();
            let mut shard = self.shard(account.id);
            let room = shard.entry(account.id).or_default();
            match room.full(bounds, tokens, now) {
                None => return Waited::Slot(self.occupy(room, account.id, tokens, now)),
                Some(Full::AtRate { .. }) => {}
                Some(Full::AtConcurrency) => {
                    if room.queue.join(key, Turn { number: line.number, bounds, tokens, hand: hand.clone() }) {
                        line.accounts.push(account.id);
                    }
                }
            }
        }
        drop(hand);
        if line.accounts.is_empty() {
            return Waited::InVain;
        }
        match timeout_at(until, receiver).await {
            Ok(Ok(Some(slot))) => Waited::Slot(slot),
            Ok(Ok(None)) => Waited::LookAgain,
            Ok(Err(_)) | Err(_) => Waited::InVain,
        }
    }

    /// Forgets accounts that are no longer configured and that nobody uses.
    pub(crate) fn retain(&self, configured: impl Fn(AccountId) -> bool) {
        for shard in &self.shards {
            let mut shard = shard.lock().unwrap_or_else(PoisonError::into_inner);
            shard.retain(|account, room| room.running > 0 || configured(*account));
        }
    }

    fn occupy(self: &Arc<Self>, room: &mut Room, account: AccountId, tokens: u64, now: u64) -> Slot {
        room.running += 1;
        let requests_at = room.requests.take(1, now);
        let tokens_at = room.tokens.take(tokens, now);
        Slot(Some(Held { rooms: Arc::clone(self), account, tokens, requests_at, tokens_at, used: Used::Nothing }))
    }

    /// Gives room back and hands what is free now to those who wait.
    fn release(self: &Arc<Self>, held: &Held) {
        let now = self.micros();
        let mut shard = self.shard(held.account);
        let Some(room) = shard.get_mut(&held.account) else { return };
        room.vacate(held, now);
        while let Some(turn) = room.queue.next(room.running) {
            if room.full(turn.bounds, turn.tokens, now).is_some() {
                turn.hand.wake();
                continue;
            }
            let slot = self.occupy(room, held.account, turn.tokens, now);
            if let Some(mut refused) = turn.hand.offer(slot)
                && let Some(refused) = mem::take(&mut refused.0)
            {
                // Whoever waited has left or was served elsewhere. Dropping the slot would lock the shard again.
                room.vacate(&refused, now);
            }
        }
    }

    fn leave(&self, account: AccountId, number: u64) {
        if let Some(room) = self.shard(account).get_mut(&account) {
            room.queue.leave(number);
        }
    }

    /// Requests that hold room on an account.
    #[cfg(test)]
    pub(crate) fn running(&self, account: AccountId) -> u32 {
        self.shard(account).get(&account).map_or(0, |room| room.running)
    }

    /// Requests that wait for room on an account.
    #[cfg(test)]
    pub(crate) fn waiting(&self, account: AccountId) -> usize {
        self.shard(account).get(&account).map_or(0, |room| room.queue.len())
    }

    fn micros(&self) -> u64 {
        u64::try_from(self.clock.instant().saturating_duration_since(self.begun).as_micros()).unwrap_or(u64::MAX)
    }

    fn shard(&self, account: AccountId) -> MutexGuard<'_, HashMap<AccountId, Room>> {
        // The last bytes of a version 7 uuid are random.
        let place = usize::from(account.uuid().as_bytes()[15]) % SHARDS;
        self.shards[place].lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Room {
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

    fn vacate(&mut self, held: &Held, now: u64) {
        self.running = self.running.saturating_sub(1);
        match held.used {
            Used::Nothing => {
                self.requests.correct(held.requests_at, 1, 0, now);
                self.tokens.correct(held.tokens_at, held.tokens, 0, now);
            }
            Used::Request => {}
            Used::Tokens(actual) => self.tokens.correct(held.tokens_at, held.tokens, actual, now),
        }
    }
}

/// Room on one account, given back when dropped. Empty for an account without a bound.
#[derive(Debug)]
pub(crate) struct Slot(Option<Held>);

#[derive(Debug)]
struct Held {
    rooms: Arc<AccountRooms>,
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

/// Somebody's places in queues, left when dropped.
struct Line<'a> {
    rooms: &'a AccountRooms,
    number: u64,
    accounts: Vec<AccountId>,
}

impl Drop for Line<'_> {
    fn drop(&mut self) {
        for account in &self.accounts {
            self.rooms.leave(*account, self.number);
        }
    }
}

#[cfg(test)]
mod tests;
