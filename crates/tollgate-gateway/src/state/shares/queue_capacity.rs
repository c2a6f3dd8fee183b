//! Capacity of the queues in which ended requests wait for the trace collector and for the database of contents.

use std::sync::{Arc, atomic::AtomicUsize};

use super::{Bound, Holdings, KeyShare, Pool, uncharge};

/// The capacity of one queue, in units of the queue. Each key and member has a share, so that others find space even while the queue is
/// not emptied.
#[derive(Debug)]
pub(crate) struct QueueCapacity {
    pool: Pool,
    total: usize,
    /// The counter of the units that a holder has.
    held: fn(&Holdings) -> &AtomicUsize,
}

/// Units of a queue's capacity that a request has taken. Released on drop.
#[derive(Debug)]
pub(crate) struct QueueCharge {
    capacity: Arc<QueueCapacity>,
    share: Arc<KeyShare>,
    count: usize,
}

impl QueueCapacity {
    /// Capacity for requests whose spans wait for the collector, in requests.
    pub(crate) fn of_traces(total: usize) -> Arc<Self> {
        Arc::new(Self { pool: Pool::new(Bound::Traces), total, held: |held| &held.traces })
    }

    /// Capacity for contents that wait for the database, in bytes.
    pub(crate) fn of_contents(total: usize) -> Arc<Self> {
        Arc::new(Self { pool: Pool::new(Bound::Contents), total, held: |held| &held.contents })
    }

    /// Takes capacity for a request; `None` if there is not enough, or not enough for the key or its member.
    pub(crate) fn take(self: &Arc<Self>, share: &Arc<KeyShare>, count: usize) -> Option<QueueCharge> {
        self.pool.take(count, self.total)?;
        let charged = self.pool.charge(share, self.held, count, count, self.total);
        charged.inspect_err(|_| self.pool.put_back(count)).ok()?;
        Some(QueueCharge { capacity: Arc::clone(self), share: Arc::clone(share), count })
    }
}

impl Drop for QueueCharge {
    fn drop(&mut self) {
        uncharge(&self.share.holdings(), self.capacity.held, self.count);
        self.capacity.pool.release(self.count);
    }
}
