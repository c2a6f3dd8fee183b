//! The system: its version, and long work as jobs with live progress: doctor, verification, replay, import, exports and backups.

mod backups;
mod export;
mod fault_text;
mod job;
mod job_result;
mod job_text;
mod storage;

use std::sync::Arc;

use askama::Template;
use serde_json::{Map, Value};
use tollgate_store::AdminScope;

use self::{
    backups::BackupPart,
    export::ExportPart,
    job::{JobObject, JobRow},
    storage::StorageFact,
};
use super::{
    control::{self, ControlSection, FaultPlace, FormView},
    form::{FormData, FormState},
    format,
    layout::{Layout, Script},
    locale::Locale,
    operations,
    pricing::import::{list_body, list_controls},
    reply::{PageFailure, PageReply},
    request::{ApiPage, PageRequest, get, path_of},
    route::{PageRoute, SeenBy, page},
};
use crate::{api_error::ApiError, dispatch::ApiCall};

const OPERATOR: SeenBy = SeenBy::Role(AdminScope::Operator);
const ADMIN: SeenBy = SeenBy::Role(AdminScope::Admin);
/// Largest form with a file: a catalog or list of 4 MiB, of which every third character is written as three.
const MAX_BYTES: usize = 8 << 20;

pub(super) static ROUTES: &[PageRoute] = &[
    PageRoute::get("/system", OPERATOR, page!(show)),
    PageRoute::post("/system/jobs", OPERATOR, page!(start)),
    PageRoute::get("/system/replay", ADMIN, page!(replay)),
    PageRoute::post("/system/replay", ADMIN, page!(start_replay)).takes_bytes(MAX_BYTES),
    PageRoute::get("/system/import", OPERATOR, page!(import)),
    PageRoute::post("/system/import", OPERATOR, page!(start_import)).takes_bytes(MAX_BYTES),
    PageRoute::post("/system/export", OPERATOR, page!(start_export)),
    PageRoute::get("/system/jobs/{job}", OPERATOR, page!(job::show)),
    PageRoute::post("/system/jobs/{job}/cancel", OPERATOR, page!(cancel)),
    PageRoute::post("/system/backups/{name}/check", ADMIN, page!(backups::check)),
    PageRoute::post("/system/backups/{name}/remove", ADMIN, page!(backups::remove)),
];

/// Jobs that are listed.
const JOBS: &str = "25";
/// Characters of a file that is pasted.
const MAX_FILE: usize = 4_000_000;

#[derive(Debug, Template)]
#[template(path = "system.html")]
struct SystemPage {
    layout: Layout,
    t: Locale,
    banner: Option<String>,
    version: &'static str,
    /// The disk space that the gateway uses.
    storage: Vec<StorageFact>,
    is_admin: bool,
    /// Kind, name, description, icon.
    kinds: Vec<(&'static str, &'static str, &'static str, &'static str)>,
    jobs: Vec<JobRow>,
    export: ExportPart,
    /// For admins.
    backups: Option<BackupPart>,
}

#[derive(Debug, Template)]
#[template(path = "system_form.html")]
struct JobFormPage {
    layout: Layout,
    t: Locale,
    banner: Option<String>,
    form: FormView,
}

async fn show(request: Arc<PageRequest>) -> Result<PageReply, PageFailure> {
    system_page(&request, &FormState::default()).await
}

async fn system_page(request: &PageRequest, state: &FormState) -> Result<PageReply, PageFailure> {
    let (t, is_admin) = (request.t(), request.is_admin());
    let jobs = request.read::<ApiPage<JobObject>>(operations::LIST_JOBS, get(&[("limit", JOBS)])).await?;
    let backups = if is_admin { Some(BackupPart::load(request, state).await?) } else { None };
    let export = ExportPart::load(request).await?;
    let mut kinds = vec![
        ("doctor", t.say("system.doctor"), t.say("system.doctor_about"), "tool"),
        ("verify", t.say("system.verify"), t.say("system.verify_about"), "check"),
    ];
    if is_admin {
        kinds.push(("backup", t.say("system.backup"), t.say("system.backup_about"), "dl"));
    }
    let template = SystemPage {
        layout: request.layout(t.say("nav.system")),
        t,
        banner: state.banner(),
        version: env!("CARGO_PKG_VERSION"),
        storage: storage::load(request).await?,
        is_admin,
        kinds,
        jobs: jobs.items.iter().map(|it| JobRow::of(t, it)).collect(),
        export,
        backups,
    };
    PageReply::page(state.status(), &template)
}

/// Starts a job and redirects to its page.
async fn send_job(request: &PageRequest, body: Map<String, Value>) -> Result<PageReply, ApiError> {
    let made: Value = request.read(operations::START_JOB, ApiCall { body, ..ApiCall::default() }).await?;
    let path = format!("/system/jobs/{}", made["id"].as_str().unwrap_or_default());
    Ok(PageReply::redirect(&request.url(&path)))
}

async fn start(request: Arc<PageRequest>) -> Result<PageReply, PageFailure> {
    let kind = request.form.value("kind");
    let body = Map::from_iter([("kind".to_owned(), kind.into())]);
    match send_job(&request, body).await {
        Ok(reply) => Ok(reply),
        Err(error) => {
            let state = control::refused(request.t(), &request.form, error, &[])?;
            system_page(&request, &state).await
        }
    }
}

