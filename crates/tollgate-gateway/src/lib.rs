//! The data plane: accepts model requests, runs them along the path, and records what each one used.
//!
//! | module | contents |
//! |---|---|
//! | [`server`] | listeners, TLS, connections, HTTP framing; hands a request to the path or to the fallback |
//! | [`ingress`] | from an HTTP path to protocol, method and presented key |
//! | [`path`] | the life of one request: the stages and the order they run in |
//! | [`upstream`] | calls to providers: connection pool, credentials, remote media |
//! | [`state`] | state shared by requests: catalog, limiters, health, learned parameters, metrics |
//! | [`background`] | work that no request waits for: usage writer, probes, alerts, export of telemetry |
//! | [`hand_over`] | the state of an upgrade, in the process that is replaced |
//! | [`explain`] | explains routing without sending a request |

mod address_block;
pub mod background;
pub mod clock;
mod executor;
pub mod explain;
pub mod fallback;
mod gathered_write;
mod gen_ai;
pub mod hand_over;
pub mod header_fields;
mod in_place;
mod ingress;
mod journal_turn;
mod model_list;
mod own_limit;
pub mod path;
pub mod refusal;
pub mod request;
pub mod response;
pub mod server;
pub mod serving_state;
pub mod settings;
pub mod state;
pub mod upstream;

#[cfg(test)]
mod testing;
