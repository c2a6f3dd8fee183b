//! `check`: the effective settings and where each comes from; every fault at once.

use serde_json::{Map, Value, json};
use tollgate_console::EffectiveSetting;

use crate::{
    catalog_file,
    cli::{Check, Common},
    compose, config,
    failure::Failure,
    output,
};

/// Checks settings, and the catalog file where one is named.
pub(crate) fn run(common: &Common, arguments: &Check) -> Result<(), Failure> {
    if arguments.example {
        output::raw(config::example().as_bytes());
        return Ok(());
    }
    let config = compose::settings(common, &[])?;
    let file = arguments.catalog.clone().or_else(|| config.catalog_file.clone());
    let read = file.as_deref().map(catalog_file::read).transpose()?;
    if let Some(master) = &config.master_key {
        config::reference(master).map_err(|fault| Failure::written(format!("database.master_key: {fault}")))?;
    }
    let shown = config.shown();
    if common.json {
        let one = |it: &EffectiveSetting| json!({"value": it.value.as_deref().unwrap_or_default(), "source": source(it)});
        let settings: Map<String, Value> = shown.iter().map(|it| (it.name.to_owned(), one(it))).collect();
        output::json(&json!({"settings": settings, "catalog": file.map(|file| file.display().to_string())}));
        return Ok(());
    }
    let mut rows = vec![vec!["setting".to_owned(), "value".to_owned(), "from".to_owned()]];
    for setting in &shown {
        let value = setting.value.clone().filter(|value| !value.is_empty());
        rows.push(vec![setting.name.to_owned(), value.unwrap_or_else(|| "–".to_owned()), source(setting)]);
    }
    output::table(&rows);
    if let (Some(file), Some(read)) = (file, read) {
        output::line(&format!("catalog {}: {}", file.display(), catalog_file::row_counts(&read)));
    }
    Ok(())
}

/// Where a value comes from; of the environment, from which variable.
fn source(setting: &EffectiveSetting) -> String {
    match setting.source {
        "environment" => format!("environment ({})", setting.variable),
        word => word.to_owned(),
    }
}
