//! What the cores share: one value for the process. Everything in it is a snapshot behind a pointer, an atomic, or
//! a map locked for one look-up.

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicUsize, Ordering},
};

use arc_swap::ArcSwap;
use http::Response;
use tokio::sync::Notify;
use tokio_util::task::TaskTracker;
use tollgate_core::{BudgetAlert, Catalog, Outcome, RequestId};
use tollgate_store::Counters;

use crate::{
    clock::Clock,
    refusal::Refusal,
    request::Head,
    response::AnswerBody,
    settings::Settings,
    state::alert_queue::AlertQueue,
    state::authenticator::Authenticator,
    state::{metrics::Metrics, retry_budget::RetryBudget, traffic::Traffic},
};

/// One for the process.
#[derive(Debug)]
pub struct Shared {
    /// The snapshot in force. A request takes it once and keeps it to its end, unless nothing of it can serve the request.
    /// Replaced by [`Self::replace_catalog`].
    pub catalog: ArcSwap<Catalog>,
    /// Where keys are checked.
    pub keys: Authenticator,
    /// What is counted.
    pub metrics: Metrics,
    /// Who has used how much of what, and the reservations of running requests.
    pub counters: Arc<dyn Counters>,
    /// Who is told of budgets that only alert.
    pub alerts: AlertQueue,
    /// What its traffic teaches.
    pub traffic: Traffic,
    /// Further attempts it may make.
    pub retries: RetryBudget,
    /// Where time comes from.
    pub clock: Arc<dyn Clock>,
    /// What the gateway was told at start.
    pub settings: Settings,
    /// Whether requests may come.
    pub condition: Arc<Condition>,
    /// Every task; a shutdown waits for it.
    pub tracker: TaskTracker,
}

impl Shared {
    /// Takes another snapshot into force. Requests under way keep theirs, unless nothing of it can serve them.
    pub fn replace_catalog(&self, catalog: Arc<Catalog>) {
        self.catalog.store(catalog);
        self.traffic.catalogs.notify();
    }

    /// Logs and queues the alert that `request`, sent with the key named `key_name`, spent a budget. Never waits.
    pub fn alert(&self, request: RequestId, key_name: &str, alert: &BudgetAlert) {
        self.alerts.enqueue(request, key_name, alert, &self.catalog.load(), self.clock.now(), &self.metrics);
    }

    /// Answers with a refusal that leaves no usage record: counted and logged only, so that unauthenticated callers cannot fill the
    /// database.
    pub(crate) fn refused_without_record(&self, refusal: &Refusal, head: &Head) -> Response<AnswerBody> {
        let problem = refusal.problem(head);
        let id = refusal.id(head.from);
        self.metrics.refused(id);
        let duration_ms = self.clock.instant().saturating_duration_since(head.started).as_millis();
        tracing::info!(
            request.id = %head.request_id,
            http.status = problem.status,
            error.id = id,
            outcome = Outcome::Refused.as_str(),
            reason = id,
            protocol.in = head.from.as_str(),
            client.request_id = head.client_request_id.as_deref(),
            duration_ms = u64::try_from(duration_ms).unwrap_or(u64::MAX),
            "request"
        );
        refusal.respond(head, &problem)
    }
}

/// Whether requests may come, and how many are here.
#[derive(Debug, Default)]
pub struct Condition {
    listening: AtomicBool,
    degraded: AtomicBool,
    /// Requests that are recorded in memory only.
    in_memory_only: AtomicUsize,
    without_catalog: AtomicBool,
    draining: AtomicBool,
    cutting_off: AtomicBool,
    in_flight: AtomicUsize,
    /// Bytes of request bodies that are held.
    body_bytes: AtomicUsize,
    quiet: Notify,
}

/// What `/readyz` says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Readiness {
    /// Not listening yet, or without any catalog.
    Starting,
    /// All is well.
    Ready,
    /// Serving without a database.
    Degraded,
    /// Shutting down.
    Draining,
}

impl Readiness {
    /// The word shown.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Starting => "starting",
            Self::Ready => "ready",
            Self::Degraded => "degraded",
            Self::Draining => "draining",
        }
    }

    /// Whether requests may be sent here.
    #[must_use]
    pub const fn serves(self) -> bool {
        matches!(self, Self::Ready | Self::Degraded)
    }
}

impl Condition {
    /// What `/readyz` says.
    #[must_use]
    pub fn readiness(&self) -> Readiness {
        if self.is_draining() {
            Readiness::Draining
        } else if !self.listening.load(Ordering::Acquire) || self.without_catalog.load(Ordering::Acquire) {
            Readiness::Starting
        } else if self.degraded.load(Ordering::Acquire) || self.in_memory_only() > 0 {
            Readiness::Degraded
        } else {
            Readiness::Ready
        }
    }

