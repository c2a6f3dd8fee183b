//! Channels, their accounts, and what they serve.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use tollgate_protocol::{Profile, Protocol};

use super::{Budget, Owner};
use crate::{AccountId, ChannelId, Multiplier, PriceSchedule, Secret};

/// What runs models at a channel's far end; sets defaults.
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
    /// Anything that speaks one of the protocols.
    Compatible,
    /// The built-in channel that answers with what it was told.
    Echo,
}

/// A priced way to reach a provider.
#[derive(Clone, Debug)]
pub struct Channel {
    /// Id.
    pub id: ChannelId,
    /// Name; unique.
    pub name: String,
    /// Who owns the row.
    pub owner: Owner,
    /// Provider.
    pub provider: Provider,
    /// Wire format. Meaningless for [`Provider::Echo`], which speaks the caller's.
    pub protocol: Protocol,
    /// Base URL with the version, no trailing slash. Empty for echo.
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
    /// Seconds between two probes of each of its accounts; 0: only accounts that rest are probed.
    pub probe_interval_s: u32,
    /// Added to every request upstream.
    pub headers: Vec<(String, String)>,
    /// `http://` (CONNECT) or `socks5://`.
    pub proxy: Option<Secret>,
    /// PEM file with further roots.
    pub ca_file: Option<String>,
    /// Budgets on cost.
    pub budgets: Vec<Budget>,
    /// Its credentials.
    pub accounts: Vec<Arc<Account>>,
    /// The models it serves.
    pub mappings: Vec<ModelMapping>,
}

/// What translation may do on the way to a channel; everything is off unless said.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct TranslationSwitches {
    /// Later system texts go to the beginning; off, they stay in place, which keeps prompt caches.
    pub hoist: bool,
    /// Tools the provider runs and charges itself (web search) may be asked for.
    pub server_tools: bool,
    /// The id of the person behind the caller travels (`metadata.user_id`).
    pub pass_user: bool,
    /// The gateway fetches addresses of media that the upstream does not read itself.
    pub fetch_media: bool,
}

/// Waiting limits of a channel, in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Timeouts {
    /// TCP and TLS.
    pub connect_ms: u64,
    /// Until the first byte of an answer.
    pub first_byte_ms: u64,
    /// Between bytes.
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
    /// Id.
    pub id: AccountId,
    /// Name; unique in its channel.
    pub name: String,
    /// `None` for echo.
    pub credential: Option<Secret>,
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

/// A model as a channel serves it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ModelMapping {
    /// Public name.
    pub model: String,
    /// Name sent upstream.
    pub upstream: String,
    /// What the provider charges; `None`: not known.
    pub cost: Option<PriceSchedule>,
    /// Facts about the upstream model, as stated.
    pub profile: Profile,
}
