//! Running programs, with errors that name the command.

use std::{
    io::{BufRead as _, BufReader},
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::{Context, Result, bail};
use tempfile::TempDir;

/// Result of a step that did not fail.
pub(crate) enum StepOutcome {
    /// The step ran and passed.
    Passed,
    /// The step could not run, with the reason.
    Skipped(String),
}

/// The workspace's root folder.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask is a member of the workspace").to_owned()
}

/// The folder for installed packages and xtask's own state, inside cargo's output folder.
pub(crate) fn work_folder() -> PathBuf {
    target_dir().join("xtask")
}

/// Cargo's output folder.
pub(crate) fn target_dir() -> PathBuf {
    #[expect(clippy::disallowed_methods, reason = "cargo passes its settings in the environment")]
    std::env::var("CARGO_TARGET_DIR").map_or_else(|_| root().join("target"), PathBuf::from)
}

/// A new folder in the system's folder for temporary files, removed on drop.
pub(crate) fn temp_dir(prefix: &str) -> Result<TempDir> {
    tempfile::Builder::new().prefix(prefix).tempdir().context("cannot create a temporary folder")
}

/// A cargo command in the workspace's root with the environment of a shell. `cargo run` sets variables about xtask's package;
/// build scripts that depend on them (ring's) would run again and recompile everything above.
pub(crate) fn cargo(args: &[&str]) -> Command {
    let mut command = Command::new("cargo");
    command.args(args).current_dir(root());
    for (name, _) in std::env::vars_os() {
        if name.to_str().is_some_and(|name| name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_")) {
            command.env_remove(name);
        }
    }
    command
}

/// Builds programs of the workspace for debugging. All packages and a (short) test are selected, as `cargo test --workspace` selects
/// them: dependencies of tests enable features of other dependencies, and with another selection of features nearly every crate is
/// compiled again.
pub(crate) fn build_programs(names: &[&str]) -> Result<()> {
    let mut command = cargo(&["build", "--quiet", "--workspace", "--test", "stream_memory"]);
    run(command.args(names.iter().flat_map(|name| ["--bin", name])))
}

/// Runs a command with its output shown; an exit code other than 0 is an error.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    let shown = show(command);
    let status = command.stdin(Stdio::null()).status().with_context(|| format!("cannot start `{shown}`"))?;
    if !status.success() {
        bail!("`{shown}` ended with {status}");
    }
    Ok(())
}

/// Runs a command and returns its standard output. Input is empty unless the command sets one; an exit code other than 0 is an
/// error that contains all output.
pub(crate) fn output(command: &mut Command) -> Result<String> {
    let shown = show(command);
    let out = command.output().with_context(|| format!("cannot start `{shown}`"))?;
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    if !out.status.success() {
        bail!("`{shown}` ended with {}:\n{text}{}", out.status, String::from_utf8_lossy(&out.stderr));
    }
    Ok(text)
}

/// Runs a command and prints its standard output as it comes. Returns the last line; an exit code other than 0 is an error.
pub(crate) fn shown_output(command: &mut Command) -> Result<String> {
    let shown = show(command);
    let mut child = command.stdout(Stdio::piped()).spawn().with_context(|| format!("cannot start `{shown}`"))?;
    let mut last = String::new();
    for line in BufReader::new(child.stdout.take().expect("standard output is piped")).lines() {
        last = line?;
        println!("{last}");
    }
    let status = child.wait()?;
    if !status.success() {
        bail!("`{shown}` ended with {status}");
    }
    Ok(last)
}

/// True when the program is on the path, or is the path of a program.
pub(crate) fn has(program: &str) -> bool {
    Command::new("sh").args(["-c", "command -v \"$0\"", program]).output().is_ok_and(|out| out.status.success())
}

/// Installs a Debian package unless its program is installed; an error without apt-get.
pub(crate) fn ensure_debian(program: &str, package: &str) -> Result<()> {
    if has(program) {
        return Ok(());
    }
    if !has("apt-get") {
        bail!("`{program}` is not installed and there is no apt-get to install `{package}` with");
    }
    println!("    installing {package}");
    let install = format!(
        "export DEBIAN_FRONTEND=noninteractive; apt-get install -y -qq {package} >/dev/null 2>&1 || \
         (apt-get update -qq >/dev/null && apt-get install -y -qq {package} >/dev/null)"
    );
    output(Command::new("sh").args(["-c", &install])).map(drop)?;
    if has(program) { Ok(()) } else { bail!("`{package}` was installed but there is no `{program}`") }
}

fn show(command: &Command) -> String {
    let mut text = command.get_program().to_string_lossy().into_owned();
    for arg in command.get_args() {
        text.push(' ');
        text.push_str(&arg.to_string_lossy());
    }
    text
}
