//! Stage 8 of 11: attempt. In: a started attempt; out: an answer that may go to the caller, or how the attempt failed.
//!
//! A complete answer is read whole and checked; a large one of the caller's protocol is read until its beginning shows that it is
//! one, and passed on in pieces ([`relay_whole`]). A stream is read until its first content, or until its model has been thinking for
//! long. Until then another attempt is possible.

mod body;
mod memory;
mod stream;

use std::{future::poll_fn, pin::pin, sync::Arc, task::Poll, time::Duration};

use bytes::{Bytes, BytesMut};
use http::{HeaderName, header};
use http_body::Body as _;
use http_body_util::BodyExt as _;
use tokio::time::{Instant, timeout_at};
use tollgate_core::{PlannedAttempt, Requester, ShortText};
use tollgate_protocol::{FinishReason, Framing, InvalidReply, Method, ReplySummary, UpstreamProblem, codec};

use self::{
    body::{MAX_BYTES, WholeBody},
    memory::AnswerMemory,
};
use super::types::{
    attempt::{AttemptAnswer, AttemptLimit, AttemptOutcome, Rest, StartedAttempt, Streaming},
    failure::{Failure, ProblemAnswer},
    request_bodies::{ResponseConversion, UpstreamRequest},
    stream_memory::StreamMemory,
    usage_guard::AttemptProgress,
};
use crate::{
    clock::Clock,
    header_fields::HeaderFields,
    refusal::REQUEST_ID,
    request::Head,
    state::shares::InFlightRequest,
    upstream::{
        call::{ConnectFault, Upstream, UpstreamAnswer, UpstreamBody, UpstreamCall, UpstreamError},
        credentials::{forwarded_headers, secrets_of},
        retry_after::retry_at,
    },
};

/// Another header field in which upstreams name a request.
const OTHER_REQUEST_ID: HeaderName = HeaderName::from_static("request-id");
/// Limits on reading an error answer, in bytes and in time.
const MAX_PROBLEM_BYTES: usize = 64 * 1024;
const MAX_PROBLEM_TIME: Duration = Duration::from_secs(5);
/// Largest buffer that is allocated before the answer's bytes arrive.
const MAX_FIRST_BUFFER: usize = 256 * 1024;
/// Answers of the caller's protocol that are larger are passed on in pieces.
const PIECES_FROM: usize = 256 * 1024;

/// Sends a started attempt and reads its answer until it is known to be usable.
pub(super) async fn attempt(started: StartedAttempt<'_>) -> AttemptOutcome {
    let StartedAttempt { context, planned, request, progress, answer_after } = started;
    let clock = &*context.worker.shared.clock;
    let attempt = Attempt {
        upstream: &*context.worker.upstream,
        clock,
        planned: &planned,
        head: context.head,
        by: context.caller.key.requester(),
        events: context.bodies.answers_in_events(),
        deadline: context.deadline(),
        request_limit: context.head.settings.upstream.total,
        channel_limit: limit_of(planned.channel.spec.timeouts.total_ms, clock),
        answer_after,
        memory: context.memory.as_ref(),
    };
    match attempt.run(request, &progress).await {
        Ok(answer) => Ok((answer, planned)),
        Err(failure) => Err((failure, planned)),
    }
}

/// The result of one poll of a future.
async fn poll_once<F: Future>(future: F) -> Poll<F::Output> {
    let mut future = pin!(future);
    poll_fn(|context| Poll::Ready(future.as_mut().poll(context))).await
}

/// A complete answer, or the beginning of a large one.
enum CompleteAnswer {
    Whole(Bytes),
    /// A large answer of which only the beginning was read.
    InPieces(Streaming),
}

