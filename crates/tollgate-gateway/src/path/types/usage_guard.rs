//! The usage guard collects the facts that the stages learn about a request, and writes exactly one usage record. The record goes
//! to the journal and from there to the database, to the log, to the metrics, and to the export of spans.
//!
//! The guard is created first. Once the key is known it leaves a record however the request ends: finished with an [`Ending`], or
//! dropped because the caller left or the task panicked.

mod attempts;
mod contents;
mod irregular;
mod open_attempt;
mod repeated_refusals;

use std::{net::IpAddr, sync::Arc};

use bytes::Bytes;
use http::{HeaderValue, header};
use smallvec::SmallVec;
use tokio::time::Instant;
use tollgate_core::{
    AttemptResult, Caller, DeliveredContent, InputCount, LatencySample, Multiplier, Observation, Offer, Outcome, RateStatuses,
    RequestFacts, Requester, Revision, ShortText, StreamProgress, Tags, TraceEntry, UsageBounds, count_input, estimate_output,
    settle,
};
use tollgate_protocol::{Method, ReplySummary, RequestSummary};
use tollgate_store::SyncWaiter;

use contents::CapturedContents;
pub(crate) use open_attempt::AttemptProgress;
use open_attempt::{OpenAttempt, micros_between};
pub(crate) use repeated_refusals::RefusedEnd;

use crate::{
    header_fields::HeaderFields,
    in_place::boxed,
    path::types::{
        dropped::{ONE_CALL, add_entry, listed},
        trace::{ended, summary},
    },
    request::Head,
    state::{
        authenticator::KnownKey,
        hedge_budget::HedgeReservation,
        shares::KeyShare,
        trace_queue::ParentSpan,
        usage_recorder::{QueuePermit, UsageRecorder},
    },
};

/// How a request ended.
#[derive(Clone, Debug)]
pub(crate) struct Ending {
    /// HTTP status sent to the caller; 499 when the caller left before a status was sent.
    pub status: u16,
    pub outcome: Outcome,
    /// Error id such as `E40`, or `gateway_stopped`.
    pub reason: Option<String>,
    /// The message the caller saw.
    pub detail: Option<String>,
}

impl Ending {
    pub(crate) const fn completed() -> Self {
        Self { status: 200, outcome: Outcome::Completed, reason: None, detail: None }
    }
}

/// Handling of a request when the journal cannot be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum JournalFailurePolicy {
    /// The request is refused: a limit on money applies, and usage that is not recorded cannot be counted.
    Refuse,
    /// The request is served, counted and logged.
    Continue,
}

/// The facts known about a request so far.
#[derive(Debug)]
pub(crate) struct UsageGuard {
    pub(crate) recorder: Arc<UsageRecorder>,
    started: Instant,
    /// Everything except the attempts in progress; `None` before authentication and once finished.
    facts: Option<Box<RequestFacts>>,
    /// The share of its key, once that is known.
    share: Option<Arc<KeyShare>>,
    queue_permit: Option<QueuePermit>,
    attempt: Option<OpenAttempt>,
    /// A concurrent hedged attempt.
    hedge_attempt: Option<OpenAttempt>,
    /// Money reserved for the attempt that loses.
    pub(crate) hedge_reservation: Option<HedgeReservation>,
    answered: bool,
    /// Body and answer, if they are stored.
    contents: Option<Box<CapturedContents>>,
    /// The caller's span, if requests are traced.
    parent_span: Option<ParentSpan>,
    /// Whether the counters may hold a reservation, which is settled when the guard finishes.
    pub(crate) has_reservation: bool,
    /// For the rate-limit headers.
    pub(crate) rates: RateStatuses,
}

impl UsageGuard {
    /// A guard for a request that is not authenticated yet: it would leave no record.
    pub(crate) fn begin(recorder: &Arc<UsageRecorder>, head: &Head) -> Self {
        Self {
            recorder: Arc::clone(recorder),
            started: head.started,
            facts: None,
            share: None,
            queue_permit: None,
            attempt: None,
            hedge_attempt: None,
            hedge_reservation: None,
            answered: false,
            contents: None,
            parent_span: recorder.shared.traces.parent(&head.headers),
            has_reservation: false,
            rates: RateStatuses::default(),
        }
    }

