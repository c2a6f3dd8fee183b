//! A request that waits for a permit in the queues of several accounts and channels at once.

use std::{mem, sync::Arc};

use tokio::sync::oneshot;
use tollgate_core::{BusyAccount, CapacityLoad, Requester};

use super::{
    AtCapacity, CapacityLimiter, CapacityLimiters, LimitedRow, Permit, PoisonError,
    queue::{Handoff, Waiter},
};
use crate::state::shares::Holder;

const MAX_AWAITED: usize = 16;

/// Result of [`CapacityLimiters::enqueue`].
#[derive(Debug)]
pub(crate) enum AcquireOutcome {
    Permit(Permit),
    Queued(QueuedAcquire),
    /// No account can be waited for: its queue or that of its channel is full, or a rate limit is reached.
    QueueFull,
}

/// One request's positions in the queues. Dropping it leaves them. The request keeps its positions while it tries other
/// accounts.
#[derive(Debug)]
pub(crate) struct QueuedAcquire {
    positions: QueuePositions,
    /// Dropped after the positions: a permit handed over in between is released with the receiver.
    receiver: oneshot::Receiver<Option<Permit>>,
    awaited: Vec<[LimitedRow; 2]>,
}

/// Leaves the queues when dropped.
#[derive(Debug)]
struct QueuePositions {
    holders: [Holder; 2],
    /// The queues, and the request's number in each.
    queues: Vec<(Arc<CapacityLimiter>, u64)>,
}

impl CapacityLimiters {
    /// Acquires a permit on one of `accounts`, or joins the queues of those, or of their channels, that are at their concurrency
    /// limit. Each queue serves waiting members and keys in turn.
    pub(crate) fn enqueue(self: &Arc<Self>, accounts: &[BusyAccount<'_>], by: Requester, tokens: u64) -> AcquireOutcome {
        let (sender, receiver) = oneshot::channel();
        let handoff = Handoff::new(sender);
        let mut queued = QueuedAcquire {
            positions: QueuePositions { holders: Holder::of_caller(by), queues: Vec::new() },
            receiver,
            awaited: awaited(accounts).collect(),
        };
        for rows in awaited(accounts) {
            if let Some(permit) = self.acquire_or_join(rows, tokens, &handoff, &mut queued.positions) {
                return AcquireOutcome::Permit(permit);
            }
        }
        if queued.positions.queues.is_empty() { AcquireOutcome::QueueFull } else { AcquireOutcome::Queued(queued) }
    }

    /// Acquires a permit of these rows, or joins the queue of the first one that is at its concurrency limit, unless the request is
    /// in it already.
    fn acquire_or_join(
        self: &Arc<Self>,
        rows: [LimitedRow; 2],
        tokens: u64,
        handoff: &Handoff,
        positions: &mut QueuePositions,
    ) -> Option<Permit> {
        let [channel, account] = rows;
        // While the account is full, a permit of its channel alone would be useless.
        let is_full = self.load([account], tokens) != CapacityLoad::Free;
        let rows = [if is_full { channel.without_limits() } else { channel }, account];
        let mut permit = Permit::default();
        for (row, part) in rows.into_iter().zip(&mut permit.0).filter(|(row, _)| row.limits.any()) {
            let (entry, now) = (self.entries.get_or_insert(row.id), self.micros());
            if positions.queues.iter().any(|(joined, _)| Arc::ptr_eq(joined, &entry)) {
                return None;
            }
            let (reserved, joined) = entry.with(now, |state| match state.in_use.full(row.limits, tokens, now) {
                None => (Some(self.reserve(&entry, state, row.id, tokens, now)), None),
                Some(AtCapacity::AtRate { .. }) => (None, None),
                Some(AtCapacity::AtConcurrency) => {
                    let waiter = Waiter { limits: row.limits, tokens, handoff: handoff.clone() };
                    (None, state.queue.join(&positions.holders, waiter).ok())
                }
            });
            positions.queues.extend(joined.map(|number| (entry, number)));
            *part = Some(Box::new(reserved?));
        }
        Some(permit)
    }
}

impl QueuedAcquire {
    /// Whether it was created for these accounts with the current limits.
    pub(crate) fn is_for(&self, accounts: &[BusyAccount<'_>]) -> bool {
        awaited(accounts).eq(self.awaited.iter().copied())
    }

    /// Waits for capacity: of an account, or of a channel, which [`CapacityLimiters::extend`] completes. `None`: the waiter's turn
    /// came while another limit is reached, so the request must select again. Cancel-safe; must not be called again after it
    /// returned.
    pub(crate) async fn acquired(&mut self) -> Option<Permit> {
        (&mut self.receiver).await.ok().flatten()
    }
}

fn awaited<'a>(accounts: &'a [BusyAccount<'_>]) -> impl Iterator<Item = [LimitedRow; 2]> + use<'a> {
    accounts.iter().take(MAX_AWAITED).map(|busy| {
        let [channel, account] = LimitedRow::of_attempt(busy.channel, busy.account);
        [channel, if busy.is_channel_full { account.without_limits() } else { account }]
    })
}

impl Drop for QueuePositions {
    fn drop(&mut self) {
        for (entry, number) in mem::take(&mut self.queues) {
            entry.state.lock().unwrap_or_else(PoisonError::into_inner).queue.leave(&self.holders, number);
        }
    }
}
