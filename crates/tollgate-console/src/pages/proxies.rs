//! Proxies: those that channels use, with their tests, and setting them for several channels by lines of text.

use std::{convert::Infallible, sync::Arc};

use askama::Template;
use bytes::Bytes;
use futures_util::{Stream, StreamExt as _, stream};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use tollgate_store::AdminScope;

use super::{
    channels::state::{all, path},
    control::{self, ControlSection, FaultPlace, FormView},
    failure_text,
    form::FormState,
    layout::Layout,
    locale::Locale,
    operations,
    preferences::Toast,
    problem,
    reply::{PageFailure, PageReply},
    request::{ApiPage, PageRequest, path_of},
    route::{PageRoute, SeenBy, page},
    stages::{AT_ONCE, Stage, StagesPage, Tally, html, in_parts, mark},
};
use crate::{api_error::ApiError, dispatch::ApiCall};

const OPERATOR: SeenBy = SeenBy::Role(AdminScope::Operator);
const ADMIN: SeenBy = SeenBy::Role(AdminScope::Admin);
/// The field beside which faults of a line are shown, and their texts.
const PLACES: &[FaultPlace] = &[("proxy", "lines", "proxy"), ("channels", "lines", "proxy_lines")];
const ROWS: usize = 8;

pub(super) static ROUTES: &[PageRoute] = &[
    PageRoute::get("/proxies", OPERATOR, page!(show)),
    PageRoute::post("/proxies", ADMIN, page!(save)),
    PageRoute::post("/proxies/test", OPERATOR, page!(test)),
];

#[derive(Debug, Template)]
#[template(path = "proxies.html")]
struct ProxiesPage {
    layout: Layout,
    t: Locale,
    banner: Option<String>,
    /// A line or channel and its fault.
    faults: Vec<(String, String)>,
    rows: Vec<ProxyRow>,
    /// Number of channels without a proxy.
    direct: String,
    form: Option<FormView>,
}

#[derive(Debug)]
struct ProxyRow {
    proxy: String,
    method: String,
    /// Name and address of each.
    channels: Vec<(String, String)>,
}

#[derive(Debug, Deserialize)]
struct ProxyObject {
    proxy: String,
    method: String,
    channels: Vec<String>,
}

/// The test of the proxy of one channel.
#[derive(Debug, Deserialize)]
struct TestedObject {
    passed: bool,
    steps: Vec<StepObject>,
    error: Option<String>,
}

#[derive(Debug, Deserialize)]
struct StepObject {
    step: String,
    took_ms: f64,
    detail: String,
}

async fn proxies(request: &PageRequest) -> Result<Vec<ProxyObject>, ApiError> {
    Ok(request.read::<ApiPage<ProxyObject>>(operations::LIST_PROXIES, ApiCall::default()).await?.items)
}

async fn show(request: Arc<PageRequest>) -> Result<PageReply, PageFailure> {
    list(&request, &FormState::default(), Vec::new()).await
}

async fn list(request: &PageRequest, state: &FormState, faults: Vec<(String, String)>) -> Result<PageReply, PageFailure> {
    let t = request.t();
    let (proxies, channels) = tokio::try_join!(proxies(request), all(request))?;
    let used: usize = proxies.iter().map(|proxy| proxy.channels.len()).sum();
    let direct = u64::try_from(channels.len().saturating_sub(used)).unwrap_or(u64::MAX);
    let form = request.is_admin().then(|| {
        let lines = state
            .area("lines", t.say("proxies.lines"), ROWS)
            .hint(t.say("proxies.lines_hint"))
            .max(50_000)
            .required()
            .holds_secrets();
        let section = ControlSection::new(t.say("proxies.set"), vec![lines]).about(t.say("proxies.set_about"));
        FormView::new(request.url("/proxies"), vec![section], t.say("form.save"))
    });
    let row = |proxy: ProxyObject| ProxyRow {
        proxy: proxy.proxy,
        method: proxy.method,
        channels: proxy.channels.into_iter().map(|name| (name.clone(), request.url(&path(&name)))).collect(),
    };
    let template = ProxiesPage {
        layout: request.layout(t.say("nav.proxies")),
        t,
        banner: state.banner(),
        faults,
        rows: proxies.into_iter().map(row).collect(),
        direct: t.say_count("proxies.direct_one", "proxies.direct", direct),
        form,
    };
    PageReply::page(state.status(), &template)
}

