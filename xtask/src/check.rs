//! `cargo xtask check`: everything CI runs, in CI's order.

use std::time::Instant;

use anyhow::{Result, bail};

use crate::{
    browser, deny, fuzz, schemathesis, sdk, servers,
    shell::{self, StepOutcome},
    tidy,
};

/// A step; its argument is true when skips are failures.
type Step = fn(bool) -> Result<StepOutcome>;

/// Runs every step, stops at the first failure, and lists skipped ones.
pub(crate) fn run(require_all: bool) -> Result<()> {
    let steps: [(&str, Step); 9] = [
        ("format", |_| format()),
        ("tidy", |_| tidy::run().map(|()| StepOutcome::Passed)),
        ("clippy", |_| clippy()),
        ("dependencies", |_| deny::step()),
        ("tests", tests),
        ("fuzz targets", |_| fuzz::step()),
        ("official SDKs", |_| sdk::run()),
        ("browser", |_| browser::run()),
        ("requests made from the OpenAPI document", |_| schemathesis::step()),
    ];
    let mut skipped = Vec::new();
    for (number, (name, step)) in steps.iter().enumerate() {
        println!("\n=== {}/{} {name}", number + 1, steps.len());
        #[expect(clippy::disallowed_methods, reason = "developer commands read the clock")]
        let started = Instant::now();
        match step(require_all)? {
            StepOutcome::Passed => println!("=== {name}: passed in {:.0?}", started.elapsed()),
            StepOutcome::Skipped(why) => {
                println!("=== {name}: SKIPPED: {why}");
                skipped.push(format!("{name}: {why}"));
            }
        }
    }
    for line in &skipped {
        println!("skipped: {line}");
    }
    if require_all && !skipped.is_empty() {
        bail!("{} of {} steps were skipped, and --require-all was given", skipped.len(), steps.len());
    }
    println!("\nAll of `cargo xtask check` passed{}.", if skipped.is_empty() { "" } else { " (except for what was skipped)" });
    Ok(())
}

fn format() -> Result<StepOutcome> {
    shell::run(&mut shell::cargo(&["fmt", "--all", "--check"]))?;
    shell::run(&mut shell::cargo(&["fmt", "--check", "--manifest-path", "fuzz/Cargo.toml"]))?;
    Ok(StepOutcome::Passed)
}

fn clippy() -> Result<StepOutcome> {
    // The allocator is the first thing that needs it.
    shell::ensure_debian("make", "make")?;
    shell::run(&mut shell::cargo(&["clippy", "--workspace", "--all-targets", "--quiet", "--", "-D", "warnings"]))?;
    Ok(StepOutcome::Passed)
}

/// Unit and integration tests, with a temporary PostgreSQL and Redis for conformance and outage tests.
fn tests(require_all: bool) -> Result<StepOutcome> {
    let (database, counters) = (servers::postgres(&["fsync=off"]), servers::redis());
    if require_all && let Some(error) = database.as_ref().err().or(counters.as_ref().err()) {
        bail!("a server that tests need is missing, and --require-all was given: {error:#}");
    }
    let mut command = shell::cargo(&["test", "--workspace", "--quiet", "--no-fail-fast"]);
    if require_all {
        // Makes tests that would skip themselves fail.
        command.env("TOLLGATE_TEST_REQUIRE_ALL", "1");
    }
    let mut skipped = Vec::new();
    match &database {
        Ok(server) => drop(command.env("TOLLGATE_TEST_POSTGRES", server.url())),
        Err(error) => skipped.push(format!("nothing ran on PostgreSQL: {error:#}")),
    }
    match &counters {
        Ok(server) => drop(command.env("TOLLGATE_TEST_REDIS", server.url())),
        Err(error) => skipped.push(format!("nothing ran on Redis: {error:#}")),
    }
    shell::run(&mut command)?;
    drop((database, counters));
    Ok(if skipped.is_empty() { StepOutcome::Passed } else { StepOutcome::Skipped(skipped.join("; ")) })
}
