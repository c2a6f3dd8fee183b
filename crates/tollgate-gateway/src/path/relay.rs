//! Stage 8 of 9: the stream on its way back. In: an answer whose first content is here; out: a body that pulls from
//! the upstream as fast as the caller reads, counting as it passes.
//!
//! Nothing is buffered but what one read of the upstream gave: when the caller stops reading, so do we. The journal
//! has the request's end before the caller gets the last bytes. A stream that breaks ends in an error event and an
//! aborted connection, never in a clean end (error reference, E59 and E60).

use std::{
    collections::VecDeque,
    fmt,
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::Bytes;
use http_body::{Body, Frame};
use http_body_util::BodyExt as _;
use tokio::time::{Instant, Sleep};
use tollgate_core::{AttemptResult, LatencySample, Observation, Outcome};
use tollgate_protocol::{ReplySummary, StreamError, StreamRelay};

use crate::{
    path::types::usage_guard::{Ending, UsageGuard},
    refusal::{Refusal, UpstreamFailure},
    request::Head,
    response::{AnswerAborted, AnswerBody},
    settings::UpstreamLimits,
    upstream::call::UpstreamBody,
};

/// Shortest time between two notes of a stream's progress in the journal.
const PROGRESS_EVERY: Duration = Duration::from_secs(2);
/// How long a complete answer waits for the upstream's own end, in case its usage comes late.
const LATE_USAGE: Duration = Duration::from_millis(250);
/// How long an upstream may be silent behind an answer that lacks nothing but the terminator.
const LATE_TERMINATOR: Duration = Duration::from_secs(5);
/// How long, and how far, a body nobody needs is read so that its connection can be used again.
const DRAIN_FOR: Duration = Duration::from_secs(1);
const DRAIN_BYTES: usize = 64 * 1024;

/// A stream whose 200 may go out: what was read so far, and what is still to come.
pub(crate) struct Streaming {
    /// Puts it into the caller's form.
    pub relay: Box<dyn StreamRelay>,
    /// What the caller is to get first.
    pub first: Vec<Bytes>,
    /// What follows.
    pub rest: Rest,
    /// Longest silence of the upstream, in milliseconds.
    pub idle_ms: u64,
}

/// What follows a stream's first content.
pub(crate) enum Rest {
    /// More.
    ToCome(UpstreamBody),
    /// Nothing: the upstream has ended and the relay is finished.
    Ended,
    /// Nothing good: the same bytes that brought the content broke it.
    Broken(StreamError),
}

impl fmt::Debug for Streaming {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Streaming").finish_non_exhaustive()
    }
}

/// Puts the guard into the body, which carries it to its end.
pub(crate) fn relay(streaming: Streaming, mut guard: UsageGuard, head: Head) -> AnswerBody {
    guard.answering();
    let now = guard.recorder().shared.clock.instant();
    let Streaming { relay, first, rest, idle_ms } = streaming;
    let first_content_us = guard.first_content_us();
    if let Some(us) = first_content_us {
        guard.record_first_token(us);
    }
    let idle = Duration::from_millis(idle_ms);
    let UpstreamLimits { keep_alive, total } = guard.recorder().shared.settings.upstream;
    let mut relayed = Relayed {
        relay,
        upstream: None,
        out: first.into(),
        fresh: Vec::new(),
        guard: Some(Box::new(guard)),
        head: Box::new(head),
        phase: Phase::Flowing,
        idle,
        standstill: total.max(idle),
        keep_alive,
        first_content_us,
        received: now,
        progress: Progress::default(),
        progressed: now,
        sent: now,
        noted: now,
        timer: Box::pin(tokio::time::sleep_until(now + idle.min(keep_alive))),
    };
    relayed.progress = Progress::of(&relayed.relay.summary());
    match rest {
        Rest::ToCome(upstream) => {
            relayed.upstream = Some(upstream);
            if relayed.relay.complete() {
                relayed.phase = Phase::Ending { until: now + LATE_USAGE };
            }
            let first = relayed.silent_by().min(now + keep_alive);
            relayed.timer.as_mut().reset(first);
        }
        Rest::Ended => relayed.complete(),
        Rest::Broken(fault) => {
            warn(&relayed.head, &fault);
            relayed.break_off(&Break::Interrupted);
        }
    }
    relayed.boxed_unsync()
}

