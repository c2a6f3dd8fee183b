//! Waiting for room: one request's places in the queues of several accounts, and what is handed to it there.

use std::{mem, sync::Arc};

use tokio::sync::oneshot;
use tollgate_core::{Account, AccountId, KeyId};

use super::{
    AccountRooms, Bounds, Full, Ordering, Place, PoisonError, Slot,
    queue::{Hand, Turn},
};

/// Accounts that one request waits for.
const MOST_AWAITED: usize = 16;

/// What came of joining.
#[derive(Debug)]
pub(crate) enum Joined {
    /// There was room.
    Slot(Slot),
    /// The request stands in line.
    Line(Line),
    /// Nobody may wait any more.
    Nowhere,
}

/// Somebody's places in queues, left when dropped. Whoever stands in line may look elsewhere meanwhile without losing its
/// turn.
#[derive(Debug)]
pub(crate) struct Line {
    places: Places,
    /// Dropped after the places: what is handed over in between is given back by the receiver's own end.
    receiver: oneshot::Receiver<Option<Slot>>,
    accounts: Vec<(AccountId, Bounds)>,
}

/// Left when dropped.
#[derive(Debug)]
struct Places {
    number: u64,
    queues: Vec<Arc<Place>>,
}

impl AccountRooms {
    /// Joins the queues of these accounts, the keys that wait there taking turns.
    pub(crate) fn join(self: &Arc<Self>, accounts: &[Arc<Account>], key: KeyId, tokens: u64) -> Joined {
        let (sender, receiver) = oneshot::channel();
        let hand = Hand::new(sender);
        let number = self.waits.fetch_add(1, Ordering::Relaxed);
        let mut line = Line { places: Places { number, queues: Vec::new() }, receiver, accounts: awaited(accounts).collect() };
        for account in accounts.iter().take(MOST_AWAITED) {
            let bounds = account.bounds();
            let (place, now) = (self.places.get_or_make(account.id), self.micros());
            let (slot, joined) = place.with(now, |room| match room.full(bounds, tokens, now) {
                None => (Some(self.occupy(&place, room, account.id, tokens, now)), false),
                Some(Full::AtRate { .. }) => (None, false),
                Some(Full::AtConcurrency) => (None, room.queue.join(key, Turn { number, bounds, tokens, hand: hand.clone() })),
            });
            if let Some(slot) = slot {
                return Joined::Slot(slot);
            }
            if joined {
                line.places.queues.push(place);
            }
        }
        if line.places.queues.is_empty() { Joined::Nowhere } else { Joined::Line(line) }
    }
}

impl Line {
    /// Whether it was joined for these accounts, with the bounds they have now.
    pub(crate) fn is_for(&self, accounts: &[Arc<Account>]) -> bool {
        awaited(accounts).eq(self.accounts.iter().copied())
    }

    /// Waits for room. `None`: something changed that is no room; choosing again says what. Is to be asked once more only
    /// when it was given up before it answered.
    pub(crate) async fn handed(&mut self) -> Option<Slot> {
        (&mut self.receiver).await.ok().flatten()
    }
}

fn awaited(accounts: &[Arc<Account>]) -> impl Iterator<Item = (AccountId, Bounds)> {
    accounts.iter().take(MOST_AWAITED).map(|account| (account.id, account.bounds()))
}

impl Drop for Places {
    fn drop(&mut self) {
        for place in mem::take(&mut self.queues) {
            place.room.lock().unwrap_or_else(PoisonError::into_inner).queue.leave(self.number);
        }
    }
}
