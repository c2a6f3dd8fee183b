//! Memory of a stream that is relayed: its kept parts are counted, and the upstream is not read while no memory is free.

use std::task::{Context, Poll};

use bytes::Bytes;

use super::{
    Relayed,
    phase::{Break, Phase},
};
use crate::{
    response::{LARGE_BYTES, next_piece},
    state::shares::MemoryExhausted,
};

impl Relayed {
    /// The next bytes for the caller. A large event is handed over in pieces, so that the server buffers little of it for a caller
    /// that reads slowly.
    pub(super) fn next_bytes(&mut self) -> Option<Bytes> {
        let Some(bytes) = self.out.front_mut() else { return self.relay.next_shared() };
        if bytes.len() > LARGE_BYTES { Some(next_piece(bytes)) } else { self.out.pop_front() }
    }

    /// True if memory is still missing after the caller took the complete chunks.
    pub(super) fn is_without_memory(&mut self) -> bool {
        self.measure(0);
        self.memory.is_short()
    }

    /// Waits for memory for the bytes that are kept. The upstream is not read meanwhile, so this time does not count as its silence.
    pub(super) fn wait_for_memory(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let waited = self.memory.poll_wait(context);
        self.received = self.clock.instant();
        self.progressed = self.received;
        match waited {
            Poll::Ready(Ok(())) => Poll::Ready(()),
            Poll::Ready(Err(MemoryExhausted)) => {
                self.break_off(&Break::NoMemory);
                Poll::Ready(())
            }
            Poll::Pending if matches!(self.phase, Phase::Holding { .. }) => Poll::Pending,
            Poll::Pending => self.wait(context),
        }
    }

    /// Counts the memory of all kept bytes except the `read` bytes that the upstream sent last.
    pub(super) fn measure(&mut self, read: usize) {
        let out = self.out.iter().map(Bytes::len).sum::<usize>();
        self.memory.measured(self.relay.held_bytes() + out.saturating_sub(read));
    }
}
