//! Arguments of `tollgate usage`.

use clap::{Args, Subcommand, ValueEnum};
use tollgate_core::TagName;

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
    /// Show the stored body and answer of a request, if its group or key has them stored
    Contents {
        /// Request id, as in the answer's `x-request-id`
        #[arg(value_name = "REQUEST_ID")]
        id: String,
        /// Remove them instead; the usage record stays
        #[arg(long)]
        remove: bool,
    },
    /// List usage records, newest first
    List {
        /// Number of records, at most 1000
        #[arg(short = 'n', long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=1_000))]
        limit: u32,
        /// Continue a list at the position that its last line named
        #[arg(long, value_name = "POSITION")]
        after: Option<String>,
        #[command(flatten)]
        filter: UsageFilter,
    },
    /// Sum up requests, tokens and amounts
    Summary {
        /// One or two groupings, such as `--by model,day`: nothing, month, day, hour (requires --since and a range of at most 31 days),
        /// model, key, member, group, channel, account, protocol, outcome, error, or tag:NAME with the name of a tag; times are UTC
        #[arg(long, value_parser = SumGroup::parse, value_delimiter = ',', num_args = 1, default_value = "day")]
        by: Vec<SumGroup>,
        /// Also show the sums of the preceding period of the same length
        #[arg(long)]
        previous: bool,
        /// Order of the rows
        #[arg(long, value_enum, default_value_t = SumOrder::Of)]
        sort: SumOrder,
        /// Maximum number of rows [default: all]
        #[arg(long, value_parser = clap::value_parser!(u32).range(1..=10_000))]
        rows: Option<u32>,
        #[command(flatten)]
        filter: UsageFilter,
    },
    /// Sum up attempts: requests sent to each account and their results, including requests that another account answered
    Attempts {
        #[command(flatten)]
        wanted: AttemptSums,
    },
    /// Export all records to stdout; without --url including records still in the journal
    Export {
        /// Format [default: csv, with --json jsonl]
        #[arg(long, value_enum)]
        format: Option<ExportFormat>,
        #[command(flatten)]
        filter: UsageFilter,
    },
    /// Write finished days of usage records to the bucket of the section `export` of the settings; without days, those that are due
    Upload {
        #[command(flatten)]
        days: UploadDays,
    },
}

/// Which days to export.
#[derive(Clone, Debug, Args)]
pub(crate) struct UploadDays {
    /// First UTC day, such as 2026-11-30; a day that was exported is written again
    #[arg(long, value_name = "DAY")]
    pub(crate) from: Option<String>,
    /// Last UTC day [default: that of --from]
    #[arg(long, value_name = "DAY")]
    pub(crate) to: Option<String>,
    /// List the days that were exported instead, and show what is due and what failed
    #[arg(long, conflicts_with_all = ["from", "to"])]
    pub(crate) list: bool,
}

/// Which attempts to sum up, and how.
#[derive(Clone, Debug, Args)]
pub(crate) struct AttemptSums {
    /// One or two groupings, such as `--by account,error`; times are UTC
    #[arg(long, value_enum, value_delimiter = ',', num_args = 1, default_value = "account")]
    pub(crate) by: Vec<AttemptGroup>,
    /// Only attempts at this channel (name or id)
    #[arg(long)]
    pub(crate) channel: Option<String>,
    /// Only attempts at this account (`channel/account` or id)
    #[arg(long)]
    pub(crate) account: Option<String>,
    /// Only attempts for this model
    #[arg(long)]
    pub(crate) model: Option<String>,
    /// Only attempts that ended like this
    #[arg(long, value_enum)]
    pub(crate) result: Option<AttemptEnd>,
    /// Only requests that arrived in the hour of this time or later
    #[arg(long, value_name = "TIME")]
    pub(crate) since: Option<String>,
    /// Only requests that arrived before the end of the hour in which this time lies
    #[arg(long, value_name = "TIME")]
    pub(crate) until: Option<String>,
    /// Order of the rows
    #[arg(long, value_enum, default_value_t = AttemptOrder::Of)]
    pub(crate) sort: AttemptOrder,
    /// Maximum number of rows [default: all]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) rows: Option<u32>,
}

/// What attempts are summed by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum AttemptGroup {
    /// One row
    Nothing,
    /// UTC day
    Day,
    /// UTC hour; requires --since and a range of at most 31 days
    Hour,
    /// Channel
    Channel,
    /// Account
    Account,
    /// Model
    Model,
    /// How it ended
    Result,
    /// Error id
    Error,
}

/// How an attempt ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "snake_case")]
pub(crate) enum AttemptEnd {
    /// It answered the request
    Answered,
    /// Nothing was sent: the connection failed
    NotSent,
    /// Refused with an error status
    Refused,
    /// It failed before an answer began
    Failed,
    /// Its answer broke
    Broke,
    /// It was abandoned: the caller left, or another attempt answered
    Cancelled,
}

/// Order of the rows of sums over attempts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum AttemptOrder {
    /// By the values of the grouping
    Of,
    /// Most attempts first
    Attempts,
    /// Most attempts that did not answer first
    Failed,
    /// Highest cost first
    Cost,
}

