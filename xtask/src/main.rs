//! Developer commands, run as `cargo xtask <command>`.

#![expect(clippy::print_stdout, reason = "developer commands print their results")]

mod agents;
mod bench;
mod browser;
mod check;
mod demo;
mod deny;
mod dev;
mod dist;
mod docs;
mod faults;
mod fuzz;
mod npm;
mod packages;
mod page;
mod pictures;
mod prices;
mod schemathesis;
mod sdk;
mod servers;
mod shell;
mod tidy;
mod upgrades;

use clap::{Parser, Subcommand};

/// Developer commands of tollgate.
#[derive(Parser)]
#[command(name = "cargo xtask", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Everything CI runs, in CI's order; sets up what it needs and lists what it skipped.
    Check {
        /// Fail when anything had to be skipped.
        #[arg(long)]
        require_all: bool,
    },
    /// Checks rules that the compiler does not check: layers, stages, dependencies, names, words, sizes.
    Tidy,
    /// Runs the official SDKs (Python and JavaScript) against the real binary.
    Sdk,
    /// Sends requests made from the OpenAPI document to the real binary and checks every answer.
    Schemathesis(schemathesis::SchemathesisOptions),
    /// Runs the pages of the console in Chromium against the real binary.
    Browser,
    /// Runs coding agents (Claude Code, Codex) from their public packages against the real binary, over each kind of upstream.
    Agents(agents::AgentsOptions),
    /// Builds the program with profile-guided optimisation for requests.
    Dist(dist::DistOptions),
    /// Regenerates the parts of the documentation that are derived from the code.
    Docs,
    /// Writes the price list that is built into the program, from a wheel of LiteLLM.
    Prices(prices::PricesOptions),
    /// Runs every fuzz target in `fuzz/`, seeded from the fixtures.
    Fuzz(fuzz::FuzzOptions),
    /// Measures the gateway against nginx in one interleaved run and prints ratios.
    Bench(bench::BenchOptions),
    /// Measures the effect of hostile keys on a well-behaved key of the same gateway.
    Faults(faults::FaultsOptions),
    /// Upgrades a gateway under load and measures the effect on callers.
    Upgrades(upgrades::UpgradesOptions),
    /// Runs a gateway with a month of history and a scripted provider behind it.
    Dev(dev::DevOptions),
    /// Takes the pictures of the console for the documentation.
    Pictures(pictures::PicturesOptions),
}

fn main() -> anyhow::Result<()> {
    match Cli::parse().command {
        Command::Check { require_all } => check::run(require_all),
        Command::Tidy => tidy::run(),
        Command::Sdk => sdk::run_alone(),
        Command::Schemathesis(options) => schemathesis::run_alone(&options),
        Command::Browser => browser::run_alone(),
        Command::Agents(options) => agents::run(&options),
        Command::Dist(options) => dist::run(&options),
        Command::Docs => docs::run(),
        Command::Prices(options) => prices::run(&options),
        Command::Fuzz(options) => fuzz::run_alone(&options),
        Command::Bench(options) => bench::run(&options),
        Command::Faults(options) => faults::run(&options),
        Command::Upgrades(options) => upgrades::run(&options),
        Command::Dev(options) => dev::run(&options),
        Command::Pictures(options) => pictures::run(&options),
    }
}
