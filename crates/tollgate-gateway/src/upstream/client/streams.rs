//! The streams of one HTTP/2 connection: those in progress, and how many the upstream allows at once.

use std::{
    sync::atomic::{AtomicBool, AtomicUsize, Ordering},
    task::Waker,
};

use futures_util::task::AtomicWaker;

/// Streams of one connection. The task of the connection updates the limit.
#[derive(Debug)]
pub(crate) struct Streams {
    in_progress: AtomicUsize,
    limit: AtomicUsize,
    /// Whether the upstream has answered a request on this connection.
    is_answered: AtomicBool,
    task: AtomicWaker,
}

impl Streams {
    pub(crate) fn new(limit: usize) -> Self {
        let (in_progress, limit) = (AtomicUsize::new(0), AtomicUsize::new(limit));
        Self { in_progress, limit, is_answered: AtomicBool::new(false), task: AtomicWaker::new() }
    }

    pub(crate) fn in_progress(&self) -> usize {
        self.in_progress.load(Ordering::Relaxed)
    }

    /// Counts a new stream. Returns how many there were before.
    pub(crate) fn begin(&self) -> usize {
        self.in_progress.fetch_add(1, Ordering::Relaxed)
    }

    pub(crate) fn end(&self) {
        self.in_progress.fetch_sub(1, Ordering::Relaxed);
    }

    /// How many the upstream allows at once.
    pub(crate) fn limit(&self) -> usize {
        self.limit.load(Ordering::Relaxed)
    }

    /// Sets the limit, by the task with this waker.
    pub(crate) fn set_limit(&self, limit: usize, task: &Waker) {
        self.task.register(task);
        self.limit.store(limit, Ordering::Relaxed);
    }

    /// The upstream sent a response head. Its settings came before (RFC 9113, section 3.4), but hyper does not wake the task of a
    /// connection for them; so the first response does.
    pub(crate) fn answered(&self) {
        if !self.is_answered.swap(true, Ordering::Relaxed) {
            self.task.wake();
        }
    }
}
