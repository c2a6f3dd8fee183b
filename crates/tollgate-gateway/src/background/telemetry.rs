//! Exports traces and metrics to an OpenTelemetry collector, as OTLP over HTTP in protobuf. Off without an endpoint. No request waits
//! for it: ended requests are queued, and their spans are built here.
//!
//! Bounds: 4,096 queued requests; batches of 2,048 spans, 1 MiB or one second; metrics in parts of 2,000 data points; retries as in
//! [`exporter`]; 5 s at the end of the process. Spans and metrics that find no space or cannot be sent are dropped and
//! counted.

mod attributes;
mod exporter;
mod exposition;
mod metrics;
mod spans;

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue};
use opentelemetry_proto::tonic::{
    collector::{
        metrics::v1::ExportMetricsServiceRequest,
        trace::v1::{ExportTraceServiceRequest, ExportTraceServiceResponse},
    },
    common::v1::InstrumentationScope,
    metrics::v1::{Metric, ResourceMetrics, ScopeMetrics},
    resource::v1::Resource,
    trace::v1::{ResourceSpans, ScopeSpans, Span},
};
use prost::Message as _;
use tokio::{
    sync::mpsc,
    time::{Instant, MissedTickBehavior, interval_at, sleep, timeout_at},
};
use tokio_util::sync::CancellationToken;
use tollgate_core::Timestamp;
use url::Url;

use self::{
    attributes::text,
    exporter::{ExportLost, Exporter, MAX_TRIES, Signal},
    metrics::{Interval, metrics_of},
    spans::{nanos, spans_of},
};
use crate::state::{
    metrics::SpanEnd,
    shared::Shared,
    trace_queue::{QueuedRequest, Sampler, TraceQueue, TracedRequest},
};

/// Spans in one export.
const MAX_SPANS: usize = 2_048;
/// Bytes of spans in one export; the last request may exceed them.
const MAX_SPAN_BYTES: usize = 1 << 20;
/// Longest time until a span is sent.
const SPAN_WAIT: Duration = Duration::from_secs(1);
/// How often the queue is emptied while there are requests. Sleeping on the timer and not on the queue means that only the first
/// request of a batch wakes this task.
const QUEUE_INTERVAL: Duration = Duration::from_millis(200);
/// How long the end of the process waits for the last exports.
const SHUTDOWN_LIMIT: Duration = Duration::from_secs(5);
/// Name of the library that made the spans and metrics.
const SCOPE: &str = "tollgate";

/// Destination and content of exports.
#[derive(Clone, Debug)]
pub struct TelemetrySettings {
    /// Base URL of the collector, `http` or `https`.
    pub endpoint: Url,
    /// Headers of every export, such as a token.
    pub headers: Vec<(HeaderName, HeaderValue)>,
    /// `service.name`.
    pub service_name: String,
    /// `service.instance.id`: the node.
    pub instance: String,
    /// The program's version.
    pub version: String,
    pub sampler: Sampler,
    /// Time between two exports of metrics; `None`: they are not exported.
    pub metrics_interval: Option<Duration>,
    /// Whether loopback and private addresses are allowed.
    pub private_network: bool,
}

/// The receiving end of the trace queue, and the means to export.
#[derive(Debug)]
pub struct Telemetry {
    settings: TelemetrySettings,
    requests: mpsc::Receiver<QueuedRequest>,
}

impl Telemetry {
    /// A queue of requests and its exporter.
    #[must_use]
    pub fn to(mut settings: TelemetrySettings) -> (TraceQueue, Self) {
        for (_, value) in &mut settings.headers {
            value.set_sensitive(true);
        }
        let (queue, requests) = TraceQueue::new(settings.sampler);
        (queue, Self { settings, requests })
    }

    /// Exports until `stop` is cancelled, then the rest of the queue, for at most [`SHUTDOWN_LIMIT`].
    pub async fn run(self, shared: Arc<Shared>, stop: CancellationToken) {
        let Self { settings, requests } = self;
        let description = Description::of(&settings);
        let mut headers = HeaderMap::new();
        for (name, value) in settings.headers {
            headers.append(name, value);
        }
        let exporter = Exporter::new(settings.endpoint, headers, settings.private_network, Arc::clone(&shared));
        let traces =
            TraceExport { requests, batch: SpanBatch::default(), unsent: None, exporter: &exporter, description: &description };
        let metrics = MetricExport { started: shared.clock.now(), exporter: &exporter, description: &description, shared: &shared };
        let export_metrics = async {
            if let Some(interval) = settings.metrics_interval {
                metrics.run(interval, &stop).await;
            }
        };
        tokio::join!(Box::pin(traces.run(&shared, &stop)), Box::pin(export_metrics));
    }
}

