//! Stage 11 of 11: finish. In: an answer or a refusal; out: the response, with the usage record written.
//!
//! A complete answer and a refusal are recorded here, before their bytes go out. A streamed answer carries the usage guard in its
//! body and is recorded when it ends.

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Response, header};
use tollgate_core::{Outcome, RateStatuses, Timestamp};
use tollgate_protocol::{ErrorStyle, Framing, ReplySummary, Target};

use super::types::{
    trace::{TRACE, is_asked},
    usage_guard::{Ending, RefusedEnd, UsageGuard},
    worker::Worker,
};
use crate::{
    address_block::AddressBlock,
    header_fields::HeaderFields,
    refusal::{REQUEST_ID, Refusal, UpstreamFailure, write_rates},
    request::Head,
    response::{AnswerBody, whole},
    state::shares::{Holder, InFlightRequest},
};

const ATTEMPTS: HeaderName = HeaderName::from_static("x-tollgate-attempts");
const DROPPED: HeaderName = HeaderName::from_static("x-tollgate-dropped");
const ACCEL_BUFFERING: HeaderName = HeaderName::from_static("x-accel-buffering");
/// Number of attempts of nearly all requests.
const ONE: HeaderValue = HeaderValue::from_static("1");
const JSON: HeaderValue = HeaderValue::from_static("application/json; charset=utf-8");
const EVENT_STREAM: HeaderValue = HeaderValue::from_static("text/event-stream; charset=utf-8");

pub(super) async fn finish(mut guard: Box<UsageGuard>, summary: ReplySummary) {
    if let Some(flush) = guard.answered_whole(summary) {
        flush.wait().await;
    }
}

/// Records a refusal, if the key is known, and writes its response.
pub(super) async fn refuse(
    worker: &Worker,
    refusal: &Refusal,
    guard: Box<UsageGuard>,
    head: &Head,
    in_flight: Option<&InFlightRequest>,
) -> Response<AnswerBody> {
    let problem = refusal.problem(head);
    let headers = AttemptHeaders::of(&guard, head);
    let stream = guard.is_stream().then(|| refusal.stream(head, &problem)).flatten();
    let sent_status = if stream.is_some() { 200 } else { problem.status };
    if guard.is_authenticated() {
        let ending = Ending {
            status: if matches!(refusal, Refusal::CallerLeft) { 499 } else { sent_status },
            outcome: outcome_of(refusal),
            reason: Some(refusal.id(head.from).to_owned()),
            detail: Some(problem.message.clone()),
        };
        let holders = guard.share().map(|share| share.holders());
        match guard.refuse(ending, refusal.id(head.from)) {
            RefusedEnd::Recorded(None) => {}
            RefusedEnd::Recorded(Some(flush)) => flush.wait().await,
            RefusedEnd::Counted => delay(worker, head, holders.as_ref().map_or(&[], |holders| holders), in_flight).await,
        }
    } else {
        guard.recorder.shared.count_refusal(head, refusal.id(head.from), problem.status);
        if matches!(refusal, Refusal::WrongKeys { .. }) {
            let address = head.peer.map(|peer| Holder::Address(AddressBlock::of(peer)));
            delay(worker, head, address.as_slice(), in_flight).await;
        }
    }
    let mut response = match stream {
        Some(events) => failed_stream(events, &problem.request_id),
        None => refusal.respond(head, &problem),
    };
    headers.write(response.headers_mut());
    response
}

/// A refusal as an event stream.
fn failed_stream(events: Bytes, request_id: &str) -> Response<AnswerBody> {
    let mut response = Response::new(whole(events));
    let headers = response.headers_mut();
    stream_headers(headers, EVENT_STREAM);
    if let Ok(id) = HeaderValue::from_str(request_id) {
        headers.insert(REQUEST_ID, id);
    }
    response
}

/// Headers of every stream.
fn stream_headers(headers: &mut HeaderMap, content_type: HeaderValue) {
    headers.insert(header::CONTENT_TYPE, content_type);
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    headers.insert(ACCEL_BUFFERING, HeaderValue::from_static("no"));
}

/// Delays a refusal. Its request stops counting among those in progress first. On a busy core, refusals wait in a fair queue.
async fn delay(worker: &Worker, head: &Head, holders: &[Holder], in_flight: Option<&InFlightRequest>) {
    if let Some(request) = in_flight {
        request.leave();
    }
    worker.shared.serving.delay_refusal(announced_length(&head.headers)).await;
    worker.starts.send_refusal(holders).await;
}

