//! Limits of this process, as opposed to failures of an upstream or of the database.

use std::fs::File;

/// The process or the machine has reached its limit of open files.
const ENFILE: i32 = 23;
const EMFILE: i32 = 24;

/// Whether this process has run out of file descriptors. Called after a failure, to distinguish it from an upstream's.
pub(crate) fn no_descriptors_left() -> bool {
    File::open("/dev/null").is_err_and(|error| matches!(error.raw_os_error(), Some(ENFILE | EMFILE)))
}