/// The resource and the scope that all exports name.
#[derive(Clone, Debug)]
struct Description {
    resource: Resource,
    scope: InstrumentationScope,
}

impl Description {
    fn of(settings: &TelemetrySettings) -> Self {
        let attributes = vec![
            text("service.name", settings.service_name.as_str()),
            text("service.version", settings.version.as_str()),
            text("service.instance.id", settings.instance.as_str()),
            text("telemetry.sdk.name", SCOPE),
            text("telemetry.sdk.language", "rust"),
            text("telemetry.sdk.version", settings.version.as_str()),
        ];
        Self {
            resource: Resource { attributes, ..Resource::default() },
            scope: InstrumentationScope {
                name: SCOPE.to_owned(),
                version: settings.version.clone(),
                ..InstrumentationScope::default()
            },
        }
    }

    fn trace_message(&self, spans: Vec<Span>) -> Bytes {
        let (resource, scope) = (Some(self.resource.clone()), Some(self.scope.clone()));
        let scope_spans = vec![ScopeSpans { scope, spans, ..ScopeSpans::default() }];
        let resource_spans = vec![ResourceSpans { resource, scope_spans, ..ResourceSpans::default() }];
        ExportTraceServiceRequest { resource_spans }.encode_to_vec().into()
    }

    fn metrics_message(&self, metrics: Vec<Metric>) -> Bytes {
        let (resource, scope) = (Some(self.resource.clone()), Some(self.scope.clone()));
        let scope_metrics = vec![ScopeMetrics { scope, metrics, ..ScopeMetrics::default() }];
        let resource_metrics = vec![ResourceMetrics { resource, scope_metrics, ..ResourceMetrics::default() }];
        ExportMetricsServiceRequest { resource_metrics }.encode_to_vec().into()
    }
}

/// Spans that wait to be sent.
#[derive(Debug, Default)]
struct SpanBatch {
    spans: Vec<Span>,
    bytes: usize,
    /// When the first of them came.
    since: Option<Instant>,
}

impl SpanBatch {
    fn add(&mut self, request: &TracedRequest, now: Instant) {
        for span in spans_of(request) {
            self.bytes += span.encoded_len();
            self.spans.push(span);
        }
        self.since.get_or_insert(now);
    }

    fn is_full(&self) -> bool {
        self.spans.len() >= MAX_SPANS || self.bytes >= MAX_SPAN_BYTES
    }

    fn is_due(&self, now: Instant) -> bool {
        self.is_full() || self.since.is_some_and(|since| now >= since + SPAN_WAIT)
    }
}

/// An encoded batch.
#[derive(Debug)]
struct SpanMessage {
    spans: usize,
    message: Bytes,
}

struct TraceExport<'a> {
    requests: mpsc::Receiver<QueuedRequest>,
    batch: SpanBatch,
    /// The batch that is being sent.
    unsent: Option<SpanMessage>,
    exporter: &'a Exporter,
    description: &'a Description,
}

