//! Stage 7 of 9: one account after another, until one answers. In: a plan and the body; out: an answer whose first
//! content is here, or the refusal the caller gets.

mod client;
mod credentials;
#[cfg(test)]
pub(crate) mod testing;
mod upstream;

pub use client::{Client, Trust};
pub use upstream::{BodyFault, ConnectFault, SentMark, Upstream, UpstreamAnswer, UpstreamBody, UpstreamCall, UpstreamError};
