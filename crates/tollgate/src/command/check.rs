//! `check`: validates settings and catalog file, and prints the effective settings with their sources.

use std::{path::Path, sync::Arc};

use serde_json::{Map, Value, json};
use tollgate_console::EffectiveSetting;
use tollgate_core::{Key, catalog_warnings};
use tollgate_store::{KeyScope, RandomSource, catalog_file::ApplyMode, preview};

use crate::{
    address_lists, catalog_file,
    cli::{Check, Common},
    compose,
    config::{self, Config},
    failure::Failure,
    output,
};

/// Validates the settings, and the catalog file if there is one.
pub(crate) fn run(common: &Common, arguments: &Check) -> Result<(), Failure> {
    if arguments.example {
        output::raw(config::example().as_bytes());
        return Ok(());
    }
    let named = arguments.catalog.iter().map(|file| ("catalog.file", file.display().to_string())).collect::<Vec<_>>();
    let config = compose::settings(common, &named).map_err(|failure| match &arguments.catalog {
        Some(file) => and_faults_of(failure, catalog_file::read(file)),
        None => failure,
    })?;
    let file = config.catalog_file.clone();
    let catalog = file.as_deref().map(|file| review(&config, file).map(|review| (file, review))).transpose();
    let secrets = check_secrets(&config);
    let catalog = match (catalog, secrets) {
        (Ok(catalog), Ok(())) => catalog,
        (Err(failure), secrets) => return Err(and_faults_of(failure, secrets)),
        (Ok(_), Err(failure)) => return Err(and_faults_of(failure, every_variable_is_read(&config))),
    };
    let effective = config.effective();
    if common.json {
        let show =
            |setting: &EffectiveSetting| json!({"value": setting.value.as_deref().unwrap_or_default(), "source": source(setting)});
        let settings: Map<String, Value> = effective.iter().map(|setting| (setting.name.to_owned(), show(setting))).collect();
        let (file, warnings) = catalog.map(|(file, review)| (file.display().to_string(), review.warnings)).unzip();
        output::json(&json!({"settings": settings, "catalog": file, "warnings": warnings.unwrap_or_default()}));
        return every_variable_is_read(&config);
    }
    let row = |setting: &EffectiveSetting| {
        let value = setting.value.clone().filter(|value| !value.is_empty());
        vec![setting.name.to_owned(), value.unwrap_or_else(|| "–".to_owned()), source(setting)]
    };
    output::table(&["setting", "value", "from"], &effective.iter().map(row).collect::<Vec<_>>());
    if let Some((file, review)) = catalog {
        output::line(&format!("catalog {}: {}", file.display(), review.rows));
        for warning in &review.warnings {
            output::line(&format!("warning: {warning}"));
        }
        if let Some(remark) = review.remark.filter(|_| !common.quiet) {
            output::remark(&remark);
        }
    }
    every_variable_is_read(&config)
}

/// An error for each setting whose secret is in a missing environment variable or file.
fn check_secrets(config: &Config) -> Result<(), Failure> {
    let texts = ["oidc.client_secret", "alerts.secret"].map(|path| (path, Some(config.text(path))));
    let master = ("database.master_key", config.master_key.as_deref());
    let given = std::iter::once(master).chain(texts).filter_map(|(path, text)| Some((path, text.filter(|text| !text.is_empty())?)));
    let faults: Vec<String> =
        given.filter_map(|(path, text)| config::reference(text).err().map(|fault| format!("{path}: {fault}"))).collect();
    if faults.is_empty() { Ok(()) } else { Err(Failure::Invalid(faults)) }
}

fn and_faults_of<T>(failure: Failure, other: Result<T, Failure>) -> Failure {
    match other {
        Ok(_) => failure,
        Err(other) => failure.and(other),
    }
}

/// An error for each unused `TOLLGATE_…` variable. A start only warns, because a catalog in the database does not show which
/// variables its file referred to.
fn every_variable_is_read(config: &Config) -> Result<(), Failure> {
    let fault = |name: &String| {
        let hint =
            if config.catalog_file.is_some() { "" } else { "; if a catalog file refers to it, name the file with --catalog" };
        format!("unknown environment variable {name}: it is not a setting and has no effect{hint}")
    };
    if config.unread.is_empty() { Ok(()) } else { Err(Failure::Invalid(config.unread.iter().map(fault).collect())) }
}

/// A catalog file that could be served.
struct Review {
    rows: String,
    warnings: Vec<String>,
    remark: Option<String>,
}

/// Validates a catalog file as `serve` does: against the catalog that it would be applied to, without changing it. Without a
/// reachable database, that is the catalog of a new one.
fn review(config: &Config, file: &Path) -> Result<Review, Failure> {
    let (parsed, preview, remark) = compose::block_on(async {
        let (store, remark) = match compose::open_existing(config).await {
            Ok(Some(store)) => (store, None),
            Ok(None) => (compose::open_in_memory().await?, None),
            Err(Failure::Unreachable(why)) => {
                (compose::open_in_memory().await?, Some(format!("checked as for a new database, because {why}")))
            }
            Err(failure) => return Err(and_faults_of(failure, catalog_file::read(file))),
        };
        let (parsed, _) = catalog_file::read_to_serve(&store, file).await?;
        let current = store.catalog.live_rows(&KeyScope::FileAnd(parsed.key_names())).await?;
        let previewed = preview(&current, &parsed, ApplyMode::Served, RandomSource::system(), compose::now()).await;
        store.close().await;
        Ok((parsed, previewed.map_err(|error| catalog_file::preview_failure(file, error))?, remark))
    })?;
    let keys: Vec<Arc<Key>> = preview.changed.into_iter().map(|(_, key)| Arc::new(key)).collect();
    let (config, _) = config.with_stored(&preview.after.stored_settings);
    let mut warnings = address_lists::warnings(&preview.after, &config);
    warnings.extend(catalog_warnings(&preview.after, &keys, compose::now()));
    warnings.extend(parsed.unexpanded_keys().into_iter().map(|key| {
        format!("key '{key}': its secret begins with '$' and is used literally; for an environment variable write env:NAME")
    }));
    Ok(Review { rows: catalog_file::row_counts(&parsed), warnings, remark })
}

/// Source of a value, with the name of the environment variable.
fn source(setting: &EffectiveSetting) -> String {
    match setting.source {
        "environment" => format!("environment ({})", setting.variable),
        word => word.to_owned(),
    }
}
