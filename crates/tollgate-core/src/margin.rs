//! Margins: the part of a sale price that remains after the cost.

use crate::{Multiplier, NanoUsd};

/// (sale - cost) / sale of two prices after their multipliers, in millionths, rounded down. `None` where nothing is charged.
pub fn price_margin(sale: (i64, Multiplier), cost: (i64, Multiplier)) -> Option<i64> {
    let of = |(price, multiplier): (i64, Multiplier)| i128::from(price) * i128::from(multiplier.0);
    share(of(sale), of(cost))
}

/// (sale - cost) / sale of two amounts, in millionths, rounded down. `None` where nothing is charged.
pub fn amount_margin(sale: NanoUsd, cost: NanoUsd) -> Option<i64> {
    share(i128::from(sale.0), i128::from(cost.0))
}

/// A share as a percentage with one decimal, rounded down, so that a margin below the whole sale is not shown as 100 %.
pub fn percent_down(share: f64) -> f64 {
    /// Shares have four decimals, and the nearest binary fraction may be slightly lower.
    const BELOW: f64 = 1e-6;
    (share.mul_add(1_000.0, BELOW)).floor() / 10.0
}

fn share(sale: i128, cost: i128) -> Option<i64> {
    const SCALE: i128 = 1_000_000;
    if sale <= 0 {
        return None;
    }
    let difference = sale.checked_sub(cost)?.checked_mul(SCALE)?;
    Some(i64::try_from(difference.div_euclid(sale)).unwrap_or(i64::MIN))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn share_just_below_100_percent_is_rounded_down() {
        let shown = |share| format!("{:.1}", percent_down(share));
        assert_eq!(
            [0.9996, 1.0, 0.8, 0.1666, 0.0, -1.0, -0.0001].map(shown),
            ["99.9", "100.0", "80.0", "16.6", "0.0", "-100.0", "-0.1"]
        );
    }

    #[test]
    fn margin_is_the_share_of_the_sale_price_above_the_cost() {
        let one = Multiplier::ONE;
        assert_eq!(price_margin((300, one), (250, one)), Some(166_666));
        assert_eq!(price_margin((100, Multiplier(2_000_000)), (250, one)), Some(-250_000));
        assert_eq!(price_margin((300, one), (300, one)), Some(0));
        assert_eq!(price_margin((3, one), (4, one)), Some(-333_334), "rounded down");
        assert_eq!(price_margin((0, one), (300, one)), None);
        assert_eq!(price_margin((1, Multiplier(1)), (i64::MAX, Multiplier(i64::MAX))), None, "beyond 128 bits");
        assert_eq!(amount_margin(NanoUsd(10), NanoUsd(4)), Some(600_000));
    }
}
