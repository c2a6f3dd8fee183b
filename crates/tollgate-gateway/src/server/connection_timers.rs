//! What a connection is doing, as far as its timers need to know: between requests, in the middle of a head, or
//! answering. Written by the wire and by the answers, read by the loop that drives the connection.

use std::{
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    task::Waker,
};

use bytes::Bytes;
use tokio::time::Instant;

use super::head_scan::{Framing, HeadScan};
use crate::settings::HttpLimits;

/// The state of one connection.
#[derive(Debug)]
pub(super) struct ConnectionTimers {
    state: Mutex<State>,
    /// Set once, with [`State::parting`]; spares the wire a lock per read.
    parted: AtomicBool,
    /// Set while a task waits for a flush; spares the wire a lock per flush.
    flush_wanted: AtomicBool,
    flushes: AtomicU64,
}

#[derive(Debug)]
struct State {
    phase: Phase,
    /// When the phase began; while answering: when the last answer began.
    since: Instant,
    answering: usize,
    scan: HeadScan,
    /// Answers under way: since when their next piece could not be handed over.
    answers: Vec<Option<Waiting>>,
    /// Who waits until everything said so far has been given to the socket.
    flush_waiters: Vec<Waker>,
    parting: Bytes,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Quiet,
    Head,
}

/// An answer under way. `None`: it waits for the upstream, not for the caller.
#[derive(Clone, Copy, Debug)]
struct Waiting(Option<Instant>);

/// What the driving loop is to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Alarm {
    /// Nothing before this moment.
    Wait(Instant),
    /// A head did not come in time (E65).
    HeadTooSlow,
    /// Nothing came for too long: close politely.
    Idle,
    /// The caller does not take an answer: close at once.
    Stalled,
}

impl ConnectionTimers {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            state: Mutex::new(State {
                phase: Phase::Quiet,
                since: now,
                answering: 0,
                scan: HeadScan::default(),
                answers: Vec::new(),
                flush_waiters: Vec::new(),
                parting: Bytes::new(),
            }),
            parted: AtomicBool::new(false),
            flush_wanted: AtomicBool::new(false),
            flushes: AtomicU64::new(0),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Bytes came. Between answers they belong to a head.
    pub(super) fn read(&self, bytes: &[u8], now: impl FnOnce() -> Instant) {
        let mut state = self.state();
        if state.answering > 0 {
            return;
        }
        if state.phase == Phase::Quiet {
            state.phase = Phase::Head;
            state.since = now();
            state.scan = HeadScan::default();
        }
        state.scan.push(bytes);
    }

    /// A head is complete. Gives what its raw bytes said about its framing.
    pub(super) fn begin(&self, now: Instant) -> Framing {
        let mut state = self.state();
        state.phase = Phase::Quiet;
        state.since = now;
        state.answering += 1;
        std::mem::take(&mut state.scan).framing()
    }

    /// A request is over.
    pub(super) fn end(&self, now: Instant) {
        let mut state = self.state();
        state.answering = state.answering.saturating_sub(1);
        state.since = now;
    }

    /// An answer's head is ready to be sent. Gives the slot of its body.
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

    /// A piece of an answer was handed over (and the next is awaited by the caller), or there is none yet.
    pub(super) fn handed_over(&self, slot: usize, at: Option<Instant>) {
        if let Some(answer) = self.state().answers.get_mut(slot) {
            *answer = Some(Waiting(at));
        }
    }

    /// An answer's body is over.
    pub(super) fn answered(&self, slot: usize) {
        if let Some(answer) = self.state().answers.get_mut(slot) {
            *answer = None;
        }
    }

    /// What is due now.
    pub(super) fn alarm(&self, now: Instant, limits: &HttpLimits) -> Alarm {
        let state = self.state();
        let (due, alarm) = if state.answering > 0 {
            let oldest = state.answers.iter().filter_map(|answer| answer.as_ref()?.0).min();
            // Without an answer that waits, the next look is one idle time away.
            (oldest.unwrap_or(now) + limits.idle_timeout, Alarm::Stalled)
        } else {
            match state.phase {
                Phase::Quiet => (state.since + limits.idle_timeout, Alarm::Idle),
                Phase::Head => (state.since + limits.header_timeout, Alarm::HeadTooSlow),
            }
        };
        if now < due { Alarm::Wait(due) } else { alarm }
    }

    /// How often everything said so far had been given to the socket.
    pub(super) fn flushes(&self) -> u64 {
        self.flushes.load(Ordering::Acquire)
    }

    /// Wakes a task at the next flush.
    pub(super) fn wake_at_flush(&self, waker: &Waker) {
        self.state().flush_waiters.push(waker.clone());
        self.flush_wanted.store(true, Ordering::Release);
    }

    /// Everything said so far has been given to the socket.
    pub(super) fn flushed(&self) {
        self.flushes.fetch_add(1, Ordering::AcqRel);
        if self.flush_wanted.swap(false, Ordering::AcqRel) {
            let waiters = std::mem::take(&mut self.state().flush_waiters);
            waiters.into_iter().for_each(Waker::wake);
        }
    }

    /// The last words to a caller whose head did not come in time; the wire says them and hangs up.
    pub(super) fn part(&self, words: Bytes) {
        self.state().parting = words;
        self.parted.store(true, Ordering::Release);
    }

    /// The last words, once they are decided.
    pub(super) fn parting(&self) -> Option<Bytes> {
        self.parted.load(Ordering::Acquire).then(|| std::mem::take(&mut self.state().parting))
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
    async fn each_phase_has_its_limit() {
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
    async fn one_stalled_reader_is_detected_among_others() {
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
}
