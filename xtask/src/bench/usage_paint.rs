//! Times until Debian's Chromium paints the first content of the console's pages, on a database with many records and keys.

use std::{fs, process::Command};

use anyhow::{Context as _, Result};
use serde::Deserialize;

use super::usage_pages::{ADMIN, ConsoleSession, PASSWORD};
use crate::{npm, shell};

/// Times each page is opened, each with an empty cache of the browser.
const RUNS: usize = 5;
const SCRIPTS: [&str; 2] = ["browser.mjs", "paint.mjs"];

/// A line that `paint.mjs` prints.
#[derive(Deserialize)]
struct PaintTimes {
    path: String,
    /// Milliseconds of each run.
    times: Vec<f64>,
}

/// Milliseconds of the page with the highest median, at the gateway at this address; `None` where there is no browser.
pub(super) fn measure(address: &str) -> Result<Option<f64>> {
    if shell::ensure_debian("chromium", "chromium").is_err() {
        println!("  first paints: skipped, because chromium is not installed (Debian package `chromium`)");
        return Ok(None);
    }
    let tests = shell::root().join("browser-tests");
    let Some(home) = npm::install(&tests, "browser", "browser tests")? else {
        println!("  first paints: skipped, because npm is not installed (Debian package `npm`)");
        return Ok(None);
    };
    for script in SCRIPTS {
        fs::copy(tests.join(script), home.join(script))?;
    }
    let paths = serde_json::to_string(&ConsoleSession::sign_in(address)?.paths()?)?;
    let mut command = Command::new("node");
    command.arg("paint.mjs").current_dir(&home).env("BASE", format!("http://{address}"));
    command.env("LOGIN", ADMIN).env("PASSWORD", PASSWORD).env("PATHS", paths).env("RUNS", RUNS.to_string());
    let mut slowest: f64 = 0.0;
    for line in shell::output(&mut command)?.lines() {
        let PaintTimes { path, mut times } = serde_json::from_str(line).context("a line of paint.mjs")?;
        times.sort_by(f64::total_cmp);
        let (median, longest) = (times[times.len() / 2], times[times.len() - 1]);
        println!("  first paint of {path}: {median:.0} ms, at most {longest:.0} ms");
        slowest = slowest.max(median);
    }
    Ok(Some(slowest))
}
