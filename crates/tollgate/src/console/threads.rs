//! The threads of the console. Their priority is low, so that pages do not slow requests down while all cores are busy.

use std::io;

use tokio::runtime::{Builder, Runtime};
use tollgate_store::use_low_priority_connections;

use crate::priority;

/// Starts the runtime of the console, including the threads for blocking work.
pub(super) fn start() -> io::Result<Runtime> {
    let begin = || {
        priority::lower(priority::CONSOLE);
        use_low_priority_connections();
    };
    Builder::new_multi_thread().worker_threads(2).thread_name("console").on_thread_start(begin).enable_all().build()
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn all_console_threads_have_the_lowered_priority() {
        let runtime = start().unwrap();
        let niceness = || rustix::process::getpriority_process(None).unwrap();
        let own = niceness();
        let worker = runtime.block_on(runtime.spawn(async move { niceness() })).unwrap();
        let blocking = runtime.block_on(runtime.spawn_blocking(niceness)).unwrap();
        let lowered = (own + priority::CONSOLE).min(19);
        assert_eq!((worker, blocking), (lowered, lowered));
        assert_eq!(niceness(), own);
    }
}
