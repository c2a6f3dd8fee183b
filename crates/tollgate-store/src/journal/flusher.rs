//! The thread that makes written entries survive a power cut. Writers mark segments dirty and go on; in group mode
//! the end of an answer waits for the flush that covers it.

use std::{
    fs::File,
    path::PathBuf,
    sync::{
        Arc, Condvar, Mutex, MutexGuard,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread::{Builder, JoinHandle},
    time::Duration,
};

use tokio::sync::watch;

use super::segment::sync_folder;

/// How long written entries may wait for their flush.
const INTERVAL: Duration = Duration::from_millis(5);

/// A segment's file, shared between its writer and the flusher.
#[derive(Debug)]
pub(super) struct SegmentFile {
    pub(super) file: File,
    pub(super) path: PathBuf,
    dirty: AtomicBool,
}

impl SegmentFile {
    pub(super) const fn new(file: File, path: PathBuf) -> Self {
        Self { file, path, dirty: AtomicBool::new(false) }
    }
}

/// How soon a written entry has to be flushed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Urgency {
    /// Within the interval.
    Soon,
    /// Somebody waits for it.
    Now,
}

/// The writers' side of the flusher.
#[derive(Debug)]
pub(super) struct FlushQueue {
    state: Mutex<FlushState>,
    wake: Condvar,
    /// Ends written so far; a ticket waits until that many are flushed.
    written: AtomicU64,
    flushed: watch::Sender<u64>,
    failures: AtomicU64,
    dir: PathBuf,
}

#[derive(Debug, Default)]
struct FlushState {
    files: Vec<Arc<SegmentFile>>,
    new_files: bool,
    work: bool,
    urgent: bool,
    stop: bool,
}

impl FlushQueue {
    pub(super) fn new(dir: PathBuf) -> Self {
        Self {
            state: Mutex::default(),
            wake: Condvar::new(),
            written: AtomicU64::new(0),
            flushed: watch::Sender::new(0),
            failures: AtomicU64::new(0),
            dir,
        }
    }

    fn state(&self) -> MutexGuard<'_, FlushState> {
        self.state.lock().expect("nothing panics while it holds this lock")
    }

    /// A new segment takes part. It is let go once nobody writes it and it is clean.
    pub(super) fn add(&self, file: Arc<SegmentFile>) {
        let mut state = self.state();
        state.files.push(file);
        state.new_files = true;
        state.work = true;
        self.wake.notify_one();
    }

    /// Something was written to a segment.
    pub(super) fn wrote(&self, file: &SegmentFile, urgency: Urgency) {
        let was_dirty = file.dirty.swap(true, Ordering::AcqRel);
        if was_dirty && urgency == Urgency::Soon {
            return;
        }
        let mut state = self.state();
        state.work = true;
        state.urgent |= urgency == Urgency::Now;
        self.wake.notify_one();
    }

    /// A ticket for everything written until now.
    pub(super) fn ticket(&self) -> SyncTicket {
        let number = self.written.fetch_add(1, Ordering::AcqRel) + 1;
        SyncTicket(Some((self.flushed.subscribe(), number)))
    }

    /// How many flushes failed.
    pub(super) fn failures(&self) -> u64 {
        self.failures.load(Ordering::Relaxed)
    }

    /// Starts the thread.
    pub(super) fn start(queue: Arc<Self>) -> std::io::Result<JoinHandle<()>> {
        Builder::new().name("journal-sync".to_owned()).spawn(move || while queue.cycle() {})
    }

    /// Ends the thread after a last flush.
    pub(super) fn stop(&self) {
        self.state().stop = true;
        self.wake.notify_one();
    }

    /// Waits for work and flushes once; `false` when it was the last time.
    fn cycle(&self) -> bool {
        let mut state = self.state();
        while !state.work && !state.stop {
            state = self.wake.wait(state).expect("nothing panics while it holds this lock");
        }
        if !state.urgent && !state.stop {
            let waited = self.wake.wait_timeout_while(state, INTERVAL, |state| !state.urgent && !state.stop);
            state = waited.expect("nothing panics while it holds this lock").0;
        }
        let stop = state.stop;
        state.work = false;
        state.urgent = false;
        let new_files = std::mem::take(&mut state.new_files);
        // Whoever has a number up to this one has written and marked its segment dirty already.
        let covered = self.written.load(Ordering::Acquire);
        let files = state.files.clone();
        drop(state);

        if new_files && let Err(error) = sync_folder(&self.dir) {
            self.failed(&self.dir, &error);
        }
        for file in &files {
            if file.dirty.swap(false, Ordering::AcqRel)
                && let Err(error) = file.file.sync_data()
            {
                self.failed(&file.path, &error);
            }
        }
        drop(files);
        // One reference left: the list's own. Its writer is gone, so it cannot become dirty again.
        self.state().files.retain(|file| Arc::strong_count(file) > 1 || file.dirty.load(Ordering::Acquire));
        self.flushed.send_replace(covered);
        !stop
    }

    fn failed(&self, path: &std::path::Path, error: &std::io::Error) {
        self.failures.fetch_add(1, Ordering::Relaxed);
        tracing::error!(path = %path.display(), %error, "journal entries could not be flushed to disk");
    }
}

/// Waits for the flush that covers an entry. Ready at once in background mode.
#[derive(Debug)]
#[must_use = "in group mode the end of an answer waits for its flush"]
pub struct SyncTicket(Option<(watch::Receiver<u64>, u64)>);

impl SyncTicket {
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
