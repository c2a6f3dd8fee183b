//! Rows as the file, the console and the CLI write them, as the database stores them (JSON), and as plans compare them. Rows refer
//! to each other by name. The tables in [`crate::fields`] describe the fields.

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
    pub name: String,
    pub provider: Provider,
    pub protocol: Protocol,
    /// Base URL with the version, no trailing slash; empty for echo.
    pub base_url: String,
    pub on: bool,
    pub cooling: bool,
    pub learn_unsupported: bool,
    pub translation: TranslationSwitches,
    pub private_network: bool,
    pub priority: i32,
    pub weight: u32,
    pub timeouts: Timeouts,
    pub retry_uncertain: bool,
    pub probe_interval_s: u32,
    pub headers: Vec<(String, String)>,
    pub proxy: Option<String>,
    pub ca_file: Option<String>,
    pub budgets: Vec<Budget>,
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

/// The default protocol and base URL of a provider's channels.
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
    pub name: String,
    pub on: bool,
    pub concurrency: u32,
    pub rpm: u32,
    pub tpm: u64,
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
    pub name: String,
    pub price: Option<PriceSchedule>,
    pub context: Option<u64>,
    pub max_output: Option<u64>,
    pub parameters: ParameterRule,
    pub on_unsupported: OnUnsupported,
    pub hidden: bool,
    pub description: Option<String>,
    pub embeddings: bool,
}

/// A group; names its channels.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct GroupSpec {
    pub name: String,
    pub visibility: Visibility,
    pub channels: Vec<String>,
    pub models: Vec<Glob>,
    pub sale_multiplier: Multiplier,
    pub translation: TranslationPolicy,
    pub signatures_in_ids: Option<bool>,
    pub stream_break: StreamBreak,
    pub price_limit: Option<PriceLimit>,
    pub never_below_cost: bool,
    pub routing: Routing,
    pub hedge: Option<Hedge>,
    pub trace: bool,
    pub limits: Limits,
    pub budgets: Vec<Budget>,
}

/// A member; names groups.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct MemberSpec {
    pub name: String,
    pub role: Role,
    pub status: MemberStatus,
    pub groups: Vec<String>,
    /// Used by keys that name no group; `None`: the group named `default`, if there is one.
    pub default_group: Option<String>,
    pub billing: Billing,
    pub limits: Limits,
    pub budgets: Vec<Budget>,
}

/// A key without its secret; names its member and groups.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct KeySpec {
    pub name: String,
    pub member: String,
    pub status: KeyStatus,
    pub expires_at: Option<Timestamp>,
    pub groups: Vec<String>,
    pub models: Vec<Glob>,
    pub ip_allow: Vec<IpNet>,
    pub limits: Limits,
    pub budgets: Vec<Budget>,
    pub price_limit: Option<PriceLimit>,
    pub signatures_in_ids: Option<bool>,
}

/// An admin key without its secret.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct AdminKeySpec {
    pub name: String,
    pub scope: AdminScope,
    pub expires_at: Option<Timestamp>,
}

/// Permissions of an admin key, in ascending order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AdminScope {
    /// Channels, accounts, groups, models, prices, all keys, all usage.
    #[default]
    Operator,
    Admin,
}

impl AdminScope {
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
