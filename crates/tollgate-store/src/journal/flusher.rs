//! The threads that flush written entries to disk. Writers mark segments as dirty and continue; with group commit the end
//! of an answer waits for the flush that covers it. Group commit uses two threads, so that an entry written during a flush
//! does not wait for two flushes in a row.

use std::{
    collections::VecDeque,
    fs::File,
    io,
    path::{Path, PathBuf},
    sync::{
        Arc, Condvar, Mutex, MutexGuard,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread::{Builder, JoinHandle},
    time::Duration,
};

use tokio::sync::watch;

use super::segment::sync_folder;

/// Longest time between a write and its flush in background mode.
const INTERVAL: Duration = Duration::from_millis(5);
const LOCK: &str = "no code panics while holding this lock";

/// When entries are flushed to disk. In both modes they survive the end of the process; flushing protects against
/// power loss.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum JournalSync {
    /// Every 5 ms in the background.
    #[default]
    Background,
    /// Group commit: the end of an answer waits for the flush that covers it.
    Group,
}

/// The file of a segment, shared by its writer and the flushers.
#[derive(Debug)]
pub(super) struct SegmentFile {
    pub(super) file: File,
    pub(super) path: PathBuf,
    dirty: AtomicBool,
    /// True if the segment's entry in its folder is on disk.
    folder_synced: AtomicBool,
    /// Waiters issued so far; each waits until `flushed` reaches its number.
    waiters: AtomicU64,
    flushed: watch::Sender<u64>,
}

impl SegmentFile {
    pub(super) fn new(file: File, path: PathBuf) -> Self {
        Self {
            file,
            path,
            dirty: AtomicBool::new(false),
            folder_synced: AtomicBool::new(false),
            waiters: AtomicU64::new(0),
            flushed: watch::Sender::new(0),
        }
    }

    /// A waiter for everything written so far. Create it before marking the segment as dirty.
    pub(super) fn waiter(&self) -> SyncWaiter {
        let number = self.waiters.fetch_add(1, Ordering::AcqRel) + 1;
        SyncWaiter(Some((self.flushed.subscribe(), number)))
    }
}

/// When a written entry has to be flushed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FlushPriority {
    /// Within [`INTERVAL`].
    Background,
    /// Immediately, because an answer waits for it.
    Urgent,
}

#[derive(Debug)]
pub(super) struct FlushQueue {
    state: Mutex<FlushState>,
    wake: Condvar,
    failures: AtomicU64,
    dir: PathBuf,
    threads: usize,
}

#[derive(Debug, Default)]
struct FlushState {
    /// Dirty segments, each once.
    dirty: VecDeque<Arc<SegmentFile>>,
    urgent: bool,
    stop: bool,
    /// Number of threads that wait until something is dirty. A writer wakes a thread only if one waits: under load the thread is in
    /// its interval, and waking a thread takes a core longer than writing an entry.
    idle: usize,
}

impl FlushQueue {
    pub(super) fn new(dir: PathBuf, sync: JournalSync) -> Self {
        let threads = match sync {
            JournalSync::Background => 1,
            JournalSync::Group => 2,
        };
        Self { state: Mutex::default(), wake: Condvar::new(), failures: AtomicU64::new(0), dir, threads }
    }

    fn state(&self) -> MutexGuard<'_, FlushState> {
        self.state.lock().expect(LOCK)
    }

    pub(super) fn mark_dirty(&self, file: &Arc<SegmentFile>, priority: FlushPriority) {
        let was_dirty = file.dirty.swap(true, Ordering::AcqRel);
        if was_dirty && priority == FlushPriority::Background {
            return;
        }
        let mut state = self.state();
        if !was_dirty {
            state.dirty.push_back(Arc::clone(file));
        }
        let is_urgent = priority == FlushPriority::Urgent;
        let wakes = state.idle > 0 || (is_urgent && (!was_dirty || !state.urgent));
        state.urgent |= is_urgent;
        drop(state);
        if wakes {
            self.wake.notify_one();
        }
    }

    pub(super) fn failures(&self) -> u64 {
        self.failures.load(Ordering::Relaxed)
    }

    pub(super) fn start(queue: &Arc<Self>) -> io::Result<Vec<JoinHandle<()>>> {
        let start = |_| {
            let queue = Arc::clone(queue);
            Builder::new().name("journal-sync".to_owned()).spawn(move || while queue.cycle() {})
        };
        (0..queue.threads).map(start).collect()
    }

    pub(super) fn stop(&self) {
        self.state().stop = true;
        self.wake.notify_all();
    }

    /// Waits for dirty segments and flushes them once; false after the last flush.
    fn cycle(&self) -> bool {
        let mut state = self.wait_interval(self.state());
        if state.dirty.is_empty() && !state.stop {
            state.idle += 1;
            state = self.wake.wait_while(state, |state| state.dirty.is_empty() && !state.stop).expect(LOCK);
            state.idle -= 1;
            state = self.wait_interval(state);
        }
        // With several threads each takes one urgent segment, so that they are flushed in parallel.
        let limit = if self.threads > 1 && state.urgent { 1 } else { usize::MAX };
        let count = state.dirty.len().min(limit);
        let files: Vec<Arc<SegmentFile>> = state.dirty.drain(..count).collect();
        if state.dirty.is_empty() {
            state.urgent = false;
        } else {
            self.wake.notify_one();
        }
        let done = state.stop && state.dirty.is_empty();
        drop(state);
        for file in &files {
            self.flush(file);
        }
        !done
    }

    /// Waits [`INTERVAL`], or until an answer waits for a flush.
    fn wait_interval<'a>(&self, state: MutexGuard<'a, FlushState>) -> MutexGuard<'a, FlushState> {
        self.wake.wait_timeout_while(state, INTERVAL, |state| !state.urgent && !state.stop).expect(LOCK).0
    }

    fn flush(&self, file: &SegmentFile) {
        // Later writes mark the segment again. Every waiter issued before this point has its entry written.
        file.dirty.swap(false, Ordering::AcqRel);
        let covered = file.waiters.load(Ordering::Acquire);
        if !file.folder_synced.load(Ordering::Acquire) {
            match sync_folder(&self.dir) {
                Ok(()) => file.folder_synced.store(true, Ordering::Release),
                Err(error) => self.report_failure(&self.dir, &error),
            }
        }
        if let Err(error) = file.file.sync_data() {
            self.report_failure(&file.path, &error);
        }
        // Another thread may have completed a later flush first, so never lower the number.
        file.flushed.send_if_modified(|flushed| {
            let advanced = covered > *flushed;
            *flushed = covered.max(*flushed);
            advanced
        });
    }

    fn report_failure(&self, path: &Path, error: &io::Error) {
        self.failures.fetch_add(1, Ordering::Relaxed);
        tracing::error!(path = %path.display(), %error, "journal entries could not be flushed to disk");
    }
}

/// Waits for the flush that covers an entry; ready at once in background mode.
#[derive(Debug)]
#[must_use = "with group commit the end of an answer waits for its flush"]
pub struct SyncWaiter(Option<(watch::Receiver<u64>, u64)>);

impl SyncWaiter {
    pub(super) const fn ready() -> Self {
        Self(None)
    }

    /// Completes when the entry is on disk, or when the journal is closed.
    pub async fn wait(self) {
        if let Some((mut flushed, number)) = self.0 {
            // An error means that the journal was dropped after its last flush.
            let _ = flushed.wait_for(|done| *done >= number).await;
        }
    }
}
