//! Places of requests whose spans wait for the collector.

use std::sync::Arc;

use super::{Bound, KeyShare, Pool, uncharge};

/// Places of which a key and its member have a share, so that the spans of others find space while the collector does not answer.
#[derive(Debug)]
pub(crate) struct TracePlaces {
    pool: Pool,
    total: usize,
}

/// A place that is taken; free again when this is dropped.
#[derive(Debug)]
pub(crate) struct TracePlace {
    places: Arc<TracePlaces>,
    share: Arc<KeyShare>,
}

impl TracePlaces {
    pub(crate) fn new(total: usize) -> Arc<Self> {
        Arc::new(Self { pool: Pool::new(Bound::Traces), total })
    }

    /// Takes a place; `None` if all are taken, or those of the key or its member.
    pub(crate) fn take(self: &Arc<Self>, share: &Arc<KeyShare>) -> Option<TracePlace> {
        self.pool.take(1, self.total)?;
        let charged = self.pool.charge(share, |held| &held.traces, 1, 1, self.total);
        charged.inspect_err(|_| self.pool.put_back(1)).ok()?;
        Some(TracePlace { places: Arc::clone(self), share: Arc::clone(share) })
    }
}

impl Drop for TracePlace {
    fn drop(&mut self) {
        uncharge(&self.share.holdings(), |held| &held.traces, 1);
        self.places.pool.release(1);
    }
}
