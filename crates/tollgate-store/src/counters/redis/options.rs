//! Options of counters in Redis.

use std::{fmt, time::Duration};

use tokio::time::Instant;
use tollgate_core::Timestamp;

use super::connection::RedisAddress;
use crate::RandomSource;

#[derive(Clone)]
pub struct RedisOptions {
    pub address: RedisAddress,
    /// Separates gateways that share a Redis; the same on all nodes of one gateway.
    pub namespace: String,
    /// How long a reservation lives after its last renewal.
    pub reservation_ttl: Duration,
    /// Number of nodes to assume until Redis has been reached.
    pub nodes: u64,
    /// Source of node names and data generations.
    pub random: RandomSource,
    pub clock: fn() -> Timestamp,
    pub instant: fn() -> Instant,
}

impl fmt::Debug for RedisOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisOptions").field("namespace", &self.namespace).field("nodes", &self.nodes).finish_non_exhaustive()
    }
}
