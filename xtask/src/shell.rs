//! Running programs, with words about what runs and for how long.

use std::{
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::{Context, Result, bail};

/// The workspace's root folder.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask lies in the workspace").to_owned()
}

/// Where xtask keeps what it installs and builds beside cargo's own output.
pub(crate) fn workshop() -> PathBuf {
    let target = target_dir();
    target.join("xtask")
}

/// Cargo's output folder.
pub(crate) fn target_dir() -> PathBuf {
    #[expect(clippy::disallowed_methods, reason = "cargo hands its settings over in the environment")]
    std::env::var("CARGO_TARGET_DIR").map_or_else(|_| root().join("target"), PathBuf::from)
}

/// A cargo command in the workspace's root, as from a shell: what `cargo run` tells us of our own package would make
/// build scripts that look at it (ring's) run again, and everything above them be compiled anew.
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

/// Runs a command with its output shown; an exit code other than 0 is an error.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    let shown = show(command);
    let status = command.stdin(Stdio::null()).status().with_context(|| format!("cannot start `{shown}`"))?;
    if !status.success() {
        bail!("`{shown}` ended with {status}");
    }
    Ok(())
}

/// Runs a command quietly and gives what it printed; an exit code other than 0 is an error that holds the output.
pub(crate) fn output(command: &mut Command) -> Result<String> {
    let shown = show(command);
    let out = command.stdin(Stdio::null()).output().with_context(|| format!("cannot start `{shown}`"))?;
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    if !out.status.success() {
        bail!("`{shown}` ended with {}:\n{text}{}", out.status, String::from_utf8_lossy(&out.stderr));
    }
    Ok(text)
}

/// Whether a program is on the path (or is the path of one).
pub(crate) fn has(program: &str) -> bool {
    Command::new("sh").args(["-c", "command -v \"$0\"", program]).output().is_ok_and(|out| out.status.success())
}

/// Installs a Debian package where that is possible; says nothing when it is there already.
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
