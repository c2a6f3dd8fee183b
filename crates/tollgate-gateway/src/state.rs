//! State shared by all requests: atomically replaced snapshots, atomics, and maps that are locked for one look-up at a time.

pub mod address_rate;
pub mod alert_queue;
pub mod authenticator;
pub mod capacity_limiter;
pub(crate) mod change_signal;
pub mod content_queue;
pub mod health_records;
pub mod health_registry;
pub(crate) mod hedge_budget;
mod id_map;
pub(crate) mod interrupts;
pub(crate) mod latency_estimate;
pub(crate) mod learned_parameters;
pub mod metrics;
pub mod request_log;
pub mod retry_budget;
pub mod runtime_state;
pub mod shared;
pub(crate) mod shares;
pub(crate) mod token_count_rate;
pub mod trace_queue;
pub mod traffic;
pub mod usage_recorder;
