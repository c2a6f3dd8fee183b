//! Tests of the real binary, in one executable.
//!
//! `TestGateway` starts the binary. On drop it checks that every answered request left exactly one usage record and that
//! the log holds no secret.

#![expect(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    clippy::format_collect,
    reason = "tests read the clock, and a failing helper fails its test"
)]

mod accounts;
mod admin;
mod alerts;
mod backup;
mod clock;
mod commands;
mod connections;
mod contents;
mod context_length;
mod database_outage;
mod database_unavailable;
mod deploy;
mod descriptors;
mod disk_full;
mod drain;
mod egress;
mod explain;
mod exports;
mod first_hour;
mod forward;
mod health_history;
mod identity;
mod jobs;
mod journal;
mod journal_failures;
mod key_restrictions;
mod limits;
mod lists;
mod load;
mod malformed_requests;
mod many_nodes_page;
mod messages;
mod migrate;
mod money;
mod moved_data;
mod multipliers;
mod network;
mod nodes;
mod outages;
mod overload;
mod pages;
mod price_header;
mod price_limits;
mod redis_restart;
mod relay;
mod request_log;
mod responses;
mod retention;
mod revocations;
mod rotation;
mod scheduled_backups;
mod searches;
mod settings;
mod shares;
mod square;
mod start;
mod stream_memory;
mod support;
mod tags;
mod telemetry;
mod upgrade;
mod upstream_errors;
mod upstream_faults;
mod upstream_responses;
