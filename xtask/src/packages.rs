//! Packages from `PyPI` and npm for developer commands, installed into `target/xtask` from lists with fixed versions.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::Result;

use crate::shell;

/// Why nothing could be installed from `PyPI`.
pub(crate) const NO_PYTHON: &str = "there is no python3";

/// Creates a virtual environment with the packages of a list, unless it is there, and returns the folder of its programs; `None` without
/// Python.
pub(crate) fn python(name: &str, list: &Path, packages: &str) -> Result<Option<PathBuf>> {
    if !shell::has("python3") && shell::ensure_debian("python3", "python3-venv python3-pip").is_err() {
        return Ok(None);
    }
    let home = shell::work_folder().join(name);
    if !is_current(&home, list) {
        println!("    installing {packages}");
        let _ = fs::remove_dir_all(&home);
        if shell::output(Command::new("python3").args(["-m", "venv"]).arg(&home)).is_err() {
            shell::ensure_debian("tollgate-no-such-program", "python3-venv").ok();
            shell::output(Command::new("python3").args(["-m", "venv"]).arg(&home))?;
        }
        let arguments = ["install", "--quiet", "--disable-pip-version-check", "-r"];
        shell::output(Command::new(home.join("bin/pip")).args(arguments).arg(list))?;
        mark_current(&home, list)?;
    }
    Ok(Some(home.join("bin")))
}

/// True when the packages in a folder were installed from this list.
pub(crate) fn is_current(home: &Path, list: &Path) -> bool {
    let installed = fs::read(home.join("installed-from")).unwrap_or_default();
    !installed.is_empty() && fs::read(list).is_ok_and(|wanted| wanted == installed)
}

pub(crate) fn mark_current(home: &Path, list: &Path) -> Result<()> {
    fs::copy(list, home.join("installed-from"))?;
    Ok(())
}
