//! Every mode on both prices, with exact bounds.

use std::sync::Arc;

use super::*;
use crate::{
    Glob, Group, Key, Member, Model, ModelSpec, PriceTier, SaleMultipliers, Window,
    samples::{NOW, catalog, channel, group, key, member, model, price, summary},
};
use tollgate_protocol::{Method, Protocol};

fn ceiling_of(max_input: Option<&str>, max_output: Option<&str>, on: PriceLimitOn) -> PriceLimit {
    let bound = |text: Option<&str>| text.map(|text| parse_usd(text).unwrap());
    PriceLimit { mode: PriceLimitMode::Ceiling { max_input: bound(max_input), max_output: bound(max_output) }, on }
}

fn usd(text: &str) -> i64 {
    parse_usd(text).unwrap()
}

/// A caller with this key limit, and the offer of a model with this price and group limit.
fn setting(sale: Option<Price>, group_limit: Option<PriceLimit>, key_limit: Option<PriceLimit>) -> (Caller, Offer) {
    let group = Group { price_limit: group_limit, multipliers: Multiplier(2_000_000).into(), ..group("default", &["c"]) };
    let row = Model { spec: ModelSpec { price: sale.map(crate::samples::always), ..model("m").spec }, ..model("m") };
    let catalog = catalog(vec![channel("c", &["m"])], vec![group], vec![row]);
    let caller = Caller::of(&catalog, Arc::new(Key { price_limit: key_limit, ..key(&[]) }));
    let offer = crate::resolve(&catalog, &caller, &summary("m", Method::Chat), Protocol::OpenAi, NOW).unwrap();
    (caller, offer)
}

/// A request with an answer.
const fn tokens(prompt_tokens: u64) -> PriceBasis {
    PriceBasis { prompt_tokens, has_output: true }
}

fn rules(sale: Option<Price>, limit: PriceLimit) -> PriceRules {
    let (caller, offer) = setting(sale, Some(limit), None);
    PriceRules::new(&caller, &offer, None, tokens(100))
}

fn cost(input: &str, output: &str) -> EffectivePrice {
    EffectivePrice::of(&price(input, output), tokens(100), Multiplier::ONE)
}

#[test]
fn ceiling_is_inclusive_and_applies_after_the_multiplier() {
    // The group doubles the price: 0.75 becomes 1.5.
    let check = |max_input, max_output| {
        rules(Some(price("0.75", "3")), ceiling_of(max_input, max_output, PriceLimitOn::Sale)).sale_exclusion()
    };
    assert_eq!(check(Some("1.5"), Some("6")), None);
    assert_eq!(check(None, None), None, "absent bounds do not bind");
    let above = |kind, limit, price| {
        Some(Exclusion::PriceAboveLimit(PriceFigures { level: LimitLevel::Group, on: PriceLimitOn::Sale, kind, limit, price }))
    };
    assert_eq!(check(Some("1.499999999"), None), above(PriceKind::Input, usd("1.499999999"), usd("1.5")));
    assert_eq!(check(None, Some("5")), above(PriceKind::Output, usd("5"), usd("6")));
}

#[test]
fn embeddings_need_no_price_of_output() {
    let of_input = || Some(Price { input: Some(usd("0.02")), ..Price::default() });
    let limits = [ceiling_of(Some("1"), Some("5"), PriceLimitOn::Sale), ceiling_of(Some("1"), Some("5"), PriceLimitOn::Cost)];
    let margin = PriceLimit { mode: PriceLimitMode::MinMargin(100_000), on: PriceLimitOn::Sale };
    for limit in limits.into_iter().chain([margin]) {
        let (caller, offer) = setting(of_input(), Some(limit), None);
        let check = |has_output| {
            let basis = PriceBasis { prompt_tokens: 100, has_output };
            let rules = PriceRules::new(&caller, &offer, None, basis);
            let cost = EffectivePrice::of(&of_input().unwrap(), basis, Multiplier::ONE);
            rules.sale_exclusion().or(rules.cost_exclusion(Some(cost)))
        };
        assert_eq!(check(false), None, "{limit:?}");
        assert!(matches!(check(true), Some(Exclusion::Unpriced(_))), "{limit:?}");
    }
}

#[test]
fn ceiling_is_compared_before_rounding() {
    let (caller, mut offer) = setting(Some(Price { input: Some(1), ..Price::default() }), None, None);
    offer.sale_multiplier = Multiplier(1_400_000);
    let limit = PriceLimit { mode: PriceLimitMode::Ceiling { max_input: Some(1), max_output: None }, on: PriceLimitOn::Sale };
    assert!(PriceRules::new(&caller, &offer, Some(limit), tokens(1)).sale_exclusion().is_some());
}

