//! Channel tests: sends a real request through each account of a channel and reports every step.

use std::{sync::Arc, time::Duration};

use tollgate_console::{
    AccountTestResult, ChannelTest, ChannelTestError, ChannelTestEvent, OnTestEvent, ProxyTestResult, TestStep, TestedModel,
};
use tollgate_core::{
    Account, AccountId, Catalog, Channel, CoolingRules, ModelMapping, NanoUsd, Provider, Timestamp, Tokens, amount, reported_tokens,
};
use tollgate_gateway::{
    clock::{Clock, SystemClock},
    upstream::{
        call::ConnectFault,
        client::{ProbeFault, ProbeStep, Trust, list_models, probe, probe_connection},
    },
};
use tollgate_store::LastTest;

/// Receives the result of each account, and the channel's rules of cooling.
type OnTestEnd<'a> = &'a mut (dyn FnMut(AccountId, CoolingRules, &AccountTestResult) + Send);

/// Runs a test, in which no request takes longer than `longest`.
pub(crate) async fn run(
    catalog: &Catalog,
    test: ChannelTest<'_>,
    (trust, longest): (&Arc<Trust>, Duration),
    on_event: OnTestEvent<'_>,
    on_end: OnTestEnd<'_>,
) -> Result<Vec<AccountTestResult>, ChannelTestError> {
    let ChannelTest { channel, account, model } = test;
    let (channel, accounts) = accounts(catalog, channel, account)?;
    let tested_model = tested_model(channel, model).ok_or_else(|| ChannelTestError::NotFound("served model"))?;
    let clock = Arc::new(SystemClock) as Arc<dyn Clock>;
    let mut tested = Vec::with_capacity(accounts.len());
    for account in accounts {
        let begin = clock.instant();
        let (mut steps, mut first_byte_ms, mut tokens) = (Vec::new(), None, None);
        let mut on_step = |step: ProbeStep, took: Duration| {
            let took_ms = milliseconds(took);
            match &step {
                ProbeStep::FirstByte => first_byte_ms = Some(took_ms),
                ProbeStep::Usage(Some(usage)) => tokens = reported_tokens(*usage),
                ProbeStep::Resolved(_)
                | ProbeStep::Connected
                | ProbeStep::Tunnelled(_)
                | ProbeStep::Secured(_)
                | ProbeStep::Answered(_)
                | ProbeStep::Usage(None) => {}
            }
            let (name, detail) = describe(&step);
            let step = TestStep { step: name, took_ms, detail };
            on_event(ChannelTestEvent::Step { account: &account.spec.name, model: &tested_model.model, step: &step });
            steps.push(step);
        };
        let result = probe(channel, account, &tested_model, (Arc::clone(trust), longest), &clock, &mut on_step).await;
        let result = AccountTestResult {
            account: account.spec.name.clone(),
            model: tested_model.model.clone(),
            steps,
            error: result.err().map(|fault| text_of(&fault)),
            took_ms: milliseconds(clock.instant().duration_since(begin)),
            first_byte_ms,
            tokens,
            cost: tokens.and_then(|tokens| cost(&tokens, &tested_model, account, clock.now())),
        };
        on_end(account.id, channel.spec.cooling_rules(), &result);
        on_event(ChannelTestEvent::End(&result));
        tested.push(result);
    }
    Ok(tested)
}

/// The model of a test request; `None`: the channel does not serve it.
fn tested_model(channel: &Channel, model: TestedModel<'_>) -> Option<ModelMapping> {
    let served = |name: &str| channel.spec.serves.iter().find(|serves| serves.model == name).cloned();
    match model {
        TestedModel::Served(name) => served(name),
        TestedModel::OfProvider(name) => {
            Some(ModelMapping { model: name.to_owned(), upstream: name.to_owned(), ..ModelMapping::default() })
        }
        // The configured test model may no longer be served.
        TestedModel::Usual => channel.spec.test_model.as_deref().and_then(served).or_else(|| channel.spec.serves.first().cloned()),
    }
}

/// What the provider charges for a test; `None`: the price is unknown.
fn cost(tokens: &Tokens, model: &ModelMapping, account: &Account, now: Timestamp) -> Option<NanoUsd> {
    amount(tokens, model.cost.as_ref()?.at(now)?, account.spec.cost_multiplier)
}

fn milliseconds(took: Duration) -> f64 {
    took.as_secs_f64() * 1_000.0
}

/// A result as the last test of its account.
pub(crate) fn last_test(result: &AccountTestResult, at: Timestamp) -> LastTest {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a duration is not negative, and in range")]
    let took_ms = result.took_ms.round() as u64;
    LastTest { at, model: result.model.clone(), took_ms, error: result.error.clone() }
}

