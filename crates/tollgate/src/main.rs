//! tollgate: a model gateway. One key, every protocol, every upstream.
//!
//! Parses the command line, runs the command and maps its error to an exit code. Commands are in [`command`]; [`compose`] wires the
//! crates together.

mod access_share;
mod address_lists;
mod admin;
mod alerting;
mod backup_schedule;
mod catalog_file;
mod catalog_watch;
mod channel_test;
mod cli;
mod command;
mod compose;
mod config;
mod console;
mod console_settings;
mod database_watch;
mod descriptors;
mod disk_watch;
mod export;
mod failure;
mod first_start;
mod full_disk;
mod gateway_jobs;
mod gateway_settings;
mod health_share;
mod journal_backlog;
mod key_watch;
mod last_fault;
mod ledger_watch;
mod live_settings;
mod logging;
mod output;
mod priority;
mod retention;
mod runtime_socket;
mod telemetry;
#[cfg(debug_assertions)]
mod test_clock;
mod traffic_snapshot;
mod upgrade;
mod usage_format;
mod work;

use std::process::ExitCode;

use clap::Parser;

use crate::{
    cli::{Cli, Command},
    command::resource::GROUPS,
    failure::Failure,
};

#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    // Files that a command creates (database, journal, backups) are accessible to their owner alone.
    rustix::process::umask(rustix::fs::Mode::RWXG | rustix::fs::Mode::RWXO);
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
    #[cfg(debug_assertions)]
    test_clock::start();
    let common = cli.common;
    match cli.command.unwrap_or_default() {
        Command::Serve(arguments) => command::serve::run(&common, &arguments),
        Command::Upgrade(arguments) => command::upgrade::run(&common, &arguments),
        Command::Check(arguments) => {
            admin::reject_url(&common, "tollgate check")?;
            command::check::run(&common, &arguments)
        }
        Command::Doctor(arguments) => command::doctor::run(&common, &arguments),
        Command::Ready => {
            admin::reject_url(&common, "tollgate ready")?;
            command::ready::run(&common)
        }
        Command::Apply(arguments) => command::catalog::apply(&common, &arguments),
        Command::Pull(arguments) => command::catalog::pull(&common, &arguments),
        Command::Key(action) => command::key::run(&common, action),
        Command::AdminKey(subcommand) => command::admin_key::run(&common, subcommand),
        Command::Channel(subcommand) => command::channel::run(&common, subcommand),
        Command::Account(subcommand) => command::resource::accounts(&common, subcommand),
        Command::Proxy(subcommand) => command::proxy::run(&common, &subcommand),
        Command::Model(subcommand) => command::model::run(&common, subcommand),
        Command::Price(subcommand) => command::price::run(&common, subcommand),
        Command::Group(subcommand) => command::resource::named(&common, GROUPS, subcommand),
        Command::Member(subcommand) => command::identity::member(&common, subcommand),
        Command::Invite(subcommand) => command::identity::invite(&common, &subcommand),
        Command::Session(subcommand) => command::identity::session(&common, &subcommand),
        Command::SetupLink => command::identity::setup_link(&common),
        Command::Init(arguments) => command::init::run(&common, &arguments),
        Command::Budget(subcommand) => command::lists::budgets(&common, &subcommand),
        Command::Audit(arguments) => command::lists::audit(&common, &arguments),
        Command::Alert(subcommand) => command::alert::run(&common, subcommand),
        Command::Job(subcommand) => command::jobs::run(&common, &subcommand),
        Command::Settings(arguments) => command::settings::run(&common, &arguments),
        Command::Usage(subcommand) => command::usage::run(&common, *subcommand),
        Command::Migrate(subcommand) => {
            admin::require_local(&common, "tollgate migrate").map_err(command::migrate::of_a_stopped_gateway)?;
            command::migrate::run(&common, &subcommand)
        }
        Command::Ledger(subcommand) => command::ledger::run(&common, subcommand),
        Command::Verify => command::verify::run(&common),
        Command::Backup(arguments) => command::backup::run_backup(&common, &arguments),
        Command::Restore(arguments) => {
            if !arguments.check {
                admin::require_local(&common, "tollgate restore")?;
            }
            command::backup::run_restore(&common, &arguments)
        }
        Command::Journal(subcommand) => {
            admin::require_local(&common, "tollgate journal")?;
            command::journal::run(&common, &subcommand)
        }
        Command::MasterKey(subcommand) => {
            admin::require_local(&common, "tollgate master-key")?;
            command::master_key::run(&common, &subcommand)
        }
        Command::Explain(arguments) => command::explain::run(&common, &arguments),
        Command::Replay(arguments) => command::replay::run(&common, &arguments),
        Command::Completions { shell } => command::about::completions(shell),
        Command::Man => command::about::man(),
        Command::Version => command::about::version(&common),
    }
}
