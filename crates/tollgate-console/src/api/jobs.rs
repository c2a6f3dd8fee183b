//! `/admin/v1/jobs`: long work of the running gateway. The result of a job is the object that its command prints with `--json`.

use std::{sync::Arc, time::Duration};

use axum::body::Body;
use bytes::Bytes;
use futures_util::stream;
use serde_json::{Value, json};
use tokio::{
    sync::{OwnedSemaphorePermit, watch},
    time::{sleep, timeout},
};
use tollgate_core::JobId;
use tollgate_store::{
    Actor, AdminScope, BackupOrigin, Change, JobAction, UsageFilter,
    fields::{Access, FieldShape, Kind, Object, WriteMode},
};

use super::{
    catalog, prices,
    request_context::{InputFields, RequestContext},
    route::{AFTER, LIMIT, Method, Needs, Resource, ResponseSchema, Route, handler},
    rows,
    schema::{COUNT, MODEL_NAME, NAME, TEXT, both, needed, read},
    usage::outcomes,
};
use crate::{
    api_error::ApiError,
    jobs::{
        ExportRequest, JobKind, JobRequest, Jobs, RecordSelection, ReplayRequest,
        job::{Job, JobState, JobStatus},
    },
    price_import::{ImportRequest, ImportSelection, ListInput},
    response::ApiResponse,
    time::parse_day,
};

/// Pause between two events of a stream.
const EVENT_INTERVAL: Duration = Duration::from_millis(250);
/// A comment is sent to a stream without events this often.
const KEEP_ALIVE: Duration = Duration::from_secs(15);
/// How long a request to cancel waits for the end of the job.
const CANCEL_TIMEOUT: Duration = Duration::from_secs(5);
/// Characters of the catalog file of a replay.
const MAX_CATALOG_FILE: usize = 4_000_000;

/// A UTC day, such as `2026-11-30`.
const DAY: Kind = Kind::Text { min: 10, max: 10 };

/// One outcome, or several separated by commas.
const OUTCOME: Kind = Kind::Text { min: 1, max: 100 };

/// Parameters of a replay, of an import, of an export, and of the check of a backup.
const REPLAY_PARAMETERS: &[&str] = &["file", "key", "member", "group", "model", "outcome", "since", "until"];
const IMPORT_PARAMETERS: &[&str] = &["file", "built_in", "format", "source", "to", "models", "overwrite", "dry_run", "confirm"];
const EXPORT_PARAMETERS: &[&str] = &["from", "to"];
const BACKUP_CHECK_PARAMETERS: &[&str] = &["name"];

static PROGRESS: Object = Object::of(
    "JobProgress",
    &[
        read("step", TEXT, "The step in progress."),
        read("done", COUNT, "Entries, bytes or checks of the step that are done."),
        read("total", COUNT, "Total number of them; null: unknown.").or_null(),
    ],
);
static FAULT: Object = Object::of(
    "JobFault",
    &[read("line", COUNT, "Line of the file."), read("column", COUNT, "Column."), read("message", TEXT, "What is wrong there.")],
);
static ERROR: Object = Object::of(
    "JobError",
    &[
        read("message", TEXT, "Why the job has no result."),
        read("faults", Kind::List { of: &Kind::Object(&FAULT), max: 1_000 }, "Faults of the file that was sent."),
    ],
);

/// A parameter of some kinds of jobs.
const fn parameter(name: &'static str, kind: Kind, doc: &'static str) -> FieldShape {
    both(name, kind, doc).with(Access::WriteOnly)
}

