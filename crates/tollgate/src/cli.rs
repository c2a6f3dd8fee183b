//! Command line arguments.

mod accounting;
mod identity;
#[cfg(test)]
mod page;
mod prices;
mod resources;
mod usage;

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum, builder::PossibleValuesParser};
use tollgate_core::Secret;
use tollgate_protocol::Protocol;

pub(crate) use accounting::{Alert, AlertState, Audit, Budget, Job, Ledger, LedgerPosting, Settings, SettingsAction};
pub(crate) use identity::{Init, Invite, Member, Session};
pub(crate) use prices::{ListFormat, Price, PriceHistory, PriceImport, PriceSimulation};
pub(crate) use resources::{
    Account, AccountName, AccountSelection, AdminKey, Channel, ChannelNames, ClientLines, FieldArgs, HealthTime, Key, KeyName,
    Model, NewRow, PreviewArgs, Proxy, ResourceCommand, RowChange, RowName,
};
pub(crate) use usage::{
    AttemptGroup, AttemptSums, ExportFormat, GroupBy, RecordFilter, SumGroup, SumOrder, UploadDays, Usage, UsageFilter,
};

/// A model gateway: one key, every protocol, every upstream.
#[derive(Debug, Parser)]
#[command(name = "tollgate", version, about, max_term_width = 110)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) common: Common,
    #[command(subcommand)]
    pub(crate) command: Option<Command>,
}

/// Options of all commands.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct Common {
    /// Settings file [default: `$TOLLGATE_CONFIG`, ./tollgate.toml, /etc/tollgate/tollgate.toml]
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Data folder [default: ./tollgate-data]
    #[arg(long, global = true, value_name = "DIR")]
    pub(crate) data: Option<PathBuf>,
    /// Use the admin API of a running gateway, such as `https://gateway.example.com`, instead of the local database [default: `$TOLLGATE_URL`]
    #[arg(long, global = true, value_name = "URL")]
    pub(crate) url: Option<String>,
    /// Admin key for `--url`: `env:NAME`, `file:PATH` or the key itself [default: `$TOLLGATE_ADMIN_KEY`]
    #[arg(long, global = true, value_name = "KEY", value_parser = secret)]
    pub(crate) admin_key: Option<Secret>,
    /// Print JSON
    #[arg(long, global = true)]
    pub(crate) json: bool,
    /// Print results only, without remarks
    #[arg(long, global = true)]
    pub(crate) quiet: bool,
}

/// The word of a value on the command line.
pub(crate) fn word(value: &impl ValueEnum) -> String {
    value.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
}

