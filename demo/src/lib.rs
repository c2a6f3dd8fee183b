//! A gateway with a month of history: a catalog, members and keys, requests with their outcomes and prices, outages, changes, money.
//!
//! No sum is made up. Requests are resolved, routed and settled by the functions of `tollgate-core`, and booked by the store like
//! those of the usage writer; changes are applied through the store with their times. So the sums, the ledger and the log agree,
//! and prices are those in force at the time.

mod alerts;
mod faults;
mod health;
mod people;
mod random;
mod refusals;
mod simulation;
mod sizes;
mod timeline;
mod traffic;
mod workload;

pub use timeline::{HISTORY_MS, HistorySummary, write_history};

/// The catalog file; `PROVIDER` is replaced by the address of the scripted provider.
pub const CATALOG: &str = include_str!("catalog.toml");

/// The admin who signs in.
pub const ADMIN: &str = "mira";
