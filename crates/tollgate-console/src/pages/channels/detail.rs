//! A channel: its state with the reason, a period in figures and charts, a test, the reasons why it is not chosen, its recent
//! events, its accounts, its last errors, and its served models.

use std::{collections::HashMap, sync::Arc};

use askama::Template;
use serde::Deserialize;

use super::{
    Section,
    drawer::ChannelDrawer,
    explain::{Question, RoutingExplanation, answer},
    last_test::LastTest,
    list::{margin, running_text},
    rates::RateUse,
    state::{ChannelObject, ChannelState, call_of, health, loads, one, path, provider_name, read_all},
    tabs,
};
use crate::{
    api_error::ApiError,
    pages::{
        bars::Chart,
        control::{Danger, Tab},
        form::FormState,
        format::{self, TimeText},
        layout::{Layout, Script},
        lines::LineChart,
        locale::Locale,
        log::{Bucket, Buckets, outcome_chart},
        mark::Mark,
        models::path_of_name,
        money::{self, Amount},
        operations,
        overview::{
            charts::{cost as cost_chart, errors as error_chart, first_token},
            errors::{self, RecentError},
            events::{Event, TransitionObject, of_transition},
            sums::{self, AttemptFigures, AttemptSum, Figures, SumRow, SumsOverTime},
        },
        period::{Period, PeriodPicker},
        protocols,
        reply::{PageFailure, PageReply},
        request::{ApiPage, PageRequest, get},
        strip::{self, HealthObject, Strip, UptimeObject},
    },
    time::rfc3339,
};

/// Maximum number of models shown; the form has all.
const MAX_MODELS: usize = 25;
const EVENTS: &str = "10";
/// Maximum number of keys to choose from. If there are more, the name is typed.
const MOST_KEYS: &str = "100";

#[derive(Debug, Template)]
#[template(path = "channel.html")]
struct ChannelPage {
    layout: Layout,
    t: Locale,
    tabs: Vec<Tab>,
    period: PeriodPicker,
    banner: Option<String>,
    here: String,
    mark: Mark,
    is_on: bool,
    is_of_file: bool,
    is_built_in: bool,
    provider: &'static str,
    tags: Vec<String>,
    base_url: String,
    troubles: Vec<Trouble>,
    figures: Vec<Figure>,
    strip: Option<Strip>,
    test: Option<LastTest>,
    models: Vec<ModelRow>,
    all_models: Vec<String>,
    model_count: usize,
    accounts: Vec<AccountRow>,
    question: Question,
    callers: Vec<(String, String, bool)>,
    /// The field for a key that is typed; `None`: all keys are among the callers.
    typed_key: Option<String>,
    protocols: Vec<(&'static str, &'static str, bool)>,
    answer: Option<RoutingExplanation>,
    outcomes: Chart,
    first_token: LineChart,
    spend: Chart,
    failures: Chart,
    events: Vec<Event>,
    errors: Vec<RecentError>,
    log: String,
    /// The requests that failed here, including those that another account then answered.
    failed: String,
    danger: Danger,
}

#[derive(Debug)]
struct Figure {
    label: &'static str,
    text: String,
    /// The exact value; empty if it is the text.
    exact: String,
    link: Option<String>,
}

impl Figure {
    const fn of(label: &'static str, text: String) -> Self {
        Self { label, text, exact: String::new(), link: None }
    }
}

/// The served models, the one for tests first.
fn all_models(channel: &ChannelObject) -> Vec<String> {
    let mut models: Vec<String> = channel.serves.iter().map(|served| served.model.clone()).collect();
    models.sort_by_key(|model| channel.test_model.as_ref() != Some(model));
    models
}

/// An account that cannot be used, and until when.
#[derive(Debug)]
struct Trouble {
    account: String,
    tone: &'static str,
    icon: &'static str,
    sentence: String,
    since: Option<TimeText>,
    until: Option<TimeText>,
}

#[derive(Debug)]
struct ModelRow {
    model: String,
    link: String,
    upstream: String,
    cost: String,
    requests: String,
    errors: String,
    errors_link: Option<String>,
}

