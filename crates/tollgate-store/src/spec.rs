//! Rows as the file, the console and the CLI write them, as the database stores them (JSON), and as plans compare them. Rows refer
//! to each other by name. Those of channels, accounts and models are core's. The tables in [`crate::fields`] describe the fields.

use std::collections::BTreeMap;

use ipnet::IpNet;
use serde::{Deserialize, Serialize};
use tollgate_core::{
    Billing, Budget, Glob, Hedge, KeyStatus, Limits, MemberStatus, Multiplier, PriceLimit, Provider, Role, Routing,
    SaleMultipliers, StreamBreak, Tags, Timestamp, TranslationPolicy, Visibility,
};
use tollgate_protocol::Protocol;

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

/// A group; names its channels.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct GroupSpec {
    pub name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    pub visibility: Visibility,
    pub channels: Vec<String>,
    pub models: Vec<Glob>,
    pub sale_multiplier: Multiplier,
    /// Multipliers of single models instead of `sale_multiplier`, by name or pattern.
    pub model_multipliers: BTreeMap<Glob, Multiplier>,
    pub translation: TranslationPolicy,
    pub signatures_in_ids: Option<bool>,
    pub stream_break: StreamBreak,
    pub price_limit: Option<PriceLimit>,
    pub never_below_cost: bool,
    pub routing: Routing,
    pub hedge: Option<Hedge>,
    pub trace: bool,
    pub log_contents: bool,
    /// Whether members may make, rotate, disable and revoke their own keys of this group.
    pub self_service: bool,
    pub limits: Limits,
    pub budgets: Vec<Budget>,
}

impl GroupSpec {
    /// The factors on its sale prices.
    pub fn multipliers(&self) -> SaleMultipliers {
        SaleMultipliers::new(self.sale_multiplier, self.model_multipliers.clone())
    }
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
    pub models_deny: Vec<Glob>,
    pub protocols: Vec<Protocol>,
    pub ip_allow: Vec<IpNet>,
    pub limits: Limits,
    pub budgets: Vec<Budget>,
    pub price_limit: Option<PriceLimit>,
    pub signatures_in_ids: Option<bool>,
    pub tags: Tags,
    pub log_contents: bool,
}

/// An admin key without its secret.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct AdminKeySpec {
    pub name: String,
    pub scope: AdminScope,
    /// The key has at most the access of this member, and ends with the member.
    pub member: Option<String>,
    pub expires_at: Option<Timestamp>,
}

/// The stored value of a setting; the row has the name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredSetting {
    /// Text without quotes.
    pub value: String,
}

/// Permissions of an admin key, in ascending order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AdminScope {
    /// Only objects of the key's member.
    Member,
    /// Channels, accounts, groups, models, prices, all keys, all usage.
    #[default]
    Operator,
    Admin,
}

impl AdminScope {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Member => "member",
            Self::Operator => "operator",
            Self::Admin => "admin",
        }
    }
}

impl From<Role> for AdminScope {
    fn from(role: Role) -> Self {
        match role {
            Role::Member => Self::Member,
            Role::Operator => Self::Operator,
            Role::Admin => Self::Admin,
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
            models_deny: Vec::new(),
            protocols: Vec::new(),
            ip_allow: Vec::new(),
            limits: Limits::default(),
            budgets: Vec::new(),
            price_limit: None,
            signatures_in_ids: None,
            tags: Tags::default(),
            log_contents: false,
        }
    }
}
