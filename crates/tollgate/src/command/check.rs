//! `check`: validates settings and catalog file, and prints the effective settings with their sources.

use serde_json::{Map, Value, json};
use tollgate_console::EffectiveSetting;

use crate::{
    catalog_file,
    cli::{Check, Common},
    compose, config,
    failure::Failure,
    output,
};

/// Validates the settings, and the catalog file if there is one.
pub(crate) fn run(common: &Common, arguments: &Check) -> Result<(), Failure> {
    if arguments.example {
        output::raw(config::example().as_bytes());
        return Ok(());
    }
    let config = compose::settings(common, &[])?;
    let file = arguments.catalog.clone().or_else(|| config.catalog_file.clone());
    let catalog = file.as_deref().map(catalog_file::read).transpose()?;
    if let Some(master) = &config.master_key {
        config::reference(master).map_err(|fault| Failure::written(format!("database.master_key: {fault}")))?;
    }
    let effective = config.effective();
    if common.json {
        let show =
            |setting: &EffectiveSetting| json!({"value": setting.value.as_deref().unwrap_or_default(), "source": source(setting)});
        let settings: Map<String, Value> = effective.iter().map(|setting| (setting.name.to_owned(), show(setting))).collect();
        output::json(&json!({"settings": settings, "catalog": file.map(|file| file.display().to_string())}));
        return Ok(());
    }
    let row = |setting: &EffectiveSetting| {
        let value = setting.value.clone().filter(|value| !value.is_empty());
        vec![setting.name.to_owned(), value.unwrap_or_else(|| "–".to_owned()), source(setting)]
    };
    output::table(&["setting", "value", "from"], &effective.iter().map(row).collect::<Vec<_>>());
    if let (Some(file), Some(catalog)) = (file, catalog) {
        output::line(&format!("catalog {}: {}", file.display(), catalog_file::row_counts(&catalog)));
    }
    Ok(())
}

/// Source of a value, with the name of the environment variable.
fn source(setting: &EffectiveSetting) -> String {
    match setting.source {
        "environment" => format!("environment ({})", setting.variable),
        word => word.to_owned(),
    }
}
