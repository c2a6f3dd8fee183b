//! The list of prices as a file: all models of the filter, in its order, a line for each channel that serves one.

use std::sync::Arc;

use serde_json::Value;

use super::{
    order,
    view::{CostObject, PricesObject},
};
use crate::{
    api_error::ApiError,
    pages::{
        csv_file::{self, CsvLine, CsvList, optional, text},
        list_order::{ListOrder, READ},
        price_text,
        reply::{PageFailure, PageReply},
        request::{ApiPage, PageRequest},
    },
    time::rfc3339,
};

struct PriceList;

pub(super) async fn csv(request: Arc<PageRequest>) -> Result<PageReply, PageFailure> {
    csv_file::answer(request, PriceList).await
}

impl CsvList for PriceList {
    const FILE: &'static str = "prices.csv";
    const HEAD: &'static [&'static str] = &[
        "model",
        "multiplier",
        "input",
        "output",
        "cache_read",
        "source",
        "imported_at",
        "channel",
        "upstream",
        "cost_input",
        "cost_output",
        "cost_cache_read",
        "cost_multiplier",
        "cost_source",
        "margin_input",
        "margin_output",
        "below_cost",
    ];

    async fn page(&self, request: &PageRequest, after: Option<&str>) -> Result<ApiPage<CsvLine>, ApiError> {
        let now = rfc3339(request.state.gateway.now());
        if let Some(by) = ListOrder::of(request, &order::SORTS).chosen()
            && let Some(models) = order::sorted(request, &now, by).await?
        {
            return Ok(ApiPage { items: models.iter().flat_map(|prices| lines(prices, &now)).collect(), next: None });
        }
        let found = order::page(request, READ, after).await?;
        Ok(ApiPage { items: found.items.iter().flat_map(|prices| lines(prices, &now)).collect(), next: found.next })
    }
}

/// A line for each channel; one without a channel if none serves the model.
fn lines(prices: &PricesObject, now: &str) -> Vec<CsvLine> {
    let sale = price_text::in_force(&prices.price, now).map(|price| price_text::times(price, &prices.sale_multiplier));
    let mut model = vec![text(&prices.model), prices.sale_multiplier.clone()];
    model.extend(figures(sale.as_ref()));
    model.extend([text(prices.source.as_deref().unwrap_or_default()), optional(prices.imported_at.as_ref())]);
    let served = |cost: Option<&CostObject>| -> CsvLine { model.iter().cloned().chain(cost_cells(cost, now)).collect() };
    if prices.served_by.is_empty() {
        return vec![served(None)];
    }
    prices.served_by.iter().map(|cost| served(Some(cost))).collect()
}

/// USD per million tokens after multipliers: input, output, input read from a cache. 0 for a free model, empty without a price.
fn figures(price: Option<&Value>) -> [String; 3] {
    let is_free = price.is_some_and(|price| price["free"] == true);
    let figure = |kind| price.and_then(|price| price[kind].as_str()).map(str::to_owned);
    ["input", "output", "cache_read"].map(|kind| if is_free { "0".to_owned() } else { figure(kind).unwrap_or_default() })
}

fn cost_cells(cost: Option<&CostObject>, now: &str) -> Vec<String> {
    let Some(cost) = cost else { return vec![String::new(); 10] };
    let price = price_text::in_force(&cost.cost, now).map(|price| price_text::times(price, &cost.cost_multiplier));
    let mut cells = vec![text(&cost.channel), text(&cost.upstream)];
    cells.extend(figures(price.as_ref()));
    cells.extend([cost.cost_multiplier.clone(), text(cost.source.as_deref().unwrap_or_default())]);
    cells.extend([optional(cost.margin_input.as_ref()), optional(cost.margin_output.as_ref())]);
    cells.push(text(cost.below_cost.as_deref().unwrap_or_default()));
    cells
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_channel_of_a_model_is_a_line_and_prices_have_their_multipliers() {
        let served = |channel: &str| {
            json!({"channel": channel, "upstream": "=u", "cost": {"input": "0.1", "output": "0.2"}, "source": null,
            "imported_at": null, "cost_multiplier": "2", "margin_input": "-0.5", "margin_output": null, "below_cost": "input"})
        };
        let prices = |served_by: Value, price: Value| {
            let prices = json!({"model": "@m", "price": price, "warning": null, "source": "list", "imported_at": null,
                "sale_multiplier": "0.5", "served_by": served_by});
            lines(&serde_json::from_value(prices).unwrap(), "2026-01-01T00:00:00Z")
        };
        let both = prices(json!([served("a"), served("b")]), json!({"input": "1", "output": "2"}));
        assert_eq!(both.len(), 2);
        for (line, channel) in both.iter().zip(["a", "b"]) {
            assert_eq!(line.len(), PriceList::HEAD.len());
            assert_eq!(line[..5], ["'@m", "0.5", "0.50", "1.00", ""]);
            assert_eq!(line[7..], [channel, "'=u", "0.20", "0.40", "", "2", "", "-0.5", "", "input"]);
        }
        let alone = prices(json!([]), Value::Null);
        assert!(alone.len() == 1 && alone[0].len() == PriceList::HEAD.len() && alone[0][2].is_empty(), "{alone:?}");
        assert_eq!(prices(json!([]), json!({"free": true}))[0][2..5], ["0", "0", "0"]);
    }
}
