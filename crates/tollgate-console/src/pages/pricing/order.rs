//! The orders of the list of prices.

use std::cmp::{Ordering, Reverse};

use serde_json::Value;
use tollgate_core::NanoUsd;

use super::{filter, view::PricesObject};
use crate::{
    api_error::ApiError,
    pages::{
        list_order::{READ, whole},
        locale::Locale,
        operations, price_text,
        request::{ApiPage, PageRequest, get},
    },
};

pub(super) const SORTS: [&str; 3] = ["input", "output", "margin"];

/// The orders with their labels, that of names first.
pub(super) fn labels(t: Locale) -> [(&'static str, &'static str); 4] {
    [("", t.say("sort.name")), ("input", t.say("sort.input")), ("output", t.say("sort.output")), ("margin", t.say("sort.margin"))]
}

/// A page of the filter in the order of the admin API.
pub(super) async fn page(request: &PageRequest, limit: &str, after: Option<&str>) -> Result<ApiPage<PricesObject>, ApiError> {
    let mut query = filter(&request.query);
    query.push(("limit", limit));
    query.extend(after.map(|after| ("after", after)));
    request.read(operations::LIST_PRICES, get(&query)).await
}

/// All models of the filter in another order; `None` if there are too many.
pub(super) async fn sorted(request: &PageRequest, now: &str, by: &str) -> Result<Option<Vec<PricesObject>>, ApiError> {
    let read = whole(|after: Option<String>| async move { page(request, READ, after.as_deref()).await }).await?;
    Ok(read.map(|models| sort(models, now, by)))
}

/// Prices are in descending order, margins in ascending order; models without one come last.
fn sort(mut models: Vec<PricesObject>, now: &str, by: &str) -> Vec<PricesObject> {
    if by != "margin" {
        models.sort_by_cached_key(|model| Reverse(price(model, now, by)));
        return models;
    }
    let mut with_margins: Vec<(Option<f64>, PricesObject)> = models.into_iter().map(|model| (margin(&model), model)).collect();
    with_margins.sort_by(|(one, _), (other, _)| match (one, other) {
        (Some(one), Some(other)) => one.total_cmp(other),
        (None, None) => Ordering::Equal,
        (one, other) => other.is_some().cmp(&one.is_some()),
    });
    with_margins.into_iter().map(|(_, model)| model).collect()
}

/// A figure of the price in force, after the multiplier.
fn price(model: &PricesObject, now: &str, kind: &str) -> Option<i64> {
    let price: &Value = price_text::in_force(&model.price, now)?;
    if price["free"] == true {
        return Some(0);
    }
    let price = price_text::times(price, &model.sale_multiplier);
    NanoUsd::parse(price[kind].as_str()?).ok().map(|amount| amount.0)
}

/// The lowest margin on any channel.
fn margin(model: &PricesObject) -> Option<f64> {
    let of_each = model.served_by.iter().flat_map(|cost| [&cost.margin_input, &cost.margin_output]);
    of_each.flatten().filter_map(|share| share.parse().ok()).min_by(f64::total_cmp)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn model(name: &str, price: &Value, margins: &[(&str, Option<&str>)]) -> PricesObject {
        let costs: Vec<Value> = margins
            .iter()
            .map(|(input, output)| {
                json!({"channel": "c", "upstream": "u", "cost": {"input": "1"}, "source": null, "cost_multiplier": "1",
                    "margin_input": input, "margin_output": output, "below_cost": null})
            })
            .collect();
        serde_json::from_value(json!({"model": name, "price": price, "warning": null, "source": null, "imported_at": null,
            "sale_multiplier": "0.5", "served_by": costs}))
        .unwrap()
    }

    #[test]
    fn prices_are_sorted_by_figure_and_by_lowest_margin() {
        let by = |word: &str| {
            let models = vec![
                model("cheap", &json!({"input": "0.9", "output": "4"}), &[("0.5", Some("0.1"))]),
                model("dear", &json!([{"input": "10"}, {"valid_from": "2030-01-01T00:00:00Z", "input": "0.1"}]), &[("0.6", None)]),
                model("free", &json!({"free": true}), &[("0.9", Some("0.9")), ("-2.5", None)]),
                model("unpriced", &Value::Null, &[]),
            ];
            sort(models, "2026-01-01T00:00:00Z", word).into_iter().map(|model| model.model).collect::<Vec<_>>()
        };
        assert_eq!(by("input"), ["dear", "cheap", "free", "unpriced"]);
        assert_eq!(by("output"), ["cheap", "free", "dear", "unpriced"]);
        assert_eq!(by("margin"), ["free", "cheap", "dear", "unpriced"]);
        let labelled: Vec<&str> = labels(Locale::EN).iter().map(|(word, _)| *word).skip(1).collect();
        assert_eq!(labelled, SORTS);
    }
}
