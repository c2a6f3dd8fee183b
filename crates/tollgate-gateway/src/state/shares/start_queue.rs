//! The order in which a busy core begins requests and sends refusals: a few at a time, members and keys in turns, and the next few
//! when everything that was ready has run.
//!
//! An event loop begins all requests that are ready. When a core falls behind, these are hundreds: more than its caches hold, so that
//! each takes longer, and a key that sends many delays those of all others. Requests that wait here have not read their bodies and do
//! not count among those in progress.

use std::{
    mem,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::{
    runtime::{Handle, RuntimeMetrics},
    sync::oneshot,
    task::yield_now,
    time::timeout,
};
use tokio_util::task::TaskTracker;

use super::{
    bounds::Bound,
    fair_queue::{FairQueue, Holder, TooManyWaiting},
};
use crate::state::metrics::{Gauge, GaugeGuard};

/// Requests that begin without a turn after the core was idle. As many as it works on at once where it answers most.
const BURST: u32 = 64;
/// Requests that begin in one pass of a busy core, and refusals that are sent: those take at most a tenth of its time.
const REQUESTS_EACH_PASS: usize = 8;
const REFUSALS_EACH_PASS: usize = 1;
/// Requests that wait on one core, and refusals. Twice the connections of an address, so that its callers do not fill it while
/// each waits for its answer.
const MAX_WAITING: usize = 8_192;
const MAX_WAIT: Duration = Duration::from_secs(2);

#[allow(clippy::all)]
fn tune(name: &str, default: usize) -> usize {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}
static T_BURST: std::sync::LazyLock<u32> = std::sync::LazyLock::new(|| tune("TG_B", BURST as usize) as u32);
static T_REQ: std::sync::LazyLock<usize> = std::sync::LazyLock::new(|| tune("TG_R", REQUESTS_EACH_PASS));
static T_REF: std::sync::LazyLock<usize> = std::sync::LazyLock::new(|| tune("TG_F", REFUSALS_EACH_PASS));
static T_WAKE: std::sync::LazyLock<usize> = std::sync::LazyLock::new(|| tune("TG_W", 0));
async fn wake_pass() {
    let mut is_last = false;
    std::future::poll_fn(|context| {
        if mem::replace(&mut is_last, true) {
            return std::task::Poll::Ready(());
        }
        context.waker().wake_by_ref();
        std::task::Poll::Pending
    })
    .await;
}

/// What waits for its turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    /// The rest of a request whose key is known.
    Request,
    /// A refusal of a caller that is refused again and again.
    Refusal,
}

/// Requests and refusals of one core that wait for their turn.
#[derive(Debug)]
pub(crate) struct StartQueue {
    waiting: Mutex<Waiting>,
    core: RuntimeMetrics,
    tracker: TaskTracker,
    waiting_gauge: Gauge,
}

#[derive(Debug)]
struct Waiting {
    requests: FairQueue<oneshot::Sender<()>>,
    refusals: FairQueue<oneshot::Sender<()>>,
    burst: Burst,
    /// Whether the task runs that gives turns.
    is_running: bool,
}

/// What began since the core was idle.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Burst {
    /// How often the core had been idle then.
    idle_count: u64,
    begun: u32,
}

impl Burst {
    /// Counts one more, unless there are too many.
    fn admits(&mut self, idle_count: u64) -> bool {
        if self.idle_count != idle_count {
            *self = Self { idle_count, begun: 0 };
        }
        let is_admitted = self.begun < *T_BURST;
        self.begun += u32::from(is_admitted);
        is_admitted
    }
}

impl StartQueue {
    /// The queue of the core in whose runtime this is called.
    pub(crate) fn new(tracker: TaskTracker, waiting_gauge: Gauge) -> Arc<Self> {
        let queue = || FairQueue::new(Bound::Starts, MAX_WAITING);
        let waiting = Waiting { requests: queue(), refusals: queue(), burst: Burst::default(), is_running: false };
        Arc::new(Self { waiting: Mutex::new(waiting), core: Handle::current().metrics(), tracker, waiting_gauge })
    }

    /// Waits for its turn, for which a core that is not busy does not wait. Cancel-safe.
    ///
    /// # Errors
    /// When there are too many of its holders, or it has waited too long.
    pub(crate) async fn wait_turn(self: &Arc<Self>, turn: Turn, holders: &[Holder]) -> Result<(), TooManyWaiting> {
        let Some(began) = self.join(turn, holders)? else { return Ok(()) };
        let _waits = GaugeGuard::raise(&self.waiting_gauge);
        // Boxed, so that requests that need not wait stay small. The sender is dropped only when the core ends.
        Box::pin(timeout(MAX_WAIT, began)).await.ok().and_then(Result::ok).ok_or(TooManyWaiting)
    }

    /// Joins a queue, unless it is its turn already.
    fn join(self: &Arc<Self>, turn: Turn, holders: &[Holder]) -> Result<Option<oneshot::Receiver<()>>, TooManyWaiting> {
        let mut waiting = self.waiting();
        if !waiting.is_running && waiting.burst.admits(self.core.worker_park_count(0)) {
            return Ok(None);
        }
        let (begin, began) = oneshot::channel();
        let queue = match turn {
            Turn::Request => &mut waiting.requests,
            Turn::Refusal => &mut waiting.refusals,
        };
        queue.join(holders, begin)?;
        if !mem::replace(&mut waiting.is_running, true) {
            let queue = Arc::clone(self);
            self.tracker.spawn(async move { queue.run().await });
        }
        Ok(Some(began))
    }

    /// Gives turns until nothing waits.
    async fn run(&self) {
        loop {
            // Resumes behind everything that is ready now, and that the next look for events finds.
            if *T_WAKE == 1 { wake_pass().await } else { yield_now().await }
            let mut waiting = self.waiting();
            let begun = waiting.begin(Turn::Request) + waiting.begin(Turn::Refusal);
            if begun == 0 {
                waiting.is_running = false;
                return;
            }
        }
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Waiting {
    /// Begins those whose turn it is in one pass; their number. Those whose callers have left, or that waited too long, take no turn.
    fn begin(&mut self, turn: Turn) -> usize {
        let (queue, most) = match turn {
            Turn::Request => (&mut self.requests, *T_REQ),
            Turn::Refusal => (&mut self.refusals, *T_REF),
        };
        let mut begun = 0;
        while begun < most
            && let Some(begin) = queue.next(|_| true)
        {
            begun += usize::from(begin.send(()).is_ok());
        }
        begun
    }
}

#[cfg(test)]
mod tests;