/// Length of a request's body; `None` if it is not announced.
fn announced_length(headers: &HeaderFields) -> Option<u64> {
    match headers.get(header::CONTENT_LENGTH) {
        Some(length) => length.to_str().ok()?.parse().ok(),
        None => (!headers.contains(header::TRANSFER_ENCODING)).then_some(0),
    }
}

/// Larger header maps are not used again: the server would keep their memory for the connection's next request.
const MAX_KEPT_CAPACITY: usize = 32;

/// The response's headers, collected before the usage guard is finished or moves into the body.
pub(super) struct AnswerHeaders {
    /// Empty; its memory is that of the request's headers.
    map: HeaderMap,
    request_id: HeaderValue,
    rates: RateStatuses,
    style: ErrorStyle,
    arrived: Timestamp,
    attempts: AttemptHeaders,
}

impl AnswerHeaders {
    /// Takes the request's headers, which are no longer needed.
    pub(super) fn of(guard: &UsageGuard, head: &mut Head) -> Self {
        let request_id = HeaderValue::from_bytes(head.request_id.text().as_bytes()).expect("a request id is visible ASCII");
        let attempts = AttemptHeaders::of(guard, head);
        let mut map = std::mem::take(&mut head.headers).into_map();
        if map.capacity() <= MAX_KEPT_CAPACITY {
            map.clear();
        } else {
            map = HeaderMap::new();
        }
        let style = head.from.spec().error_style;
        Self { map, request_id, rates: guard.rates, style, arrived: head.arrived, attempts }
    }

    pub(super) fn complete(self, body: Bytes, events: bool) -> Response<AnswerBody> {
        self.response(whole(body), if events { EVENT_STREAM } else { JSON })
    }

    /// A complete answer that is passed on in pieces.
    pub(super) fn pieces(self, body: AnswerBody) -> Response<AnswerBody> {
        self.response(body, JSON)
    }

    pub(super) fn stream(self, body: AnswerBody, target: &Target) -> Response<AnswerBody> {
        let content_type = if target.framing == Framing::Sse { EVENT_STREAM } else { JSON };
        let mut response = self.response(body, content_type.clone());
        stream_headers(response.headers_mut(), content_type);
        response
    }

    fn response(self, body: AnswerBody, content_type: HeaderValue) -> Response<AnswerBody> {
        let Self { map: mut headers, request_id, rates, style, arrived, attempts } = self;
        // Space for these and for those that the server adds.
        headers.reserve(8);
        write_rates(style, arrived, &rates, &mut headers);
        headers.insert(header::CONTENT_TYPE, content_type);
        headers.insert(REQUEST_ID, request_id);
        attempts.write(&mut headers);
        let mut response = Response::new(body);
        *response.headers_mut() = headers;
        response
    }
}

/// Headers about the attempts: how many reached an upstream, the dropped fields, and the routing trace.
struct AttemptHeaders {
    count: usize,
    dropped: String,
    trace: Option<HeaderValue>,
}

impl AttemptHeaders {
    fn of(guard: &UsageGuard, head: &Head) -> Self {
        let trace = is_asked(&head.headers).then(|| guard.trace()).flatten();
        Self { count: guard.sent_attempts(), dropped: guard.dropped_entries().join(","), trace }
    }

    fn write(self, headers: &mut HeaderMap) {
        let Self { count, dropped, trace } = self;
        if count > 0 {
            headers.insert(ATTEMPTS, if count == 1 { ONE } else { HeaderValue::from(count) });
        }
        if !dropped.is_empty()
            && let Ok(value) = HeaderValue::try_from(dropped)
        {
            headers.insert(DROPPED, value);
        }
        if let Some(trace) = trace {
            headers.insert(TRACE, trace);
        }
    }
}

/// The recorded outcome of a refused request. An upstream's rejection that is passed on counts as refused, and so does the rate limit of
/// every account that was tried; other upstream failures count as a broken upstream.
const fn outcome_of(refusal: &Refusal) -> Outcome {
    if matches!(refusal, Refusal::CallerLeft) {
        Outcome::CallerLeft
    } else if matches!(refusal, Refusal::ShuttingDown) {
        Outcome::GatewayStopped
    } else if matches!(refusal, Refusal::Upstream { failure, .. } if !matches!(failure, UpstreamFailure::Rejected(_) | UpstreamFailure::RateLimited { .. }))
    {
        Outcome::UpstreamBroke
    } else {
        Outcome::Refused
    }
}
