//! Channels with the health of their accounts.

use std::collections::HashMap;

use serde::Deserialize;
use serde_json::Value;

use crate::{
    api_error::ApiError,
    dispatch::ApiCall,
    pages::{
        format::{self, TimeText},
        locale::Locale,
        mark::Mark,
        models::path_of_name,
        operations,
        request::{ApiPage, PageRequest, get, path_of},
        strip::{HealthObject, channel_mark, reason},
    },
};

/// Channels and accounts that a page looks at.
const MOST: &str = "1000";

/// A channel, as the admin API answers it.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct ChannelObject {
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) provider: String,
    pub(crate) status: String,
    pub(crate) base_url: String,
    pub(crate) priority: i64,
    pub(crate) weight: u64,
    pub(crate) owner: String,
    pub(crate) tags: Vec<String>,
    /// The served model that tests use first.
    pub(crate) test_model: Option<String>,
    pub(crate) serves: Vec<ServedObject>,
}

#[derive(Clone, Debug, Deserialize)]
pub(crate) struct ServedObject {
    pub(crate) model: String,
    pub(crate) upstream: String,
    /// A price, a list of prices over time, or null.
    #[serde(default)]
    pub(crate) cost: Value,
}

impl ChannelObject {
    /// Whether it is changed in the catalog file only.
    pub(crate) fn is_of_file(&self) -> bool {
        self.owner == "file"
    }

    pub(crate) fn is_built_in(&self) -> bool {
        self.provider == "echo"
    }
}

/// Display name of a provider.
pub(crate) fn provider_name(t: Locale, provider: &str) -> &'static str {
    match provider {
        "openai" => "OpenAI",
        "gemini" => "Gemini",
        "anthropic" => "Anthropic",
        "echo" => t.say("channels.echo"),
        _ => t.say("channels.compatible"),
    }
}

/// The tone of a provider's tile.
pub(crate) fn provider_tone(provider: &str) -> &'static str {
    match provider {
        "openai" => "ok",
        "gemini" => "info",
        "anthropic" => "warn",
        "compatible" => "alt",
        _ => "",
    }
}

/// A channel and its accounts now.
#[derive(Clone, Debug)]
pub(crate) struct ChannelState {
    pub(crate) name: String,
    pub(crate) channel: ChannelObject,
    pub(crate) accounts: Vec<HealthObject>,
}

impl ChannelState {
    pub(crate) fn is_on(&self) -> bool {
        self.channel.status == "on"
    }

    pub(crate) fn path(&self) -> String {
        path(&self.name)
    }

    pub(crate) fn mark(&self, t: Locale) -> Mark {
        channel_mark(t, self.is_on(), &self.accounts)
    }

    /// Sort key: channels with problems first, switched-off ones last.
    pub(crate) fn severity(&self) -> u8 {
        let on = || self.accounts.iter().filter(|account| account.status == "on");
        match (self.is_on(), on().count(), on().filter(|account| account.is_usable()).count()) {
            (false, ..) => 4,
            (true, 0, _) => 3,
            (true, _, 0) => 0,
            (true, all, usable) if usable < all => 1,
            (true, ..) => 2,
        }
    }

    /// The first account that is out of use: it tells why.
    pub(crate) fn trouble(&self) -> Option<&HealthObject> {
        self.accounts.iter().find(|account| self.is_on() && account.status == "on" && !account.is_usable())
    }

    /// Why not all accounts can be used. Of an account whose time is over, which the next request tries, that it is over.
    pub(crate) fn detail(&self, t: Locale) -> Option<String> {
        let account = self.trouble()?;
        let why = account.reason.as_deref().map(|why| reason(t, why))?;
        Some(if account.state == "due" { t.say_with("health.over", &[("reason", &why)]) } else { why })
    }

    /// Until when.
    pub(crate) fn until(&self, t: Locale) -> Option<TimeText> {
        format::time(t, self.trouble()?.until.as_deref()?)
    }
}

/// The address of a channel's page.
pub(crate) fn path(name: &str) -> String {
    format!("/channels/{}", path_of_name(name).replace('/', "%2F"))
}

/// A call about one channel.
pub(super) fn call_of(request: &PageRequest) -> ApiCall {
    ApiCall { path: path_of(&[("name", request.path_param("name"))]), ..ApiCall::default() }
}

/// The channel of a page's address.
pub(super) async fn one(request: &PageRequest) -> Result<ChannelObject, ApiError> {
    request.read(operations::GET_CHANNEL, call_of(request)).await
}

/// All channels.
pub(crate) async fn all(request: &PageRequest) -> Result<Vec<ChannelObject>, ApiError> {
    Ok(request.read::<ApiPage<ChannelObject>>(operations::LIST_CHANNELS, get(&[("limit", MOST)])).await?.items)
}

/// All channels with the health of their accounts, by name.
pub(crate) async fn states(request: &PageRequest) -> Result<Vec<ChannelState>, ApiError> {
    let (channels, accounts) = tokio::try_join!(all(request), health(request))?;
    let mut of_channel: HashMap<String, Vec<HealthObject>> = HashMap::new();
    for account in accounts {
        of_channel.entry(account.channel.clone()).or_default().push(account);
    }
    let mut states: Vec<ChannelState> = channels
        .into_iter()
        .map(|channel| ChannelState {
            name: channel.name.clone(),
            accounts: of_channel.remove(&channel.name).unwrap_or_default(),
            channel,
        })
        .collect();
    states.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(states)
}

/// The health of all accounts.
pub(super) async fn health(request: &PageRequest) -> Result<Vec<HealthObject>, ApiError> {
    Ok(request.read::<ApiPage<HealthObject>>(operations::LIST_HEALTH, get(&[("limit", MOST)])).await?.items)
}
