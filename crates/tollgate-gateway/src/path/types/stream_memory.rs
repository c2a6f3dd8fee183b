//! Memory of a stream while it is passed on. A relay keeps unfinished events, and calls that must be sent in one piece. Bytes
//! above a free allowance count against the memory for bodies and answers.

use std::{
    fmt,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use crate::state::shares::{InFlightRequest, MemoryCharge, MemoryExhausted};

/// Bytes that a stream may keep uncounted. Streams with ordinary events touch no counter that requests share.
const FREE_BYTES: usize = 64 * 1024;
/// Memory is counted in units of this size, so that small pieces do not each change the shared counters.
const UNIT_BYTES: usize = 64 * 1024;
/// Longest wait for memory. The stream holds memory already, which others may wait for.
const MAX_WAIT: Duration = Duration::from_secs(10);

type Wait = Pin<Box<dyn Future<Output = (MemoryCharge, Result<(), MemoryExhausted>)> + Send>>;

/// Counts the memory that a stream keeps, and releases it on drop.
pub(crate) struct StreamMemory {
    /// `None` if memory is not counted, and during a wait.
    charge: Option<MemoryCharge>,
    wait: Option<Wait>,
    /// Bytes for which there was no memory when they were measured. The wait for it has not begun.
    missing: Option<usize>,
    /// Upper bound of the bytes that are kept but not counted: those at the last measurement, plus all that were received since.
    uncounted: usize,
}

impl fmt::Debug for StreamMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StreamMemory").field("charge", &self.charge).finish_non_exhaustive()
    }
}

impl StreamMemory {
    /// Without a request nothing is counted.
    pub(crate) fn new(request: Option<&Arc<InFlightRequest>>) -> Self {
        Self { charge: request.map(|request| MemoryCharge::new(Arc::clone(request))), wait: None, missing: None, uncounted: 0 }
    }

    /// Records received bytes. Returns whether [`Self::measured`] must be called with the bytes that are kept now.
    pub(crate) const fn received(&mut self, bytes: usize) -> bool {
        self.uncounted = self.uncounted.saturating_add(bytes);
        self.uncounted > FREE_BYTES
    }

    /// Counts `kept` bytes, if there is memory for them.
    pub(crate) fn measured(&mut self, kept: usize) {
        let counted = kept.saturating_sub(FREE_BYTES).next_multiple_of(UNIT_BYTES);
        self.uncounted = kept.saturating_sub(counted);
        if let Some(charge) = &mut self.charge {
            self.missing = charge.resize(counted).is_err().then_some(counted);
        }
    }

    /// Whether something is counted that may be released.
    pub(crate) fn is_counted(&self) -> bool {
        self.charge.as_ref().is_some_and(MemoryCharge::is_counted)
    }

    /// Whether memory is missing, so that no more may be received until [`Self::poll_wait`] is ready.
    pub(crate) const fn is_short(&self) -> bool {
        self.missing.is_some() || self.wait.is_some()
    }

    /// Waits for the memory that is missing; ready at once if none is. Gives up after 10 s.
    pub(crate) fn poll_wait(&mut self, context: &mut Context<'_>) -> Poll<Result<(), MemoryExhausted>> {
        if let Some(bytes) = self.missing.take()
            && let Some(mut charge) = self.charge.take()
        {
            self.wait = Some(Box::pin(async move {
                let grown = charge.grow_to(bytes, MAX_WAIT).await;
                (charge, grown)
            }));
        }
        let Some(wait) = &mut self.wait else { return Poll::Ready(Ok(())) };
        let (charge, grown) = ready!(wait.as_mut().poll(context));
        (self.charge, self.wait) = (Some(charge), None);
        Poll::Ready(grown)
    }
}
