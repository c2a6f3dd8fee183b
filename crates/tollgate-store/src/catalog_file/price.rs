//! Money in the catalog file: prices with tiers and times, budgets, price limits.

use tollgate_core::{
    Budget, BudgetAction, Hedge, Multiplier, NanoUsd, Price, PriceLimit, PriceLimitMode, PriceLimitOn, PriceSchedule, PriceTier,
    ScheduledPrice, Window, parse_usd,
};

use super::reader::TableReader;

fn money(table: &TableReader<'_>, field: &'static str) -> Option<i64> {
    table.decimal(field, |text| parse_usd(text).map_err(|error| error.to_string()))
}

pub(super) fn multiplier(table: &TableReader<'_>, field: &'static str) -> Multiplier {
    table.decimal(field, |text| Multiplier::parse(text).map_err(|error| error.to_string())).unwrap_or_default()
}

/// The prices of a field: one table, or an array of tables with `valid_from`.
pub(super) fn schedule(table: &TableReader<'_>, field: &'static str) -> Option<PriceSchedule> {
    table.get(field)?;
    let prices = table.one_or_more(field, field);
    let entry = |table: &TableReader<'_>| {
        let price = ScheduledPrice { valid_from: table.time("valid_from"), price: price(table) };
        table.finish();
        price
    };
    Some(PriceSchedule(prices.iter().map(entry).collect()))
}

/// A free price: zero for every kind.
pub(super) fn free() -> Price {
    Price { input: Some(0), output: Some(0), ..Price::default() }
}

fn price(table: &TableReader<'_>) -> Price {
    let is_free = table.flag("free");
    let mut price = kinds(table);
    let tier = |table: &TableReader<'_>| {
        let above = table.whole::<u64>("above");
        if above.is_none() && table.get("above").is_none() {
            table.problem("a tier needs above: the number of prompt tokens it begins behind");
        }
        let tier = PriceTier { above: above.unwrap_or(0), price: kinds(table) };
        table.finish();
        tier
    };
    price.tiers = table.one_or_more("tiers", "a tier").iter().map(tier).collect();
    if is_free == Some(true) {
        if price != Price::default() {
            table.field_problem("free", "a free price has no other figures");
        }
        return free();
    }
    if price == Price::default() && table.is_sound() {
        table.problem("a price needs at least one figure (input, output, per_request …), or free = true");
    }
    price
}

fn kinds(table: &TableReader<'_>) -> Price {
    Price {
        input: money(table, "input"),
        output: money(table, "output"),
        cache_read: money(table, "cache_read"),
        cache_write: money(table, "cache_write"),
        thinking: money(table, "thinking"),
        image: money(table, "image"),
        audio: money(table, "audio"),
        per_request: money(table, "per_request"),
        tiers: Vec::new(),
    }
}

/// The budgets of a row: one table, or an array of them.
pub(super) fn budgets(table: &TableReader<'_>) -> Vec<Budget> {
    const WINDOWS: [(&str, Window); 3] = [("day", Window::Day), ("month", Window::Month), ("total", Window::Total)];
    const ACTIONS: [(&str, BudgetAction); 2] = [("block", BudgetAction::Block), ("alert", BudgetAction::Alert)];
    let budget = |table: &TableReader<'_>| {
        for field in ["amount", "window"] {
            if table.get(field).is_none() {
                table.problem(format!("a budget needs {field}"));
            }
        }
        let budget = Budget {
            amount: NanoUsd(money(table, "amount").unwrap_or(0)),
            window: table.word("window", &WINDOWS).unwrap_or(Window::Total),
            action: table.word("action", &ACTIONS).unwrap_or_default(),
        };
        table.finish();
        budget
    };
    table.one_or_more("budget", "a budget").iter().map(budget).collect()
}

/// When a group's late streams get a second attempt.
pub(super) fn hedge(table: &TableReader<'_>) -> Option<Hedge> {
    let table = table.table("hedge")?;
    if table.get("cost_cap").is_none() {
        table.problem("hedge needs cost_cap, what second attempts may cost in a day");
    }
    let cost_cap = money(&table, "cost_cap").map(NanoUsd);
    table.finish();
    Some(Hedge { cost_cap: cost_cap? })
}

#[derive(Clone, Copy)]
enum LimitMode {
    PricedOnly,
    Ceiling,
    MinMargin,
}

/// The price limit of a row.
pub(super) fn price_limit(table: &TableReader<'_>) -> Option<PriceLimit> {
    const MODES: [(&str, LimitMode); 3] =
        [("priced_only", LimitMode::PricedOnly), ("ceiling", LimitMode::Ceiling), ("min_margin", LimitMode::MinMargin)];
    const ON: [(&str, PriceLimitOn); 2] = [("sale", PriceLimitOn::Sale), ("cost", PriceLimitOn::Cost)];
    let table = table.table("price_limit")?;
    if table.get("mode").is_none() {
        table.problem("a price limit needs mode: priced_only, ceiling or min_margin");
    }
    let mode = match table.word("mode", &MODES) {
        Some(LimitMode::PricedOnly) => Some(PriceLimitMode::PricedOnly),
        Some(LimitMode::Ceiling) => {
            Some(PriceLimitMode::Ceiling { max_input: money(&table, "max_input"), max_output: money(&table, "max_output") })
        }
        Some(LimitMode::MinMargin) => {
            if table.get("min_margin").is_none() {
                table.problem("mode min_margin needs min_margin, a decimal between 0 and 1");
            }
            let margin = table.decimal("min_margin", |text| Multiplier::parse(text).map_err(|error| error.to_string()));
            margin.map(|margin| PriceLimitMode::MinMargin(margin.0))
        }
        None => {
            // The figures cannot be judged without a mode, but they are known fields.
            for field in ["max_input", "max_output", "min_margin"] {
                table.get(field);
            }
            None
        }
    };
    let on = table.word("on", &ON).unwrap_or_default();
    table.finish();
    mode.map(|mode| PriceLimit { mode, on })
}
