//! Priorities of threads below that of requests, as niceness. A thread inherits that of the one that starts it.

/// Pages and the admin API: a tenth of the time of a thread of requests while all cores are busy, and all that is left.
pub(crate) const CONSOLE: i32 = 10;
/// Jobs: a third of the time of the console.
pub(crate) const JOBS: i32 = 15;

/// Gives the calling thread a priority. Elsewhere than on Linux it would be that of the whole process, and stays as it is.
pub(crate) fn set(niceness: i32) {
    #[cfg(target_os = "linux")]
    if let Err(error) = rustix::process::setpriority_process(None, niceness) {
        tracing::warn!(%error, "a thread keeps its priority");
    }
    #[cfg(not(target_os = "linux"))]
    let _ = niceness;
}