    /// The sockets are open.
    pub(crate) fn listening(&self) {
        self.listening.store(true, Ordering::Release);
    }

    /// Whether the database is away.
    pub fn set_degraded(&self, degraded: bool) {
        self.degraded.store(degraded, Ordering::Release);
    }

    /// How many requests are recorded in memory only, because the journal has no room.
    pub fn set_in_memory_only(&self, requests: usize) {
        self.in_memory_only.store(requests, Ordering::Release);
    }

    /// That many.
    #[must_use]
    pub fn in_memory_only(&self) -> usize {
        self.in_memory_only.load(Ordering::Acquire)
    }

    /// Whether there is no catalog at all, neither from the database nor remembered.
    pub fn set_without_catalog(&self, without: bool) {
        self.without_catalog.store(without, Ordering::Release);
    }

    /// No new requests from now on.
    pub(crate) fn drain(&self) {
        self.draining.store(true, Ordering::Release);
        self.quiet.notify_waiters();
    }

    /// The time to drain is over: whatever is under way ends here, and not because its caller left.
    pub(crate) fn cut_off(&self) {
        self.cutting_off.store(true, Ordering::Release);
    }

    /// Whether answers under way are being cut off.
    pub(crate) fn is_cutting_off(&self) -> bool {
        self.cutting_off.load(Ordering::Acquire)
    }

    /// Whether new requests are refused (E61).
    #[must_use]
    pub fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Acquire)
    }

    /// Requests being answered.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.in_flight.load(Ordering::Acquire)
    }

    /// One more, if there is room for it.
    pub(crate) fn enter(self: &Arc<Self>, most: usize) -> Option<InFlightRequest> {
        let before = self.in_flight.fetch_add(1, Ordering::AcqRel);
        let present = InFlightRequest { condition: Arc::clone(self), body_bytes: AtomicUsize::new(0) };
        (before < most).then_some(present)
    }

    /// Waits until nothing is being answered.
    pub(crate) async fn quiet(&self) {
        loop {
            let notified = self.quiet.notified();
            if self.in_flight() == 0 {
                return;
            }
            notified.await;
        }
    }
}

/// A request being answered; dropped with the last byte.
#[derive(Debug)]
pub(crate) struct InFlightRequest {
    condition: Arc<Condition>,
    body_bytes: AtomicUsize,
}

impl InFlightRequest {
    /// Counts bytes of its body, if all bodies together stay within `most`. Released when the request ends: the
    /// body may be sent more than once until then.
    pub(crate) fn hold(&self, bytes: usize, most: usize) -> bool {
        let before = self.condition.body_bytes.fetch_add(bytes, Ordering::AcqRel);
        self.body_bytes.fetch_add(bytes, Ordering::AcqRel);
        before.saturating_add(bytes) <= most
    }
}

impl Drop for InFlightRequest {
    fn drop(&mut self) {
        self.condition.body_bytes.fetch_sub(self.body_bytes.load(Ordering::Acquire), Ordering::AcqRel);
        if self.condition.in_flight.fetch_sub(1, Ordering::AcqRel) == 1 && self.condition.is_draining() {
            self.condition.quiet.notify_waiters();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bodies_share_their_room_and_give_it_back() {
        let condition = Arc::new(Condition::default());
        let one = condition.enter(2).unwrap();
        let other = condition.enter(2).unwrap();
        assert!(condition.enter(2).is_none());
        assert_eq!(condition.in_flight(), 2, "a request that did not get in is not counted");
        assert!(one.hold(60, 100) && other.hold(40, 100));
        assert!(!other.hold(1, 100));
        drop(one);
        assert!(other.hold(59, 100));
        drop(other);
        assert_eq!((condition.in_flight(), condition.body_bytes.load(Ordering::Acquire)), (0, 0));
    }

    #[test]
    fn readiness_in_order() {
        let condition = Condition::default();
        assert_eq!(condition.readiness(), Readiness::Starting);
        condition.listening();
        assert_eq!(condition.readiness(), Readiness::Ready);
        condition.set_in_memory_only(1);
        assert_eq!(condition.readiness(), Readiness::Degraded);
        condition.set_in_memory_only(0);
        assert_eq!(condition.readiness(), Readiness::Ready);
        condition.set_degraded(true);
        assert_eq!(condition.readiness(), Readiness::Degraded);
        condition.set_without_catalog(true);
        assert_eq!(condition.readiness(), Readiness::Starting);
        condition.drain();
        assert_eq!(condition.readiness(), Readiness::Draining);
        assert!(!condition.readiness().serves());
    }
}
