//! Arguments of the commands for rows of the catalog.

use clap::{Args, Subcommand, ValueEnum, builder::NonEmptyStringValueParser};

#[derive(Clone, Debug, Subcommand)]
pub(crate) enum Key {
    /// Create a key and print it; it is shown only once
    Create {
        /// Its name
        name: String,
        /// A group it may use; may be repeated, in order of preference
        #[arg(long = "group", value_name = "GROUP")]
        groups: Vec<String>,
        /// Member that it belongs to; without it the member `owner`, or the member of the admin key
        #[arg(long)]
        member: Option<String>,
        /// A model it may use, with `*` and `?` as wildcards; may be repeated
        #[arg(long = "model", value_name = "GLOB")]
        models: Vec<String>,
        /// A model it may not use, although --model allows it; wildcards as for --model; may be repeated
        #[arg(long = "deny-model", value_name = "GLOB")]
        models_deny: Vec<String>,
        /// A protocol it may be used with: openai, gemini, anthropic or responses; may be repeated [default: any]
        #[arg(long = "protocol", value_name = "PROTOCOL")]
        protocols: Vec<String>,
        /// A tag of all its requests in the usage log; may be repeated
        #[arg(long = "tag", value_name = "NAME=VALUE")]
        tags: Vec<String>,
        /// Budget in USD: 5/month, 0.50/day:alert, or several, separated by commas
        #[arg(long, value_name = "AMOUNT/WINDOW")]
        budget: Option<String>,
        /// When it expires: 30d, 12h, or a time such as 2027-01-01T00:00:00Z
        #[arg(long, visible_alias = "expires-at", value_name = "WHEN")]
        expires: Option<String>,
        /// Print `export` lines for a shell
        #[arg(long)]
        env: bool,
        /// Print the configuration of a client that uses the gateway with this key
        #[arg(long, value_name = "CLIENT", conflicts_with = "env")]
        print: Option<ClientLines>,
    },
    /// List keys
    List,
    /// Show a key without its secret
    Show(KeyName),
    /// Change a key; fields that are not named stay unchanged
    Set {
        #[command(flatten)]
        key: KeyName,
        #[command(flatten)]
        members: FieldArgs,
        #[command(flatten)]
        saving: PreviewArgs,
    },
    /// Replace a key's secret and print the new one, which is shown only once
    Rotate {
        #[command(flatten)]
        key: KeyName,
        /// How long the previous secret stays valid: 12h, 7d, at most 30d; 0m: not at all [default: 1d]
        #[arg(long, value_name = "HOW_LONG")]
        overlap: Option<String>,
    },
    /// Disable a key; `key set KEY status=active` enables it again
    Disable(KeyName),
    /// Show what a key may use, and what is left of its budgets
    Allowance(KeyName),
    /// Revoke a key permanently
    Revoke(KeyName),
}

/// A client whose configuration can be printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ClientLines {
    ClaudeCode,
    Codex,
    Anthropic,
    Openai,
    Gemini,
}

/// A service key.
#[derive(Clone, Debug, Args)]
pub(crate) struct KeyName {
    /// Key id, or key name if it is unambiguous
    #[arg(value_parser = NonEmptyStringValueParser::new())]
    pub(crate) key: String,
}

#[derive(Clone, Debug, Subcommand)]
pub(crate) enum AdminKey {
    /// Create an admin key and print it; it is shown only once
    Create {
        /// Its name
        name: String,
        /// admin: everything; operator: channels, groups, models, keys and usage; member: objects of the key's member
        #[arg(long, value_enum, default_value_t = Scope::Admin)]
        scope: Scope,
        /// Member that it belongs to, whose permissions bound those of the key
        #[arg(long)]
        member: Option<String>,
        /// When it expires, such as 2027-01-01T00:00:00Z
        #[arg(long, value_name = "TIME")]
        expires_at: Option<String>,
    },
    /// List admin keys
    List,
    /// Revoke an admin key permanently
    Revoke {
        /// Its id or name
        #[arg(value_parser = NonEmptyStringValueParser::new())]
        key: String,
    },
}

/// Scope of an admin key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Scope {
    /// Objects of its member
    Member,
    /// Channels, groups, models, keys and usage
    Operator,
    /// Everything
    Admin,
}

/// How to save a group or key whose price limits exclude a channel.
#[derive(Clone, Copy, Debug, Default, Args)]
pub(crate) struct PreviewArgs {
    /// Groups and keys: only show which accounts price limits would exclude
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Groups and keys: save although price limits exclude a channel
    #[arg(long)]
    pub(crate) yes: bool,
}

/// Fields of a new or changed row.
#[derive(Clone, Debug, Args)]
pub(crate) struct FieldArgs {
    /// Such as rpm=60, groups=a,b, budget=5/month, price=input:0.30,output:2.40, `model_multipliers=gpt-*:1.5,o3:2` or
    /// `price_limit=mode:ceiling,max_input:1.5`; tables also as inline TOML or JSON. Fields are those of the catalog file (docs/catalog.md)
    #[arg(value_name = "FIELD=VALUE")]
    pub(crate) words: Vec<String>,
}

/// A row of the catalog.
#[derive(Clone, Debug, Args)]
pub(crate) struct RowName {
    /// Its name or id
    #[arg(value_parser = NonEmptyStringValueParser::new())]
    pub(crate) name: String,
}

/// A row to be created.
#[derive(Clone, Debug, Args)]
pub(crate) struct NewRow {
    /// Its name
    #[arg(value_parser = NonEmptyStringValueParser::new())]
    pub(crate) name: String,
    #[command(flatten)]
    pub(crate) members: FieldArgs,
}

