//! The state that all cores share, and whether the gateway accepts requests.

use std::sync::Arc;

use arc_swap::ArcSwap;
use http::Response;
use tokio_util::task::TaskTracker;
use tollgate_core::{AccountId, BudgetAlert, Catalog, ChannelId, KeyId, RequestContents, RequestId, Subject, UsageRecord};
use tollgate_store::{AccessReport, AccessState, Counters};

use crate::{
    clock::Clock,
    refusal::Refusal,
    request::Head,
    response::AnswerBody,
    serving_state::ServingState,
    settings::Settings,
    state::alert_queue::{AlertQueue, MoneyAlert},
    state::authenticator::Authenticator,
    state::capacity_limiter::LimitedId,
    state::content_queue::ContentQueue,
    state::request_log::{Logged, RefusedRequest, RequestLog},
    state::shares::KeyShare,
    state::trace_queue::{StartedTrace, TraceQueue},
    state::{
        address_rate::AddressRate,
        metrics::{ContentEnd, Metrics, SpanEnd},
        retry_budget::RetryBudget,
        traffic::Traffic,
    },
    upstream::client::Trust,
};

/// Id of refusals for too many wrong keys from an address. They are not logged, because an address can cause any number of them.
const WRONG_KEYS: &str = "E31";

/// State of the process.
#[derive(Debug)]
pub struct Shared {
    /// The current catalog. A request loads it once and keeps it, unless no candidate in it can serve the request. Replaced by
    /// [`Self::replace_catalog`].
    pub catalog: ArcSwap<Catalog>,
    pub keys: Authenticator,
    pub metrics: Metrics,
    pub request_log: RequestLog,
    /// Usage of limits and budgets, and reservations of running requests.
    pub counters: Arc<dyn Counters>,
    pub alerts: AlertQueue,
    /// Ended requests whose spans are exported.
    pub traces: TraceQueue,
    /// Contents of ended requests that are to be stored.
    pub contents: ContentQueue,
    pub traffic: Traffic,
    pub retries: RetryBudget,
    /// Requests for the feeds of the model square, by address.
    pub square_requests: AddressRate,
    pub clock: Arc<dyn Clock>,
    /// The permitted addresses and the trusted roots of all outgoing connections over HTTP and SMTP.
    pub trust: Arc<Trust>,
    /// The settings in force. Replaced by [`Self::replace_settings`].
    pub settings: ArcSwap<Settings>,
    pub serving: Arc<ServingState>,
    /// Tracks every task, so that a shutdown can wait for them.
    pub tracker: TaskTracker,
}

impl Shared {
    /// Replaces the catalog. Running requests keep the one they loaded, unless no candidate in it can serve them.
    pub fn replace_catalog(&self, catalog: Arc<Catalog>) {
        self.catalog.store(catalog);
        self.traffic.catalogs.notify();
    }

    /// Puts other settings into force, for requests that arrive from now on. Sockets, certificates, the number of cores and the sizes
    /// of caches are unchanged.
    pub fn replace_settings(&self, settings: Settings) {
        self.keys.limit_wrong_keys(settings.wrong_keys_per_minute);
        self.square_requests.set_limit(settings.square_requests_per_minute);
        self.request_log.select(settings.logged);
        self.counters.set_reservation_ttl(settings.reservation_ttl());
        self.trust.replace_addresses(settings.addresses.clone());
        self.settings.store(Arc::new(settings));
    }

    /// Records revoked keys and, if the settings require it, ends their running streams. Returns the keys that were not known to be
    /// revoked.
    pub fn revoke(&self, keys: impl IntoIterator<Item = KeyId>) -> Vec<KeyId> {
        let new = self.keys.revoke(keys);
        if !new.is_empty() {
            self.serving.interrupts.notify();
        }
        new
    }

    /// Applies other nodes' reports about keys and members. Returns the reports that changed anything.
    pub fn apply_access(&self, reports: impl IntoIterator<Item = AccessReport>) -> Vec<AccessReport> {
        let apply = |report: &AccessReport| {
            let has_changed = match (report.state, report.subject) {
                (AccessState::Revoked, Subject::Key(key)) => !self.revoke([key]).is_empty(),
                (AccessState::Blocked, subject @ (Subject::Key(_) | Subject::Member(_))) => {
                    self.keys.block(subject, report.revision)
                }
                (AccessState::Allowed, subject) => self.keys.allow(subject, report.revision),
                (AccessState::Revoked | AccessState::Blocked, _) => false,
            };
            // A catalog that this node has read is newer than the report.
            if report.revision > self.catalog.load().revision {
                self.follow_access(report);
            }
            has_changed
        };
        reports.into_iter().filter(apply).collect()
    }

