//! A channel in the form of the catalog file: read, edited, compared and saved.

use std::sync::Arc;

use askama::Template;
use serde::Deserialize;
use serde_json::{Map, Value};

use super::{
    Section,
    line_diff::{DiffLine, LineKind, line_diff},
    state::{call_of, one, path},
    tabs,
};
use crate::{
    api_error::ApiError,
    dispatch::ApiCall,
    pages::{
        control::{self, ControlSection, FormView, Tab},
        form::{FormData, FormState},
        layout::Layout,
        locale::Locale,
        operations,
        preferences::Toast,
        reply::{PageFailure, PageReply},
        request::{PageRequest, get, read_answer},
    },
};

/// Largest form; the text of a channel with some thousand models.
pub(super) const MAX_BYTES: usize = 2 << 20;
/// Longest text, in characters.
const MAX_CHARS: usize = 1_000_000;
const ROWS: usize = 28;

#[derive(Debug, Template)]
#[template(path = "channel_file.html")]
struct FilePage {
    layout: Layout,
    t: Locale,
    tabs: Vec<Tab>,
    banner: Option<String>,
    /// `None` until the text was compared.
    comparison: Option<Comparison>,
    is_of_file: bool,
    /// The text of a channel that cannot be changed here.
    text: String,
    form: Option<FormView>,
}

/// A channel as a file of the admin API.
#[derive(Debug, Deserialize)]
struct FileObject {
    file: String,
    version: String,
    /// The rows that saving would change; empty when the channel is only read.
    #[serde(default)]
    lines: Vec<ChangedRow>,
}

/// A row that saving would change. The texts hold no secrets, so the change of a secret is not among the changed lines.
#[derive(Debug, Deserialize)]
struct ChangedRow {
    kind: String,
    name: String,
}

/// The changes that saving the text would make.
#[derive(Debug)]
struct Comparison {
    lines: Vec<DiffLine>,
    /// The rows by kind and name; empty if nothing changes.
    rows: String,
}

impl Comparison {
    fn of(there: &FileObject, after: &FileObject) -> Self {
        let rows: Vec<String> = after.lines.iter().map(|row| format!("{} {}", row.kind, row.name)).collect();
        Self { lines: line_diff(&there.file, &after.file), rows: rows.join(", ") }
    }
}

async fn read(request: &PageRequest) -> Result<FileObject, ApiError> {
    request.read(operations::GET_CHANNEL_FILE, call_of(request)).await
}

pub(super) async fn show(request: Arc<PageRequest>) -> Result<PageReply, PageFailure> {
    let there = read(&request).await?;
    let state = FormState::of(FormData::of(&[("file", &there.file), ("version", &there.version)]));
    page(&request, &state, None).await
}

/// The page of a form; with `comparison` after it was compared.
async fn page(request: &PageRequest, state: &FormState, comparison: Option<Comparison>) -> Result<PageReply, PageFailure> {
    let t = request.t();
    let channel = one(request).await?;
    let here = request.url(&format!("{}/file", path(&channel.name)));
    let may_change = request.is_admin() && !channel.is_of_file();
    let form = may_change.then(|| {
        let text = state
            .area("file", t.say("channel_file.text"), ROWS)
            .hint(t.say("channel_file.hint"))
            .max(MAX_CHARS)
            .required()
            .holds_secrets();
        let sections = vec![ControlSection::new("", vec![text])];
        // After a comparison with changes, the text can be saved, or compared again.
        let form = if comparison.as_ref().is_some_and(|comparison| !comparison.rows.is_empty()) {
            FormView::new(format!("{here}/save"), sections, t.say("form.save")).second(here.clone(), t.say("channel_file.compare"))
        } else {
            FormView::new(here.clone(), sections, t.say("channel_file.compare"))
        };
        form.hidden("version", state.value("version")).cancel(request.url(&path(&channel.name)))
    });
    let template = FilePage {
        layout: request.layout(channel.name.clone()).below("/channels", t.say("nav.channels")),
        t,
        tabs: tabs(request, &channel.name, Section::File),
        banner: state.banner(),
        comparison,
        is_of_file: channel.is_of_file(),
        text: state.value("file").to_owned(),
        form,
    };
    PageReply::page(state.status(), &template)
}

/// Sends the text to the admin API. `query` may ask for a dry run.
async fn send(request: &PageRequest, query: &[(&str, &str)]) -> Result<FileObject, ApiError> {
    let value = |field: &str| Value::from(request.form.value(field).replace("\r\n", "\n"));
    let body = Map::from_iter([("file".to_owned(), value("file")), ("version".to_owned(), value("version"))]);
    let call = ApiCall { body, path: call_of(request).path, ..get(query) };
    read_answer(request.call(operations::SET_CHANNEL_FILE, call).await?)
}

async fn refuse(request: &PageRequest, error: ApiError) -> Result<PageReply, PageFailure> {
    let state = control::refused(request.t(), &request.form, error, &[("file", "file", "")])?;
    page(request, &state, None).await
}

pub(super) async fn compare(request: Arc<PageRequest>) -> Result<PageReply, PageFailure> {
    let there = read(&request).await?;
    match send(&request, &[("dry_run", "true")]).await {
        Ok(after) => page(&request, &FormState::of(request.form.clone()), Some(Comparison::of(&there, &after))).await,
        Err(error) => refuse(&request, error).await,
    }
}

pub(super) async fn save(request: Arc<PageRequest>) -> Result<PageReply, PageFailure> {
    match send(&request, &[]).await {
        Ok(_) => Ok(PageReply::redirect(&request.url(&path(request.path_param("name")))).toast(Toast::Saved)),
        Err(error) => refuse(&request, error).await,
    }
}
