//! Price limits: of group, key and request; a candidate must pass each.

use crate::PriceLimit;

/// A header `x-tollgate-max-price` that cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected 'input=<USD>,output=<USD>' per million tokens, either may be missing")]
pub struct BadMaxPrice;

/// Reads `x-tollgate-max-price`: `input=1.5,output=6`, USD per million tokens on the sale price.
///
/// # Errors
/// When it is not that.
pub fn parse_max_price(text: &str) -> Result<PriceLimit, BadMaxPrice> {
    let _ = text;
    Err(BadMaxPrice)
}
