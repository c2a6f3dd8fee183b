//! Money in integers: amounts in nano-USD, prices in nano-USD per million tokens, multipliers in millionths.

mod decimal;
mod extras;
mod price;

use std::{
    fmt,
    ops::{Deref, DerefMut},
    sync::Arc,
};

use minicbor::{Decode, Encode};
use serde::{Deserialize, Serialize};

pub(crate) use extras::has_price_effect;
pub use extras::{PricedOptions, UnpricedExtra};
pub use price::Rates;

use crate::Timestamp;

/// An amount of money in nano-USD.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, Encode, Decode)]
#[serde(transparent)]
#[cbor(transparent)]
pub struct NanoUsd(#[n(0)] pub i64);

/// A multiplier in millionths: 1.0 is 1,000,000.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, Encode, Decode)]
#[serde(transparent)]
#[cbor(transparent)]
pub struct Multiplier(#[n(0)] pub i64);

impl Multiplier {
    /// 1.0.
    pub const ONE: Self = Self(1_000_000);

    /// Whether it changes nothing.
    pub fn is_one(&self) -> bool {
        *self == Self::ONE
    }
}

impl Default for Multiplier {
    fn default() -> Self {
        Self::ONE
    }
}

/// Error for text that is not a decimal amount, or is too large an amount.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", self.sentence())]
pub struct ParseMoneyError {
    pub text: String,
    pub max_decimals: u32,
    /// True for an amount that is too large.
    pub is_too_large: bool,
}

impl ParseMoneyError {
    fn sentence(&self) -> String {
        let Self { text, max_decimals, .. } = self;
        if self.is_too_large {
            return format!("'{text}' is too large; the most is {}", decimal::print(i64::MAX, *max_decimals, 0));
        }
        format!("not a decimal amount with at most {max_decimals} decimals: '{text}'")
    }
}

/// A price list: nano-USD per million tokens by kind, and nano-USD per request. Missing kinds fall back: `cache_read`,
/// `cache_write`, `image` and `audio` to `input`; `cache_write_1h` to `cache_write`; `thinking` to `output`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, Encode, Decode)]
#[serde(default)]
pub struct Price {
    #[serde(skip_serializing_if = "Option::is_none")]
    #[n(0)]
    pub input: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[n(1)]
    pub output: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[n(2)]
    pub cache_read: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[n(3)]
    pub cache_write: Option<i64>,
    /// Price of cache writes that are kept for an hour.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[n(4)]
    pub cache_write_1h: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[n(5)]
    pub thinking: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[n(6)]
    pub image: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[n(7)]
    pub audio: Option<i64>,
    /// Nano-USD per request.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[n(8)]
    pub per_request: Option<i64>,
    /// Nano-USD per web search by the provider, besides `per_request`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[n(9)]
    pub web_search: Option<i64>,
    /// Factor on the whole price list for the service tier `priority`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[n(10)]
    pub priority: Option<Multiplier>,
    /// Factor on the whole price list for the service tier `flex`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[n(11)]
    pub flex: Option<Multiplier>,
    /// Prices for long prompts, by ascending bound. Each tier is a price list of its own.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[cbor(n(12), skip_if = "Vec::is_empty")]
    pub tiers: Vec<PriceTier>,
    /// Nano-USD per request with other tools that the provider runs, besides `per_request`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[n(13)]
    pub server_tools: Option<i64>,
    /// Price of all output of a request that asks for images or audio in the answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[n(14)]
    pub output_media: Option<i64>,
}

/// Prices for prompts longer than a bound.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, Encode, Decode)]
pub struct PriceTier {
    /// Applies when the prompt has more than this many tokens.
    #[n(0)]
    pub above: u64,
    /// Prices of the tier, without `tiers`. Missing kinds come from the base list.
    #[n(1)]
    pub price: Price,
}

/// Prices over time. The one with the latest `valid_from` that is not in the future is in effect.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct PriceSchedule(pub Vec<ScheduledPrice>);

/// An entry of a price schedule: the price from a time on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScheduledPrice {
    /// Start; `None`: always.
    pub valid_from: Option<Timestamp>,
    pub price: SharedPrice,
}

/// A price list that requests and their attempts share with the catalog instead of copying it. A change copies it first.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct SharedPrice(Arc<Price>);

impl Deref for SharedPrice {
    type Target = Price;

    fn deref(&self) -> &Price {
        &self.0
    }
}

impl DerefMut for SharedPrice {
    fn deref_mut(&mut self) -> &mut Price {
        Arc::make_mut(&mut self.0)
    }
}

impl PartialEq<Price> for SharedPrice {
    fn eq(&self, other: &Price) -> bool {
        *self.0 == *other
    }
}

impl From<Price> for SharedPrice {
    fn from(price: Price) -> Self {
        Self(Arc::new(price))
    }
}

impl PriceSchedule {
    /// One price for all times.
    pub fn constant(price: Price) -> Self {
        Self(vec![ScheduledPrice { valid_from: None, price: price.into() }])
    }
}

/// Parses a non-negative decimal amount in USD with at most 9 decimals, as nano-USD.
pub fn parse_usd(text: &str) -> Result<i64, ParseMoneyError> {
    decimal::parse(text, 9)
}

impl NanoUsd {
    pub const ZERO: Self = Self(0);
    /// Upper bound of one request's or attempt's amount: 10,000 USD. It is far above real amounts, and sums over 900,000 such
    /// requests fit into 64 bits, so a mistyped price cannot overflow any sum.
    pub const MAX_PER_REQUEST: Self = Self(10_000_000_000_000);

    /// Parses an amount in USD with an optional sign and at most 9 decimals.
    pub fn parse(text: &str) -> Result<Self, ParseMoneyError> {
        match text.strip_prefix('-') {
            Some(unsigned) if !unsigned.starts_with('-') => {
                parse_usd(unsigned).map(|amount| Self(-amount)).map_err(|error| ParseMoneyError { text: text.to_owned(), ..error })
            }
            Some(_) | None => parse_usd(text).map(Self),
        }
    }

    /// Exact amount in USD, shortest form: `0.25`, `3`, `-0.000000001`.
    pub fn to_decimal(self) -> String {
        decimal::print(self.0, 9, 0)
    }

    /// Exact amount in USD with at least two decimals: `50.00`, `0.0025`.
    pub fn to_usd_string(self) -> String {
        decimal::print(self.0, 9, 2)
    }

    /// The amount rounded to whole cents where it is a dollar or more, and exact below: `39.16`, `0.0025`.
    pub fn to_rounded_usd(self) -> String {
        const CENT: i64 = 10_000_000;
        let whole = self.0.unsigned_abs() >= 1_000_000_000;
        let cents = (i128::from(self.0) + i128::from(CENT / 2)).div_euclid(i128::from(CENT));
        let rounded = i64::try_from(cents * i128::from(CENT)).unwrap_or(self.0);
        Self(if whole { rounded } else { self.0 }).to_usd_string()
    }

    #[must_use]
    pub const fn checked_add(self, other: Self) -> Option<Self> {
        match self.0.checked_add(other.0) {
            Some(sum) => Some(Self(sum)),
            None => None,
        }
    }

    #[must_use]
    pub const fn checked_sub(self, other: Self) -> Option<Self> {
        match self.0.checked_sub(other.0) {
            Some(difference) => Some(Self(difference)),
            None => None,
        }
    }
}

impl fmt::Display for NanoUsd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.to_decimal())
    }
}

impl Multiplier {
    /// Parses a non-negative multiplier with at most 6 decimals.
    pub fn parse(text: &str) -> Result<Self, ParseMoneyError> {
        decimal::parse(text, 6).map(Self)
    }

    /// Exact multiplier, shortest form: `1`, `1.25`.
    pub fn to_decimal(self) -> String {
        decimal::print(self.0, 6, 0)
    }

    /// Price times this multiplier, rounded half up to whole nano-USD, saturating. For displaying and comparing prices only,
    /// never for billed amounts.
    pub fn times(self, price: i64) -> i64 {
        let exact = i128::from(price) * i128::from(self.0);
        let rounded = (exact + 500_000).div_euclid(1_000_000);
        i64::try_from(rounded).unwrap_or(if rounded < 0 { i64::MIN } else { i64::MAX })
    }
}

#[cfg(test)]
mod tests;
