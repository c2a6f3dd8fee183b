//! Runs `browser-tests/`: the pages of the console in Debian's Chromium, against the real binary with a scripted provider.

use anyhow::{Result, bail};

use crate::{
    npm,
    shell::{self, StepOutcome},
};

/// `cargo xtask browser`.
pub(crate) fn run_alone() -> Result<()> {
    match run()? {
        StepOutcome::Passed => Ok(()),
        StepOutcome::Skipped(why) => bail!("the browser tests could not run: {why}"),
    }
}

/// Installs what the tests need and runs them. Screenshots are in `target/browser-tests`.
pub(crate) fn run() -> Result<StepOutcome> {
    if !shell::has("chromium") && shell::ensure_debian("chromium", "chromium fonts-noto-cjk").is_err() {
        return Ok(StepOutcome::Skipped("there is no chromium".to_owned()));
    }
    shell::build_programs(&["tollgate", "scripted-provider"])?;
    let (programs, source) = (shell::target_dir().join("debug"), shell::root().join("browser-tests"));
    let skipped = npm::suite("browser", &source, "browser tests", |command| {
        command
            .env("TOLLGATE", programs.join("tollgate"))
            .env("PROVIDER", programs.join("scripted-provider"))
            .env("CATALOG", source.join("catalog.toml"))
            .env("PAGE_ROUTES", shell::root().join("crates/tollgate-console/fixtures/page-routes.txt"))
            .env("SCREENSHOTS", shell::target_dir().join("browser-tests"))
    })?;
    Ok(skipped.map_or(StepOutcome::Passed, StepOutcome::Skipped))
}
