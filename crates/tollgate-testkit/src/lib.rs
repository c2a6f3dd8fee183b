//! What the tests on the real binary stand on: a scripted upstream with faults, a plain HTTP client, and a harness
//! that starts the executable and checks the house's invariants when it goes.
//!
//! Threads and blocking sockets on purpose: a test reads top to bottom, and nothing here shares code with what is
//! under test.

#![expect(clippy::disallowed_methods, clippy::format_push_string, reason = "tests read the clock and build small texts")]

mod client;
mod gate;
mod patience;
pub mod provider;
mod services;
mod upstream;
mod wire;

pub use client::{Answer, Open, Piece, Request};
pub use gate::{Gate, GateBuilder, SERVICE_KEY, UPSTREAM_CREDENTIAL};
pub use patience::{Hold, wait_for};
pub use services::{Postgres, Redis, skipped};
pub use upstream::{Reply, Seen, Upstream};
