//! Runs the test suites of `sdk-tests/`: official SDKs against the real binary with a scripted provider, and signing in at a real
//! OpenID provider.

use std::{fs, process::Command};

use anyhow::{Result, bail};

use crate::{
    npm::{self, is_current, mark_current},
    shell::{self, StepOutcome},
};

/// `cargo xtask sdk`.
pub(crate) fn run_alone() -> Result<()> {
    match run()? {
        StepOutcome::Passed => Ok(()),
        StepOutcome::Skipped(why) => bail!("the SDK tests could not run: {why}"),
    }
}

/// Installs what the suites need and runs them; a suite whose language is not installed is skipped.
pub(crate) fn run() -> Result<StepOutcome> {
    shell::run(&mut shell::cargo(&["build", "--quiet", "--package", "tollgate", "--package", "tollgate-testkit", "--bins"]))?;
    let mut skipped = Vec::new();
    for (name, suite) in [("Python", python as fn() -> Result<Option<String>>), ("JavaScript", node), ("OpenID", oidc)] {
        if let Some(why) = suite()? {
            skipped.push(format!("{name}: {why}"));
        }
    }
    Ok(if skipped.is_empty() { StepOutcome::Passed } else { StepOutcome::Skipped(skipped.join("; ")) })
}

fn suite_environment(command: &mut Command) -> &mut Command {
    let programs = shell::target_dir().join("debug");
    let catalog = shell::root().join("sdk-tests/catalog.toml");
    command.env("CATALOG", catalog).env("TOLLGATE", programs.join("tollgate")).env("PROVIDER", programs.join("scripted-provider"))
}

fn python() -> Result<Option<String>> {
    if !shell::has("python3") && shell::ensure_debian("python3", "python3-venv python3-pip").is_err() {
        return Ok(Some("there is no python3".to_owned()));
    }
    let home = shell::workshop().join("python");
    let wanted = shell::root().join("sdk-tests/python/requirements.txt");
    if !is_current(&home, &wanted) {
        println!("    installing the Python SDKs");
        let _ = fs::remove_dir_all(&home);
        if shell::output(Command::new("python3").args(["-m", "venv"]).arg(&home)).is_err() {
            shell::ensure_debian("tollgate-no-such-program", "python3-venv").ok();
            shell::output(Command::new("python3").args(["-m", "venv"]).arg(&home))?;
        }
        shell::output(
            Command::new(home.join("bin/pip")).args(["install", "--quiet", "--disable-pip-version-check", "-r"]).arg(&wanted),
        )?;
        mark_current(&home, &wanted)?;
    }
    let mut command = Command::new(home.join("bin/python"));
    command.args(["-m", "pytest", "-q", "-p", "no:cacheprovider"]).current_dir(shell::root().join("sdk-tests/python"));
    command.env("PYTHONDONTWRITEBYTECODE", "1");
    shell::run(suite_environment(&mut command))?;
    Ok(None)
}

fn node() -> Result<Option<String>> {
    let source = shell::root().join("sdk-tests/node");
    npm::suite("node", &source, "JavaScript SDKs", suite_environment)
}

/// Signing in at a real OpenID provider, which is an npm package.
fn oidc() -> Result<Option<String>> {
    let source = shell::root().join("sdk-tests/oidc");
    npm::suite("oidc", &source, "OpenID provider", suite_environment)
}
