//! `cargo deny` with `deny.toml`: licences, sources and banned crates, and advisories where their database is available.

use std::path::PathBuf;

use anyhow::Result;

use crate::shell::{self, StepOutcome};

const VERSION: &str = "0.20.2";

/// Installs cargo-deny into cargo's output folder the first time, which takes some minutes.
pub(crate) fn step() -> Result<StepOutcome> {
    let tools = shell::work_folder().join(format!("cargo-deny-{VERSION}"));
    let program = tools.join("bin/cargo-deny");
    if !program.exists() {
        println!("    installing cargo-deny {VERSION}");
        // It runs for seconds, so building it without optimisation saves more than it costs.
        let mut install =
            shell::cargo(&["install", "cargo-deny", "--quiet", "--debug", "--locked", "--version", VERSION, "--root"]);
        if shell::run(install.arg(&tools)).is_err() {
            return Ok(StepOutcome::Skipped(format!("cargo-deny {VERSION} cannot be installed from crates.io")));
        }
    }
    // The crates of other platforms count too.
    if shell::run(&mut shell::cargo(&["fetch", "--quiet", "--locked"])).is_err() {
        return Ok(StepOutcome::Skipped("not all crates can be fetched".to_owned()));
    }
    let check = |what: &[&str]| {
        let mut command = std::process::Command::new(&program);
        shell::run(
            command
                .current_dir(shell::root())
                .args(["--offline", "--log-level", "error", "check", "--hide-inclusion-graph"])
                .args(what),
        )
    };
    check(&["bans", "licenses", "sources"])?;
    if has_advisories() {
        check(&["advisories"])?;
    } else {
        println!("    advisories are not checked: `cargo deny fetch` downloads their database");
    }
    Ok(StepOutcome::Passed)
}

/// Whether an advisory database was fetched before, where cargo-deny keeps it.
fn has_advisories() -> bool {
    let home = std::env::var_os("CARGO_HOME").map(PathBuf::from).or_else(|| Some(std::env::home_dir()?.join(".cargo")));
    let databases = home.and_then(|home| std::fs::read_dir(home.join("advisory-dbs")).ok());
    databases.is_some_and(|mut databases| databases.next().is_some())
}
