//! Prometheus metrics. Amounts are floats here; the ledger is authoritative.
//!
//! Label values are bounded: names in the catalog, else `other`; never a key or a member. Requests that leave a usage record
//! are counted from the record, off the request path ([`Metrics::observe`]).

use std::{fmt, sync::atomic::AtomicU64, time::Duration};

use prometheus_client::{
    encoding::{EncodeLabelSet, text},
    metrics::{
        counter::Counter,
        family::Family,
        gauge::Gauge,
        histogram::{Histogram, exponential_buckets},
        info::Info,
    },
    registry::Registry,
};
use tollgate_core::{AttemptRecord, Catalog, Tokens, UsageRecord};

/// Content type of [`Metrics::render`].
pub const METRICS_CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Label value for names that are not in the catalog.
const OTHER: &str = "other";

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RequestLabels {
    protocol: &'static str,
    model: String,
    group: String,
    outcome: &'static str,
    status: u16,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ErrorLabels {
    error: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ModelLabels {
    model: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct TokenLabels {
    model: String,
    kind: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct SaleLabels {
    model: String,
    group: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ChannelLabels {
    channel: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct AttemptLabels {
    channel: String,
    account: String,
    result: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ProbeLabels {
    channel: String,
    result: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct AccountLabels {
    channel: String,
    account: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ResultLabels {
    result: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OperationLabels {
    operation: &'static str,
}

type Money = Counter<f64, AtomicU64>;

/// All metrics of a process.
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
    usable: Family<AccountLabels, Gauge>,
    in_flight: Gauge,
    open_reservations: Gauge,
    connections: Gauge,
    journal_bytes: Gauge,
    journal_oldest: Gauge<f64, AtomicU64>,
    journal_held: Gauge,
    journal_refused: Gauge,
    till_records: Counter,
    unrecorded: Counter,
    alerts: Family<ResultLabels, Counter>,
    store_errors: Family<OperationLabels, Counter>,
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Metrics").finish_non_exhaustive()
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

impl Metrics {
    /// All metrics at zero. `version` is the program's.
    #[must_use]
    pub fn new(version: &str) -> Self {
        let first_content = Family::new_with_constructor(answer_buckets as fn() -> Histogram);
        let mut metrics = Self {
            registry: Registry::with_prefix("tollgate"),
            requests: Family::default(),
            refusals: Family::default(),
            duration: answer_buckets(),
            first_content,
            overhead: overhead_buckets(),
            tokens: Family::default(),
            sale: Family::default(),
            cost: Family::default(),
            attempts: Family::default(),
            probes: Family::default(),
            unknown_content: Family::default(),
            usable: Family::default(),
            in_flight: Gauge::default(),
            open_reservations: Gauge::default(),
            connections: Gauge::default(),
            journal_bytes: Gauge::default(),
            journal_oldest: Gauge::default(),
            journal_held: Gauge::default(),
            journal_refused: Gauge::default(),
            till_records: Counter::default(),
            unrecorded: Counter::default(),
            alerts: Family::default(),
            store_errors: Family::default(),
        };
        metrics.register(version);
        metrics
    }

    /// Registers every metric. The encoder appends `_total` to counters.
    fn register(&mut self, version: &str) {
        let Self { registry, .. } = self;
        registry.register("requests", "Model requests with a known key", self.requests.clone());
        registry.register("refusals", "Requests refused by the gateway, by error id", self.refusals.clone());
        registry.register("request_duration_seconds", "Time from arrival to the last byte of the answer", self.duration.clone());
        registry.register("first_content_seconds", "Time from arrival to the first content", self.first_content.clone());
        registry.register("overhead_seconds", "Request time not spent waiting for an upstream", self.overhead.clone());
        registry.register("tokens", "Model tokens, by kind", self.tokens.clone());
        registry.register("sale_usd", "Sale amount charged to callers, in USD", self.sale.clone());
        registry.register("cost_usd", "Cost charged by providers, in USD", self.cost.clone());
        registry.register("attempts", "Attempts on accounts, by result", self.attempts.clone());
        registry.register("probes", "Probes of accounts, by result", self.probes.clone());
        let unknown = "Parts of translated answers that were dropped because their type is unknown";
        registry.register("unknown_content", unknown, self.unknown_content.clone());
        registry.register("account_usable", "1 when the account can be used, else 0", self.usable.clone());
        registry.register("in_flight", "Requests in progress", self.in_flight.clone());
        registry.register("holds", "Open reservations of requests in progress", self.open_reservations.clone());
        registry.register("connections", "Open connections from callers", self.connections.clone());
        registry.register("journal_bytes", "Size of the journal in bytes", self.journal_bytes.clone());
        registry.register(
            "journal_oldest_seconds",
            "Age of the oldest record not yet in the database",
            self.journal_oldest.clone(),
        );
        let held = "Requests recorded only in memory because the journal is full";
        registry.register("journal_held", held, self.journal_held.clone());
        let refused = "Records moved out of the journal since the start because the database rejected them";
        registry.register("journal_refused", refused, self.journal_refused.clone());
        registry.register("till_records", "Usage records written to the database", self.till_records.clone());
        registry.register("alerts", "Webhook alerts, by result", self.alerts.clone());
        registry.register("unrecorded", "Requests answered without a usage record", self.unrecorded.clone());
        registry.register("store_errors", "Database errors, by operation", self.store_errors.clone());
        registry.register("build", "Version of the program", Info::new(vec![("version".to_owned(), version.to_owned())]));
    }

    /// The text of `/metrics`.
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

    /// Counts a probe of an account.
    pub fn probed(&self, channel: &str, result: &'static str) {
        self.probes.get_or_create(&ProbeLabels { channel: channel.to_owned(), result }).inc();
    }

    /// Counts parts of a translated answer that were dropped because their type is unknown.
    pub fn unknown_content(&self, channel: &str, pieces: u32) {
        self.unknown_content.get_or_create(&ChannelLabels { channel: channel.to_owned() }).inc_by(pieces.into());
    }

    /// Counts a usage record. Names that are not in the catalog become `other`.
    pub fn observe(&self, record: &UsageRecord, catalog: &Catalog) {
        let model =
            record.model.as_deref().filter(|name| catalog.mappings_by_model.contains_key(*name)).unwrap_or(OTHER).to_owned();
        let group = record.group_name.as_deref().unwrap_or(OTHER).to_owned();
        self.requests
            .get_or_create(&RequestLabels {
                protocol: record.protocol_in.as_str(),
                model: model.clone(),
                group: group.clone(),
                outcome: record.outcome.as_str(),
                status: record.status,
            })
            .inc();
        if let Some(reason) = record.reason.as_deref().filter(|reason| is_error_id(reason)) {
            self.refusals.get_or_create(&ErrorLabels { error: reason.to_owned() }).inc();
        }
        self.duration.observe(seconds(record.duration_us));
        let upstream = record.attempts.iter().map(|attempt| attempt.duration_us).sum::<u64>();
        self.overhead.observe(seconds(record.duration_us.saturating_sub(upstream)));
        if let Some(first) = record.ttft_us {
            self.first_content.get_or_create(&ModelLabels { model: model.clone() }).observe(seconds(first));
        }
        self.observe_tokens(&record.tokens, &model);
        record.attempts.iter().for_each(|attempt| self.observe_attempt(attempt));
        if let Some(sale) = record.sale {
            self.sale.get_or_create(&SaleLabels { model, group }).inc_by(usd(sale.0));
        }
    }

    fn observe_tokens(&self, tokens: &Tokens, model: &str) {
        for (kind, count) in [
            ("input", tokens.input),
            ("output", tokens.output),
            ("cache_read", tokens.cache_read),
            ("cache_write", tokens.cache_write),
            ("thinking", tokens.thinking),
            ("image", tokens.image),
            ("audio", tokens.audio),
        ] {
            if count > 0 {
                self.tokens.get_or_create(&TokenLabels { model: model.to_owned(), kind }).inc_by(count);
            }
        }
    }

    fn observe_attempt(&self, attempt: &AttemptRecord) {
        let result = attempt.result.as_str();
        let (channel, account) = (attempt.channel_name.clone(), attempt.account_name.clone());
        self.attempts.get_or_create(&AttemptLabels { channel: channel.clone(), account, result }).inc();
        if let Some(cost) = attempt.cost {
            self.cost.get_or_create(&ChannelLabels { channel }).inc_by(usd(cost.0));
        }
    }

    /// Sets whether an account can be used.
    pub fn account_usable(&self, channel: &str, account: &str, usable: bool) {
        let labels = AccountLabels { channel: channel.to_owned(), account: account.to_owned() };
        self.usable.get_or_create(&labels).set(i64::from(usable));
    }

    /// Clears the accounts' gauges, since some accounts may be removed.
    pub fn forget_accounts(&self) {
        self.usable.clear();
    }

    /// Sets the size of the journal and the age of its oldest record that is not in the database.
    pub fn journal(&self, bytes: u64, oldest: Duration) {
        self.journal_bytes.set(i64::try_from(bytes).unwrap_or(i64::MAX));
        self.journal_oldest.set(oldest.as_secs_f64());
    }

    /// Sets the requests recorded only in memory, and the records that the database rejected.
    pub fn journal_trouble(&self, held: usize, refused: usize) {
        self.journal_held.set(i64::try_from(held).unwrap_or(i64::MAX));
        self.journal_refused.set(i64::try_from(refused).unwrap_or(i64::MAX));
    }

    /// Sets the number of open reservations.
    pub fn open_reservations(&self, open: usize) {
        self.open_reservations.set(i64::try_from(open).unwrap_or(i64::MAX));
    }

    /// Counts usage records written to the database.
    pub fn booked(&self, records: u64) {
        self.till_records.inc_by(records);
    }

    /// Counts a request that was answered and could not be recorded.
    pub fn unrecorded(&self) {
        self.unrecorded.inc();
    }

    /// Counts a webhook alert: `sent` or `lost`.
    pub fn alert(&self, result: &'static str) {
        self.alerts.get_or_create(&ResultLabels { result }).inc();
    }

    /// Counts a database error.
    pub fn store_error(&self, operation: &'static str) {
        self.store_errors.get_or_create(&OperationLabels { operation }).inc();
    }

    /// Counts a request in progress until the guard is dropped.
    pub(crate) fn in_flight(&self) -> GaugeGuard {
        GaugeGuard::raise(&self.in_flight)
    }

    /// Counts a connection until the guard is dropped.
    pub(crate) fn connection(&self) -> GaugeGuard {
        GaugeGuard::raise(&self.connections)
    }
}

/// Keeps a gauge incremented while it lives.
#[derive(Debug)]
pub(crate) struct GaugeGuard(Gauge);

impl GaugeGuard {
    fn raise(gauge: &Gauge) -> Self {
        gauge.inc();
        Self(gauge.clone())
    }
}

impl Drop for GaugeGuard {
    fn drop(&mut self) {
        self.0.dec();
    }
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
mod tests {
    use super::*;

    #[test]
    fn metric_names_are_documented_ones() {
        let metrics = Metrics::new("1.2.3");
        metrics.refused("E10");
        metrics.account_usable("main", "a", true);
        metrics.journal(12, Duration::from_millis(1_500));
        metrics.booked(3);
        metrics.unrecorded();
        metrics.store_error("append");
        let connection = metrics.connection();
        let _request = metrics.in_flight();
        drop(connection);
        let text = metrics.render();
        for line in [
            r#"tollgate_refusals_total{error="E10"} 1"#,
            r#"tollgate_account_usable{channel="main",account="a"} 1"#,
            "tollgate_journal_bytes 12",
            "tollgate_journal_oldest_seconds 1.5",
            "tollgate_till_records_total 3",
            "tollgate_unrecorded_total 1",
            r#"tollgate_store_errors_total{operation="append"} 1"#,
            r#"tollgate_build_info{version="1.2.3"} 1"#,
            "tollgate_connections 0",
            "tollgate_in_flight 1",
            "tollgate_request_duration_seconds_count 0",
            "tollgate_overhead_seconds_count 0",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} is not in\n{text}");
        }
        assert!(text.ends_with("# EOF\n"));
    }

    #[test]
    fn unknown_names_are_counted_as_other() {
        let metrics = Metrics::new("1.2.3");
        let record = crate::testing::usage_record("made-up-by-a-caller");
        metrics.observe(&record, &Catalog::default());
        let text = metrics.render();
        assert!(!text.contains("made-up-by-a-caller"));
        for line in [
            r#"tollgate_requests_total{protocol="openai",model="other",group="default",outcome="completed",status="200"} 1"#,
            r#"tollgate_tokens_total{model="other",kind="input"} 10"#,
            r#"tollgate_sale_usd_total{model="other",group="default"} 0.5"#,
            r#"tollgate_cost_usd_total{channel="main"} 0.25"#,
            r#"tollgate_attempts_total{channel="main",account="a",result="answered"} 1"#,
            "tollgate_request_duration_seconds_sum 2.0",
            "tollgate_overhead_seconds_sum 0.5",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} is not in\n{text}");
        }
    }
}
