//! How a group wants its requests routed.

use serde::{Deserialize, Serialize};

use crate::NanoUsd;

/// What orders the usable accounts of one priority.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Routing {
    /// Affinity, else dice by weight and health.
    #[default]
    Weighted,
    /// The lowest cost price, input and output together; among equals as [`Self::Weighted`]. An unknown cost comes last.
    Cheapest,
    /// Of two accounts, drawn as [`Self::Weighted`] does, the one whose first tokens came sooner on average; one that was not
    /// measured yet goes first, so that it is.
    Fastest,
}

impl Routing {
    /// The word in catalogs.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Weighted => "weighted",
            Self::Cheapest => "cheapest",
            Self::Fastest => "fastest",
        }
    }
}

/// A second attempt on another account where the first token of a stream is late.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hedge {
    /// What the second attempts of a group may cost in a UTC day, by estimate, on one node.
    pub cost_cap: NanoUsd,
}
