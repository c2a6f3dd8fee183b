//! `explain`: whether a request would be let in, which accounts it would use, in order, and why not the others. The same functions decide here
//! and on the path. A running gateway answers from what it knows; a command on its folder takes health from the database,
//! and what the gateway knows besides from the folder.

use serde_json::Value;
use tollgate_core::NanoUsd;

use crate::{
    admin::{Admin, ApiPath, FolderPolicy},
    cli::{Common, Explain},
    compose,
    failure::Failure,
    output,
};

/// Explains a model for a key.
pub(crate) fn run(common: &Common, arguments: &Explain) -> Result<(), Failure> {
    let target = target(arguments)?;
    let explained = compose::block_on(async { Ok(Admin::open(common, FolderPolicy::MustExist).await?.get(&target).await?) })?;
    if common.json {
        output::json(&explained);
    } else {
        print(&explained);
    }
    Ok(())
}

fn target(arguments: &Explain) -> Result<ApiPath, Failure> {
    if !["openai", "gemini"].contains(&arguments.protocol.as_str()) {
        return Err(Failure::Usage(format!("--protocol takes openai or gemini, not '{}'", arguments.protocol)));
    }
    if let Some(price) = &arguments.max_price {
        tollgate_core::parse_max_price(price).map_err(|fault| Failure::Usage(format!("--max-price: {fault}")))?;
    }
    let fields = (!arguments.fields.is_empty()).then(|| arguments.fields.join(","));
    Ok(ApiPath::of(&["explain"])
        .with("model", &arguments.model)
        .with("key", &arguments.key)
        .with("protocol", &arguments.protocol)
        .maybe("fields", fields.as_deref())
        .maybe("max_price", arguments.max_price.as_deref())
        .maybe("input_tokens", arguments.input_tokens.map(|tokens| tokens.to_string()).as_deref())
        .maybe("output_tokens", arguments.output_tokens.map(|tokens| tokens.to_string()).as_deref()))
}

fn print(explained: &Value) {
    let text = |it: &Value| it.as_str().unwrap_or_default().to_owned();
    if let Some(group) = explained["group"].as_str() {
        output::line(&format!("group {group} serves {} (catalog revision {})", text(&explained["model"]), explained["revision"]));
    }
    let estimate = &explained["estimate"];
    if estimate.is_object() {
        output::line(&format!(
            "for {} tokens in and at most {} out (--input-tokens, --output-tokens)",
            estimate["input_tokens"], estimate["output_tokens"]
        ));
    }
    let refusal = &explained["refusal"];
    if refusal.is_object() {
        let waits = match refusal["remedy"].as_str() {
            Some(remedy) => format!("; {remedy}"),
            None if refusal["retryable"] == true => "; waiting helps".to_owned(),
            None => String::new(),
        };
        output::line(&format!("refused with {}: {}{waits}", text(&refusal["error"]), text(&refusal["text"])));
    }
    print_limits(explained);
    let mut rows = vec![["", "channel", "account", "priority", "why", "what would change it"].map(str::to_owned).to_vec()];
    for (number, it) in explained["planned"].as_array().into_iter().flatten().enumerate() {
        rows.push(row(&(number + 1).to_string(), it, &it["priority"].to_string(), ""));
    }
    for it in explained["excluded"].as_array().into_iter().flatten() {
        rows.push(row("–", it, "", it["remedy"].as_str().unwrap_or_default()));
    }
    if rows.len() > 1 {
        output::table(&rows);
    }
    for it in explained["learned"].as_array().into_iter().flatten() {
        output::line(&format!(
            "{} ({}) lately refused the field {}; tried again after {}",
            text(&it["channel"]),
            text(&it["upstream_model"]),
            text(&it["field"]),
            text(&it["until"])
        ));
    }
}

/// What bounds the caller, and how much of the output the money that is left affords.
fn print_limits(explained: &Value) {
    let limits = explained["limits"].as_array().map(Vec::as_slice).unwrap_or_default();
    if !limits.is_empty() {
        let mut rows = vec![["limit of", "limit", "left", "the request takes", "as counted by"].map(str::to_owned).to_vec()];
        rows.extend(limits.iter().map(limit_row));
        output::table(&rows);
    }
    let (given, asked) = (explained["output_limit"].as_u64(), explained["estimate"]["output_tokens"].as_u64());
    if let (Some(given), Some(asked)) = (given, asked)
        && given < asked
    {
        output::line(&format!("its output is limited to {given} tokens: the money that is left affords no more"));
    }
}

fn limit_row(it: &Value) -> Vec<String> {
    let word = |member: &str| it[member].as_str().unwrap_or_default();
    let is_money = word("limit").starts_with('b');
    let number = |member: &str| {
        let number = it[member].as_i64()?;
        Some(if is_money { format!("{} USD", NanoUsd(number).to_usd_string()) } else { number.to_string() })
    };
    let shown = |member: &str| number(member).unwrap_or_else(|| "–".to_owned());
    let owner = if word("name").is_empty() { word("of").to_owned() } else { format!("{} {}", word("of"), word("name")) };
    let limit = number("amount").map_or_else(|| word("limit").to_owned(), |amount| format!("{} {amount}", word("limit")));
    vec![owner, limit, shown("left"), shown("needs"), word("counted_by").to_owned()]
}

fn row(number: &str, it: &Value, priority: &str, remedy: &str) -> Vec<String> {
    let code = it["code"].as_str().unwrap_or_default();
    let why = it["detail"].as_str().map_or_else(|| code.to_owned(), |detail| format!("{code}: {detail}"));
    let named = |member: &str| it[member].as_str().unwrap_or("–").to_owned();
    vec![number.to_owned(), named("channel"), named("account"), priority.to_owned(), why, remedy.to_owned()]
}
