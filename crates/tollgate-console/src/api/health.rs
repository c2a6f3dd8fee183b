//! Health of accounts, and channel tests.

use std::{
    collections::{HashMap, HashSet, VecDeque},
    io,
    sync::{Arc, Mutex, PoisonError},
    task::Poll,
};

use axum::body::Body;
use bytes::Bytes;
use futures_util::{StreamExt as _, stream};
use serde_json::{Map, Value, json};
use tollgate_core::{
    AccountHealth, AccountId, AccountSpec, Availability, ChannelSpec, HealthState, NanoUsd, PriceList, PriceSchedule, Timestamp,
    Tokens, listed_prices,
};
use tollgate_store::{
    AdminScope, LastTest, RowKind, StoredRow,
    fields::{Access, FieldValue as _, Kind, Object, price},
};

use super::{
    accounts,
    request_context::RequestContext,
    route::{AFTER, LIMIT, Method, Needs, RequestSchema, Resource, ResponseSchema, Route, handler},
    rows,
    schema::{COUNT, MODEL_NAME, NAME, TEXT, USD, both, read},
};
use crate::{
    api_error::ApiError,
    gateway_handle::{AccountTestResult, CapacityUse, ChannelTest, ChannelTestError, ChannelTestEvent, TestStep, TestedModel},
    response::ApiResponse,
    time::time_value,
};

/// Channels in the answer about the load, at most.
const MAX_CHANNELS: usize = 1_000;

static HEALTH: Object = Object::of(
    "AccountHealth",
    &[
        read("id", Kind::Id("acc_"), "Account id."),
        read("channel", NAME, "Channel name."),
        read("account", NAME, "Account name."),
        accounts::CREDENTIAL_END,
        read("status", Kind::Word(&["on", "off"]), "off: switched off by an operator."),
        read(
            "state",
            Kind::Word(&["usable", "cooling", "resting", "due", "probing"]),
            "due: the next request probes the account; probing: a request is probing it.",
        ),
        read("reason", TEXT, "Reason for cooling or resting.").or_null(),
        read("since", Kind::Time, "Start of the state.").or_null(),
        read("until", Kind::Time, "End of the state; null while resting: until a test passes.").or_null(),
        read("failures", COUNT, "Consecutive failures."),
        read("error_rate", Kind::Number { max: 1 }, "Moving average of the failure rate, 0 to 1."),
        read("first_token_average_us", COUNT, "Moving average of the time to the first content of a stream, in microseconds.")
            .or_null(),
        read("whole_answer_average_us", COUNT, "Moving average of the duration of responses without streaming, in microseconds.")
            .or_null(),
        read("running", COUNT, "Requests in progress on this node; null without limits: they are not counted.").or_null(),
        read("requests_minute", COUNT, "Requests of the last minute on this node; null without limits.").or_null(),
        read("tokens_minute", COUNT, "Tokens of the last minute on this node; null without limits.").or_null(),
        read("concurrency", COUNT, "Limit of requests in progress; 0: none."),
        read("rpm", COUNT, "Limit of requests a minute; 0: none."),
        read("tpm", COUNT, "Limit of tokens a minute; 0: none."),
        read("cost_multiplier", Kind::Factor { max: i64::MAX }, "Factor on the channel's cost prices."),
        read("last_test", Kind::Object(&LAST_TEST), "Result of its last test; null: it was never tested.").or_null(),
    ],
);
static CHANNEL_LOAD: Object = Object::of(
    "ChannelLoad",
    &[
        read("channel", NAME, "Channel name."),
        read("running", COUNT, "Requests in progress."),
        read("requests_minute", COUNT, "Requests of the last minute."),
        read("tokens_minute", COUNT, "Tokens of the last minute."),
        read("concurrency", COUNT, "Limit of requests in progress; 0: none."),
        read("rpm", COUNT, "Limit of requests a minute; 0: none."),
        read("tpm", COUNT, "Limit of tokens a minute; 0: none."),
    ],
);
static LOAD: Object = Object::of(
    "Load",
    &[
        read("in_flight", COUNT, "Requests in progress on this node."),
        read(
            "channels",
            Kind::List { of: &Kind::Object(&CHANNEL_LOAD), max: MAX_CHANNELS },
            "Channels with limits, and the usage of the limits on this node.",
        ),
    ],
);

