//! The first content of a stream. It has arrived when the relay begins, or arrives later if the status was sent while the model thinks.

use std::time::Duration;

use super::Relayed;
use crate::path::types::{attempt::may_send_status, usage_guard::UsageGuard};

/// Records that content begins. Returns the time to the first content of the running attempt; `None` for a complete answer.
pub(super) fn begins(guard: &mut UsageGuard, is_whole: bool) -> Option<u64> {
    guard.content_begins();
    if is_whole {
        return None;
    }
    let first_content_us = guard.first_content_us()?;
    guard.record_first_token(first_content_us);
    Some(first_content_us)
}

impl Relayed {
    /// Checks whether the first content has arrived.
    pub(super) fn note_first_content(&mut self) {
        if self.before_content.is_none() || !may_send_status(&self.relay.summary(), &*self.relay) {
            return;
        }
        self.before_content = None;
        if let Some(guard) = &mut self.guard {
            self.first_content_us = begins(guard, false);
        }
    }

    /// Longest silence of the upstream between two pieces.
    pub(super) fn silence_allowed(&self) -> Duration {
        self.before_content.unwrap_or(self.idle)
    }
}
