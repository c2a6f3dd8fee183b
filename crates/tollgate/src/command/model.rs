//! `model list`: what is served, over what, at what price.

use serde_json::json;
use tollgate_core::{Catalog, Price};

use crate::{
    cli::{Common, Model},
    compose,
    failure::Failure,
    say,
};

/// Lists models.
pub(crate) fn run(common: &Common, verb: &Model) -> Result<(), Failure> {
    let Model::List = verb;
    let now = compose::now();
    let catalog = compose::block_on(async { Ok(compose::open(common).await?.catalog.load().await?) })?;
    let mut rows = vec![["model", "input", "output", "protocols", "channels"].map(str::to_owned).to_vec()];
    let mut items = Vec::new();
    for model in names(&catalog) {
        let row = catalog.models.get(&model);
        let price = row.and_then(|row| row.price.as_ref()).and_then(|schedule| schedule.at(now)).cloned();
        let served: Vec<_> =
            catalog.channels.values().filter(|channel| channel.serves.iter().any(|serves| serves.model == model)).collect();
        let mut protocols: Vec<&str> = served.iter().map(|channel| channel.protocol.as_str()).collect();
        protocols.sort_unstable();
        protocols.dedup();
        let channels: Vec<&str> = served.iter().map(|channel| channel.name.as_str()).collect();
        let shown = |pick: fn(&Price) -> Option<i64>| price.as_ref().and_then(pick).map(usd);
        items.push(json!({
            "name": model, "priced": price.is_some(), "input_usd": shown(|price| price.input), "output_usd": shown(|price| price.output),
            "protocols": protocols, "channels": channels,
        }));
        let cell = |text: Option<String>| text.unwrap_or_else(|| "not priced".to_owned());
        rows.push(vec![
            model,
            cell(shown(|price| price.input)),
            cell(shown(|price| price.output)),
            protocols.join(", "),
            channels.join(", "),
        ]);
    }
    if common.json {
        say::json(&json!({"items": items}));
    } else {
        say::table(&rows);
        say::remark("prices are USD per million tokens, before the group's multiplier");
    }
    Ok(())
}

/// Every model that a channel serves or that has a row.
fn names(catalog: &Catalog) -> Vec<String> {
    let served = catalog.channels.values().flat_map(|channel| channel.serves.iter().map(|serves| serves.model.clone()));
    let mut names: Vec<String> = served.chain(catalog.models.keys().cloned()).collect();
    names.sort();
    names.dedup();
    names
}

fn usd(nano: i64) -> String {
    tollgate_core::NanoUsd(nano).to_usd_string()
}
