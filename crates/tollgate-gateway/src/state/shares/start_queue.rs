//! The order in which a busy core begins requests and sends refusals: a few in each pass, round-robin over members and keys. The
//! next pass begins when all ready tasks have run.
//!
//! An event loop begins all requests that are ready. When a core falls behind, there are hundreds of them: more than its caches hold,
//! so each takes longer, and a key that sends many delays the requests of all others. Requests that wait here have not read their
//! bodies and do not count among those in progress.

use std::{
    mem,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use prometheus_client::metrics::gauge::Gauge;
use tokio::{
    runtime::{Handle, RuntimeMetrics},
    sync::oneshot,
    task::yield_now,
    time::{Instant, sleep, timeout},
};
use tokio_util::task::TaskTracker;

use super::{
    KeyShare,
    bounds::Bound,
    fair_queue::{FairQueue, Holder, TooManyWaiting},
    in_flight::{InFlightRequest, NotAdmitted},
};
use crate::{clock::Clock, state::metrics::GaugeGuard};

/// Requests that begin without waiting after the core was idle: the number of concurrent requests at which a core's throughput is
/// highest.
const BURST: u32 = 64;
/// Requests that begin in one pass of a busy core, and refusals that are sent: those take at most a tenth of its time.
const REQUESTS_EACH_PASS: usize = 8;
const REFUSALS_EACH_PASS: usize = 1;
/// Requests that wait on one core, and refusals. Twice the connections of an address, so that its callers do not fill it while
/// each waits for its answer.
const MAX_WAITING: usize = 8_192;
const MAX_WAIT: Duration = Duration::from_secs(2);
/// Longest wait until the request may count among those in progress, including the wait for its turn. On a busy core this usually takes
/// a moment; if the requests in progress take long, the caller is refused soon.
const MAX_PLACE_WAIT: Duration = Duration::from_millis(250);
/// Time between two passes when no waiting request can be admitted.
const PLACE_INTERVAL: Duration = Duration::from_millis(1);

/// Requests and refusals of one core that wait for their turn.
#[derive(Debug)]
pub(crate) struct StartQueue {
    clock: Arc<dyn Clock>,
    waiting: Mutex<Waiting>,
    core: RuntimeMetrics,
    tracker: TaskTracker,
    waiting_gauge: Gauge,
}

#[derive(Debug)]
struct Waiting {
    requests: FairQueue<WaitingRequest>,
    refusals: FairQueue<oneshot::Sender<()>>,
    burst: Burst,
    /// True while the task that runs the passes exists.
    is_running: bool,
}

/// A request that waits for its turn and for capacity among the requests in progress.
#[derive(Debug)]
struct WaitingRequest {
    begin: oneshot::Sender<Result<(), NotAdmitted>>,
    /// The request and the share that it counts against; `None` for a request that is not counted.
    place: Option<(Arc<InFlightRequest>, Arc<KeyShare>)>,
    since: Instant,
}

/// Requests that began since the core was idle.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Burst {
    /// The core's idle count at that time.
    idle_count: u64,
    begun: u32,
}

impl Burst {
    /// Counts one more, unless there are too many.
    fn admits(&mut self, idle_count: u64) -> bool {
        if self.idle_count != idle_count {
            *self = Self { idle_count, begun: 0 };
        }
        let is_admitted = self.begun < BURST;
        self.begun += u32::from(is_admitted);
        is_admitted
    }
}

impl StartQueue {
    /// The queue of the core in whose runtime this is called.
    pub(crate) fn new(clock: Arc<dyn Clock>, tracker: TaskTracker, waiting_gauge: Gauge) -> Arc<Self> {
        let (requests, refusals) = (FairQueue::new(Bound::Starts, MAX_WAITING), FairQueue::new(Bound::Starts, MAX_WAITING));
        let waiting = Waiting { requests, refusals, burst: Burst::default(), is_running: false };
        Arc::new(Self { clock, waiting: Mutex::new(waiting), core: Handle::current().metrics(), tracker, waiting_gauge })
    }

    /// Waits until a request may begin, and counts it among those in progress. On a core that is not busy it does not wait. Cancel-safe.
    ///
    /// # Errors
    /// When too many requests wait or are in progress, all of them or of its key and member.
    pub(crate) async fn begin_request(
        self: &Arc<Self>,
        share: &Arc<KeyShare>,
        request: Option<&Arc<InFlightRequest>>,
    ) -> Result<(), NotAdmitted> {
        let Some(began) = self.join_requests(share, request)? else {
            return request.map_or(Ok(()), |request| request.claim(share));
        };
        // Boxed, so that requests that need not wait stay small.
        Box::pin(self.turn(began)).await.unwrap_or(Err(NotAdmitted::Full))
    }

