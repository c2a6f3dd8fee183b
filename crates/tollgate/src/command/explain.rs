//! `explain`: whether a request would be admitted, which accounts it would use in order, and why others are excluded, decided by
//! the same functions as on the request path. Without `--url`, health comes from the database and runtime state from the data
//! folder.

use serde_json::Value;

use crate::{
    admin::{self, ApiPath},
    cli::{Common, Explain},
    failure::Failure,
    output,
};

pub(crate) fn run(common: &Common, arguments: &Explain) -> Result<(), Failure> {
    let target = target(arguments)?;
    let explanation = admin::run(common, async |admin| Ok(admin.get(&target).await?))?;
    if common.json {
        output::json(&explanation);
    } else {
        print(&explanation);
    }
    Ok(())
}

fn target(arguments: &Explain) -> Result<ApiPath, Failure> {
    if let Some(price) = &arguments.max_price {
        tollgate_core::parse_max_price(price).map_err(|fault| Failure::Usage(format!("--max-price: {fault}")))?;
    }
    let fields = (!arguments.fields.is_empty()).then(|| arguments.fields.join(","));
    Ok(ApiPath::of(&["explain"])
        .with("model", &arguments.model)
        .maybe("key", arguments.key.as_deref())
        .maybe("group", arguments.group.as_deref())
        .with("protocol", &arguments.protocol)
        .maybe("fields", fields.as_deref())
        .maybe("max_price", arguments.max_price.as_deref())
        .maybe("input_tokens", arguments.input_tokens.map(|tokens| tokens.to_string()).as_deref())
        .maybe("output_tokens", arguments.output_tokens.map(|tokens| tokens.to_string()).as_deref()))
}

fn print(explanation: &Value) {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    if let Some(group) = explanation["group"].as_str() {
        output::line(&format!(
            "group {group} serves {} (catalog revision {})",
            text(&explanation["model"]),
            explanation["revision"]
        ));
    }
    let estimate = &explanation["estimate"];
    if estimate.is_object() {
        output::line(&format!(
            "for {} tokens in and at most {} out (--input-tokens, --output-tokens)",
            estimate["input_tokens"], estimate["output_tokens"]
        ));
    }
    let refusal = &explanation["refusal"];
    if refusal.is_object() {
        let hint = match refusal["remedy"].as_str() {
            Some(remedy) => format!("; {remedy}"),
            None if refusal["retryable"] == true => "; waiting helps".to_owned(),
            None => String::new(),
        };
        output::line(&format!("refused with {}: {}{hint}", text(&refusal["error"]), text(&refusal["text"])));
    }
    print_limits(explanation);
    let mut rows = Vec::new();
    for (number, account) in explanation["planned"].as_array().into_iter().flatten().enumerate() {
        rows.push(row(&(number + 1).to_string(), account, &account["priority"].to_string(), ""));
    }
    for account in explanation["excluded"].as_array().into_iter().flatten() {
        rows.push(row("–", account, "", account["remedy"].as_str().unwrap_or_default()));
    }
    if !rows.is_empty() {
        output::table(&["", "channel", "account", "priority", "why", "what would change it"], &rows);
    }
    for rejection in explanation["learned"].as_array().into_iter().flatten() {
        output::line(&format!(
            "{} ({}) recently refused the field {}; it is sent again after {}",
            text(&rejection["channel"]),
            text(&rejection["upstream_model"]),
            text(&rejection["field"]),
            text(&rejection["until"])
        ));
    }
}

/// Prints the limits of the caller, and whether the remaining budget bounds the output.
fn print_limits(explanation: &Value) {
    let limits = explanation["limits"].as_array().map(Vec::as_slice).unwrap_or_default();
    if !limits.is_empty() {
        let rows: Vec<_> = limits.iter().map(limit_row).collect();
        output::table(&["limit of", "limit", "left", "the request takes", "as counted by"], &rows);
    }
    let (granted, requested) = (explanation["output_limit"].as_u64(), explanation["estimate"]["output_tokens"].as_u64());
    if let (Some(granted), Some(requested)) = (granted, requested)
        && granted < requested
    {
        output::line(&format!("output is limited to {granted} tokens by the remaining money"));
    }
}

fn limit_row(limit: &Value) -> Vec<String> {
    let text = |member: &str| limit[member].as_str().unwrap_or_default();
    // Money is a string, a count a number.
    let number = |member: &str| {
        let figure = &limit[member];
        figure.as_str().map(|usd| format!("{usd} USD")).or_else(|| figure.as_i64().map(|count| count.to_string()))
    };
    let shown = |member: &str| number(member).unwrap_or_else(|| "–".to_owned());
    let owner = if text("name").is_empty() { text("of").to_owned() } else { format!("{} {}", text("of"), text("name")) };
    let bound = number("amount").map_or_else(|| text("limit").to_owned(), |amount| format!("{} {amount}", text("limit")));
    vec![owner, bound, shown("left"), shown("needs"), text("counted_by").to_owned()]
}

fn row(number: &str, account: &Value, priority: &str, remedy: &str) -> Vec<String> {
    let code = account["code"].as_str().unwrap_or_default();
    let why = account["detail"].as_str().map_or_else(|| code.to_owned(), |detail| format!("{code}: {detail}"));
    let name = |member: &str| account[member].as_str().unwrap_or("–").to_owned();
    vec![number.to_owned(), name("channel"), name("account"), priority.to_owned(), why, remedy.to_owned()]
}
