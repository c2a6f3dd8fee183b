//! Support for tests of the real binary: a scripted upstream with faults, a plain HTTP client, and a harness that starts
//! the executable and checks invariants when it stops. It uses threads and blocking sockets, and shares no code with the
//! gateway.

#![expect(clippy::disallowed_methods, clippy::format_push_string, reason = "tests read the clock and build small texts")]
#![expect(clippy::missing_panics_doc, reason = "a test fails by panicking, wherever it does")]

mod client;
mod gateway;
mod mail_server;
pub mod provider;
mod services;
mod upstream;
mod wait;
mod wire;

pub use client::{ClientResponse, PendingResponse, Request};
pub use gateway::{FREE_ADDRESS, SERVICE_KEY, TestGateway, TestGatewayBuilder, UPSTREAM_CREDENTIAL};
pub use mail_server::{MailServer, MailServerMode};
pub use services::{Postgres, Redis, skipped};
pub use upstream::{ReceivedRequest, ScriptedResponse, Upstream};
pub use wait::{Latch, wait_for};
