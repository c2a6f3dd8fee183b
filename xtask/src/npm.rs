//! Packages from npm, installed once from their locked lists into cargo's output folder, and the test suites among them.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::Result;

use crate::{packages, shell};

/// Installs the packages of a suite and runs its tests, with the environment that `configure` sets. The result is why it was skipped.
pub(crate) fn suite(
    name: &str,
    source: &Path,
    contents: &str,
    configure: impl FnOnce(&mut Command) -> &mut Command,
) -> Result<Option<String>> {
    let Some(home) = install(source, name, contents)? else { return Ok(Some("there is no npm".to_owned())) };
    for entry in fs::read_dir(source)? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "mjs") || path.ends_with("package.json") {
            fs::copy(&path, home.join(path.file_name().expect("files have names")))?;
        }
    }
    let mut command = Command::new("npm");
    command.args(["test", "--silent"]).current_dir(&home);
    configure(&mut command);
    shell::run(&mut command)?;
    Ok(None)
}

/// Installs the locked packages of a folder into the folder of this name in `shell::work_folder`, unless they are there, and returns that;
/// `None` without npm.
pub(crate) fn install(source: &Path, name: &str, contents: &str) -> Result<Option<PathBuf>> {
    if !shell::has("npm") && shell::ensure_debian("npm", "nodejs npm").is_err() {
        return Ok(None);
    }
    let home = shell::work_folder().join(name);
    let wanted = source.join("package-lock.json");
    if !packages::is_current(&home, &wanted) {
        println!("    installing the {contents}");
        let _ = fs::remove_dir_all(&home);
        fs::create_dir_all(&home)?;
        for name in ["package.json", "package-lock.json"] {
            fs::copy(source.join(name), home.join(name))?;
        }
        shell::output(Command::new("npm").args(["ci", "--silent", "--no-audit", "--no-fund"]).current_dir(&home))?;
        packages::mark_current(&home, &wanted)?;
    }
    Ok(Some(home))
}