async fn start_export(request: Arc<PageRequest>) -> Result<PageReply, PageFailure> {
    match send_job(&request, export::job(&request)).await {
        Ok(reply) => Ok(reply),
        Err(error) => {
            let state = FormState::refused_at(request.t(), &request.form, &error, None)?;
            system_page(&request, &state).await
        }
    }
}

async fn cancel(request: Arc<PageRequest>) -> Result<PageReply, PageFailure> {
    let id = request.path_param("job");
    let call = ApiCall { path: path_of(&[("job", id)]), ..ApiCall::default() };
    request.call(operations::CANCEL_JOB, call).await?;
    Ok(PageReply::redirect(&request.url(&format!("/system/jobs/{id}"))))
}

// === replay and import ===

const REPLAY_PLACES: &[FaultPlace] = &[
    ("file", "file", ""),
    ("key", "key", "unknown_key"),
    ("member", "member", "unknown_member"),
    ("group", "group", "unknown_group"),
    ("since", "since", "day"),
    ("until", "until", "day"),
];
const IMPORT_PLACES: &[FaultPlace] =
    &[("file", "file", ""), ("source", "origin", ""), ("built_in", "file", ""), ("models", "models", "model_pattern")];

fn form_page(request: &PageRequest, title: &'static str, state: &FormState, form: FormView) -> Result<PageReply, PageFailure> {
    let t = request.t();
    let layout = request.layout(title).below("/system", t.say("nav.system")).with(Script::Operators);
    let form = form.cancel(request.url("/system"));
    PageReply::page(state.status(), &JobFormPage { layout, t, banner: state.banner(), form })
}

async fn replay(request: Arc<PageRequest>) -> Result<PageReply, PageFailure> {
    replay_page(&request, &FormState::default())
}

fn replay_page(request: &PageRequest, state: &FormState) -> Result<PageReply, PageFailure> {
    let t = request.t();
    let outcomes = [
        ("", t.say("facet.any")),
        ("completed", t.say("outcome.completed")),
        ("caller_left", t.say("outcome.caller_left")),
        ("upstream_broke", t.say("outcome.upstream_broke")),
        ("refused", t.say("outcome.refused")),
        ("gateway_stopped", t.say("outcome.gateway_stopped")),
    ];
    let file =
        state.area("file", t.say("system.catalog"), 12).hint(t.say("system.catalog_hint")).max(MAX_FILE).required().holds_secrets();
    let which = vec![
        state.typed("since", t.say("audit.since"), "date"),
        state.typed("until", t.say("audit.until"), "date"),
        state.text("model", t.say("models.name")).max(256),
        state.text("group", t.say("groups.group")),
        state.text("member", t.say("keys.member")),
        state.text("key", t.say("home.key")),
        state.choice("outcome", t.say("log.outcome"), outcomes),
    ];
    let sections = vec![
        ControlSection::new("", vec![file]).about(t.say("system.replay_about")),
        ControlSection::new(t.say("system.which"), which).about(t.say("system.which_about")),
    ];
    let form = FormView::new(request.url("/system/replay"), sections, t.say("system.start"));
    form_page(request, t.say("system.replay"), state, form)
}

async fn start_replay(request: Arc<PageRequest>) -> Result<PageReply, PageFailure> {
    let form = &request.form;
    let mut body = Map::from_iter([("kind".to_owned(), Value::from("replay")), ("file".to_owned(), form.value("file").into())]);
    for name in ["key", "member", "group", "model", "outcome"] {
        body.extend(form.filled(name).map(|value| (name.to_owned(), value.into())));
    }
    // Days as in the audit log: the last day is included.
    body.extend(form.filled("since").map(|day| ("since".to_owned(), format::begin_of_day(day).into())));
    body.extend(form.filled("until").map(|day| ("until".to_owned(), format::end_of_day(day).into())));
    match send_job(&request, body).await {
        Ok(reply) => Ok(reply),
        Err(error) => replay_page(&request, &control::refused(request.t(), form, error, REPLAY_PLACES)?),
    }
}

async fn import(request: Arc<PageRequest>) -> Result<PageReply, PageFailure> {
    let state = FormState::of(FormData::of(&[("source", "built_in"), ("to", "both"), ("dry_run", "true")]));
    import_page(&request, &state)
}

fn import_page(request: &PageRequest, state: &FormState) -> Result<PageReply, PageFailure> {
    let t = request.t();
    let mut controls = list_controls(t, state, 8);
    controls.push(state.check("dry_run", t.say("system.dry_run")).wide());
    let sections = vec![ControlSection::new("", controls).about(t.say("system.import_about"))];
    let form = FormView::new(request.url("/system/import"), sections, t.say("system.start"));
    form_page(request, t.say("system.import"), state, form)
}

async fn start_import(request: Arc<PageRequest>) -> Result<PageReply, PageFailure> {
    let form = &request.form;
    let started = match list_body(form) {
        Ok(mut body) => {
            body.insert("kind".to_owned(), "import".into());
            body.insert("dry_run".to_owned(), (form.value("dry_run") == "true").into());
            send_job(&request, body).await
        }
        Err(error) => Err(error),
    };
    match started {
        Ok(reply) => Ok(reply),
        Err(error) => import_page(&request, &control::refused(request.t(), form, error, IMPORT_PLACES)?),
    }
}