impl TraceExport<'_> {
    async fn run(mut self, shared: &Shared, stop: &CancellationToken) {
        loop {
            tokio::select! {
                biased;
                () = stop.cancelled() => break,
                received = self.requests.recv(), if self.batch.spans.is_empty() => match received {
                    Some(queued) => self.batch.add(&queued.request, shared.clock.instant()),
                    None => break,
                },
                () = sleep(QUEUE_INTERVAL), if !self.batch.spans.is_empty() => {}
            }
            self.fill(shared);
            if self.batch.is_due(shared.clock.instant()) {
                self.encode();
                let sent = tokio::select! {
                    biased;
                    // [`Self::finish`] sends the message that is cancelled here.
                    () = stop.cancelled() => break,
                    sent = self.send(MAX_TRIES) => sent,
                };
                self.sent(shared, sent);
            }
        }
        self.finish(shared).await;
    }

    fn fill(&mut self, shared: &Shared) {
        while !self.batch.is_full() {
            let Ok(queued) = self.requests.try_recv() else { break };
            self.batch.add(&queued.request, shared.clock.instant());
        }
    }

    /// Encodes the batch as the message to send.
    fn encode(&mut self) {
        let SpanBatch { spans, .. } = std::mem::take(&mut self.batch);
        self.unsent = Some(SpanMessage { spans: spans.len(), message: self.description.trace_message(spans) });
    }

    /// Sends the encoded message and returns how many spans the collector rejected.
    async fn send(&self, tries: u32) -> Result<usize, ExportLost> {
        let Some(SpanMessage { message, .. }) = &self.unsent else { return Ok(0) };
        let answer = self.exporter.export(Signal::Traces, message, tries).await?;
        let partial = ExportTraceServiceResponse::decode(answer).ok().and_then(|answer| answer.partial_success);
        Ok(partial.map_or(0, |partial| usize::try_from(partial.rejected_spans).unwrap_or(0)))
    }

    /// Counts the spans that were sent or given up. Returns how many were given up.
    fn sent(&mut self, shared: &Shared, sent: Result<usize, ExportLost>) -> usize {
        let spans = self.unsent.take().map_or(0, |message| message.spans);
        let Ok(rejected) = sent else {
            shared.metrics.telemetry_spans(SpanEnd::Lost, spans);
            return spans;
        };
        let rejected = rejected.min(spans);
        shared.metrics.telemetry_spans(SpanEnd::Sent, spans - rejected);
        if rejected > 0 {
            shared.metrics.telemetry_spans(SpanEnd::Rejected, rejected);
        }
        0
    }

    /// Sends the remaining spans, each once. Those that cannot be sent are lost; the log says how many, because the metrics of a
    /// process that ends are not scraped again.
    async fn finish(mut self, shared: &Shared) {
        let deadline = shared.clock.instant() + SHUTDOWN_LIMIT;
        self.requests.close();
        let lost = loop {
            self.fill(shared);
            if self.unsent.is_none() {
                if self.batch.spans.is_empty() {
                    return;
                }
                self.encode();
            }
            let sent = timeout_at(deadline, self.send(1)).await.unwrap_or_else(|_| Err(self.exporter.cut_off(Signal::Traces)));
            let lost = self.sent(shared, sent);
            if sent.is_err() {
                break lost;
            }
        };
        let mut waiting = self.batch.spans.len();
        while let Ok(queued) = self.requests.try_recv() {
            waiting += 1 + queued.request.attempts.len();
        }
        shared.metrics.telemetry_spans(SpanEnd::Lost, waiting);
        tracing::warn!(spans = lost + waiting, "the last spans could not be exported before the end and are lost");
    }
}

struct MetricExport<'a> {
    /// Since when values are counted.
    started: Timestamp,
    exporter: &'a Exporter,
    description: &'a Description,
    shared: &'a Shared,
}

impl MetricExport<'_> {
    async fn run(self, period: Duration, stop: &CancellationToken) {
        let mut ticks = interval_at(self.shared.clock.instant() + period, period);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                biased;
                () = stop.cancelled() => break,
                _ = ticks.tick() => {}
            }
            tokio::select! {
                biased;
                () = stop.cancelled() => break,
                () = self.export(MAX_TRIES) => {}
            }
        }
        let deadline = self.shared.clock.instant() + SHUTDOWN_LIMIT;
        if timeout_at(deadline, self.export(1)).await.is_err() {
            let ExportLost = self.exporter.cut_off(Signal::Metrics);
            tracing::warn!("the last metrics could not be exported before the end and are lost");
        }
    }

    /// Sends all metrics as they are now. A process that has handed over to another leaves them to it: they have the same instance.
    async fn export(&self, tries: u32) {
        if self.shared.serving.hand_over.has_left() {
            return;
        }
        let interval = Interval { start: nanos(self.started, 0), end: nanos(self.shared.clock.now(), 0) };
        for text in [self.shared.render_metrics(), self.shared.metrics.render_gen_ai()] {
            for part in metrics_of(&text, interval) {
                let message = self.description.metrics_message(part);
                if self.exporter.export(Signal::Metrics, &message, tries).await.is_err() {
                    return;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
