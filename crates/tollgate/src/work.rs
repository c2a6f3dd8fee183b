//! Long work on a data folder: one function each, which its command calls and which a running gateway calls for a job. It reports
//! its progress, ends soon after it is cancelled, and returns what the command prints.

pub(crate) mod backup;
pub(crate) mod doctor;
pub(crate) mod replay;
pub(crate) mod verify;
