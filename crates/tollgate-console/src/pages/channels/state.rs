//! Channels with the health of their accounts.

use std::collections::HashMap;

use serde::{Deserialize, de::DeserializeOwned};
use serde_json::Value;
use tollgate_core::Multiplier;

use super::rates::MinuteUse;
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

/// Channels or accounts that are read at once, and how often that is repeated: a page looks at no more than 20,000.
const READ_AT_ONCE: &str = "1000";
const MAX_READS: usize = 20;

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
    pub(crate) revision: u64,
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
    /// Use of the channel's own limits; `None`: it has none.
    pub(crate) load: Option<ChannelLoadObject>,
}

/// Use of the limits of a channel, as the admin API answers it.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct ChannelLoadObject {
    channel: String,
    running: u64,
    requests_minute: u64,
    tokens_minute: u64,
    concurrency: u64,
    rpm: u64,
    tpm: u64,
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

    /// Requests in progress, and the limit on them: that of the channel, or the sum of those of its accounts if all have one. `None`:
    /// nothing is counted.
    pub(crate) fn running(&self) -> Option<(u64, Option<u64>)> {
        let running = || self.accounts.iter().filter_map(|account| account.running).fold(0, u64::saturating_add);
        match (&self.load, self.sum(|account| account.concurrency)) {
            (Some(load), sum) => Some((load.running, lower(load.concurrency, sum))),
            (None, Some(most)) => Some((running(), Some(most))),
            (None, None) => self.accounts.iter().any(|account| account.running.is_some()).then(|| (running(), None)),
        }
    }

    /// Requests of the last minute, and the limit on them: that of the channel, or the sum of those of its accounts. `None`: there is
    /// no limit.
    pub(super) fn requests_minute(&self) -> MinuteUse {
        self.minute(|load| (load.requests_minute, load.rpm), |account| (account.requests_minute, account.rpm))
    }

    /// The same of tokens.
    pub(super) fn tokens_minute(&self) -> MinuteUse {
        self.minute(|load| (load.tokens_minute, load.tpm), |account| (account.tokens_minute, account.tpm))
    }

    fn minute(
        &self,
        of_channel: fn(&ChannelLoadObject) -> (u64, u64),
        of_account: fn(&HealthObject) -> (Option<u64>, u64),
    ) -> MinuteUse {
        let of_accounts = || self.accounts.iter().filter_map(|account| of_account(account).0).fold(0, u64::saturating_add);
        let channel = self.load.as_ref().map(of_channel);
        let limit = lower(channel.map_or(0, |(_, limit)| limit), self.sum(|account| of_account(account).1))?;
        Some((channel.map_or_else(of_accounts, |(used, _)| used), limit))
    }

    /// The factor of its accounts on the costs, or the lowest and the highest; `None` without accounts.
    pub(super) fn cost_multiplier(&self) -> Option<String> {
        let factors = self.accounts.iter().filter_map(|account| Multiplier::parse(&account.cost_multiplier).ok());
        let (lowest, highest) = (factors.clone().min()?, factors.max()?);
        let highest = if highest > lowest { format!("–{}", highest.to_decimal()) } else { String::new() };
        Some(format!("× {}{highest}", lowest.to_decimal()))
    }

    /// The sum of a limit over the accounts. With one unlimited account, there is none.
    fn sum(&self, limit: impl Fn(&HealthObject) -> u64) -> Option<u64> {
        let all: Vec<u64> = self.accounts.iter().map(limit).collect();
        if all.contains(&0) || all.is_empty() { None } else { Some(all.into_iter().fold(0, u64::saturating_add)) }
    }

    /// The first account that is out of use, whose reason is shown.
    pub(crate) fn trouble(&self) -> Option<&HealthObject> {
        self.accounts.iter().find(|account| self.is_on() && account.status == "on" && !account.is_usable())
    }

    /// Why not all accounts can be used. If an account's wait is over and the next request tries it, the reason says so.
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

/// The lower one of a channel's limit, where 0 means none, and the sum of those of its accounts.
fn lower(of_channel: u64, of_accounts: Option<u64>) -> Option<u64> {
    let of_channel = (of_channel > 0).then_some(of_channel);
    [of_channel, of_accounts].into_iter().flatten().min()
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
    read_all(request, operations::LIST_CHANNELS, &ApiCall::default()).await
}

/// The rows of all pages of a list. `of` has the parameters of its path.
pub(super) async fn read_all<T: DeserializeOwned>(
    request: &PageRequest,
    list: &'static str,
    of: &ApiCall,
) -> Result<Vec<T>, ApiError> {
    let (mut rows, mut after) = (Vec::new(), None);
    for _ in 0..MAX_READS {
        let cursor = after.as_deref().map(|after: &str| ("after", after));
        let query: Vec<(&str, &str)> = std::iter::once(("limit", READ_AT_ONCE)).chain(cursor).collect();
        let page: ApiPage<T> = request.read(list, ApiCall { path: of.path.clone(), ..get(&query) }).await?;
        rows.extend(page.items);
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    Ok(rows)
}

/// All channels with the health of their accounts, by name.
pub(crate) async fn states(request: &PageRequest) -> Result<Vec<ChannelState>, ApiError> {
    let (channels, accounts, mut loads) = tokio::try_join!(all(request), health(request), loads(request))?;
    let mut of_channel: HashMap<String, Vec<HealthObject>> = HashMap::new();
    for account in accounts {
        of_channel.entry(account.channel.clone()).or_default().push(account);
    }
    let mut states: Vec<ChannelState> = channels
        .into_iter()
        .map(|channel| ChannelState {
            name: channel.name.clone(),
            accounts: of_channel.remove(&channel.name).unwrap_or_default(),
            load: loads.remove(&channel.name),
            channel,
        })
        .collect();
    states.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(states)
}

/// The use of all channels with limits of their own, by name.
pub(super) async fn loads(request: &PageRequest) -> Result<HashMap<String, ChannelLoadObject>, ApiError> {
    #[derive(Deserialize)]
    struct Load {
        channels: Vec<ChannelLoadObject>,
    }
    let load: Load = request.read(operations::GET_LOAD, ApiCall::default()).await?;
    Ok(load.channels.into_iter().map(|load| (load.channel.clone(), load)).collect())
}

/// The health of all accounts.
pub(super) async fn health(request: &PageRequest) -> Result<Vec<HealthObject>, ApiError> {
    read_all(request, operations::LIST_HEALTH, &ApiCall::default()).await
}
