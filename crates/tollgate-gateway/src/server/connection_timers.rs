//! Timer state of a connection: idle between requests, reading a head, or answering. Updated by [`super::wire`] and by
//! response bodies, read by the loop that drives the connection.

use std::{
    future::poll_fn,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    task::{Poll, Waker},
};

use bytes::Bytes;
use tokio::time::Instant;

use super::{
    connection_eviction::MIN_REST,
    head_scan::{Framing, HeadScan},
};
use crate::settings::HttpLimits;

#[derive(Debug)]
pub(crate) struct ConnectionTimers {
    state: Mutex<State>,
    /// Set once, with [`State::final_response`]; saves a lock per read.
    aborted: AtomicBool,
    /// Set while a task waits for a flush; saves a lock per flush.
    flush_wanted: AtomicBool,
    flushes: AtomicU64,
    /// Set once, when the connection is evicted.
    evicted: AtomicBool,
}

#[derive(Debug)]
struct State {
    phase: Phase,
    /// Start of the phase; while answering, start of the latest request.
    since: Instant,
    answering: usize,
    /// Number of flushes when the latest request ended.
    flushes_at_end: Option<u64>,
    /// No request follows on this connection.
    is_last: bool,
    scan: HeadScan,
    /// Response bodies in progress, by slot.
    answers: Vec<Option<Waiting>>,
    /// Tasks waiting for the next flush.
    flush_waiters: Vec<Waker>,
    final_response: Bytes,
    /// The task that drives the connection.
    task: Option<Waker>,
    /// True if the connection closes without reading and discarding more bytes first.
    closes_at_once: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Idle,
    Head,
}

/// A response body in progress: since when it waits for the caller to read. `None`: it waits for the upstream.
#[derive(Clone, Copy, Debug)]
struct Waiting(Option<Instant>);

/// The next action of the loop that drives the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Alarm {
    /// Nothing is due before this time.
    Wait(Instant),
    /// A head did not arrive in time (E65).
    HeadTooSlow,
    /// The connection was idle for too long: close gracefully.
    Idle,
    /// The caller does not read a response: close at once.
    Stalled,
}

/// How an evicted connection closes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Eviction {
    /// It answers requests: close gracefully.
    AfterAnswer,
    /// It carries no request: close at once.
    AtRest,
    /// A head takes long to arrive.
    SlowHead,
}

