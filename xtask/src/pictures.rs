//! `cargo xtask pictures`: takes the pictures of the console for the documentation, from the real binary with a month of history.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Result, bail};
use clap::Args;

use crate::{
    demo::{self, DemoPrograms, PASSWORD},
    npm, shell,
};

/// Maximum size of all pictures together, in bytes.
const MAX_BYTES: u64 = 1_600_000;

#[derive(Args)]
pub(crate) struct PicturesOptions {
    /// Folder of the pictures [default: docs/images].
    #[arg(long)]
    to: Option<PathBuf>,
    /// Only pictures whose names begin like this.
    #[arg(long)]
    only: Option<String>,
    /// Language of the console.
    #[arg(long, default_value = "en")]
    language: String,
}

/// Writes the history, starts the gateway, takes all pictures and reduces them to 256 colours.
pub(crate) fn run(options: &PicturesOptions) -> Result<()> {
    shell::ensure_debian("chromium", "chromium fonts-noto-cjk")?;
    shell::ensure_debian("pngquant", "pngquant")?;
    let programs = DemoPrograms::build()?;
    let tests = shell::root().join("browser-tests");
    let Some(home) = npm::install(&tests, "browser", "browser tests")? else { bail!("there is no npm") };
    for script in ["browser.mjs", "pictures.mjs"] {
        fs::copy(tests.join(script), home.join(script))?;
    }
    let folder = shell::temp_dir("tollgate-pictures-")?;
    let (_provider, provider) = programs.provider("127.0.0.1:0")?;
    let data = folder.path().join("data");
    programs.write_history(&data, &provider)?;
    let (_gateway, base) = programs.serve(&data, &folder.path().join("log"))?;
    let taken = folder.path().join("pictures");
    let mut command = Command::new("node");
    command.arg("pictures.mjs").current_dir(&home).env("BASE", base).env("PASSWORD", PASSWORD).env("PICTURES", &taken);
    command.env("ANSWERS", demo::answers()).env("LOCALE", &options.language);
    if let Some(only) = &options.only {
        command.env("ONLY", only);
    }
    shell::run(&mut command)?;
    let target = options.to.clone().unwrap_or_else(|| shell::root().join("docs/images"));
    reduce(&taken, &target)
}

/// Writes the pictures with at most 256 colours each, which is a third of their size.
fn reduce(taken: &Path, target: &Path) -> Result<()> {
    fs::create_dir_all(target)?;
    let mut bytes = 0;
    for entry in fs::read_dir(taken)? {
        let picture = entry?;
        let reduced = target.join(picture.file_name());
        let mut command = Command::new("pngquant");
        command.args(["--force", "--strip", "--speed", "1", "--quality", "60-95", "--output"]).arg(&reduced).arg(picture.path());
        shell::run(&mut command)?;
        bytes += fs::metadata(&reduced)?.len();
    }
    println!("    {} kB in {}", bytes / 1_000, target.display());
    if bytes > MAX_BYTES {
        bail!("the pictures have {bytes} bytes, more than {MAX_BYTES}: take fewer or smaller ones");
    }
    Ok(())
}