    /// Records the authenticated key: from now on the request leaves a record.
    pub(crate) fn authenticated(&mut self, known: &KnownKey, head: &Head, method: Method) {
        let KnownKey { key, share } = known;
        self.share = Some(Arc::clone(share));
        self.queue_permit = self.recorder.queue.reserve();
        self.facts = Some(boxed(|| RequestFacts {
            id: head.request_id,
            at: head.arrived,
            key: Arc::clone(key),
            group: None,
            protocol_in: head.from,
            method,
            model: None,
            stream: false,
            status: 499,
            outcome: Outcome::CallerLeft,
            reason: None,
            detail: None,
            sale: None,
            sale_multiplier: Multiplier::ONE,
            price_version: Revision::default(),
            input: InputCount::default(),
            bounds: UsageBounds::default(),
            delivered: DeliveredContent::default(),
            attempts: SmallVec::new(),
            ttft_us: None,
            duration_us: 0,
            address: head.peer.map(address_text),
            client_request_id: head.client_request_id.clone(),
            client: client_text(&head.headers),
            request_bytes: 0,
            dropped: Vec::new(),
            trace: Vec::new(),
            tags: key.tags.clone(),
        }));
    }

    /// The share of the request's key, once that is known.
    pub(crate) const fn share(&self) -> Option<&Arc<KeyShare>> {
        self.share.as_ref()
    }

    pub(crate) const fn is_authenticated(&self) -> bool {
        self.facts.is_some()
    }

    /// Adds the tags in the request's headers to those of the key, which come first.
    pub(crate) fn add_tags(&mut self, tags: Tags) {
        if let Some(facts) = &mut self.facts {
            facts.tags.add(tags);
        }
    }

    /// Records the size of the body, which was read completely.
    pub(crate) fn received(&mut self, body: &Bytes) {
        if let Some(facts) = &mut self.facts {
            facts.request_bytes = body.len() as u64;
        }
    }

    pub(crate) fn record_summary(&mut self, summary: &RequestSummary) {
        if let Some(facts) = &mut self.facts {
            facts.tags.add_metadata(&summary.metadata);
            facts.model = Some((&summary.model).into());
            facts.stream = summary.stream;
            facts.input = count_input(summary);
            facts.bounds = UsageBounds::of_input(summary);
        }
    }

    pub(crate) fn set_offer(&mut self, offer: &Offer, summary: &RequestSummary) {
        if let Some(facts) = &mut self.facts {
            let reserved = estimate_output(summary, &offer.model);
            facts.bounds = UsageBounds::of_input(summary).with_output(summary, &offer.model, reserved);
            facts.group = Some(Arc::clone(&offer.group));
            facts.sale.clone_from(&offer.sale);
            facts.sale_multiplier = offer.sale_multiplier;
            facts.price_version = offer.revision;
        }
    }

    /// Candidate answers that were requested.
    pub(crate) fn candidates(&self) -> u32 {
        self.facts.as_ref().map_or(1, |facts| facts.bounds.candidates.max(1))
    }

    /// Records the output limit that the gateway writes into the request, for each candidate answer.
    pub(crate) fn limit_output(&mut self, tokens: Option<u64>) {
        if let (Some(facts), Some(tokens)) = (&mut self.facts, tokens) {
            facts.bounds = facts.bounds.limited_to(tokens);
        }
    }

    /// Sets the candidates considered, after the attempts already made.
    pub(crate) fn set_trace(&mut self, trace: Vec<TraceEntry>) {
        if let Some(facts) = &mut self.facts {
            facts.trace = if facts.attempts.is_empty() {
                trace
            } else {
                facts.attempts.iter().map(|attempt| attempt.planned.trace()).chain(trace).collect()
            };
        }
    }

    /// Sets the entries of `x-tollgate-dropped` for the next attempt.
    pub(crate) fn set_dropped(&mut self, dropped: Vec<String>) {
        if let Some(facts) = &mut self.facts {
            facts.dropped = listed(dropped);
        }
    }

    pub(crate) fn dropped_entries(&self) -> &[String] {
        self.facts.as_ref().map_or(&[], |facts| &facts.dropped)
    }

    /// The value of `x-tollgate-trace`, if the group allows it.
    pub(crate) fn trace(&self) -> Option<HeaderValue> {
        let facts = self.facts.as_deref()?;
        facts.group.as_ref()?.trace.then(|| {
            let ended = facts.attempts.iter().map(ended);
            // An attempt that is still open when headers are written has answered.
            summary(&facts.trace, ended.chain(self.attempt.iter().map(|_| None)))
        })
    }

    pub(crate) fn attempts(&self) -> usize {
        self.facts.as_ref().map_or(0, |facts| facts.attempts.len())
            + usize::from(self.attempt.is_some())
            + usize::from(self.hedge_attempt.is_some())
    }

    /// Attempts of which something was sent to an upstream.
    pub(crate) fn sent_attempts(&self) -> usize {
        let unsent =
            |facts: &RequestFacts| facts.attempts.iter().filter(|attempt| attempt.result == AttemptResult::NotSent).count();
        self.attempts() - self.facts.as_deref().map_or(0, unsent)
    }

