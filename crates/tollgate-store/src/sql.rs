//! The database backend: one SQL text for SQLite and PostgreSQL, through sqlx's `Any` driver. Usage records are written and read
//! through connections of their own, with the drivers of the two databases, which are faster for many rows.

mod address;
mod append;
mod catalog;
mod cells;
mod chains;
mod change_signal;
mod change_transaction;
mod codes;
mod columns;
mod connect;
mod data_keys;
mod dialect;
mod driver_error;
mod health;
mod journals;
mod keys;
mod known_keys;
mod ledger;
mod listing;
mod migrate;
mod names;
mod pages;
mod partitions;
mod price_history;
mod recent_batches;
mod retention;
mod rotation;
mod rows;
mod server_lock;
mod shared_snapshot;
mod spending;
mod store;
mod summary;
pub(crate) mod transfer;
mod usage;
mod usage_filter;
mod usage_reader;
mod usage_rows;
mod verify;

pub(crate) use address::SqlAddress;
pub(crate) use connect::open;
pub(crate) use data_keys::{DataKeys, open_rows as open_data_keys};
pub(crate) use spending::SpendingScope;
pub(crate) use store::SqlStore;
