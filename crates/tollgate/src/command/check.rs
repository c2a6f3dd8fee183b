//! `check`: the effective settings and where each comes from; every fault at once.

use serde_json::{Map, Value, json};

use crate::{
    cli::{Check, Common},
    command::catalog,
    compose,
    config::{self, SETTINGS, Source},
    failure::Failure,
    say,
};

/// Checks settings, and the catalog file where one is named.
pub(crate) fn run(common: &Common, arguments: &Check) -> Result<(), Failure> {
    if arguments.example {
        say::raw(config::example().as_bytes());
        return Ok(());
    }
    let config = compose::settings(common, &[])?;
    let file = arguments.catalog.clone().or_else(|| config.catalog_file.clone());
    let read = file.as_deref().map(catalog::read).transpose()?;
    if let Some(master) = &config.master_key {
        config::reference(master).map_err(|fault| Failure::written(format!("database.master_key: {fault}")))?;
    }
    let shown = |path: &str, secret: bool| match config.values.get(path) {
        Some(value) if secret && value.source != Source::Default => ("***".to_owned(), value.source.word()),
        Some(value) => (value.text.clone(), value.source.word()),
        None => (String::new(), Source::Default.word()),
    };
    if common.json {
        let settings: Map<String, Value> = SETTINGS
            .iter()
            .map(|setting| {
                let (value, source) = shown(setting.path, setting.secret);
                (setting.path.to_owned(), json!({"value": value, "source": source}))
            })
            .collect();
        say::json(&json!({"settings": settings, "catalog": file.map(|file| file.display().to_string())}));
        return Ok(());
    }
    let mut rows = vec![vec!["setting".to_owned(), "value".to_owned(), "from".to_owned()]];
    for setting in SETTINGS {
        let (value, source) = shown(setting.path, setting.secret);
        rows.push(vec![setting.path.to_owned(), if value.is_empty() { "–".to_owned() } else { value }, source]);
    }
    say::table(&rows);
    if let (Some(file), Some(read)) = (file, read) {
        say::line(&format!("catalog {}: {}", file.display(), catalog::counts(&read)));
    }
    Ok(())
}
