//! One attempt: the call, and its answer read until it is known to be one. A complete answer is read whole and
//! checked; a stream is read until its first content. Until then another attempt is possible.

mod body;

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, header};
use http_body::Body as _;
use http_body_util::BodyExt as _;
use tokio::time::{Instant, timeout_at};
use tollgate_core::{PlannedAttempt, RequestId};
use tollgate_protocol::{Framing, InvalidReply, ReplySummary, StreamError, UpstreamProblem, codec};

use self::body::{MOST_BYTES, Whole};
use super::judge::{Failure, ProblemAnswer};
use crate::path::{
    relay::{Rest, Streaming, may_go_out},
    types::{
        request_bodies::{Prepared, ResponseConversion},
        usage_guard::AttemptProgress,
    },
};
use crate::upstream::{
    call::{ConnectFault, SentMark, Upstream, UpstreamAnswer, UpstreamBody, UpstreamCall, UpstreamError},
    retry_after::asked_wait,
};

/// How much of an error answer is read, and for how long.
const PROBLEM_BYTES: usize = 64 * 1024;
const PROBLEM_FOR: Duration = Duration::from_secs(5);
/// What a stream may send before its first content.
const PRELUDE_BYTES: usize = 1024 * 1024;
/// Buffer set aside for a complete answer before any of it has come.
const FIRST_RESERVE: u64 = 256 * 1024;

/// An answer that may go to the caller.
#[derive(Debug)]
pub(crate) enum AttemptAnswer {
    /// Complete and checked.
    Whole {
        /// The body for the caller.
        body: Bytes,
        /// What it says.
        reading: ReplySummary,
        /// It is a whole event stream.
        events: bool,
    },
    /// A stream whose first content is here.
    Stream(Streaming),
}

/// One attempt's way to its answer.
pub(crate) struct Attempt<'a> {
    pub upstream: &'a dyn Upstream,
    pub planned: &'a PlannedAttempt,
    pub request_id: RequestId,
    /// Whether the caller's answer is an event stream.
    pub events: bool,
    /// When the request as a whole must have an answer.
    pub deadline: Instant,
    /// How long it may take as a whole.
    pub total: Duration,
}

