//! Waiting for what must come, on machines that do other work beside the tests.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

/// What a busy machine is allowed beyond a promise.
const SLACK: u32 = 10;
/// What everything is allowed: a process may have to start, and a core may be taken for seconds.
const LEAST: Duration = Duration::from_secs(30);

/// Asks again until it is so, and says how long that took.
///
/// `promised` is the product's figure. A test that failed as soon as it is missed would measure the machine; one that takes
/// ten times as long, and more than half a minute, is a defect anywhere.
///
/// # Panics
/// When it does not come to be so.
pub fn wait_for(what: &str, promised: Duration, mut is_so: impl FnMut() -> bool) -> Duration {
    let (begin, most) = (Instant::now(), LEAST.max(promised * SLACK));
    while !is_so() {
        assert!(begin.elapsed() < most, "not within {most:?} (promised: {promised:?}): {what}");
        thread::sleep(Duration::from_millis(10));
    }
    begin.elapsed()
}

/// A door that a test opens: what a scripted answer waits for, where a pause would be a bet on the machine's speed.
#[derive(Clone, Debug, Default)]
pub struct Latch(Arc<AtomicBool>);

impl Latch {
    /// Lets everything pass from now on.
    pub fn open(&self) {
        self.0.store(true, Ordering::SeqCst);
    }

    pub(crate) fn is_open(&self) -> bool {
        self.0.load(Ordering::SeqCst)
    }
}
