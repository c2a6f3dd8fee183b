//! Prometheus metrics. Amounts are floats here; the ledger is authoritative.
//!
//! Label values are bounded: names in the catalog, else `other`; never a key or a member. Requests that leave a usage record
//! are counted from the record, off the request path ([`Metrics::observe`]).

mod exports;
mod gen_ai;
mod handles;

use std::{
    sync::{Arc, atomic::AtomicU64},
    time::Duration,
};

use prometheus_client::{
    encoding::{EncodeLabelSet, text},
    metrics::{
        counter::Counter,
        family::Family,
        gauge::Gauge,
        histogram::{Histogram, exponential_buckets},
        info::Info,
    },
    registry::{Metric, Registry},
};
use tollgate_core::{Catalog, NanoUsd, UsageRecord};

pub use self::exports::ExportFigures;
pub(crate) use self::handles::MetricHandles;
use self::{exports::ExportMetrics, gen_ai::GenAiMetrics};

/// Content type of [`Metrics::render`].
pub const METRICS_CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Label value for names that are not in the catalog.
const OTHER: &str = "other";

/// Declares sets of labels. The field names are the labels' names.
macro_rules! label_sets {
    ($($name:ident { $($label:ident: $kind:ty),+ })+) => {$(
        #[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
        struct $name { $($label: $kind),+ }
    )+};
}

label_sets! {
    RequestLabels { protocol: &'static str, model: String, group: String, outcome: &'static str, status: u16 }
    ErrorLabels { error: String }
    ModelLabels { model: String }
    TokenLabels { model: String, kind: &'static str }
    SaleLabels { model: String, group: String }
    ChannelLabels { channel: String }
    AttemptLabels { channel: String, account: String, result: &'static str }
    ProbeLabels { channel: String, result: &'static str }
    AccountLabels { channel: String, account: String }
    ResultLabels { result: &'static str }
    SignalLabels { signal: &'static str, result: &'static str }
    OperationLabels { operation: &'static str }
}

type Money = Counter<f64, AtomicU64>;

/// All metrics of a process.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    requests: Family<RequestLabels, Counter>,
    refusals: Family<ErrorLabels, Counter>,
    duration: Histogram,
    first_content: Family<ModelLabels, Histogram>,
    overhead: Histogram,
    tokens: Family<TokenLabels, Counter>,
    sale: Family<SaleLabels, Money>,
    cost: Family<ChannelLabels, Money>,
    attempts: Family<AttemptLabels, Counter>,
    probes: Family<ProbeLabels, Counter>,
    unknown_content: Family<ChannelLabels, Counter>,
    usage_excess: Family<ChannelLabels, Counter>,
    usage_excess_tokens: Family<ChannelLabels, Counter>,
    below_cost: Family<SaleLabels, Counter>,
    loss: Family<SaleLabels, Money>,
    usable: Family<AccountLabels, Gauge>,
    in_flight: Gauge,
    waiting_requests: Gauge,
    open_reservations: Gauge,
    connections: Gauge,
    connections_evicted: Counter,
    clock_skew: Gauge<f64, AtomicU64>,
    journal_bytes: Gauge,
    journal_oldest: Gauge<f64, AtomicU64>,
    journal_held: Gauge,
    journal_refused: Gauge,
    till_records: Counter,
    alerts: Family<ResultLabels, Counter>,
    log_dropped: Counter,
    unrecorded: Counter,
    store_errors: Family<OperationLabels, Counter>,
    telemetry_spans: Family<ResultLabels, Counter>,
    contents: Family<ResultLabels, Counter>,
    telemetry_exports: Family<SignalLabels, Counter>,
    exports: ExportMetrics,
    /// Counted only if they are exported.
    gen_ai: Option<GenAiMetrics>,
}

/// Outcome of the contents of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ContentEnd {
    Stored,
    /// The queue had no space for them, or the share of their key or member was used up.
    Dropped,
    /// The database did not store them.
    Lost,
}

impl ContentEnd {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Stored => "stored",
            Self::Dropped => "dropped",
            Self::Lost => "lost",
        }
    }
}

/// Outcome of spans.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SpanEnd {
    Sent,
    /// The queue had no space for them, or the share of their key or member was used up.
    Dropped,
    /// They could not be sent.
    Lost,
    /// The collector rejected them.
    Rejected,
}

