//! Background tasks: writing usage records and health transitions to the database, probing accounts, sending alerts. No request waits
//! for them.

pub mod alerts;
pub mod health_recorder;
pub mod probes;
pub mod usage_writer;
