//! Stage 10 of 11: relay. In: an answer whose status may be sent; out: a response body that pulls from the upstream as fast
//! as the caller reads, and counts usage as it passes.
//!
//! Only the bytes of one upstream read are buffered, so backpressure reaches the upstream. An event that spans many reads counts
//! against the memory for bodies and answers, and the upstream is not read while none is free. The end of the request is written to
//! the journal before the caller gets the last bytes. A stream that breaks ends with the protocol's error event and an aborted
//! connection (E59 to E61, E4 when the key was revoked, E63 without memory); a clean end would look like a complete answer.

mod ending;
mod first_content;
mod memory;
mod phase;
mod read_on;

use std::{
    collections::VecDeque,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::Bytes;
use http_body::{Body, Frame};
use tokio::{
    sync::futures::OwnedNotified,
    time::{Instant, Sleep},
};
use tollgate_core::{AttemptResult, LatencySample, Observation};
use tollgate_protocol::StreamRelay;

use self::{
    ending::warn,
    phase::{Break, Close, Phase},
};
use super::types::{
    attempt::{AttemptLimit, Rest, Streaming},
    stream_memory::StreamMemory,
    stream_progress::StreamProgress,
    usage_guard::{Ending, UsageGuard},
};
use crate::{
    clock::Clock,
    request::Head,
    response::{AnswerAborted, AnswerBody},
    settings::UpstreamLimits,
    upstream::call::UpstreamBody,
};

/// Minimum time between two journal entries about a stream's progress.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(2);
/// How long the end of a complete answer waits for usage that arrives late, and the last bytes for the end of the upstream's body.
const LATE_USAGE: Duration = Duration::from_millis(250);
/// Silence allowed when only the stream's terminator is missing.
const LATE_TERMINATOR: Duration = Duration::from_secs(5);

/// The response body of a stream. It carries the usage guard to the end of the stream.
pub(super) fn relay(streaming: Streaming, mut guard: Box<UsageGuard>, mut head: Box<Head>) -> AnswerBody {
    // The body may live for hours. It keeps the parts of the head that an error event needs, and no secret.
    (head.presented_key, head.other_key) = (None, None);
    guard.answering();
    let now = guard.recorder.shared.clock.instant();
    let Streaming { relay, first, rest, memory, idle_ms, before_content_ms, limit, whole_by } = streaming;
    let first_content_us = if before_content_ms.is_none() { first_content::begins(&mut guard, whole_by.is_some()) } else { None };
    let candidates = guard.candidates();
    let idle = Duration::from_millis(idle_ms);
    let UpstreamLimits { keep_alive, stall, .. } = head.settings.upstream;
    let clock = Arc::clone(&guard.recorder.shared.clock);
    let interrupt = Box::pin(Arc::clone(&guard.recorder.interrupts).notified_owned());
    let mut relayed = Relayed {
        clock,
        relay,
        upstream: None,
        out: first.into(),
        fresh: Vec::new(),
        memory,
        guard: Some(guard),
        head,
        phase: Phase::Flowing,
        idle,
        before_content: before_content_ms.map(Duration::from_millis),
        stall_limit: stall.max(idle),
        candidates,
        keep_alive,
        limit,
        whole_by,
        first_content_us,
        received: now,
        progress: StreamProgress::default(),
        progressed: now,
        interrupt,
        sent: now,
        journaled: now,
        timer: Box::pin(tokio::time::sleep_until(now + idle.min(keep_alive))),
    };
    relayed.progress = StreamProgress::of(&*relayed.relay);
    match rest {
        Rest::Pending(upstream) => {
            relayed.upstream = Some(upstream);
            if relayed.relay.complete() {
                relayed.phase = Phase::Ending { until: now + LATE_USAGE };
            } else if relayed.relay.awaiting_body_end() {
                relayed.phase = Phase::Holding { until: now + LATE_USAGE };
            }
            let first = relayed.silence_limit().min(now + keep_alive);
            relayed.timer.as_mut().reset(first);
        }
        Rest::Ended => relayed.complete(),
        Rest::Broken(fault) => {
            warn(&relayed.head, &fault);
            relayed.break_off(&Break::of(&fault));
        }
    }
    AnswerBody::of(relayed)
}

/// The body of a streamed answer.
struct Relayed {
    clock: Arc<dyn Clock>,
    relay: Box<dyn StreamRelay>,
    upstream: Option<UpstreamBody>,
    /// Chunks for the caller.
    out: VecDeque<Bytes>,
    /// Chunks that one push of the relay appends; empty between polls.
    fresh: Vec<Bytes>,
    /// Counts the memory that the relay and `out` keep.
    memory: StreamMemory,
    /// `None` once finished.
    guard: Option<Box<UsageGuard>>,
    head: Box<Head>,
    phase: Phase,
    idle: Duration,
    /// Longest silence of the upstream until the first content; `None` once that has arrived.
    before_content: Option<Duration>,
    /// Longest time without progress of the answer; comments and empty deltas do not count.
    stall_limit: Duration,
    /// Candidates that were requested.
    candidates: u32,
    /// Longest silence towards the caller; then a keep-alive is sent.
    keep_alive: Duration,
    /// The channel's limit of the whole attempt.
    limit: Option<AttemptLimit>,
    /// Deadline for passing on a complete answer.
    whole_by: Option<Instant>,
    first_content_us: Option<u64>,
    /// When the upstream last sent bytes.
    received: Instant,
    /// Progress of the answer, and the time of the last progress.
    progress: StreamProgress,
    progressed: Instant,
    /// Wakes the stream to check whether it must end.
    interrupt: Pin<Box<OwnedNotified>>,
    /// When bytes were last sent to the caller.
    sent: Instant,
    /// When progress was last written to the journal.
    journaled: Instant,
    timer: Pin<Box<Sleep>>,
}

impl Body for Relayed {
    type Data = Bytes;
    type Error = AnswerAborted;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, AnswerAborted>>> {
        let this = self.get_mut();
        loop {
            match &mut this.phase {
                Phase::Flowing => {
                    if let Some(bytes) = this.next_bytes() {
                        return this.send(bytes);
                    }
                    ready!(this.pull(context));
                }
                Phase::Holding { until } => {
                    let until = *until;
                    ready!(this.hold(until, context));
                }
                Phase::Ending { until } => {
                    let until = *until;
                    ready!(this.pull_end(until, context));
                }
                Phase::Flushing { flush, then } => {
                    ready!(flush.as_mut().poll(context));
                    this.phase = Phase::Closing(*then);
                }
                Phase::Closing(then) => {
                    let then = *then;
                    if let Some(bytes) = this.next_bytes() {
                        return this.send(bytes);
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
    fn send(&mut self, bytes: Bytes) -> Poll<Option<Result<Frame<Bytes>, AnswerAborted>>> {
        let now = self.clock.instant();
        self.sent = now;
        let mut is_due = false;
        if let Some(guard) = &mut self.guard {
            guard.delivered(self.relay.summary());
            guard.capture_answer(&bytes);
            if now.duration_since(self.journaled) >= PROGRESS_INTERVAL {
                self.journaled = now;
                guard.record_reply(self.relay.summary());
                guard.write_progress();
                is_due = true;
            }
        }
        // An upstream that never pauses leaves no time to wait for the signal.
        if is_due && matches!(self.phase, Phase::Flowing) {
            self.end_if_interrupted();
        }
        Poll::Ready(Some(Ok(Frame::data(bytes))))
    }

    /// Takes the next bytes from the upstream, or waits for them, for the next keep-alive, or for the silence limit. Ready when
    /// something has changed.
    fn pull(&mut self, context: &mut Context<'_>) -> Poll<()> {
        if self.memory.is_short() && self.is_without_memory() {
            return self.wait_for_memory(context);
        }
        let Some(upstream) = &mut self.upstream else {
            self.break_off(&Break::Interrupted);
            return Poll::Ready(());
        };
        match upstream.as_mut().poll_frame(context) {
            Poll::Ready(Some(Ok(frame))) => {
                self.received = self.clock.instant();
                if let Ok(data) = frame.into_data() {
                    self.take(&data);
                }
                Poll::Ready(())
            }
            Poll::Ready(None) => {
                self.end_of_upstream(&Break::Interrupted);
                Poll::Ready(())
            }
            Poll::Ready(Some(Err(_))) => {
                self.lose_upstream(&Break::Interrupted);
                Poll::Ready(())
            }
            Poll::Pending => {
                if self.memory.is_counted() {
                    self.measure(0);
                }
                if matches!(self.phase, Phase::Holding { .. }) { Poll::Pending } else { self.wait(context) }
            }
        }
    }

    /// Waits for the end of the upstream's body, so that the journal has the end of the request before the caller gets the last
    /// bytes. If it does not arrive soon, the bytes are sent first.
    fn hold(&mut self, until: Instant, context: &mut Context<'_>) -> Poll<()> {
        if self.pull(context).is_ready() {
            return Poll::Ready(());
        }
        if self.timer.deadline() > until {
            self.timer.as_mut().reset(until);
        }
        ready!(self.timer.as_mut().poll(context));
        let now = self.clock.instant();
        if now >= until {
            self.phase = Phase::Flowing;
        }
        let next = self.silence_limit().min(now + self.keep_alive);
        self.timer.as_mut().reset(next);
        Poll::Ready(())
    }

    /// The upstream broke off or stays silent. That can only be the end of the answer if each candidate requested has its finish
    /// reason and nothing has followed one.
    fn lose_upstream(&mut self, why: &Break) {
        if self.relay.may_end_unmarked(self.candidates) {
            self.end_of_upstream(why);
        } else {
            self.break_off(why);
        }
    }

    /// The upstream's body has ended. If every candidate has its finish reason, the answer is complete, and the relay writes the
    /// end that the upstream omitted.
    fn end_of_upstream(&mut self, why: &Break) {
        self.upstream = None;
        match self.relay.finish(&mut self.fresh) {
            Ok(()) => {
                self.out.extend(self.fresh.drain(..));
                self.complete();
            }
            Err(_) => self.break_off(why),
        }
    }

    /// When the stream ends unless bytes arrive: the upstream has been silent for too long, or its time is over.
    fn silence_limit(&self) -> Instant {
        let silent = self.silent_at();
        self.limit.map_or(silent, |limit| limit.at.min(silent))
    }

    /// When the upstream will have been silent for too long. Comments and empty deltas keep a stream alive for a while, because the
    /// model may be thinking. After a finish reason the model is done, so they count as silence.
    fn silent_at(&self) -> Instant {
        if let Some(by) = self.whole_by {
            by.min(self.received + self.idle)
        } else if self.awaiting_end_marker() {
            self.progressed + self.idle.min(LATE_TERMINATOR)
        } else if self.progress.finish {
            self.progressed + self.idle
        } else {
            (self.received + self.silence_allowed()).min(self.progressed + self.stall_limit)
        }
    }

    /// True if only the end marker is missing: as many candidates as requested have finished.
    fn awaiting_end_marker(&self) -> bool {
        self.relay.awaiting_end_marker() && self.relay.may_end_unmarked(self.candidates)
    }

    fn take(&mut self, data: &Bytes) {
        let pushed = self.relay.push(data, &mut self.fresh);
        self.out.extend(self.fresh.drain(..));
        if self.memory.received(data.len()) {
            self.measure(data.len());
        }
        self.note_first_content();
        let progress = StreamProgress::of(&*self.relay);
        if progress != self.progress {
            (self.progress, self.progressed) = (progress, self.received);
        }
        self.phase = Phase::Flowing;
        if self.relay.complete() {
            self.phase = Phase::Ending { until: self.received + LATE_USAGE };
        } else if let Err(fault) = pushed {
            warn(&self.head, &fault);
            self.break_off(&Break::of(&fault));
        } else if self.received >= self.silence_limit() {
            // The upstream never pauses, so the timer is never polled.
            self.lose_upstream(&Break::Idle);
        } else if self.relay.awaiting_body_end() {
            self.phase = Phase::Holding { until: self.received + LATE_USAGE };
        } else {
            let by = self.silence_limit();
            if self.awaiting_end_marker() && self.timer.deadline() > by {
                self.timer.as_mut().reset(by);
            }
        }
    }

    /// One timer serves the keep-alive and the silence limit. Chunks only move both later, so the timer is reset when it fires and
    /// not with every chunk. An answer that only lacks its terminator is the exception.
    fn wait(&mut self, context: &mut Context<'_>) -> Poll<()> {
        while self.interrupt.as_mut().poll(context).is_ready() {
            let Some(guard) = &self.guard else { break };
            self.interrupt.set(Arc::clone(&guard.recorder.interrupts).notified_owned());
            if self.end_if_interrupted() {
                return Poll::Ready(());
            }
        }
        loop {
            ready!(self.timer.as_mut().poll(context));
            let now = self.clock.instant();
            if now >= self.silence_limit() {
                if self.memory.is_short() {
                    self.break_off(&Break::NoMemory);
                } else {
                    self.lose_upstream(&Break::Idle);
                }
                return Poll::Ready(());
            }
            if now >= self.sent + self.keep_alive {
                // Access may have ended between the check of the request and the start of the stream.
                if self.end_if_interrupted() {
                    return Poll::Ready(());
                }
                self.sent = now;
                self.out.push_back(Bytes::from_static(self.relay.keep_alive()));
            }
            let next = self.silence_limit().min(self.sent + self.keep_alive);
            self.timer.as_mut().reset(next);
            if !self.out.is_empty() {
                return Poll::Ready(());
            }
        }
    }

    /// Ends the stream if the drain time is over or its key or member has lost access.
    fn end_if_interrupted(&mut self) -> bool {
        let why = self.guard.as_deref().and_then(|guard| {
            let shared = &guard.recorder.shared;
            if shared.serving.is_cutting_off() {
                return Some(Break::GatewayStopped);
            }
            if !shared.settings.load().end_revoked_streams {
                return None;
            }
            guard.requester().and_then(|by| shared.keys.lost_access(by)).map(Break::AccessLost)
        });
        if let Some(why) = &why {
            self.break_off(why);
        }
        why.is_some()
    }

    /// The answer is complete. Usually the upstream ends with it; otherwise it is awaited only if usage is still missing.
    fn pull_end(&mut self, until: Instant, context: &mut Context<'_>) -> Poll<()> {
        while let Some(upstream) = &mut self.upstream {
            match upstream.as_mut().poll_frame(context) {
                Poll::Ready(Some(Ok(frame))) => {
                    if let Ok(data) = frame.into_data() {
                        // Bytes after a complete answer can add to it, but cannot break it.
                        let _ = self.relay.push(&data, &mut self.fresh);
                        self.out.extend(self.fresh.drain(..));
                        if self.memory.received(data.len()) {
                            self.measure(data.len());
                        }
                    }
                    if self.clock.instant() >= until || self.memory.is_short() {
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
                    if self.clock.instant() >= until {
                        self.upstream = None;
                    } else {
                        self.timer.as_mut().reset(until);
                    }
                }
            }
        }
        // A relay that reported completion does not fail at the end.
        let _ = self.relay.finish(&mut self.fresh);
        self.out.extend(self.fresh.drain(..));
        self.complete();
        Poll::Ready(())
    }

    /// Reads the rest of the upstream's body in the background, so that its connection can be reused.
    fn drain(&mut self) {
        if let (Some(rest), Some(guard)) = (self.upstream.take(), &self.guard) {
            read_on::to_the_end(rest, &guard.recorder.shared.tracker);
        }
    }

    fn complete(&mut self) {
        let observation = Observation::Success { latency: self.first_content_us.map(LatencySample::FirstToken) };
        self.end(AttemptResult::Answered, None, observation, Ending::completed(), Close::Cleanly);
    }
}

impl Drop for Relayed {
    /// The caller left: dropping the body closes the upstream's connection, and the usage guard records the content read so far. If only
    /// the usage is missing, the stream is read on to get it.
    fn drop(&mut self) {
        let Some(mut guard) = self.guard.take() else { return };
        let summary = self.relay.summary();
        guard.record_reply(summary);
        let awaits_usage = (summary.finish.is_some() || self.whole_by.is_some()) && summary.usage.is_none();
        if awaits_usage && let Some(upstream) = self.upstream.take() {
            let relay = std::mem::replace(&mut self.relay, Box::new(read_on::Spent));
            let memory = std::mem::replace(&mut self.memory, StreamMemory::new(None));
            read_on::for_usage(relay, (upstream, memory), guard, self.whole_by.is_some());
        }
    }
}
