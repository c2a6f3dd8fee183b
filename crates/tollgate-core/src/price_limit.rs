//! Price limits: of group, key and request; a candidate must pass each.

use crate::{
    Billing, Budget, BudgetAction, Caller, Exclusion, LimitLevel, Multiplier, Offer, Price, PriceFigures, PriceKind, PriceLimit,
    PriceLimitMode, PriceLimitOn, parse_usd,
};

/// A header `x-tollgate-max-price` that cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected 'input=<USD>,output=<USD>' per million tokens, either may be missing")]
pub struct InvalidMaxPrice;

/// Reads `x-tollgate-max-price`: `input=1.5,output=6`, USD per million tokens on the sale price.
///
/// # Errors
/// When it is not that.
pub fn parse_max_price(text: &str) -> Result<PriceLimit, InvalidMaxPrice> {
    let (max_input, max_output) = ceilings(text)?;
    Ok(PriceLimit { mode: PriceLimitMode::Ceiling { max_input, max_output }, on: PriceLimitOn::Sale })
}

/// Reads all lines of the header: a candidate must pass every one, so the lower bound of each kind counts. `None`: there
/// is no line.
///
/// # Errors
/// When one of them is not that.
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

/// Bounds of input and output.
fn ceilings(text: &str) -> Result<(Option<i64>, Option<i64>), InvalidMaxPrice> {
    let (mut max_input, mut max_output) = (None, None);
    for item in text.split(',') {
        let (kind, price) = item.split_once('=').ok_or(InvalidMaxPrice)?;
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

/// Whether the caller's money is bounded somewhere, so that what has no price cannot be sold to him: a prepaid member,
/// or a blocking budget on key, member or group.
#[must_use]
pub fn money_is_bounded(caller: &Caller, offer: &Offer) -> bool {
    let blocks = |budgets: &[Budget]| budgets.iter().any(|budget| budget.action == BudgetAction::Block);
    let member = &caller.key.member;
    member.billing == Billing::Prepaid || blocks(&caller.key.budgets) || blocks(&member.budgets) || blocks(&offer.group.budgets)
}

/// The two prices limits look at, nano-USD per million tokens times a multiplier, exact: in 10^-6 nano-USD.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct EffectivePrice {
    input: Option<i128>,
    output: Option<i128>,
}

const SCALE: i128 = 1_000_000;

impl EffectivePrice {
    /// Of a list, for a prompt of this many tokens.
    pub(crate) fn of(price: &Price, prompt_tokens: u64, multiplier: Multiplier) -> Self {
        let tier = price.tiers.iter().filter(|tier| prompt_tokens > tier.above).max_by_key(|tier| tier.above);
        let kind = |of: fn(&Price) -> Option<i64>| {
            let rate = tier.and_then(|tier| of(&tier.price)).or_else(|| of(price))?;
            Some(i128::from(rate) * i128::from(multiplier.0))
        };
        Self { input: kind(|price| price.input), output: kind(|price| price.output) }
    }

    /// Both together, for choosing the cheaper of two; `None` when one is not known.
    pub(crate) fn sum(self) -> Option<i128> {
        Some(self.input? + self.output?)
    }
}

/// All limits that bind one request, and what is sold.
#[derive(Clone, Debug)]
pub(crate) struct PriceRules {
    limits: [Option<(LimitLevel, PriceLimit)>; 3],
    sale: Option<EffectivePrice>,
}

impl PriceRules {
    /// No limit at all.
    pub(crate) const fn none() -> Self {
        Self { limits: [None; 3], sale: None }
    }

    /// The limits of group, key and request on an offer.
    pub(crate) fn new(caller: &Caller, offer: &Offer, request: Option<PriceLimit>, prompt_tokens: u64) -> Self {
        let levels = [
            (LimitLevel::Group, offer.group.price_limit),
            (LimitLevel::Key, caller.key.price_limit),
            (LimitLevel::Request, request),
        ];
        Self {
            limits: levels.map(|(level, limit)| limit.map(|limit| (level, limit))),
            sale: offer.sale.as_ref().map(|price| EffectivePrice::of(price, prompt_tokens, offer.group.sale_multiplier)),
        }
    }

    /// What excludes every candidate alike: limits on the sale price.
    pub(crate) fn sale_exclusion(&self) -> Option<Exclusion> {
        self.limits.iter().flatten().filter(|(_, limit)| limit.on == PriceLimitOn::Sale).find_map(|(level, limit)| {
            match limit.mode {
                PriceLimitMode::PricedOnly => self.sale.is_none().then_some(Exclusion::Unpriced),
                PriceLimitMode::Ceiling { .. } => ceiling(*level, limit, self.sale),
                PriceLimitMode::MinMargin(_) => None,
            }
        })
    }

    /// Whether a candidate's cost has to be looked at.
    pub(crate) fn looks_at_cost(&self) -> bool {
        self.limits.iter().flatten().any(|(_, limit)| looks_at_cost(limit))
    }

    /// What excludes a candidate of this cost.
    pub(crate) fn cost_exclusion(&self, cost: Option<EffectivePrice>) -> Option<Exclusion> {
        self.limits.iter().flatten().filter(|(_, limit)| looks_at_cost(limit)).find_map(|(level, limit)| match limit.mode {
            PriceLimitMode::PricedOnly => cost.is_none().then_some(Exclusion::Unpriced),
            PriceLimitMode::Ceiling { .. } => ceiling(*level, limit, cost),
            PriceLimitMode::MinMargin(least) => margin(self.sale, cost, least),
        })
    }
}

fn looks_at_cost(limit: &PriceLimit) -> bool {
    limit.on == PriceLimitOn::Cost || matches!(limit.mode, PriceLimitMode::MinMargin(_))
}

fn ceiling(level: LimitLevel, limit: &PriceLimit, price: Option<EffectivePrice>) -> Option<Exclusion> {
    let PriceLimitMode::Ceiling { max_input, max_output } = limit.mode else { return None };
    let bounds = [
        (PriceKind::Input, max_input, price.and_then(|it| it.input)),
        (PriceKind::Output, max_output, price.and_then(|it| it.output)),
    ];
    bounds.into_iter().find_map(|(kind, bound, price)| {
        let bound = bound?;
        let Some(price) = price else { return Some(Exclusion::Unpriced) };
        (price > i128::from(bound) * SCALE).then(|| {
            let price = i64::try_from((price + SCALE / 2).div_euclid(SCALE)).unwrap_or(i64::MAX);
            Exclusion::PriceAboveLimit(PriceFigures { level, on: limit.on, kind, limit: bound, price })
        })
    })
}

/// `(sale − cost) / sale ≥ least` without dividing: a free sale passes where the cost is nothing too and no more is asked.
fn margin(sale: Option<EffectivePrice>, cost: Option<EffectivePrice>, least: i64) -> Option<Exclusion> {
    let kept = |sale: Option<i128>, cost: Option<i128>| {
        let (sale, cost) = (sale?, cost?);
        // Prices are below 2^126 in this scale; saturation decides the same way.
        Some((sale - cost).saturating_mul(SCALE) >= sale.saturating_mul(i128::from(least)))
    };
    let (Some(sale), Some(cost)) = (sale, cost) else { return Some(Exclusion::Unpriced) };
    match (kept(sale.input, cost.input), kept(sale.output, cost.output)) {
        (Some(true), Some(true)) => None,
        (None, _) | (_, None) => Some(Exclusion::Unpriced),
        (Some(_), Some(_)) => Some(Exclusion::Margin),
    }
}

#[cfg(test)]
mod tests;
