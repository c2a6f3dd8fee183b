//! Explains the amounts of a usage record: unit prices and tier from the history of prices, the multipliers in the record, and the lines
//! of the bill. A record does not say which separately priced options (service tiers, tools, media) its request had. They are found by
//! trying which options give the recorded amount. If none does, or several do with different figures, nothing is shown, so that no figure
//! is ever wrong.

use serde_json::{Value, json};
use tollgate_core::{Multiplier, NanoUsd, Price, PriceLines, PricedOptions, Revision, Tokens, UsageRecord, price_lines};
use tollgate_protocol::ServiceTier;
use tollgate_store::{
    PriceHistoryFilter, PriceHistoryPosition,
    fields::{Kind, Object},
};

use crate::{
    api::{
        prices::{LINE_FIELDS, show_lines},
        request_context::RequestContext,
        schema::{join, read},
    },
    api_error::ApiError,
};

static LINES: Object = Object::of(
    "RecordedPriceLines",
    &join::<{ LINE_FIELDS.len() + 2 }>(&[
        LINE_FIELDS,
        &[
            read("options", Kind::List { of: &Kind::Word(OPTIONS), max: 3 }, "Options of the request that are in the unit prices."),
            read(
                "service_tier_factor",
                Kind::Factor { max: i64::MAX },
                "Factor of the service tier in them; null: the usual tier.",
            )
            .or_null(),
        ],
    ]),
);
const OPTIONS: &[&str] = &["priority", "flex", "server_tools", "output_media"];
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

/// The price of the record's model when it was settled: the sale price, or the cost on a channel.
async fn price(context: &RequestContext, record: &UsageRecord, channel: Option<&str>) -> Result<Option<Price>, ApiError> {
    let Some(model) = &record.model else { return Ok(None) };
    let before = PriceHistoryPosition { revision: Revision(record.price_version.0.saturating_add(1)), position: i64::MIN };
    let filter = PriceHistoryFilter {
        model: Some(model.to_string()),
        channel: channel.map(str::to_owned),
        before: Some(before),
        limit: MAX_CHANGES,
    };
    let changes = context.with_query_timeout(context.state.store.listing.price_history(&filter)).await?;
    // Without a channel the changes are those of all prices of the model.
    let change = changes.into_iter().map(|(_, change)| change).find(|change| change.channel.as_deref() == channel);
    Ok(change.and_then(|change| change.after).and_then(|prices| prices.at(record.at).cloned()))
}

/// The lines that add up to an amount; null if the prices do not.
fn lines(price: Option<&Price>, multiplier: Multiplier, tokens: &Tokens, amount: Option<NanoUsd>) -> Value {
    let Some(price) = price else { return Value::Null };
    let adds_up = |priced: &PriceLines| priced.total().is_some() && priced.total() == amount && priced.charged().next().is_some();
    let lists = price.with_options().map(|(options, list)| (options, price_lines(tokens, &list, multiplier)));
    let mut fitting = lists.filter(|(_, priced)| adds_up(priced));
    let Some((options, priced)) = fitting.next() else { return Value::Null };
    // The options are known only if no other options explain the amount with different lines.
    let differs = |(other, lines): (PricedOptions, PriceLines)| other.tier != options.tier || !lines.charged().eq(priced.charged());
    if options != PricedOptions::default() && fitting.any(differs) {
        return Value::Null;
    }
    let mut shown = show_lines(&priced);
    shown["options"] = words(options).into();
    shown["service_tier_factor"] = options.tier.map(|(_, factor)| factor.to_decimal()).into();
    shown
}

fn words(options: PricedOptions) -> Vec<&'static str> {
    let tier = options.tier.and_then(|(tier, _)| match tier {
        ServiceTier::Priority => Some("priority"),
        ServiceTier::Flex => Some("flex"),
        ServiceTier::Standard | ServiceTier::Other => None,
    });
    let tools = options.server_tools.then_some("server_tools");
    tier.into_iter().chain(tools).chain(options.output_media.then_some("output_media")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn price_lines_that_do_not_add_up_to_the_amount_are_not_shown() {
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

    #[test]
    fn price_lines_apply_service_tiers_and_tool_prices() {
        let price = Price {
            input: Some(1_000_000_000),
            priority: Some(Multiplier(2_000_000)),
            flex: Some(Multiplier(500_000)),
            server_tools: Some(7_000),
            ..Price::free()
        };
        let tokens = Tokens { input: 30, ..Tokens::default() };
        let of = |amount| lines(Some(&price), Multiplier(1_500_000), &tokens, Some(NanoUsd(amount)));
        let options = |amount| of(amount)["options"].clone();
        assert_eq!([45_000, 90_000, 22_500].map(options), [json!([]), json!(["priority"]), json!(["flex"])]);
        assert_eq!(options(90_000 + 21_000), json!(["priority", "server_tools"]));
        let alike = Price { flex: Some(Multiplier(2_000_000)), ..price.clone() };
        let of_alike = |amount| lines(Some(&alike), Multiplier(1_500_000), &tokens, Some(NanoUsd(amount)));
        assert_eq!((of_alike(90_000), &of_alike(45_000)["options"]), (Value::Null, &json!([])), "either tier costs this");
        let flex = of(22_500);
        assert_eq!((&flex["service_tier_factor"], &flex["multiplier"]), (&json!("0.5"), &json!("1.5")));
        assert_eq!(flex["lines"][0]["unit_price"], "0.50");
    }
}
