//! The queue of ended requests whose spans are exported. A request adds itself when its usage record is written;
//! [`Telemetry`](crate::background::telemetry::Telemetry) builds the spans and sends them. Requests never wait for it.
//!
//! Bound: 4,096 requests, about 1 KiB each, of which a key and its member have a share. The spans of a request that does not fit
//! are dropped and counted.

mod trace_context;

use std::sync::Arc;

use smallvec::SmallVec;
use tokio::sync::mpsc;
use tollgate_core::{
    AttemptRecord, Channel, KeyId, NanoUsd, Outcome, RequestFacts, RequestId, ShortText, Timestamp, Tokens, UsageRecord,
};
use tollgate_protocol::{FinishReason, Method, Protocol};

use super::shares::{KeyShare, QueueCapacity, QueueCharge};
use crate::header_fields::HeaderFields;

pub(crate) use self::trace_context::{ParentSpan, SpanId, TraceId, own_trace, span_id};

/// Requests that may wait for the export of their spans.
pub(crate) const QUEUE_CAPACITY: usize = 4_096;

/// The selection of traced requests.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sampler {
    /// Share of the requests without a parent, from 0 to 1; of all if `follows_parent` is false.
    pub ratio: f64,
    /// Whether a request with a valid `traceparent` is traced exactly if its caller records the trace.
    pub follows_parent: bool,
}

impl Sampler {
    /// Whether a request of this trace is traced. Depends on the last 7 bytes of the trace id, which are random, so that
    /// everything that samples by trace id makes the same decision.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_precision_loss,
        clippy::cast_sign_loss,
        reason = "the ratio is between 0 and 1, and 2^56 is exact"
    )]
    fn samples(&self, parent: Option<&ParentSpan>, trace: &TraceId) -> bool {
        const RANDOM_VALUES: u128 = 1 << 56;
        if let Some(parent) = parent.filter(|_| self.follows_parent) {
            return parent.sampled;
        }
        let random = u128::from_be_bytes(*trace) % RANDOM_VALUES;
        random < (self.ratio.clamp(0.0, 1.0) * RANDOM_VALUES as f64) as u128
    }
}

/// The sending end of the queue. Without an exporter, nothing is traced.
#[derive(Clone, Debug, Default)]
pub struct TraceQueue(Option<TraceSender>);

#[derive(Clone, Debug)]
struct TraceSender {
    requests: mpsc::Sender<QueuedRequest>,
    capacity: Arc<QueueCapacity>,
    sampler: Sampler,
}

/// A request that is traced, before its usage record is computed.
#[derive(Debug)]
pub(crate) struct StartedTrace {
    trace: TraceId,
    parent: Option<SpanId>,
    /// Channel and finish reason of each attempt, in the order of the record's attempts.
    attempts: SmallVec<[(Arc<Channel>, Option<FinishReason>); 1]>,
}

/// A request in the queue, with the capacity that it takes.
#[derive(Debug)]
pub(crate) struct QueuedRequest {
    pub(crate) request: TracedRequest,
    _charge: QueueCharge,
}

/// The facts of an ended request from which its spans are built.
#[derive(Debug)]
pub(crate) struct TracedRequest {
    pub(crate) trace: TraceId,
    pub(crate) parent: Option<SpanId>,
    pub(crate) id: RequestId,
    pub(crate) at: Timestamp,
    pub(crate) key: KeyId,
    pub(crate) group: Option<ShortText>,
    pub(crate) protocol: Protocol,
    pub(crate) method: Method,
    pub(crate) model: Option<ShortText>,
    /// Whether a group of the key offers the model.
    pub(crate) is_offered: bool,
    pub(crate) stream: bool,
    pub(crate) status: u16,
    pub(crate) outcome: Outcome,
    pub(crate) reason: Option<String>,
    pub(crate) tokens: Tokens,
    pub(crate) cost: Option<NanoUsd>,
    pub(crate) sale: Option<NanoUsd>,
    pub(crate) ttft_us: Option<u64>,
    pub(crate) duration_us: u64,
    pub(crate) attempts: Vec<TracedAttempt>,
}

#[derive(Debug)]
pub(crate) struct TracedAttempt {
    pub(crate) channel: Arc<Channel>,
    pub(crate) finish: Option<FinishReason>,
    pub(crate) record: AttemptRecord,
}

