//! Rows as the catalog states them: what the file, the console and the CLI write, what the database keeps as JSON,
//! and what a plan compares. Rows name each other by name; ids are given by the store.

use ipnet::IpNet;
use serde::{Deserialize, Serialize};
use tollgate_core::{
    Billing, Budget, Glob, Hedge, KeyStatus, Limits, MemberStatus, ModelMapping, Multiplier, OnUnsupported, ParameterRule,
    PriceLimit, PriceSchedule, Provider, Role, Routing, StreamBreak, Timeouts, Timestamp, TranslationPolicy, TranslationSwitches,
    Visibility,
};
use tollgate_protocol::Protocol;

/// A channel without its accounts. A field that a later version adds needs a default.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ChannelSpec {
    /// Name; unique.
    pub name: String,
    /// Provider.
    pub provider: Provider,
    /// Wire format.
    pub protocol: Protocol,
    /// Base URL with the version, no trailing slash; empty for echo.
    pub base_url: String,
    /// `false`: off by hand.
    pub on: bool,
    /// `false`: failures never rest its accounts.
    pub cooling: bool,
    /// `false`: refusals are not remembered.
    pub learn_unsupported: bool,
    /// What translation may do on the way to it.
    pub translation: TranslationSwitches,
    /// May reach loopback and private addresses.
    pub private_network: bool,
    /// Lower is tried first.
    pub priority: i32,
    /// Share within its tier.
    pub weight: u32,
    /// Waiting limits.
    pub timeouts: Timeouts,
    /// Another attempt after "sent, but no answer".
    pub retry_uncertain: bool,
    /// Seconds between two probes of each account; 0: only accounts that rest are probed.
    pub probe_interval_s: u32,
    /// Added to every request upstream, in order of name.
    pub headers: Vec<(String, String)>,
    /// `http://` or `socks5://`.
    pub proxy: Option<String>,
    /// PEM file with further roots.
    pub ca_file: Option<String>,
    /// Budgets on cost.
    pub budgets: Vec<Budget>,
    /// The models it serves.
    pub serves: Vec<ModelMapping>,
}

impl Default for ChannelSpec {
    fn default() -> Self {
        Self {
            name: String::new(),
            provider: Provider::Compatible,
            protocol: Protocol::OpenAi,
            base_url: String::new(),
            on: true,
            cooling: true,
            learn_unsupported: true,
            translation: TranslationSwitches::default(),
            private_network: false,
            priority: 0,
            weight: 1,
            timeouts: Timeouts::default(),
            retry_uncertain: true,
            probe_interval_s: 0,
            headers: Vec::new(),
            proxy: None,
            ca_file: None,
            budgets: Vec::new(),
            serves: Vec::new(),
        }
    }
}

/// What a provider's channels speak and where, unless a row says otherwise.
#[must_use]
pub const fn provider_defaults(provider: Provider) -> (Protocol, &'static str) {
    let protocol = match provider {
        Provider::OpenAi => Protocol::OpenAi,
        Provider::Gemini => Protocol::Gemini,
        Provider::Anthropic => Protocol::Anthropic,
        Provider::Compatible | Provider::Echo => return (Protocol::OpenAi, ""),
    };
    (protocol, protocol.spec().default_base_url)
}

/// An account without its credential.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct AccountSpec {
    /// Name; unique in its channel.
    pub name: String,
    /// `false`: off by hand.
    pub on: bool,
    /// Requests at once; 0 unbounded.
    pub concurrency: u32,
    /// Requests a minute; 0 unbounded.
    pub rpm: u32,
    /// Tokens a minute; 0 unbounded.
    pub tpm: u64,
    /// Factor on the channel's cost prices.
    pub cost_multiplier: Multiplier,
}

impl Default for AccountSpec {
    fn default() -> Self {
        Self { name: String::new(), on: true, concurrency: 0, rpm: 0, tpm: 0, cost_multiplier: Multiplier::ONE }
    }
}

