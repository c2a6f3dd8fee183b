//! Runs the test suites of `sdk-tests/`: official SDKs against the real binary with a scripted provider, and signing in at a real
//! OpenID provider.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result, bail};

use crate::{
    packages,
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
    npm("node", "JavaScript SDKs")
}

/// Signing in at a real OpenID provider, which is an npm package.
fn oidc() -> Result<Option<String>> {
    npm("oidc", "OpenID provider")
}

/// Installs the packages of a folder of `sdk-tests`, and runs its tests.
fn npm(folder: &str, packages: &str) -> Result<Option<String>> {
    if !shell::has("npm") && shell::ensure_debian("npm", "nodejs npm").is_err() {
        return Ok(Some("there is no npm".to_owned()));
    }
    let home = shell::workshop().join(folder);
    let source = shell::root().join("sdk-tests").join(folder);
    let wanted = source.join("package-lock.json");
    if !packages::is_current(&home, &wanted) {
        println!("    installing the {packages}");
        let _ = fs::remove_dir_all(&home);
        fs::create_dir_all(&home)?;
        for name in ["package.json", "package-lock.json"] {
            fs::copy(source.join(name), home.join(name))?;
        }
        shell::output(Command::new("npm").args(["ci", "--silent", "--no-audit", "--no-fund"]).current_dir(&home))?;
        packages::mark_current(&home, &wanted)?;
    }
    for entry in fs::read_dir(&source)? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "mjs") {
            fs::copy(&path, home.join(path.file_name().expect("files have names")))?;
        }
    }
    let mut command = Command::new("npm");
    command.args(["test", "--silent"]).current_dir(&home);
    shell::run(suite_environment(&mut command))?;
    Ok(None)
}
