//! A job: its state and progress while it runs, and its result.

use std::sync::Arc;

use askama::Template;
use http::StatusCode;
use serde::Deserialize;
use serde_json::Value;

use super::{job_result::JobResult, job_text};
use crate::{
    dispatch::ApiCall,
    pages::{
        audit_action, file_faults,
        format::{self, TimeText},
        layout::{Layout, Script},
        locale::Locale,
        mark::Mark,
        operations,
        reply::{PageFailure, PageReply},
        request::{PageRequest, path_of},
        sentences::Said,
    },
};

/// Faults of a file that are listed.
const MAX_FAULTS: usize = 500;

/// A job of the admin API.
#[derive(Debug, Deserialize)]
pub(super) struct JobObject {
    id: String,
    kind: String,
    state: String,
    by: String,
    progress: Option<ProgressObject>,
    created_at: String,
    started_at: Option<String>,
    ended_at: Option<String>,
    cancelled_by: Option<String>,
    exit_code: Option<u64>,
    error: Option<ErrorObject>,
    result: Value,
}

#[derive(Debug, Deserialize)]
struct ProgressObject {
    step: String,
    done: u64,
    total: Option<u64>,
}

#[derive(Debug, Deserialize)]
struct ErrorObject {
    message: String,
    faults: Vec<FaultObject>,
}

#[derive(Debug, Deserialize)]
struct FaultObject {
    line: u64,
    column: u64,
    message: String,
}

#[derive(Debug)]
pub(super) struct JobRow {
    pub(super) id: String,
    pub(super) kind: &'static str,
    pub(super) mark: Mark,
    pub(super) by: String,
    pub(super) created: Option<TimeText>,
    pub(super) took: String,
    pub(super) is_open: bool,
    pub(super) step: String,
    pub(super) percent: u64,
}

fn kind(t: Locale, kind: &str) -> &'static str {
    match kind {
        "doctor" => t.say("system.doctor"),
        "verify" => t.say("system.verify"),
        "replay" => t.say("system.replay"),
        "backup" => t.say("system.backup"),
        "backup_check" => t.say("backups.check_job"),
        "export" => t.say("export.title"),
        _ => t.say("system.import"),
    }
}

fn mark(t: Locale, job: &JobObject) -> Mark {
    match job.state.as_str() {
        "queued" => Mark::new("off", "clock", t.say("system.queued")),
        "running" => Mark::new("info", "redo", t.say("system.running")),
        // The command exits with 1 if it found something.
        "done" if job.exit_code.is_some_and(|code| code > 0) => Mark::new("warn", "warn", t.say("system.found_something")),
        "done" => Mark::new("ok", "okc", t.say("system.done")),
        "failed" => Mark::new("bad", "badc", t.say("system.failed")),
        _ => Mark::new("off", "stop", t.say("system.cancelled")),
    }
}

impl JobRow {
    pub(super) fn of(t: Locale, job: &JobObject) -> Self {
        let at = |text: Option<&String>| text.and_then(|text| text.parse::<jiff::Timestamp>().ok());
        let took = at(job.started_at.as_ref()).zip(at(job.ended_at.as_ref()));
        let took = took.map(|(from, to)| u64::try_from(to.as_microsecond() - from.as_microsecond()).unwrap_or(0));
        let progress = job.progress.as_ref();
        let step = progress.map(|progress| {
            let (name, done) = (job_text::step(t, &progress.step), format::integer(progress.done));
            match progress.total {
                Some(total) => format!("{name} {done} / {}", format::integer(total)),
                None => format!("{name} {done}"),
            }
        });
        let percent =
            progress.and_then(|progress| Some(progress.done.saturating_mul(100) / progress.total.filter(|total| *total > 0)?));
        Self {
            id: job.id.clone(),
            kind: kind(t, &job.kind),
            mark: mark(t, job),
            by: audit_action::author(&job.by).to_owned(),
            created: format::time(t, &job.created_at),
            took: took.map_or_else(|| "–".to_owned(), |us| format::micros(t, us)),
            is_open: matches!(job.state.as_str(), "queued" | "running"),
            step: step.unwrap_or_default(),
            percent: percent.unwrap_or(0).min(100),
        }
    }
}

