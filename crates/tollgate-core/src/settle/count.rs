//! Counting tokens and money.

use serde::{Deserialize, Serialize};
use tollgate_protocol::{Outline, Usage};

use super::Delivered;
use crate::{Model, Multiplier, NanoUsd, Price, TokenSource, Tokens};

/// A local count of a request's input.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct InputCount {
    /// Tokens.
    pub tokens: u64,
    /// [`TokenSource::Counted`] for text alone, [`TokenSource::Estimated`] where media had to be guessed.
    pub source: TokenSource,
}

/// The provider's totals as kinds that do not overlap.
#[must_use]
pub fn tokens_of(usage: &Usage, source: TokenSource) -> Tokens {
    let _ = (usage, source);
    unimplemented!()
}

/// Most input tokens a request can be expected to have; for holds and tiers, not for bills.
#[must_use]
pub fn estimate_input(outline: &Outline) -> u64 {
    let _ = outline;
    unimplemented!()
}

/// Most output tokens a request can have; for holds, not for bills.
#[must_use]
pub fn estimate_output(outline: &Outline, model: &Model) -> u64 {
    let _ = (outline, model);
    unimplemented!()
}

/// Input tokens where the provider gives no figures; for bills.
#[must_use]
pub fn count_input(outline: &Outline) -> InputCount {
    let _ = outline;
    unimplemented!()
}

/// Output tokens where the provider gives no figures; for bills. Takes a `Reading` or what reached the caller.
#[must_use]
pub fn count_output(output: impl Into<Delivered>) -> u64 {
    let _ = output.into();
    unimplemented!()
}

/// What tokens come to at a price list (its tier is chosen here), once rounded half-up. `None`: overflow.
#[must_use]
pub fn amount(tokens: &Tokens, price: &Price, multiplier: Multiplier) -> Option<NanoUsd> {
    let _ = (tokens, price, multiplier);
    unimplemented!()
}