/// Sets the proxies that lines name.
async fn save(request: Arc<PageRequest>) -> Result<PageReply, PageFailure> {
    let (t, form) = (request.t(), &request.form);
    let lines = lines(t, form.value("lines"));
    let channels = lines.as_ref().cloned().unwrap_or_default();
    let set = match lines {
        Ok(lines) => {
            let body = Map::from_iter([("channels".to_owned(), lines.into())]);
            request.call(operations::SET_PROXIES, ApiCall { body, ..ApiCall::default() }).await
        }
        Err(error) => Err(error),
    };
    let Err(error) = set else { return Ok(PageReply::redirect(&request.url("/proxies")).toast(Toast::Saved)) };
    let state = if error.rows().is_empty() {
        control::refused(t, form, error.clone(), PLACES)?
    } else {
        FormState::refused(t, form, &error, &[])?
    };
    let faults = problem::rows(t, &error, PLACES).into_iter().map(|(row, text)| (named(&channels, row), text));
    list(&request, &state, faults.collect()).await
}

/// The name of an unknown channel, which the admin API reports by its index.
fn named(channels: &[Value], row: String) -> String {
    let place = row.strip_prefix("channels[").and_then(|rest| rest.strip_suffix(']')?.parse::<usize>().ok());
    let name = place.and_then(|place| channels.get(place)?["channel"].as_str());
    name.map_or(row, str::to_owned)
}

/// The channel and the proxy of each line; `-` means no proxy. Names may hold white space, addresses do not.
fn lines(t: Locale, text: &str) -> Result<Vec<Value>, ApiError> {
    let (mut channels, mut faults) = (Vec::new(), Vec::new());
    for (i, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        match line.trim().rsplit_once([' ', '\t', ',']) {
            Some((channel, "-")) => channels.push(json!({"channel": name(channel), "proxy": null})),
            Some((channel, proxy)) if proxy.contains("://") => channels.push(json!({"channel": name(channel), "proxy": proxy})),
            Some(_) | None => {
                let line = t.say_with("proxies.line", &[("line", &(i + 1).to_string())]);
                faults.push((line, ApiError::value("lines", "expected CHANNEL PROXY").because("proxy_lines")));
            }
        }
    }
    ApiError::check_rows(faults, usize::MAX)?;
    if channels.is_empty() {
        return Err(ApiError::value("lines", "expected CHANNEL PROXY on each line").because("proxy_lines").about("lines"));
    }
    Ok(channels)
}

/// A name without trailing white space and comma.
fn name(text: &str) -> &str {
    text.trim_end_matches([' ', '\t', ','])
}

/// Tests all proxies, or the one whose address was sent, through each of their channels.
async fn test(request: Arc<PageRequest>) -> Result<PageReply, PageFailure> {
    let t = request.t();
    let wanted = request.form.filled("proxy");
    let chosen = proxies(&request).await?.into_iter().filter(|proxy| wanted.is_none_or(|wanted| proxy.proxy == wanted));
    let tests: Vec<(String, String)> =
        chosen.flat_map(|proxy| proxy.channels.into_iter().map(move |channel| (proxy.proxy.clone(), channel))).collect();
    let (count, at_once) = (tests.len().to_string(), AT_ONCE.to_string());
    let page = StagesPage {
        layout: request.layout(t.say("proxies.test_title")).below("/proxies", t.say("nav.proxies")).returns_to("/proxies"),
        t,
        about: t.say_with("proxies.test_about", &[("count", &count), ("at_once", &at_once)]),
        note: "",
        back: (request.url("/proxies"), t.say("proxies.back")),
    };
    let icons = page.layout.icons();
    Ok(in_parts(&page.render()?, stages(Arc::clone(&request), tests, icons)))
}

