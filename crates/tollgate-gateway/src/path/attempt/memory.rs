//! Memory of a complete answer while it is read, converted and passed on.

use std::{sync::Arc, time::Duration};

use super::Failure;
use crate::state::shares::{InFlightRequest, MemoryCharge};

/// Longest wait for memory in the middle of an answer. The answer holds memory already, which others may wait for.
const MAX_WAIT: Duration = Duration::from_secs(10);

/// Counts an answer against the memory for bodies and answers. Released when the attempt fails.
pub(super) struct AnswerMemory {
    charge: Option<MemoryCharge>,
    /// Copies of the answer in memory at once.
    copies: usize,
    received: usize,
}

impl AnswerMemory {
    /// Without `memory` nothing is counted.
    pub(super) fn new(memory: Option<&Arc<InFlightRequest>>, copies: usize) -> Self {
        Self { charge: memory.map(|request| MemoryCharge::new(Arc::clone(request))), copies, received: 0 }
    }

    /// Waits for memory for the declared length, at most for `limit`, which is computed only if memory is counted.
    pub(super) async fn reserve_declared(&mut self, bytes: usize, limit: impl FnOnce() -> Duration) -> Result<(), Failure> {
        self.grow_to(bytes, limit).await
    }

    /// Counts received bytes. Declared bytes are already counted.
    pub(super) async fn count_received(&mut self, bytes: usize) -> Result<(), Failure> {
        self.received += bytes;
        self.grow_to(self.received, || MAX_WAIT).await
    }

    /// Keeps the memory charged to the request.
    pub(super) fn keep(self) {
        if let Some(charge) = self.charge {
            charge.keep();
        }
    }

    async fn grow_to(&mut self, bytes: usize, limit: impl FnOnce() -> Duration) -> Result<(), Failure> {
        let Some(charge) = &mut self.charge else { return Ok(()) };
        charge.grow_to(bytes.saturating_mul(self.copies), limit()).await.map_err(|_| Failure::NoMemory)
    }
}
