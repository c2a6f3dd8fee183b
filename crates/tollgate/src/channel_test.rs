//! Channel tests: sends a real request through each account of a channel and reports every step.

use std::{sync::Arc, time::Duration};

use tollgate_console::{AccountTestResult, ChannelTest, ChannelTestError, ChannelTestEvent, OnTestEvent, TestStep};
use tollgate_core::{AccountId, Catalog, Provider};
use tollgate_gateway::{
    clock::{Clock, SystemClock},
    upstream::client::{ProbeStep, Trust, probe},
};

/// Runs a test. `on_pass` receives each account that passed, and whether cooldowns are enabled for the channel.
pub(crate) async fn run(
    catalog: &Catalog,
    test: ChannelTest<'_>,
    on_event: OnTestEvent<'_>,
    on_pass: &mut (dyn FnMut(AccountId, bool) + Send),
) -> Result<Vec<AccountTestResult>, ChannelTestError> {
    let ChannelTest { channel, account, model } = test;
    let found = catalog.channels.values().find(|known| known.name == channel || known.id.to_string() == channel);
    let channel = found.ok_or_else(|| ChannelTestError::NotFound("channel", channel.to_owned()))?;
    let is_selected = |name: &str, id: AccountId| account.is_none_or(|account| name == account || id.to_string() == account);
    let accounts: Vec<_> = channel.accounts.iter().filter(|known| is_selected(&known.name, known.id)).collect();
    if accounts.is_empty() {
        return Err(ChannelTestError::NotFound("account", account.unwrap_or("(any)").to_owned()));
    }
    if channel.provider == Provider::Echo {
        return Err(ChannelTestError::BuiltIn);
    }
    let serves = channel.mappings.iter().find(|serves| model.is_none_or(|model| serves.model == model));
    let serves = serves.ok_or_else(|| ChannelTestError::NotFound("served model", model.unwrap_or("(any)").to_owned()))?;
    let (trust, clock) = (Arc::new(Trust::default()), Arc::new(SystemClock) as Arc<dyn Clock>);
    let mut tested = Vec::with_capacity(accounts.len());
    for account in accounts {
        let mut steps = Vec::new();
        let mut on_step = |step: ProbeStep, took: Duration| {
            let (name, detail) = describe(&step);
            let step = TestStep { step: name, took_ms: took.as_secs_f64() * 1_000.0, detail };
            on_event(ChannelTestEvent::Step { account: &account.name, model: &serves.model, step: &step });
            steps.push(step);
        };
        let result = probe(channel, account, serves, Arc::clone(&trust), &clock, &mut on_step).await;
        if result.is_ok() {
            on_pass(account.id, channel.cooling);
        }
        let error = result.err().map(|fault| fault.to_string());
        let result = AccountTestResult { account: account.name.clone(), model: serves.model.clone(), steps, error };
        on_event(ChannelTestEvent::End(&result));
        tested.push(result);
    }
    Ok(tested)
}

/// Name and details of a step.
fn describe(step: &ProbeStep) -> (&'static str, String) {
    match step {
        ProbeStep::Resolved(addresses) => ("DNS", addresses.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")),
        ProbeStep::Connected => ("TCP", "connected".to_owned()),
        ProbeStep::Secured(version) => {
            ("TLS", version.map_or_else(|| "none, the base URL is plain http".to_owned(), str::to_owned))
        }
        ProbeStep::Answered(status) => ("HTTP", format!("status {status}")),
        ProbeStep::FirstByte => ("first byte", String::new()),
        ProbeStep::Usage(Some(usage)) => ("usage", format!("{} tokens in, {} out", usage.prompt_total, usage.completion_total)),
        ProbeStep::Usage(None) => ("usage", "the provider sent none; tokens will be counted locally".to_owned()),
    }
}
