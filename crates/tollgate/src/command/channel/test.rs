//! `channel test`: each account of a channel for real, each step as it happens. A pass ends an account's rest.

use std::{sync::Arc, time::Duration};

use serde_json::{Value, json};
use tollgate_core::{AccountHealth, Channel, Observation, Provider, observe};
use tollgate_gateway::{ProbeFault, ProbeStep, Trust, probe};
use tollgate_store::Store;

use crate::{cli::Common, compose, failure::Failure, say};

/// Tests one account, or all of the channel.
pub(crate) async fn run(
    common: &Common,
    store: &Store,
    channel: &Arc<Channel>,
    account: Option<&str>,
    model: Option<&str>,
) -> Result<(), Failure> {
    if channel.provider == Provider::Echo {
        if common.json {
            say::json(&json!({"account": null, "steps": [], "error": null}));
        } else {
            say::line(&format!("{} answers inside the gateway: there is nothing to reach", channel.name));
        }
        return Ok(());
    }
    let serves = channel
        .serves
        .iter()
        .find(|serves| model.is_none_or(|model| serves.model == model))
        .ok_or_else(|| Failure::Machine(format!("channel '{}' serves no such model", channel.name)))?;
    let accounts: Vec<_> = channel.accounts.iter().filter(|known| account.is_none_or(|name| known.name == name)).collect();
    if accounts.is_empty() {
        return Err(Failure::Machine(format!("channel '{}' has no such account", channel.name)));
    }
    let trust = Arc::new(Trust::default());
    let mut failed = 0;
    for account in accounts {
        if !common.json {
            say::line(&format!("{}/{} with {} ({})", channel.name, account.name, serves.model, channel.base_url));
        }
        let mut steps = Vec::new();
        let result = {
            let json = common.json;
            let mut seen = |step: ProbeStep, took: Duration| {
                let (name, detail) = words(&step);
                if !json {
                    say::line(&format!("  ok    {name:<12}{:>8.1} ms  {detail}", took.as_secs_f64() * 1_000.0));
                }
                steps.push(json!({"step": name, "ms": took.as_secs_f64() * 1_000.0, "detail": detail}));
            };
            probe(channel, account, serves, Arc::clone(&trust), &mut seen).await
        };
        failed += usize::from(result.is_err());
        report(common, &account.name, &steps, &result);
        if result.is_ok() {
            let known = store.health.load_health().await?.into_iter().find(|(id, _)| *id == account.id);
            let before = known.map_or_else(AccountHealth::default, |(_, health)| health);
            let after = observe(&before, &Observation::TestPassed, channel.cooling, compose::now());
            if after != before {
                store.health.save_health(&[(account.id, after)], compose::now()).await?;
            }
        }
    }
    if failed == 0 { Ok(()) } else { Err(Failure::Machine(format!("{failed} account(s) failed the test"))) }
}

fn report(common: &Common, account: &str, steps: &[Value], result: &Result<(), ProbeFault>) {
    if common.json {
        say::json(&json!({"account": account, "steps": steps, "error": result.as_ref().err().map(ToString::to_string)}));
    } else if let Err(fault) = result {
        say::line(&format!("  FAIL  {fault}"));
    }
}

/// A step's name and what there is to say about it.
pub(crate) fn words(step: &ProbeStep) -> (&'static str, String) {
    match step {
        ProbeStep::Resolved(addresses) => ("DNS", addresses.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")),
        ProbeStep::Connected => ("TCP", "connected".to_owned()),
        ProbeStep::Secured(version) => {
            ("TLS", version.map_or_else(|| "none, the base URL is plain http".to_owned(), str::to_owned))
        }
        ProbeStep::Answered(status) => ("HTTP", format!("status {status}")),
        ProbeStep::FirstByte => ("first byte", String::new()),
        ProbeStep::Usage(Some(usage)) => ("usage", format!("{} tokens in, {} out", usage.prompt_total, usage.completion_total)),
        ProbeStep::Usage(None) => ("usage", "the provider sent none; it will be counted here".to_owned()),
    }
}