/// Conditions on records that most commands with a filter share.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct RecordFilter {
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
    /// Only this outcome: completed, `caller_left`, `upstream_broke`, refused or `gateway_stopped`; or one of several, separated by
    /// commas
    #[arg(long)]
    pub(crate) outcome: Option<String>,
    /// Only requests that arrived at or after this time, such as 2026-11-01 or 2026-11-01T08:00:00Z
    #[arg(long, value_name = "TIME")]
    pub(crate) since: Option<String>,
    /// Only requests that arrived before this time
    #[arg(long, value_name = "TIME")]
    pub(crate) until: Option<String>,
}

/// Filter for usage records.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct UsageFilter {
    #[command(flatten)]
    pub(crate) records: RecordFilter,
    /// Only requests that this channel answered or was the last to be tried for (name or id)
    #[arg(long)]
    pub(crate) channel: Option<String>,
    /// Only requests that this account answered or was the last to be tried for (`channel/account` or id)
    #[arg(long)]
    pub(crate) account: Option<String>,
    /// Only this protocol of callers: openai, gemini, anthropic or responses
    #[arg(long)]
    pub(crate) protocol: Option<String>,
    /// Only this error id, exclusion code or other code, such as E40
    #[arg(long)]
    pub(crate) reason: Option<String>,
    /// Only requests with this tag; given several times, with all of them
    #[arg(long = "tag", value_name = "NAME=VALUE")]
    pub(crate) tags: Vec<String>,
    /// Only this status sent to the caller, such as 429, or a class of them, such as 4xx; for sums, at most 500000 records are read
    /// for this condition and the following ones
    #[arg(long)]
    pub(crate) status: Option<String>,
    /// Only streams (true) or complete answers (false)
    #[arg(long)]
    pub(crate) stream: Option<bool>,
    /// Only answers that ended for this reason: stop, length, tool, filter, fail or other
    #[arg(long)]
    pub(crate) finish: Option<String>,
    /// Only requests for which more than one account was tried (true) or at most one (false)
    #[arg(long)]
    pub(crate) failed_over: Option<bool>,
    /// Only requests that were answered without any content (true), or the others (false)
    #[arg(long)]
    pub(crate) empty: Option<bool>,
    /// Least sale amount in USD
    #[arg(long, value_name = "USD")]
    pub(crate) min_sale: Option<String>,
    /// Least cost in USD
    #[arg(long, value_name = "USD")]
    pub(crate) min_cost: Option<String>,
    /// Least number of tokens of all kinds
    #[arg(long, value_name = "TOKENS")]
    pub(crate) min_tokens: Option<u32>,
    /// Least time to the first content, in milliseconds
    #[arg(long, value_name = "MS")]
    pub(crate) min_ttft_ms: Option<u32>,
    /// Least duration, in milliseconds
    #[arg(long, value_name = "MS")]
    pub(crate) min_duration_ms: Option<u32>,
    /// Only requests with this id of the caller
    #[arg(long, value_name = "ID")]
    pub(crate) client_request_id: Option<String>,
    /// Only requests from this address
    #[arg(long)]
    pub(crate) address: Option<String>,
    /// Only requests with an attempt on this channel, whichever answered
    #[arg(long, value_name = "CHANNEL")]
    pub(crate) tried_channel: Option<String>,
    /// Only requests with an attempt on this account, given as `CHANNEL/ACCOUNT` or by its id
    #[arg(long, value_name = "ACCOUNT")]
    pub(crate) tried_account: Option<String>,
    /// Only requests whose attempt on that channel or account failed
    #[arg(long)]
    pub(crate) tried_failed: bool,
    /// Only requests that were refused because no group of their key offers this model
    #[arg(long, value_name = "MODEL")]
    pub(crate) unknown_model: Option<String>,
}

/// Grouping of a summary.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum GroupBy {
    /// One line for everything
    Nothing,
    /// UTC month
    Month,
    /// UTC day
    Day,
    /// UTC hour; requires --since and a range of at most 31 days
    Hour,
    /// Five minutes; requires --since and a range of at most 5 days
    #[value(name = "five_minutes")]
    FiveMinutes,
    /// Model
    Model,
    /// Key
    Key,
    /// Member
    Member,
    /// Group
    Group,
    /// Channel that answered or was the last to be tried
    Channel,
    /// Account, the same
    Account,
    /// Protocol of the caller
    Protocol,
    /// Outcome
    Outcome,
    /// Error id, exclusion code or other code
    Error,
}

/// One of the groupings of a summary, or a tag.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum SumGroup {
    Word(GroupBy),
    Tag(TagName),
}

impl SumGroup {
    fn parse(text: &str) -> Result<Self, String> {
        match text.strip_prefix("tag:") {
            Some(name) => {
                TagName::parse(name).map(Self::Tag).ok_or_else(|| "the name of a tag is missing behind 'tag:'".to_owned())
            }
            None => GroupBy::from_str(text, false).map(Self::Word).map_err(|_| "no such grouping; see --help".to_owned()),
        }
    }

    /// Its word in the admin API.
    pub(crate) fn word(&self) -> String {
        match self {
            Self::Word(word) => super::word(word),
            Self::Tag(name) => format!("tag:{name}"),
        }
    }
}

/// Format of an export.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ExportFormat {
    /// Comma-separated values with a heading
    Csv,
    /// One JSON object a line
    Jsonl,
    /// A Parquet file; without records that are not booked yet
    Parquet,
}

/// Order of the rows of a summary.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum SumOrder {
    /// By the values of the grouping
    Of,
    /// Most requests first
    Requests,
    /// Most requests that failed first
    Errors,
    /// Most tokens first
    Tokens,
    /// Highest sale first
    Sale,
    /// Highest cost first
    Cost,
}
