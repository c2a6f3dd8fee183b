//! Tests on the real binary, in one executable; modules are named as the stages of the path.
//!
//! `TestGateway` starts the executable; when it goes it checks that every answered request left exactly one usage record
//! and that no secret is in the log.

#![expect(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    clippy::format_collect,
    reason = "tests read the clock, and a helper that fails is a test that fails"
)]

mod accounts;
mod admin;
mod commands;
mod database_outage;
mod database_unavailable;
mod deploy;
mod drain;
mod egress;
mod explain;
mod faults;
mod forward;
mod hostile;
mod hostile_upstream;
mod journal;
mod journal_trouble;
mod limits;
mod lists;
mod load;
mod migrate;
mod money;
mod nodes;
mod outages;
mod price_header;
mod price_limits;
mod relay;
mod retention;
mod start;
mod support;
mod upstream_errors;
mod walk_through;
