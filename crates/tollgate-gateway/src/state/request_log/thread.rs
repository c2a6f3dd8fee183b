//! The thread that writes the lines of requests.

use std::{
    fmt,
    io::{self, Write},
    mem,
    sync::{Arc, PoisonError},
    thread::{Builder, JoinHandle},
    time::Duration,
};

use super::{Buffers, lock};

/// How long lines are collected before they are written.
const COLLECT: Duration = Duration::from_millis(50);
/// Capacity that a buffer keeps after a burst.
const KEPT_BYTES: usize = 64 * 1024;

/// Ends the thread when it is dropped, once everything logged until then is written.
pub struct LogThread {
    buffers: Arc<Buffers>,
    handle: Option<JoinHandle<()>>,
}

impl LogThread {
    pub(super) fn start(buffers: Arc<Buffers>, mut sink: impl Write + Send + 'static) -> io::Result<Self> {
        let shared = Arc::clone(&buffers);
        let run = move || while shared.write_next(&mut sink) {};
        let handle = Builder::new().name("request-log".to_owned()).spawn(run)?;
        Ok(Self { buffers, handle: Some(handle) })
    }
}

impl fmt::Debug for LogThread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LogThread").finish_non_exhaustive()
    }
}

impl Drop for LogThread {
    fn drop(&mut self) {
        lock(&self.buffers.signal).stop = true;
        self.buffers.changed.notify_one();
        if let Some(handle) = self.handle.take() {
            // It panics only if the sink does, and then nothing more can be written.
            let _ = handle.join();
        }
    }
}

impl Buffers {
    /// Waits for lines and writes them. Returns false when the thread is to end.
    fn write_next(&self, sink: &mut impl Write) -> bool {
        let goes_on = self.wait();
        let mut lines = Vec::new();
        for buffer in &self.lines {
            // Only the exchange of the buffers happens under the lock.
            mem::swap(&mut lines, &mut *lock(buffer));
            // A log that cannot be written cannot report that.
            let _ = sink.write_all(&lines);
            lines.clear();
            lines.shrink_to(KEPT_BYTES);
        }
        goes_on
    }

    fn wait(&self) -> bool {
        let waiting = self.changed.wait_while(lock(&self.signal), |signal| !signal.lines && !signal.stop);
        let signal = waiting.unwrap_or_else(PoisonError::into_inner);
        let collected = self.changed.wait_timeout_while(signal, COLLECT, |signal| !signal.is_urgent && !signal.stop);
        let mut signal = collected.unwrap_or_else(PoisonError::into_inner).0;
        signal.lines = false;
        signal.is_urgent = false;
        !signal.stop
    }
}
