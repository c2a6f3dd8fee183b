//! Prices as the admin API answers them, and as pages show them.

use serde::Deserialize;
use serde_json::Value;
use tollgate_core::percent_down;

use crate::pages::{
    channels::explain_detail,
    format::{self, TimeText},
    locale::Locale,
    price_text::{self, PriceFigure},
};

/// Prices of a model.
#[derive(Debug, Deserialize)]
pub(super) struct PricesObject {
    pub(super) model: String,
    /// One, a list over time, or null.
    pub(super) price: Value,
    pub(super) warning: Option<String>,
    pub(super) source: Option<String>,
    pub(super) imported_at: Option<String>,
    pub(super) sale_multiplier: String,
    pub(super) served_by: Vec<CostObject>,
}

#[derive(Debug, Deserialize)]
pub(super) struct CostObject {
    pub(super) channel: String,
    pub(super) upstream: String,
    pub(super) cost: Value,
    pub(super) source: Option<String>,
    pub(super) cost_multiplier: String,
    pub(super) margin_input: Option<String>,
    pub(super) margin_output: Option<String>,
    pub(super) below_cost: Option<String>,
}

/// Cost of a model on a channel, and the margin.
#[derive(Debug)]
pub(super) struct CostRow {
    pub(super) channel: String,
    pub(super) upstream: String,
    pub(super) cost: String,
    /// The same after the factor.
    pub(super) effective: String,
    pub(super) is_known: bool,
    pub(super) multiplier: String,
    pub(super) source: String,
    pub(super) margin: String,
    pub(super) is_negative: bool,
    pub(super) below_cost: Option<String>,
}

impl CostRow {
    pub(super) fn of(t: Locale, cost: &CostObject, now: &str) -> Self {
        let in_force = price_text::in_force(&cost.cost, now);
        let margin = |share: Option<&String>| share.map_or_else(|| "–".to_owned(), |share| percent(share));
        Self {
            channel: cost.channel.clone(),
            upstream: cost.upstream.clone(),
            is_known: in_force.is_some(),
            effective: in_force.map_or_else(
                || t.say("pricing.cost_unknown").to_owned(),
                |price| short(t, &price_text::times(price, &cost.cost_multiplier)),
            ),
            cost: in_force.map_or_else(|| t.say("pricing.cost_unknown").to_owned(), |price| short(t, price)),
            multiplier: cost.cost_multiplier.clone(),
            source: cost.source.clone().unwrap_or_else(|| t.say("pricing.by_hand").to_owned()),
            is_negative: [&cost.margin_input, &cost.margin_output].into_iter().flatten().any(|share| share.starts_with('-')),
            margin: format!("{} / {}", margin(cost.margin_input.as_ref()), margin(cost.margin_output.as_ref())),
            below_cost: cost.below_cost.as_deref().and_then(|detail| explain_detail::say(t, "below_cost", detail)),
        }
    }
}

/// A share as the admin API writes it, in percent with one decimal.
pub(super) fn percent(share: &str) -> String {
    let percent = percent_down(share.parse().unwrap_or(0.0));
    let sign = if percent < 0.0 { "−" } else { "" };
    format!("{sign}{:.1} %", percent.abs())
}

/// Input and output of a price as people compare them.
pub(super) fn short(t: Locale, price: &Value) -> String {
    if price["free"] == true {
        return t.say("price.free").to_owned();
    }
    match (price["input"].as_str(), price["output"].as_str()) {
        (Some(input), Some(output)) => format!("{} / {}", format::usd(input), format::usd(output)),
        _ => price_text::sentence(t, price),
    }
}

/// Maximum number of channels in a row; the page of the model has all.
const CHANNELS: usize = 3;

#[derive(Debug)]
pub(super) struct PriceRow {
    pub(super) model: String,
    /// As a query.
    pub(super) link: String,
    /// Of the group; 1 without one.
    pub(super) multiplier: String,
    pub(super) is_priced: bool,
    pub(super) is_free: bool,
    /// Input, output, cached.
    pub(super) figures: [Option<String>; 3],
    pub(super) has_tiers: bool,
    pub(super) changes_at: Option<TimeText>,
    pub(super) source: String,
    pub(super) imported_at: Option<TimeText>,
    pub(super) costs: Vec<CostRow>,
    pub(super) more: usize,
    pub(super) is_below_cost: bool,
    /// Whether the price has no figure for output.
    pub(super) has_no_output: bool,
    /// The first kind of token that sells below its cost.
    pub(super) below_cost: Option<String>,
}