static JOB: Object = Object::of(
    "Job",
    &[
        read("id", Kind::Id("job_"), "Job id."),
        needed("kind", Kind::Word(JobKind::WORDS), "`replay`, `backup` and `backup_check`: admins only."),
        parameter(
            "file",
            prices::LIST_FILE,
            "Replay: the catalog file (TOML) with its secrets, of up to 4,000,000 characters. Import: the price list; or else `built_in`.",
        ),
        parameter("key", NAME, "Replay: only requests with this key, by id, or by name if it is unambiguous."),
        parameter("member", NAME, "Replay: only requests of this member, by name or id."),
        parameter("group", NAME, "Replay: only requests served by this group, by name or id."),
        parameter("model", MODEL_NAME, "Replay: only requests for this model."),
        parameter("outcome", OUTCOME, "Replay: only requests with this outcome; of several, separated by commas, one must match."),
        parameter("since", Kind::Time, "Replay: only requests that arrived at or after this time."),
        parameter("until", Kind::Time, "Replay: only requests that arrived before this time."),
        parameter("built_in", Kind::Flag, "Import: true: the list that is built into the program."),
        parameter("format", prices::LIST_FORMAT, "Import: format of the list; default csv."),
        parameter("source", prices::SOURCE, "Import: where the prices come from; default: the source that the list states."),
        parameter(
            "to",
            prices::TARGET,
            "Import: prices that are imported: sale prices of models (the default), costs of channels.",
        ),
        parameter("models", prices::MODELS, "Import: only models with these public names; `*` and `?` allowed."),
        parameter("overwrite", prices::OVERWRITE, "Import: models whose prices are replaced although they were set by hand."),
        parameter("from", DAY, "Export: first day to export, also if it was exported; without days those that are due."),
        parameter("to", DAY, "Export: last day to export; default `from`."),
        parameter("name", NAME, "Check of a backup: its name, as in `/admin/v1/backups`."),
        parameter("dry_run", Kind::Flag, "Import: true: only show the difference."),
        parameter("confirm", Kind::Flag, "Import: write even if price limits leave a model without any account."),
        read("state", Kind::Word(JobState::WORDS), "State."),
        read("by", TEXT, "Admin key that started it; `schedule`: the gateway itself."),
        read("progress", Kind::Object(&PROGRESS), "Latest progress.").or_null(),
        read("created_at", Kind::Time, "When it was requested."),
        read("started_at", Kind::Time, "When it began to run.").or_null(),
        read("ended_at", Kind::Time, "When it ended.").or_null(),
        read("cancelled_by", TEXT, "Admin key that cancelled it.").or_null(),
        read("exit_code", Kind::Integer { min: 0, max: 4 }, "Exit code of the command: 1 if it found something.").or_null(),
        read("error", Kind::Object(&ERROR), "Why there is no result.").or_null(),
        read("result", Kind::Any, "What the command prints with `--json`; in lists and events always null.").or_null(),
    ],
);

const RESOURCE: Resource = Resource { tag: "jobs", needs: Needs::Scope(AdminScope::Operator) };

pub(super) static ROUTES: &[Route] = &[
    RESOURCE
        .route(
            Method::Get,
            "/admin/v1/jobs",
            "list_jobs",
            "Open jobs and the latest ended ones, newest first; for operators without the kinds that only admins read.",
            handler!(list),
        )
        .query(&[LIMIT, AFTER])
        .returns(ResponseSchema::Page(&JOB)),
    RESOURCE
        .route(
            Method::Post,
            "/admin/v1/jobs",
            "start_job",
            "Starts a job. One of a kind runs at a time; `replay`, `backup` and `backup_check` need the scope `admin`.",
            handler!(start),
        )
        .takes(&JOB, WriteMode::Create)
        .takes_bytes(prices::IMPORT_BODY_BYTES)
        .once()
        .returns(ResponseSchema::Created(&JOB)),
    RESOURCE
        .route(Method::Get, "/admin/v1/jobs/{job}", "get_job", "One job with its result.", handler!(one))
        .returns(ResponseSchema::Object(&JOB)),
    RESOURCE
        .route(
            Method::Post,
            "/admin/v1/jobs/{job}/cancel",
            "cancel_job",
            "Cancels a job; it ends within seconds. A job that has ended is not changed.",
            handler!(cancel),
        )
        .returns(ResponseSchema::Object(&JOB)),
    RESOURCE
        .route(
            Method::Get,
            "/admin/v1/jobs/{job}/events",
            "follow_job",
            "State and progress of a job as server-sent events, from its present state to its end.",
            handler!(events),
        )
        .returns(ResponseSchema::Events),
];

/// The jobs of the gateway; none in a command, which does the work itself.
pub(super) fn jobs(context: &RequestContext) -> Result<&Jobs, ApiError> {
    let message = "Jobs need a running gateway; a command has none.";
    context.state.jobs.as_ref().ok_or_else(|| ApiError::conflict("no_jobs", message))
}

async fn list(context: RequestContext) -> Result<ApiResponse, ApiError> {
    let after = context.query.text("after");
    let position = after.map(|text| JobId::parse(text).ok_or_else(|| ApiError::value("after", "expected the 'next' of a page")));
    let may_know = |kind: JobKind| require_scope(&context, kind).is_ok();
    let found = jobs(&context)?.page(position.transpose()?, context.limit() as usize + 1, may_know);
    Ok(rows::page(found, context.limit(), |job| job.id.to_string(), |job| job.show(&job.status().borrow())))
}