impl Attempt<'_> {
    /// Calls the upstream and reads its answer as far as it takes to know that it is one.
    pub(crate) async fn run(&self, prepared: Prepared, notes: &AttemptProgress) -> Result<AttemptAnswer, Failure> {
        let Prepared { method, path, stream, body, way_back, dropped: _ } = prepared;
        let call = UpstreamCall {
            request_id: self.request_id,
            channel: self.planned.channel.clone(),
            account: self.planned.account.clone(),
            protocol: self.planned.protocol,
            method,
            upstream_model: self.planned.mapping().upstream.clone(),
            stream,
            path,
            body,
            sent: SentMark::default(),
        };
        let answer = self.head(call).await?;
        notes.answer_head(answer.status, upstream_request_id(&answer.headers));
        match answer.status {
            200..=299 => {}
            400..=599 => {
                let failure = self.problem(answer, notes).await;
                return self.answer_instead(failure, &way_back, notes);
            }
            status => return Err(Failure::Unexpected { status }),
        }
        if let Some(encoding) = answer.headers.get(header::CONTENT_ENCODING)
            && !encoding.as_bytes().eq_ignore_ascii_case(b"identity")
        {
            return Err(Failure::BadAnswer("content-encoding"));
        }
        match stream {
            Some(framing) if !says_otherwise(&answer.headers, framing) => self.stream(answer, framing, &way_back, notes).await,
            Some(_) => Err(self.something_else(answer, "not a stream", notes).await),
            None if !may_be_json(&answer.headers) => Err(self.something_else(answer, "content-type", notes).await),
            None => {
                let headers = answer.headers;
                let whole = self.whole(answer.body).await?;
                let passed = way_back.read_reply(method, &whole).map_err(|bad| self.bad_reply(bad, &headers, notes))?;
                notes.read(passed.summary);
                Ok(AttemptAnswer::Whole { body: passed.body, reading: passed.summary, events: false })
            }
        }
    }

    /// Waits for the head: the connect limit is the upstream's own, the first-byte limit counts from when the request
    /// left.
    async fn head(&self, call: UpstreamCall) -> Result<UpstreamAnswer, Failure> {
        let timeouts = self.planned.channel.timeouts;
        let first_byte = Duration::from_millis(timeouts.first_byte_ms);
        let sent = call.sent.clone();
        let began = Instant::now();
        let unsent = began + Duration::from_millis(timeouts.connect_ms) + first_byte;
        let mut under_way = self.upstream.call(call);
        let mut until = (began + first_byte).min(self.deadline);
        loop {
            if let Ok(done) = timeout_at(until, &mut under_way).await {
                return done.map_err(Failure::NoAnswer);
            }
            let own = sent.at().map_or(unsent, |at| at + first_byte);
            let now = Instant::now();
            if own <= now {
                return Err(match sent.at() {
                    Some(_) => Failure::TimedOut { limit_ms: timeouts.first_byte_ms },
                    None => Failure::NoAnswer(UpstreamError::NotSent(ConnectFault::TimedOut)),
                });
            }
            if self.deadline <= now {
                return Err(self.out_of_time(sent.at().is_some()));
            }
            until = own.min(self.deadline);
        }
    }

    /// The next bytes of a body; `None` at its end.
    async fn next(&self, body: &mut UpstreamBody) -> Result<Option<Bytes>, Failure> {
        let idle_ms = self.planned.channel.timeouts.idle_ms;
        let own = Instant::now() + Duration::from_millis(idle_ms);
        loop {
            match timeout_at(own.min(self.deadline), body.frame()).await {
                Err(_) if self.deadline < own => return Err(self.out_of_time(true)),
                Err(_) => return Err(Failure::TimedOut { limit_ms: idle_ms }),
                Ok(None) => return Ok(None),
                Ok(Some(Err(_))) => return Err(Failure::BadAnswer("cut short")),
                // Trailers say nothing we need.
                Ok(Some(Ok(frame))) => {
                    if let Ok(data) = frame.into_data() {
                        return Ok(Some(data));
                    }
                }
            }
        }
    }

    fn out_of_time(&self, sent: bool) -> Failure {
        Failure::OutOfTime { limit_ms: u64::try_from(self.total.as_millis()).unwrap_or(u64::MAX), sent }
    }

    async fn whole(&self, mut body: UpstreamBody) -> Result<Bytes, Failure> {
        let declared = body.size_hint().lower();
        if declared > MOST_BYTES as u64 {
            return Err(Failure::BadAnswer("too large"));
        }
        let Some(first) = self.next(&mut body).await? else { return Err(Failure::BadAnswer("empty")) };
        let Some(second) = self.next(&mut body).await? else { return Ok(first) };
        let reserve = usize::try_from(declared.clamp(0, FIRST_RESERVE)).unwrap_or(0).max(2 * (first.len() + second.len()));
        let too_large = |_| Failure::BadAnswer("too large");
        let mut all = Whole::with_capacity(reserve);
        all.push(&first).map_err(too_large)?;
        all.push(&second).map_err(too_large)?;
        while let Some(piece) = self.next(&mut body).await? {
            all.push(&piece).map_err(too_large)?;
        }
        Ok(all.freeze())
    }

    async fn stream(
        &self,
        answer: UpstreamAnswer,
        framing: Framing,
        way_back: &ResponseConversion,
        notes: &AttemptProgress,
    ) -> Result<AttemptAnswer, Failure> {
        let UpstreamAnswer { headers, mut body, .. } = answer;
        let mut relay = way_back.relay(framing);
        let mut first = Vec::new();
        let mut seen = 0;
        let idle_ms = self.planned.channel.timeouts.idle_ms;
        // Comments and empty events are no silence, but no answer either: they hold nobody up for longer than this.
        let content_ms = self.planned.channel.timeouts.first_byte_ms.max(idle_ms);
        let content_by = Instant::now() + Duration::from_millis(content_ms);
        loop {
            let piece = match timeout_at(content_by, self.next(&mut body)).await {
                Ok(piece) => piece?,
                Err(_) => return Err(Failure::TimedOut { limit_ms: content_ms }),
            };
            let pushed = match &piece {
                Some(piece) => {
                    seen += piece.len();
                    relay.push(piece, &mut first)
                }
                None => relay.finish(&mut first),
            };
            let reading = relay.summary();
            notes.read(reading);
            if may_go_out(&reading, &*relay) {
                let rest = match (piece, pushed) {
                    (None, Ok(())) => Rest::Ended,
                    (Some(_), Ok(())) => Rest::ToCome(body),
                    (_, Err(fault)) => Rest::Broken(fault),
                };
                return Ok(AttemptAnswer::Stream(Streaming { relay, first, rest, idle_ms }));
            }
            match pushed {
                Err(StreamError::Problem(problem)) => return Err(self.problem_of(*problem, &headers, notes)),
                Err(StreamError::Malformed(what)) => return Err(Failure::BadAnswer(what)),
                Err(StreamError::Truncated) => return Err(Failure::BadAnswer("stream ended without content")),
                // A whole stream without content: an empty answer that says so.
                Ok(()) if piece.is_none() => {
                    return Ok(AttemptAnswer::Stream(Streaming { relay, first, rest: Rest::Ended, idle_ms }));
                }
                Ok(()) if seen > PRELUDE_BYTES => return Err(Failure::BadAnswer("no content in the first MiB")),
                Ok(()) => {}
            }
        }
    }

    /// What came says of itself that it is not what was asked for: an error object, a page, a text. `what` is for the log.
    async fn something_else(&self, answer: UpstreamAnswer, what: &'static str, notes: &AttemptProgress) -> Failure {
        let UpstreamAnswer { headers, body, .. } = answer;
        let bytes = beginning(body).await;
        match codec(self.planned.protocol).read_reply(
            self.planned.protocol.spec().generate_method,
            &bytes,
            &tollgate_protocol::ReplyEdits::default(),
        ) {
            Err(bad @ InvalidReply::Problem(_)) => self.bad_reply(bad, &headers, notes),
            Ok(_) | Err(InvalidReply::Unreadable(_)) => Failure::BadAnswer(what),
        }
    }

    /// An error that the caller's protocol says as an answer.
    fn answer_instead(
        &self,
        failure: Failure,
        way_back: &ResponseConversion,
        notes: &AttemptProgress,
    ) -> Result<AttemptAnswer, Failure> {
        if let Failure::Problem(problem) = &failure
            && let Some(passed) = way_back.instead_of(&problem.problem)
        {
            notes.read(passed.summary);
            return Ok(AttemptAnswer::Whole { body: passed.body, reading: passed.summary, events: self.events });
        }
        Err(failure)
    }

    async fn problem(&self, answer: UpstreamAnswer, notes: &AttemptProgress) -> Failure {
        let UpstreamAnswer { status, headers, body } = answer;
        let bytes = beginning(body).await;
        self.problem_of(codec(self.planned.protocol).decode_problem(status, &bytes), &headers, notes)
    }

    fn bad_reply(&self, bad: InvalidReply, headers: &HeaderMap, notes: &AttemptProgress) -> Failure {
        match bad {
            InvalidReply::Unreadable(what) => Failure::BadAnswer(what),
            InvalidReply::Problem(problem) => self.problem_of(*problem, headers, notes),
        }
    }

    fn problem_of(&self, mut problem: UpstreamProblem, headers: &HeaderMap, notes: &AttemptProgress) -> Failure {
        if let Some(credential) = &self.planned.account.credential {
            redact(&mut problem, credential.expose());
        }
        let until = asked_wait(headers, &problem, notes.now());
        Failure::Problem(Box::new(ProblemAnswer { protocol: self.planned.protocol, problem, until }))
    }
}

