//! One usage record for many refused requests of a key.

use std::{sync::Arc, time::Duration};

use tokio::time::{Instant, sleep_until};
use tollgate_core::{Outcome, settle};
use tollgate_store::SyncWaiter;

use super::{Ending, UsageGuard};
use crate::state::shares::{RefusalRecord, RepeatedRefusals};

/// How a refused request was recorded.
pub(crate) enum RefusedEnd {
    /// By a separate record. The answer waits for the flush.
    Recorded(Option<SyncWaiter>),
    /// It was counted in the record of similar refusals.
    Counted,
}

impl UsageGuard {
    /// Whether the request asks for a stream.
    pub(crate) fn is_stream(&self) -> bool {
        self.facts.as_ref().is_some_and(|facts| facts.stream)
    }

    /// Ends a refused request. The first refusals of a key with an error and a model in a minute are recorded as every request is; the
    /// others are counted in one record, which is written when the minute ends. A request that was sent to an upstream always has a
    /// separate record.
    pub(crate) fn refuse(mut self, ending: Ending, error: &'static str) -> RefusedEnd {
        let now = self.recorder.shared.clock.fresh_instant();
        let refused = matches!(ending.outcome, Outcome::Refused) && self.attempts() == 0;
        let record = match self.share.as_ref().filter(|_| refused) {
            Some(share) => share.count_refusal(error, self.facts.as_ref().and_then(|facts| facts.model.as_deref()), now),
            None => RefusalRecord::Own,
        };
        match record {
            RefusalRecord::Own => RefusedEnd::Recorded(self.finish(ending)),
            RefusalRecord::Shared(repeated, at) => {
                self.release();
                let took = now.saturating_duration_since(self.started);
                ParkedRefusal { guard: self, ending, repeated, took }.record_at(at);
                RefusedEnd::Counted
            }
            RefusalRecord::Counted => {
                self.release();
                self.facts = None;
                self.recorder.shared.metrics.refused(error);
                RefusedEnd::Counted
            }
        }
    }

    /// Releases the request's reservation, without a record.
    fn release(&mut self) {
        self.queue_permit = None;
        if std::mem::take(&mut self.has_reservation)
            && let Some(facts) = &self.facts
        {
            self.recorder.settle(&settle((**facts).clone()), self.recorder.shared.clock.instant());
        }
    }
}

/// The first of the refused requests that share a record. Dropping it writes the record, also when the gateway stops.
struct ParkedRefusal {
    guard: UsageGuard,
    ending: Ending,
    repeated: Arc<RepeatedRefusals>,
    took: Duration,
}

impl ParkedRefusal {
    fn record_at(self, at: Instant) {
        let tracker = self.guard.recorder.shared.tracker.clone();
        tracker.spawn(async move {
            sleep_until(at).await;
            drop(self);
        });
    }
}

impl Drop for ParkedRefusal {
    fn drop(&mut self) {
        let Ending { status, outcome, reason, detail } = self.ending.clone();
        let count = self.repeated.count();
        let detail = detail.map(|detail| format!("{detail} ({count} requests were refused so in this minute.)"));
        self.guard.started = self.guard.recorder.shared.clock.instant().checked_sub(self.took).unwrap_or(self.guard.started);
        drop(self.guard.finish(Ending { status, outcome, reason, detail }));
    }
}
