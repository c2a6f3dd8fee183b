//! `price`: sale prices, costs and margins, their history, imports, and prices of requests.

mod import;
mod simulate;

use http::Method;
use serde_json::{Value, json};

use crate::{
    admin::{self, Admin, AdminRequest, ApiPath},
    cli::{Common, Price, PriceHistory},
    command::{model::price_at, resource::cell},
    compose,
    failure::Failure,
    output,
};

pub(crate) fn run(common: &Common, subcommand: Price) -> Result<(), Failure> {
    match subcommand {
        Price::List { group } => admin::run(common, async |admin| list(common, admin, group.as_deref()).await),
        Price::Set { model, price } => admin::run(common, async |admin| set(common, admin, &model.model, &price).await),
        Price::Import(arguments) => import::run(common, &arguments, arguments.dry_run),
        Price::Diff(arguments) => import::run(common, &arguments, true),
        Price::Simulate(arguments) => simulate::run(common, &arguments),
        Price::Unpriced => admin::run(common, async |admin| unpriced(common, admin).await),
        Price::History(arguments) => admin::run(common, async |admin| history(common, admin, &arguments).await),
    }
}

async fn list(common: &Common, admin: &Admin, group: Option<&str>) -> Result<(), Failure> {
    let models = admin.all(&ApiPath::of(&["prices"]).maybe("group", group)).await?;
    if common.json {
        output::json(&json!({"items": models}));
        return Ok(());
    }
    let now = crate::usage_format::time(compose::now());
    let mut rows = Vec::new();
    for model in &models {
        let sale = price_at(&model["price"], &now);
        let name = model["model"].as_str().unwrap_or_default().to_owned();
        let start =
            vec![name, figure(sale, "input", "not priced"), figure(sale, "output", "not priced"), source(model, &model["price"])];
        let channels = model["served_by"].as_array().map(Vec::as_slice).unwrap_or_default();
        if channels.is_empty() {
            rows.push([start.clone(), vec!["–".to_owned(); 6]].concat());
        }
        for channel in channels {
            let cost = price_at(&channel["cost"], &now);
            let below = channel["below_cost"].as_str().map_or_else(String::new, |below| format!("BELOW COST: {below}"));
            let end = vec![
                channel["channel"].as_str().unwrap_or_default().to_owned(),
                figure(cost, "input", "not known"),
                figure(cost, "output", "not known"),
                source(channel, &channel["cost"]),
                format!("{} / {}", percent(&channel["margin_input"]), percent(&channel["margin_output"])),
                below,
            ];
            rows.push([start.clone(), end].concat());
        }
    }
    let headings = ["model", "sale in", "out", "source", "channel", "cost in", "out", "source", "margin in / out", ""];
    output::table(&headings, &rows);
    let factors = if group.is_some() {
        "sale prices are shown before the group's multiplier of the model"
    } else {
        "margins are before a group's multiplier (--group)"
    };
    output::remark(&format!(
        "prices are USD per million tokens; {factors}, and after the highest cost multiplier of the channel's accounts"
    ));
    Ok(())
}

/// One kind of a price for a table.
fn figure(price: Option<&Value>, kind: &str, missing: &str) -> String {
    let Some(price) = price else { return missing.to_owned() };
    if price["free"] == true { "0.00".to_owned() } else { price[kind].as_str().unwrap_or("–").to_owned() }
}

/// The source of a price: a list, or "by hand".
fn source(of: &Value, price: &Value) -> String {
    if price.is_null() { "–".to_owned() } else { of["source"].as_str().unwrap_or("by hand").to_owned() }
}

/// A share such as `"0.1666"` in percent.
fn percent(share: &Value) -> String {
    let parsed = share.as_str().and_then(|share| share.parse::<f64>().ok());
    parsed.map_or_else(|| "–".to_owned(), |share| format!("{:.1} %", tollgate_core::percent_down(share)))
}

async fn set(common: &Common, admin: &Admin, model: &str, price: &str) -> Result<(), Failure> {
    let body = if price == "none" {
        json!({"price": null})
    } else {
        let parsed = tollgate_console::parse_field_args("set_price", &[format!("price={price}")]);
        Value::Object(parsed.map_err(|fault| Failure::Usage(fault.trim_end_matches('.').to_owned()))?)
    };
    let target = ApiPath::of(&["prices", model]);
    let answer = admin.send(AdminRequest::of(Method::PUT, &target, &body)).await?.body;
    let shown = short(&answer["price"]);
    output::result(common, &answer, &format!("the sale price of {model} is {shown}"));
    if let Some(warning) = answer["warning"].as_str() {
        output::remark(&format!("warning: {warning}"));
    }
    Ok(())
}