    /// Waits until a refusal may be sent, unless too many wait. On a core that is not busy it does not wait. Cancel-safe.
    pub(crate) async fn send_refusal(self: &Arc<Self>, holders: &[Holder]) {
        if let Ok(Some(sent)) = self.join_refusals(holders) {
            Box::pin(self.turn(sent)).await;
        }
    }

    /// The queue's answer; `None` after [`MAX_WAIT`]. The sender is dropped only when the core ends.
    async fn turn<T>(&self, answer: oneshot::Receiver<T>) -> Option<T> {
        let _waits = GaugeGuard::raise(&self.waiting_gauge);
        timeout(MAX_WAIT, answer).await.ok().and_then(Result::ok)
    }

    /// Joins the queue of requests, unless it is the request's turn already.
    fn join_requests(
        self: &Arc<Self>,
        share: &Arc<KeyShare>,
        request: Option<&Arc<InFlightRequest>>,
    ) -> Result<Option<oneshot::Receiver<Result<(), NotAdmitted>>>, NotAdmitted> {
        let mut waiting = self.waiting();
        if waiting.is_turn(&self.core) {
            return Ok(None);
        }
        let (begin, began) = oneshot::channel();
        let place = request.map(|request| (Arc::clone(request), Arc::clone(share)));
        let joins = WaitingRequest { begin, place, since: self.clock.instant() };
        waiting.requests.join(&share.holders(), joins).map_err(|TooManyWaiting| NotAdmitted::Full)?;
        self.keep_running(&mut waiting);
        Ok(Some(began))
    }

    /// Joins the queue of refusals, unless it is the refusal's turn already.
    fn join_refusals(self: &Arc<Self>, holders: &[Holder]) -> Result<Option<oneshot::Receiver<()>>, TooManyWaiting> {
        let mut waiting = self.waiting();
        if waiting.is_turn(&self.core) {
            return Ok(None);
        }
        let (send, sent) = oneshot::channel();
        waiting.refusals.join(holders, send)?;
        self.keep_running(&mut waiting);
        Ok(Some(sent))
    }

    /// Starts the task that runs the passes, unless it exists.
    fn keep_running(self: &Arc<Self>, waiting: &mut Waiting) {
        if !mem::replace(&mut waiting.is_running, true) {
            let queue = Arc::clone(self);
            self.tracker.spawn(async move { queue.run().await });
        }
    }

    /// Runs passes until nothing waits.
    async fn run(&self) {
        loop {
            // Resumes after everything that is ready now or found by the next poll for events.
            yield_now().await;
            let (begun, still_wait) = self.waiting().pass(self.clock.instant());
            if !still_wait && begun == 0 {
                return;
            }
            if begun == 0 {
                sleep(PLACE_INTERVAL).await;
            }
        }
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Waiting {
    /// Whether a request or a refusal begins without waiting.
    fn is_turn(&mut self, core: &RuntimeMetrics) -> bool {
        !self.is_running && self.burst.admits(core.worker_park_count(0))
    }

    /// Runs one pass. Returns the number of requests and refusals that began, and whether requests still wait for capacity; if neither,
    /// the task ends. Requests whose callers have left, or that waited too long, do not count towards the pass.
    fn pass(&mut self, now: Instant) -> (usize, bool) {
        let mut begun = 0;
        while begun < REQUESTS_EACH_PASS
            && let Some(next) = self.requests.next(|request| request.may_begin(now))
        {
            begun += usize::from(next.begin());
        }
        let mut sent = 0;
        while sent < REFUSALS_EACH_PASS
            && let Some(send) = self.refusals.next(|_| true)
        {
            sent += usize::from(send.send(()).is_ok());
        }
        let still_wait = self.requests.len() > 0;
        self.is_running = still_wait || begun + sent > 0;
        (begun + sent, still_wait)
    }
}

impl WaitingRequest {
    /// True if the wait ends now: the request was counted among those in progress, has waited too long, or its caller has left.
    fn may_begin(&self, now: Instant) -> bool {
        self.begin.is_closed() || self.claim().is_ok() || now.saturating_duration_since(self.since) >= MAX_PLACE_WAIT
    }

    /// Answers the request. Returns whether its caller is still there.
    fn begin(self) -> bool {
        !self.begin.is_closed() && {
            let admitted = self.claim();
            self.begin.send(admitted).is_ok()
        }
    }

    /// Counts the request among those in progress, unless it counts already.
    fn claim(&self) -> Result<(), NotAdmitted> {
        self.place.as_ref().map_or(Ok(()), |(request, share)| request.claim(share))
    }
}

#[cfg(test)]
mod tests;
