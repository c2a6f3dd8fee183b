//! Tests of several models of a channel, a few at once: where they are chosen, and the table of results, which is sent in parts, each
//! model as its test ends. It needs no script, and leaving the page ends the tests.

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
use serde::Deserialize;
use serde_json::Map;
use tokio::time::sleep;

use super::{
    served::{MAX_LISTED, UpstreamModel},
    state::{ChannelObject, call_of, health, one, path},
};
use crate::{
    api_error::ApiError,
    dispatch::ApiCall,
    pages::{
        failure_text, format,
        layout::{Layout, Script},
        locale::Locale,
        operations, problem,
        reply::{PageFailure, PageReply},
        request::{ApiPage, PageRequest, get},
        stages::{AT_ONCE, Tally, in_parts, mark},
    },
};

/// Models of one run.
const MAX_MODELS: usize = 100;
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
    /// Models that the provider lists and the channel does not serve; `None`: it was not asked.
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

/// The rows of a model: one for each account.
#[derive(Debug, Template)]
#[template(path = "parts/tested_model.html")]
struct ModelRows {
    t: Locale,
    icons: String,
    model: String,
    can_use: bool,
    has_worked: bool,
    rows: Vec<AccountRow>,
}

#[derive(Debug)]
struct AccountRow {
    account: String,
    tone: &'static str,
    icon: &'static str,
    word: &'static str,
    first_byte: String,
    took: String,
    tokens: String,
    error: String,
}

/// The last row.
#[derive(Debug, Template)]
#[template(path = "parts/tested_end.html")]
struct EndRow {
    icons: String,
    tone: &'static str,
    icon: &'static str,
    text: String,
}

/// The test of one account, as the admin API answers it.
#[derive(Debug, Deserialize)]
struct TestedObject {
    account: String,
    passed: bool,
    error: Option<String>,
    took_ms: f64,
    first_byte_ms: Option<f64>,
    tokens_input: Option<u64>,
    tokens_output: Option<u64>,
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
        // The provider's words are the answer.
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
    // A model of the provider may have the public name of another one: that name is tested as what the channel serves.
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
            let rows = model_rows(t, icons, (model, can_use), tested);
            tally.count(rows.has_worked);
            ended.fetch_add(1, Ordering::Relaxed);
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

/// A model has worked if every account passed.
fn model_rows(
    t: Locale,
    icons: String,
    (model, can_use): (String, bool),
    tested: Result<Vec<TestedObject>, ApiError>,
) -> ModelRows {
    let row = |passed: bool, account: String, error: String| {
        let (tone, icon) = mark(passed);
        let word = if passed { t.say("test.passed") } else { t.say("test.failed") };
        let none = || "–".to_owned();
        AccountRow { account, tone, icon, word, first_byte: none(), took: none(), tokens: none(), error }
    };
    let of_account = |tested: TestedObject| {
        let tokens = tested.tokens_input.zip(tested.tokens_output);
        let error = tested.error.map_or_else(String::new, |error| failure_text::say(t, &error));
        let row = row(tested.passed, tested.account, error);
        AccountRow {
            first_byte: tested.first_byte_ms.map_or_else(|| row.first_byte.clone(), |ms| format::milliseconds(t, ms)),
            took: format::milliseconds(t, tested.took_ms),
            tokens: tokens.map_or_else(
                || row.tokens.clone(),
                |(input, output)| format!("{} → {}", format::integer(input), format::integer(output)),
            ),
            ..row
        }
    };
    let has_worked = tested.as_ref().is_ok_and(|tested| !tested.is_empty() && tested.iter().all(|account| account.passed));
    let rows = match tested {
        Ok(tested) => tested.into_iter().map(of_account).collect(),
        Err(error) => vec![row(false, String::new(), problem::say(t, &error))],
    };
    ModelRows { t, icons, model, can_use, has_worked, rows }
}

fn end_row(t: Locale, icons: String, tally: &Tally, untested: usize) -> EndRow {
    let end = tally.summary(t, icons);
    if untested == 0 {
        return EndRow { icons: end.icons, tone: end.tone, icon: end.icon, text: end.detail };
    }
    let left = t.say_with("test.models_left", &[("count", &untested.to_string())]);
    EndRow { icons: end.icons, tone: "warn", icon: "warn", text: format!("{}{}{left}", end.detail, t.say("list.separator")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tested(account: &str, error: Option<&str>) -> TestedObject {
        TestedObject {
            account: account.to_owned(),
            passed: error.is_none(),
            error: error.map(str::to_owned),
            took_ms: 812.4,
            first_byte_ms: error.is_none().then_some(480.0),
            tokens_input: error.is_none().then_some(9),
            tokens_output: error.is_none().then_some(3),
        }
    }

    fn rendered(can_use: bool, result: Result<Vec<TestedObject>, ApiError>) -> (bool, String) {
        let rows = model_rows(Locale::EN, "/i.svg".to_owned(), ("m<1>".to_owned(), can_use), result);
        (rows.has_worked, rows.render().unwrap())
    }

    #[test]
    fn model_that_worked_is_chosen_to_be_served() {
        let (has_worked, html) = rendered(true, Ok(vec![tested("a", None)]));
        assert!(has_worked && html.contains("name=\"use\" value=\"m&#60;1&#62;\" checked"), "{html}");
        assert!(html.contains("480 ms") && html.contains("812 ms") && html.contains("9 → 3"), "{html}");
        let (_, html) = rendered(false, Ok(vec![tested("a", None)]));
        assert!(!html.contains("<input"), "{html}");
    }

    #[test]
    fn model_works_if_every_account_passed() {
        let (has_worked, html) = rendered(true, Ok(vec![tested("a", None), tested("b", Some("status 404: no <b>such</b> model"))]));
        assert!(!has_worked && html.contains("name=\"use\"") && !html.contains(" checked"), "{html}");
        assert_eq!((html.matches("<tr").count(), html.matches("name=\"use\"").count()), (2, 1), "{html}");
        assert!(html.contains("status 404: no &#60;b&#62;such"), "{html}");
        assert!(!rendered(true, Ok(Vec::new())).0, "no account was tested");
        assert!(!rendered(true, Err(ApiError::internal())).0);
    }

    #[test]
    fn last_row_says_what_was_not_tested() {
        let tally = Tally::default();
        tally.count(true);
        tally.count(false);
        let text = |untested| end_row(Locale::EN, String::new(), &tally, untested).render().unwrap();
        assert!(text(0).contains("1 passed, 1 failed"), "{}", text(0));
        assert!(text(3).contains("3 not tested"), "{}", text(3));
    }
}