/// The body of a streamed answer.
struct Relayed {
    relay: Box<dyn StreamRelay>,
    upstream: Option<UpstreamBody>,
    /// To be handed to the caller.
    out: VecDeque<Bytes>,
    /// What one push appends; empty between polls.
    fresh: Vec<Bytes>,
    /// `None` once handed in.
    guard: Option<Box<UsageGuard>>,
    head: Box<Head>,
    phase: Phase,
    idle: Duration,
    /// Longest time in which nothing comes of the answer, whatever else does.
    standstill: Duration,
    /// Longest silence towards the caller.
    keep_alive: Duration,
    first_content_us: Option<u64>,
    /// When the upstream last sent something.
    received: Instant,
    /// How far the answer is.
    progress: Progress,
    /// Since when.
    progressed: Instant,
    /// When the caller was last handed something.
    sent: Instant,
    /// When the journal last got the progress.
    noted: Instant,
    timer: Pin<Box<Sleep>>,
}

enum Phase {
    /// Bytes come and go.
    Flowing,
    /// The answer is complete: its last bytes are kept back until the upstream has ended, or enough is known.
    Ending { until: Instant },
    /// The guard is handed in; the last bytes wait for the journal's flush.
    Flushing { flush: Pin<Box<dyn Future<Output = ()> + Send>>, then: Close },
    /// The last bytes go out.
    Closing(Close),
    /// Nothing is left. An abort waits in the server until what stood before it has left.
    Done,
}

/// How far an answer is: what comments and empty deltas do not change, nor figures of usage that only grow.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
struct Progress {
    text_bytes: u64,
    media: u32,
    unknown: u32,
    usage: bool,
    finish: bool,
}

impl Progress {
    fn of(reading: &ReplySummary) -> Self {
        let ReplySummary { text_bytes, media, unknown, usage, finish, .. } = reading;
        let (text_bytes, media, unknown) = (*text_bytes, *media, *unknown);
        Self { text_bytes, media, unknown, usage: usage.is_some(), finish: finish.is_some() }
    }
}

#[derive(Clone, Copy)]
enum Close {
    Cleanly,
    Abort,
}

/// Why a stream breaks off.
enum Break {
    /// The upstream's connection or its bytes.
    Interrupted,
    /// Its silence.
    Idle,
}