#[derive(Debug)]
struct AccountRow {
    name: String,
    /// Last characters of its credential.
    credential_end: Option<String>,
    link: String,
    mark: Mark,
    detail: Option<String>,
    until: Option<TimeText>,
    strip: Option<Strip>,
    running: String,
    rates: Vec<RateUse>,
    multiplier: String,
    spent: Amount,
    test: Option<LastTest>,
}

#[derive(Debug, Deserialize)]
struct AccountObject {
    name: String,
    credential_end: Option<String>,
    cost_multiplier: serde_json::Value,
}

#[derive(Debug, Deserialize)]
struct NamedObject {
    id: String,
    name: String,
}

/// Data of a channel's page besides the channel's row.
struct Sources {
    accounts: Vec<AccountObject>,
    uptimes: Vec<UptimeObject>,
    of_channel: Option<UptimeObject>,
    /// Attempts of the last hour, by `channel/account`.
    sent: HashMap<String, u64>,
    total: Figures,
    attempts: AttemptFigures,
    attempts_by_model: Vec<AttemptSum>,
    by_model: Vec<SumRow>,
    by_account: Vec<SumRow>,
    buckets: Buckets,
    series: SumsOverTime,
    spend: Chart,
    failures: Chart,
    errors: Vec<RecentError>,
    transitions: Vec<TransitionObject>,
    groups: Vec<NamedObject>,
    /// `None`: too many to choose from.
    keys: Option<Vec<NamedObject>>,
}

pub(super) async fn show(request: Arc<PageRequest>) -> Result<PageReply, PageFailure> {
    if request.wants_part() {
        let drawer = ChannelDrawer::read(&request, request.path_param("name")).await?;
        return PageReply::ok(&drawer.ok_or_else(|| ApiError::not_found("channel"))?);
    }
    page(&request, &FormState::default()).await
}

pub(super) async fn page(request: &PageRequest, form: &FormState) -> Result<PageReply, PageFailure> {
    let t = request.t();
    let period = Period::of(&request.query, request.state.gateway.now());
    let (channel, health, mut loads) = tokio::try_join!(one(request), health(request), loads(request))?;
    let name = channel.name.clone();
    let accounts: Vec<HealthObject> = health.into_iter().filter(|account| account.channel == name).collect();
    let state = ChannelState { load: loads.remove(&name), name: name.clone(), channel, accounts };
    let sources = sources(request, &name, &period).await?;
    let question = Question::of(&request.query);
    let answer = if question.is_asked() { Some(answer(request, &question, &name).await?) } else { None };
    let log = |pairs: &[(&str, &str)]| {
        let mut all = vec![("channel", name.as_str())];
        all.extend(pairs);
        request.url(&format!("/log?{}", period.log_query(&all)))
    };
    let here = request.url(&path(&name));
    let template = ChannelPage {
        layout: request.layout(name.clone()).below("/channels", t.say("nav.channels")).with(Script::Stages).with(Script::Tables),
        t,
        tabs: tabs(request, &name, Section::Overview),
        period: period.picker(t, &here, &request.query),
        banner: form.banner(),
        mark: state.mark(t),
        is_on: state.is_on(),
        is_of_file: state.channel.is_of_file(),
        is_built_in: state.channel.is_built_in(),
        provider: provider_name(t, &state.channel.provider),
        tags: state.channel.tags.clone(),
        base_url: state.channel.base_url.clone(),
        troubles: state
            .accounts
            .iter()
            .filter(|account| account.status == "on" && !account.is_usable())
            .map(|account| trouble(t, account))
            .collect(),
        figures: figures(request, &period, &state, &sources),
        strip: sources.of_channel.as_ref().map(|uptime| Strip::of_hour(t, uptime, sources.sent.values().sum())),
        test: LastTest::of_channel(t, &state.accounts, request.state.gateway.now()),
        models: models(request, &period, &state, &sources),
        all_models: all_models(&state.channel),
        model_count: state.channel.serves.len(),
        accounts: account_rows(request, &state, &sources),
        callers: callers(t, &question, &sources),
        // Empty, so that a group chosen next is used. The answer names the key.
        typed_key: sources.keys.is_none().then(String::new),
        protocols: ["", "gemini", "anthropic", "responses"]
            .map(|word| (word, protocols::label(t, if word.is_empty() { "openai" } else { word }), question.protocol == word))
            .to_vec(),
        question,
        answer,
        outcomes: outcome_chart(t, &sources.buckets, |bucket| in_bucket(request, &name, bucket)),
        first_token: first_token(t, &sources.series, &sources.total),
        spend: sources.spend,
        failures: sources.failures,
        errors: sources.errors,
        events: sources.transitions.iter().map(|transition| of_transition(t, transition, request.state.gateway.now())).collect(),
        log: log(&[]),
        failed: request.url(&sums::failed_at(&period, &name, &[])),
        danger: {
            let text = (t.say("channels.remove"), t.say("channels.remove_about").to_owned(), t.say("channels.remove_for_good"));
            Danger::new(t, form, format!("{here}/remove"), text)
        },
        here,
    };
    PageReply::page(form.status(), &template)
}

