//! Background tasks: writing usage records and health transitions to the database, probing accounts, sending alerts, exporting
//! telemetry. No request waits for them.

pub mod content_writer;
pub mod health_recorder;
pub mod notify;
pub mod probes;
pub mod telemetry;
pub mod usage_writer;