#[derive(Debug, Template)]
#[template(path = "system_job.html")]
struct JobPage {
    layout: Layout,
    t: Locale,
    row: JobRow,
    cancelled_by: Option<String>,
    error: Option<Said>,
    faults: Vec<String>,
    /// Address of the job's events while it runs, and its steps by their names, as JSON.
    events: String,
    steps: String,
    found: Option<JobResult>,
}

/// A fault of the file of a job.
fn fault(t: Locale, fault: &FaultObject) -> String {
    let (line, column) = (fault.line.to_string(), fault.column.to_string());
    let text = file_faults::translated(t, &fault.message).unwrap_or_else(|| fault.message.clone());
    t.say_with("system.fault", &[("line", &line), ("column", &column), ("text", &text)])
}

pub(super) async fn show(request: Arc<PageRequest>) -> Result<PageReply, PageFailure> {
    let t = request.t();
    let call = ApiCall { path: path_of(&[("job", request.path_param("job"))]), ..ApiCall::default() };
    let found = request.read::<JobObject>(operations::GET_JOB, call).await;
    let job = found.map_err(|error| if error.status == StatusCode::NOT_FOUND { error.because("job_gone") } else { error })?;
    let row = JobRow::of(t, &job);
    let layout = request.layout(row.kind).below("/system", t.say("nav.system"));
    let template = JobPage {
        layout: if row.is_open { layout.with(Script::Operators) } else { layout },
        t,
        cancelled_by: job.cancelled_by.as_deref().map(|by| audit_action::author(by).to_owned()),
        faults: job.error.iter().flat_map(|error| &error.faults).take(MAX_FAULTS).map(|it| fault(t, it)).collect(),
        error: job.error.as_ref().map(|error| job_text::error(t, &error.message)),
        events: request.url(&format!("/admin/v1/jobs/{}/events", job.id)),
        steps: job_text::steps(t),
        found: Some(&job.result).filter(|result| !result.is_null()).map(|result| JobResult::of(t, &job.kind, result)),
        row,
    };
    PageReply::ok(&template)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn job(more: &Value) -> JobObject {
        let mut object = json!({
            "id": "job_1", "kind": "verify", "state": "running", "by": "ann", "progress": null, "created_at": "2026-11-01T00:00:00Z",
            "started_at": null, "ended_at": null, "cancelled_by": null, "exit_code": null, "error": null, "result": null,
        });
        for (name, value) in more.as_object().unwrap() {
            object[name] = value.clone();
        }
        serde_json::from_value(object).unwrap()
    }

    #[test]
    fn faults_of_a_file_are_translated() {
        let of = |t, message: &str| fault(t, &FaultObject { line: 3, column: 1, message: message.to_owned() });
        let said = of(Locale::ZH_CN, "group 'g' refers to unknown channel 'an'; did you mean 'a'?");
        assert!(said.starts_with("第 3 行") && !said.contains("unknown"), "{said}");
        assert_eq!(of(Locale::EN, "something new"), "Line 3, column 1: something new");
    }

    #[test]
    fn row_shows_how_far_a_job_is() {
        let row = JobRow::of(Locale::EN, &job(&json!({"progress": {"step": "records", "done": 500, "total": 2_000}})));
        assert_eq!((row.step.as_str(), row.percent, row.is_open), ("Records 500 / 2,000", 25, true));
        let ended =
            json!({"state": "done", "exit_code": 1, "started_at": "2026-11-01T00:00:00Z", "ended_at": "2026-11-01T00:00:02Z"});
        let row = JobRow::of(Locale::EN, &job(&ended));
        assert_eq!((row.mark.tone, row.took.as_str(), row.is_open), ("warn", "2.00 s", false));
    }
}