/// Connects through the proxy of a channel to its upstream.
pub(crate) async fn run_proxy(catalog: &Catalog, channel: &str, trust: &Trust) -> Result<ProxyTestResult, ChannelTestError> {
    let channel = find(catalog, channel)?;
    if channel.proxy.is_none() {
        return Err(ChannelTestError::NoProxy);
    }
    let mut steps = Vec::new();
    let mut on_step = |step: ProbeStep, took: Duration| {
        let (step, detail) = describe(&step);
        steps.push(TestStep { step, took_ms: milliseconds(took), detail });
    };
    let result = probe_connection(channel, trust, &SystemClock, &mut on_step).await;
    let error = result.err().map(|fault| match (fault, steps.len()) {
        (ConnectFault::Proxy, 0) => "the proxy cannot be reached".to_owned(),
        (ConnectFault::Proxy, _) => "the proxy did not connect to the upstream; its user or password may be wrong".to_owned(),
        (fault, _) => text_of(&ProbeFault::Connect(fault)),
    });
    Ok(ProxyTestResult { steps, error })
}

/// The models that the provider of a channel lists.
pub(crate) async fn models(
    catalog: &Catalog,
    channel: &str,
    account: Option<&str>,
    (trust, longest): (&Arc<Trust>, Duration),
) -> Result<Vec<String>, ChannelTestError> {
    let (channel, accounts) = accounts(catalog, channel, account)?;
    let account = accounts.first().ok_or_else(|| ChannelTestError::NotFound("account"))?;
    let clock = Arc::new(SystemClock) as Arc<dyn Clock>;
    let listed = list_models(channel, account, (Arc::clone(trust), longest), &clock).await;
    listed.map_err(|fault| ChannelTestError::Upstream(text_of(&fault)))
}

/// The fault, with a remedy if the settings do not permit the address.
fn text_of(fault: &ProbeFault) -> String {
    match fault {
        ProbeFault::Connect(ConnectFault::Unlisted(why)) => format!("{why}; {}", why.remedy()),
        ProbeFault::Connect(_)
        | ProbeFault::Broken(_)
        | ProbeFault::TimedOut(_)
        | ProbeFault::Refused { .. }
        | ProbeFault::Unreadable(_) => fault.to_string(),
    }
}

/// A channel by name or id.
fn find<'a>(catalog: &'a Catalog, channel: &str) -> Result<&'a Arc<Channel>, ChannelTestError> {
    let found = catalog.channels.values().find(|known| known.spec.name == channel || known.id.to_string() == channel);
    found.ok_or_else(|| ChannelTestError::NotFound("channel"))
}

/// A channel and its account by name or id, or all its accounts.
///
/// # Errors
/// No such channel or account, or the channel is built in.
pub(crate) fn accounts<'a>(
    catalog: &'a Catalog,
    channel: &str,
    account: Option<&str>,
) -> Result<(&'a Arc<Channel>, Vec<&'a Arc<Account>>), ChannelTestError> {
    let channel = find(catalog, channel)?;
    let is_selected = |name: &str, id: AccountId| account.is_none_or(|account| name == account || id.to_string() == account);
    let accounts: Vec<_> = channel.accounts.iter().filter(|known| is_selected(&known.spec.name, known.id)).collect();
    if accounts.is_empty() {
        return Err(ChannelTestError::NotFound("account"));
    }
    if channel.spec.provider == Provider::Echo {
        return Err(ChannelTestError::BuiltIn);
    }
    Ok((channel, accounts))
}

/// Name and details of a step.
fn describe(step: &ProbeStep) -> (&'static str, String) {
    match step {
        ProbeStep::Resolved(addresses) => ("DNS", addresses.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")),
        ProbeStep::Connected => ("TCP", "connected".to_owned()),
        ProbeStep::Tunnelled(method) => (method, "the proxy has connected to the upstream".to_owned()),
        ProbeStep::Secured(version) => {
            ("TLS", version.map_or_else(|| "none, the base URL is plain http".to_owned(), str::to_owned))
        }
        ProbeStep::Answered(status) => ("HTTP", format!("status {status}")),
        ProbeStep::FirstByte => ("first byte", String::new()),
        ProbeStep::Usage(Some(usage)) => {
            let cached = if usage.cached > 0 { format!(" ({} cached)", usage.cached) } else { String::new() };
            ("usage", format!("{} tokens in{cached}, {} out", usage.prompt_total, usage.completion_total))
        }
        ProbeStep::Usage(None) => ("usage", "the provider sent none; tokens will be counted locally".to_owned()),
    }
}
