//! Waiting for conditions, with time limits that hold on busy machines.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

/// Factor allowed beyond the promised time.
const SLACK: u32 = 10;
/// Minimum time limit: a process may have to start, and another process may hold the core for seconds.
const MIN_LIMIT: Duration = Duration::from_secs(30);

/// Polls until the condition holds, and returns how long that took.
///
/// `promised` is the documented time. The limit is ten times that and at least half a minute, since a tighter one would
/// measure the machine.
pub fn wait_for(what: &str, promised: Duration, mut holds: impl FnMut() -> bool) -> Duration {
    let (begin, max) = (Instant::now(), MIN_LIMIT.max(promised * SLACK));
    while !holds() {
        assert!(begin.elapsed() < max, "not within {max:?} (promised: {promised:?}): {what}");
        thread::sleep(Duration::from_millis(10));
    }
    begin.elapsed()
}

/// A scripted response waits until the test opens this, where a fixed delay would depend on the machine's speed.
#[derive(Clone, Debug, Default)]
pub struct Latch(Arc<AtomicBool>);

impl Latch {
    /// Ends the wait of every response that has this latch.
    pub fn open(&self) {
        self.0.store(true, Ordering::SeqCst);
    }

    pub(crate) fn is_open(&self) -> bool {
        self.0.load(Ordering::SeqCst)
    }
}
