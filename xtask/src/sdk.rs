//! Runs the test suites of `sdk-tests/`: official SDKs against the real binary with a scripted provider, signing in at a real OpenID
//! provider, and exports to a real server of S3's API.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result, bail};

use crate::{
    npm, packages,
    shell::{self, StepOutcome},
};

/// Runs a suite. Returns why it was skipped, if it was.
type Suite = fn() -> Result<Option<String>>;

/// `cargo xtask sdk`.
pub(crate) fn run_alone() -> Result<()> {
    match run()? {
        StepOutcome::Passed => Ok(()),
        StepOutcome::Skipped(why) => bail!("the SDK tests could not run: {why}"),
    }
}

/// Installs what the suites need and runs them; a suite whose language is not installed is skipped.
pub(crate) fn run() -> Result<StepOutcome> {
    shell::build_programs(&["tollgate", "scripted-provider"])?;
    let mut skipped = Vec::new();
    let suites: [(&str, Suite); 4] = [("Python", python), ("JavaScript", node), ("OpenID", oidc), ("storage", storage)];
    for (name, suite) in suites {
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
    let source = shell::root().join("sdk-tests/python");
    let Some(programs) = packages::python("python", &source.join("requirements.txt"), "the Python SDKs")? else {
        return Ok(Some(packages::NO_PYTHON.to_owned()));
    };
    let mut command = Command::new(programs.join("python"));
    command.args(["-m", "pytest", "-q", "-p", "no:cacheprovider"]).current_dir(source).env("PYTHONDONTWRITEBYTECODE", "1");
    match collector() {
        Ok(program) => drop(command.env("COLLECTOR", program)),
        Err(error) => println!("    telemetry goes straight to the tests, as no collector can be installed: {error:#}"),
    }
    shell::run(suite_environment(&mut command))?;
    Ok(None)
}

/// A collector of OpenTelemetry from `PyPI`, which has it for some systems only.
fn collector() -> Result<PathBuf> {
    let list = shell::root().join("sdk-tests/collector/requirements.txt");
    let programs = packages::python("collector", &list, "an OpenTelemetry collector")?.context(packages::NO_PYTHON)?;
    let folder = "import importlib.util; print(importlib.util.find_spec('rotel').submodule_search_locations[0])";
    let folder = shell::output(Command::new(programs.join("python")).args(["-c", folder]))?;
    Ok(Path::new(folder.trim()).join("rotel-agent"))
}

fn node() -> Result<Option<String>> {
    let source = shell::root().join("sdk-tests/node");
    npm::suite("node", &source, "JavaScript SDKs", suite_environment)
}

/// Exports of usage records to a real server of S3's API, which is a Python package.
fn storage() -> Result<Option<String>> {
    let source = shell::root().join("sdk-tests/storage");
    let Some(programs) = packages::python("storage", &source.join("requirements.txt"), "a server of S3's API")? else {
        return Ok(Some(packages::NO_PYTHON.to_owned()));
    };
    let mut command = Command::new(programs.join("python"));
    command.args(["-m", "pytest", "-q", "-p", "no:cacheprovider"]).current_dir(source).env("PYTHONDONTWRITEBYTECODE", "1");
    shell::run(suite_environment(&mut command))?;
    Ok(None)
}

/// Signing in at a real OpenID provider, which is an npm package.
fn oidc() -> Result<Option<String>> {
    let source = shell::root().join("sdk-tests/oidc");
    npm::suite("oidc", &source, "OpenID provider", suite_environment)
}