impl SpanEnd {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Sent => "sent",
            Self::Dropped => "dropped",
            Self::Lost => "lost",
            Self::Rejected => "rejected",
        }
    }
}

/// 10 ms to about 11 minutes.
fn answer_buckets() -> Histogram {
    Histogram::new(exponential_buckets(0.01, 2.0, 17))
}

/// 50 µs to about 0.8 s.
fn overhead_buckets() -> Histogram {
    Histogram::new(exponential_buckets(0.000_05, 2.0, 15))
}

/// A registry whose `register` returns the metric.
struct Registering(Registry);

impl Registering {
    fn register<M: Metric + Clone>(&mut self, name: &str, help: &str, metric: M) -> M {
        self.0.register(name, help, metric.clone());
        metric
    }
}

impl Metrics {
    /// All metrics at zero. `version` is the program's. The encoder appends `_total` to counters.
    #[must_use]
    pub fn new(version: &str) -> Self {
        let mut registry = Registering(Registry::with_prefix("tollgate"));
        let first_content = Family::new_with_constructor(answer_buckets as fn() -> Histogram);
        let unknown = "Parts of translated answers that were dropped because their type is unknown";
        let excess = "Usage reports above what their requests can account for";
        let excess_tokens = "Reported tokens that are not billed, because their requests cannot account for them";
        let below_cost = "Completed requests whose cost was above their sale amount";
        let held = "Requests recorded only in memory because the journal is full";
        let refused = "Records moved out of the journal since the start because the database rejected them";
        let duration = "Time from arrival to the last byte of the answer";
        let skew = "How far the clock of this node is ahead of that of Redis, in seconds";
        let evicted = "Connections without a request closed because a listener was near its limit";
        let mut metrics = Self {
            requests: registry.register("requests", "Model requests with a known key", Family::default()),
            refusals: registry.register("refusals", "Requests refused by the gateway, by error id", Family::default()),
            duration: registry.register("request_duration_seconds", duration, answer_buckets()),
            first_content: registry.register("first_content_seconds", "Time from arrival to the first content", first_content),
            overhead: registry.register("overhead_seconds", "Request time not spent waiting for an upstream", overhead_buckets()),
            tokens: registry.register("tokens", "Model tokens, by kind", Family::default()),
            sale: registry.register("sale_usd", "Sale amount charged to callers, in USD", Family::default()),
            cost: registry.register("cost_usd", "Cost charged by providers, in USD", Family::default()),
            attempts: registry.register("attempts", "Attempts on accounts, by result", Family::default()),
            probes: registry.register("probes", "Probes of accounts, by result", Family::default()),
            unknown_content: registry.register("unknown_content", unknown, Family::default()),
            usage_excess: registry.register("usage_excess", excess, Family::default()),
            usage_excess_tokens: registry.register("usage_excess_tokens", excess_tokens, Family::default()),
            below_cost: registry.register("sold_below_cost", below_cost, Family::default()),
            loss: registry.register("loss_usd", "Cost above the sale amount of requests sold below cost", Family::default()),
            usable: registry.register("account_usable", "1 when the account can be used, else 0", Family::default()),
            in_flight: registry.register("in_flight", "Requests in progress", Gauge::default()),
            waiting_requests: registry.register("waiting_requests", "Requests that wait for a busy core", Gauge::default()),
            open_reservations: registry.register("holds", "Open reservations of requests in progress", Gauge::default()),
            connections: registry.register("connections", "Open connections from callers", Gauge::default()),
            connections_evicted: registry.register("connections_evicted", evicted, Counter::default()),
            clock_skew: registry.register("clock_skew_seconds", skew, Gauge::default()),
            journal_bytes: registry.register("journal_bytes", "Size of the journal in bytes", Gauge::default()),
            journal_oldest: registry.register(
                "journal_oldest_seconds",
                "Age of the oldest record not yet in the database",
                Gauge::default(),
            ),
            journal_held: registry.register("journal_held", held, Gauge::default()),
            journal_refused: registry.register("journal_refused", refused, Gauge::default()),
            till_records: registry.register("till_records", "Usage records written to the database", Counter::default()),
            alerts: registry.register("alerts", "Messages about alerts, by result", Family::default()),
            log_dropped: registry.register(
                "log_dropped",
                "Log lines of requests left out because the log is slow",
                Counter::default(),
            ),
            unrecorded: registry.register("unrecorded", "Requests answered without a usage record", Counter::default()),
            store_errors: registry.register("store_errors", "Database errors, by operation", Family::default()),
            contents: registry.register("contents", "Requests whose contents were to be stored, by result", Family::default()),
            telemetry_spans: registry.register("telemetry_spans", "Spans for the collector, by result", Family::default()),
            telemetry_exports: registry.register("telemetry_exports", "Exports to the collector, by result", Family::default()),
            exports: ExportMetrics::new(&mut registry),
            gen_ai: None,
            registry: Registry::default(),
        };
        let mut registry = registry.0;
        registry.register("build", "Version of the program", Info::new(vec![("version".to_owned(), version.to_owned())]));
        metrics.registry = registry;
        metrics
    }

