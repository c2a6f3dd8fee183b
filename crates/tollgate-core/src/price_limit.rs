//! Price limits of group, key and request. A candidate must satisfy all of them.

use tollgate_protocol::RequestSummary;

use crate::{
    Billing, Budget, BudgetAction, Caller, Exclusion, Group, Key, LimitLevel, MissingPrice, Multiplier, Offer, Price, PriceFigures,
    PriceKind, PriceLimit, PriceLimitMode, PriceLimitOn, offer::ModelPurpose, parse_usd, settle::estimate_input,
};

/// Error for an invalid `x-tollgate-max-price` header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected 'input:<USD>,output:<USD>' per million tokens; either may be absent")]
pub struct InvalidMaxPrice;

/// Parses `x-tollgate-max-price`: `input:1.5,output:6`, or the same with `=`. Bounds on the sale price in USD per million tokens.
pub fn parse_max_price(text: &str) -> Result<PriceLimit, InvalidMaxPrice> {
    let (max_input, max_output) = ceilings(text)?;
    Ok(PriceLimit { mode: PriceLimitMode::Ceiling { max_input, max_output }, on: PriceLimitOn::Sale })
}

/// Parses all lines of the header. A candidate must satisfy each, so the lower bound of each kind applies. `None` without any
/// line.
pub fn parse_max_prices<'a>(lines: impl IntoIterator<Item = &'a str>) -> Result<Option<PriceLimit>, InvalidMaxPrice> {
    let lower = |one: Option<i64>, other: Option<i64>| one.into_iter().chain(other).min();
    let mut all: Option<(Option<i64>, Option<i64>)> = None;
    for line in lines {
        let (input, output) = ceilings(line)?;
        let (max_input, max_output) = all.unwrap_or_default();
        all = Some((lower(max_input, input), lower(max_output, output)));
    }
    Ok(all.map(|(max_input, max_output)| PriceLimit {
        mode: PriceLimitMode::Ceiling { max_input, max_output },
        on: PriceLimitOn::Sale,
    }))
}

/// Parses the bounds on input and output.
fn ceilings(text: &str) -> Result<(Option<i64>, Option<i64>), InvalidMaxPrice> {
    let (mut max_input, mut max_output) = (None, None);
    for item in text.split(',') {
        let (kind, price) = item.split_once([':', '=']).ok_or(InvalidMaxPrice)?;
        let bound = match kind.trim() {
            "input" => &mut max_input,
            "output" => &mut max_output,
            _ => return Err(InvalidMaxPrice),
        };
        let price = parse_usd(price.trim()).map_err(|_| InvalidMaxPrice)?;
        if bound.replace(price).is_some() {
            return Err(InvalidMaxPrice);
        }
    }
    Ok((max_input, max_output))
}

/// True when the caller's spending is bounded (prepaid member, or a blocking budget on key, member or group), so that unpriced
/// models cannot be sold to it.
pub fn money_is_bounded(caller: &Caller, offer: &Offer) -> bool {
    key_bounds_money(&caller.key) || blocks(&offer.group.budgets)
}

/// The part of [`money_is_bounded`] that does not depend on the group.
pub(crate) fn key_bounds_money(key: &Key) -> bool {
    key.member.billing == Billing::Prepaid || blocks(&key.budgets) || blocks(&key.member.budgets)
}

fn blocks(budgets: &[Budget]) -> bool {
    budgets.iter().any(|budget| budget.action == BudgetAction::Block)
}

/// The properties of a request that select the prices compared with limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PriceBasis {
    /// Estimated tokens of the prompt, which select a tier.
    pub(crate) prompt_tokens: u64,
    /// False for embeddings, which have no output: a missing output price is free then.
    pub(crate) has_output: bool,
}

impl PriceBasis {
    /// An answered request of the lowest tier.
    pub(crate) const SHORTEST: Self = Self { prompt_tokens: 0, has_output: true };

    pub(crate) fn of(summary: &RequestSummary) -> Self {
        let has_output = ModelPurpose::of_method(summary.method) != ModelPurpose::Embedding;
        Self { prompt_tokens: estimate_input(summary), has_output }
    }
}

/// Input and output price after the multiplier, exact: nano-USD per million tokens, times 10^6.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct EffectivePrice {
    input: Option<i128>,
    output: Option<i128>,
}

const SCALE: i128 = 1_000_000;

impl EffectivePrice {
    /// The effective price of a list for such a request.
    pub(crate) fn of(price: &Price, basis: PriceBasis, multiplier: Multiplier) -> Self {
        let tier = price.tiers.iter().filter(|tier| basis.prompt_tokens > tier.above).max_by_key(|tier| tier.above);
        let kind = |of: fn(&Price) -> Option<i64>| {
            let rate = tier.and_then(|tier| of(&tier.price)).or_else(|| of(price))?;
            Some(i128::from(rate) * i128::from(multiplier.0))
        };
        let without_output = (!basis.has_output).then_some(0);
        Self { input: kind(|price| price.input), output: kind(|price| price.output).or(without_output) }
    }

    /// The kinds whose price is below a cost, each with both in nano-USD per million tokens.
    pub(crate) fn below(self, cost: Self) -> Vec<(&'static str, i64, i64)> {
        let shown = |price: i128| i64::try_from(price.div_euclid(SCALE)).unwrap_or(i64::MAX);
        let kinds = [("input", self.input, cost.input), ("output", self.output, cost.output)];
        let below = |(kind, sale, cost): (_, Option<i128>, Option<i128>)| {
            let (sale, cost) = (sale?, cost?);
            (sale < cost).then(|| (kind, shown(sale), shown(cost)))
        };
        kinds.into_iter().filter_map(below).collect()
    }

