//! Test suites that are npm packages: their locked packages are installed once, in cargo's output folder.

use std::{fs, path::Path, process::Command};

use anyhow::Result;

use crate::shell;

/// Installs the packages of a suite and runs its tests, with the environment that `configure` sets. The result is why it was skipped.
pub(crate) fn suite(
    name: &str,
    source: &Path,
    packages: &str,
    configure: impl FnOnce(&mut Command) -> &mut Command,
) -> Result<Option<String>> {
    if !shell::has("npm") && shell::ensure_debian("npm", "nodejs npm").is_err() {
        return Ok(Some("there is no npm".to_owned()));
    }
    let home = shell::workshop().join(name);
    let wanted = source.join("package-lock.json");
    if !is_current(&home, &wanted) {
        println!("    installing the {packages}");
        let _ = fs::remove_dir_all(&home);
        fs::create_dir_all(&home)?;
        for name in ["package.json", "package-lock.json"] {
            fs::copy(source.join(name), home.join(name))?;
        }
        shell::output(Command::new("npm").args(["ci", "--silent", "--no-audit", "--no-fund"]).current_dir(&home))?;
        mark_current(&home, &wanted)?;
    }
    for entry in fs::read_dir(source)? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "mjs") {
            fs::copy(&path, home.join(path.file_name().expect("files have names")))?;
        }
    }
    let mut command = Command::new("npm");
    command.args(["test", "--silent"]).current_dir(&home);
    configure(&mut command);
    shell::run(&mut command)?;
    Ok(None)
}

/// True when the packages in a folder were installed from this list.
pub(crate) fn is_current(home: &Path, list: &Path) -> bool {
    let installed = fs::read(home.join("installed-from")).unwrap_or_default();
    !installed.is_empty() && fs::read(list).is_ok_and(|wanted| wanted == installed)
}

/// Notes the list that the packages of a folder were installed from.
pub(crate) fn mark_current(home: &Path, list: &Path) -> Result<()> {
    fs::copy(list, home.join("installed-from"))?;
    Ok(())
}
