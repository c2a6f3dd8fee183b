//! `price simulate`: the price of a request line by line, the cost on each account, and the accounts that price limits exclude.

use http::Method;
use serde_json::{Value, json};

use super::percent;
use crate::{
    admin::{self, AdminRequest, ApiPath},
    cli::{Common, PriceSimulation},
    failure::Failure,
    output,
};

/// Shown in place of an amount above the bound.
const TOO_LARGE: &str = "above 10,000 USD";

pub(super) fn run(common: &Common, arguments: &PriceSimulation) -> Result<(), Failure> {
    let body = body(arguments);
    let target = ApiPath::of(&["prices", "simulate"]);
    let answer = admin::run(common, async |admin| Ok(admin.send(AdminRequest::of(Method::POST, &target, &body)).await?.body))?;
    if common.json {
        output::json(&answer);
    } else {
        print(&answer);
    }
    Ok(())
}

fn body(arguments: &PriceSimulation) -> Value {
    let mut body = json!({
        "model": arguments.model, "protocol": arguments.protocol, "input": arguments.input, "output": arguments.output,
        "cache_read": arguments.cache_read, "cache_write": arguments.cache_write, "cache_write_1h": arguments.cache_write_1h,
        "thinking": arguments.thinking, "image": arguments.image, "audio": arguments.audio, "web_search": arguments.web_search,
        "server_tools": arguments.server_tools, "output_media": arguments.output_media,
    });
    let given = [
        ("key", &arguments.key),
        ("group", &arguments.group),
        ("service_tier", &arguments.service_tier),
        ("max_price", &arguments.max_price),
    ];
    for (name, value) in given {
        if let Some(value) = value {
            body[name] = value.as_str().into();
        }
    }
    body
}

fn print(answer: &Value) {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    output::line(&format!(
        "group {} serves {} (catalog revision {})",
        text(&answer["group"]),
        text(&answer["model"]),
        answer["revision"]
    ));
    if answer["sale"].is_null() {
        output::line("the model has no price: the caller pays nothing, and is refused if its money is limited");
    } else {
        print_lines("the caller pays", &answer["sale"]);
    }
    if let Some(cause) = answer["refused"].as_str() {
        output::line(&format!("refused: no account would serve it ({cause})"));
    }
    let accounts = answer["accounts"].as_array().map(Vec::as_slice).unwrap_or_default();
    let row = |account: &Value| {
        let missing = if account["cost"].is_null() { "not known" } else { TOO_LARGE };
        let amount = account["cost"]["amount"].as_str().unwrap_or(missing).to_owned();
        let margin = account["margin"]
            .as_str()
            .map_or_else(|| "–".to_owned(), |margin| format!("{margin} ({})", percent(&account["margin_share"])));
        let below = account["below_cost"].as_str().map_or_else(String::new, |below| format!("BELOW COST: {below}"));
        vec![text(&account["channel"]), text(&account["account"]), text(&account["upstream"]), amount, margin, below]
    };
    if !accounts.is_empty() {
        output::line("");
        output::table(
            &["channel", "account", "upstream model", "cost USD", "margin USD", ""],
            &accounts.iter().map(row).collect::<Vec<_>>(),
        );
    }
    let excluded = answer["excluded"].as_array().map(Vec::as_slice).unwrap_or_default();
    let row = |it: &Value| {
        let why = it["detail"].as_str().map_or_else(|| text(&it["code"]), str::to_owned);
        let by = if it["by_price"] == true { "price" } else { "" };
        vec![text(&it["channel"]), it["account"].as_str().unwrap_or("all").to_owned(), by.to_owned(), why]
    };
    if !excluded.is_empty() {
        output::line("");
        output::long_table(&["excluded", "account", "by", "reason"], &excluded.iter().map(row).collect::<Vec<_>>());
    }
}

/// An amount with its lines, tier, factor and rounding.
fn print_lines(what: &str, priced: &Value) {
    let text = |value: &Value| value.as_str().unwrap_or("–").to_owned();
    let factor = text(&priced["multiplier"]);
    let rows: Vec<Vec<String>> = priced["lines"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|line| {
            let unit = if line["kind"].as_str().is_some_and(tollgate_core::is_counted_by_piece) { "" } else { " / 1M" };
            let price = format!("· {}{unit}", text(&line["unit_price"]));
            vec![
                text(&line["kind"]),
                line["count"].to_string(),
                price,
                format!("· {factor}"),
                format!("= {}", text(&line["amount"])),
            ]
        })
        .collect();
    output::table(&[], &rows);
    let tier = priced["tier"].as_u64().map_or_else(String::new, |above| format!(", in the tier above {above} tokens"));
    let (exact, amount) = (text(&priced["exact"]), text(&priced["amount"]));
    if priced["no_amount"].is_null() {
        output::line(&format!("{what} {amount} USD (exactly {exact}{tier})"));
    } else {
        output::line(&format!("{what} no amount: {TOO_LARGE}, the maximum of one request (exactly {exact}{tier})"));
    }
}
