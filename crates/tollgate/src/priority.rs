//! The share of a busy processor that the work of operators gets beside requests.

/// The niceness of threads that serve pages, the admin API and jobs. By the kernel's weights each gets a thirtieth of what a thread that
/// serves requests gets while both want the same core.
#[cfg(target_os = "linux")]
const NICENESS: i32 = 15;

/// Lets this thread yield to those that serve requests. Threads that it starts inherit that, such as those of its connections and
/// runtimes. On other systems than Linux it would hold for the whole process, which stays as it is.
pub(crate) fn yield_to_requests() {
    // Allowed for everybody, as it only lowers the priority.
    #[cfg(target_os = "linux")]
    let _ = rustix::process::setpriority_process(None, NICENESS);
}
