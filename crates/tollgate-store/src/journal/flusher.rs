//! The threads that make written entries survive a power cut. Writers mark segments and go on; in group mode the end
//! of an answer waits for the flush that covers it. There are two threads then, so that an end which comes while a flush
//! is under way, or while another core's segment is flushed, does not wait for two.

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

use super::{JournalSync, segment::sync_folder};

/// How long written entries may wait for their flush when nobody waits for it.
const INTERVAL: Duration = Duration::from_millis(5);

/// A segment's file, shared between its writer and the flushers.
#[derive(Debug)]
pub(super) struct SegmentFile {
    pub(super) file: File,
    pub(super) path: PathBuf,
    /// Whether a flusher is going to look at it.
    marked: AtomicBool,
    /// Whether its name in the folder is on disk.
    named: AtomicBool,
    /// Ends written so far; a ticket waits until that many are flushed.
    written: AtomicU64,
    flushed: watch::Sender<u64>,
}

impl SegmentFile {
    pub(super) fn new(file: File, path: PathBuf) -> Self {
        let (marked, named) = (AtomicBool::new(false), AtomicBool::new(false));
        Self { file, path, marked, named, written: AtomicU64::new(0), flushed: watch::Sender::new(0) }
    }

    /// A ticket for everything written until now; to be drawn before the segment is marked.
    pub(super) fn ticket(&self) -> SyncWaiter {
        let number = self.written.fetch_add(1, Ordering::AcqRel) + 1;
        SyncWaiter(Some((self.flushed.subscribe(), number)))
    }
}

/// How soon a written entry has to be flushed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FlushPriority {
    /// Within the interval.
    Soon,
    /// Somebody waits for it.
    Now,
}

/// The writers' side of the flushers.
#[derive(Debug)]
pub(super) struct FlushQueue {
    state: Mutex<FlushState>,
    wake: Condvar,
    failures: AtomicU64,
    dir: PathBuf,
    /// How many threads there are.
    threads: usize,
}

#[derive(Debug, Default)]
struct FlushState {
    /// Segments that are marked, each once.
    marked: VecDeque<Arc<SegmentFile>>,
    urgent: bool,
    stop: bool,
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
        self.state.lock().expect("nothing panics while it holds this lock")
    }

    /// Something was written to a segment.
    pub(super) fn wrote(&self, file: &Arc<SegmentFile>, urgency: FlushPriority) {
        let was_marked = file.marked.swap(true, Ordering::AcqRel);
        if was_marked && urgency == FlushPriority::Soon {
            return;
        }
        let mut state = self.state();
        if !was_marked {
            state.marked.push_back(Arc::clone(file));
        }
        let was_urgent = state.urgent;
        state.urgent |= urgency == FlushPriority::Now;
        drop(state);
        if !was_marked || !was_urgent {
            self.wake.notify_one();
        }
    }

    /// How many flushes failed.
    pub(super) fn failures(&self) -> u64 {
        self.failures.load(Ordering::Relaxed)
    }

    /// Starts the threads.
    pub(super) fn start(queue: &Arc<Self>) -> io::Result<Vec<JoinHandle<()>>> {
        let one = |_| {
            let queue = Arc::clone(queue);
            Builder::new().name("journal-sync".to_owned()).spawn(move || while queue.cycle() {})
        };
        (0..queue.threads).map(one).collect()
    }

    /// Ends the threads after a last flush.
    pub(super) fn stop(&self) {
        self.state().stop = true;
        self.wake.notify_all();
    }

    /// Waits for work and flushes once; `false` when there will be no more.
    fn cycle(&self) -> bool {
        let mut state = self.state();
        while state.marked.is_empty() && !state.stop {
            state = self.wake.wait(state).expect("nothing panics while it holds this lock");
        }
        if !state.urgent && !state.stop {
            let waited = self.wake.wait_timeout_while(state, INTERVAL, |state| !state.urgent && !state.stop);
            state = waited.expect("nothing panics while it holds this lock").0;
        }
        // What others can flush meanwhile is left to them.
        let most = if self.threads > 1 && state.urgent { 1 } else { usize::MAX };
        let count = state.marked.len().min(most);
        let files: Vec<Arc<SegmentFile>> = state.marked.drain(..count).collect();
        if state.marked.is_empty() {
            state.urgent = false;
        } else {
            self.wake.notify_one();
        }
        let done = state.stop && state.marked.is_empty();
        drop(state);
        for file in &files {
            self.flush(file);
        }
        !done
    }

    fn flush(&self, file: &SegmentFile) {
        // Whatever is written from here on marks it again. Who drew a number before has written already.
        file.marked.swap(false, Ordering::AcqRel);
        let covered = file.written.load(Ordering::Acquire);
        if !file.named.load(Ordering::Acquire) {
            match sync_folder(&self.dir) {
                Ok(()) => file.named.store(true, Ordering::Release),
                Err(error) => self.failed(&self.dir, &error),
            }
        }
        if let Err(error) = file.file.sync_data() {
            self.failed(&file.path, &error);
        }
        // A flush that began later may have ended earlier; it covered what this one does.
        file.flushed.send_if_modified(|flushed| {
            let more = covered > *flushed;
            *flushed = covered.max(*flushed);
            more
        });
    }

    fn failed(&self, path: &Path, error: &io::Error) {
        self.failures.fetch_add(1, Ordering::Relaxed);
        tracing::error!(path = %path.display(), %error, "journal entries could not be flushed to disk");
    }
}

/// Waits for the flush that covers an entry. Ready at once in background mode.
#[derive(Debug)]
#[must_use = "in group mode the end of an answer waits for its flush"]
pub struct SyncWaiter(Option<(watch::Receiver<u64>, u64)>);

impl SyncWaiter {
    /// A ticket for which nothing is waited.
    pub(super) const fn ready() -> Self {
        Self(None)
    }

    /// Ends when the entry is on disk, or when the journal is closed.
    pub async fn wait(self) {
        if let Some((mut flushed, number)) = self.0 {
            // An error means that the journal was dropped, after its last flush.
            let _ = flushed.wait_for(|done| *done >= number).await;
        }
    }
}
