//! Verbs about what is configured.

use clap::{Args, Subcommand, ValueEnum, builder::NonEmptyStringValueParser};

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
        /// What may be spent with it, in USD: 5/month, 0.50/day:alert, or several with commas between
        #[arg(long, value_name = "AMOUNT/WINDOW")]
        budget: Option<String>,
        /// When it ends: 30d, 12h, or a time such as 2027-01-01T00:00:00Z
        #[arg(long, visible_alias = "expires-at", value_name = "WHEN")]
        expires: Option<String>,
        /// Print `export` lines for a shell
        #[arg(long)]
        env: bool,
    },
    /// List keys
    List,
    /// Show everything about a key but the key itself
    Show {
        /// Its id, or its name where only one has it
        #[arg(value_parser = NonEmptyStringValueParser::new())]
        key: String,
    },
    /// Change a key; what is not named stays
    Set {
        /// Its id, or its name where only one has it
        #[arg(value_parser = NonEmptyStringValueParser::new())]
        key: String,
        #[command(flatten)]
        members: FieldArgs,
        #[command(flatten)]
        saving: PreviewArgs,
    },
    /// End a key for good
    Revoke {
        /// Its id, or its name where only one has it
        #[arg(value_parser = NonEmptyStringValueParser::new())]
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
        #[arg(value_parser = NonEmptyStringValueParser::new())]
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

/// How to save a group or key whose price limits exclude a channel.
#[derive(Clone, Copy, Debug, Default, Args)]
pub(crate) struct PreviewArgs {
    /// Groups and keys: only show whom price limits would exclude
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Groups and keys: save it although price limits exclude a channel
    #[arg(long)]
    pub(crate) yes: bool,
}

/// What a row is made of or changed to.
#[derive(Clone, Debug, Args)]
pub(crate) struct FieldArgs {
    /// Such as rpm=60, groups=a,b, budget=5/month, price=input:0.30,output:2.40 or `price_limit=mode:ceiling,max_input:1.5`; tables
    /// also as inline TOML or JSON. Fields are those of the catalog file (docs/catalog.md)
    #[arg(value_name = "FIELD=VALUE")]
    pub(crate) words: Vec<String>,
}

/// `group …`, `member …`.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum ResourceCommand {
    /// List all
    List,
    /// Show everything about one
    Show {
        /// Its name or id
        #[arg(value_parser = NonEmptyStringValueParser::new())]
        name: String,
    },
    /// Make one
    Add {
        /// Its name
        #[arg(value_parser = NonEmptyStringValueParser::new())]
        name: String,
        #[command(flatten)]
        members: FieldArgs,
        #[command(flatten)]
        saving: PreviewArgs,
    },
    /// Change one; what is not named stays
    Set {
        /// Its name or id
        #[arg(value_parser = NonEmptyStringValueParser::new())]
        name: String,
        #[command(flatten)]
        members: FieldArgs,
        #[command(flatten)]
        saving: PreviewArgs,
    },
    /// Remove one; the usage log keeps its name
    Remove {
        /// Its name or id
        #[arg(value_parser = NonEmptyStringValueParser::new())]
        name: String,
    },
}

/// `account …`.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum Account {
    /// List the accounts of a channel with their health
    List {
        /// Channel name
        #[arg(value_parser = NonEmptyStringValueParser::new())]
        channel: String,
    },
    /// Show everything about one but its credential
    Show {
        /// Channel name
        #[arg(value_parser = NonEmptyStringValueParser::new())]
        channel: String,
        /// Account name
        #[arg(value_parser = NonEmptyStringValueParser::new())]
        account: String,
    },
    /// Make one; its credential is best given as credential=env:NAME or credential=file:PATH
    Add {
        /// Channel name
        #[arg(value_parser = NonEmptyStringValueParser::new())]
        channel: String,
        /// Account name
        #[arg(value_parser = NonEmptyStringValueParser::new())]
        account: String,
        #[command(flatten)]
        members: FieldArgs,
    },
    /// Change one; what is not named stays, the credential too
    Set {
        /// Channel name
        #[arg(value_parser = NonEmptyStringValueParser::new())]
        channel: String,
        /// Account name
        #[arg(value_parser = NonEmptyStringValueParser::new())]
        account: String,
        #[command(flatten)]
        members: FieldArgs,
    },
    /// Remove one; the usage log keeps its name
    Remove {
        /// Channel name
        #[arg(value_parser = NonEmptyStringValueParser::new())]
        channel: String,
        /// Account name
        #[arg(value_parser = NonEmptyStringValueParser::new())]
        account: String,
    },
}

/// `channel …`.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum Channel {
    /// List channels with their accounts and health
    List,
    /// Show everything about one
    Show {
        /// Channel name
        #[arg(value_parser = NonEmptyStringValueParser::new())]
        name: String,
    },
    /// Make one, such as `channel add main provider=openai`; its accounts are made by `account add`
    Add {
        /// Its name
        #[arg(value_parser = NonEmptyStringValueParser::new())]
        name: String,
        #[command(flatten)]
        members: FieldArgs,
    },
    /// Change one; what is not named stays
    Set {
        /// Channel name
        #[arg(value_parser = NonEmptyStringValueParser::new())]
        name: String,
        #[command(flatten)]
        members: FieldArgs,
    },
    /// Remove one with its accounts; the usage log keeps their names
    Remove {
        /// Channel name
        #[arg(value_parser = NonEmptyStringValueParser::new())]
        name: String,
    },
    /// Call a channel's accounts for real and show each step
    Test {
        /// Channel name
        #[arg(value_parser = NonEmptyStringValueParser::new())]
        channel: String,
        /// Only this account
        #[arg(long, value_parser = NonEmptyStringValueParser::new())]
        account: Option<String>,
        /// With this model [default: the first it serves]
        #[arg(long)]
        model: Option<String>,
    },
    /// Switch a channel (or one account) on
    Enable {
        /// Channel name
        #[arg(value_parser = NonEmptyStringValueParser::new())]
        channel: String,
        /// Only this account
        #[arg(long, value_parser = NonEmptyStringValueParser::new())]
        account: Option<String>,
    },
    /// Switch a channel (or one account) off by hand
    Disable {
        /// Channel name
        #[arg(value_parser = NonEmptyStringValueParser::new())]
        channel: String,
        /// Only this account
        #[arg(long, value_parser = NonEmptyStringValueParser::new())]
        account: Option<String>,
    },
}

/// `model …`.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum Model {
    /// List models with prices and the channels that serve them
    List,
    /// Show everything about one that has a row
    Show {
        /// Its name or id
        #[arg(value_parser = NonEmptyStringValueParser::new())]
        name: String,
    },
    /// Make a row for one, such as `model add m price=input:1,output:2`
    Add {
        /// What callers say
        #[arg(value_parser = NonEmptyStringValueParser::new())]
        name: String,
        #[command(flatten)]
        members: FieldArgs,
    },
    /// Change one; what is not named stays
    Set {
        /// Its name or id
        #[arg(value_parser = NonEmptyStringValueParser::new())]
        name: String,
        #[command(flatten)]
        members: FieldArgs,
    },
    /// Remove its row: without a price it is still served
    Remove {
        /// Its name or id
        #[arg(value_parser = NonEmptyStringValueParser::new())]
        name: String,
    },
}