    /// Also counts the metrics of the conventions for generative AI, for export.
    #[must_use]
    pub fn with_gen_ai(self) -> Self {
        Self { gen_ai: Some(GenAiMetrics::new()), ..self }
    }

    /// The metrics of the conventions for generative AI, in the same format.
    pub(crate) fn render_gen_ai(&self) -> String {
        let mut out = String::new();
        if let Some(metrics) = &self.gen_ai {
            metrics.render(&mut out);
        }
        out
    }

    #[must_use]
    pub fn render(&self) -> String {
        let mut out = String::new();
        // Writing to a string cannot fail. If a label cannot be encoded, the output ends before it.
        if text::encode(&mut out, &self.registry).is_err() {
            out.push_str("# EOF\n");
        }
        out
    }

    /// Counts a refusal that leaves no usage record (E1, E2, paths, lists, framing).
    pub fn refused(&self, id: &'static str) {
        self.refusals.get_or_create(&ErrorLabels { error: id.to_owned() }).inc();
    }

    pub fn probed(&self, channel: &str, result: &'static str) {
        self.probes.get_or_create(&ProbeLabels { channel: channel.to_owned(), result }).inc();
    }

    /// Counts parts of a translated answer that were dropped because their type is unknown.
    pub fn unknown_content(&self, channel: &str, pieces: u32) {
        self.unknown_content.get_or_create(&ChannelLabels { channel: channel.to_owned() }).inc_by(pieces.into());
    }

    /// Counts a usage report above what its request can account for.
    pub(crate) fn usage_excess(&self, channel: &str, tokens: u64) {
        let labels = ChannelLabels { channel: channel.to_owned() };
        self.usage_excess.get_or_create(&labels).inc();
        self.usage_excess_tokens.get_or_create(&labels).inc_by(tokens);
    }

    /// Counts a request that was sold below cost.
    pub(crate) fn sold_below_cost(&self, record: &UsageRecord, loss: NanoUsd, catalog: &Catalog) {
        let model = model_label(record, catalog);
        let labels = SaleLabels { model, group: record.group_name.as_deref().unwrap_or(OTHER).to_owned() };
        self.below_cost.get_or_create(&labels).inc();
        self.loss.get_or_create(&labels).inc_by(usd(loss.0));
    }

    /// Counts a usage record. Names that are not in the catalog become `other`.
    pub(crate) fn observe(&self, record: &UsageRecord, catalog: &Arc<Catalog>, handles: &MetricHandles) {
        if let Some(reason) = record.reason.as_deref().filter(|reason| is_error_id(reason)) {
            self.refusals.get_or_create(&ErrorLabels { error: reason.to_owned() }).inc();
        }
        self.duration.observe(seconds(record.duration_us));
        let upstream = record.attempts.iter().map(|attempt| attempt.duration_us).sum::<u64>();
        self.overhead.observe(seconds(record.duration_us.saturating_sub(upstream)));
        let mut table = handles.table(catalog);
        for attempt in &record.attempts {
            table.account(attempt, catalog).count_attempt(self, attempt);
        }
        if let Some(gen_ai) = &self.gen_ai {
            table.count_gen_ai(gen_ai, record, catalog);
        }
        let model = table.model(record.model.as_deref(), catalog);
        if let Some(first) = record.ttft_us {
            model.observe_first_content(self, first);
        }
        model.count_tokens(self, &record.tokens);
        model.count_request(self, record);
    }

    pub fn account_usable(&self, channel: &str, account: &str, usable: bool) {
        let labels = AccountLabels { channel: channel.to_owned(), account: account.to_owned() };
        self.usable.get_or_create(&labels).set(i64::from(usable));
    }