/// One attempt while it waits for its answer.
struct Attempt<'a> {
    upstream: &'a dyn Upstream,
    clock: &'a dyn Clock,
    planned: &'a PlannedAttempt,
    head: &'a Head,
    by: Requester,
    /// Whether the caller's answer is an event stream.
    events: bool,
    /// End of the request, and the time limit that sets it.
    deadline: Instant,
    request_limit: Duration,
    /// The channel's own limit of the attempt.
    channel_limit: Option<AttemptLimit>,
    /// Longest wait for the first content of a stream whose upstream is alive; then the status is sent without it. `None`: no limit.
    answer_after: Option<Duration>,
    /// Accounts for the memory of the answer.
    memory: Option<&'a Arc<InFlightRequest>>,
}

impl Attempt<'_> {
    async fn run(&self, request: UpstreamRequest, progress: &AttemptProgress) -> Result<AttemptAnswer, Failure> {
        let UpstreamRequest { method, path, stream, body, conversion, dropped: _ } = request;
        let call = UpstreamCall {
            request_id: self.head.request_id,
            by: Some(self.by),
            channel: self.planned.channel.clone(),
            account: self.planned.account.clone(),
            protocol: self.planned.protocol,
            method,
            upstream_model: self.planned.mapping().upstream.clone(),
            stream,
            path,
            forwarded: if self.planned.protocol == self.head.from {
                forwarded_headers(self.head.from, self.head.headers.as_map())
            } else {
                Vec::new()
            },
            body,
            sent: progress.sent().clone(),
        };
        let prelude_limit = stream::prelude_limit(call.body.len());
        let answer = self.head(call, progress).await?;
        progress.answer_head(answer.status, upstream_request_id(&answer.headers));
        match answer.status {
            200..=299 => {}
            400..=599 => {
                let failure = self.problem(answer, progress).await;
                return self.answer_instead(failure, &conversion, progress);
            }
            status => return Err(Failure::Unexpected { status }),
        }
        if let Some(encoding) = answer.headers.get(&header::CONTENT_ENCODING)
            && !encoding.as_bytes().eq_ignore_ascii_case(b"identity")
        {
            return Err(Failure::BadAnswer("content-encoding"));
        }
        match stream {
            Some(framing) if !contradicts(&answer.headers, framing) => {
                self.stream(answer, (framing, method, prelude_limit), &conversion, progress).await
            }
            Some(_) => Err(self.unexpected_content(answer, "not a stream", progress).await),
            None if !answer.may_be_json() => Err(self.unexpected_content(answer, "content-type", progress).await),
            None => {
                let headers = answer.headers;
                let mut memory = AnswerMemory::new(self.memory, copies(&conversion));
                let whole = match self.whole(answer.body, method, &conversion, &mut memory).await? {
                    CompleteAnswer::Whole(whole) => whole,
                    CompleteAnswer::InPieces(streaming) => {
                        progress.record_reply(streaming.relay.summary());
                        memory.keep();
                        return Ok(AttemptAnswer::Stream(streaming));
                    }
                };
                let passed = conversion.read_reply(method, &whole).map_err(|bad| self.bad_reply(bad, &headers, progress))?;
                progress.record_reply(passed.summary);
                self.refuse_empty(method, &passed.summary)?;
                memory.keep();
                Ok(AttemptAnswer::Whole { body: passed.body, summary: passed.summary, events: false })
            }
        }
    }

    /// A complete answer without content is a failure where the channel says so, unless its finish explains it.
    fn refuse_empty(&self, method: Method, summary: &ReplySummary) -> Result<(), Failure> {
        let is_explained = matches!(summary.finish, Some(FinishReason::Length | FinishReason::Filter));
        let is_failure = self.planned.channel.spec.empty_answer_is_failure && method.takes_output_limit();
        if is_failure && !summary.content && !is_explained { Err(Failure::BadAnswer("no content")) } else { Ok(()) }
    }

    /// Waits for the head of the answer to an attempt that has just begun. The client enforces the connect timeout; the first-byte
    /// timeout counts from when the request was sent.
    async fn head(&self, call: UpstreamCall, progress: &AttemptProgress) -> Result<UpstreamAnswer, Failure> {
        let timeouts = self.planned.channel.spec.timeouts;
        let first_byte = Duration::from_millis(timeouts.first_byte_ms);
        let (sent, began) = (progress.sent(), progress.began());
        // The client may wait for its own limits before it connects; it enforces both.
        let unsent = began + 2 * Duration::from_millis(timeouts.connect_ms) + first_byte;
        let mut response = self.upstream.call(call);
        let mut until = self.earliest(began + first_byte);
        loop {
            if let Ok(done) = timeout_at(until, &mut response).await {
                return done.map_err(Failure::NoAnswer);
            }
            let limit = sent.at().map_or(unsent, |at| at + first_byte);
            let now = self.clock.instant();
            if limit <= now {
                return Err(match sent.at() {
                    Some(_) => Failure::TimedOut { limit_ms: timeouts.first_byte_ms },
                    None => Failure::NoAnswer(UpstreamError::NotSent(ConnectFault::TimedOut)),
                });
            }
            if let Some(limit) = self.channel_limit.filter(|limit| limit.at <= now) {
                return Err(match sent.at() {
                    Some(_) => Failure::TimedOut { limit_ms: limit.ms },
                    None => Failure::NoAnswer(UpstreamError::NotSent(ConnectFault::TimedOut)),
                });
            }
            if self.deadline <= now {
                return Err(self.out_of_time(sent.at().is_some()));
            }
            until = self.earliest(limit);
        }
    }

    /// The next bytes of a body; `None` at its end.
    async fn next(&self, body: &mut UpstreamBody) -> Result<Option<Bytes>, Failure> {
        self.next_within(body, self.planned.channel.spec.timeouts.idle_ms).await
    }

    /// [`Self::next`] with this limit of silence.
    async fn next_within(&self, body: &mut UpstreamBody, limit_ms: u64) -> Result<Option<Bytes>, Failure> {
        let mut silence_limit = None;
        loop {
            let frame = match poll_once(body.frame()).await {
                Poll::Ready(frame) => frame,
                // A timer is needed only if no bytes have arrived yet.
                Poll::Pending => {
                    let limit = *silence_limit.get_or_insert_with(|| self.clock.instant() + Duration::from_millis(limit_ms));
                    match timeout_at(self.earliest(limit), body.frame()).await {
                        Ok(frame) => frame,
                        Err(_) => return Err(self.late(AttemptLimit { at: limit, ms: limit_ms })),
                    }
                }
            };
            // The timer is not polled while an upstream never pauses, so the limit is checked here.
            if let Some(limit) = self.channel_limit.filter(|limit| frame.is_some() && limit.at <= self.clock.instant()) {
                return Err(Failure::TimedOut { limit_ms: limit.ms });
            }
            match frame {
                None => return Ok(None),
                Some(Err(_)) => return Err(Failure::BadAnswer("cut short")),
                // Trailers are not needed.
                Some(Ok(frame)) => {
                    if let Ok(data) = frame.into_data() {
                        return Ok(Some(data));
                    }
                }
            }
        }
    }

    /// The earliest of `at`, the end of the attempt and the end of the request.
    fn earliest(&self, at: Instant) -> Instant {
        let at = at.min(self.deadline);
        self.channel_limit.map_or(at, |limit| limit.at.min(at))
    }

    /// The failure of an answer that did not arrive by [`Self::earliest`] of a silence limit.
    fn late(&self, silence: AttemptLimit) -> Failure {
        let first = self.channel_limit.filter(|limit| limit.at < silence.at).unwrap_or(silence);
        if self.deadline < first.at { self.out_of_time(true) } else { Failure::TimedOut { limit_ms: first.ms } }
    }

    fn out_of_time(&self, sent: bool) -> Failure {
        Failure::OutOfTime { limit_ms: u64::try_from(self.request_limit.as_millis()).unwrap_or(u64::MAX), sent }
    }

    /// Reads a complete answer, or the beginning of one that is passed on in pieces. `memory` counts only the part that is read
    /// here.
    async fn whole(
        &self,
        mut body: UpstreamBody,
        method: Method,
        conversion: &ResponseConversion,
        memory: &mut AnswerMemory,
    ) -> Result<CompleteAnswer, Failure> {
        let declared = body.size_hint().lower();
        if declared > MAX_BYTES as u64 {
            return Err(Failure::BadAnswer("too large"));
        }
        let declared = usize::try_from(declared).unwrap_or(MAX_BYTES);
        let mut may_be_in_pieces = conversion.passes_pieces(method);
        self.reserve_declared(memory, if may_be_in_pieces { declared.min(PIECES_FROM) } else { declared }).await?;
        let Some(first) = self.next(&mut body).await? else { return Err(Failure::BadAnswer("empty")) };
        memory.count_received(first.len()).await?;
        let Some(second) = self.next(&mut body).await? else { return Ok(CompleteAnswer::Whole(first)) };
        memory.count_received(second.len()).await?;
        let reserve = declared.min(MAX_FIRST_BUFFER).max(2 * (first.len() + second.len()));
        let too_large = |_| Failure::BadAnswer("too large");
        let mut all = WholeBody::with_capacity(reserve);
        all.push(&first).map_err(too_large)?;
        all.push(&second).map_err(too_large)?;
        while let Some(piece) = self.next(&mut body).await? {
            memory.count_received(piece.len()).await?;
            all.push(&piece).map_err(too_large)?;
            if may_be_in_pieces && all.len() >= PIECES_FROM {
                let mut first = Vec::new();
                let beginning = all.freeze();
                if let Some(relay) = conversion.relay_whole((method, MAX_BYTES), &beginning, &mut first) {
                    let idle_ms = self.planned.channel.spec.timeouts.idle_ms;
                    let (rest, whole_by) = (Rest::Pending(body), Some(self.deadline));
                    let memory = StreamMemory::new(self.memory);
                    let limit = self.channel_limit;
                    let streaming = Streaming { relay, first, rest, memory, idle_ms, before_content_ms: None, limit, whole_by };
                    return Ok(CompleteAnswer::InPieces(streaming));
                }
                may_be_in_pieces = false;
                self.reserve_declared(memory, declared).await?;
                all = WholeBody::with_capacity(declared.min(MAX_FIRST_BUFFER).max(2 * beginning.len()));
                all.push(&beginning).map_err(too_large)?;
            }
        }
        Ok(CompleteAnswer::Whole(all.freeze()))
    }

    /// Waits for memory for an answer of this length. Until then its bytes stay unread in the upstream's connection.
    async fn reserve_declared(&self, memory: &mut AnswerMemory, bytes: usize) -> Result<(), Failure> {
        memory.reserve_declared(bytes, || self.deadline.saturating_duration_since(self.clock.instant())).await
    }

    /// The failure for an answer whose content type is wrong: an error object, an HTML page, plain text. `what` is for the log.
    async fn unexpected_content(&self, answer: UpstreamAnswer, what: &'static str, progress: &AttemptProgress) -> Failure {
        let UpstreamAnswer { headers, body, .. } = answer;
        let bytes = beginning(body, self.clock.instant()).await;
        match codec(self.planned.protocol).read_reply(
            self.planned.protocol.spec().generate_method,
            &bytes,
            &tollgate_protocol::ReplyEdits::default(),
        ) {
            Err(bad @ InvalidReply::Problem(_)) => self.bad_reply(bad, &headers, progress),
            Ok(_) | Err(InvalidReply::Unreadable(_)) => Failure::BadAnswer(what),
        }
    }

    /// Answers with an error that the caller's protocol expresses as an answer.
    fn answer_instead(
        &self,
        failure: Failure,
        conversion: &ResponseConversion,
        progress: &AttemptProgress,
    ) -> Result<AttemptAnswer, Failure> {
        if let Failure::Problem(problem) = &failure
            && let Some(passed) = conversion.instead_of(&problem.problem)
        {
            progress.record_reply(passed.summary);
            return Ok(AttemptAnswer::Whole { body: passed.body, summary: passed.summary, events: self.events });
        }
        Err(failure)
    }

    async fn problem(&self, answer: UpstreamAnswer, progress: &AttemptProgress) -> Failure {
        let UpstreamAnswer { status, headers, body } = answer;
        let bytes = beginning(body, self.clock.instant()).await;
        self.problem_of(codec(self.planned.protocol).decode_problem(status, &bytes), &headers, progress)
    }

    fn bad_reply(&self, bad: InvalidReply, headers: &HeaderFields, progress: &AttemptProgress) -> Failure {
        match bad {
            InvalidReply::Unreadable(what) => Failure::BadAnswer(what),
            InvalidReply::Problem(problem) => self.problem_of(*problem, headers, progress),
        }
    }

    fn problem_of(&self, mut problem: UpstreamProblem, headers: &HeaderFields, progress: &AttemptProgress) -> Failure {
        for secret in secrets_of(&self.planned.channel, &self.planned.account) {
            redact(&mut problem, secret);
        }
        let until = retry_at(headers.as_map(), &problem, progress.now());
        Failure::Problem(Box::new(ProblemAnswer { protocol: self.planned.protocol, problem, until }))
    }
}

