//! Money in integers: amounts in nano-USD, prices in nano-USD per million tokens, multipliers in millionths.

mod decimal;
mod price;

use std::fmt;

use serde::{Deserialize, Serialize};

pub use price::Rates;

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
    #[serde(skip_serializing_if = "Option::is_none")]
    pub input: Option<i64>,
    /// Output tokens.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output: Option<i64>,
    /// Tokens read from the provider's cache.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cache_read: Option<i64>,
    /// Tokens written to the provider's cache.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cache_write: Option<i64>,
    /// Thinking tokens.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub thinking: Option<i64>,
    /// Image tokens.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image: Option<i64>,
    /// Audio tokens.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub audio: Option<i64>,
    /// Nano-USD for one request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub per_request: Option<i64>,
    /// Dearer (or cheaper) prices for long prompts, lowest bound first; each tier is a whole price list.
    #[serde(skip_serializing_if = "Vec::is_empty")]
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
pub struct PriceSchedule(pub Vec<ScheduledPrice>);

/// A price list and when it begins.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScheduledPrice {
    /// From when on; the beginning of time when `None`.
    pub valid_from: Option<Timestamp>,
    /// The list.
    pub price: Price,
}

/// Reads a non-negative amount or price in USD, decimal text with at most 9 decimals, as nano-USD.
///
/// # Errors
/// When it is not that.
pub fn parse_usd(text: &str) -> Result<i64, ParseMoneyError> {
    decimal::parse(text, 9)
}

/// Reads a number (TOML, JSON) as [`parse_usd`] reads its shortest decimal form.
///
/// # Errors
/// When it has more than 9 decimals, is negative or not finite.
pub fn parse_usd_number(number: f64) -> Result<i64, ParseMoneyError> {
    parse_usd(&number.to_string())
}

impl NanoUsd {
    /// Nothing.
    pub const ZERO: Self = Self(0);
    /// Most that one request may come to, and one attempt: 10,000 USD. Nothing real comes near it, and sums over 900,000
    /// such requests still fit into 64 bits, so that no sum anywhere can overflow for a mistyped price.
    pub const MAX_PER_REQUEST: Self = Self(10_000_000_000_000);

    /// Reads an amount in USD with an optional sign, at most 9 decimals.
    ///
    /// # Errors
    /// When it is not that.
    pub fn parse(text: &str) -> Result<Self, ParseMoneyError> {
        match text.strip_prefix('-') {
            Some(rest) if !rest.starts_with('-') => {
                parse_usd(rest).map(|amount| Self(-amount)).map_err(|error| ParseMoneyError { text: text.to_owned(), ..error })
            }
            Some(_) | None => parse_usd(text).map(Self),
        }
    }

    /// The exact amount in USD, shortest form: `0.25`, `3`, `-0.000000001`.
    #[must_use]
    pub fn to_decimal(self) -> String {
        decimal::print(self.0, 9, 0)
    }

    /// The exact amount in USD with at least two decimals: `50.00`, `0.0025`.
    #[must_use]
    pub fn to_usd_string(self) -> String {
        decimal::print(self.0, 9, 2)
    }

    /// Sum; `None` when it does not fit.
    #[must_use]
    pub const fn checked_add(self, other: Self) -> Option<Self> {
        match self.0.checked_add(other.0) {
            Some(sum) => Some(Self(sum)),
            None => None,
        }
    }

    /// Difference; `None` when it does not fit.
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
    /// Reads a non-negative factor with at most 6 decimals.
    ///
    /// # Errors
    /// When it is not that.
    pub fn parse(text: &str) -> Result<Self, ParseMoneyError> {
        decimal::parse(text, 6).map(Self)
    }

    /// Reads a number as [`Multiplier::parse`] reads its shortest decimal form.
    ///
    /// # Errors
    /// When it has more than 6 decimals, is negative or not finite.
    pub fn parse_number(number: f64) -> Result<Self, ParseMoneyError> {
        Self::parse(&number.to_string())
    }

    /// The exact factor, shortest form: `1`, `1.25`.
    #[must_use]
    pub fn to_decimal(self) -> String {
        decimal::print(self.0, 6, 0)
    }

    /// A price times this factor, rounded half-up to a whole nano-USD, saturating; for showing and comparing one price,
    /// never for amounts.
    #[must_use]
    pub fn times(self, price: i64) -> i64 {
        let exact = i128::from(price) * i128::from(self.0);
        let rounded = (exact + 500_000).div_euclid(1_000_000);
        i64::try_from(rounded).unwrap_or(if rounded < 0 { i64::MIN } else { i64::MAX })
    }
}

#[cfg(test)]
mod tests;
