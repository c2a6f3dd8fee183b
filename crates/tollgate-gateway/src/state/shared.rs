//! The state that all cores share, and whether the gateway accepts requests.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use arc_swap::ArcSwap;
use http::Response;
use tokio::sync::Notify;
use tokio_util::{sync::CancellationToken, task::TaskTracker};
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

/// State of the process.
#[derive(Debug)]
pub struct Shared {
    /// The current catalog. A request loads it once and keeps it, unless no candidate in it can serve the request. Replaced by
    /// [`Self::replace_catalog`].
    pub catalog: ArcSwap<Catalog>,
    /// Looks up presented keys.
    pub keys: Authenticator,
    /// Metrics of the process.
    pub metrics: Metrics,
    /// Usage of limits and budgets, and reservations of running requests.
    pub counters: Arc<dyn Counters>,
    /// Alerts about spent budgets that do not block.
    pub alerts: AlertQueue,
    /// State derived from traffic.
    pub traffic: Traffic,
    /// Limits retries.
    pub retries: RetryBudget,
    /// The only source of time.
    pub clock: Arc<dyn Clock>,
    /// Settings given at start.
    pub settings: Settings,
    /// Whether requests are accepted.
    pub condition: Arc<Condition>,
    /// Tracks every task, so that a shutdown can wait for them.
    pub tracker: TaskTracker,
}

impl Shared {
    /// Replaces the catalog. Running requests keep the one they loaded, unless no candidate in it can serve them.
    pub fn replace_catalog(&self, catalog: Arc<Catalog>) {
        self.catalog.store(catalog);
        self.traffic.catalogs.notify();
    }

    /// Logs and queues the alert that `request`, sent with the key named `key_name`, spent a budget. Never waits.
    pub fn alert(&self, request: RequestId, key_name: &str, alert: &BudgetAlert) {
        self.alerts.enqueue(request, key_name, alert, &self.catalog.load(), self.clock.now(), &self.metrics);
    }

    /// Answers with a refusal that leaves no usage record: it is counted and logged only, so that unauthenticated callers
    /// cannot fill the database.
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

/// Whether requests are accepted, and how many are running.
#[derive(Debug, Default)]
pub struct Condition {
    listening: AtomicBool,
    degraded: AtomicBool,
    /// Requests recorded only in memory.
    in_memory_only: AtomicUsize,
    without_catalog: AtomicBool,
    draining: AtomicBool,
    cutting_off: AtomicBool,
    /// Cancelled when the operator does not want to wait for running requests.
    ending_now: CancellationToken,
    in_flight: AtomicUsize,
    /// Bytes of request bodies in memory.
    body_bytes: AtomicUsize,
    quiet: Notify,
}

/// The state reported by `/readyz`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Readiness {
    /// Not listening yet, or no catalog.
    Starting,
    /// Fully working.
    Ready,
    /// Serving without a database.
    Degraded,
    /// Shutting down.
    Draining,
}

impl Readiness {
    /// The word that `/readyz` returns.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Starting => "starting",
            Self::Ready => "ready",
            Self::Degraded => "degraded",
            Self::Draining => "draining",
        }
    }

    /// Whether requests are accepted.
    #[must_use]
    pub const fn serves(self) -> bool {
        matches!(self, Self::Ready | Self::Degraded)
    }
}

impl Condition {
    /// The state reported by `/readyz`.
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

    /// Sets the state after the sockets are open.
    pub(crate) fn listening(&self) {
        self.listening.store(true, Ordering::Release);
    }

    /// Sets whether the database is unavailable.
    pub fn set_degraded(&self, degraded: bool) {
        self.degraded.store(degraded, Ordering::Release);
    }

    /// Sets the number of requests recorded only in memory because the journal is full.
    pub fn set_in_memory_only(&self, requests: usize) {
        self.in_memory_only.store(requests, Ordering::Release);
    }

    /// Requests recorded only in memory because the journal is full.
    #[must_use]
    pub fn in_memory_only(&self) -> usize {
        self.in_memory_only.load(Ordering::Acquire)
    }

    /// Sets whether there is no catalog, neither from the database nor from the local copy.
    pub fn set_without_catalog(&self, without: bool) {
        self.without_catalog.store(without, Ordering::Release);
    }

    /// Stops accepting requests.
    pub(crate) fn drain(&self) {
        self.draining.store(true, Ordering::Release);
        self.quiet.notify_waiters();
    }

    /// The drain time is over: running requests end because of the gateway and not because their callers left.
    pub(crate) fn cut_off(&self) {
        self.cutting_off.store(true, Ordering::Release);
    }

    /// Ends a drain, or the next one, at once.
    pub fn end_now(&self) {
        self.ending_now.cancel();
    }

    /// Whether a drain was ended by [`Self::end_now`].
    #[must_use]
    pub fn is_ending_now(&self) -> bool {
        self.ending_now.is_cancelled()
    }

    /// Waits until running requests are done, at most this long; whether they are.
    pub(crate) async fn quiet_within(&self, limit: Duration) -> bool {
        tokio::select! {
            quiet = tokio::time::timeout(limit, self.quiet()) => quiet.is_ok(),
            () = self.ending_now.cancelled() => self.in_flight() == 0,
        }
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

    /// Running requests.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.in_flight.load(Ordering::Acquire)
    }

    /// Admits a request if fewer than `most` are running.
    pub(crate) fn enter(self: &Arc<Self>, most: usize) -> Option<InFlightRequest> {
        let before = self.in_flight.fetch_add(1, Ordering::AcqRel);
        let present = InFlightRequest { condition: Arc::clone(self), body_bytes: AtomicUsize::new(0) };
        (before < most).then_some(present)
    }

    /// Waits until no request is running.
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

/// A running request; dropped with the last byte of its answer.
#[derive(Debug)]
pub(crate) struct InFlightRequest {
    condition: Arc<Condition>,
    body_bytes: AtomicUsize,
}

impl InFlightRequest {
    /// Reserves memory for `bytes` of the request body; false when all bodies together exceed `most`. Released when the
    /// request ends, because the body may be sent more than once until then.
    pub(crate) fn reserve_body(&self, bytes: usize, most: usize) -> bool {
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
    fn bodies_share_their_memory_and_release_it() {
        let condition = Arc::new(Condition::default());
        let one = condition.enter(2).unwrap();
        let other = condition.enter(2).unwrap();
        assert!(condition.enter(2).is_none());
        assert_eq!(condition.in_flight(), 2, "a request that was not admitted is not counted");
        assert!(one.reserve_body(60, 100) && other.reserve_body(40, 100));
        assert!(!other.reserve_body(1, 100));
        drop(one);
        assert!(other.reserve_body(59, 100));
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
