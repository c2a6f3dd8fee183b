//! The lines of requests in the log: their selection, and writing them without delaying a request.
//!
//! A line is encoded into a buffer of its core. A thread takes the contents of the buffers and writes them in large pieces, at most 50 ms
//! later. When the log is slower than the requests, lines are left out and counted.
//!
//! Bound: 1 MiB a buffer, and as much again while it is written.

mod line;
mod thread;

use std::{
    cell::Cell,
    fmt,
    io::{self, Write},
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU8, AtomicU64, AtomicUsize, Ordering},
    },
};

use tollgate_core::{Outcome, Timestamp, UsageRecord};

pub(crate) use self::line::RefusedRequest;
use self::line::{record_line, refusal_line};
pub use self::{line::LineFormat, thread::LogThread};

/// Bytes of lines that wait in one buffer.
pub(crate) const BUFFER_BYTES: usize = 1 << 20;

/// The requests that leave a line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LoggedRequests {
    None,
    /// Refused requests, those with a failed attempt or a broken answer, and slow ones.
    #[default]
    Problems,
    All,
}

const NONE: u8 = LoggedRequests::None as u8;
const PROBLEMS: u8 = LoggedRequests::Problems as u8;
const ALL: u8 = LoggedRequests::All as u8;

/// The requests that leave a line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogSelection {
    pub requests: LoggedRequests,
    /// Time to the first content from which a request counts as slow, in microseconds; 0: no request does.
    pub slow_us: u64,
}

/// Selection and format of request log lines.
#[derive(Clone, Copy, Debug)]
pub struct RequestLogOptions {
    pub selection: LogSelection,
    pub format: LineFormat,
    /// Number of buffers: the cores.
    pub buffers: usize,
}

/// The buffers of lines.
pub struct RequestLog {
    /// A [`LoggedRequests`], and the time of a slow request.
    requests: AtomicU8,
    slow_us: AtomicU64,
    format: LineFormat,
    buffers: Arc<Buffers>,
}

struct Buffers {
    lines: Vec<Mutex<Vec<u8>>>,
    signal: Mutex<Signal>,
    changed: Condvar,
}

/// Events for which the thread waits.
#[derive(Debug, Default)]
struct Signal {
    /// A buffer holds lines.
    lines: bool,
    /// A buffer is half full.
    is_urgent: bool,
    stop: bool,
}

/// Whether a line was accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Logged {
    /// The line will be written, or the level of the log excludes it.
    Yes,
    /// The buffer is full.
    Dropped,
}

impl RequestLog {
    /// A log without lines of requests.
    #[must_use]
    pub fn off() -> Self {
        let selection = LogSelection { requests: LoggedRequests::None, slow_us: 0 };
        Self::new(RequestLogOptions { selection, format: LineFormat::Json, buffers: 0 }, Arc::new(Buffers::new(0)))
    }

    fn new(options: RequestLogOptions, buffers: Arc<Buffers>) -> Self {
        let log = Self { requests: AtomicU8::default(), slow_us: AtomicU64::default(), format: options.format, buffers };
        log.select(options.selection);
        log
    }

    /// Selects other requests from now on.
    pub(crate) fn select(&self, selection: LogSelection) {
        self.requests.store(selection.requests as u8, Ordering::Relaxed);
        self.slow_us.store(selection.slow_us, Ordering::Relaxed);
    }

    /// Starts the thread that writes lines to `sink`.
    ///
    /// # Errors
    /// When the thread cannot be started.
    pub fn start(options: RequestLogOptions, sink: impl Write + Send + 'static) -> io::Result<(Self, LogThread)> {
        let buffers = Arc::new(Buffers::new(options.buffers.max(1)));
        let thread = LogThread::start(Arc::clone(&buffers), sink)?;
        Ok((Self::new(options, buffers), thread))
    }

    /// Logs a request that has ended.
    pub(crate) fn ended(&self, record: &UsageRecord, now: impl FnOnce() -> Timestamp) -> Logged {
        let is_wanted = match self.requests.load(Ordering::Relaxed) {
            ALL => true,
            PROBLEMS => is_problem(record, self.slow_us.load(Ordering::Relaxed)),
            _ => false,
        };
        if is_wanted { self.buffers.append(|out| record_line(out, self.format, record, now())) } else { Logged::Yes }
    }

    /// Logs a refusal that leaves no usage record.
    pub(crate) fn refused(&self, refused: &RefusedRequest<'_>, now: Timestamp) -> Logged {
        if self.requests.load(Ordering::Relaxed) == NONE {
            return Logged::Yes;
        }
        self.buffers.append(|out| refusal_line(out, self.format, refused, now))
    }
}

impl fmt::Debug for RequestLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RequestLog").field("requests", &self.requests).field("format", &self.format).finish_non_exhaustive()
    }
}

/// True for a request that is logged among problems. A caller that leaves is not a problem.
fn is_problem(record: &UsageRecord, slow_us: u64) -> bool {
    let ended_badly = match record.outcome {
        Outcome::Completed => record.reason.is_some(),
        Outcome::CallerLeft => false,
        Outcome::UpstreamBroke | Outcome::Refused | Outcome::GatewayStopped => true,
    };
    let waited_us = record.ttft_us.unwrap_or(record.duration_us);
    ended_badly || (slow_us > 0 && waited_us >= slow_us) || record.attempts.iter().any(|attempt| attempt.error.is_some())
}

thread_local! {
    /// The buffer of this thread.
    static BUFFER: Cell<Option<usize>> = const { Cell::new(None) };
}

/// Gives each thread a buffer in turn.
static NEXT_BUFFER: AtomicUsize = AtomicUsize::new(0);

impl Buffers {
    fn new(count: usize) -> Self {
        let lines = (0..count).map(|_| Mutex::default()).collect();
        Self { lines, signal: Mutex::default(), changed: Condvar::new() }
    }

    /// Appends what `encode` writes to this thread's buffer, if it has space left.
    fn append(&self, encode: impl FnOnce(&mut Vec<u8>)) -> Logged {
        let number = BUFFER.get().unwrap_or_else(|| {
            let number = NEXT_BUFFER.fetch_add(1, Ordering::Relaxed);
            BUFFER.set(Some(number));
            number
        });
        let Some(buffer) = number.checked_rem(self.lines.len()).and_then(|at| self.lines.get(at)) else { return Logged::Yes };
        let mut lines = lock(buffer);
        let before = lines.len();
        encode(&mut lines);
        let after = lines.len();
        if after > BUFFER_BYTES {
            lines.truncate(before);
            return Logged::Dropped;
        }
        drop(lines);
        let is_half_full = before < BUFFER_BYTES / 2 && after >= BUFFER_BYTES / 2;
        if before == 0 || is_half_full {
            let mut signal = lock(&self.signal);
            signal.lines = true;
            signal.is_urgent |= is_half_full;
            drop(signal);
            self.changed.notify_one();
        }
        Logged::Yes
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
