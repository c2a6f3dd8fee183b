//! `channel list|enable|disable|test`.

pub(crate) mod test;

use std::{collections::HashMap, sync::Arc};

use serde_json::json;
use tollgate_core::{AccountHealth, AccountId, Catalog, Channel, Standing};
use tollgate_store::{Change, Store, Switch};

use crate::{
    cli::{self, Common},
    compose,
    failure::Failure,
    say, usage_line,
};

/// Runs one of the verbs.
pub(crate) fn run(common: &Common, verb: cli::Channel) -> Result<(), Failure> {
    compose::block_on(async {
        let store = compose::open(common).await?;
        match verb {
            cli::Channel::List => list(common, &store).await,
            cli::Channel::Enable { channel, account } => switch(common, &store, channel, account, Switch::On).await,
            cli::Channel::Disable { channel, account } => switch(common, &store, channel, account, Switch::Off).await,
            cli::Channel::Test { channel, account, model } => {
                let catalog = store.catalog.load().await?;
                let found = find(&catalog, &channel)?;
                test::run(common, &store, &found, account.as_deref(), model.as_deref()).await
            }
        }
    })
}

fn find(catalog: &Catalog, name: &str) -> Result<Arc<Channel>, Failure> {
    catalog
        .channels
        .values()
        .find(|channel| channel.name == name)
        .cloned()
        .ok_or_else(|| Failure::Machine(format!("there is no channel '{name}'; `tollgate channel list` shows them")))
}

async fn switch(common: &Common, store: &Store, channel: String, account: Option<String>, to: Switch) -> Result<(), Failure> {
    let found = find(&store.catalog.load().await?, &channel)?;
    if let Some(account) = account.as_ref().filter(|name| !found.accounts.iter().any(|known| known.name == **name)) {
        return Err(Failure::Machine(format!(
            "channel '{channel}' has no account '{account}'; `tollgate channel list` shows them"
        )));
    }
    let what = account.as_ref().map_or_else(|| channel.clone(), |account| format!("{channel}/{account}"));
    let change = match account {
        Some(account) => Change::SwitchAccount { channel, account, to },
        None => Change::SwitchChannel { channel, to },
    };
    let revision = store.catalog.apply(&[change], &compose::actor(), compose::now()).await?;
    let word = if to == Switch::On { "on" } else { "off" };
    if common.json {
        say::json(&json!({"channel": what, "status": word, "revision": revision}));
    } else {
        say::line(&format!("{what} is {word}"));
    }
    Ok(())
}

async fn list(common: &Common, store: &Store) -> Result<(), Failure> {
    let catalog = store.catalog.load().await?;
    let health: HashMap<AccountId, AccountHealth> = store.health.load_health().await?.into_iter().collect();
    let now = compose::now();
    let mut items = Vec::new();
    let mut rows =
        vec![["channel", "provider", "protocol", "status", "account", "state", "models", "address"].map(str::to_owned).to_vec()];
    for channel in catalog.channels.values() {
        let models: Vec<&str> = channel.serves.iter().map(|serves| serves.model.as_str()).collect();
        let status = if channel.on { "on" } else { "off" };
        let provider = json!(channel.provider).as_str().unwrap_or_default().to_owned();
        let accounts: Vec<(String, String)> = channel
            .accounts
            .iter()
            .map(|account| {
                (account.name.clone(), state(account.on, health.get(&account.id).copied().unwrap_or_default().standing(now)))
            })
            .collect();
        items.push(json!({
            "name": channel.name, "provider": provider, "protocol": channel.protocol, "status": status, "owner": channel.owner,
            "base_url": channel.base_url, "models": models,
            "accounts": accounts.iter().map(|(name, state)| json!({"name": name, "state": state})).collect::<Vec<_>>(),
        }));
        let shown = if accounts.is_empty() { vec![("none".to_owned(), "–".to_owned())] } else { accounts };
        for (number, (name, state)) in shown.into_iter().enumerate() {
            let once = |text: &str| if number == 0 { text.to_owned() } else { String::new() };
            rows.push(vec![
                once(&channel.name),
                once(&provider),
                once(channel.protocol.as_str()),
                once(status),
                name,
                state,
                once(&models.join(", ")),
                once(&channel.base_url),
            ]);
        }
    }
    if common.json {
        say::json(&json!({"items": items}));
    } else {
        say::table(&rows);
    }
    Ok(())
}

/// One account's state in words.
fn state(on: bool, standing: Standing) -> String {
    if !on {
        return "off by hand".to_owned();
    }
    match standing {
        Standing::Usable => "usable".to_owned(),
        Standing::ProbeDue => "usable (next request is the probe)".to_owned(),
        Standing::Cooling { until, why } => format!("cooling until {} ({})", usage_line::time(until), word(&why)),
        Standing::Resting { why, until: Some(until) } => format!("resting until {} ({})", usage_line::time(until), word(&why)),
        Standing::Resting { why, until: None } => format!("resting until a test passes ({})", word(&why)),
    }
}

/// A reason's word, as it is serialised, with spaces.
fn word(reason: &impl serde::Serialize) -> String {
    serde_json::to_value(reason).ok().and_then(|value| value.as_str().map(|text| text.replace('_', " "))).unwrap_or_default()
}
