//! `model list|show|add|set|remove`: models, their prices and the channels that serve them.

use serde_json::{Value, json};

use crate::{
    admin::{self, Admin, ApiPath},
    cli::{Common, Model, PreviewArgs, ResourceCommand},
    command::resource::{self, Resource},
    compose,
    failure::Failure,
    output,
};

const MODELS: Resource = Resource { path: "models", word: "model", columns: &[] };

pub(crate) fn run(common: &Common, subcommand: Model) -> Result<(), Failure> {
    match subcommand {
        Model::List => admin::run(common, async |admin| list(common, admin).await),
        Model::Show(row) => resource::named(common, MODELS, ResourceCommand::Show(row)),
        Model::Add(row) => resource::named(common, MODELS, ResourceCommand::Add { row, saving: PreviewArgs::default() }),
        Model::Set(change) => resource::named(common, MODELS, ResourceCommand::Set { change, saving: PreviewArgs::default() }),
        Model::Remove(row) => resource::named(common, MODELS, ResourceCommand::Remove(row)),
    }
}

/// Lists models that have a row or are served by a channel.
async fn list(common: &Common, admin: &Admin) -> Result<(), Failure> {
    let prices = admin.all(&ApiPath::of(&["prices"])).await?;
    let channels = admin.all(&ApiPath::of(&["channels"])).await?;
    let now = crate::usage_format::time(compose::now());
    let (mut rows, mut items) = (Vec::new(), Vec::new());
    for model in &prices {
        let price = price_at(&model["price"], &now);
        let served_by = model["served_by"].as_array().into_iter().flatten();
        let names: Vec<&str> = served_by.filter_map(|served| served["channel"].as_str()).collect();
        let serving = channels.iter().filter(|channel| names.iter().any(|name| channel["name"] == *name));
        let mut protocols: Vec<&str> = serving.filter_map(|channel| channel["protocol"].as_str()).collect();
        protocols.sort_unstable();
        protocols.dedup();
        let shown = |kind: &str| price.and_then(|price| if price["free"] == true { Some("0.00") } else { price[kind].as_str() });
        items.push(json!({
            "name": model["model"], "priced": price.is_some(), "input": shown("input"), "output": shown("output"),
            "protocols": protocols, "channels": names,
        }));
        let cell = |text: Option<&str>| text.unwrap_or("not priced").to_owned();
        rows.push(vec![
            model["model"].as_str().unwrap_or_default().to_owned(),
            cell(shown("input")),
            cell(shown("output")),
            protocols.join(", "),
            names.join(", "),
        ]);
    }
    output::list(common, &items, &["model", "input", "output", "protocols", "channels"], &rows);
    if !common.json {
        output::remark("prices are USD per million tokens, before the group's multiplier");
    }
    Ok(())
}

/// The price in force at a time, of one price or a list of them.
pub(crate) fn price_at<'a>(schedule: &'a Value, now: &str) -> Option<&'a Value> {
    let at = |text: &str| text.parse::<jiff::Timestamp>().ok();
    let now = at(now)?;
    let has_started = |price: &&Value| price["valid_from"].as_str().is_none_or(|from| at(from).is_some_and(|from| from <= now));
    let from = |price: &&Value| price["valid_from"].as_str().and_then(at);
    match schedule {
        Value::Array(prices) => prices.iter().filter(has_started).max_by_key(from),
        Value::Object(_) => Some(schedule).filter(has_started),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn price_at_returns_the_latest_started_price() {
        let schedule = json!([
            {"input": "1"},
            {"valid_from": "2026-01-01T00:00:00Z", "input": "2"},
            {"valid_from": "2027-01-01T00:00:00Z", "input": "3"},
        ]);
        let at = |now: &str| price_at(&schedule, now).map(|price| price["input"].as_str().unwrap().to_owned());
        assert_eq!(at("2025-12-31T23:59:59.9Z").as_deref(), Some("1"));
        assert_eq!(at("2026-06-01T00:00:00Z").as_deref(), Some("2"));
        assert_eq!(at("2027-01-01T00:00:00Z").as_deref(), Some("3"));
        assert_eq!(price_at(&json!({"input": "1"}), "2026-06-01T00:00:00Z"), Some(&json!({"input": "1"})));
        assert_eq!(price_at(&Value::Null, "2026-06-01T00:00:00Z"), None);
        assert_eq!(price_at(&json!([{"valid_from": "2030-01-01T00:00:00Z"}]), "2026-06-01T00:00:00Z"), None);
    }
}
