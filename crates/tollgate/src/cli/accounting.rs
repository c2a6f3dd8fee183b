//! Arguments of the commands for usage, ledger, budgets, audit log and settings.

use clap::{Args, Subcommand, ValueEnum};

#[derive(Clone, Debug, Subcommand)]
pub(crate) enum Ledger {
    /// Credit a payment to a member, such as `ledger top-up alice 25`
    TopUp(LedgerPosting),
    /// Correct a member's balance, such as `ledger adjust alice -0.50`
    Adjust(LedgerPosting),
    /// List ledger entries, newest first
    List {
        /// Only entries of this member (name or id)
        #[arg(long)]
        member: Option<String>,
        /// Only entries of this kind: `top_up`, `settle` or `adjust`
        #[arg(long)]
        kind: Option<String>,
        /// Only entries before this one (number in the column `position`)
        #[arg(long, value_name = "PLACE")]
        before: Option<i64>,
        /// Number of entries, at most 1000
        #[arg(short = 'n', long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=1_000))]
        limit: u32,
    },
    /// List members with their balances
    Balances,
}

/// A manual posting.
#[derive(Clone, Debug, Args)]
pub(crate) struct LedgerPosting {
    /// Member (name or id)
    pub(crate) member: String,
    /// Amount in USD, such as 25 or 0.50; an adjustment may be negative
    #[arg(allow_negative_numbers = true)]
    pub(crate) amount: String,
    /// Note, kept with the entry
    #[arg(long)]
    pub(crate) note: Option<String>,
    /// Unique key of the posting: repeating the command with it does not post again
    #[arg(long, value_name = "KEY")]
    pub(crate) idempotency_key: Option<String>,
}

#[derive(Clone, Debug, Subcommand)]
pub(crate) enum Usage {
    /// Show the newest usage records
    Tail {
        /// Continue with new records as they arrive
        #[arg(short, long)]
        follow: bool,
        /// Number of records to start with, at most 1000
        #[arg(short = 'n', long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=1_000))]
        lines: u32,
        #[command(flatten)]
        filter: UsageFilter,
    },
    /// Show everything about one request: how it ended, what it used, each attempt and why accounts were excluded
    Show {
        /// Request id, as in the answer's `x-request-id`
        #[arg(value_name = "REQUEST_ID")]
        id: String,
    },
    /// Sum up requests, tokens and amounts
    Summary {
        /// Grouping
        #[arg(long, value_enum, default_value_t = GroupBy::Day)]
        by: GroupBy,
        #[command(flatten)]
        filter: UsageFilter,
    },
    /// Export all records as CSV, or as JSON lines with --json; without --url including records still in the journal
    Export {
        #[command(flatten)]
        filter: UsageFilter,
    },
}

/// Filter for usage records.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct UsageFilter {
    /// Only requests with this key (id or name)
    #[arg(long)]
    pub(crate) key: Option<String>,
    /// Only requests of this member (name or id)
    #[arg(long)]
    pub(crate) member: Option<String>,
    /// Only requests served by this group (name or id)
    #[arg(long)]
    pub(crate) group: Option<String>,
    /// Only requests for this model
    #[arg(long)]
    pub(crate) model: Option<String>,
    /// Only this outcome: completed, `caller_left`, `upstream_broke`, refused or `gateway_stopped`
    #[arg(long)]
    pub(crate) outcome: Option<String>,
    /// Only requests that arrived at or after this time, such as 2026-11-01 or 2026-11-01T08:00:00Z
    #[arg(long, value_name = "TIME")]
    pub(crate) since: Option<String>,
    /// Only requests that arrived before this time
    #[arg(long, value_name = "TIME")]
    pub(crate) until: Option<String>,
}

/// Grouping of a summary.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum GroupBy {
    /// One line for everything
    Nothing,
    /// UTC day
    Day,
    /// UTC hour; requires --since and a range of at most 31 days
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

#[derive(Clone, Debug, Subcommand)]
pub(crate) enum Budget {
    /// List budgets with current spending
    List {
        /// Only budgets of these [default: all]
        #[arg(value_enum)]
        of: Option<BudgetSubject>,
    },
}

/// Kinds of subjects that have budgets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum BudgetSubject {
    /// The whole gateway
    Gateway,
    /// Groups
    Group,
    /// Members
    Member,
    /// Channels (budgets on cost)
    Channel,
    /// Keys
    Key,
}

#[derive(Clone, Debug, Args)]
pub(crate) struct Audit {
    /// Only changes of this kind of row: channel, account, model, group, member, key or `admin_key`; ledger: postings
    #[arg(long, value_name = "KIND")]
    pub(crate) kind: Option<String>,
    /// Only changes of the row with this id
    #[arg(long, value_name = "ID")]
    pub(crate) id: Option<String>,
    /// Only changes of rows of this name
    #[arg(long)]
    pub(crate) name: Option<String>,
    /// Only changes by this author: an admin key's name, or `command line`
    #[arg(long)]
    pub(crate) actor: Option<String>,
    /// Only changes at or after this time, such as 2026-11-01 or 2026-11-01T08:00:00Z
    #[arg(long, value_name = "TIME")]
    pub(crate) since: Option<String>,
    /// Only changes before this time
    #[arg(long, value_name = "TIME")]
    pub(crate) until: Option<String>,
    /// Number of entries, at most 1000
    #[arg(short = 'n', long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    pub(crate) limit: u32,
}

#[derive(Clone, Debug, Args)]
pub(crate) struct Settings {
    /// Only settings from this source: default, file, environment or flag
    #[arg(long, value_name = "SOURCE")]
    pub(crate) source: Option<String>,
}
