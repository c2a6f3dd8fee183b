//! The contents of a request, for callers whose group or key has them stored.

use std::sync::Arc;

use tollgate_core::{ExcerptWriter, RequestContents, RequestFacts};

use super::UsageGuard;
use crate::state::{
    metrics::ContentEnd,
    shares::{InFlightRequest, MemoryCharge, MemoryExhausted},
};

/// Memory is counted in units of this size, so that small pieces do not each change the shared counters.
const UNIT_BYTES: usize = 64 * 1024;

/// The excerpts of a body and its answer, which are kept while the request runs.
#[derive(Debug)]
pub(super) struct CapturedContents {
    request: ExcerptWriter,
    answer: ExcerptWriter,
    /// Their memory, charged like that of bodies and answers.
    memory: Option<MemoryCharge>,
}

impl CapturedContents {
    fn count(&mut self) -> Result<(), MemoryExhausted> {
        let kept = (self.request.kept() + self.answer.kept()).next_multiple_of(UNIT_BYTES);
        self.memory.as_mut().map_or(Ok(()), |memory| memory.resize(kept))
    }
}

impl UsageGuard {
    /// Keeps the body of a request whose group or key has its contents stored, if the settings allow it.
    pub(crate) fn capture_request(&mut self, body: &[u8], in_flight: Option<&Arc<InFlightRequest>>) {
        let Some(facts) = self.facts.as_deref() else { return };
        let is_wanted = facts.key.log_contents || facts.group.as_ref().is_some_and(|group| group.log_contents);
        if !is_wanted || self.contents.is_some() {
            return;
        }
        let settings = self.recorder.shared.settings.load();
        if settings.contents.store {
            let max = settings.contents.max_bytes;
            let mut request = ExcerptWriter::new(max);
            request.push(body);
            let memory = in_flight.map(|request| MemoryCharge::new(Arc::clone(request)));
            self.contents = Some(Box::new(CapturedContents { request, answer: ExcerptWriter::new(max), memory }));
            self.count_contents();
        }
    }

    pub(crate) const fn captures_contents(&self) -> bool {
        self.contents.is_some()
    }

    /// Keeps bytes that are sent to the caller.
    pub(crate) fn capture_answer(&mut self, bytes: &[u8]) {
        if let Some(contents) = &mut self.contents {
            contents.answer.push(bytes);
            self.count_contents();
        }
    }

    /// Counts the memory of the kept contents. If none is left, they are dropped, so that the request itself can continue.
    fn count_contents(&mut self) {
        if self.contents.as_mut().is_some_and(|contents| contents.count().is_err()) {
            self.contents = None;
            self.recorder.shared.metrics.contents(ContentEnd::Dropped, 1);
        }
    }

    /// Hands over the kept contents of a request that leaves a record.
    pub(super) fn store_contents(&mut self, facts: &RequestFacts) {
        let (Some(contents), Some(share)) = (self.contents.take(), &self.share) else { return };
        // From here on the queue accounts for the memory.
        let CapturedContents { request, answer, memory: _released } = *contents;
        let contents = RequestContents {
            id: facts.id,
            at: facts.at,
            key: facts.key.id,
            member: facts.key.member.id,
            request: request.finish(),
            answer: answer.finish(),
        };
        self.recorder.shared.store_contents(contents, share);
    }
}
