//! Money in integers: amounts in nano-USD, prices in nano-USD per million tokens, multipliers in millionths.

use serde::{Deserialize, Serialize};

use crate::Timestamp;

/// An amount in nano-USD.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct NanoUsd(pub i64);

/// A factor in millionths: 1.0 is 1,000,000.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Multiplier(pub i64);

impl Multiplier {
    /// 1.0.
    pub const ONE: Self = Self(1_000_000);
}

impl Default for Multiplier {
    fn default() -> Self {
        Self::ONE
    }
}

/// Text that is not an amount.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a decimal amount with at most {max_decimals} decimals: '{text}'")]
pub struct ParseMoneyError {
    /// What stood there.
    pub text: String,
    /// How many decimals are allowed.
    pub max_decimals: u32,
}

/// A price list: nano-USD per one million tokens by kind, and nano-USD per request. An absent kind falls back as
/// the decisions say: `cache_read`, `cache_write`, `image`, `audio` to `input`; `thinking` to `output`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Price {
    /// Input tokens.
    pub input: Option<i64>,
    /// Output tokens.
    pub output: Option<i64>,
    /// Tokens read from the provider's cache.
    pub cache_read: Option<i64>,
    /// Tokens written to the provider's cache.
    pub cache_write: Option<i64>,
    /// Thinking tokens.
    pub thinking: Option<i64>,
    /// Image tokens.
    pub image: Option<i64>,
    /// Audio tokens.
    pub audio: Option<i64>,
    /// Nano-USD for one request.
    pub per_request: Option<i64>,
    /// Dearer (or cheaper) prices for long prompts, lowest bound first; each tier is a whole price list.
    pub tiers: Vec<PriceTier>,
}

/// Prices for prompts above a bound.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PriceTier {
    /// Applies when the prompt has more than this many tokens.
    pub above: u64,
    /// The prices; its own `tiers` is empty, kinds it leaves out come from the base list.
    pub price: Price,
}

/// Prices over time, in order of `valid_from`; the last one already valid counts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct PriceSchedule(pub Vec<PricedAt>);

/// A price list and when it begins.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PricedAt {
    /// From when on; the beginning of time when `None`.
    pub valid_from: Option<Timestamp>,
    /// The list.
    pub price: Price,
}
