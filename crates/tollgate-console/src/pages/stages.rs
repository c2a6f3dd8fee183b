//! Steps of tests as items of a list. The page is sent in parts, each as its step ends, so that it needs no script.

use std::sync::atomic::{AtomicU64, Ordering};

use askama::Template;
use axum::{BoxError, body::Body};
use bytes::Bytes;
use futures_util::{Stream, StreamExt as _, stream};

use super::{format, layout::Layout, locale::Locale, reply::PageReply};

/// Marker for the position of the items in the page.
const PLACE: &str = "<li hidden></li>";
/// Tests of one page that run at the same time.
pub(crate) const AT_ONCE: usize = 4;

/// A step that has ended.
#[derive(Debug, Template)]
#[template(path = "parts/stage.html")]
pub(crate) struct Stage {
    pub(crate) t: Locale,
    pub(crate) icons: String,
    pub(crate) tone: &'static str,
    pub(crate) icon: &'static str,
    pub(crate) step: String,
    pub(crate) detail: String,
    pub(crate) took: String,
    /// The end of a test, rather than one of its steps.
    pub(crate) is_end: bool,
}

/// The page of several tests.
#[derive(Debug, Template)]
#[template(path = "stages.html")]
pub(crate) struct StagesPage {
    pub(crate) layout: Layout,
    pub(crate) t: Locale,
    pub(crate) about: String,
    /// Below the list; empty: nothing.
    pub(crate) note: &'static str,
    /// Address and label of the page to go back to.
    pub(crate) back: (String, &'static str),
}

/// How many tests have passed and failed.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    passed: AtomicU64,
    failed: AtomicU64,
}

impl Tally {
    pub(crate) fn count(&self, has_passed: bool) {
        let counter = if has_passed { &self.passed } else { &self.failed };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    /// The last item of a list.
    pub(crate) fn summary(&self, t: Locale, icons: String) -> Stage {
        let (passed, failed) = (self.passed.load(Ordering::Relaxed), self.failed.load(Ordering::Relaxed));
        let (tone, icon) = mark(failed == 0);
        let (passed, failed) = (format::integer(passed), format::integer(failed));
        let detail = t.say_with("test.tally", &[("passed", &passed), ("failed", &failed)]);
        Stage { t, icons, tone, icon, step: t.say("test.all_ended").to_owned(), detail, took: String::new(), is_end: true }
    }
}

/// Tone and icon of a result.
pub(crate) const fn mark(has_passed: bool) -> (&'static str, &'static str) {
    if has_passed { ("ok", "okc") } else { ("bad", "badc") }
}

/// Items as HTML.
pub(crate) fn html(stages: &[Stage]) -> Bytes {
    stages.iter().map(|stage| stage.render().unwrap_or_default()).collect::<String>().into()
}

/// A page with an empty list, which gets its items as they come.
pub(crate) fn in_parts<S, E>(page: &str, items: S) -> PageReply
where
    S: Stream<Item = Result<Bytes, E>> + Send + 'static,
    E: Into<BoxError> + Send + 'static,
{
    let (head, tail) = page.split_once(PLACE).unwrap_or((page, ""));
    let (head, tail) = (Bytes::from(head.to_owned()), Bytes::from(tail.to_owned()));
    let parts = stream::once(async { Ok(head) }).chain(items).chain(stream::once(async { Ok(tail) }));
    PageReply::streamed(Body::from_stream(parts))
}
