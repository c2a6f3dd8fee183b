//! Response bodies as they are sent: report to the connection's timers whether the caller or the upstream is awaited, and
//! own the request's resources until the last byte.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};

use super::connection_timers::ConnectionTimers;
use crate::{
    clock::Clock,
    condition::InFlightRequest,
    response::{AnswerAborted, AnswerBody},
    state::metrics::GaugeGuard,
};

/// A request in progress on a connection: from the end of its head to the last byte of its response.
#[derive(Debug)]
pub(super) struct RequestInProgress {
    timers: Arc<ConnectionTimers>,
    clock: Arc<dyn Clock>,
    counted: Option<(Arc<InFlightRequest>, GaugeGuard)>,
}

impl RequestInProgress {
    /// Expects that [`ConnectionTimers::begin`] was called.
    pub(super) fn new(timers: Arc<ConnectionTimers>, clock: Arc<dyn Clock>) -> Self {
        Self { timers, clock, counted: None }
    }

    /// Counts the request among those a drain waits for.
    pub(super) fn count(&mut self, request: Arc<InFlightRequest>, gauge: GaugeGuard) {
        self.counted = Some((request, gauge));
    }
}

impl Drop for RequestInProgress {
    fn drop(&mut self) {
        self.timers.end(self.clock.instant());
    }
}

pub(super) struct OutgoingBody {
    body: AnswerBody,
    slot: usize,
    /// Flush count when the body failed. The abort is reported after the next flush, so that the bytes before it (the
    /// error event) reach the caller: hyper discards unwritten bytes when a body fails.
    failed_at: Option<u64>,
    request: RequestInProgress,
}

impl OutgoingBody {
    pub(super) fn new(body: AnswerBody, request: RequestInProgress) -> Self {
        let slot = request.timers.answer(request.clock.instant());
        Self { body, slot, failed_at: None, request }
    }

    fn poll_abort(&self, seen: u64, context: &Context<'_>) -> Poll<Option<Result<Frame<Bytes>, AnswerAborted>>> {
        let timers = &self.request.timers;
        // Register before reading the count; otherwise a flush in between is missed.
        timers.wake_at_flush(context.waker());
        if timers.flushes() > seen { Poll::Ready(Some(Err(AnswerAborted))) } else { Poll::Pending }
    }
}

impl Drop for OutgoingBody {
    fn drop(&mut self) {
        self.request.timers.answered(self.slot);
    }
}

impl Body for OutgoingBody {
    type Data = Bytes;
    type Error = AnswerAborted;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, AnswerAborted>>> {
        let this = &mut *self;
        let (timers, clock) = (&this.request.timers, &this.request.clock);
        if let Some(seen) = this.failed_at {
            return this.poll_abort(seen, context);
        }
        let body = Pin::new(&mut this.body);
        // A panic in one body ends that response, not the connection's other streams.
        let polled = catch_unwind(AssertUnwindSafe(|| body.poll_frame(context))).unwrap_or_else(|_| {
            tracing::error!("panic while streaming a response body");
            Poll::Ready(Some(Err(AnswerAborted)))
        });
        let at = polled.is_ready().then(|| clock.instant());
        timers.handed_over(this.slot, at);
        if let Poll::Ready(Some(Err(AnswerAborted))) = polled {
            let seen = timers.flushes();
            this.failed_at = Some(seen);
            return this.poll_abort(seen, context);
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.failed_at.is_none() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