/// The limit of an attempt that starts now; 0 is none.
fn limit_of(total_ms: u64, clock: &dyn Clock) -> Option<AttemptLimit> {
    (total_ms > 0).then(|| AttemptLimit { at: clock.instant() + Duration::from_millis(total_ms), ms: total_ms })
}

/// Copies of a complete answer in memory during its conversion.
const fn copies(conversion: &ResponseConversion) -> usize {
    match conversion {
        ResponseConversion::Same { .. } => 1,
        ResponseConversion::Translated { .. } => 2,
    }
}

/// Reads enough of a body to parse an error from it, within [`MAX_PROBLEM_TIME`].
async fn beginning(mut body: UpstreamBody, now: Instant) -> Bytes {
    let until = now + MAX_PROBLEM_TIME;
    let mut read = BytesMut::new();
    while let Ok(Some(Ok(frame))) = timeout_at(until, body.frame()).await {
        if let Some(data) = frame.data_ref() {
            let capacity = MAX_PROBLEM_BYTES - read.len();
            read.extend_from_slice(&data[..data.len().min(capacity)]);
            if read.len() == MAX_PROBLEM_BYTES {
                break;
            }
        }
    }
    read.freeze()
}

/// Whether the content type contradicts the framing. Upstreams that send no type, or call an event stream plain text, are judged
/// by their bytes.
fn contradicts(headers: &HeaderFields, framing: Framing) -> bool {
    let Some(kind) = headers.get(&header::CONTENT_TYPE) else { return false };
    let begins_with = |name: &[u8]| kind.as_bytes().get(..name.len()).is_some_and(|start| start.eq_ignore_ascii_case(name));
    begins_with(b"text/html") || framing == Framing::Sse && begins_with(b"application/json")
}

fn upstream_request_id(headers: &HeaderFields) -> Option<ShortText> {
    const MAX_CHARS: usize = 128;
    // ASCII only.
    let value = [&REQUEST_ID, &OTHER_REQUEST_ID].into_iter().find_map(|name| headers.get(name))?.to_str().ok()?;
    Some(value.get(..MAX_CHARS).unwrap_or(value).into())
}

/// Removes a secret from the texts of an upstream's error.
fn redact(problem: &mut UpstreamProblem, secret: &str) {
    let clean = |text: &mut String| {
        if text.contains(secret) {
            *text = text.replace(secret, "***");
        }
    };
    clean(&mut problem.message);
    [&mut problem.kind, &mut problem.code, &mut problem.param].into_iter().flatten().for_each(clean);
    problem.details.retain(|detail| !detail.contains(secret));
    problem.unsupported.iter_mut().for_each(clean);
}
