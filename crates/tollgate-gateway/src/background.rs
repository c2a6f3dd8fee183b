//! Background tasks: writing usage records to the database, probing accounts, sending alerts. No request waits for them.

pub mod alerts;
pub mod probes;
pub mod usage_writer;