/// The tests as items of a list, and how many passed.
fn stages(request: Arc<PageRequest>, tests: Vec<(String, String)>, icons: String) -> impl Stream<Item = Result<Bytes, Infallible>> {
    let (t, tally) = (request.t(), Arc::new(Tally::default()));
    let end = {
        let (tally, icons) = (Arc::clone(&tally), icons.clone());
        async move { Ok(html(&[tally.summary(t, icons)])) }
    };
    let tests = tests.into_iter().map(move |(proxy, channel)| {
        let (request, tally, icons) = (Arc::clone(&request), Arc::clone(&tally), icons.clone());
        async move {
            let call = ApiCall { path: path_of(&[("name", &channel)]), ..ApiCall::default() };
            let tested = request.read::<TestedObject>(operations::TEST_PROXY, call).await;
            Ok(html(&items(t, &icons, (&proxy, &channel), tested, &tally)))
        }
    });
    stream::iter(tests).buffer_unordered(AT_ONCE).chain(stream::once(end))
}

/// The steps of a test and its end.
fn items(
    t: Locale,
    icons: &str,
    (proxy, channel): (&str, &str),
    tested: Result<TestedObject, ApiError>,
    tally: &Tally,
) -> Vec<Stage> {
    let item = |has_passed: bool, step: String, detail: String| {
        let (tone, icon) = mark(has_passed);
        Stage { t, icons: icons.to_owned(), tone, icon, step, detail, took: String::new(), is_end: false }
    };
    let (passed, steps, error) = match tested {
        Ok(tested) => (tested.passed, tested.steps, tested.error.map(|error| failure_text::say(t, &error))),
        Err(error) => (false, Vec::new(), Some(problem::say(t, &error))),
    };
    tally.count(passed);
    let mut items: Vec<Stage> = steps
        .into_iter()
        .map(|step| Stage { took: format!("{:.0} ms", step.took_ms), ..item(true, step.step, step.detail) })
        .collect();
    let result = error.unwrap_or_else(|| t.say("test.passed").to_owned());
    items.push(Stage { is_end: true, ..item(passed, channel.to_owned(), format!("{proxy} · {result}")) });
    items
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_have_a_channel_and_a_proxy() {
        let text = "main http://me:p@proxy:3128\r\n\n two words\tsocks5://[::1]:1080 \nthird, -\nlast,http://p:1";
        let expected = json!([
            {"channel": "main", "proxy": "http://me:p@proxy:3128"}, {"channel": "two words", "proxy": "socks5://[::1]:1080"},
            {"channel": "third", "proxy": null}, {"channel": "last", "proxy": "http://p:1"},
        ]);
        assert_eq!(Value::from(lines(Locale::EN, text).unwrap()), expected);
    }

    #[test]
    fn lines_without_a_proxy_are_named() {
        let error = lines(Locale::EN, "main http://p:1\nmain\nmain proxy:3128").unwrap_err();
        let said = problem::rows(Locale::EN, &error, PLACES);
        assert_eq!(said.iter().map(|(line, _)| line.as_str()).collect::<Vec<_>>(), ["Line 2", "Line 3"]);
        assert_eq!(lines(Locale::EN, " \n").unwrap_err().param(), Some("lines"));
    }

    #[test]
    fn missing_channels_are_reported_as_typed() {
        let channels = lines(Locale::EN, "main -\nother -").unwrap();
        assert_eq!(named(&channels, "channels[1]".to_owned()), "other");
        for row in ["main", "channels[2]", "channels[x]"] {
            assert_eq!(named(&channels, row.to_owned()), row);
        }
    }

    #[test]
    fn test_steps_are_listed_before_the_result() {
        let tally = Tally::default();
        let steps = vec![StepObject { step: "TCP".to_owned(), took_ms: 2.4, detail: "connected".to_owned() }];
        let tested = TestedObject { passed: false, steps, error: Some("the proxy <b>".to_owned()) };
        let shown = html(&items(Locale::EN, "/i.svg", ("http://p:1", "main"), Ok(tested), &tally));
        let shown = std::str::from_utf8(&shown).unwrap();
        assert!(shown.contains("TCP") && shown.contains("2 ms") && shown.contains("http://p:1 · the proxy"), "{shown}");
        assert!(!shown.contains("<b>") && shown.matches("<li").count() == 2, "{shown}");
    }
}
