//! `cargo deny` with `deny.toml`: licences, sources and banned crates, and advisories where their database is at hand. Needs no
//! network.

use std::path::PathBuf;

use anyhow::Result;

use crate::shell::{self, StepOutcome};

pub(crate) fn step() -> Result<StepOutcome> {
    let found = shell::cargo(&["deny", "--version"]).output().is_ok_and(|output| output.status.success());
    if !found {
        return Ok(StepOutcome::Skipped("cargo-deny is not installed: cargo install cargo-deny --locked".to_owned()));
    }
    shell::run(&mut shell::cargo(&["deny", "--offline", "check", "bans", "licenses", "sources"]))?;
    if !has_advisories() {
        return Ok(StepOutcome::Skipped("the advisory database is not at hand: cargo deny fetch".to_owned()));
    }
    shell::run(&mut shell::cargo(&["deny", "--offline", "check", "advisories"]))?;
    Ok(StepOutcome::Passed)
}

/// Whether an advisory database was fetched before, where cargo-deny keeps it.
fn has_advisories() -> bool {
    let home = std::env::var_os("CARGO_HOME").map(PathBuf::from).or_else(|| Some(std::env::home_dir()?.join(".cargo")));
    let databases = home.and_then(|home| std::fs::read_dir(home.join("advisory-dbs")).ok());
    databases.is_some_and(|mut databases| databases.next().is_some())
}
