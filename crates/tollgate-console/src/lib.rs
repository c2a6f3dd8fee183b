//! The control plane: the admin API.
//!
//! One table of routes ([`api`]) is what the router, the authorisation and the OpenAPI document are made from. The crate
//! does not know the gateway: what it asks of the running process stands in [`Running`], and requests come to
//! [`Console::answer`] from whoever accepted the connection.

mod answer;
mod api;
mod door;
mod json;
mod listener;
mod problem;
mod running;
mod site;
mod usage_line;

pub use api::{fields, written};
pub use axum::body::Body;
pub use listener::{ListenerLimits, serve};
pub use problem::Failed;
pub use running::{NotTested, Question, Running, Seen, Setting, TestStep, Tested};
pub use site::{Console, Parts, Visitor};
pub use usage_line::{COLUMNS, json as usage_json, row as usage_row, time as rfc3339};
