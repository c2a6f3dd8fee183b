//! Priorities of threads below that of requests, as niceness.

/// Pages and the admin API: a thirtieth of the time of a thread of requests while all cores are busy, and all that is left.
pub(crate) const CONSOLE: i32 = 15;
/// Jobs: less than half of the time of the console.
pub(crate) const JOBS: i32 = 19;

/// Lowers the priority of the calling thread, and of the threads that it starts, by this much below that of the process. Does
/// nothing on systems other than Linux, because there it would change the priority of the whole process.
pub(crate) fn lower(by: i32) {
    #[cfg(target_os = "linux")]
    {
        use rustix::process::{getpid, getpriority_process, setpriority_process};

        /// The lowest priority.
        const MAX_NICENESS: i32 = 19;
        // The number of the process is also that of its first thread, whose priority is never lowered.
        let lowered = getpriority_process(Some(getpid())).and_then(|own| setpriority_process(None, (own + by).min(MAX_NICENESS)));
        if let Err(error) = lowered {
            tracing::warn!(%error, "a thread keeps its priority");
        }
    }
    #[cfg(not(target_os = "linux"))]
    let _ = by;
}