/// The requests of a channel in a bucket.
fn in_bucket(request: &PageRequest, channel: &str, bucket: &Bucket) -> String {
    let of_channel = url::form_urlencoded::Serializer::new(String::new()).append_pair("channel", channel).finish();
    request.url(&format!("/log?{}&{of_channel}", bucket.query()))
}

async fn sources(request: &PageRequest, name: &str, period: &Period) -> Result<Sources, ApiError> {
    let now = request.state.gateway.now();
    let since = rfc3339(now.plus_ms(-3_600_000));
    let of_channel = ("channel", name);
    let hour = [of_channel, ("since", since.as_str()), ("cells", "60"), ("limit", "1000")];
    let channels = [("since", since.as_str()), ("cells", "60"), ("limit", "1000")];
    let times = period.of_sums();
    let of_period: Vec<(&str, &str)> =
        [of_channel].into_iter().chain(times.iter().map(|(name, time)| (*name, time.as_str()))).collect();
    let with = |more: &[(&'static str, &'static str)]| of_period.iter().copied().chain(more.iter().copied()).collect::<Vec<_>>();
    let of_this = call_of(request);
    let (accounts, uptimes, all) = tokio::try_join!(
        read_all::<AccountObject>(request, operations::LIST_ACCOUNTS, &of_this),
        request.read::<ApiPage<UptimeObject>>(operations::SHOW_UPTIME, get(&hour)),
        request.read::<ApiPage<UptimeObject>>(operations::SHOW_UPTIME, get(&channels)),
    )?;
    let by_model = [of_channel, ("by", "model"), ("sort", "requests")];
    let (by_nothing, by_account, of_channel) =
        ([of_channel, ("by", "nothing")], [of_channel, ("by", "account"), sums::WITHOUT_TIMES], [of_channel]);
    let of_model = [("channel", name), ("by", "model")];
    let (last_hour, of_accounts) = (Period::last_hour(now), [("channel", name), ("by", "account")]);
    let (attempts, attempts_by_model, sent) = tokio::try_join!(
        sums::attempts(request, period, &by_nothing),
        sums::attempts(request, period, &of_model),
        sums::attempts(request, &last_hour, &of_accounts),
    )?;
    let (total, by_model, by_account, series) = tokio::try_join!(
        sums::rows(request, period, &by_nothing),
        sums::rows(request, period, &by_model),
        sums::rows(request, period, &by_account),
        sums::series(request, period, &of_channel),
    )?;
    let (buckets, transitions, groups, keys) = tokio::try_join!(
        request.read::<Buckets>(operations::DRAW_USAGE, get(&with(&[period.bars()]))),
        request.read::<ApiPage<TransitionObject>>(operations::LIST_HEALTH_TRANSITIONS, get(&with(&[("limit", EVENTS)]))),
        request.read::<ApiPage<NamedObject>>(operations::LIST_GROUPS, get(&[("limit", "1000")])),
        request.read::<ApiPage<NamedObject>>(operations::LIST_KEYS, get(&[("limit", MOST_KEYS)])),
    )?;
    let (spend, failures, errors) = tokio::try_join!(
        cost_chart(request, period, name, &series),
        error_chart(request, period, name),
        errors::recent(request, &buckets, &of_channel)
    )?;
    Ok(Sources {
        accounts,
        uptimes: uptimes.items,
        of_channel: all.items.into_iter().find(|uptime| uptime.channel == name),
        sent: sent.into_iter().filter_map(|row| Some((row.name?, row.attempts.attempts))).collect(),
        total: total.into_iter().next().map(|row| row.figures).unwrap_or_default(),
        attempts: attempts.first().map(|row| row.attempts).unwrap_or_default(),
        attempts_by_model,
        by_model,
        by_account,
        buckets,
        series,
        spend,
        failures,
        errors,
        transitions: transitions.items,
        groups: groups.items,
        keys: keys.next.is_none().then_some(keys.items),
    })
}

