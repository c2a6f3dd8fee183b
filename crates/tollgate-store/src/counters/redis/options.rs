//! What a gateway tells about itself before it counts in Redis.

use std::{fmt, time::Duration};

use tollgate_core::Timestamp;

use super::RedisAddress;
use crate::RandomSource;

/// What counting in Redis needs.
#[derive(Clone)]
pub struct RedisOptions {
    /// Where it is.
    pub place: RedisAddress,
    /// Tells gateways apart that use one Redis; the same for all nodes of one.
    pub namespace: String,
    /// How long a hold lives without a sign of life.
    pub life: Duration,
    /// How many nodes are assumed where Redis was never reached.
    pub nodes: u64,
    /// Draws names of nodes and generations.
    pub random: RandomSource,
    /// The time it is.
    pub clock: fn() -> Timestamp,
}

impl fmt::Debug for RedisOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisOptions").field("namespace", &self.namespace).field("nodes", &self.nodes).finish_non_exhaustive()
    }
}
