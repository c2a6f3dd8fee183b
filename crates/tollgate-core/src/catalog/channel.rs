//! Channels, their accounts and their model mappings.

use std::{sync::Arc, time::Duration};

use serde::{Deserialize, Serialize};
use tollgate_protocol::{ParameterEdit, Profile, Protocol};

use super::{Budget, Owner};
use crate::{AccountId, ChannelId, Multiplier, PriceSchedule, Secret};

/// The company or server behind a channel. It determines the defaults of base URL, protocol and model profiles.
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
    /// True if accounts may be without a credential: the channel calls no server, or maybe a local one that requires none.
    #[must_use]
    pub const fn works_without_credential(self) -> bool {
        matches!(self, Self::Echo | Self::Compatible)
    }

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
    /// Where the row is managed.
    pub owner: Owner,
    pub spec: ChannelSpec,
    /// `http://` (CONNECT) or `socks5://`, with its password.
    pub proxy: Option<Secret>,
    /// PEM text of the private key of its client certificate.
    pub client_key: Option<Secret>,
    /// True when the base URL names a loopback or private address, which `private_network` does not allow.
    pub needs_private_network: bool,
    /// In order of name.
    pub accounts: Vec<Arc<Account>>,
}

/// Settings of a channel, as they are stored. The store's table `fields::channel` describes each field. A field that a
/// later version adds needs a default.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ChannelSpec {
    pub name: String,
    pub provider: Provider,
    pub protocol: Protocol,
    /// Base URL with the version, no trailing slash; empty for echo.
    pub base_url: String,
    /// Tags by which operators find channels.
    pub tags: Vec<String>,
    pub on: bool,
    pub cooling: bool,
    /// Consecutive failures that start cooling.
    pub failures_to_cool: u32,
    /// First wait of cooling.
    pub cool_down_s: u32,
    /// Statuses of answers that cool an account at once.
    pub pausing_statuses: Vec<u16>,
    /// An answer without content is a failure of the account.
    pub empty_answer_is_failure: bool,
    pub learn_unsupported: bool,
    pub translation: TranslationSwitches,
    /// Edits of optional parameters in requests to the upstream, in order.
    pub parameter_edits: Vec<ParameterEdit>,
    pub private_network: bool,
    pub priority: i32,
    pub weight: u32,
    pub timeouts: Timeouts,
    pub retry_uncertain: bool,
    pub probe_interval_s: u32,
    /// The model that tests send a request to; `None`, or one that is not served: the first.
    pub test_model: Option<String>,
    pub headers: Vec<(String, String)>,
    /// Address of the proxy, its password replaced by `***`; [`Channel::proxy`] has the whole one.
    pub proxy: Option<String>,
    pub ca_file: Option<String>,
    /// PEM chain of the certificate with which the gateway identifies itself.
    pub client_certificate: Option<String>,
    /// Its private key, replaced by `***`; [`Channel::client_key`] has it.
    pub client_key: Option<String>,
    pub budgets: Vec<Budget>,
    /// Concurrent requests of all its accounts together; 0: unlimited.
    pub concurrency: u32,
    /// Requests per minute of all its accounts together; 0: unlimited.
    pub rpm: u32,
    /// Tokens per minute of all its accounts together; 0: unlimited.
    pub tpm: u64,
    pub serves: Vec<ModelMapping>,
}

impl Default for ChannelSpec {
    fn default() -> Self {
        Self {
            name: String::new(),
            provider: Provider::Compatible,
            protocol: Protocol::OpenAi,
            base_url: String::new(),
            tags: Vec::new(),
            on: true,
            cooling: true,
            failures_to_cool: 3,
            cool_down_s: 10,
            pausing_statuses: Vec::new(),
            empty_answer_is_failure: false,
            learn_unsupported: true,
            translation: TranslationSwitches::default(),
            parameter_edits: Vec::new(),
            private_network: false,
            priority: 0,
            weight: 1,
            timeouts: Timeouts::default(),
            retry_uncertain: true,
            probe_interval_s: 0,
            test_model: None,
            headers: Vec::new(),
            proxy: None,
            ca_file: None,
            client_certificate: None,
            client_key: None,
            budgets: Vec::new(),
            concurrency: 0,
            rpm: 0,
            tpm: 0,
            serves: Vec::new(),
        }
    }
}

/// Permitted translation steps to a channel; all are off by default.
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
#[serde(default)]
pub struct Timeouts {
    /// TCP connect and TLS handshake.
    pub connect_ms: u64,
    /// Until the first byte of the response.
    pub first_byte_ms: u64,
    /// Between two bytes of the response.
    pub idle_ms: u64,
    /// From the start of an attempt to the end of its answer; 0: unlimited.
    pub total_ms: u64,
}

impl Timeouts {
    /// The longest time of an attempt; `request` is the limit of a request over all attempts.
    #[must_use]
    pub fn total_within(&self, request: Duration) -> Duration {
        if self.total_ms == 0 { request } else { request.min(Duration::from_millis(self.total_ms)) }
    }
}

impl Default for Timeouts {
    fn default() -> Self {
        Self { connect_ms: 3_000, first_byte_ms: 120_000, idle_ms: 90_000, total_ms: 0 }
    }
}

/// One credential under a channel; the unit of concurrency, cooling and health.
#[derive(Clone, Debug)]
pub struct Account {
    pub id: AccountId,
    pub spec: AccountSpec,
    /// The credential; `None` for echo.
    pub credential: Option<Secret>,
}

/// Settings of an account, without its credential. Its name is unique within the channel.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stored_row_without_newer_fields_is_deserialised_with_defaults() {
        let stored = r#"{"name":"c","timeouts":{"connect_ms":1,"first_byte_ms":2,"idle_ms":3}}"#;
        let spec: ChannelSpec = serde_json::from_str(stored).unwrap();
        let expected = Timeouts { connect_ms: 1, first_byte_ms: 2, idle_ms: 3, total_ms: 0 };
        assert_eq!((spec.timeouts, spec.client_certificate, spec.client_key), (expected, None, None));
    }
}
