//! The usage store: rate of stored records, and latency of pages and sums over them, an export and a verification, on SQLite and on a
//! temporary PostgreSQL.

use std::{fs, path::Path, process::Command};

use anyhow::{Context, Result};
use serde_json::{Value, json};

use super::usage_api;
use crate::{servers, shell};

/// Stores this many records in each database, one after the other, and queries them.
pub(super) fn measure(programs: &Path, folder: &Path, records: u64, keys: u64) -> Result<Value> {
    println!(
        "\nusage: {records} records of {keys} keys into each database in the usage writer's batches; then pages, sums, an export and verification"
    );
    println!(
        "{:<16}{:>12}{:>18}{:>18}{:>16}{:>20}{:>15}{:>18}{:>22}{:>16}{:>14}",
        "",
        "per second",
        "slowest page, ms",
        "slowest sums, ms",
        "unaligned, ms",
        "by two groups, ms",
        "filtered, ms",
        "exported a second",
        "verify 10 million, s",
        "admin API, ms",
        "console, ms"
    );
    let server = servers::postgres("fsync=on")?;
    let sqlite = measure_database(programs, folder, "SQLite", [records, keys], None)?;
    let postgres = measure_database(programs, folder, "PostgreSQL", [records, keys], Some(&server.url()))?;
    Ok(json!({ "SQLite": sqlite, "PostgreSQL": postgres }))
}

fn measure_database(programs: &Path, folder: &Path, name: &str, [records, keys]: [u64; 2], url: Option<&str>) -> Result<Value> {
    let data = folder.join(format!("usage-{name}"));
    fs::create_dir_all(&data)?;
    let mut command = Command::new(programs.join("usage-records"));
    command.arg(&data).arg(records.to_string()).args(url).args(["--rows", "--keys"]).arg(keys.to_string());
    let text = shell::output(&mut command)?;
    let last = text.lines().last().context("usage-records printed nothing")?;
    let mut row: Value = serde_json::from_str(last).context("the last line of usage-records is not JSON")?;
    let [api, pages] = usage_api::ask(programs, &data, url)?;
    (row["api_ms"], row["console_ms"]) = (api.into(), pages.into());
    fs::remove_dir_all(&data)?;
    let show = |figure: &str, digits: usize| row[figure].as_f64().map_or("–".to_owned(), |value| format!("{value:.digits$}"));
    let (rate, page) = (show("per_second", 0), show("page_ms", 1));
    let (sums, unaligned) = (show("chart_ms", 1), show("unaligned_ms", 1));
    let (grouped, filtered) = (show("grouped_ms", 1), show("filtered_ms", 1));
    let (exported, verified) = (show("exported_per_second", 0), show("verify_10_million_s", 1));
    let (api, console) = (show("api_ms", 1), show("console_ms", 1));
    println!(
        "{name:<16}{rate:>12}{page:>18}{sums:>18}{unaligned:>16}{grouped:>20}{filtered:>15}{exported:>18}{verified:>22}{api:>16}{console:>14}"
    );
    Ok(row)
}
