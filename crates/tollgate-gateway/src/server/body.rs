//! The body of an answer on its way out: tells the connection's timers whether it is the caller or the upstream that is
//! waited for, and holds what must live until the last byte.

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
    response::{AnswerAborted, AnswerBody},
    state::{metrics::GaugeGuard, shared::InFlightRequest},
};

/// A request under way on a connection: from the end of its head to the last byte of its answer.
#[derive(Debug)]
pub(super) struct RequestInProgress {
    timers: Arc<ConnectionTimers>,
    clock: Arc<dyn Clock>,
    present: Option<(Arc<InFlightRequest>, GaugeGuard)>,
}

impl RequestInProgress {
    /// The timers has begun already.
    pub(super) fn new(timers: Arc<ConnectionTimers>, clock: Arc<dyn Clock>) -> Self {
        Self { timers, clock, present: None }
    }

    /// Counted among the requests a drain waits for.
    pub(super) fn count(&mut self, present: Arc<InFlightRequest>, raised: GaugeGuard) {
        self.present = Some((present, raised));
    }
}

impl Drop for RequestInProgress {
    fn drop(&mut self) {
        self.timers.end(self.clock.instant());
    }
}

/// An answer's body with its request.
pub(super) struct OutgoingBody {
    body: AnswerBody,
    slot: usize,
    /// The body broke; the abort waits until the flush after this one, so that the bytes before it (the error event)
    /// reach the caller: the HTTP library drops what it has not written when a body fails.
    broken_at: Option<u64>,
    under_way: RequestInProgress,
}

impl OutgoingBody {
    pub(super) fn new(body: AnswerBody, under_way: RequestInProgress) -> Self {
        let slot = under_way.timers.answer(under_way.clock.instant());
        Self { body, slot, broken_at: None, under_way }
    }
}

impl OutgoingBody {
    fn poll_abort(&self, seen: u64, context: &Context<'_>) -> Poll<Option<Result<Frame<Bytes>, AnswerAborted>>> {
        let timers = &self.under_way.timers;
        // Asked for first: a flush between the look and the wish would be missed.
        timers.wake_at_flush(context.waker());
        if timers.flushes() > seen { Poll::Ready(Some(Err(AnswerAborted))) } else { Poll::Pending }
    }
}

impl Drop for OutgoingBody {
    fn drop(&mut self) {
        self.under_way.timers.answered(self.slot);
    }
}

impl Body for OutgoingBody {
    type Data = Bytes;
    type Error = AnswerAborted;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, AnswerAborted>>> {
        let this = &mut *self;
        let (timers, clock) = (&this.under_way.timers, &this.under_way.clock);
        if let Some(seen) = this.broken_at {
            return this.poll_abort(seen, context);
        }
        let body = Pin::new(&mut this.body);
        // A bug in one answer ends that answer, not the connection's other streams.
        let polled = catch_unwind(AssertUnwindSafe(|| body.poll_frame(context))).unwrap_or_else(|_| {
            tracing::error!("a panic in the middle of an answer");
            Poll::Ready(Some(Err(AnswerAborted)))
        });
        let at = polled.is_ready().then(|| clock.instant());
        timers.handed_over(this.slot, at);
        if let Poll::Ready(Some(Err(AnswerAborted))) = polled {
            let seen = timers.flushes();
            this.broken_at = Some(seen);
            return this.poll_abort(seen, context);
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.broken_at.is_none() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
