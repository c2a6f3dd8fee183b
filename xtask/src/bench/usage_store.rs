//! The usage store: rate of stored records, and latency of pages and sums over them, an export and a verification, on SQLite and on a
//! temporary PostgreSQL.

use std::{fs, path::Path, process::Command};

use anyhow::{Context, Result};
use serde_json::{Value, json};

use super::{
    BenchOptions, console_users, machine,
    usage_api::{self, AnswerTimes},
};
use crate::{servers, shell};

/// Stores the records of the options in each database, one after the other, and queries them.
pub(super) fn measure(options: &BenchOptions, programs: &Path, folder: &Path) -> Result<Value> {
    let BenchOptions { records, keys, .. } = options;
    println!(
        "\nusage: {records} records of {keys} keys into each database in the usage writer's batches; then pages, sums, an export, \
         a verification, the admin API, the console and its first paints, and requests at full load beside people who use it"
    );
    if let Some(url) = &options.postgres {
        return Ok(json!({ "PostgreSQL": measure_database(options, programs, folder, "PostgreSQL", Some(url))? }));
    }
    let sqlite = measure_database(options, programs, folder, "SQLite", None)?;
    // The advice of PostgreSQL's manual, which operating.md repeats.
    let cache = format!("shared_buffers={}MB", machine::memory_bytes()? / 4 / (1 << 20));
    let server = servers::postgres(&["fsync=on", &cache])?;
    let postgres = measure_database(options, programs, folder, "PostgreSQL", Some(&server.url()))?;
    Ok(json!({ "SQLite": sqlite, "PostgreSQL": postgres }))
}

/// Prints the single figures while it runs; those with a bound are printed again beside it at the end.
fn measure_database(options: &BenchOptions, programs: &Path, folder: &Path, name: &str, url: Option<&str>) -> Result<Value> {
    let data = options.databases.as_deref().unwrap_or(folder).join(format!("usage-{name}"));
    fs::create_dir_all(&data)?;
    let mut command = Command::new(programs.join("usage-records"));
    command.arg(&data).arg(options.records.to_string()).args(url).args(["--rows", "--keys"]).arg(options.keys.to_string());
    println!("\n{name}");
    command.args(options.brief.then_some("--brief"));
    let last = shell::shown_output(&mut command)?;
    // A brief run prints single figures only.
    let mut row = if options.brief { json!({}) } else { serde_json::from_str(&last).context("the last line of usage-records")? };
    let AnswerTimes { api, pages, paints } = usage_api::ask(programs, &data, url)?;
    (row["api_ms"], row["console_ms"], row["paint_ms"]) = (api.into(), pages.into(), paints.into());
    row["beside_users"] = console_users::measure(programs, &data, url)?.into();
    if options.databases.is_none() {
        fs::remove_dir_all(&data)?;
    }
    Ok(row)
}
