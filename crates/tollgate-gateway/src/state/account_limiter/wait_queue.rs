//! A request that waits for a permit in the queues of several accounts at once.

use std::{mem, sync::Arc};

use tokio::sync::oneshot;
use tollgate_core::{Account, AccountId, Requester};

use super::{
    AccountLimiter, AccountLimiters, AtCapacity, Bounds, Permit, PoisonError,
    queue::{Handoff, Waiter},
};
use crate::state::shares::Holder;

const MAX_AWAITED: usize = 16;

/// Result of [`AccountLimiters::enqueue`].
#[derive(Debug)]
pub(crate) enum AcquireOutcome {
    Permit(Permit),
    Queued(QueuedAcquire),
    /// No account can be waited for: its queue is full, or its rate limit is reached.
    QueueFull,
}

/// One request's positions in the queues. Dropping it leaves them. The request keeps its positions while it tries other
/// accounts.
#[derive(Debug)]
pub(crate) struct QueuedAcquire {
    positions: QueuePositions,
    /// Dropped after the positions: a permit handed over in between is released with the receiver.
    receiver: oneshot::Receiver<Option<Permit>>,
    accounts: Vec<(AccountId, Bounds)>,
}

/// Leaves the queues when dropped.
#[derive(Debug)]
struct QueuePositions {
    holders: [Holder; 2],
    /// The queues, and the request's number in each.
    queues: Vec<(Arc<AccountLimiter>, u64)>,
}

impl AccountLimiters {
    /// Acquires a permit on one of `accounts`, or joins the queues of those that are at their concurrency limit. Each queue
    /// serves waiting members and keys in turn.
    pub(crate) fn enqueue(self: &Arc<Self>, accounts: &[Arc<Account>], by: Requester, tokens: u64) -> AcquireOutcome {
        let (sender, receiver) = oneshot::channel();
        let handoff = Handoff::new(sender);
        let holders = Holder::of_caller(by);
        let mut queued = QueuedAcquire {
            positions: QueuePositions { holders, queues: Vec::new() },
            receiver,
            accounts: awaited(accounts).collect(),
        };
        for account in accounts.iter().take(MAX_AWAITED) {
            let bounds = account.limits();
            let (entry, now) = (self.entries.get_or_insert(account.id), self.micros());
            let (permit, joined) = entry.with(now, |state| match state.in_use.full(bounds, tokens, now) {
                None => (Some(self.reserve(&entry, state, account.id, tokens, now)), None),
                Some(AtCapacity::AtRate { .. }) => (None, None),
                Some(AtCapacity::AtConcurrency) => {
                    (None, state.queue.join(&holders, Waiter { bounds, tokens, handoff: handoff.clone() }).ok())
                }
            });
            if let Some(permit) = permit {
                return AcquireOutcome::Permit(permit);
            }
            if let Some(number) = joined {
                queued.positions.queues.push((entry, number));
            }
        }
        if queued.positions.queues.is_empty() { AcquireOutcome::QueueFull } else { AcquireOutcome::Queued(queued) }
    }
}

impl QueuedAcquire {
    /// Whether it was created for these accounts with their current limits.
    pub(crate) fn is_for(&self, accounts: &[Arc<Account>]) -> bool {
        awaited(accounts).eq(self.accounts.iter().copied())
    }

    /// Waits for a permit. `None`: the waiter's turn came while another limit is reached, so the request must select again.
    /// Cancel-safe; must not be called again after it returned.
    pub(crate) async fn acquired(&mut self) -> Option<Permit> {
        (&mut self.receiver).await.ok().flatten()
    }
}

fn awaited(accounts: &[Arc<Account>]) -> impl Iterator<Item = (AccountId, Bounds)> {
    accounts.iter().take(MAX_AWAITED).map(|account| (account.id, account.limits()))
}

impl Drop for QueuePositions {
    fn drop(&mut self) {
        for (entry, number) in mem::take(&mut self.queues) {
            entry.state.lock().unwrap_or_else(PoisonError::into_inner).queue.leave(&self.holders, number);
        }
    }
}
