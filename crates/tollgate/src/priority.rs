//! Priorities of threads below that of requests, as niceness.

/// Pages and the admin API: while all cores are busy, a thirtieth of the time that a thread of requests gets; otherwise all
/// idle time.
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
        // The id of the process is also the id of its first thread, whose priority is never lowered.
        let lowered = getpriority_process(Some(getpid())).and_then(|own| setpriority_process(None, (own + by).min(MAX_NICENESS)));
        if let Err(error) = lowered {
            tracing::warn!(%error, "a thread keeps its priority");
        }
    }
    #[cfg(not(target_os = "linux"))]
    let _ = by;
}
