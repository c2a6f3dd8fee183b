//! The figures of the peers: a file, and the tables that show it.

use std::{fmt::Write as _, fs};

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use super::{super::machine::Machine, chart};
use crate::{page, shell};

const FILE: &str = "bench/peers.json";
const CHART: &str = "docs/images/peers.svg";
const PAGES: [&str; 2] = ["README.md", "docs/performance.md"];
const MARKER: &str = "<!-- peers: written by `cargo xtask bench --peers --write` -->\n";

/// One run.
#[derive(Serialize, Deserialize)]
pub(super) struct Figures {
    pub(super) date: String,
    pub(super) machine: Machine,
    pub(super) profile: String,
    pub(super) rounds: usize,
    pub(super) seconds: u32,
    /// Requests a second at which latency was measured.
    pub(super) rate: u32,
    pub(super) targets: Vec<TargetFigures>,
    /// Peers that were left out, and why.
    pub(super) skipped: Vec<String>,
}

/// Medians of one target.
#[derive(Serialize, Deserialize)]
pub(super) struct TargetFigures {
    pub(super) name: String,
    /// Its version, and after a comma that of its runtime.
    pub(super) version: String,
    pub(super) per_second: f64,
    pub(super) cpu_us: f64,
    /// Resident memory of all its processes at 64 connections.
    pub(super) memory_mb: f64,
    /// Latency minus that of the upstream asked directly.
    pub(super) added_p50_ms: f64,
    pub(super) added_p99_ms: f64,
    pub(super) first_chunk_ms: f64,
    pub(super) errors: u64,
}

impl TargetFigures {
    /// True when everything was measured.
    pub(super) fn is_complete(&self) -> bool {
        [self.per_second, self.cpu_us, self.memory_mb, self.added_p50_ms, self.added_p99_ms, self.first_chunk_ms]
            .iter()
            .all(|figure| figure.is_finite())
    }
}

impl Figures {
    fn read() -> Result<Self> {
        let text = fs::read_to_string(shell::root().join(FILE)).with_context(|| FILE.to_owned())?;
        serde_json::from_str(&text).with_context(|| FILE.to_owned())
    }

    pub(super) fn store(&self) -> Result<()> {
        fs::write(shell::root().join(FILE), serde_json::to_string_pretty(self)? + "\n").with_context(|| FILE.to_owned())
    }

    /// A Markdown table, and a sentence on how it was taken.
    pub(super) fn table(&self) -> String {
        let mut text = format!(
            "| | requests a second | CPU a request | added latency, p50 / p99 | added to the first chunk | memory |\n{}\n",
            "|---|---|---|---|---|---|"
        );
        for target in &self.targets {
            let _ = writeln!(
                text,
                "| {} | {} | {} µs | {} / {} ms | {} ms | {} MB |",
                shown_name(&target.name),
                grouped(target.per_second),
                short(target.cpu_us),
                short(target.added_p50_ms),
                short(target.added_p99_ms),
                short(target.first_chunk_ms),
                grouped(target.memory_mb),
            );
        }
        let versions = self.targets.iter().map(|target| match target.version.split_once(", ") {
            Some((version, runtime)) => format!("{} {version} ({runtime})", target.name),
            None => format!("{} {}", target.name, target.version),
        });
        let _ = writeln!(
            text,
            "\nTaken on {} on {}. {}. Medians of {} interleaved rounds of {} seconds: 64 connections, latency at {} requests a second.",
            self.date,
            self.machine.description(),
            versions.collect::<Vec<_>>().join(", "),
            self.rounds,
            self.seconds,
            self.rate
        );
        text
    }
}

/// Writes the tables and the chart of the figures in the file.
pub(crate) fn write_pages() -> Result<()> {
    let figures = Figures::read()?;
    for file in PAGES {
        page::write(file, MARKER, &figures.table())?;
    }
    fs::write(shell::root().join(CHART), chart::draw(&figures)).with_context(|| CHART.to_owned())?;
    println!("{CHART} written");
    Ok(())
}

fn shown_name(name: &str) -> String {
    match name {
        "tollgate" => "**tollgate**".to_owned(),
        "nginx" => "nginx, a plain proxy".to_owned(),
        other => other.to_owned(),
    }
}

/// A whole number with thousands set apart.
pub(super) fn grouped(value: f64) -> String {
    let digits = format!("{value:.0}");
    let groups: Vec<&str> = digits.as_bytes().rchunks(3).rev().filter_map(|group| std::str::from_utf8(group).ok()).collect();
    groups.join(",")
}

/// A number with as many decimals as its size deserves.
pub(super) fn short(value: f64) -> String {
    match value.abs() {
        size if size >= 100.0 => grouped(value),
        size if size >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checked_in_tables_and_chart_match_the_figures() {
        let figures = Figures::read().unwrap();
        for file in PAGES {
            let page = fs::read_to_string(shell::root().join(file)).unwrap();
            assert!(page::replaced(&page, MARKER, &figures.table()).unwrap() == page, "{file} is old: run `cargo xtask docs`");
        }
        let drawn = fs::read_to_string(shell::root().join(CHART)).unwrap();
        assert!(chart::draw(&figures) == drawn, "{CHART} is old: run `cargo xtask docs`");
    }

    #[test]
    fn figures_are_formatted_briefly() {
        for (value, shown) in [(0.042, "0.04"), (4.567, "4.57"), (57.96, "58.0"), (1_013.4, "1,013"), (8_990.0, "8,990")] {
            assert_eq!(short(value), shown);
        }
        for (value, shown) in [(7.0, "7"), (217.0, "217"), (54_160.2, "54,160"), (1_234_567.0, "1,234,567")] {
            assert_eq!(grouped(value), shown);
        }
    }
}