static TEST: Object = Object::of(
    "ChannelTest",
    &[
        both("account", NAME, "Only this account, by name or id.").with(Access::WriteOnly),
        both("model", MODEL_NAME, "Model to use; default: the first one the channel serves.").with(Access::WriteOnly),
        both("upstream_model", MODEL_NAME, "Instead, a model of the provider, which the channel need not serve.")
            .with(Access::WriteOnly),
    ],
);
static UPSTREAM_MODEL: Object = Object::of(
    "UpstreamModel",
    &[
        read("id", MODEL_NAME, "Name of the model at the provider."),
        read("served", Kind::Flag, "Whether the channel serves it."),
        price("list_price", "Price of the built-in list that an import would take for it; null: the list has none.")
            .with(Access::ReadOnly),
    ],
);
static ENDED: Object = Object::of(
    "EndedCooling",
    &[
        both("account", NAME, "Only this account, by name or id.").with(Access::WriteOnly),
        read("accounts", Kind::List { of: &NAME, max: 1_000 }, "Accounts that requests may use again."),
    ],
);
pub(super) static STEP: Object = Object::of(
    "TestStep",
    &[
        read("step", TEXT, "DNS, TCP, CONNECT or SOCKS5 (of a proxy), TLS, HTTP, first byte, usage."),
        read("took_ms", Kind::Number { max: 86_400_000 }, "Duration in milliseconds."),
        read("detail", TEXT, "Details of the step."),
    ],
);
static TESTED: Object = Object::of(
    "TestedAccount",
    &[
        read("account", NAME, "Account name."),
        read("model", MODEL_NAME, "Model used for the test."),
        read("passed", Kind::Flag, "Whether every step passed. A passed test ends cooling and resting."),
        read("steps", Kind::List { of: &Kind::Object(&STEP), max: 20 }, "Steps that passed."),
        read("error", TEXT, "Failure after them.").or_null(),
        read("took_ms", Kind::Number { max: 86_400_000 }, "Duration of the whole test in milliseconds."),
        read(
            "first_byte_ms",
            Kind::Number { max: 86_400_000 },
            "From sending the request, which includes connecting, to the first byte of the answer.",
        )
        .or_null(),
        read("tokens_input", COUNT, "Input tokens that the provider counted.").or_null(),
        read("tokens_output", COUNT, "Output tokens that it counted.").or_null(),
        read("tokens_cache_read", COUNT, "Of the input tokens, those read from the provider's cache.").or_null(),
        read("tokens_cache_write", COUNT, "Of the input tokens, those written to the provider's cache.").or_null(),
        read(
            "cost",
            USD,
            "Cost of these tokens in USD, at the channel's price and the account's multiplier; null: the channel has no price for \
             the model, or the provider counted no tokens.",
        )
        .or_null(),
    ],
);
static LAST_TEST: Object = Object::of(
    "LastTest",
    &[
        read("at", Kind::Time, "When it ended."),
        read("model", MODEL_NAME, "Model used for the test."),
        read("passed", Kind::Flag, "Whether every step passed."),
        read("took_ms", COUNT, "Duration in milliseconds."),
        read("error", TEXT, "Why it failed.").or_null(),
    ],
);

const HEALTH_RESOURCE: Resource = Resource { tag: "health", needs: Needs::Scope(AdminScope::Operator) };
const CHANNELS: Resource = Resource { tag: "channels", needs: Needs::Scope(AdminScope::Operator) };