#[test]
fn ceilings_are_compared_with_the_price_after_the_factor_of_the_model() {
    let multipliers = SaleMultipliers::new(Multiplier::ONE, [(Glob("dear-*".to_owned()), Multiplier(3_000_000))]);
    let limited =
        Group { multipliers, price_limit: Some(ceiling_of(Some("2"), None, PriceLimitOn::Sale)), ..group("default", &["c"]) };
    let rows = vec![model("cheap-1"), model("dear-1")];
    let catalog = catalog(vec![channel("c", &["cheap-1", "dear-1"])], vec![limited], rows);
    let caller = Caller::of(&catalog, Arc::new(key(&[])));
    let excluded = |name: &str| {
        let offer = crate::resolve(&catalog, &caller, &summary(name, Method::Chat), Protocol::OpenAi, NOW).unwrap();
        PriceRules::new(&caller, &offer, None, tokens(100)).sale_exclusion()
    };
    assert_eq!(excluded("cheap-1"), None);
    assert!(matches!(excluded("dear-1"), Some(Exclusion::PriceAboveLimit(figures)) if figures.price == usd("3")));
}

#[test]
fn missing_price_fails_a_ceiling_on_its_kind() {
    let half = Price { output: None, ..price("1", "1") };
    assert_eq!(rules(Some(half.clone()), ceiling_of(Some("9"), None, PriceLimitOn::Sale)).sale_exclusion(), None);
    let excluded = Some(Exclusion::Unpriced(MissingPrice::SaleForPriceLimit));
    let missing_cost = Some(Exclusion::Unpriced(MissingPrice::CostForPriceLimit));
    assert_eq!(rules(Some(half), ceiling_of(None, Some("9"), PriceLimitOn::Sale)).sale_exclusion(), excluded);
    assert_eq!(rules(None, ceiling_of(Some("9"), None, PriceLimitOn::Sale)).sale_exclusion(), excluded);
    assert_eq!(rules(None, ceiling_of(Some("9"), None, PriceLimitOn::Cost)).cost_exclusion(None), missing_cost);
}

#[test]
fn priced_only_requires_the_named_price() {
    let on = |on| PriceLimit { mode: PriceLimitMode::PricedOnly, on };
    assert_eq!(rules(None, on(PriceLimitOn::Sale)).sale_exclusion(), Some(Exclusion::Unpriced(MissingPrice::SaleForPriceLimit)));
    assert_eq!(rules(Some(Price::free()), on(PriceLimitOn::Sale)).sale_exclusion(), None);
    assert_eq!(rules(None, on(PriceLimitOn::Cost)).sale_exclusion(), None);
    assert_eq!(
        rules(None, on(PriceLimitOn::Cost)).cost_exclusion(None),
        Some(Exclusion::Unpriced(MissingPrice::CostForPriceLimit))
    );
    assert_eq!(rules(None, on(PriceLimitOn::Cost)).cost_exclusion(Some(cost("1", "1"))), None);
}

#[test]
fn margin_applies_to_input_and_output() {
    // Sale prices of 1 and 2 USD, doubled by the group to 2 and 4.
    let limit = PriceLimit { mode: PriceLimitMode::MinMargin(200_000), on: PriceLimitOn::Sale };
    let check = |cost| rules(Some(price("1", "2")), limit).cost_exclusion(cost);
    assert_eq!(check(Some(cost("1.6", "3.2"))), None, "exactly 20 % is enough");
    assert_eq!(check(Some(cost("1.600000001", "3.2"))), Some(Exclusion::Margin));
    assert_eq!(check(Some(cost("1.6", "3.21"))), Some(Exclusion::Margin));
    assert_eq!(check(None), Some(Exclusion::Unpriced(MissingPrice::CostForPriceLimit)));
    assert_eq!(rules(None, limit).cost_exclusion(Some(cost("1", "1"))), Some(Exclusion::Unpriced(MissingPrice::SaleForPriceLimit)));
}

#[test]
fn free_sale_passes_a_margin_only_at_zero_cost() {
    let limit = PriceLimit { mode: PriceLimitMode::MinMargin(0), on: PriceLimitOn::Sale };
    let check = |cost| rules(Some(Price::free()), limit).cost_exclusion(cost);
    assert_eq!(check(Some(cost("0", "0"))), None);
    assert_eq!(check(Some(cost("0.01", "0"))), Some(Exclusion::Margin));
}