    /// Clears the gauges of accounts, so that those of removed accounts disappear.
    pub fn clear_account_gauges(&self) {
        self.usable.clear();
    }

    pub fn journal(&self, bytes: u64, oldest: Duration) {
        self.journal_bytes.set(whole(bytes));
        self.journal_oldest.set(oldest.as_secs_f64());
    }

    /// Sets the requests recorded only in memory, and the records that the database rejected.
    pub fn journal_trouble(&self, held: usize, refused: usize) {
        self.journal_held.set(whole(held));
        self.journal_refused.set(whole(refused));
    }

    /// Sets how far the clock of this node is ahead of that of Redis.
    #[expect(clippy::cast_precision_loss, reason = "charts need no more than 53 bits")]
    pub fn clock_skew(&self, micros: i64) {
        self.clock_skew.set(micros as f64 / 1_000_000.0);
    }

    pub fn open_reservations(&self, open: usize) {
        self.open_reservations.set(whole(open));
    }

    pub fn booked(&self, records: u64) {
        self.till_records.inc_by(records);
    }

    pub(crate) fn log_dropped(&self) {
        self.log_dropped.inc();
    }

    pub fn unrecorded(&self) {
        self.unrecorded.inc();
    }

    /// Counts a message about an alert: `sent` or `lost`.
    pub fn alert(&self, result: &'static str) {
        self.alerts.get_or_create(&ResultLabels { result }).inc();
    }

    /// Counts requests whose contents were to be stored.
    pub(crate) fn contents(&self, end: ContentEnd, requests: usize) {
        self.contents.get_or_create(&ResultLabels { result: end.as_str() }).inc_by(requests as u64);
    }

    pub(crate) fn telemetry_spans(&self, end: SpanEnd, spans: usize) {
        self.telemetry_spans.get_or_create(&ResultLabels { result: end.as_str() }).inc_by(spans as u64);
    }

    /// Counts an export of a signal: `sent`, `retried` or `lost`.
    pub(crate) fn telemetry_export(&self, signal: &'static str, result: &'static str) {
        self.telemetry_exports.get_or_create(&SignalLabels { signal, result }).inc();
    }

    pub fn store_error(&self, operation: &'static str) {
        self.store_errors.get_or_create(&OperationLabels { operation }).inc();
    }

    /// Counts a request in progress until the guard is dropped.
    pub(crate) fn in_flight(&self) -> GaugeGuard {
        GaugeGuard::raise(&self.in_flight)
    }

    /// The gauge of requests that wait for a busy core.
    pub(crate) fn waiting_requests(&self) -> Gauge {
        self.waiting_requests.clone()
    }

    /// Counts a connection until the guard is dropped.
    pub(crate) fn connection(&self) -> GaugeGuard {
        GaugeGuard::raise(&self.connections)
    }

    /// Counts evicted connections.
    pub(crate) fn connections_evicted(&self, count: usize) {
        self.connections_evicted.inc_by(count as u64);
    }
}

/// The model's name if it is in the catalog.
fn model_label(record: &UsageRecord, catalog: &Catalog) -> String {
    record.model.as_deref().filter(|name| catalog.mappings_by_model.contains_key(*name)).unwrap_or(OTHER).to_owned()
}

/// Keeps a gauge incremented while it lives.
#[derive(Debug)]
pub(crate) struct GaugeGuard(Gauge);

impl GaugeGuard {
    pub(crate) fn raise(gauge: &Gauge) -> Self {
        gauge.inc();
        Self(gauge.clone())
    }
}

impl Drop for GaugeGuard {
    fn drop(&mut self) {
        self.0.dec();
    }
}

/// A gauge's value.
fn whole(count: impl TryInto<i64>) -> i64 {
    count.try_into().unwrap_or(i64::MAX)
}

fn is_error_id(reason: &str) -> bool {
    reason.strip_prefix('E').is_some_and(|digits| !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit()))
}

#[expect(clippy::cast_precision_loss, reason = "charts need no more than 53 bits")]
fn seconds(us: u64) -> f64 {
    us as f64 / 1_000_000.0
}

/// Nano-USD to USD. Negative amounts become zero, because a counter cannot decrease.
#[expect(clippy::cast_precision_loss, reason = "charts need no more than 53 bits")]
fn usd(nano_usd: i64) -> f64 {
    nano_usd.max(0) as f64 / 1_000_000_000.0
}

#[cfg(test)]
mod tests;
