//! Attempts that failed.

use super::UsageGuard;
use crate::path::types::failure::{Failure, Verdict};

impl UsageGuard {
    /// Ends the attempt under way, which failed.
    pub(crate) fn fail_attempt(&mut self, failure: &Failure, verdict: &Verdict) {
        if let Some(attempt) = &self.attempt {
            attempt.record_message(failure.message());
        }
        self.end_attempt(verdict.result, Some(verdict.id()), verdict.observation);
    }

    /// Ends the hedged attempt, which failed.
    pub(crate) fn fail_hedge(&mut self, failure: &Failure, verdict: &Verdict) {
        if let Some(attempt) = &self.hedge_attempt {
            attempt.record_message(failure.message());
        }
        self.end_hedge(verdict.result, Some(verdict.id()), verdict.observation);
    }
}