pub(super) static ROUTES: &[Route] = &[
    HEALTH_RESOURCE
        .route(Method::Get, "/admin/v1/health", "list_health", "Current health of every account.", handler!(list))
        .query(&[LIMIT, AFTER])
        .returns(ResponseSchema::Page(&HEALTH)),
    HEALTH_RESOURCE
        .route(Method::Get, "/admin/v1/load", "get_load", "How busy this node is.", handler!(load))
        .returns(ResponseSchema::Object(&LOAD)),
    Route {
        request: RequestSchema::Optional(&TEST),
        ..CHANNELS
            .route(
                Method::Post,
                "/admin/v1/channels/{name}/test",
                "test_channel",
                "Sends a short real request through each account of a channel and measures each step.",
                handler!(test),
            )
            .query(&[both("format", Kind::Word(&["json", "jsonl"]), "`jsonl`: streams one JSON object per step and per account.")])
            .returns(ResponseSchema::Progress(&TESTED))
    },
    CHANNELS
        .route(
            Method::Get,
            "/admin/v1/channels/{name}/upstream-models",
            "list_upstream_models",
            "Asks the provider of a channel which models it has.",
            handler!(upstream_models),
        )
        .query(&[both("account", NAME, "The account whose credential is used, by name or id; default: the first one.")])
        .returns(ResponseSchema::Page(&UPSTREAM_MODEL)),
    Route {
        request: RequestSchema::Optional(&ENDED),
        ..CHANNELS
            .route(
                Method::Post,
                "/admin/v1/channels/{name}/end-cooling",
                "end_cooling",
                "Ends cooling and rest of each account of a channel on all nodes, as a passed test does, without a request to it.",
                handler!(end_cooling),
            )
            .returns(ResponseSchema::Object(&ENDED))
    },
];

async fn list(context: RequestContext) -> Result<ApiResponse, ApiError> {
    let mut filter = rows::filter(&context, RowKind::Account)?;
    filter.name = None;
    let accounts = context.with_query_timeout(context.state.store.listing.page(&filter)).await?;
    let mut channels: HashMap<String, String> = HashMap::new();
    for account in &accounts {
        if !channels.contains_key(&account.parent) {
            let channel = context.state.store.listing.row(RowKind::Channel, &account.parent, context.objects).await?;
            channels.insert(account.parent.clone(), channel.map_or_else(String::new, |channel| channel.name));
        }
    }
    let accounts =
        accounts.into_iter().map(|row| Ok((row.read()?, row))).collect::<Result<Vec<(AccountSpec, StoredRow)>, ApiError>>()?;
    let tests = last_tests(&context, &accounts).await?;
    let (now, catalog) = (context.now(), context.state.gateway.catalog().await?);
    let show_one = |(spec, row): &(AccountSpec, StoredRow)| {
        let id = AccountId::parse(&row.id);
        let health = id.map(|id| context.state.gateway.health(id)).unwrap_or_default();
        let channel = channels.get(&row.parent).map_or("", String::as_str);
        let mut item = show(channel, row, spec, &health, now);
        item.insert("credential_end".to_owned(), accounts::credential_end(&catalog, row).into());
        item.extend(limits(spec, id.map(|id| context.state.gateway.account_use(id))));
        item.insert("last_test".to_owned(), id.and_then(|id| tests.get(&id)).map(show_last_test).into());
        Value::Object(item)
    };
    Ok(rows::page(accounts, context.limit(), |(_, row)| row.id.clone(), show_one))
}

/// The last tests of these accounts, which are ordered by id.
async fn last_tests(
    context: &RequestContext,
    accounts: &[(AccountSpec, StoredRow)],
) -> Result<HashMap<AccountId, LastTest>, ApiError> {
    let id = |account: Option<&(AccountSpec, StoredRow)>| account.and_then(|(_, row)| AccountId::parse(&row.id));
    let (Some(first), Some(last)) = (id(accounts.first()), id(accounts.last())) else { return Ok(HashMap::new()) };
    let tests = context.with_query_timeout(context.state.store.health_history.last_tests(first..=last)).await?;
    Ok(tests.into_iter().collect())
}

fn show_last_test(test: &LastTest) -> Value {
    let LastTest { at, model, took_ms, error } = test;
    json!({"at": time_value(*at), "model": model, "passed": error.is_none(), "took_ms": took_ms, "error": error})
}

/// The load of this node.
async fn load(context: RequestContext) -> Result<ApiResponse, ApiError> {
    let gateway = &context.state.gateway;
    let catalog = gateway.catalog().await?;
    let limited = catalog.channels.values().filter(|channel| channel.limits().any()).take(MAX_CHANNELS);
    let channels: Vec<Value> = limited
        .map(|channel| {
            let (limits, used) = (channel.limits(), gateway.channel_use(channel.id));
            json!({
                "channel": channel.spec.name, "running": used.running, "requests_minute": used.requests, "tokens_minute": used.tokens,
                "concurrency": limits.concurrency, "rpm": limits.rpm, "tpm": limits.tpm,
            })
        })
        .collect();
    Ok(ApiResponse::ok(json!({"in_flight": gateway.in_flight(), "channels": channels})))
}

