//! Work beside the requests: booking usage records, probing accounts, sending alerts. No request waits for it.

pub mod alerts;
pub mod probes;
pub mod usage_writer;