impl Body for Relayed {
    type Data = Bytes;
    type Error = AnswerAborted;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, AnswerAborted>>> {
        let this = self.get_mut();
        loop {
            match &mut this.phase {
                Phase::Flowing => {
                    if let Some(bytes) = this.out.pop_front() {
                        return this.hand_on(bytes);
                    }
                    ready!(this.pull(context));
                }
                Phase::Ending { until } => {
                    let until = *until;
                    ready!(this.pull_the_end(until, context));
                }
                Phase::Flushing { flush, then } => {
                    ready!(flush.as_mut().poll(context));
                    this.phase = Phase::Closing(*then);
                }
                Phase::Closing(then) => {
                    let then = *then;
                    if let Some(bytes) = this.out.pop_front() {
                        return this.hand_on(bytes);
                    }
                    match then {
                        Close::Cleanly => this.phase = Phase::Done,
                        Close::Abort => {
                            this.phase = Phase::Done;
                            return Poll::Ready(Some(Err(AnswerAborted)));
                        }
                    }
                }
                Phase::Done => return Poll::Ready(None),
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        matches!(self.phase, Phase::Done)
    }
}

impl Relayed {
    fn hand_on(&mut self, bytes: Bytes) -> Poll<Option<Result<Frame<Bytes>, AnswerAborted>>> {
        let now = Instant::now();
        self.sent = now;
        if let Some(guard) = &mut self.guard {
            guard.delivered(self.relay.summary());
            if now.duration_since(self.noted) >= PROGRESS_EVERY {
                self.noted = now;
                guard.read(self.relay.summary());
                guard.progress();
            }
        }
        Poll::Ready(Some(Ok(Frame::data(bytes))))
    }

    /// Takes the next bytes from upstream, or waits: for them, for the next keep-alive, or until it has been silent for
    /// too long. Ready when something has changed.
    fn pull(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let Some(upstream) = &mut self.upstream else {
            self.break_off(&Break::Interrupted);
            return Poll::Ready(());
        };
        match upstream.as_mut().poll_frame(context) {
            Poll::Ready(Some(Ok(frame))) => {
                self.received = Instant::now();
                if let Ok(data) = frame.into_data() {
                    self.take(&data);
                }
                Poll::Ready(())
            }
            Poll::Ready(Some(Err(_)) | None) => {
                self.nothing_follows(&Break::Interrupted);
                Poll::Ready(())
            }
            Poll::Pending => self.wait(context),
        }
    }

    /// The upstream has ended, or fell silent for good. Where every candidate has its finish the answer is complete all the
    /// same, and its end is written for the upstream.
    fn nothing_follows(&mut self, why: &Break) {
        self.upstream = None;
        match self.relay.finish(&mut self.fresh) {
            Ok(()) => {
                self.out.extend(self.fresh.drain(..));
                self.complete();
            }
            Err(_) => self.break_off(why),
        }
    }

    /// When the upstream has been silent for too long. Comments and empty deltas hold a stream for a while: the model may be
    /// thinking. Behind a finish it is not, and they are silence.
    fn silent_by(&self) -> Instant {
        if self.relay.awaiting_end_marker() {
            self.progressed + self.idle.min(LATE_TERMINATOR)
        } else if self.progress.finish {
            self.progressed + self.idle
        } else {
            (self.received + self.idle).min(self.progressed + self.standstill)
        }
    }

    fn take(&mut self, data: &Bytes) {
        let pushed = self.relay.push(data, &mut self.fresh);
        self.out.extend(self.fresh.drain(..));
        let progress = Progress::of(&self.relay.summary());
        if progress != self.progress {
            (self.progress, self.progressed) = (progress, self.received);
        }
        if self.relay.complete() {
            self.phase = Phase::Ending { until: self.received + LATE_USAGE };
        } else if let Err(fault) = pushed {
            warn(&self.head, &fault);
            self.break_off(&Break::Interrupted);
        } else if self.received >= self.silent_by() {
            // It never pauses, so that the timer is never asked.
            self.nothing_follows(&Break::Idle);
        } else {
            let by = self.silent_by();
            if self.relay.awaiting_end_marker() && self.timer.deadline() > by {
                self.timer.as_mut().reset(by);
            }
        }
    }

    /// One timer for both silences. Apart from a settled answer it is only ever set late by what has happened since, so it
    /// is moved when it rings and not with every chunk.
    fn wait(&mut self, context: &mut Context<'_>) -> Poll<()> {
        loop {
            ready!(self.timer.as_mut().poll(context));
            let now = Instant::now();
            if now >= self.silent_by() {
                self.nothing_follows(&Break::Idle);
                return Poll::Ready(());
            }
            if now >= self.sent + self.keep_alive {
                self.sent = now;
                self.out.push_back(Bytes::from_static(self.relay.keep_alive()));
            }
            let next = self.silent_by().min(self.sent + self.keep_alive);
            self.timer.as_mut().reset(next);
            if !self.out.is_empty() {
                return Poll::Ready(());
            }
        }
    }

    /// The answer is complete. Usually the upstream ends with it; when it does not, nobody waits for it, unless its
    /// usage has not come yet.
    fn pull_the_end(&mut self, until: Instant, context: &mut Context<'_>) -> Poll<()> {
        while let Some(upstream) = &mut self.upstream {
            match upstream.as_mut().poll_frame(context) {
                Poll::Ready(Some(Ok(frame))) => {
                    if let Ok(data) = frame.into_data() {
                        // What stands behind a complete answer can add to it, but can no longer break it.
                        let _ = self.relay.push(&data, &mut self.fresh);
                        self.out.extend(self.fresh.drain(..));
                    }
                    if Instant::now() >= until {
                        self.upstream = None;
                    }
                }
                Poll::Ready(Some(Err(_)) | None) => self.upstream = None,
                Poll::Pending if self.relay.summary().usage.is_some() => self.drain(),
                Poll::Pending => {
                    if self.timer.deadline() > until {
                        self.timer.as_mut().reset(until);
                    }
                    ready!(self.timer.as_mut().poll(context));
                    if Instant::now() >= until {
                        self.upstream = None;
                    } else {
                        self.timer.as_mut().reset(until);
                    }
                }
            }
        }
        // A relay that calls an answer complete has nothing to complain of at its end.
        let _ = self.relay.finish(&mut self.fresh);
        self.out.extend(self.fresh.drain(..));
        self.complete();
        Poll::Ready(())
    }

    /// Lets the upstream end in its own time, so that its connection can be used again.
    fn drain(&mut self) {
        let (Some(mut rest), Some(guard)) = (self.upstream.take(), &self.guard) else { return };
        guard.recorder().shared.tracker.spawn(async move {
            let read = async {
                let mut seen = 0;
                while let Some(Ok(frame)) = rest.frame().await {
                    seen += frame.data_ref().map_or(0, Bytes::len);
                    if seen > DRAIN_BYTES {
                        break;
                    }
                }
            };
            let _ = tokio::time::timeout(DRAIN_FOR, read).await;
        });
    }

    fn complete(&mut self) {
        let observation = Observation::Success { latency: self.first_content_us.map(LatencySample::FirstToken) };
        self.end(AttemptResult::Answered, None, observation, Ending::completed(), Close::Cleanly);
    }

    /// E59, E60: whatever is whole goes out, the error event behind it, and the connection is aborted behind that.
    fn break_off(&mut self, why: &Break) {
        self.upstream = None;
        let (failure, observation) = match why {
            Break::Interrupted => (UpstreamFailure::StreamInterrupted, Observation::BadAnswer),
            Break::Idle => {
                let stands_still = Instant::now() < self.received + self.idle && !self.progress.finish;
                let limit = if stands_still { self.standstill } else { self.idle };
                let limit_ms = u64::try_from(limit.as_millis()).unwrap_or(u64::MAX);
                (UpstreamFailure::StreamIdle { limit_ms }, Observation::Timeout)
            }
        };
        let refusal = Refusal::Upstream { model: String::new(), failure };
        let problem = refusal.problem(&self.head);
        self.out.extend(self.fresh.drain(..));
        self.out.push_back(self.relay.problem(&problem));
        let id = refusal.id(self.head.from);
        let ending =
            Ending { status: 200, outcome: Outcome::UpstreamBroke, reason: Some(id.to_owned()), detail: Some(problem.message) };
        self.end(AttemptResult::Broke, Some(id), observation, ending, Close::Abort);
    }

    fn end(&mut self, result: AttemptResult, error: Option<&str>, seen: Observation, ending: Ending, then: Close) {
        let flush = self.guard.take().and_then(|mut guard| {
            let reading = self.relay.summary();
            guard.read(reading);
            guard.delivered(reading);
            guard.end_attempt(result, error, Some(seen));
            guard.finish(ending)
        });
        self.phase = match flush {
            Some(flush) => Phase::Flushing { flush: Box::pin(flush.wait()), then },
            None => Phase::Closing(then),
        };
    }
}

impl Drop for Relayed {
    /// The caller left: the upstream's connection closes with its body, and the guard goes in with what was read.
    fn drop(&mut self) {
        if let Some(guard) = &mut self.guard {
            guard.read(self.relay.summary());
        }
    }
}

fn warn(head: &Head, fault: &StreamError) {
    // The class alone: an error event's text is the upstream's.
    let class = match fault {
        StreamError::Malformed(what) => what,
        StreamError::Problem(_) => "error event",
        StreamError::Truncated => "truncated",
    };
    tracing::warn!(request.id = %head.request_id, class, "a stream broke after its first content");
}

/// What a stream's first bytes said, for deciding whether its 200 may go out.
pub(crate) fn may_go_out(reading: &ReplySummary, relay: &dyn StreamRelay) -> bool {
    reading.content || relay.complete()
}