/// The job that a request names, if its sender may see it.
fn find(context: &RequestContext) -> Result<Arc<Job>, ApiError> {
    let id = context.path_param("job");
    let found = JobId::parse(id).and_then(|id| jobs(context).ok()?.find(id));
    let job = found.ok_or_else(|| ApiError::not_found("job"))?;
    require_scope(context, job.kind)?;
    Ok(job)
}

fn require_scope(context: &RequestContext, kind: JobKind) -> Result<(), ApiError> {
    match kind.needs() {
        AdminScope::Admin => context.require_admin(&named(kind)),
        AdminScope::Operator | AdminScope::Member => Ok(()),
    }
}

async fn one(context: RequestContext) -> Result<ApiResponse, ApiError> {
    Ok(ApiResponse::ok(find(&context)?.show_whole()))
}

async fn start(context: RequestContext) -> Result<ApiResponse, ApiError> {
    let kind = context.body.text("kind").unwrap_or_default();
    let kind = JobKind::ALL.into_iter().find(|known| known.as_str() == kind).ok_or_else(ApiError::internal)?;
    require_scope(&context, kind)?;
    let request = request(kind, &context)?;
    let jobs = jobs(&context)?;
    match &request {
        JobRequest::Backup(_) => super::backups::require_room(jobs).await?,
        JobRequest::BackupCheck(name) => super::backups::require(jobs, name).await?,
        JobRequest::Doctor | JobRequest::Verify | JobRequest::Replay(_) | JobRequest::Import(_) | JobRequest::Export(_) => {}
    }
    let job = match jobs.admit(request.kind(), context.actor().name, context.idempotency()?)? {
        crate::jobs::Admission::New(job) => job,
        crate::jobs::Admission::Repeated(job) => {
            return Ok(ApiResponse::ok(job.show_whole()).header("idempotent-replayed", "true"));
        }
    };
    if let Err(error) = record(&context, &job, JobAction::Start).await {
        jobs.withdraw(job.id);
        return Err(error);
    }
    jobs.start(&job, request);
    Ok(ApiResponse::created(job.show_whole()))
}

async fn record(context: &RequestContext, job: &Job, action: JobAction) -> Result<(), ApiError> {
    context.apply(&[Change::RecordJob { id: job.id.to_string(), name: job.kind.as_str(), action }]).await.map(drop)
}

/// The kind with its article, to begin a sentence.
fn named(kind: JobKind) -> String {
    format!("{} {}", if matches!(kind, JobKind::Import | JobKind::Export) { "An" } else { "A" }, kind.as_str())
}

/// The request of a job of this kind.
fn request(kind: JobKind, context: &RequestContext) -> Result<JobRequest, ApiError> {
    let body = &context.body;
    refuse_parameters_of_others(kind, body)?;
    match kind {
        JobKind::Doctor => Ok(JobRequest::Doctor),
        JobKind::Verify => Ok(JobRequest::Verify),
        JobKind::Backup => Ok(JobRequest::Backup(BackupOrigin::Request)),
        JobKind::BackupCheck => backup_check(body),
        JobKind::Replay => replay(body),
        JobKind::Import => import(body, context.actor()),
        JobKind::Export => export(body),
    }
}

fn refuse_parameters_of_others(kind: JobKind, body: &InputFields) -> Result<(), ApiError> {
    let own: &[&str] = match kind {
        JobKind::Doctor | JobKind::Verify | JobKind::Backup => &[],
        JobKind::BackupCheck => BACKUP_CHECK_PARAMETERS,
        JobKind::Replay => REPLAY_PARAMETERS,
        JobKind::Import => IMPORT_PARAMETERS,
        JobKind::Export => EXPORT_PARAMETERS,
    };
    let Some(name) = body.0.keys().find(|name| *name != "kind" && !own.contains(&name.as_str())) else { return Ok(()) };
    let takes = if own.is_empty() { "none".to_owned() } else { own.join(", ") };
    let message = format!("Unknown parameter: '{name}'. {} takes {takes}.", named(kind));
    Err(ApiError::invalid("unknown_parameter", name, message))
}

