//! Support for tests of the real binary: a scripted upstream with faults, a plain HTTP client, and a harness that starts
//! the executable and checks invariants when it stops.
//!
//! Threads and blocking sockets on purpose: a test reads top to bottom, and nothing here shares code with the code under
//! test.

#![expect(clippy::disallowed_methods, clippy::format_push_string, reason = "tests read the clock and build small texts")]

mod client;
mod gateway;
pub mod provider;
mod services;
mod upstream;
mod wait;
mod wire;

pub use client::{ClientResponse, PendingResponse, Request};
pub use gateway::{SERVICE_KEY, TestGateway, TestGatewayBuilder, UPSTREAM_CREDENTIAL};
pub use services::{Postgres, Redis, skipped};
pub use upstream::{ReceivedRequest, ScriptedResponse, Upstream};
pub use wait::{Latch, wait_for};