/// A change of a row.
#[derive(Clone, Debug, Args)]
pub(crate) struct RowChange {
    #[command(flatten)]
    pub(crate) row: RowName,
    #[command(flatten)]
    pub(crate) members: FieldArgs,
}

/// Subcommands of `group` and `member`.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum ResourceCommand {
    /// List all
    List,
    /// Show everything about one
    Show(RowName),
    /// Create one
    Add {
        #[command(flatten)]
        row: NewRow,
        #[command(flatten)]
        saving: PreviewArgs,
    },
    /// Change one; fields that are not named stay unchanged
    Set {
        #[command(flatten)]
        change: RowChange,
        #[command(flatten)]
        saving: PreviewArgs,
    },
    /// Remove one; the usage log keeps its name
    Remove(RowName),
}

/// An account of a channel.
#[derive(Clone, Debug, Args)]
pub(crate) struct AccountName {
    /// Channel name
    #[arg(value_parser = NonEmptyStringValueParser::new())]
    pub(crate) channel: String,
    /// Account name
    #[arg(value_parser = NonEmptyStringValueParser::new())]
    pub(crate) account: String,
}

/// All accounts of a channel, or one.
#[derive(Clone, Debug, Args)]
pub(crate) struct AccountSelection {
    /// Channel name
    #[arg(value_parser = NonEmptyStringValueParser::new())]
    pub(crate) channel: String,
    /// Only this account
    #[arg(long, value_parser = NonEmptyStringValueParser::new())]
    pub(crate) account: Option<String>,
}

#[derive(Clone, Debug, Subcommand)]
pub(crate) enum Account {
    /// List the accounts of a channel with their health
    List {
        /// Channel name
        #[arg(value_parser = NonEmptyStringValueParser::new())]
        channel: String,
    },
    /// Show one without its credential
    Show(AccountName),
    /// Create one; pass its credential as credential=env:NAME or credential=file:PATH
    Add {
        #[command(flatten)]
        account: AccountName,
        #[command(flatten)]
        members: FieldArgs,
    },
    /// Change one; fields that are not named stay unchanged, the credential too
    Set {
        #[command(flatten)]
        account: AccountName,
        #[command(flatten)]
        members: FieldArgs,
    },
    /// Remove one; the usage log keeps its name
    Remove(AccountName),
}

/// Several channels.
#[derive(Clone, Debug, Args)]
pub(crate) struct ChannelNames {
    /// Names or ids, separated by commas
    #[arg(value_name = "NAMES", value_parser = NonEmptyStringValueParser::new())]
    pub(crate) channels: String,
}

impl ChannelNames {
    pub(crate) fn names(&self) -> Vec<&str> {
        self.channels.split(',').map(str::trim).filter(|name| !name.is_empty()).collect()
    }
}

#[derive(Clone, Debug, Subcommand)]
pub(crate) enum Channel {
    /// List channels with their accounts and health
    List,
    /// Show everything about one
    Show(RowName),
    /// Create one, such as `channel add main provider=openai`; add its accounts with `account add`
    Add(NewRow),
    /// Change one; fields that are not named stay unchanged
    Set(RowChange),
    /// Remove one with its accounts; the usage log keeps their names
    Remove(RowName),
    /// Change several, all of them or none; `account={rpm=60}` is written to each of their accounts
    SetSeveral {
        #[command(flatten)]
        channels: ChannelNames,
        #[command(flatten)]
        members: FieldArgs,
    },
    /// Remove several with their accounts, all of them or none
    RemoveSeveral(ChannelNames),
    /// Send a real request through each account of a channel and show each step
    Test {
        #[command(flatten)]
        accounts: AccountSelection,
        /// Model to request [default: the channel's test model, else the first it serves]
        #[arg(long)]
        model: Option<String>,
    },
    /// Show when a channel's accounts could not be used, why, and until when
    Health {
        #[command(flatten)]
        accounts: AccountSelection,
        #[command(flatten)]
        time: HealthTime,
    },
    /// End cooling and rest of a channel's accounts on all nodes, without a request to them
    EndCooling(AccountSelection),
    /// Switch a channel (or one account) on
    Enable(AccountSelection),
    /// Switch a channel (or one account) off
    Disable(AccountSelection),
}

#[derive(Clone, Debug, Subcommand)]
pub(crate) enum Proxy {
    /// List the proxies of channels
    List,
    /// Set the proxies of channels, all of them or none
    Set {
        /// Such as main=socks5://10.0.0.5:1080, main=env:NAME or main=file:PATH; main= removes the proxy
        #[arg(value_name = "CHANNEL=PROXY", required = true)]
        proxies: Vec<String>,
    },
    /// Connect through a channel's proxy to its upstream, and show each step
    Test {
        /// Its name or id
        #[arg(value_parser = NonEmptyStringValueParser::new())]
        channel: String,
    },
}

/// Which part of the history of health to show.
#[derive(Clone, Debug, Args)]
pub(crate) struct HealthTime {
    /// From when on: a time such as 2026-11-30, or how long ago, such as 7d [default: a day before --until]
    #[arg(long, value_name = "TIME")]
    pub(crate) since: Option<String>,
    /// Until when, in the same forms [default: now]
    #[arg(long, value_name = "TIME")]
    pub(crate) until: Option<String>,
    /// Number of transitions, at most 1000
    #[arg(short = 'n', long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    pub(crate) limit: u32,
}

#[derive(Clone, Debug, Subcommand)]
pub(crate) enum Model {
    /// List models with prices and the channels that serve them
    List,
    /// Show everything about one that has a row
    Show(RowName),
    /// Create a row for one, such as `model add m price=input:1,output:2`
    Add(NewRow),
    /// Change one; fields that are not named stay unchanged
    Set(RowChange),
    /// Remove its row; a model that a channel serves stays available, without a price
    Remove(RowName),
}
