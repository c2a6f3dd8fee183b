//! Capacity of the queues in which ended requests wait for the trace collector and for the database of contents, counted in places.

use std::sync::{Arc, atomic::AtomicUsize};

use super::{Bound, Holdings, KeyShare, Pool, uncharge};

/// The places of one queue. Each key and member has a share, so that others find space even while the queue is not emptied.
#[derive(Debug)]
pub(crate) struct QueuePlaces {
    pool: Pool,
    total: usize,
    /// The counter of a holder's places.
    held: fn(&Holdings) -> &AtomicUsize,
}

/// Taken places, which are released on drop.
#[derive(Debug)]
pub(crate) struct TakenPlaces {
    places: Arc<QueuePlaces>,
    share: Arc<KeyShare>,
    count: usize,
}

impl QueuePlaces {
    /// Places for requests whose spans wait for the collector.
    pub(crate) fn of_traces(total: usize) -> Arc<Self> {
        Arc::new(Self { pool: Pool::new(Bound::Traces), total, held: |held| &held.traces })
    }

    /// Places for bytes of contents that wait for the database.
    pub(crate) fn of_contents(total: usize) -> Arc<Self> {
        Arc::new(Self { pool: Pool::new(Bound::Contents), total, held: |held| &held.contents })
    }

    /// Takes places for a request; `None` if there are not enough, or not enough for the key or its member.
    pub(crate) fn take(self: &Arc<Self>, share: &Arc<KeyShare>, count: usize) -> Option<TakenPlaces> {
        self.pool.take(count, self.total)?;
        let charged = self.pool.charge(share, self.held, count, count, self.total);
        charged.inspect_err(|_| self.pool.put_back(count)).ok()?;
        Some(TakenPlaces { places: Arc::clone(self), share: Arc::clone(share), count })
    }
}

impl Drop for TakenPlaces {
    fn drop(&mut self) {
        uncharge(&self.share.holdings(), self.places.held, self.count);
        self.places.pool.release(self.count);
    }
}
