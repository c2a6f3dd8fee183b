//! Routing settings of a group.

use serde::{Deserialize, Serialize};

use crate::NanoUsd;

/// How the usable accounts of one priority are ordered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Routing {
    /// By conversation affinity, else at random by weight and health.
    #[default]
    Weighted,
    /// Lowest cost price first, input plus output; ties as [`Self::Weighted`], unknown costs last.
    Cheapest,
    /// Of two accounts drawn as by [`Self::Weighted`], the one with the lower average latency first. An unmeasured account goes
    /// first so that it gets measured.
    Fastest,
}

impl Routing {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Weighted => "weighted",
            Self::Cheapest => "cheapest",
            Self::Fastest => "fastest",
        }
    }
}

/// Hedging: a second attempt on another account when the first token of a stream is late.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hedge {
    /// Estimated cost the hedges of a group may reach per UTC day and node.
    pub cost_cap: NanoUsd,
}