/// The beginning of a body, enough to read an error from. It is not worth waiting for long.
async fn beginning(mut body: UpstreamBody) -> Bytes {
    let until = Instant::now() + PROBLEM_FOR;
    let mut read = BytesMut::new();
    while let Ok(Some(Ok(frame))) = timeout_at(until, body.frame()).await {
        if let Some(data) = frame.data_ref() {
            let room = PROBLEM_BYTES - read.len();
            read.extend_from_slice(&data[..data.len().min(room)]);
            if read.len() == PROBLEM_BYTES {
                break;
            }
        }
    }
    read.freeze()
}

/// Whether the head says that the body is not what was asked for. Upstreams that say nothing, or call an event stream
/// plain text, are believed by their bytes.
fn says_otherwise(headers: &HeaderMap, framing: Framing) -> bool {
    let Some(kind) = headers.get(header::CONTENT_TYPE) else { return false };
    let kind = kind.as_bytes().to_ascii_lowercase();
    kind.starts_with(b"text/html") || framing == Framing::Sse && kind.starts_with(b"application/json")
}

/// Whether the head lets the body be JSON. Servers that say nothing, or that they do not know, are believed by their bytes.
pub(crate) fn may_be_json(headers: &HeaderMap) -> bool {
    let Some(kind) = headers.get(header::CONTENT_TYPE) else { return true };
    let kind = kind.as_bytes().split(|byte| *byte == b';').next().unwrap_or_default().trim_ascii().to_ascii_lowercase();
    matches!(&*kind, b"" | b"application/json" | b"text/json" | b"application/octet-stream" | b"binary/octet-stream")
        || kind.ends_with(b"+json")
}

fn upstream_request_id(headers: &HeaderMap) -> Option<String> {
    let value = ["x-request-id", "request-id"].into_iter().find_map(|name| headers.get(name))?.to_str().ok()?;
    Some(value.chars().take(128).collect())
}

/// Takes our own credential out of the upstream's words, whatever it looks like.
fn redact(problem: &mut UpstreamProblem, credential: &str) {
    if credential.is_empty() {
        return;
    }
    let clean = |text: &mut String| {
        if text.contains(credential) {
            *text = text.replace(credential, "***");
        }
    };
    clean(&mut problem.message);
    [&mut problem.kind, &mut problem.code, &mut problem.param].into_iter().flatten().for_each(clean);
    problem.details.retain(|detail| !detail.contains(credential));
    problem.unsupported.iter_mut().for_each(clean);
}
