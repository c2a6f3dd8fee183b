//! A wall clock that tests can set: the file named by `GATEWAY_TEST_CLOCK` holds a shift in seconds. Builds with debug assertions
//! only.

use std::{path::Path, time::Duration};

use tokio_util::sync::CancellationToken;
use tollgate_gateway::clock::SystemClock;

use crate::config;

const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Reads the shift once, for all commands.
pub(crate) fn start() {
    if let Some(file) = config::variable("GATEWAY_TEST_CLOCK") {
        read(Path::new(&file));
    }
}

/// Follows the file until `stop` is cancelled.
pub(crate) async fn follow(stop: CancellationToken) {
    let Some(file) = config::variable("GATEWAY_TEST_CLOCK") else { return };
    while !stop.is_cancelled() {
        read(Path::new(&file));
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

fn read(file: &Path) {
    let text = std::fs::read_to_string(file).unwrap_or_default();
    if let Ok(seconds) = text.trim().parse::<i64>() {
        SystemClock::shift(seconds.saturating_mul(1_000_000));
    }
}
