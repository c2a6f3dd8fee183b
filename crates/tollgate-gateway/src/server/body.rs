//! Response bodies while they are sent. They report to the connection's timers whether the caller or the upstream is
//! awaited, and own the request's resources until the last byte.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use tokio::time::Instant;

use super::connection_timers::ConnectionTimers;
use crate::{
    clock::Clock,
    response::{AnswerAborted, AnswerBody},
    state::{metrics::GaugeGuard, shares::InFlightRequest},
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
    /// Minimum reading speed for a complete answer, which stays in memory until the caller has read it. `None` for a stream.
    pace: Option<ReadingPace>,
    request: RequestInProgress,
}

/// How fast a complete answer is read.
#[derive(Clone, Copy, Debug)]
struct ReadingPace {
    began: Instant,
    read: u64,
    /// Minimum average rate in bytes per second.
    min_rate: u64,
}

impl ReadingPace {
    /// The time that counts as that of the latest read: earlier than `now` for a caller that is behind the minimum rate, so that
    /// it is cut off once it has been behind for the idle timeout.
    fn latest_read(&mut self, bytes: usize, now: Instant) -> Instant {
        self.read += bytes as u64;
        let due = self.read.saturating_mul(1_000).checked_div(self.min_rate);
        due.map_or(now, |millis| now.min(self.began + Duration::from_millis(millis)))
    }
}

impl OutgoingBody {
    /// `min_rate`: bytes per second at which a complete answer has to be read; 0: none.
    pub(super) fn new(body: AnswerBody, request: RequestInProgress, min_rate: u64) -> Self {
        let began = request.clock.instant();
        let slot = request.timers.answer(began);
        let pace = body.size_hint().exact().map(|_| ReadingPace { began, read: 0, min_rate });
        Self { body, slot, failed_at: None, pace, request }
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
        let at = polled.is_ready().then(|| {
            let (now, bytes) = (clock.instant(), chunk_bytes(&polled));
            this.pace.as_mut().map_or(now, |pace| pace.latest_read(bytes, now))
        });
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

fn chunk_bytes(polled: &Poll<Option<Result<Frame<Bytes>, AnswerAborted>>>) -> usize {
    match polled {
        Poll::Ready(Some(Ok(frame))) => frame.data_ref().map_or(0, Bytes::len),
        Poll::Ready(Some(Err(AnswerAborted)) | None) | Poll::Pending => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn latest_read_is_earlier_by_the_time_behind_the_minimum_rate() {
        let began = Instant::now();
        let secs = |secs| began + Duration::from_secs(secs);
        let mut pace = ReadingPace { began, read: 0, min_rate: 1_000 };
        assert_eq!(pace.latest_read(10_000, secs(1)), secs(1), "ahead of the rate");
        assert_eq!(pace.latest_read(10_000, secs(50)), secs(20), "30 s behind");
        assert_eq!(pace.latest_read(40_000, secs(55)), secs(55));
        let mut unpaced = ReadingPace { began, read: 0, min_rate: 0 };
        assert_eq!(unpaced.latest_read(1, secs(500)), secs(500));
    }
}