fn export(body: &InputFields) -> Result<JobRequest, ApiError> {
    let day = |name: &str| -> Result<Option<i64>, ApiError> {
        let Some(text) = body.text(name) else { return Ok(None) };
        parse_day(text).map(Some).ok_or_else(|| ApiError::value(name, "expected a day such as 2026-11-30"))
    };
    Ok(JobRequest::Export(match (day("from")?, day("to")?) {
        (None, None) => ExportRequest::Due,
        (Some(first), Some(last)) if last < first => return Err(ApiError::value("to", "it is before 'from'")),
        (Some(first), last) => ExportRequest::Days { first, last: last.unwrap_or(first) },
        (None, Some(last)) => ExportRequest::Days { first: last, last },
    }))
}

fn import(body: &InputFields, actor: Actor) -> Result<JobRequest, ApiError> {
    Ok(JobRequest::Import(Box::new(ImportRequest {
        list: ListInput::of(body)?,
        selection: ImportSelection::of(body),
        dry_run: body.flag("dry_run"),
        confirmed: body.flag("confirm"),
        actor,
    })))
}

fn missing(name: &str) -> ApiError {
    ApiError::invalid("missing_required_parameter", name, format!("Missing required parameter: '{name}'."))
}

fn backup_check(body: &InputFields) -> Result<JobRequest, ApiError> {
    body.text("name").map(|name| JobRequest::BackupCheck(name.to_owned())).ok_or_else(|| missing("name"))
}

fn replay(body: &InputFields) -> Result<JobRequest, ApiError> {
    let file = body.text("file").ok_or_else(|| missing("file"))?;
    if file.chars().nth(MAX_CATALOG_FILE).is_some() {
        return Err(ApiError::value("file", format_args!("a catalog file has at most {MAX_CATALOG_FILE} characters")));
    }
    let text = |name: &str| body.text(name).map(str::to_owned);
    let filter = UsageFilter {
        model: text("model"),
        outcomes: body.text("outcome").map(outcomes).transpose()?.unwrap_or_default(),
        since: body.time("since"),
        until: body.time("until"),
        ..UsageFilter::default()
    };
    let records = RecordSelection { key: text("key"), member: text("member"), group: text("group"), filter };
    let file = catalog::parse_sent(file).map_err(|unreadable| catalog::sent_file_error(unreadable.faults))?;
    Ok(JobRequest::Replay(Box::new(ReplayRequest { file, records })))
}

async fn cancel(context: RequestContext) -> Result<ApiResponse, ApiError> {
    let job = find(&context)?;
    if job.request_cancel(&context.actor().name) {
        // The job is cancelled before the audit entry is written: a database that takes no writes must not keep a job
        // running.
        let recorded = record(&context, &job, JobAction::Cancel).await;
        let _ = timeout(CANCEL_TIMEOUT, job.status().wait_for(|status| status.state.has_ended())).await;
        recorded?;
    }
    Ok(ApiResponse::ok(job.show_whole()))
}

async fn events(context: RequestContext) -> Result<ApiResponse, ApiError> {
    let job = find(&context)?;
    let permit = jobs(&context)?.event_stream_permit()?;
    let stream = EventStream { status: job.status(), job, is_first: true, has_ended: false, _permit: permit };
    let events = stream::unfold(stream, |mut stream| async move {
        let event = stream.next().await?;
        Some((Ok::<_, std::convert::Infallible>(Bytes::from(event)), stream))
    });
    Ok(ApiResponse::streamed("text/event-stream", Body::from_stream(events)))
}

/// The events of a job: its state, and again whenever it has changed.
struct EventStream {
    job: Arc<Job>,
    status: watch::Receiver<JobStatus>,
    is_first: bool,
    has_ended: bool,
    _permit: OwnedSemaphorePermit,
}

impl EventStream {
    async fn next(&mut self) -> Option<String> {
        if self.has_ended {
            return None;
        }
        if !self.is_first {
            // Changes within the interval are one event; the end is not delayed.
            let _ = timeout(EVENT_INTERVAL, self.job.status().wait_for(|status| status.state.has_ended())).await;
            tokio::select! {
                changed = self.status.changed() => changed.ok()?,
                () = sleep(KEEP_ALIVE) => return Some(": no change\n\n".to_owned()),
            }
        }
        self.is_first = false;
        let status = self.status.borrow_and_update().clone();
        self.has_ended = status.state.has_ended();
        Some(event(&self.job.show(&status)))
    }
}

