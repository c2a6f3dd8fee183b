//! Waiting for room: one request's places in the queues of several accounts, and what is handed to it there.

use std::{mem, sync::Arc};

use tokio::sync::oneshot;
use tollgate_core::{Account, AccountId, KeyId};

use super::{
    AccountLimiter, AccountLimiters, AtCapacity, Bounds, Ordering, Permit, PoisonError,
    queue::{Handoff, Waiter},
};

/// Accounts that one request waits for.
const MOST_AWAITED: usize = 16;

/// What came of joining.
#[derive(Debug)]
pub(crate) enum AcquireOutcome {
    /// There was room.
    Permit(Permit),
    /// The request stands in line.
    WaitQueue(WaitQueue),
    /// Waiting is closed.
    QueueFull,
}

/// Places of one waiter in queues, left on drop. A waiter may look elsewhere meanwhile without losing its
/// turn.
#[derive(Debug)]
pub(crate) struct WaitQueue {
    places: QueuePositions,
    /// Dropped after the places: what is handed over in between is released by the receiver's own drop.
    receiver: oneshot::Receiver<Option<Permit>>,
    accounts: Vec<(AccountId, Bounds)>,
}

/// Left when dropped.
#[derive(Debug)]
struct QueuePositions {
    number: u64,
    queues: Vec<Arc<AccountLimiter>>,
}

impl AccountLimiters {
    /// Joins the queues of these accounts, the keys that wait there taking turns.
    pub(crate) fn enqueue(self: &Arc<Self>, accounts: &[Arc<Account>], key: KeyId, tokens: u64) -> AcquireOutcome {
        let (sender, receiver) = oneshot::channel();
        let hand = Handoff::new(sender);
        let number = self.waits.fetch_add(1, Ordering::Relaxed);
        let mut line =
            WaitQueue { places: QueuePositions { number, queues: Vec::new() }, receiver, accounts: awaited(accounts).collect() };
        for account in accounts.iter().take(MOST_AWAITED) {
            let bounds = account.limits();
            let (place, now) = (self.places.get_or_insert(account.id), self.micros());
            let (permit, joined) = place.with(now, |room| match room.full(bounds, tokens, now) {
                None => (Some(self.reserve(&place, room, account.id, tokens, now)), false),
                Some(AtCapacity::AtRate { .. }) => (None, false),
                Some(AtCapacity::AtConcurrency) => {
                    (None, room.queue.join(key, Waiter { number, bounds, tokens, hand: hand.clone() }))
                }
            });
            if let Some(permit) = permit {
                return AcquireOutcome::Permit(permit);
            }
            if joined {
                line.places.queues.push(place);
            }
        }
        if line.places.queues.is_empty() { AcquireOutcome::QueueFull } else { AcquireOutcome::WaitQueue(line) }
    }
}

impl WaitQueue {
    /// Whether it was joined for these accounts, with the bounds they have now.
    pub(crate) fn is_for(&self, accounts: &[Arc<Account>]) -> bool {
        awaited(accounts).eq(self.accounts.iter().copied())
    }

    /// Waits for room. `None`: something changed that is no room; choosing again says what. Is to be asked once more only
    /// when it was given up before it answered.
    pub(crate) async fn acquired(&mut self) -> Option<Permit> {
        (&mut self.receiver).await.ok().flatten()
    }
}

fn awaited(accounts: &[Arc<Account>]) -> impl Iterator<Item = (AccountId, Bounds)> {
    accounts.iter().take(MOST_AWAITED).map(|account| (account.id, account.limits()))
}

impl Drop for QueuePositions {
    fn drop(&mut self) {
        for place in mem::take(&mut self.queues) {
            place.room.lock().unwrap_or_else(PoisonError::into_inner).queue.leave(self.number);
        }
    }
}
