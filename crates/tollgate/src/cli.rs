//! The command line, as types.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

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
    /// Print JSON
    #[arg(long, global = true)]
    pub(crate) json: bool,
    /// Print only what was asked for
    #[arg(long, global = true)]
    pub(crate) quiet: bool,
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
    /// Models
    #[command(subcommand)]
    Model(Model),
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

/// `key …`.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum Key {
    /// Make a key and print it, this once
    Create {
        /// Its name
        name: String,
        /// A group it reaches; repeat in order of preference
        #[arg(long = "group", value_name = "GROUP")]
        groups: Vec<String>,
        /// Whose it is
        #[arg(long, default_value = "owner")]
        member: String,
        /// A model it may use, `*` and `?` allowed; repeat
        #[arg(long = "model", value_name = "GLOB")]
        models: Vec<String>,
        /// When it ends, such as 2027-01-01T00:00:00Z
        #[arg(long, value_name = "TIME")]
        expires_at: Option<String>,
        /// Print `export` lines for a shell
        #[arg(long)]
        env: bool,
    },
    /// List keys
    List,
    /// End a key for good
    Revoke {
        /// Its id, or its name where only one has it
        key: String,
    },
}

/// `admin-key …`.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum AdminKey {
    /// Make an admin key and print it, this once
    Create {
        /// Its name
        name: String,
        /// admin: everything; operator: channels, groups, models, keys and usage
        #[arg(long, value_enum, default_value_t = Scope::Admin)]
        scope: Scope,
        /// When it ends, such as 2027-01-01T00:00:00Z
        #[arg(long, value_name = "TIME")]
        expires_at: Option<String>,
    },
    /// List admin keys
    List,
    /// End an admin key for good
    Revoke {
        /// Its id or name
        key: String,
    },
}

/// What an admin key may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Scope {
    /// Channels, groups, models, keys and usage
    Operator,
    /// Everything
    Admin,
}

/// `channel …`.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum Channel {
    /// List channels with their accounts and health
    List,
    /// Call a channel's accounts for real and show each step
    Test {
        /// Channel name
        channel: String,
        /// Only this account
        #[arg(long)]
        account: Option<String>,
        /// With this model [default: the first it serves]
        #[arg(long)]
        model: Option<String>,
    },
    /// Switch a channel (or one account) on
    Enable {
        /// Channel name
        channel: String,
        /// Only this account
        #[arg(long)]
        account: Option<String>,
    },
    /// Switch a channel (or one account) off by hand
    Disable {
        /// Channel name
        channel: String,
        /// Only this account
        #[arg(long)]
        account: Option<String>,
    },
}

/// `model …`.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum Model {
    /// List models with prices and the channels that serve them
    List,
}

/// `ledger …`.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum Ledger {
    /// Pay in for a member
    TopUp(LedgerPosting),
    /// Correct a member's balance
    Adjust(LedgerPosting),
    /// List entries, newest first
    List {
        /// Of this member (name or id)
        #[arg(long)]
        member: Option<String>,
        /// `top_up`, `settle` or `adjust`
        #[arg(long)]
        kind: Option<String>,
        /// Only those before this place
        #[arg(long, value_name = "PLACE")]
        before: Option<i64>,
        /// How many, at most 1000
        #[arg(short = 'n', long, default_value_t = 50)]
        limit: u32,
    },
    /// List members with their balances
    Balances,
}

/// Money moved by hand.
#[derive(Clone, Debug, Args)]
pub(crate) struct LedgerPosting {
    /// Member (name or id)
    pub(crate) member: String,
    /// USD, such as 25 or 0.50; an adjustment may be negative
    #[arg(allow_negative_numbers = true)]
    pub(crate) amount: String,
    /// Why
    #[arg(long)]
    pub(crate) note: Option<String>,
    /// Posts it once, however often the command is repeated
    #[arg(long, value_name = "KEY")]
    pub(crate) idempotency_key: Option<String>,
}

/// `usage …`.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum Usage {
    /// Show the newest records
    Tail {
        /// Keep showing new ones
        #[arg(short, long)]
        follow: bool,
        /// How many to begin with
        #[arg(short = 'n', long, default_value_t = 20)]
        lines: u32,
        #[command(flatten)]
        filter: UsageFilter,
    },
    /// Sums
    Summary {
        /// Group by this
        #[arg(long, value_enum, default_value_t = By::Day)]
        by: By,
        #[command(flatten)]
        filter: UsageFilter,
    },
    /// Every record as CSV, or with --json one JSON object a line; those still in the journal included
    Export {
        #[command(flatten)]
        filter: UsageFilter,
    },
}

/// Which records.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct UsageFilter {
    /// Of this key (id or name)
    #[arg(long)]
    pub(crate) key: Option<String>,
    /// For this model
    #[arg(long)]
    pub(crate) model: Option<String>,
    /// completed, `caller_left`, `upstream_broke`, refused or `gateway_stopped`
    #[arg(long)]
    pub(crate) outcome: Option<String>,
    /// Arrived at or after, such as 2026-11-01T00:00:00Z
    #[arg(long, value_name = "TIME")]
    pub(crate) since: Option<String>,
    /// Arrived before
    #[arg(long, value_name = "TIME")]
    pub(crate) until: Option<String>,
}

/// `migrate …`.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum Migrate {
    /// Copy the SQLite file of this gateway to PostgreSQL; repeat it once the gateway is stopped
    ToPostgres {
        /// Where to, such as `postgres://tollgate:secret@db.internal/tollgate`
        url: String,
    },
}

/// By what a summary groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum By {
    /// One line for everything
    Nothing,
    /// UTC day
    Day,
    /// Model
    Model,
    /// Key
    Key,
    /// Group
    Group,
    /// Outcome
    Outcome,
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
}
