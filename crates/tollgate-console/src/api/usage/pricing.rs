//! How the amounts of a usage record come about: unit prices and tier from the history of prices, the multipliers that the record has,
//! and the lines. What does not add up to the recorded amount is not shown, so that no figure is ever wrong: options of a request
//! (service tiers, tools) have prices of their own.

use serde_json::{Value, json};
use tollgate_core::{Multiplier, NanoUsd, Price, Revision, Tokens, UsageRecord, price_lines};
use tollgate_store::{
    PriceHistoryFilter, PriceHistoryPosition,
    fields::{Kind, Object},
};

use crate::{
    api::{
        prices::{LINES, show_lines},
        request_context::RequestContext,
        schema::read,
    },
    api_error::ApiError,
};

pub(super) static PRICING: Object = Object::of(
    "Pricing",
    &[
        read("sale", Kind::Object(&LINES), "Lines of the sale amount; null if they are not known or nothing was charged.")
            .or_null(),
        read("cost", Kind::List { of: &Kind::Object(&COST), max: 100 }, "Lines of the cost of each attempt, in order."),
    ],
);
static COST: Object =
    Object::of("AttemptCost", &[read("lines", Kind::Object(&LINES), "Null if they are not known or nothing was used.").or_null()]);

/// Changes of a model's prices that are searched for those of a record.
const MAX_CHANGES: u32 = 200;

/// The lines of the record's amounts.
pub(super) async fn pricing(context: &RequestContext, record: &UsageRecord) -> Result<Value, ApiError> {
    let sale = price(context, record, None).await?;
    let mut costs = Vec::with_capacity(record.attempts.len());
    for attempt in &record.attempts {
        let cost = price(context, record, Some(&attempt.channel_name)).await?;
        costs.push(json!({"lines": lines(cost.as_ref(), attempt.cost_multiplier, &attempt.tokens, attempt.cost)}));
    }
    Ok(json!({"sale": lines(sale.as_ref(), record.sale_multiplier, &record.tokens, record.sale), "cost": costs}))
}

/// The price of the record's model when it was settled: the sale price, or what a channel's provider charged.
async fn price(context: &RequestContext, record: &UsageRecord, channel: Option<&str>) -> Result<Option<Price>, ApiError> {
    let Some(model) = &record.model else { return Ok(None) };
    let before = PriceHistoryPosition { revision: Revision(record.price_version.0.saturating_add(1)), position: i64::MIN };
    let filter =
        PriceHistoryFilter { model: model.clone(), channel: channel.map(str::to_owned), before: Some(before), limit: MAX_CHANGES };
    let changes = context.with_query_timeout(context.state.store.listing.price_history(&filter)).await?;
    // Without a channel the changes are those of all prices of the model.
    let change = changes.into_iter().map(|(_, change)| change).find(|change| change.channel.as_deref() == channel);
    Ok(change.and_then(|change| change.after).and_then(|prices| prices.at(record.at).cloned()))
}

/// The lines that add up to an amount; null if the prices do not.
fn lines(price: Option<&Price>, multiplier: Multiplier, tokens: &Tokens, amount: Option<NanoUsd>) -> Value {
    let Some(price) = price else { return Value::Null };
    let priced = price_lines(tokens, price, multiplier);
    if priced.total().is_none() || priced.total() != amount || priced.charged().next().is_none() {
        return Value::Null;
    }
    show_lines(&priced)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_that_give_another_amount_are_not_shown() {
        let price = Price { input: Some(1_000_000_000), ..Price::free() };
        let tokens = Tokens { input: 3, ..Tokens::default() };
        let of = |amount| lines(Some(&price), Multiplier::ONE, &tokens, amount);
        let shown = of(Some(NanoUsd(3_000)));
        assert_eq!((&shown["lines"][0]["kind"], &shown["lines"][0]["amount"]), (&json!("input"), &json!("0.000003")));
        assert_eq!([of(Some(NanoUsd(3_001))), of(None)], [Value::Null, Value::Null]);
        assert_eq!(lines(Some(&price), Multiplier(2_000_000), &tokens, Some(NanoUsd(3_000))), Value::Null, "another multiplier");
        assert_eq!(lines(Some(&price), Multiplier::ONE, &Tokens::default(), Some(NanoUsd::ZERO)), Value::Null, "nothing used");
        assert_eq!(lines(None, Multiplier::ONE, &tokens, Some(NanoUsd(3_000))), Value::Null);
    }
}