/// Value parser for secrets: accepts any text and never prints it.
#[expect(clippy::unnecessary_wraps, reason = "signature of a value parser")]
fn secret(text: &str) -> Result<Secret, std::convert::Infallible> {
    Ok(Secret::new(text.to_owned()))
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run the gateway (the default command)
    Serve(Serve),
    /// Replace the running gateway by this executable, without a gap
    Upgrade(Upgrade),
    /// Write a settings file, and create the data folder and the first admin
    Init(Init),
    /// Validate the settings and print each value with its source
    Check(Check),
    /// Diagnose data folder, database, journal and Redis
    Doctor(Doctor),
    /// Check that the local gateway takes requests (for container health checks)
    Ready,
    /// Apply a catalog file to the database, after showing the changes
    Apply(Apply),
    /// Print the current catalog as a catalog file, without secrets
    Pull(Pull),
    /// Manage service keys of callers
    #[command(subcommand)]
    Key(Key),
    /// Manage keys of the admin API
    #[command(subcommand)]
    AdminKey(AdminKey),
    /// Manage and test channels
    #[command(subcommand)]
    Channel(Channel),
    /// Manage accounts of a channel
    #[command(subcommand)]
    Account(Account),
    /// Show, set and test the proxies of channels
    #[command(subcommand)]
    Proxy(Proxy),
    /// Manage models and their prices
    #[command(subcommand)]
    Model(Model),
    /// Show, set and import prices, and compute what requests cost
    #[command(subcommand)]
    Price(Price),
    /// Manage groups
    #[command(subcommand)]
    Group(ResourceCommand),
    /// Manage members and how they sign in
    #[command(subcommand)]
    Member(Member),
    /// Invite people to become members
    #[command(subcommand)]
    Invite(Invite),
    /// Show and end sessions of members
    #[command(subcommand)]
    Session(Session),
    /// Create the one-time link with which the first admin sets a password
    SetupLink,
    /// Show budgets and current spending
    #[command(subcommand)]
    Budget(Budget),
    /// Show the audit log, newest entry first
    Audit(Audit),
    /// Show alerts and their rules, and manage the destinations that messages go to
    #[command(subcommand)]
    Alert(Alert),
    /// Show and cancel the jobs of a running gateway (with `--url`)
    #[command(subcommand)]
    Job(Job),
    /// Show the effective settings and the source of each, and change them at run time
    #[command(args_conflicts_with_subcommands = true)]
    Settings(Settings),
    /// Show, sum up and export usage records
    #[command(subcommand)]
    Usage(Box<Usage>),
    /// Move this gateway to another database
    #[command(subcommand)]
    Migrate(Migrate),
    /// Post to and show the ledger of member balances
    #[command(subcommand)]
    Ledger(Ledger),
    /// Verify that ledger, balances, usage log and journal agree
    Verify,
    /// Write database and journal to one file; a gateway may keep serving
    Backup(Backup),
    /// Restore a backup into a data folder that holds no gateway's data
    Restore(Restore),
    /// Read the journal, which holds usage records on their way to the database
    #[command(subcommand)]
    Journal(Journal),
    /// Rotate the master key, which seals the secrets in the database
    #[command(subcommand)]
    MasterKey(MasterKey),
    /// Explain how a request would be routed: accounts in order, and why others are excluded
    Explain(Explain),
    /// Show how a changed catalog file would have routed and priced the recorded requests
    Replay(Replay),
    /// Print a shell completion script
    Completions {
        /// Shell
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

#[derive(Clone, Debug, Default, Args)]
pub(crate) struct Serve {
    /// Catalog file to serve; the API and commands cannot change its rows
    #[arg(long, value_name = "FILE")]
    pub(crate) catalog: Option<PathBuf>,
    /// Address to listen on [default: 127.0.0.1:8080]
    #[arg(long, value_name = "ADDR")]
    pub(crate) listen: Option<String>,
    /// Take over from the gateway that runs on the same data folder, without a gap
    #[arg(long)]
    pub(crate) upgrade: bool,
}

/// The options of `serve`, with which the new process is started.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct Upgrade {
    /// Catalog file to serve, as for `serve`
    #[arg(long, value_name = "FILE")]
    pub(crate) catalog: Option<PathBuf>,
    /// Address the gateway listens on, as for `serve`
    #[arg(long, value_name = "ADDR")]
    pub(crate) listen: Option<String>,
}

#[derive(Clone, Debug, Default, Args)]
pub(crate) struct Check {
    /// Also validate this catalog file
    #[arg(long, value_name = "FILE")]
    pub(crate) catalog: Option<PathBuf>,
    /// Print the example settings file and exit
    #[arg(long)]
    pub(crate) example: bool,
}

#[derive(Clone, Debug, Default, Args)]
pub(crate) struct Doctor {
    /// Repair damaged journal segments, keeping intact entries; requires that no gateway is running; not with `--url`
    #[arg(long)]
    pub(crate) repair: bool,
}

#[derive(Clone, Debug, Args)]
pub(crate) struct Apply {
    /// Catalog file, such as catalog.toml
    pub(crate) file: PathBuf,
    /// Show the changes and their effects without applying them
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Apply without confirmation
    #[arg(long)]
    pub(crate) yes: bool,
    /// Also remove rows that the file does not contain
    #[arg(long)]
    pub(crate) prune: bool,
}

#[derive(Clone, Debug, Args)]
pub(crate) struct Pull {
    /// Only these channels with their accounts: names or ids, separated by commas
    #[arg(long, value_name = "CHANNELS")]
    pub(crate) channels: Option<String>,
}

#[derive(Clone, Debug, Args)]
pub(crate) struct Backup {
    /// File to write, such as tollgate-2026-11-22.backup; must not exist. With `--url` the gateway writes it, and it is moved here
    pub(crate) file: PathBuf,
    /// Include the master key, sealed under the passphrase; not with `--url`
    #[arg(long)]
    pub(crate) with_secrets: bool,
    /// Passphrase as `env:NAME` or `file:PATH`
    #[arg(long, value_name = "REFERENCE")]
    pub(crate) passphrase: Option<String>,
}

#[derive(Clone, Debug, Args)]
pub(crate) struct Restore {
    /// File that `tollgate backup` wrote; with `--check` and `--url` the name of a backup on the gateway's disk
    pub(crate) file: PathBuf,
    /// Only check the backup: restore it into a temporary folder beside it, verify the result, and remove the folder
    #[arg(long, conflicts_with = "passphrase")]
    pub(crate) check: bool,
    /// Passphrase of the master key in it, as `env:NAME` or `file:PATH`
    #[arg(long, value_name = "REFERENCE")]
    pub(crate) passphrase: Option<String>,
}

#[derive(Clone, Debug, Subcommand)]
pub(crate) enum Journal {
    /// Print the entries as JSON lines, in the order of writing; a gateway may keep serving
    Dump {
        /// Only the entries of this request
        #[arg(long, value_name = "REQUEST_ID")]
        request: Option<String>,
    },
}

#[derive(Clone, Debug, Subcommand)]
pub(crate) enum MasterKey {
    /// Replace the master key while gateways serve; run it again if it was interrupted
    Rotate {
        /// How long to wait for every gateway to hold the new key
        #[arg(long, value_name = "SECONDS", default_value_t = 300)]
        wait: u64,
    },
    /// Print a line with a new key, for sources that `rotate` cannot write
    New,
}

#[derive(Clone, Debug, Subcommand)]
pub(crate) enum Migrate {
    /// Copy the SQLite database to PostgreSQL; run it again after stopping the gateway
    ToPostgres {
        /// PostgreSQL URL, such as `postgres://tollgate:secret@db.internal/tollgate`
        #[arg(value_name = "URL")]
        target: String,
    },
}

#[derive(Clone, Debug, Args)]
pub(crate) struct Replay {
    /// Catalog file to compare with the current catalog
    pub(crate) file: PathBuf,
    #[command(flatten)]
    pub(crate) filter: RecordFilter,
}

#[derive(Clone, Debug, Args)]
pub(crate) struct Explain {
    /// Model name as sent by callers, such as gpt-4.1
    #[arg(long)]
    pub(crate) model: String,
    /// Key id, or key name if it is unambiguous
    #[arg(long, required_unless_present = "group")]
    pub(crate) key: Option<String>,
    /// Instead of a key: a caller of this group without limits of its own, by name or id
    #[arg(long, conflicts_with = "key")]
    pub(crate) group: Option<String>,
    /// Protocol of the caller
    #[arg(long, default_value = "openai", value_parser = PossibleValuesParser::new(Protocol::WORDS))]
    pub(crate) protocol: String,
    /// Field the request contains, such as `logit_bias`; may be repeated
    #[arg(long = "field", value_name = "FIELD")]
    pub(crate) fields: Vec<String>,
    /// Value of the header `x-tollgate-max-price`, such as `input:1.5,output:6`
    #[arg(long, value_name = "PRICES")]
    pub(crate) max_price: Option<String>,
    /// Estimated input in tokens [default: 1000]
    #[arg(long, value_name = "TOKENS", value_parser = clap::value_parser!(u32))]
    pub(crate) input_tokens: Option<u32>,
    /// Requested output limit in tokens [default: the limit of the model, else 16384]
    #[arg(long, value_name = "TOKENS", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) output_tokens: Option<u32>,
}
