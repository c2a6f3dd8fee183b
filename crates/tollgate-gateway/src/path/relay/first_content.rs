//! The first content of a stream, which is here when the relay begins, or comes later if the status was sent while the model thinks.

use std::time::Duration;

use super::Relayed;
use crate::path::types::{attempt::may_send_status, usage_guard::UsageGuard};

/// Notes that content begins, and returns when it did in the attempt under way. A complete answer has no first token.
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
    /// Looks whether the first content is here by now.
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