fn trouble(t: Locale, account: &HealthObject) -> Trouble {
    let mark = strip::account_mark(t, account);
    let why = account.reason.as_deref().map(|why| strip::reason(t, why)).unwrap_or_default();
    Trouble {
        sentence: t.say_with("channel.trouble", &[("account", &account.account), ("state", &mark.word), ("reason", &why)]),
        account: account.account.clone(),
        tone: mark.tone,
        icon: mark.icon,
        since: account.since.as_deref().and_then(|at| format::time(t, at)),
        until: account.until.as_deref().and_then(|at| format::time(t, at)),
    }
}

fn figures(request: &PageRequest, period: &Period, state: &ChannelState, sources: &Sources) -> Vec<Figure> {
    let (t, Sources { total, attempts, .. }) = (request.t(), sources);
    let (sale, cost) = (total.sale_nano(), total.cost_nano());
    let first = total.ttft.filter(|times| times.p99 > 0);
    let amount = |label, nano| Figure {
        exact: format::usd(&money::decimal(nano)),
        ..Figure::of(label, money::rounded(t, &money::decimal(nano)).text)
    };
    let of_period = [
        Figure::of(t.say("home.requests"), format::integer(total.requests)),
        Figure {
            label: t.say("channels.errors"),
            text: attempts.share(),
            exact: attempts.title(t),
            link: attempts.log(request, period, &state.name, &[]),
        },
        Figure::of(t.say("overview.first_token"), first.map_or_else(|| "–".to_owned(), |times| format::percentile(t, times.p50))),
        amount(t.say("log.cost"), cost),
        amount(t.say("overview.charged"), sale),
        Figure::of(t.say("channels.margin"), if sale == 0 { "–".to_owned() } else { margin(sale, cost) }),
    ];
    of_period.into_iter().chain(limits(t, state)).collect()
}

/// Use of the channel's own limits.
fn limits(t: Locale, state: &ChannelState) -> Vec<Figure> {
    if state.load.is_none() {
        return Vec::new();
    }
    let rates = RateUse::amounts(t, state.requests_minute(), state.tokens_minute());
    let rates = rates.into_iter().map(|rate| Figure { exact: rate.title, ..Figure::of(t.say("channels.rate"), rate.text) });
    [Figure::of(t.say("channels.running"), running_text(state))].into_iter().chain(rates).collect()
}

fn models(request: &PageRequest, period: &Period, state: &ChannelState, sources: &Sources) -> Vec<ModelRow> {
    let by_model: HashMap<&str, &Figures> = sources.by_model.iter().map(|row| (row.of.as_str(), &row.figures)).collect();
    let attempts: HashMap<&str, AttemptFigures> =
        sources.attempts_by_model.iter().map(|row| (row.of.as_str(), row.attempts)).collect();
    let mut served: Vec<_> = state.channel.serves.iter().collect();
    let requests = |model: &str| by_model.get(model).map_or(0, |figures| figures.requests);
    served.sort_by_key(|served| (std::cmp::Reverse(requests(&served.model)), served.model.clone()));
    let row = |served: &&super::state::ServedObject| ModelRow {
        model: served.model.clone(),
        link: request.url(&format!("/models/{}", path_of_name(&served.model))),
        upstream: served.upstream.clone(),
        cost: cost(request.t(), &served.cost),
        requests: format::integer(requests(&served.model)),
        errors: attempts.get(served.model.as_str()).map_or_else(|| "–".to_owned(), |attempts| attempts.share()),
        errors_link: attempts
            .get(served.model.as_str())
            .and_then(|attempts| attempts.log(request, period, &state.name, &[("model", served.model.as_str())])),
    };
    served.iter().take(MAX_MODELS).map(row).collect()
}