impl TraceQueue {
    pub(crate) fn new(sampler: Sampler) -> (Self, mpsc::Receiver<QueuedRequest>) {
        let (requests, receiver) = mpsc::channel(QUEUE_CAPACITY);
        (Self(Some(TraceSender { requests, capacity: QueueCapacity::of_traces(QUEUE_CAPACITY), sampler })), receiver)
    }

    /// The caller's span, if requests are traced at all.
    pub(crate) fn parent(&self, headers: &HeaderFields) -> Option<ParentSpan> {
        self.0.as_ref().and_then(|_| ParentSpan::of(headers))
    }

    /// Begins the trace of an ended request if it is sampled.
    pub(crate) fn begin(&self, facts: &RequestFacts, parent: Option<&ParentSpan>) -> Option<StartedTrace> {
        let sender = self.0.as_ref()?;
        let trace = parent.map_or_else(|| own_trace(facts.id), |parent| parent.trace);
        sender.sampler.samples(parent, &trace).then(|| StartedTrace {
            trace,
            parent: parent.map(|parent| parent.span),
            attempts: facts
                .attempts
                .iter()
                .map(|attempt| {
                    let finish = attempt.reply_summary.and_then(|summary| summary.finish);
                    (Arc::clone(&attempt.planned.channel), finish)
                })
                .collect(),
        })
    }

    /// Queues a request with its record. Returns the number of spans that are dropped because the queue has no capacity for them.
    pub(crate) fn send(&self, started: StartedTrace, record: &UsageRecord, share: &Arc<KeyShare>) -> usize {
        let Some(sender) = &self.0 else { return 0 };
        let Some((charge, permit)) = sender.capacity.take(share, 1).zip(sender.requests.try_reserve().ok()) else {
            return 1 + record.attempts.len();
        };
        permit.send(QueuedRequest { request: TracedRequest::of(started, record), _charge: charge });
        0
    }
}

impl TracedRequest {
    fn of(StartedTrace { trace, parent, attempts }: StartedTrace, record: &UsageRecord) -> Self {
        let attempts = attempts.into_iter().zip(&record.attempts);
        let attempts = attempts.map(|((channel, finish), record)| TracedAttempt { channel, finish, record: record.clone() });
        Self {
            trace,
            parent,
            id: record.id,
            at: record.at,
            key: record.key,
            group: record.group_name.clone(),
            protocol: record.protocol_in,
            method: record.method,
            model: record.model.clone(),
            is_offered: record.offered_model().is_some(),
            stream: record.stream,
            status: record.status,
            outcome: record.outcome,
            reason: record.reason.clone(),
            tokens: record.tokens,
            cost: record.cost,
            sale: record.sale,
            ttft_us: record.ttft_us,
            duration_us: record.duration_us,
            attempts: attempts.collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sampled(sampler: Sampler, parent: Option<bool>) -> usize {
        let count = |index: u64| {
            let trace: TraceId = [
                &span_id(RequestId::from_parts(Timestamp(0), [1; 10]), index)[..],
                &span_id(RequestId::from_parts(Timestamp(0), [2; 10]), index)[..],
            ]
            .concat()
            .try_into()
            .unwrap();
            let parent = parent.map(|sampled| ParentSpan { trace, span: [1; 8], sampled });
            sampler.samples(parent.as_ref(), &trace)
        };
        (0..10_000).filter(|index| count(*index)).count()
    }

    #[test]
    fn ratio_decides_for_requests_without_a_parent() {
        let with = |ratio| Sampler { ratio, follows_parent: true };
        assert_eq!((sampled(with(0.0), None), sampled(with(1.0), None)), (0, 10_000));
        let tenth = sampled(with(0.1), None);
        assert!((800..1_200).contains(&tenth), "{tenth}");
        assert_eq!((sampled(with(0.0), Some(true)), sampled(with(1.0), Some(false))), (10_000, 0), "the parent decides");
    }

    #[test]
    fn parents_can_be_ignored() {
        let with = |ratio| Sampler { ratio, follows_parent: false };
        assert_eq!((sampled(with(0.0), Some(true)), sampled(with(1.0), Some(false))), (0, 10_000));
    }

    #[test]
    fn largest_trace_id_is_sampled_at_one() {
        assert!(Sampler { ratio: 1.0, follows_parent: false }.samples(None, &[0xff; 16]));
        assert!(!Sampler { ratio: 0.0, follows_parent: false }.samples(None, &[0; 16]));
    }
}
