//! A channel test, shown step by step: the page is sent in parts, each as its step ends, so that it needs no script. A script that sends
//! the form gets the steps alone.

use std::sync::Arc;

use askama::Template;
use axum::body::Body;
use bytes::Bytes;
use futures_util::{Stream, StreamExt as _};
use serde::Deserialize;
use serde_json::{Map, Value};

use super::{
    state::{call_of, path},
    test_usage::{TestUsage, passed},
};
use crate::{
    dispatch::ApiCall,
    pages::{
        failure_text,
        layout::Layout,
        locale::Locale,
        operations,
        reply::{PageFailure, PageReply},
        request::PageRequest,
        stages::{Stage, in_parts, mark},
    },
};

/// Longest line of a test.
const MAX_LINE: usize = 64 << 10;

#[derive(Debug, Template)]
#[template(path = "channel_test.html")]
struct TestPage {
    layout: Layout,
    t: Locale,
    name: String,
    link: String,
    model: String,
}

/// A line of the test: a step that passed, or the end of an account's test.
#[derive(Debug, Deserialize)]
struct TestEvent {
    account: String,
    model: String,
    step: Option<String>,
    took_ms: Option<f64>,
    #[serde(default)]
    detail: String,
    passed: Option<bool>,
    error: Option<String>,
    #[serde(flatten)]
    usage: TestUsage,
}

pub(super) async fn run(request: Arc<PageRequest>) -> Result<PageReply, PageFailure> {
    let t = request.t();
    let chosen = ["model", "account"].into_iter().filter_map(|field| Some((field.to_owned(), request.form.filled(field)?.into())));
    let body: Map<String, Value> = chosen.collect();
    let call = ApiCall { query: "format=jsonl".to_owned(), body, ..call_of(&request) };
    let lines = request.call(operations::TEST_CHANNEL, call).await?.into_body();
    let name = request.path_param("name").to_owned();
    let page = TestPage {
        layout: request
            .layout(t.say_with("test.title", &[("channel", &name)]))
            .below("/channels", t.say("nav.channels"))
            .below(path(&name), &name),
        t,
        link: request.url(&path(&name)),
        name,
        model: request.form.value("model").to_owned(),
    };
    let icons = page.layout.icons();
    let stages = stages(t, icons, lines);
    if request.wants_part() {
        return Ok(PageReply::streamed(Body::from_stream(stages)));
    }
    Ok(in_parts(&page.render()?, stages))
}

/// The lines of a test as items of a list.
fn stages(t: Locale, icons: String, lines: Body) -> impl Stream<Item = Result<Bytes, axum::Error>> {
    let mut rest: Vec<u8> = Vec::new();
    lines.into_data_stream().map(move |chunk| {
        rest.extend_from_slice(&chunk?);
        let mut html = String::new();
        while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = rest.drain(..=end).collect();
            if let Ok(line) = serde_json::from_slice::<TestEvent>(&line) {
                html.push_str(&stage(t, &icons, line).render().unwrap_or_default());
            }
        }
        // Valid lines are short; the rest of a longer one is dropped.
        rest.truncate(MAX_LINE);
        Ok(Bytes::from(html))
    })
}

fn stage(t: Locale, icons: &str, line: TestEvent) -> Stage {
    let of = format!("{} · {}", line.account, line.model);
    let Some(step) = line.step else {
        let text = line.error.map_or_else(|| passed(t, &line.usage), |error| failure_text::say(t, &error));
        let (tone, icon) = mark(line.passed == Some(true));
        return Stage { t, icons: icons.to_owned(), tone, icon, step: of, detail: text, took: String::new(), is_end: true };
    };
    let name = match step.as_str() {
        "first byte" => t.say("test.first_byte").to_owned(),
        "usage" => t.say("test.usage").to_owned(),
        _ => step,
    };
    let took = line.took_ms.map_or_else(String::new, |ms| format!("{ms:.0} ms"));
    Stage { t, icons: icons.to_owned(), tone: "ok", icon: "okc", step: name, detail: line.detail, took, is_end: false }
}

#[cfg(test)]
mod tests {
    use futures_util::stream;

    use super::*;

    #[tokio::test]
    async fn steps_are_shown_regardless_of_chunk_boundaries() {
        let text = "{\"step\":\"TCP\",\"took_ms\":1.6,\"detail\":\"<b>connected\",\"account\":\"a\",\"model\":\"m\"}\n\
                    {\"account\":\"a\",\"model\":\"m\",\"passed\":false,\"error\":\"status 401: <script>\"}\n";
        let whole = {
            let body = Body::from(text);
            collect(stages(Locale::EN, "/i.svg".to_owned(), body)).await
        };
        assert!(whole.contains("TCP") && whole.contains("2 ms") && whole.contains("status 401"), "{whole}");
        assert!(!whole.contains("<b>") && !whole.contains("<script>"), "{whole}");
        let chunks: Vec<Result<Bytes, std::io::Error>> =
            text.as_bytes().chunks(7).map(|chunk| Ok(Bytes::copy_from_slice(chunk))).collect();
        let body = Body::from_stream(stream::iter(chunks));
        assert_eq!(collect(stages(Locale::EN, "/i.svg".to_owned(), body)).await, whole);
    }

    #[tokio::test]
    async fn end_of_a_passed_test_shows_its_usage() {
        let line = "{\"account\":\"a\",\"model\":\"m\",\"passed\":true,\"error\":null,\"took_ms\":9.5,\"first_byte_ms\":4.5,\
                    \"tokens_input\":9,\"tokens_output\":3,\"tokens_cache_read\":0,\"tokens_cache_write\":0,\"cost\":\"0.000021\"}\n";
        let html = collect(stages(Locale::EN, "/i.svg".to_owned(), Body::from(line))).await;
        assert!(html.contains("Passed · 9 tokens in, 3 out · cost $0.000021"), "{html}");
    }

    async fn collect(stages: impl Stream<Item = Result<Bytes, axum::Error>>) -> String {
        let parts: Vec<Result<Bytes, axum::Error>> = stages.collect().await;
        parts.into_iter().map(|part| String::from_utf8(part.unwrap().to_vec()).unwrap()).collect()
    }
}
