//! Channels, their accounts and their model mappings.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use tollgate_protocol::{Profile, Protocol};

use super::{Budget, Owner};
use crate::{AccountId, ChannelId, Multiplier, PriceSchedule, Secret};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Provider {
    /// api.openai.com.
    #[serde(rename = "openai")]
    OpenAi,
    /// generativelanguage.googleapis.com.
    Gemini,
    /// api.anthropic.com.
    Anthropic,
    /// Any other server that speaks one of the protocols.
    Compatible,
    /// The built-in channel that echoes its input.
    Echo,
}

impl Provider {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::OpenAi => "openai",
            Self::Gemini => "gemini",
            Self::Anthropic => "anthropic",
            Self::Compatible => "compatible",
            Self::Echo => "echo",
        }
    }
}

/// A priced way to reach a provider.
#[derive(Clone, Debug)]
pub struct Channel {
    pub id: ChannelId,
    /// Name; unique.
    pub name: String,
    /// Where the row is managed.
    pub owner: Owner,
    pub provider: Provider,
    /// Wire format. Unused for [`Provider::Echo`], which speaks the caller's protocol.
    pub protocol: Protocol,
    /// Base URL with the version, no trailing slash. Empty for echo.
    pub base_url: String,
    /// `false`: disabled by an operator.
    pub on: bool,
    /// `false`: failures never cool down its accounts.
    pub cooling: bool,
    /// `false`: unsupported fields are not learned from refusals.
    pub learn_unsupported: bool,
    /// What translation to this channel may do.
    pub translation: TranslationSwitches,
    /// True to allow loopback and private addresses.
    pub private_network: bool,
    /// Lower values are tried first.
    pub priority: i32,
    /// Share of traffic within its priority.
    pub weight: u32,
    pub timeouts: Timeouts,
    /// True to retry when a request was sent but not answered.
    pub retry_uncertain: bool,
    /// Seconds between probes of each account; 0: only resting accounts are probed.
    pub probe_interval_s: u32,
    /// Headers added to every upstream request.
    pub headers: Vec<(String, String)>,
    /// `http://` (CONNECT) or `socks5://`.
    pub proxy: Option<Secret>,
    /// PEM file with additional root certificates.
    pub ca_file: Option<String>,
    /// Budgets on the cost price.
    pub budgets: Vec<Budget>,
    pub accounts: Vec<Arc<Account>>,
    /// The models it serves, and under which upstream names.
    pub mappings: Vec<ModelMapping>,
}

/// What translation to a channel may do; everything is off by default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct TranslationSwitches {
    /// Moves later system texts to the beginning. Off, they stay in place, which keeps prompt caches valid.
    pub hoist: bool,
    /// Forwards tools that the provider runs and bills itself (web search).
    pub server_tools: bool,
    /// Forwards the end user's id (`metadata.user_id`).
    pub pass_user: bool,
    /// Fetches media by URL where the upstream does not.
    pub fetch_media: bool,
}

/// Timeouts of a channel, in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Timeouts {
    /// TCP connect and TLS handshake.
    pub connect_ms: u64,
    /// Until the first byte of the response.
    pub first_byte_ms: u64,
    /// Between two bytes of the response.
    pub idle_ms: u64,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self { connect_ms: 3_000, first_byte_ms: 120_000, idle_ms: 90_000 }
    }
}

/// One credential under a channel; the unit of concurrency, cooling and health.
#[derive(Clone, Debug)]
pub struct Account {
    pub id: AccountId,
    /// Name; unique within its channel.
    pub name: String,
    /// The credential; `None` for echo.
    pub credential: Option<Secret>,
    /// `false`: disabled by an operator.
    pub on: bool,
    /// Concurrent requests; 0: unlimited.
    pub concurrency: u32,
    /// Requests per minute; 0: unlimited.
    pub rpm: u32,
    /// Tokens per minute; 0: unlimited.
    pub tpm: u64,
    /// Multiplier on the channel's cost prices.
    pub cost_multiplier: Multiplier,
}

/// A model as a channel serves it: public name, upstream name, cost price.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ModelMapping {
    pub model: String,
    pub upstream: String,
    /// Price the provider charges; `None`: unknown.
    pub cost: Option<PriceSchedule>,
    /// Configured facts about the upstream model.
    pub profile: Profile,
}
