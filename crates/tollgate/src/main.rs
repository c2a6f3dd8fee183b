//! tollgate: a model gateway. One key, both protocols, every upstream.
//!
//! This file only reads the command line and turns a failure into an exit code; what a verb does is in
//! [`command`], how the crates are put together in [`compose`].

mod admin;
mod catalog_file;
mod catalog_watch;
mod channel_test;
mod cli;
mod command;
mod compose;
mod config;
mod console;
mod database_watch;
mod failure;
mod first_start;
mod health_share;
mod journal_backlog;
mod ledger_watch;
mod logging;
mod output;
mod retention;
mod traffic_snapshot;
mod usage_format;

use std::process::ExitCode;

use clap::Parser;

use crate::{
    cli::{Cli, Command},
    failure::Failure,
};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let cli = Cli::parse();
    match run(cli) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            output::failure(&failure);
            ExitCode::from(failure.code())
        }
    }
}

fn run(cli: Cli) -> Result<(), Failure> {
    let common = cli.common;
    match cli.command.unwrap_or_default() {
        Command::Serve(arguments) => command::serve::run(&common, &arguments),
        Command::Check(arguments) => {
            admin::reject_url(&common, "tollgate check")?;
            command::check::run(&common, &arguments)
        }
        Command::Doctor(arguments) => {
            admin::require_local(&common, "tollgate doctor")?;
            command::doctor::run(&common, &arguments)
        }
        Command::Ready => {
            admin::reject_url(&common, "tollgate ready")?;
            command::ready::run(&common)
        }
        Command::Apply(arguments) => command::catalog::apply(&common, &arguments),
        Command::Pull => command::catalog::pull(&common),
        Command::Key(verb) => command::key::run(&common, verb),
        Command::AdminKey(verb) => command::admin_key::run(&common, verb),
        Command::Channel(verb) => command::channel::run(&common, verb),
        Command::Account(verb) => command::resource::accounts(&common, verb),
        Command::Model(verb) => command::model::run(&common, verb),
        Command::Group(verb) => command::resource::groups(&common, verb),
        Command::Member(verb) => command::resource::members(&common, verb),
        Command::Budget(verb) => command::budget::run(&common, &verb),
        Command::Audit(arguments) => command::audit::run(&common, &arguments),
        Command::Settings(arguments) => command::settings::run(&common, arguments.source.as_deref()),
        Command::Usage(verb) => command::usage::run(&common, verb),
        Command::Migrate(verb) => {
            admin::require_local(&common, "tollgate migrate")?;
            command::migrate::run(&common, &verb)
        }
        Command::Ledger(verb) => command::ledger::run(&common, verb),
        Command::Verify => {
            admin::require_local(&common, "tollgate verify")?;
            command::verify::run(&common)
        }
        Command::Explain(arguments) => command::explain::run(&common, &arguments),
        Command::Replay(arguments) => {
            admin::require_local(&common, "tollgate replay")?;
            command::replay::run(&common, arguments)
        }
        Command::Completions { shell } => command::about::completions(shell),
        Command::Man => command::about::man(),
        Command::Version => command::about::version(&common),
    }
}