fn event(job: &Value) -> String {
    format!("event: job\ndata: {}\n\n", json!(job))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn body(value: &Value) -> InputFields {
        InputFields::of(value)
    }

    fn refused(kind: JobKind, value: &Value) -> String {
        refuse_parameters_of_others(kind, &body(value)).unwrap_err().message().to_owned()
    }

    #[test]
    fn parameters_of_another_job_kind_are_refused_by_name() {
        for kind in [JobKind::Verify, JobKind::Doctor, JobKind::Backup] {
            assert!(refuse_parameters_of_others(kind, &body(&json!({"kind": kind.as_str()}))).is_ok());
        }
        assert!(refused(JobKind::Verify, &json!({"kind": "verify", "file": "x"})).contains("'file'. A verify takes none."));
        assert!(refused(JobKind::Backup, &json!({"kind": "backup", "key": "x"})).contains("'key'"));
        assert!(refused(JobKind::Backup, &json!({"kind": "backup", "name": "x"})).contains("'name'"));
        assert!(refused(JobKind::BackupCheck, &json!({"kind": "backup_check", "file": "x"})).contains("takes name."));
        assert!(backup_check(&body(&json!({"kind": "backup_check"}))).unwrap_err().message().contains("'name'"));
        assert!(refused(JobKind::Replay, &json!({"kind": "replay", "file": "x", "overwrite": []})).contains("'overwrite'"));
        assert!(
            refused(JobKind::Import, &json!({"kind": "import", "file": "x", "outcome": "refused"}))
                .contains("'outcome'. An import")
        );
    }

    #[test]
    fn every_job_parameter_belongs_to_a_kind() {
        let parameters = JOB.fields.iter().filter(|field| field.access == Access::WriteOnly).map(|field| field.name);
        for name in parameters {
            let of_a_kind = [REPLAY_PARAMETERS, IMPORT_PARAMETERS, EXPORT_PARAMETERS, BACKUP_CHECK_PARAMETERS];
            assert!(of_a_kind.iter().any(|parameters| parameters.contains(&name)), "{name}");
        }
    }

    #[test]
    fn export_days_are_parsed_and_invalid_ranges_are_refused() {
        let read = |value: &Value| match export(&body(value)) {
            Ok(JobRequest::Export(request)) => Ok(request),
            Ok(_) => panic!("an export"),
            Err(error) => Err(error.message().to_owned()),
        };
        assert_eq!(read(&json!({"kind": "export"})), Ok(ExportRequest::Due));
        let days = |from: &str, to: &str| read(&json!({"kind": "export", "from": from, "to": to}));
        assert_eq!(days("1970-01-03", "1970-02-01"), Ok(ExportRequest::Days { first: 2, last: 31 }));
        assert_eq!(read(&json!({"kind": "export", "from": "1970-01-03"})), Ok(ExportRequest::Days { first: 2, last: 2 }));
        assert!(days("1970-01-03", "1970-01-02").unwrap_err().contains("before 'from'"));
        for text in ["1970-02-30", "1970-01-03T00:00:00Z", "yesterday", "9999-99-99", "-0001-01-01"] {
            assert!(days(text, "1970-02-01").unwrap_err().contains("a day such as"), "{text}");
        }
    }

    #[test]
    fn replay_file_and_filter_are_parsed_and_invalid_ones_are_refused() {
        let sent = json!({
            "kind": "replay", "file": "[[group]]\nname = \"g\"\n", "key": "k", "outcome": "refused", "since": "2026-11-01T00:00:00Z",
        });
        let Ok(JobRequest::Replay(found)) = replay(&body(&sent)) else { panic!("a replay") };
        assert_eq!(found.records.key.as_deref(), Some("k"));
        assert_eq!(found.records.filter.outcomes, [tollgate_core::Outcome::Refused]);
        assert_eq!(found.records.filter.since.unwrap().to_string(), "2026-11-01T00:00:00Z");
        let refused = |value: Value| replay(&body(&value)).unwrap_err().message().to_owned();
        assert!(refused(json!({"kind": "replay", "key": "x"})).contains("'file'"));
        assert!(refused(json!({"kind": "replay", "file": "x", "outcome": "refused,well"})).contains("'outcome'"));
        let referring = "[[key]]\nname = \"k\"\nsecret = \"file:/etc/passwd\"\n";
        assert!(refused(json!({"kind": "replay", "file": referring})).contains("the secret itself"));
        let long = "#".repeat(MAX_CATALOG_FILE + 1);
        assert!(refused(json!({"kind": "replay", "file": long})).contains("at most 4000000 characters"));
    }
}