/// The limits of an account, what is used of them, and its factor on costs.
fn limits(spec: &AccountSpec, used: Option<CapacityUse>) -> Map<String, Value> {
    let has_limits = spec.concurrency > 0 || spec.rpm > 0 || spec.tpm > 0;
    let used = used.filter(|_| has_limits);
    object(json!({
        "running": used.map(|used| used.running), "requests_minute": used.map(|used| used.requests),
        "tokens_minute": used.map(|used| used.tokens), "concurrency": spec.concurrency, "rpm": spec.rpm, "tpm": spec.tpm,
        "cost_multiplier": spec.cost_multiplier.to_decimal(),
    }))
}

fn object(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(members) => members,
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => Map::new(),
    }
}

fn show(channel: &str, row: &StoredRow, spec: &AccountSpec, health: &AccountHealth, now: Timestamp) -> Map<String, Value> {
    let due = health.availability(now) == Availability::ProbeDue;
    let (state, reason, since, until) = match health.state {
        HealthState::Usable => ("usable", Value::Null, None, None),
        HealthState::Cooling { why, since, .. } if due => ("due", json!(why), Some(since), None),
        HealthState::Resting { why, since, .. } if due => ("due", json!(why), Some(since), None),
        HealthState::Probing { why, since } if due => ("due", json!(why), Some(since), None),
        HealthState::Cooling { until, why, since } => ("cooling", json!(why), Some(since), Some(until)),
        HealthState::Resting { why, since, until } => ("resting", json!(why), Some(since), until),
        HealthState::Probing { since, why } => ("probing", json!(why), Some(since), None),
    };
    let known = |average: u64| Some(average).filter(|average| *average > 0);
    let (first_token, whole_answer) = (known(health.first_token_average_us), known(health.whole_answer_average_us));
    object(json!({
        "id": row.id, "channel": channel, "account": row.name, "status": if spec.on { "on" } else { "off" }, "state": state,
        "reason": reason, "since": since.map(time_value), "until": until.map(time_value), "failures": health.failures,
        "error_rate": f64::from(health.error_average) / 1e6, "first_token_average_us": first_token,
        "whole_answer_average_us": whole_answer,
    }))
}

async fn test(context: RequestContext) -> Result<ApiResponse, ApiError> {
    let channel = rows::find(&context, RowKind::Channel, None, context.path_param("name")).await?.name;
    if context.query.text("format") == Some("jsonl") {
        return stream_progress(context, channel).await;
    }
    let test = channel_test(&context, &channel)?;
    let tested = context.state.gateway.test(test, &mut |_| {}).await.map_err(test_error)?;
    let items: Vec<Value> = tested
        .iter()
        .map(|result| {
            let mut item = show_result(result);
            item["steps"] = result.steps.iter().map(show_step).collect();
            item
        })
        .collect();
    Ok(ApiResponse::ok(json!({"items": items, "next": null})))
}

async fn upstream_models(context: RequestContext) -> Result<ApiResponse, ApiError> {
    let channel = rows::find(&context, RowKind::Channel, None, context.path_param("name")).await?;
    let spec: ChannelSpec = channel.read()?;
    let found = context.state.gateway.upstream_models(&channel.name, context.query.text("account")).await.map_err(test_error)?;
    let served: HashSet<&str> = spec.serves.iter().map(|served| served.upstream.as_str()).collect();
    let prices = listed_prices(&PriceList::built_in(), &spec, &found);
    let item = |(name, price): (&String, &Option<PriceSchedule>)| json!({"id": name, "served": served.contains(name.as_str()), "list_price": price.show()});
    Ok(ApiResponse::ok(json!({"items": found.iter().zip(&prices).map(item).collect::<Vec<_>>(), "next": null})))
}

async fn end_cooling(context: RequestContext) -> Result<ApiResponse, ApiError> {
    let channel = rows::find(&context, RowKind::Channel, None, context.path_param("name")).await?.name;
    let ended = context.state.gateway.end_cooling(&channel, context.body.text("account")).await.map_err(test_error)?;
    Ok(ApiResponse::ok(json!({"accounts": ended})))
}

