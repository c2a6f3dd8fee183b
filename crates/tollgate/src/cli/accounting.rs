//! Verbs about what was recorded: usage, money, changes; and about settings.

use clap::{Args, Subcommand, ValueEnum};

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
        #[arg(short = 'n', long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=1_000))]
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
        /// How many to begin with, at most 1000
        #[arg(short = 'n', long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=1_000))]
        lines: u32,
        #[command(flatten)]
        filter: UsageFilter,
    },
    /// Sums
    Summary {
        /// Group by this
        #[arg(long, value_enum, default_value_t = GroupBy::Day)]
        by: GroupBy,
        #[command(flatten)]
        filter: UsageFilter,
    },
    /// Every record as CSV, or with --json one JSON object a line; without --url those still in the journal included
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
    /// Of this member (name or id)
    #[arg(long)]
    pub(crate) member: Option<String>,
    /// Served by this group (name or id)
    #[arg(long)]
    pub(crate) group: Option<String>,
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

/// By what a summary groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum GroupBy {
    /// One line for everything
    Nothing,
    /// UTC day
    Day,
    /// UTC hour; needs --since, and takes at most 31 days
    Hour,
    /// Model
    Model,
    /// Key
    Key,
    /// Member
    Member,
    /// Group
    Group,
    /// Outcome
    Outcome,
}

/// `budget …`.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum Budget {
    /// List budgets and what is spent of them
    List {
        /// Whose
        #[arg(value_enum)]
        of: Option<BudgetSubject>,
    },
}

/// Whose budgets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum BudgetSubject {
    /// The whole gateway
    Gateway,
    /// Groups
    Group,
    /// Members
    Member,
    /// Channels, on cost
    Channel,
    /// Keys
    Key,
}

/// `audit`.
#[derive(Clone, Debug, Args)]
pub(crate) struct Audit {
    /// About this kind of row
    #[arg(long, value_name = "KIND")]
    pub(crate) kind: Option<String>,
    /// About the row with this id
    #[arg(long, value_name = "ID")]
    pub(crate) id: Option<String>,
    /// How many, at most 1000
    #[arg(short = 'n', long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    pub(crate) limit: u32,
}

/// `settings`.
#[derive(Clone, Debug, Args)]
pub(crate) struct Settings {
    /// Only those set by this: default, file, environment or flag
    #[arg(long, value_name = "SOURCE")]
    pub(crate) source: Option<String>,
}
