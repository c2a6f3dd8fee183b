//! Tests of several models of a channel, a few at once: the page to choose them, and the table of results, which is sent in parts,
//! each model as its test ends. It needs no script, and leaving the page ends the tests.

use std::{
    collections::HashSet,
    convert::Infallible,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use askama::Template;
use bytes::Bytes;
use futures_util::{Stream, StreamExt as _, stream};
use http::StatusCode;
use serde_json::Map;
use tokio::time::sleep;

use super::{
    served::{MAX_LISTED, UpstreamModel},
    state::{ChannelObject, call_of, health, one, path},
    test_results::{ModelResult, TestedObject, end_row, model_rows},
};
use crate::{
    api_error::ApiError,
    dispatch::ApiCall,
    pages::{
        format,
        layout::{Layout, Script},
        locale::Locale,
        operations, problem,
        reply::{PageFailure, PageReply},
        request::{ApiPage, PageRequest, get},
        stages::{AT_ONCE, Tally, in_parts},
    },
};

/// Models of one run.
pub(super) const MAX_MODELS: usize = 100;
/// Longest time of a run. Tests that have not ended by then are given up.
const MAX_TIME: Duration = Duration::from_mins(15);

#[derive(Debug, Template)]
#[template(path = "channel_test_models.html")]
struct ChoosePage {
    layout: Layout,
    t: Locale,
    banner: Option<String>,
    here: String,
    served: Vec<String>,
    is_built_in: bool,
    /// Models that the provider lists and the channel does not serve; `None`: the list was not requested.
    listed: Option<Vec<String>>,
    is_cut: bool,
    accounts: Vec<String>,
    about: String,
}

#[derive(Debug, Template)]
#[template(path = "channel_tested_models.html")]
struct ResultsPage {
    layout: Layout,
    t: Locale,
    here: String,
    about: String,
    /// Whether the channel is not of a catalog file.
    can_use: bool,
}

/// What is tested.
struct Run {
    /// Each with whether the channel serves it.
    models: Vec<(String, bool)>,
    /// `None`: all accounts.
    account: Option<String>,
    can_use: bool,
}

pub(super) async fn show(request: Arc<PageRequest>) -> Result<PageReply, PageFailure> {
    choose(&request, None, None).await
}

/// Asks the provider for its models, so that those can be tested that the channel does not serve yet.
pub(super) async fn fetch(request: Arc<PageRequest>) -> Result<PageReply, PageFailure> {
    let call = ApiCall { path: call_of(&request).path, ..get(&[]) };
    match request.read::<ApiPage<UpstreamModel>>(operations::LIST_UPSTREAM_MODELS, call).await {
        Ok(found) => choose(&request, Some(found.items), None).await,
        // The provider's message is shown.
        Err(error) if error.code() == "upstream_failed" || error.code() == "built_in" => {
            let text = problem::say(request.t(), &error);
            choose(&request, None, Some(text)).await
        }
        Err(error) => Err(error.into()),
    }
}

async fn choose(
    request: &PageRequest,
    listed: Option<Vec<UpstreamModel>>,
    problem: Option<String>,
) -> Result<PageReply, PageFailure> {
    let t = request.t();
    let (channel, accounts) = tokio::try_join!(one(request), health(request))?;
    let served: Vec<String> = channel.serves.iter().map(|served| served.model.clone()).collect();
    // A model of the provider may have the public name of a served model. It is left out, because the test would use
    // the served one.
    let is_new = |model: &UpstreamModel| !model.served && !served.contains(&model.id);
    let mut listed: Option<Vec<String>> = listed.map(|models| models.into_iter().filter(is_new).map(|model| model.id).collect());
    let is_cut = listed.as_ref().is_some_and(|models| models.len() > MAX_LISTED);
    if let Some(models) = &mut listed {
        models.truncate(MAX_LISTED);
    }
    let status = if problem.is_some() { StatusCode::UNPROCESSABLE_ENTITY } else { StatusCode::OK };
    let (most, at_once) = (MAX_MODELS.to_string(), AT_ONCE.to_string());
    let template = ChoosePage {
        layout: layout(request, &channel.name).with(Script::Choose),
        t,
        banner: problem,
        here: request.url(&format!("{}/test", path(&channel.name))),
        is_built_in: channel.is_built_in(),
        served,
        listed,
        is_cut,
        accounts: accounts.into_iter().filter(|account| account.channel == channel.name).map(|account| account.account).collect(),
        about: t.say_with("test.models_limits", &[("count", &most), ("at_once", &at_once)]),
    };
    PageReply::page(status, &template)
}

pub(super) fn layout(request: &PageRequest, channel: &str) -> Layout {
    let t = request.t();
    request
        .layout(t.say_with("test.models_title", &[("channel", channel)]))
        .below("/channels", t.say("nav.channels"))
        .below(path(channel), channel)
}

/// Tests the chosen models, or all that the channel serves.
pub(super) async fn run(request: Arc<PageRequest>) -> Result<PageReply, PageFailure> {
    let (t, channel) = (request.t(), one(&request).await?);
    if channel.is_built_in() {
        return choose(&request, None, Some(t.say("test.built_in").to_owned())).await;
    }
    let mut models = chosen(&request, &channel);
    if models.is_empty() {
        return choose(&request, None, Some(t.say("test.choose_models").to_owned())).await;
    }
    let all = format::integer(u64::try_from(models.len()).unwrap_or(u64::MAX));
    let is_cut = models.len() > MAX_MODELS;
    models.truncate(MAX_MODELS);
    let (count, at_once) = (models.len().to_string(), AT_ONCE.to_string());
    let about = if is_cut {
        t.say_with("test.models_first", &[("count", &count), ("all", &all), ("at_once", &at_once)])
    } else {
        t.say_with("test.models_running", &[("count", &count), ("at_once", &at_once)])
    };
    let page = ResultsPage {
        layout: layout(&request, &channel.name),
        t,
        here: request.url(&format!("{}/test", path(&channel.name))),
        about,
        can_use: !channel.is_of_file(),
    };
    let icons = page.layout.icons();
    let run = Run { models, account: request.form.filled("account").map(str::to_owned), can_use: page.can_use };
    Ok(in_parts(&page.render()?, rows(Arc::clone(&request), run, icons)))
}

/// Shows the results of a run again, for readers who did not save the changes.
pub(super) async fn show_again(request: Arc<PageRequest>) -> Result<PageReply, PageFailure> {
    let (t, form, channel) = (request.t(), &request.form, one(&request).await?);
    let results = ModelResult::of_form(form);
    if results.is_empty() {
        return choose(&request, None, None).await;
    }
    let page = ResultsPage {
        layout: layout(&request, &channel.name),
        t,
        here: request.url(&format!("{}/test", path(&channel.name))),
        about: t.say_count("test.models_tested_one", "test.models_tested", u64::try_from(results.len()).unwrap_or(u64::MAX)),
        can_use: !channel.is_of_file(),
    };
    let (icons, used, tally) = (page.layout.icons(), form.all("use").collect::<HashSet<&str>>(), Tally::default());
    let mut parts = Vec::new();
    for result in &results {
        tally.count(result.has_worked());
        let is_used = used.contains(result.model.as_str());
        parts.push(Ok::<_, Infallible>(html(&model_rows((t, icons.clone()), result, page.can_use, is_used))));
    }
    parts.push(Ok(html(&end_row(t, icons, &tally, form.value("untested").parse().unwrap_or(0)))));
    Ok(in_parts(&page.render()?, stream::iter(parts)))
}

/// The models of the form, each once, with whether the channel serves it.
fn chosen(request: &PageRequest, channel: &ChannelObject) -> Vec<(String, bool)> {
    let served: HashSet<&str> = channel.serves.iter().map(|served| served.model.as_str()).collect();
    if request.form.value("which") == "all" {
        return channel.serves.iter().map(|served| (served.model.clone(), true)).collect();
    }
    let mut seen = HashSet::new();
    let models = request.form.all("model").filter(|model| seen.insert(*model));
    models.map(|model| (model.to_owned(), served.contains(model))).collect()
}

/// The tests of the models as rows, and how many worked.
fn rows(request: Arc<PageRequest>, run: Run, icons: String) -> impl Stream<Item = Result<Bytes, Infallible>> {
    let Run { models, account, can_use } = run;
    let (t, all) = (request.t(), models.len());
    let (tally, ended, account) = (Arc::new(Tally::default()), Arc::new(AtomicUsize::new(0)), Arc::new(account));
    let end = {
        let (tally, ended, icons) = (Arc::clone(&tally), Arc::clone(&ended), icons.clone());
        async move { Ok(html(&end_row(t, icons, &tally, all.saturating_sub(ended.load(Ordering::Relaxed))))) }
    };
    let tests = models.into_iter().map(move |(model, is_served)| {
        let (request, tally, ended, icons) = (Arc::clone(&request), Arc::clone(&tally), Arc::clone(&ended), icons.clone());
        let account = Arc::clone(&account);
        async move {
            let tested = test(&request, account.as_deref(), &model, is_served).await;
            let result = ModelResult::of(t, model, tested);
            tally.count(result.has_worked());
            ended.fetch_add(1, Ordering::Relaxed);
            let rows = model_rows((t, icons), &result, can_use, result.has_worked());
            Ok(html(&rows))
        }
    });
    stream::iter(tests).buffer_unordered(AT_ONCE).take_until(sleep(MAX_TIME)).chain(stream::once(end))
}

fn html(template: &impl Template) -> Bytes {
    template.render().unwrap_or_default().into()
}

async fn test(request: &PageRequest, account: Option<&str>, model: &str, is_served: bool) -> Result<Vec<TestedObject>, ApiError> {
    let field = if is_served { "model" } else { "upstream_model" };
    let fields = [Some((field, model)), account.map(|account| ("account", account))];
    let body: Map<_, _> = fields.into_iter().flatten().map(|(name, value)| (name.to_owned(), value.into())).collect();
    let call = ApiCall { body, ..call_of(request) };
    Ok(request.read::<ApiPage<TestedObject>>(operations::TEST_CHANNEL, call).await?.items)
}