fn channel_test<'a>(context: &'a RequestContext, channel: &'a str) -> Result<ChannelTest<'a>, ApiError> {
    let model = match (context.body.text("model"), context.body.text("upstream_model")) {
        (None, None) => TestedModel::Usual,
        (Some(served), None) => TestedModel::Served(served),
        (None, Some(of_provider)) => TestedModel::OfProvider(of_provider),
        (Some(_), Some(_)) => return Err(ApiError::value("upstream_model", "expected either `model` or `upstream_model`")),
    };
    Ok(ChannelTest { channel, account: context.body.text("account"), model })
}

pub(super) fn test_error(error: ChannelTestError) -> ApiError {
    match error {
        ChannelTestError::NotFound(what) => ApiError::not_found(what),
        ChannelTestError::Store(error) => ApiError::store(&error, None),
        ChannelTestError::Upstream(message) => ApiError::upstream(&message),
        ChannelTestError::NoProxy => ApiError::conflict("no_proxy", "The channel has no proxy."),
        ChannelTestError::BuiltIn => {
            ApiError::conflict("built_in", "The channel answers inside the gateway: there is nothing to reach.")
        }
    }
}

pub(super) fn show_step(step: &TestStep) -> Value {
    json!({"step": step.step, "took_ms": step.took_ms, "detail": step.detail})
}

fn show_result(tested: &AccountTestResult) -> Value {
    let AccountTestResult { account, model, steps: _, error, took_ms, first_byte_ms, tokens, cost } = tested;
    json!({
        "account": account, "model": model, "passed": error.is_none(), "error": error, "took_ms": took_ms,
        "first_byte_ms": first_byte_ms, "tokens_input": tokens.as_ref().map(Tokens::prompt),
        "tokens_output": tokens.as_ref().map(Tokens::completion), "tokens_cache_read": tokens.map(|tokens| tokens.cache_read),
        "tokens_cache_write": tokens.map(|tokens| tokens.cache_write), "cost": cost.map(NanoUsd::to_usd_string),
    })
}

/// One line of a `jsonl` response.
fn event_line(event: ChannelTestEvent<'_>) -> String {
    let line = match event {
        ChannelTestEvent::Step { account, model, step } => {
            let mut line = show_step(step);
            line["account"] = account.into();
            line["model"] = model.into();
            line
        }
        ChannelTestEvent::End(tested) => show_result(tested),
    };
    format!("{line}\n")
}

/// Streams the events of a test as lines. The response starts with the first line, so that a test that cannot start is an
/// ordinary error response. The test is driven by reading the body, which bounds the number of buffered lines.
async fn stream_progress(context: RequestContext, channel: String) -> Result<ApiResponse, ApiError> {
    let events = Arc::new(Mutex::new(VecDeque::new()));
    let pop = {
        let events = Arc::clone(&events);
        move || events.lock().unwrap_or_else(PoisonError::into_inner).pop_front().map(|line: String| Ok(Bytes::from(line)))
    };
    // Refuses a body that names two models before the answer begins.
    channel_test(&context, &channel)?;
    let testing = async move {
        let mut on_event = |event: ChannelTestEvent<'_>| {
            events.lock().unwrap_or_else(PoisonError::into_inner).push_back(event_line(event));
        };
        match channel_test(&context, &channel) {
            Ok(test) => context.state.gateway.test(test, &mut on_event).await.map_err(test_error),
            Err(error) => Err(error),
        }
    };
    let mut testing = Some(Box::pin(testing));
    let mut lines = stream::poll_fn(move |context| {
        if let Some(line) = pop() {
            return Poll::Ready(Some(line));
        }
        let ended = match testing.as_mut().map(|testing| testing.as_mut().poll(context)) {
            None => return Poll::Ready(None),
            Some(Poll::Pending) => None,
            Some(Poll::Ready(ended)) => {
                testing = None;
                ended.err().map(Err)
            }
        };
        match (ended.or_else(&pop), &testing) {
            (Some(line), _) => Poll::Ready(Some(line)),
            (None, None) => Poll::Ready(None),
            (None, Some(_)) => Poll::Pending,
        }
    });
    let first = lines.next().await.transpose()?.unwrap_or_default();
    let rest = lines.map(|line| line.map_err(|problem| io::Error::other(problem.message().to_owned())));
    let body = Body::from_stream(stream::once(async { Ok(first) }).chain(rest));
    Ok(ApiResponse::streamed("application/jsonl; charset=utf-8", body))
}