#[test]
fn all_levels_apply_and_the_first_failing_is_named() {
    let tight = ceiling_of(Some("1"), None, PriceLimitOn::Sale);
    let wide = ceiling_of(Some("9"), None, PriceLimitOn::Sale);
    let level = |group, key, request| {
        let (caller, offer) = setting(Some(price("1", "1")), group, key);
        match PriceRules::new(&caller, &offer, request, tokens(1)).sale_exclusion() {
            Some(Exclusion::PriceAboveLimit(figures)) => Some(figures.level),
            other => {
                assert_eq!(other, None);
                None
            }
        }
    };
    assert_eq!(level(Some(wide), Some(wide), Some(wide)), None);
    assert_eq!(level(Some(tight), Some(tight), Some(tight)), Some(LimitLevel::Group));
    assert_eq!(level(Some(wide), Some(tight), None), Some(LimitLevel::Key));
    assert_eq!(level(None, None, Some(tight)), Some(LimitLevel::Request));
}

#[test]
fn long_prompts_use_their_tiers_price() {
    let tier = PriceTier { above: 1_000, price: Price { input: Some(usd("5")), ..Price::default() } };
    let tiered = Price { tiers: vec![tier], ..price("1", "2") };
    let limit = ceiling_of(Some("4"), Some("4"), PriceLimitOn::Sale);
    let (caller, offer) = setting(Some(tiered), Some(limit), None);
    assert_eq!(PriceRules::new(&caller, &offer, None, tokens(1_000)).sale_exclusion(), None);
    assert!(PriceRules::new(&caller, &offer, None, tokens(1_001)).sale_exclusion().is_some());
}

#[test]
fn only_cost_limits_and_margins_apply_to_cost() {
    let on_sale = ceiling_of(Some("4"), None, PriceLimitOn::Sale);
    assert!(!rules(None, on_sale).applies_to_cost());
    assert!(rules(None, ceiling_of(Some("4"), None, PriceLimitOn::Cost)).applies_to_cost());
    assert!(rules(None, PriceLimit { mode: PriceLimitMode::MinMargin(1), on: PriceLimitOn::Sale }).applies_to_cost());
}

#[test]
fn money_is_limited_by_prepaid_members_and_blocking_budgets() {
    let (caller, offer) = setting(None, None, None);
    let of = |key: Key, group: Group| {
        money_is_bounded(
            &Caller { key: Arc::new(key), groups: caller.groups.clone() },
            &Offer { group: Arc::new(group), ..offer.clone() },
        )
    };
    let budget = |action| vec![Budget { amount: crate::NanoUsd(1), window: Window::Day, action }];
    let plain = || group("default", &[]);
    assert!(!of(key(&[]), plain()));
    assert!(of(Key { budgets: budget(BudgetAction::Block), ..key(&[]) }, plain()));
    assert!(!of(Key { budgets: budget(BudgetAction::Alert), ..key(&[]) }, plain()));
    assert!(of(Key { member: Member { billing: Billing::Prepaid, ..member() }, ..key(&[]) }, plain()));
    assert!(of(Key { member: Member { budgets: budget(BudgetAction::Block), ..member() }, ..key(&[]) }, plain()));
    assert!(of(key(&[]), Group { budgets: budget(BudgetAction::Block), ..plain() }));
}

#[test]
fn header_accepts_either_bound_in_any_order() {
    let ceiling = |input: Option<&str>, output: Option<&str>| Ok(ceiling_of(input, output, PriceLimitOn::Sale));
    assert_eq!(parse_max_price("input=1.5,output=6"), ceiling(Some("1.5"), Some("6")));
    assert_eq!(parse_max_price(" output = 6 , input = 1.5 "), ceiling(Some("1.5"), Some("6")));
    assert_eq!(parse_max_price("input:1.5, output:6"), ceiling(Some("1.5"), Some("6")), "as a catalog spells prices");
    assert_eq!(parse_max_price("input=0"), ceiling(Some("0"), None));
    for bad in
        ["", "input", "input=", "input=x", "input=-1", "cost=1", "input=1,input=2", "input=1,", "input=1;output=2", "input=1e3"]
    {
        assert_eq!(parse_max_price(bad), Err(InvalidMaxPrice), "{bad}");
        assert_eq!(parse_max_prices(["input=1", bad]), Err(InvalidMaxPrice), "{bad}");
    }
}

#[test]
fn lowest_bound_of_several_header_lines_applies() {
    let ceiling = |input: Option<&str>, output: Option<&str>| Ok(Some(ceiling_of(input, output, PriceLimitOn::Sale)));
    assert_eq!(parse_max_prices([]), Ok(None));
    assert_eq!(parse_max_prices(["input=2"]), ceiling(Some("2"), None));
    assert_eq!(parse_max_prices(["input=2", "input=1,output=9", "output=10"]), ceiling(Some("1"), Some("9")));
}