    /// Records that the status 200 is sent.
    pub(crate) fn answering(&mut self) {
        self.answered = true;
        if let Some(facts) = &self.facts
            && self.has_reservation
        {
            self.recorder.shared.counters.attempt_answered(facts.id);
        }
    }

    /// Records that the first content is sent.
    pub(crate) fn content_begins(&mut self) {
        self.content_begins_at(self.recorder.shared.clock.instant());
    }

    fn content_begins_at(&mut self, now: Instant) {
        if let Some(facts) = &mut self.facts {
            facts.ttft_us.get_or_insert(micros_between(self.started, now));
        }
    }

    pub(crate) fn delivered(&mut self, summary: ReplySummary) {
        if let Some(facts) = &mut self.facts {
            facts.delivered = summary.into();
        }
        self.note_left_out(&summary);
    }

    /// Records the parts left out of the answer so far.
    pub(crate) fn note_left_out(&mut self, summary: &ReplySummary) {
        if summary.surplus_calls > 0
            && let Some(facts) = &mut self.facts
        {
            add_entry(&mut facts.dropped, ONE_CALL);
        }
    }

    pub(crate) fn write_progress(&self) {
        let Some(facts) = self.facts.as_deref() else { return };
        let usage = self.attempt.as_ref().and_then(OpenAttempt::reply).and_then(|summary| summary.usage);
        let progress = StreamProgress { id: facts.id, at: self.recorder.shared.clock.now(), delivered: facts.delivered, usage };
        if let Err(fault) = self.recorder.journal.progress(&progress) {
            tracing::debug!(request.id = %facts.id, %fault, "the journal did not take the progress of a stream");
        }
        if self.has_reservation {
            self.recorder.shared.counters.renew(facts.id, self.recorder.shared.clock.instant());
        }
    }

    /// Time to the first content of the running attempt, for the account's health.
    pub(crate) fn first_content_us(&self) -> Option<u64> {
        self.attempt.as_ref().map(|attempt| attempt.elapsed_us(self.recorder.shared.clock.instant()))
    }

    /// Adds a latency sample of the model, if its group hedges.
    pub(crate) fn record_first_token(&self, first_content_us: u64) {
        let Some(facts) = self.facts.as_deref() else { return };
        if let (Some(model), Some(_)) = (&facts.model, facts.group.as_ref().and_then(|group| group.hedge)) {
            self.recorder.shared.traffic.latency.record(model, first_content_us, self.recorder.shared.clock.instant());
        }
    }

    /// The requested model, once it is known.
    pub(crate) fn model(&self) -> Option<&str> {
        self.facts.as_deref()?.model.as_deref()
    }

    pub(crate) fn requester(&self) -> Option<Requester> {
        self.facts.as_deref().map(|facts| facts.key.requester())
    }

    /// Notes that the running attempt gave a complete answer.
    fn succeeded_at(&mut self, now: Instant) {
        // Token counts and embeddings are not measured, and a stream that arrived whole has no first token.
        let is_measured = self.facts.as_deref().is_some_and(|facts| !facts.stream && facts.method.generates());
        let took = if is_measured { self.attempt.as_ref().map(|attempt| attempt.elapsed_us(now)) } else { None };
        let observation = Observation::Success { latency: took.map(LatencySample::WholeAnswer) };
        self.end_attempt_at(now, AttemptResult::Answered, None, Some(observation));
    }

    /// Records a complete answer that is about to be sent, which waits for the returned flush. The clock is read once.
    pub(crate) fn answered_whole(&mut self, summary: ReplySummary) -> Option<SyncWaiter> {
        let now = self.recorder.shared.clock.fresh_instant();
        self.answering();
        self.content_begins_at(now);
        self.delivered(summary);
        self.succeeded_at(now);
        self.finish_at(Ending::completed(), now)
    }

    /// Writes the usage record. The answer's last bytes wait for the returned flush.
    pub(crate) fn finish(&mut self, ending: Ending) -> Option<SyncWaiter> {
        self.finish_at(ending, self.recorder.shared.clock.fresh_instant())
    }