/// The cost of input and output.
fn cost(t: Locale, cost: &serde_json::Value) -> String {
    let text = |kind: &str| match cost.get(kind) {
        Some(serde_json::Value::String(text)) => money::exact(t, text).with_title(),
        Some(serde_json::Value::Number(number)) => money::exact(t, &number.to_string()).with_title(),
        _ => "–".to_owned(),
    };
    if cost.is_null() {
        t.say("price.none").to_owned()
    } else if cost.is_array() {
        t.say("channels.over_time").to_owned()
    } else {
        format!("{} / {}", text("input"), text("output"))
    }
}

fn account_rows(request: &PageRequest, state: &ChannelState, sources: &Sources) -> Vec<AccountRow> {
    let t = request.t();
    let here = path(&state.name);
    let row = |account: &AccountObject| {
        let health = state.accounts.iter().find(|health| health.account == account.name);
        let uptime = sources.uptimes.iter().find(|uptime| uptime.account.as_deref() == Some(account.name.as_str()));
        let of = format!("{}/{}", state.name, account.name);
        let spent =
            sources.by_account.iter().find(|row| row.name.as_deref() == Some(of.as_str())).map_or(0, |row| row.figures.cost_nano());
        let minute = |used: Option<u64>, limit: u64| (limit > 0).then(|| (used.unwrap_or(0), limit));
        AccountRow {
            name: account.name.clone(),
            credential_end: account.credential_end.as_ref().map(|end| format!("…{end}")),
            link: request.url(&format!("{here}/accounts/{}", path_of_name(&account.name))),
            mark: health.map_or_else(|| Mark::new("off", "minus", "–"), |health| strip::account_mark(t, health)),
            detail: health.and_then(|health| health.reason.as_deref()).map(|why| strip::reason(t, why)),
            until: health.and_then(|health| format::time(t, health.until.as_deref()?)),
            strip: uptime.map(|uptime| Strip::of_hour(t, uptime, sources.sent.get(&of).copied().unwrap_or(0))),
            running: match health.and_then(|health| Some((health.running?, health.concurrency))) {
                Some((running, 0)) => format::integer(running),
                Some((running, most)) => format!("{} / {}", format::integer(running), format::integer(most)),
                None => "–".to_owned(),
            },
            rates: RateUse::amounts(
                t,
                health.and_then(|health| minute(health.requests_minute, health.rpm)),
                health.and_then(|health| minute(health.tokens_minute, health.tpm)),
            ),
            multiplier: account.cost_multiplier.as_str().map_or_else(|| account.cost_multiplier.to_string(), str::to_owned),
            spent: money::rounded(t, &money::decimal(spent)),
            test: health.and_then(|health| LastTest::of_account(t, health, request.state.gateway.now())),
        }
    };
    sources.accounts.iter().map(row).collect()
}

/// Groups and keys whose requests can be explained.
fn callers(t: Locale, question: &Question, sources: &Sources) -> Vec<(String, String, bool)> {
    let groups = sources
        .groups
        .iter()
        .map(|group| (format!("group:{}", group.name), t.say_with("explain.of_group", &[("group", &group.name)])));
    let keys = sources.keys.iter().flatten().map(|key| (key.id.clone(), t.say_with("explain.of_key", &[("key", &key.name)])));
    groups
        .chain(keys)
        .map(|(value, label)| {
            let is_chosen = question.caller == value;
            (value, label, is_chosen)
        })
        .collect()
}