impl ConnectionTimers {
    pub(crate) fn new(now: Instant) -> Self {
        Self {
            state: Mutex::new(State {
                phase: Phase::Idle,
                since: now,
                answering: 0,
                flushes_at_end: None,
                is_last: false,
                scan: HeadScan::default(),
                answers: Vec::new(),
                flush_waiters: Vec::new(),
                final_response: Bytes::new(),
                task: None,
                closes_at_once: false,
            }),
            aborted: AtomicBool::new(false),
            flush_wanted: AtomicBool::new(false),
            flushes: AtomicU64::new(0),
            evicted: AtomicBool::new(false),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records received bytes. While no request is in progress they belong to a head.
    pub(super) fn read(&self, bytes: &[u8], now: impl FnOnce() -> Instant) {
        let mut state = self.state();
        state.scan.push(bytes);
        if state.answering == 0 && state.phase == Phase::Idle {
            state.phase = Phase::Head;
            state.since = now();
        }
    }

    /// Records the end of a head; returns what its raw bytes say about framing.
    pub(super) fn begin(&self, now: Instant) -> Framing {
        let mut state = self.state();
        state.phase = Phase::Idle;
        state.since = now;
        state.answering += 1;
        state.scan.next_framing()
    }

    pub(super) fn end(&self, now: Instant) {
        let mut state = self.state();
        state.answering = state.answering.saturating_sub(1);
        state.since = now;
        state.flushes_at_end = Some(self.flushes());
    }

    pub(super) fn is_answering(&self) -> bool {
        self.state().answering > 0
    }

    /// Whether a request was answered on this connection.
    pub(super) fn has_answered(&self) -> bool {
        self.state().flushes_at_end.is_some()
    }

    /// Records that the connection closes after the request in progress. Later bytes are never read as a request.
    pub(super) fn note_last(&self) {
        self.state().is_last = true;
    }

    /// True between two requests, once the whole answer was flushed.
    pub(super) fn is_at_rest(&self) -> bool {
        self.state().is_at_rest(self.flushes())
    }

    /// Since when the connection carries no complete request; `None` while it does, or while it closes.
    pub(super) fn rest_since(&self) -> Option<Instant> {
        let state = self.state();
        state.is_at_rest(self.flushes()).then_some(state.since)
    }

    /// Records the task that drives the connection. A task has one waker during its life.
    pub(super) fn driven_by(&self, waker: &Waker) {
        self.state().task = Some(waker.clone());
    }

    /// Evicts the connection; [`Self::wake`] makes its task notice.
    pub(super) fn mark_evicted(&self) {
        self.evicted.store(true, Ordering::Release);
    }

    pub(super) fn wake(&self) {
        let task = self.state().task.clone();
        task.iter().for_each(Waker::wake_by_ref);
    }

    pub(super) fn is_evicted(&self) -> bool {
        self.evicted.load(Ordering::Acquire)
    }

    /// Waits until the connection is evicted. Only for the task that drives it.
    pub(super) async fn evicted(&self) {
        poll_fn(|_| if self.is_evicted() { Poll::Ready(()) } else { Poll::Pending }).await;
    }

    /// How the connection closes, if it is evicted. A head that began to arrive less than [`MIN_REST`] ago is waited for.
    pub(super) fn eviction(&self, now: impl FnOnce() -> Instant) -> Option<Eviction> {
        if !self.is_evicted() {
            return None;
        }
        let state = self.state();
        if state.answering > 0 {
            return Some(Eviction::AfterAnswer);
        }
        if !state.is_at_rest(self.flushes()) {
            return None;
        }
        match state.phase {
            Phase::Idle => Some(Eviction::AtRest),
            Phase::Head => (state.since + MIN_REST <= now()).then_some(Eviction::SlowHead),
        }
    }

    /// Makes the connection close without reading what the caller still sends.
    pub(super) fn close_at_once(&self) {
        self.state().closes_at_once = true;
    }

    pub(super) fn closes_at_once(&self) -> bool {
        self.state().closes_at_once
    }

    /// Records that a response head is ready to be sent; returns the slot of its body.
    pub(super) fn answer(&self, now: Instant) -> usize {
        let mut state = self.state();
        let waiting = Some(Waiting(Some(now)));
        if let Some(free) = state.answers.iter().position(Option::is_none) {
            state.answers[free] = waiting;
            return free;
        }
        state.answers.push(waiting);
        state.answers.len() - 1
    }

    /// Records that a body chunk was passed to hyper at `at`, or that none is available (`None`).
    pub(super) fn handed_over(&self, slot: usize, at: Option<Instant>) {
        if let Some(answer) = self.state().answers.get_mut(slot) {
            *answer = Some(Waiting(at));
        }
    }

    /// Records the end of a response body and frees its slot.
    pub(super) fn answered(&self, slot: usize) {
        if let Some(answer) = self.state().answers.get_mut(slot) {
            *answer = None;
        }
    }

    /// The action due at `now`.
    pub(super) fn alarm(&self, now: Instant, limits: &HttpLimits) -> Alarm {
        let state = self.state();
        let (due, alarm) = if state.answering > 0 {
            let oldest = state.answers.iter().filter_map(|answer| answer.as_ref()?.0).min();
            // If no body waits for the caller, check again after the idle timeout.
            (oldest.unwrap_or(now) + limits.idle_timeout, Alarm::Stalled)
        } else {
            match state.phase {
                Phase::Idle => (state.since + limits.idle_timeout, Alarm::Idle),
                Phase::Head => (state.since + limits.header_timeout, Alarm::HeadTooSlow),
            }
        };
        if now < due { Alarm::Wait(due) } else { alarm }
    }

    pub(super) fn flushes(&self) -> u64 {
        self.flushes.load(Ordering::Acquire)
    }

    /// Wakes a task at the next flush.
    pub(super) fn wake_at_flush(&self, waker: &Waker) {
        self.state().flush_waiters.push(waker.clone());
        self.flush_wanted.store(true, Ordering::Release);
    }

    /// Records that all written bytes were flushed to the socket.
    pub(super) fn flushed(&self) {
        self.flushes.fetch_add(1, Ordering::AcqRel);
        if self.flush_wanted.swap(false, Ordering::AcqRel) {
            let waiters = std::mem::take(&mut self.state().flush_waiters);
            waiters.into_iter().for_each(Waker::wake);
        }
    }

    /// Makes the next read send `response` and end the connection.
    pub(super) fn abort_with(&self, response: Bytes) {
        self.state().final_response = response;
        self.aborted.store(true, Ordering::Release);
    }

    /// The response set by [`Self::abort_with`], if any.
    pub(super) fn final_response(&self) -> Option<Bytes> {
        self.aborted.load(Ordering::Acquire).then(|| std::mem::take(&mut self.state().final_response))
    }
}

impl State {
    /// True between two requests, once the whole answer was flushed.
    fn is_at_rest(&self, flushes: u64) -> bool {
        !self.is_last && self.answering == 0 && self.flushes_at_end.is_none_or(|at_end| flushes > at_end)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn secs(secs: u64) -> Duration {
        Duration::from_secs(secs)
    }

    #[tokio::test(start_paused = true)]
    async fn each_phase_has_its_timeout() {
        let (limits, start) = (HttpLimits::default(), Instant::now());
        let timers = ConnectionTimers::new(start);
        assert_eq!(timers.alarm(start, &limits), Alarm::Wait(start + secs(60)));
        assert_eq!(timers.alarm(start + secs(60), &limits), Alarm::Idle);
        timers.read(b"POST", || start + secs(5));
        timers.read(b" /", || start + secs(9));
        assert_eq!(timers.alarm(start + secs(14), &limits), Alarm::Wait(start + secs(15)));
        assert_eq!(timers.alarm(start + secs(15), &limits), Alarm::HeadTooSlow);
        timers.begin(start + secs(15));
        assert_eq!(timers.alarm(start + secs(900), &limits), Alarm::Wait(start + secs(960)), "the upstream may think");
        timers.end(start + secs(900));
        assert_eq!(timers.alarm(start + secs(959), &limits), Alarm::Wait(start + secs(960)));
        assert_eq!(timers.alarm(start + secs(960), &limits), Alarm::Idle);
    }

    #[tokio::test(start_paused = true)]
    async fn unread_response_among_several_is_detected() {
        let (limits, start) = (HttpLimits::default(), Instant::now());
        let timers = ConnectionTimers::new(start);
        timers.begin(start);
        timers.begin(start);
        let (one, other) = (timers.answer(start), timers.answer(start + secs(1)));
        assert_ne!(one, other);
        timers.handed_over(one, None);
        timers.handed_over(other, Some(start + secs(2)));
        assert_eq!(timers.alarm(start + secs(61), &limits), Alarm::Wait(start + secs(62)));
        assert_eq!(timers.alarm(start + secs(62), &limits), Alarm::Stalled);
        timers.answered(other);
        assert!(matches!(timers.alarm(start + secs(62), &limits), Alarm::Wait(_)));
        assert_eq!(timers.answer(start + secs(62)), other, "slots are used again");
    }

    #[tokio::test(start_paused = true)]
    async fn evicted_connection_closes_only_without_a_request_in_progress() {
        let start = Instant::now();
        let timers = ConnectionTimers::new(start);
        assert_eq!(timers.rest_since(), Some(start), "silent since it was accepted");
        assert_eq!(timers.eviction(|| start + secs(9)), None, "not asked to close");
        timers.mark_evicted();
        assert_eq!(timers.eviction(|| start), Some(Eviction::AtRest));
        timers.read(b"POST", || start + secs(1));
        assert_eq!(timers.rest_since(), Some(start + secs(1)), "a head that does not end");
        assert_eq!(timers.eviction(|| start + secs(1)), None, "a head that has just begun");
        assert_eq!(timers.eviction(|| start + secs(2)), Some(Eviction::SlowHead));
        timers.begin(start + secs(2));
        assert_eq!((timers.rest_since(), timers.eviction(|| start + secs(9))), (None, Some(Eviction::AfterAnswer)));
        timers.end(start + secs(3));
        assert_eq!((timers.rest_since(), timers.eviction(|| start + secs(9))), (None, None), "the answer is not flushed");
        timers.flushed();
        assert_eq!((timers.rest_since(), timers.eviction(|| start + secs(9))), (Some(start + secs(3)), Some(Eviction::AtRest)));
        timers.note_last();
        assert_eq!(timers.rest_since(), None, "it closes anyway");
    }
}
