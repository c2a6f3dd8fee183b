//! Stage 7 of 9: one account after another, until one answers. In: a plan and the body; out: an answer whose first
//! content is here, or the refusal the caller gets.

mod answer;
mod attempts;
mod client;
mod credentials;
mod echo;
mod hedge;
mod retry_after;
mod retry_budget;
#[cfg(test)]
pub(crate) mod scripted;
#[cfg(test)]
pub(crate) mod testing;
mod upstream;
mod verdict;
mod whole;

pub(crate) use answer::AttemptAnswer;
pub(crate) use attempts::{RetryState, forward, outcome_of};
pub(crate) use client::{AddressPolicy, fetch};
pub use client::{Client, ProbeFault, ProbeStep, Trust, is_public, probe};
pub use echo::UpstreamDispatch;
pub(crate) use retry_after::seconds_until;
pub use retry_budget::RetryBudget;
pub use upstream::{
    ConnectFault, SentMark, Upstream, UpstreamAnswer, UpstreamBody, UpstreamBodyFault, UpstreamCall, UpstreamError,
};
pub(crate) use verdict::Failure;