    /// Sum of both, for comparing costs; `None` when one is unknown.
    pub(crate) fn sum(self) -> Option<i128> {
        Some(self.input? + self.output?)
    }
}

/// All price limits on a request, and the sale price they apply to.
#[derive(Clone, Debug)]
pub(crate) struct PriceRules {
    limits: [Option<(LimitLevel, PriceLimit)>; 3],
    sale: Option<EffectivePrice>,
}

impl PriceRules {
    /// No limits.
    pub(crate) const fn none() -> Self {
        Self { limits: [None; 3], sale: None }
    }

    /// The limits of group, key and request on an offer.
    pub(crate) fn new(caller: &Caller, offer: &Offer, request: Option<PriceLimit>, basis: PriceBasis) -> Self {
        let levels = [
            (LimitLevel::Group, offer.group.price_limit),
            (LimitLevel::Key, caller.key.price_limit),
            (LimitLevel::Request, request),
        ];
        Self {
            limits: levels.map(|(level, limit)| limit.map(|limit| (level, limit))),
            sale: offer.sale.as_ref().map(|price| EffectivePrice::of(price, basis, offer.sale_multiplier)),
        }
    }

    /// The group's own limit alone, which applies to all of its callers.
    pub(crate) fn of_group(group: &Group, sale: Option<&Price>, basis: PriceBasis, multiplier: Multiplier) -> Self {
        let sale = sale.map(|price| EffectivePrice::of(price, basis, multiplier));
        Self { limits: [group.price_limit.map(|limit| (LimitLevel::Group, limit)), None, None], sale }
    }

    /// Excludes all candidates alike: limits on the sale price.
    pub(crate) fn sale_exclusion(&self) -> Option<Exclusion> {
        self.limits.iter().flatten().filter(|(_, limit)| limit.on == PriceLimitOn::Sale).find_map(|(level, limit)| {
            match limit.mode {
                PriceLimitMode::PricedOnly => self.sale.is_none().then_some(Exclusion::Unpriced(MissingPrice::SaleForPriceLimit)),
                PriceLimitMode::Ceiling { .. } => ceiling(*level, limit, self.sale),
                PriceLimitMode::MinMargin(_) => None,
            }
        })
    }

    /// True when a limit applies to the candidates' cost.
    pub(crate) fn applies_to_cost(&self) -> bool {
        self.limits.iter().flatten().any(|(_, limit)| limit.is_about_cost())
    }

    /// Excludes a candidate of this cost.
    pub(crate) fn cost_exclusion(&self, cost: Option<EffectivePrice>) -> Option<Exclusion> {
        self.limits.iter().flatten().filter(|(_, limit)| limit.is_about_cost()).find_map(|(level, limit)| match limit.mode {
            PriceLimitMode::PricedOnly => cost.is_none().then_some(Exclusion::Unpriced(MissingPrice::CostForPriceLimit)),
            PriceLimitMode::Ceiling { .. } => ceiling(*level, limit, cost),
            PriceLimitMode::MinMargin(min_margin) => margin(self.sale, cost, min_margin),
        })
    }
}

fn ceiling(level: LimitLevel, limit: &PriceLimit, price: Option<EffectivePrice>) -> Option<Exclusion> {
    let PriceLimitMode::Ceiling { max_input, max_output } = limit.mode else { return None };
    let missing = match limit.on {
        PriceLimitOn::Sale => MissingPrice::SaleForPriceLimit,
        PriceLimitOn::Cost => MissingPrice::CostForPriceLimit,
    };
    let bounds = [
        (PriceKind::Input, max_input, price.and_then(|it| it.input)),
        (PriceKind::Output, max_output, price.and_then(|it| it.output)),
    ];
    bounds.into_iter().find_map(|(kind, bound, price)| {
        let bound = bound?;
        let Some(price) = price else { return Some(Exclusion::Unpriced(missing)) };
        (price > i128::from(bound) * SCALE).then(|| {
            let price = i64::try_from((price + SCALE / 2).div_euclid(SCALE)).unwrap_or(i64::MAX);
            Exclusion::PriceAboveLimit(PriceFigures { level, on: limit.on, kind, limit: bound, price })
        })
    })
}

/// Checks `(sale − cost) / sale ≥ min_margin` without dividing. A free sale passes only with zero cost and a bound of at most
/// zero.
fn margin(sale: Option<EffectivePrice>, cost: Option<EffectivePrice>, min_margin: i64) -> Option<Exclusion> {
    let is_enough = |sale: Option<i128>, cost: Option<i128>| {
        let (sale, cost) = (sale?, cost?);
        // Prices are below 2^126 in this scale, and saturation keeps the comparison correct.
        Some((sale - cost).saturating_mul(SCALE) >= sale.saturating_mul(i128::from(min_margin)))
    };
    let has_both = |price: EffectivePrice| price.input.is_some() && price.output.is_some();
    let Some(sale) = sale.filter(|sale| has_both(*sale)) else {
        return Some(Exclusion::Unpriced(MissingPrice::SaleForPriceLimit));
    };
    let Some(cost) = cost else { return Some(Exclusion::Unpriced(MissingPrice::CostForPriceLimit)) };
    match (is_enough(sale.input, cost.input), is_enough(sale.output, cost.output)) {
        (Some(true), Some(true)) => None,
        (None, _) | (_, None) => Some(Exclusion::Unpriced(MissingPrice::CostForPriceLimit)),
        (Some(_), Some(_)) => Some(Exclusion::Margin),
    }
}

#[cfg(test)]
mod tests;
