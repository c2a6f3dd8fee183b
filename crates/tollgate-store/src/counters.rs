//! Counters of running requests: spending, reservations and rates by subject. A single node counts in [`memory`], several
//! nodes in [`redis`]. Spending from before the start comes from the database.

mod charges;
#[cfg(test)]
mod conformance;
mod memory;
mod redis;
mod shards;
#[cfg(test)]
mod test_callers;
mod traits;

use std::{sync::Arc, time::Duration};

pub use redis::{RedisAddress, RedisOptions, RedisWorker, SharedHealth, check_redis, counters_in_redis};
pub use traits::{CounterSnapshot, Counters, Spender};

use crate::Spending;

/// Counters of a single node, starting with `spending`. A reservation expires `reservation_ttl` after its last renewal.
#[must_use]
pub fn counters_in_memory(spending: &Spending, reservation_ttl: Duration) -> Arc<dyn Counters> {
    Arc::new(memory::MemoryCounters::new(spending, reservation_ttl))
}
