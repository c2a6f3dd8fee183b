//! `channel health`: when a channel and its accounts could not be used, why, and until when.

use serde_json::{Value, json};

use crate::{
    admin::{Admin, ApiPath},
    cli::{AccountSelection, Common, HealthTime},
    command::time_flag,
    compose,
    failure::Failure,
    output,
};

/// Characters of a strip.
const CELLS: &str = "48";

/// Prints how much of the time each account could be used, as a strip, and the transitions, the newest first.
pub(super) async fn show(common: &Common, admin: &Admin, accounts: &AccountSelection, time: &HealthTime) -> Result<(), Failure> {
    let at = |flag: &str, text: Option<&String>| {
        text.map(|text| time_flag::parse_past(flag, text, compose::now()).map(tollgate_console::rfc3339)).transpose()
    };
    let (since, until) = (at("--since", time.since.as_ref())?, at("--until", time.until.as_ref())?);
    let of_channel = |path: &[&str]| {
        let target = ApiPath::of(path).with("channel", &accounts.channel);
        target.maybe("since", since.as_deref()).maybe("until", until.as_deref())
    };
    let mut uptime = admin.all(&of_channel(&["health", "uptime"]).with("cells", CELLS)).await?;
    uptime.retain(|account| accounts.account.as_ref().is_none_or(|name| account["account"] == **name || account["id"] == **name));
    let target = of_channel(&["health", "history"]).maybe("account", accounts.account.as_deref());
    let (transitions, next) = admin.page(&target.with("limit", &time.limit.to_string())).await?;
    if common.json {
        output::json(&json!({"uptime": uptime, "transitions": transitions, "next": next}));
        return Ok(());
    }
    output::table(&["account", "usable", "time"], &uptime.iter().map(uptime_row).collect::<Vec<_>>());
    output::line("");
    if transitions.is_empty() {
        output::line("no transitions");
        return Ok(());
    }
    let headings = ["since", "ended", "account", "state", "reason", "until", "cause", "node"];
    output::table(&headings, &transitions.iter().map(transition_row).collect::<Vec<_>>());
    if next.is_some() {
        output::remark("there are older ones; --limit shows more of them, --until goes back");
    }
    Ok(())
}

fn text(item: &Value, member: &str) -> String {
    item[member].as_str().unwrap_or("–").to_owned()
}

fn uptime_row(account: &Value) -> Vec<String> {
    let cells = account["cells"].as_array().into_iter().flatten();
    let strip: String = cells.map(|cell| mark(cell["usable"].as_f64())).collect();
    let usable = account["usable"].as_f64().map_or_else(|| "–".to_owned(), |usable| format!("{:.1} %", usable * 100.0));
    vec![text(account, "account"), usable, format!("[{strip}]")]
}

/// One character of a strip: usable all the time, a part of the time, not at all, or unknown.
fn mark(usable: Option<f64>) -> char {
    match usable {
        None => '.',
        Some(usable) if usable >= 1.0 => '=',
        Some(usable) if usable > 0.0 => '-',
        Some(_) => ' ',
    }
}

fn transition_row(transition: &Value) -> Vec<String> {
    let account = transition["account"].as_str().unwrap_or("(channel)").to_owned();
    let reason = text(transition, "reason").replace('_', " ");
    let ended = transition["ended_at"].as_str().unwrap_or("not yet").to_owned();
    vec![
        text(transition, "since"),
        ended,
        account,
        text(transition, "state"),
        reason,
        text(transition, "until"),
        text(transition, "cause"),
        text(transition, "node"),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn health_rows_show_times_and_reasons() {
        let account = json!({"account": "a", "usable": 0.987, "cells": [{"usable": 1.0}, {"usable": 0.5}, {"usable": 0.0}]});
        assert_eq!(uptime_row(&account), ["a", "98.7 %", "[=- ]"]);
        let unknown = json!({"account": "a", "usable": null, "cells": [{"usable": null}, {"usable": null}]});
        assert_eq!(uptime_row(&unknown), ["a", "–", "[..]"]);
        let transition = json!({
            "since": "2026-11-21T00:00:00Z", "ended_at": null, "account": null, "state": "unavailable", "reason": "budget_spent",
            "until": "2026-11-22T00:00:00Z", "cause": "operator", "node": "n1",
        });
        let shown = ["2026-11-21T00:00:00Z", "not yet", "(channel)", "unavailable", "budget spent"];
        assert_eq!(transition_row(&transition)[..5], shown);
    }
}
