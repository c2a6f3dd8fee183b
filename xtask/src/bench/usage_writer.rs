//! The till's own rate: records booked into SQLite and into a PostgreSQL server of our own, and how long pages and sums
//! over them take.

use std::{fs, path::Path, process::Command};

use anyhow::{Context, Result};
use serde_json::{Value, json};

use crate::{postgres, shell};

/// Books so many records into each database, one after the other.
pub(super) fn measure(programs: &Path, folder: &Path, records: u64) -> Result<Value> {
    println!("\ntill: {records} records into each database, booked as the till books them; then pages and sums over them");
    println!("{:<32}{:>12}{:>18}{:>18}", "", "per second", "slowest page, ms", "slowest sums, ms");
    let server = postgres::PostgresServer::start_durable()?;
    let sqlite = books(programs, folder, "SQLite", records, None)?;
    let postgres = books(programs, folder, "PostgreSQL", records, Some(&server.url()))?;
    Ok(json!({ "SQLite": sqlite, "PostgreSQL": postgres }))
}

fn books(programs: &Path, folder: &Path, name: &str, records: u64, url: Option<&str>) -> Result<Value> {
    let data = folder.join(format!("books-{name}"));
    fs::create_dir_all(&data)?;
    let mut command = Command::new(programs.join("usage-records"));
    command.arg(&data).arg(records.to_string()).args(url);
    let text = shell::output(&mut command)?;
    let last = text.lines().last().context("usage-records printed nothing")?;
    let row: Value = serde_json::from_str(last).context("the last line of usage-records is not JSON")?;
    fs::remove_dir_all(&data)?;
    let show = |of: &str, digits: usize| row[of].as_f64().map_or("–".to_owned(), |value| format!("{value:.digits$}"));
    println!("{name:<32}{:>12}{:>18}{:>18}", show("per_second", 0), show("page_ms", 1), show("chart_ms", 1));
    Ok(row)
}