    fn finish_at(&mut self, ending: Ending, now: Instant) -> Option<SyncWaiter> {
        self.end_hedge(AttemptResult::Cancelled, None, Some(Observation::Abandoned));
        self.end_attempt(AttemptResult::Cancelled, None, Some(Observation::Abandoned));
        let mut facts = self.facts.take()?;
        facts.status = ending.status;
        facts.outcome = ending.outcome;
        facts.reason = ending.reason;
        facts.detail = ending.detail;
        if facts.group.is_none() {
            // The request ended before its group was resolved.
            let catalog = self.recorder.shared.catalog.load();
            facts.group = Caller::of(&catalog, Arc::clone(&facts.key)).group_of_unserved(&catalog, facts.model.as_deref());
        }
        facts.duration_us = micros_between(self.started, now);
        let attempts = irregular::excesses(&facts);
        let is_free = facts.sale.as_deref().is_some_and(tollgate_core::Price::is_free);
        let trace = self.recorder.shared.traces.begin(&facts, self.parent_span.as_ref());
        if self.contents.is_some() {
            self.store_contents(&facts);
        }
        let record = settle(*facts);
        irregular::report(&self.recorder.shared, &record, &attempts, is_free);
        // Settle before the caller gets the last bytes, so that its next request finds the capacity free.
        self.recorder.settle(&record, now);
        self.recorder.observe(&record);
        self.recorder.shared.log_request(&record);
        if let (Some(trace), Some(share)) = (trace, &self.share) {
            self.recorder.shared.trace_request(trace, &record, share);
        }
        self.recorder.record(record, self.queue_permit.take())
    }

    /// Writes the record of a request whose guard is dropped unfinished.
    fn leave(&mut self) {
        self.end_hedge(AttemptResult::Cancelled, None, Some(Observation::Abandoned));
        if self.attempt.is_some() {
            let content = self.attempt.as_ref().and_then(OpenAttempt::reply).is_some_and(|summary| summary.content);
            // An account that was answering is healthy.
            let observation = if content { Observation::Success { latency: None } } else { Observation::Abandoned };
            self.end_attempt(AttemptResult::Cancelled, None, Some(observation));
        }
        let (status, outcome, reason) = if std::thread::panicking() {
            (500, Outcome::Refused, "E62")
        } else if self.recorder.shared.serving.is_cutting_off() {
            // As after a kill, it is unknown how much the caller received.
            (if self.answered { 200 } else { 0 }, Outcome::GatewayStopped, "gateway_stopped")
        } else {
            (if self.answered { 200 } else { 499 }, Outcome::CallerLeft, "E64")
        };
        let ending = Ending { status, outcome, reason: Some(reason.to_owned()), detail: None };
        drop(self.finish(ending));
        // No response is sent afterwards, which would write the collected entries.
        let _ = self.recorder.journal.write_collected();
    }
}

/// Longest recorded `user-agent`, in characters.
const CLIENT_CHARS: usize = 64;

/// The `user-agent` as it is recorded: visible ASCII characters and spaces.
fn client_text(headers: &HeaderFields) -> Option<ShortText> {
    let sent = headers.get(header::USER_AGENT)?.as_bytes().trim_ascii();
    let shown = sent.iter().copied().filter(|byte| matches!(byte, b' '..=b'~')).take(CLIENT_CHARS);
    let shown: SmallVec<[u8; CLIENT_CHARS]> = shown.collect();
    (!shown.is_empty()).then(|| ascii_text(&shown))
}

/// The address as text. Its `Display` implementation costs ten times as much.
fn address_text(address: IpAddr) -> ShortText {
    let IpAddr::V4(v4) = address else { return address.to_string().into() };
    let mut text = SmallVec::<[u8; "255.255.255.255".len()]>::new();
    for (at, octet) in v4.octets().into_iter().enumerate() {
        if at > 0 {
            text.push(b'.');
        }
        for (unit, least) in [(100, 100), (10, 10), (1, 0)] {
            if octet >= least {
                text.push(b'0' + octet / unit % 10);
            }
        }
    }
    ascii_text(&text)
}

/// Text of ASCII characters.
fn ascii_text(bytes: &[u8]) -> ShortText {
    str::from_utf8(bytes).unwrap_or_default().into()
}

impl Drop for UsageGuard {
    fn drop(&mut self) {
        if self.facts.is_some() {
            self.leave();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn client_text_is_printable_and_short() {
        let text = |agent: &[u8]| {
            let mut headers = http::HeaderMap::new();
            headers.insert(header::USER_AGENT, HeaderValue::from_bytes(agent).unwrap());
            client_text(&headers.into())
        };
        assert_eq!(text(b" OpenAI/Python 2.1.0 ").as_deref(), Some("OpenAI/Python 2.1.0"));
        assert_eq!(text(b"agent\t\xff/1").as_deref(), Some("agent/1"));
        assert_eq!(text(&[b'x'; 500]).map(|text| text.len()), Some(CLIENT_CHARS));
        assert_eq!((text(b"\xff "), client_text(&HeaderFields::default())), (None, None));
    }

    #[test]
    fn address_text_equals_the_standard_form() {
        for text in ["0.0.0.0", "127.0.0.1", "10.20.30.40", "255.100.99.9", "203.0.113.200", "2001:db8::1"] {
            assert_eq!(address_text(text.parse().unwrap()), text);
        }
    }
}
