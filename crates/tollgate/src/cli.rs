//! The command line, as types.

mod accounting;
mod resources;

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};
use tollgate_core::Secret;

pub(crate) use accounting::{Audit, Budget, BudgetSubject, GroupBy, Ledger, LedgerPosting, Settings, Usage, UsageFilter};
pub(crate) use resources::{Account, AdminKey, Channel, FieldArgs, Key, Model, PreviewArgs, ResourceCommand, Scope};

/// A model gateway: one key, both protocols, every upstream.
#[derive(Debug, Parser)]
#[command(name = "tollgate", version, about, max_term_width = 110)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) common: Common,
    #[command(subcommand)]
    pub(crate) command: Option<Command>,
}

/// What every verb takes.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct Common {
    /// Settings file [default: `$TOLLGATE_CONFIG`, ./tollgate.toml, /etc/tollgate/tollgate.toml]
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Data folder [default: ./tollgate-data]
    #[arg(long, global = true, value_name = "DIR")]
    pub(crate) data: Option<PathBuf>,
    /// Ask the admin API of the gateway at this address instead of opening its database [default: `$TOLLGATE_URL`]
    #[arg(long, global = true, value_name = "URL")]
    pub(crate) url: Option<String>,
    /// Admin key for that, as `env:NAME`, `file:PATH` or the key itself [default: `$TOLLGATE_ADMIN_KEY`]
    #[arg(long, global = true, value_name = "KEY", value_parser = secret)]
    pub(crate) admin_key: Option<Secret>,
    /// Print JSON
    #[arg(long, global = true)]
    pub(crate) json: bool,
    /// Print only what was asked for
    #[arg(long, global = true)]
    pub(crate) quiet: bool,
}

/// Takes any text, and shows it to nobody.
#[expect(clippy::unnecessary_wraps, reason = "the form of a value parser")]
fn secret(text: &str) -> Result<Secret, std::convert::Infallible> {
    Ok(Secret::new(text.to_owned()))
}

/// The verbs.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Serve callers (what happens without a verb)
    Serve(Serve),
    /// Check the settings and show their values and where they come from
    Check(Check),
    /// Look at folder, keys, database and journal, and say what to do
    Doctor(Doctor),
    /// Ask whether the gateway on this machine takes requests; for health checks
    Ready,
    /// Apply a catalog file to the database: plan, confirm, apply
    Apply(Apply),
    /// Print the current catalog as a file, without secrets
    Pull,
    /// Service keys
    #[command(subcommand)]
    Key(Key),
    /// Keys of the admin API
    #[command(subcommand)]
    AdminKey(AdminKey),
    /// Channels and their accounts
    #[command(subcommand)]
    Channel(Channel),
    /// Accounts under a channel
    #[command(subcommand)]
    Account(Account),
    /// Models and their prices
    #[command(subcommand)]
    Model(Model),
    /// Groups
    #[command(subcommand)]
    Group(ResourceCommand),
    /// Members
    #[command(subcommand)]
    Member(ResourceCommand),
    /// Budgets with what is spent of them
    #[command(subcommand)]
    Budget(Budget),
    /// Who changed what, newest first
    Audit(Audit),
    /// The settings in force and where each comes from
    Settings(Settings),
    /// The usage log
    #[command(subcommand)]
    Usage(Usage),
    /// Move this gateway to another database
    #[command(subcommand)]
    Migrate(Migrate),
    /// Members' money
    #[command(subcommand)]
    Ledger(Ledger),
    /// Check that ledger, balances, usage log and journal agree
    Verify,
    /// Say which accounts a request would use, in order, and why not the others
    Explain(Explain),
    /// Say what a changed catalog file would have done with the requests of the usage log
    Replay(Replay),
    /// Print a completion script
    Completions {
        /// For which shell
        shell: clap_complete::Shell,
    },
    /// Print the manual page
    Man,
    /// Print the version
    Version,
}

impl Default for Command {
    fn default() -> Self {
        Self::Serve(Serve::default())
    }
}

/// `serve`.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct Serve {
    /// Catalog file to serve; what it names is owned by the file
    #[arg(long, value_name = "FILE")]
    pub(crate) catalog: Option<PathBuf>,
    /// Address to listen on [default: 127.0.0.1:8080]
    #[arg(long, value_name = "ADDR")]
    pub(crate) listen: Option<String>,
}

/// `check`.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct Check {
    /// Also check this catalog file
    #[arg(long, value_name = "FILE")]
    pub(crate) catalog: Option<PathBuf>,
    /// Print the example settings file instead
    #[arg(long)]
    pub(crate) example: bool,
}

/// `doctor`.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct Doctor {
    /// Move damaged journal segments aside, keeping what is whole; only while nothing serves
    #[arg(long)]
    pub(crate) repair: bool,
}

/// `apply`.
#[derive(Clone, Debug, Args)]
pub(crate) struct Apply {
    /// Catalog file
    pub(crate) file: PathBuf,
    /// Say what would change, price limits' effects included, and change nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Do not ask
    #[arg(long)]
    pub(crate) yes: bool,
    /// Also remove what the file does not name
    #[arg(long)]
    pub(crate) prune: bool,
}

/// `migrate …`.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum Migrate {
    /// Copy the SQLite file of this gateway to PostgreSQL; repeat it once the gateway is stopped
    ToPostgres {
        /// Where to, such as `postgres://tollgate:secret@db.internal/tollgate`
        #[arg(value_name = "URL")]
        target: String,
    },
}

/// `replay`.
#[derive(Clone, Debug, Args)]
pub(crate) struct Replay {
    /// Catalog file as it would be served or applied
    pub(crate) file: PathBuf,
    #[command(flatten)]
    pub(crate) filter: UsageFilter,
}

/// `explain`.
#[derive(Clone, Debug, Args)]
pub(crate) struct Explain {
    /// Model as a caller names it
    #[arg(long)]
    pub(crate) model: String,
    /// Key id, or its name where only one has it
    #[arg(long)]
    pub(crate) key: String,
    /// openai or gemini
    #[arg(long, default_value = "openai")]
    pub(crate) protocol: String,
    /// A field the request carries, such as `logit_bias`; repeat
    #[arg(long = "field", value_name = "FIELD")]
    pub(crate) fields: Vec<String>,
    /// The request's `x-tollgate-max-price`, such as `input=1.5,output=6`
    #[arg(long, value_name = "PRICES")]
    pub(crate) max_price: Option<String>,
    /// What the request's input is estimated at, in tokens [default: 1000]
    #[arg(long, value_name = "TOKENS", value_parser = clap::value_parser!(u32))]
    pub(crate) input_tokens: Option<u32>,
    /// The output limit it asks for, in tokens [default: none, so the model's own counts, else 16384]
    #[arg(long, value_name = "TOKENS", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) output_tokens: Option<u32>,
}
