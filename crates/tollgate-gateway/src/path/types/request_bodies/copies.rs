//! Memory of the copies of one request's body. They count as the body itself does, until the request ends.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use crate::state::shares::InFlightRequest;

/// Charges copies to the request's memory. Without `memory` nothing is counted.
pub(super) struct BodyCopies {
    memory: Option<Arc<InFlightRequest>>,
    /// A copy found no memory: the request cannot be served.
    is_exhausted: AtomicBool,
    has_edited: AtomicBool,
}

impl BodyCopies {
    pub(super) fn new(memory: Option<Arc<InFlightRequest>>) -> Self {
        Self { memory, is_exhausted: AtomicBool::new(false), has_edited: AtomicBool::new(false) }
    }

    /// Counts a copy before it is made. False if there is no memory for it.
    pub(super) fn reserve(&self, bytes: usize) -> bool {
        let is_reserved = self.memory.as_ref().is_none_or(|memory| memory.reserve_bytes(bytes).is_ok());
        if !is_reserved {
            self.is_exhausted.store(true, Ordering::Release);
        }
        is_reserved
    }

    /// Counts the copy with edits for an upstream. Attempts follow each other, so it counts once.
    pub(super) fn reserve_edited(&self, bytes: usize) {
        if !self.has_edited.swap(true, Ordering::AcqRel) {
            self.reserve(bytes);
        }
    }

    /// True if there was no memory for a copy.
    pub(super) fn is_exhausted(&self) -> bool {
        self.is_exhausted.load(Ordering::Acquire)
    }
}