/// A price or a list of prices in one line: `input 0.30, output 2.40`.
pub(crate) fn short(price: &Value) -> String {
    match price {
        Value::Null => "not set".to_owned(),
        Value::Array(prices) => prices.iter().map(short).collect::<Vec<_>>().join("; "),
        Value::Object(kinds) if kinds.get("free") == Some(&Value::Bool(true)) => "free".to_owned(),
        Value::Object(kinds) => {
            let one = |(kind, value): (&String, &Value)| match value {
                Value::Array(tiers) => tiers.iter().map(|tier| format!("{kind}: {}", short(tier))).collect::<Vec<_>>().join(", "),
                Value::String(figure) => format!("{} {figure}", kind.replace("valid_from", "from")),
                Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => format!("{kind} {value}"),
            };
            kinds.iter().map(one).collect::<Vec<_>>().join(", ")
        }
        Value::Bool(_) | Value::Number(_) | Value::String(_) => price.to_string(),
    }
}

async fn history(common: &Common, admin: &Admin, arguments: &PriceHistory) -> Result<(), Failure> {
    let target = ApiPath::of(&["prices", &arguments.model.model, "history"])
        .with("limit", &arguments.limit.to_string())
        .maybe("channel", arguments.channel.as_deref());
    let (items, _) = admin.page(&target).await?;
    if items.is_empty() {
        let model = &arguments.model.model;
        let (models, _) = admin.page(&ApiPath::of(&["prices"]).with("model", model)).await?;
        if models.is_empty() {
            return Err(Failure::Machine(format!("there is no model '{model}'; `tollgate price list` shows them")));
        }
    }
    let row = |change: &Value| {
        let text = |member: &str| change[member].as_str().unwrap_or_default().to_owned();
        let price = change["channel"].as_str().map_or_else(|| "sale".to_owned(), |channel| format!("cost of {channel}"));
        vec![
            text("at"),
            text("actor"),
            text("origin"),
            price,
            source(change, &json!({})),
            short(&change["before"]),
            short(&change["after"]),
        ]
    };
    let headings = ["at", "who", "origin", "price", "source", "before", "after"];
    output::list(common, &items, &headings, &items.iter().map(row).collect::<Vec<_>>());
    Ok(())
}

async fn unpriced(common: &Common, admin: &Admin) -> Result<(), Failure> {
    let (items, _) = admin.page(&ApiPath::of(&["prices", "unpriced"])).await?;
    let row = |item: &Value| {
        let month = &item["last_30_days"];
        vec![
            cell(&item["model"]),
            item["last_day"]["requests"].to_string(),
            item["last_7_days"]["requests"].to_string(),
            month["requests"].to_string(),
            month["tokens_input"].to_string(),
            month["tokens_output"].to_string(),
            cell(&item["channels"]),
            cell(&item["refused_in"]),
        ]
    };
    let headings = ["model", "requests 24 h", "7 d", "30 d", "tokens in 30 d", "out", "channels", "groups that refuse it"];
    output::list(common, &items, &headings, &items.iter().map(row).collect::<Vec<_>>());
    if !common.json {
        let remark = "every group refuses such a model to keys and members with a blocking budget, and to prepaid members (E42)";
        output::remark(if items.is_empty() { "every served model has a price" } else { remark });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prices_are_shown_in_one_line() {
        for (price, shown) in [
            (json!(null), "not set"),
            (json!({"free": true}), "free"),
            (json!({"input": "0.30", "output": "2.40"}), "input 0.30, output 2.40"),
            (
                json!({"input": "1.00", "tiers": [{"above": 200_000, "input": "2.00"}]}),
                "input 1.00, tiers: above 200000, input 2.00",
            ),
            (json!([{"input": "1.00"}, {"valid_from": "2030-01-01T00:00:00Z", "free": true}]), "input 1.00; free"),
        ] {
            assert_eq!(short(&price), shown);
        }
        assert_eq!((percent(&json!("-0.25")), percent(&json!(null))), ("-25.0 %".to_owned(), "–".to_owned()));
    }
}
