//! Arguments of the commands for ledger, budgets, audit log, settings and alerts.

use super::resources::ResourceCommand;
use clap::{Args, Subcommand, ValueEnum, builder::NonEmptyStringValueParser};

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
        #[arg(long, value_name = "POSITION")]
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
    /// Only changes of this kind of row: channel, account, model, group, member, key, `admin_key` or setting; ledger: postings
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
    /// Only changes from this address
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) address: Option<String>,
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
    #[command(subcommand)]
    pub(crate) action: Option<SettingsAction>,
    /// Only settings from this source: default, database, file, environment or flag
    #[arg(long, value_name = "SOURCE")]
    pub(crate) source: Option<String>,
}

#[derive(Clone, Debug, Subcommand)]
pub(crate) enum SettingsAction {
    /// Show one setting with its bounds, unit and source
    Show(SettingName),
    /// Store the value of a setting; running gateways apply it within a second
    Set {
        #[command(flatten)]
        setting: SettingName,
        /// Value, such as 60000, true or warn
        #[arg(allow_hyphen_values = true)]
        value: String,
    },
    /// Remove the stored value of a setting: its default applies again
    Unset(SettingName),
}

/// A setting.
#[derive(Clone, Debug, Args)]
pub(crate) struct SettingName {
    /// Section and name, such as `limits.in_flight`
    #[arg(value_parser = NonEmptyStringValueParser::new())]
    pub(crate) name: String,
}

#[derive(Clone, Debug, Subcommand)]
pub(crate) enum Alert {
    /// List alerts, newest first
    List {
        /// Only open alerts, or only ended ones
        #[arg(long, value_enum)]
        state: Option<AlertState>,
        /// Only alerts of this rule, such as `channel_down`
        #[arg(long, value_name = "RULE")]
        rule: Option<String>,
        /// How many
        #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=1_000))]
        limit: u32,
    },
    /// Show one alert with its messages
    Show {
        /// Its id
        #[arg(value_parser = NonEmptyStringValueParser::new())]
        id: String,
    },
    /// List the rules with their thresholds, which are settings
    Rules,
    /// List, create, change and remove destinations: webhooks, Slack, Feishu, DingTalk, WeCom, Telegram, mail
    #[command(subcommand)]
    Destination(ResourceCommand),
    /// Send a test message to a destination
    Test {
        /// Its name or id
        #[arg(value_parser = NonEmptyStringValueParser::new())]
        destination: String,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum AlertState {
    Open,
    Ended,
}

impl AlertState {
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Ended => "ended",
        }
    }
}

#[derive(Clone, Debug, Subcommand)]
pub(crate) enum Job {
    /// List open jobs and the latest ended ones, newest first
    List {
        /// How many
        #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=1_000))]
        limit: u32,
    },
    /// Show one job with its result
    Show {
        /// Its id
        #[arg(value_parser = NonEmptyStringValueParser::new())]
        id: String,
    },
    /// Cancel a job; no effect on one that has ended
    Cancel {
        /// Its id
        #[arg(value_parser = NonEmptyStringValueParser::new())]
        id: String,
    },
}
