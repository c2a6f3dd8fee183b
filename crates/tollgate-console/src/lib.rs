//! The control plane: the admin API.
//!
//! One table of routes ([`api`]) is what the router, the authorisation and the OpenAPI document are made from. The crate
//! does not know the gateway: what it asks of the running process stands in [`GatewayHandle`], and requests come to
//! [`Console::answer`] from whoever accepted the connection.

mod api;
mod api_error;
mod auth;
mod console;
mod dispatch;
mod gateway_handle;
mod json;
mod listener;
mod response;
mod state;
mod time;
mod usage_format;

pub use api::{parse_field_args, route_fields};
pub use axum::body::Body;
pub use console::{Console, ConsoleParts};
pub use gateway_handle::{
    AccountTestResult, ChannelTestError, ChannelTestEvent, EffectiveSetting, ExplainRequest, GatewayHandle, TestStep,
};
pub use listener::{ListenerLimits, serve};
pub use response::InternalFailure;
pub use state::RequestMeta;
pub use time::rfc3339;
pub use usage_format::{COLUMNS, json as usage_json, row as usage_row};