/// Prices and facts of a public model.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ModelSpec {
    /// Public name; unique.
    pub name: String,
    /// What callers pay before the group's multiplier; `None`: not priced.
    pub price: Option<PriceSchedule>,
    /// Context length in tokens.
    pub context: Option<u64>,
    /// Most output tokens.
    pub max_output: Option<u64>,
    /// Which parameters it takes.
    pub parameters: ParameterRule,
    /// What happens with one it does not take.
    pub on_unsupported: OnUnsupported,
    /// Left out of lists and the model square.
    pub hidden: bool,
    /// One line about it.
    pub description: Option<String>,
    /// It makes vectors, not text.
    pub embeddings: bool,
}

/// A group; names its channels.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct GroupSpec {
    /// Name; unique.
    pub name: String,
    /// Who sees it.
    pub visibility: Visibility,
    /// Names of the channels it may use.
    pub channels: Vec<String>,
    /// Which of the channels' models it offers.
    pub models: Vec<Glob>,
    /// Factor on sale prices.
    pub sale_multiplier: Multiplier,
    /// What happens with what another protocol cannot express.
    pub translation: TranslationPolicy,
    /// Whether thought signatures travel behind the ids of tool calls; `None`: they do.
    pub signatures_in_ids: Option<bool>,
    /// What a broken answer costs.
    pub stream_break: StreamBreak,
    /// Which channels are accepted by price.
    pub price_limit: Option<PriceLimit>,
    /// What orders usable accounts.
    pub routing: Routing,
    /// A second attempt where the first token is late.
    pub hedge: Option<Hedge>,
    /// Whether callers may see how their accounts were chosen.
    pub trace: bool,
    /// Requests, tokens, concurrency.
    pub limits: Limits,
    /// Money over time.
    pub budgets: Vec<Budget>,
}

/// A member; names groups.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct MemberSpec {
    /// Name; unique.
    pub name: String,
    /// Role.
    pub role: Role,
    /// Whether they may use the gateway.
    pub status: MemberStatus,
    /// Names of private groups granted.
    pub groups: Vec<String>,
    /// Used by keys that name no group; `None`: the group named `default`, if there is one.
    pub default_group: Option<String>,
    /// How they pay.
    pub billing: Billing,
    /// Requests, tokens, concurrency.
    pub limits: Limits,
    /// Money over time.
    pub budgets: Vec<Budget>,
}

/// A key without its secret; names its member and groups.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct KeySpec {
    /// Name; unique among the member's keys.
    pub name: String,
    /// Whose it is.
    pub member: String,
    /// `Active` or `Disabled`; revoking is a change of its own.
    pub status: KeyStatus,
    /// When it ends.
    pub expires_at: Option<Timestamp>,
    /// Names of groups in order; empty: the member's default group.
    pub groups: Vec<String>,
    /// Which models it may use.
    pub models: Vec<Glob>,
    /// Addresses it may be used from; empty: any.
    pub ip_allow: Vec<IpNet>,
    /// Requests, tokens, concurrency.
    pub limits: Limits,
    /// Money over time.
    pub budgets: Vec<Budget>,
    /// Its own price limit.
    pub price_limit: Option<PriceLimit>,
    /// Whether thought signatures travel behind the ids of tool calls; `None`: as its group says.
    pub signatures_in_ids: Option<bool>,
}

/// An admin key without its secret.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct AdminKeySpec {
    /// Name; unique among the live ones.
    pub name: String,
    /// What it may do.
    pub scope: AdminScope,
    /// When it ends.
    pub expires_at: Option<Timestamp>,
}

/// What an admin key may do; the greater one may do all the lesser may.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AdminScope {
    /// Channels, accounts, groups, models, prices, all keys, all usage.
    #[default]
    Operator,
    /// Everything.
    Admin,
}

impl AdminScope {
    /// The word.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Operator => "operator",
            Self::Admin => "admin",
        }
    }
}

impl Default for KeySpec {
    fn default() -> Self {
        Self {
            name: String::new(),
            member: String::new(),
            status: KeyStatus::Active,
            expires_at: None,
            groups: Vec::new(),
            models: vec![Glob("*".to_owned())],
            ip_allow: Vec::new(),
            limits: Limits::default(),
            budgets: Vec::new(),
            price_limit: None,
            signatures_in_ids: None,
        }
    }
}
