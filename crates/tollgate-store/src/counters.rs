//! Counters of running requests: spending, reservations and rates by subject. A single node counts in [`memory`], several
//! nodes in [`redis`]. Spending from before the start comes from the database.

#[cfg(test)]
mod conformance;
mod memory;
mod redis;
mod reservation_ttl;
mod subjects;
#[cfg(test)]
mod test_callers;
mod traits;

use std::{sync::Arc, time::Duration};

use crate::Spending;

pub use memory::CounterHandOver;
pub use redis::{
    AccessReport, AccessState, RedisAddress, RedisOptions, RedisWorker, SharedAccessReports, SharedHealth, SharedHealthUpdate,
    check_redis, counters_in_redis,
};
pub use traits::{CounterSnapshot, Counters, Spender};

/// Counters of a single node, starting with `spending`. A reservation expires `reservation_ttl` after its last renewal.
pub fn counters_in_memory(spending: &Spending, reservation_ttl: Duration) -> Arc<dyn Counters> {
    Arc::new(memory::MemoryCounters::new(spending, reservation_ttl))
}