    /// Ends the running streams of a key or member that has lost access, if the settings say so.
    pub fn follow_access(&self, AccessReport { subject, state, revision }: &AccessReport) {
        match (state, *subject) {
            (AccessState::Revoked, Subject::Key(key)) => {
                self.revoke([key]);
                self.keys.resume(*subject);
            }
            (AccessState::Blocked, subject @ (Subject::Key(_) | Subject::Member(_))) => {
                if self.keys.stop(subject, *revision) {
                    self.serving.interrupts.notify();
                }
            }
            (AccessState::Allowed, subject) => self.keys.resume(subject),
            (AccessState::Revoked | AccessState::Blocked, _) => {}
        }
    }

    /// Logs and queues the alert that `request`, sent with the key named `key_name`, spent a budget. Never waits.
    pub fn alert(&self, request: RequestId, key_name: &str, alert: &BudgetAlert) {
        self.alerts.enqueue(request, key_name, alert, &self.catalog.load(), &self.metrics);
    }

    /// Usage of an account with limits: requests in progress, and requests and tokens of the last minute.
    pub fn account_use(&self, account: AccountId) -> (u64, u64, u64) {
        self.capacity_use(LimitedId::Account(account))
    }

    /// Usage of all accounts of a channel with limits: requests in progress, and requests and tokens of the last minute.
    pub fn channel_use(&self, channel: ChannelId) -> (u64, u64, u64) {
        self.capacity_use(LimitedId::Channel(channel))
    }

    fn capacity_use(&self, row: LimitedId) -> (u64, u64, u64) {
        let limiters = &self.traffic.limiters;
        let (used, now) = (limiters.in_use(row), limiters.micros());
        (u64::from(used.running), used.requests.used(now), used.tokens.used(now))
    }

    /// Logs and queues an alert about a request's money. Never waits.
    pub(crate) fn money_alert(&self, record: &UsageRecord, alert: &MoneyAlert<'_>) {
        self.alerts.enqueue_money(record, alert, self.clock.now(), &self.metrics);
    }

    /// Answers with a refusal that leaves no usage record.
    pub(crate) fn refused_without_record(&self, refusal: &Refusal, head: &Head) -> Response<AnswerBody> {
        let problem = refusal.problem(head);
        self.count_refusal(head, refusal.id(head.from), problem.status);
        refusal.respond(head, &problem)
    }

    /// Counts and logs a refusal that leaves no usage record, so that unauthenticated callers cannot fill the database.
    pub(crate) fn count_refusal(&self, head: &Head, id: &'static str, status: u16) {
        self.metrics.refused(id);
        if id == WRONG_KEYS {
            return;
        }
        let took = self.clock.fresh_instant().saturating_duration_since(head.started);
        let refused = RefusedRequest {
            id: head.request_id,
            status,
            error: id,
            protocol: head.from,
            client_request_id: head.client_request_id.as_deref(),
            duration_us: u64::try_from(took.as_micros()).unwrap_or(u64::MAX),
        };
        self.count_logged(self.request_log.refused(&refused, self.clock.now()));
    }

    /// Logs a request that leaves a usage record.
    pub(crate) fn log_request(&self, record: &UsageRecord) {
        self.count_logged(self.request_log.ended(record, || self.clock.now()));
    }

    /// Queues a request for the export of its spans, within the share of its key. Never waits.
    pub(crate) fn trace_request(&self, started: StartedTrace, record: &UsageRecord, share: &Arc<KeyShare>) {
        let dropped = self.traces.send(started, record, share);
        if dropped > 0 {
            self.metrics.telemetry_spans(SpanEnd::Dropped, dropped);
        }
    }

    /// Queues the contents of a request, within the share of its key. Never waits.
    pub(crate) fn store_contents(&self, contents: RequestContents, share: &Arc<KeyShare>) {
        if !self.contents.send(contents, share) {
            self.metrics.contents(ContentEnd::Dropped, 1);
        }
    }

    /// All metrics as text, including values that are read only when they are rendered.
    pub(crate) fn render_metrics(&self) -> String {
        self.metrics.open_reservations(self.counters.open_reservations());
        self.metrics.render()
    }

    fn count_logged(&self, logged: Logged) {
        if logged == Logged::Dropped {
            self.metrics.log_dropped();
        }
    }
}
