//! Tests of several channels, a few at once, each shown when it has ended.

use std::{convert::Infallible, sync::Arc};

use askama::Template as _;
use bytes::Bytes;
use futures_util::{Stream, StreamExt as _, stream};
use serde::Deserialize;

use super::{Selection, list};
use crate::{
    api_error::ApiError,
    dispatch::ApiCall,
    pages::{
        channels::test_usage::{TestUsage, passed},
        locale::Locale,
        operations, problem,
        reply::{PageFailure, PageReply},
        request::{ApiPage, PageRequest, path_of},
        stages::{AT_ONCE, Stage, StagesPage, Tally, html, in_parts, mark},
    },
};

/// The test of one account.
#[derive(Debug, Deserialize)]
struct TestedObject {
    account: String,
    model: String,
    passed: bool,
    took_ms: f64,
    error: Option<String>,
    #[serde(flatten)]
    usage: TestUsage,
}

pub(super) fn run(request: &Arc<PageRequest>, selection: Selection) -> Result<PageReply, PageFailure> {
    let t = request.t();
    let at_once = AT_ONCE.to_string();
    let about = match selection.channels.len() {
        1 => t.say_count("selection.test_one", "selection.test_one", 1),
        count => t.say_with("selection.test_about", &[("count", &count.to_string()), ("at_once", &at_once)]),
    };
    let page = StagesPage {
        layout: request.layout(t.say("selection.test_title")).below("/channels", t.say("nav.channels")).returns_to(list(request)),
        t,
        about,
        note: t.say("test.about"),
        back: (request.url(list(request)), t.say("selection.back")),
    };
    let names: Vec<String> = selection.channels.into_iter().map(|channel| channel.name).collect();
    let icons = page.layout.icons();
    Ok(in_parts(&page.render()?, stages(Arc::clone(request), names, icons)))
}

/// The tests of the channels as items of a list, and how many accounts passed.
fn stages(request: Arc<PageRequest>, names: Vec<String>, icons: String) -> impl Stream<Item = Result<Bytes, Infallible>> {
    let (t, tally) = (request.t(), Arc::new(Tally::default()));
    let end = {
        let (tally, icons) = (Arc::clone(&tally), icons.clone());
        async move { Ok(html(&[tally.summary(t, icons)])) }
    };
    let tests = names.into_iter().map(move |name| {
        let (request, tally, icons) = (Arc::clone(&request), Arc::clone(&tally), icons.clone());
        async move {
            let tested = test(&request, &name).await;
            Ok(html(&items(t, &icons, &name, tested, &tally)))
        }
    });
    stream::iter(tests).buffer_unordered(AT_ONCE).chain(stream::once(end))
}

async fn test(request: &PageRequest, name: &str) -> Result<Vec<TestedObject>, ApiError> {
    let call = ApiCall { path: path_of(&[("name", name)]), ..ApiCall::default() };
    Ok(request.read::<ApiPage<TestedObject>>(operations::TEST_CHANNEL, call).await?.items)
}

/// One item for each account, or a single one with the reason why there was no test.
fn items(t: Locale, icons: &str, channel: &str, tested: Result<Vec<TestedObject>, ApiError>, tally: &Tally) -> Vec<Stage> {
    let item = |(tone, icon): (&'static str, &'static str), detail: String, took: String| Stage {
        t,
        icons: icons.to_owned(),
        tone,
        icon,
        step: channel.to_owned(),
        detail,
        took,
        is_end: false,
    };
    let tested = match tested {
        Ok(tested) => tested,
        Err(error) if error.code() == "built_in" => {
            return vec![item(("", "info"), t.say("test.built_in").to_owned(), String::new())];
        }
        Err(error) => {
            tally.count(false);
            let text =
                if error.code() == "not_found" { t.say("selection.not_testable").to_owned() } else { problem::say(t, &error) };
            return vec![item(mark(false), text, String::new())];
        }
    };
    let of_account = |account: TestedObject| {
        tally.count(account.passed);
        let took = account.took_ms;
        let result = account.error.unwrap_or_else(|| passed(t, &account.usage));
        let detail = format!("{} · {} · {result}", account.account, account.model);
        item(mark(account.passed), detail, format!("{took:.0} ms"))
    };
    tested.into_iter().map(of_account).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_tested_account_is_a_list_item() {
        let account = |name: &str, error: Option<&str>| TestedObject {
            account: name.to_owned(),
            model: "m".to_owned(),
            passed: error.is_none(),
            took_ms: 3.5,
            error: error.map(str::to_owned),
            usage: TestUsage::default(),
        };
        let tally = Tally::default();
        let tested = Ok(vec![account("one", None), account("two", Some("status 401: <b>"))]);
        let shown = html(&items(Locale::EN, "/i.svg", "main", tested, &tally));
        let shown = std::str::from_utf8(&shown).unwrap();
        assert!(shown.contains("one · m · Passed") && shown.contains("4 ms"), "{shown}");
        assert!(shown.contains("status 401") && !shown.contains("<b>"), "{shown}");
        items(Locale::EN, "/i.svg", "gone", Err(ApiError::internal()), &tally);
        let end = tally.summary(Locale::EN, String::new()).render().unwrap();
        assert!(end.contains("1 passed, 2 failed"), "{end}");
    }
}
