//! Selling below cost: which kind of token would be sold for less than the provider charges.

use std::fmt;

use crate::money::Rates;
use crate::{Exclusion, MissingPrice, Multiplier, NanoUsd, Price, is_counted_by_piece};

/// A kind of token sold below its cost; nano-USD after multipliers, per million tokens or per unit of `web_search` and `per_request`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BelowCost {
    pub kind: &'static str,
    pub sale: i64,
    pub cost: i64,
}

type RateOf = fn(&Rates) -> i64;

const WEB_SEARCH: &str = "web_search";

const KINDS: [(&str, RateOf); 10] = [
    ("input", |rates| rates.input),
    ("output", |rates| rates.output),
    ("cache_read", |rates| rates.cache_read),
    ("cache_write", |rates| rates.cache_write),
    ("cache_write_1h", |rates| rates.cache_write_1h),
    ("thinking", |rates| rates.thinking),
    ("image", |rates| rates.image),
    ("audio", |rates| rates.audio),
    ("per_request", |rates| rates.per_request),
    (WEB_SEARCH, |rates| rates.web_search),
];

/// The first kind whose sale price is below its cost, in any tier that a prompt of at most this many tokens may reach. Web search
/// counts only for a request that may search.
pub fn below_cost(
    sale: (&Price, Multiplier),
    cost: (&Price, Multiplier),
    prompt_tokens: u64,
    may_search: bool,
) -> Option<BelowCost> {
    let tiers = sale.0.tiers.iter().chain(&cost.0.tiers).map(|tier| tier.above.saturating_add(1));
    std::iter::once(0).chain(tiers.filter(|prompt| *prompt <= prompt_tokens)).find_map(|prompt| {
        let (sells, costs) = (sale.0.rates(prompt), cost.0.rates(prompt));
        KINDS.iter().filter(|(kind, _)| may_search || *kind != WEB_SEARCH).find_map(|(kind, of)| {
            let sells_for = i128::from(of(&sells)) * i128::from(sale.1.0);
            let costs_us = i128::from(of(&costs)) * i128::from(cost.1.0);
            let figures = || BelowCost { kind, sale: sale.1.times(of(&sells)), cost: cost.1.times(of(&costs)) };
            (sells_for < costs_us).then(figures)
        })
    })
}

/// The exclusion of an account in a group that sells nothing below cost. An unknown sale or cost price excludes the account too.
pub(crate) fn exclusion(
    sale: Option<(&Price, Multiplier)>,
    cost: Option<(&Price, Multiplier)>,
    prompt_tokens: u64,
    may_search: bool,
) -> Option<Exclusion> {
    match (sale, cost) {
        (Some(sale), Some(cost)) => below_cost(sale, cost, prompt_tokens, may_search).map(Exclusion::BelowCost),
        (None, _) => Some(Exclusion::Unpriced(MissingPrice::SaleForPriceLimit)),
        (_, None) => Some(Exclusion::Unpriced(MissingPrice::CostForPriceLimit)),
    }
}

impl fmt::Display for BelowCost {
    /// `output sells for 0.40 and costs 10.00 USD per 1M tokens`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (sale, cost) = (NanoUsd(self.sale).to_usd_string(), NanoUsd(self.cost).to_usd_string());
        let unit = if is_counted_by_piece(self.kind) { "USD" } else { "USD per 1M tokens" };
        write!(f, "{} sells for {sale} and costs {cost} {unit}", self.kind)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{PriceTier, samples::price};

    fn of(sale: &Price, cost: &Price, prompt_tokens: u64) -> Option<&'static str> {
        below_cost((sale, Multiplier::ONE), (cost, Multiplier::ONE), prompt_tokens, false).map(|below| below.kind)
    }

    #[test]
    fn token_kind_sold_below_its_cost_is_named() {
        assert_eq!(of(&price("1", "2"), &price("1", "2"), 0), None, "at cost is not below it");
        assert_eq!(of(&price("1", "2"), &price("0.5", "2.1"), 0), Some("output"));
        let cost = Price { thinking: Some(9_000_000_000), ..price("0.5", "1") };
        assert_eq!(of(&price("1", "2"), &cost, 0), Some("thinking"));
        let cost = Price { cache_write_1h: Some(2_000_000_000), ..price("1", "1") };
        assert_eq!(of(&price("1", "2"), &cost, 0), Some("cache_write_1h"));
        let doubled = (&price("1", "2"), Multiplier(2_000_000));
        let below = below_cost((&price("1", "3"), Multiplier::ONE), doubled, 0, false).unwrap();
        assert_eq!(below.to_string(), "input sells for 1.00 and costs 2.00 USD per 1M tokens");
    }

    #[test]
    fn web_search_price_is_compared_only_if_the_request_may_search() {
        let (sale, one) = (Price { web_search: Some(1_000), ..price("1", "2") }, Multiplier::ONE);
        let cost = Price { web_search: Some(1_001), ..sale.clone() };
        assert_eq!(below_cost((&sale, one), (&cost, one), 0, false), None);
        let below = below_cost((&sale, one), (&cost, one), 0, true).unwrap();
        assert_eq!(below.to_string(), "web_search sells for 0.000001 and costs 0.000001001 USD");
    }

    #[test]
    fn tiers_within_reach_of_the_prompt_are_compared() {
        let cost = Price { tiers: vec![PriceTier { above: 1_000, price: price("3", "9") }], ..price("1", "2") };
        assert_eq!(of(&price("1", "2"), &cost, 1_000), None);
        assert_eq!(of(&price("1", "2"), &cost, 1_001), Some("input"));
    }

    #[test]
    fn unknown_prices_are_excluded_when_selling_below_cost_is_forbidden() {
        let (list, one) = (price("1", "2"), Multiplier::ONE);
        assert_eq!(exclusion(None, Some((&list, one)), 0, false), Some(Exclusion::Unpriced(MissingPrice::SaleForPriceLimit)));
        assert_eq!(exclusion(Some((&list, one)), None, 0, false), Some(Exclusion::Unpriced(MissingPrice::CostForPriceLimit)));
        assert_eq!(exclusion(Some((&list, one)), Some((&list, one)), 0, false), None);
    }
}
