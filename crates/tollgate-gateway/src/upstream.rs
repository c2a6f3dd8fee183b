//! Calls to providers: the [`Upstream`](call::Upstream) trait, its HTTP client, credentials, remote media, and the built-in echo.

pub mod call;
pub mod client;
pub(crate) mod credentials;
pub mod echo;
pub(crate) mod media;
pub(crate) mod retry_after;