impl PriceRow {
    pub(super) fn of(t: Locale, prices: &PricesObject, now: &str) -> Self {
        let base = price_text::in_force(&prices.price, now);
        let sale = base.map(|price| price_text::times(price, &prices.sale_multiplier));
        let figure = |kind: &str| sale.as_ref().and_then(|sale| sale[kind].as_str()).map(format::usd);
        let is_later = |entry: &&Value| entry["valid_from"].as_str().is_some_and(|from| price_text::is_after(from, now));
        let entries = price_text::entries(&prices.price);
        let mut costs: Vec<CostRow> = prices.served_by.iter().map(|cost| CostRow::of(t, cost, now)).collect();
        costs.sort_by_key(|cost| cost.below_cost.is_none());
        Self {
            model: prices.model.clone(),
            link: model_query(&prices.model),
            multiplier: prices.sale_multiplier.clone(),
            is_priced: sale.is_some(),
            is_free: sale.as_ref().is_some_and(|sale| sale["free"] == true),
            figures: ["input", "output", "cache_read"].map(figure),
            has_tiers: base.is_some_and(|price| price["tiers"].is_array()),
            changes_at: entries.iter().find(is_later).and_then(|entry| format::time(t, entry["valid_from"].as_str()?)),
            source: prices.source.clone().unwrap_or_else(|| t.say("pricing.by_hand").to_owned()),
            imported_at: prices.imported_at.as_deref().and_then(|at| format::time(t, at)),
            below_cost: costs.iter().find_map(|cost| cost.below_cost.clone()),
            is_below_cost: costs.iter().any(|cost| cost.below_cost.is_some()),
            has_no_output: prices.warning.is_some(),
            more: costs.len().saturating_sub(CHANNELS),
            costs: costs.into_iter().take(CHANNELS).collect(),
        }
    }
}

/// A price as lines, for lists of entries.
#[derive(Debug)]
pub(super) struct EntryRow {
    pub(super) index: usize,
    pub(super) from: Option<TimeText>,
    pub(super) lines: Vec<PriceFigure>,
    pub(super) is_in_force: bool,
    pub(super) is_chosen: bool,
}

/// The query that names a model.
pub(in crate::pages) fn model_query(model: &str) -> String {
    url::form_urlencoded::Serializer::new(String::new()).append_pair("model", model).finish()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn row_shows_the_multiplied_price_and_lists_below_cost_channels_first() {
        let prices: PricesObject = serde_json::from_value(json!({
            "model": "a/b", "price": [{"input": "1", "output": "2"}, {"valid_from": "2030-01-01T00:00:00Z", "input": "3"}],
            "source": null, "imported_at": null, "sale_multiplier": "0.5", "served_by": [
                {"channel": "good", "upstream": "u", "cost": {"input": "0.1", "output": "0.2"}, "source": "list", "imported_at": null,
                 "cost_multiplier": "1", "margin_input": "0.8", "margin_output": "0.8", "below_cost": null},
                {"channel": "bad", "upstream": "u", "cost": {"input": "1", "output": "0.2"}, "source": null, "imported_at": null,
                 "cost_multiplier": "1.1", "margin_input": "-1", "margin_output": null, "below_cost": "input sells for 0.50 and costs 1.10 USD per 1M tokens"},
            ],
        }))
        .unwrap();
        let row = PriceRow::of(Locale::EN, &prices, "2026-01-01T00:00:00Z");
        assert_eq!(row.figures, [Some("$0.50".to_owned()), Some("$1.00".to_owned()), None]);
        assert_eq!((row.costs[0].channel.as_str(), row.costs[0].margin.as_str()), ("bad", "−100.0 % / –"));
        let chinese = PriceRow::of(Locale::ZH_CN, &prices, "2026-01-01T00:00:00Z").below_cost.unwrap();
        assert!(chinese.contains("1.10") && !chinese.contains("sells"), "{chinese}");
        assert!(row.is_below_cost && row.changes_at.is_some() && row.link == "model=a%2Fb" && row.source == "by hand");
    }
}
