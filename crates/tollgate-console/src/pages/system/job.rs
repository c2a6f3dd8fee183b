//! A job: its state and progress while it runs, and its result.

use std::sync::Arc;

use askama::Template;
use http::StatusCode;
use serde::Deserialize;
use serde_json::Value;

use crate::{
    dispatch::ApiCall,
    pages::{
        audit_action,
        format::{self, TimeText},
        layout::{Layout, Script},
        locale::Locale,
        mark::Mark,
        operations,
        reply::{PageFailure, PageReply},
        request::{PageRequest, path_of},
    },
};

/// Lines of a result that are listed.
const MAX_LINES: usize = 500;
/// Characters of a result that is shown as JSON.
const MAX_JSON: usize = 200_000;

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
        // The command ends with 1 if it found something.
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
        let step = progress.map(|progress| match progress.total {
            Some(total) => format!("{} {} / {}", progress.step, format::integer(progress.done), format::integer(total)),
            None => format!("{} {}", progress.step, format::integer(progress.done)),
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
    error: Option<String>,
    faults: Vec<String>,
    /// Address of the job's events while it runs.
    events: String,
    found: Option<JobResult>,
}

/// A result as lines of checks, facts, and the rest unchanged.
#[derive(Debug, Default)]
struct JobResult {
    checks: Vec<(Mark, String)>,
    facts: Vec<(String, String)>,
    lines: Vec<String>,
    json: Option<String>,
}

/// The name of a check of the doctor.
fn check_name(t: Locale, what: &str) -> String {
    let name = match what {
        "settings" => t.say("doctor.settings"),
        "data folder" => t.say("doctor.data_folder"),
        "disk" => t.say("doctor.disk"),
        "open files" => t.say("doctor.open_files"),
        "address" => t.say("doctor.address"),
        "console" => t.say("doctor.console"),
        "database" => t.say("doctor.database"),
        "channels" => t.say("doctor.channels"),
        "journal" => t.say("doctor.journal"),
        "backups" => t.say("doctor.backups"),
        "redis" => t.say("doctor.redis"),
        "clock" => t.say("doctor.clock"),
        "export" => t.say("export.title"),
        _ => what,
    };
    name.to_owned()
}

/// The name of a fact of a result.
fn fact_name(t: Locale, name: &str) -> String {
    let known = match name {
        "known_schema" => t.say("fact.known_schema"),
        "made_at" => t.say("fact.made_at"),
        "schema" => t.say("fact.schema"),
        "records" => t.say("fact.records"),
        "ledger_entries" => t.say("fact.ledger_entries"),
        "members" => t.say("nav.members"),
        "attempts" => t.say("record.attempts"),
        "more_differences" => t.say("fact.more_differences"),
        "removed_before" => t.say("fact.removed_before"),
        "removed_message" => t.say("fact.retention"),
        "served" => t.say("fact.served"),
        "waiting_in_journal" => t.say("fact.waiting"),
        "begun_in_journal" => t.say("fact.without_end"),
        "in_memory_only" => t.say("fact.in_memory_only"),
        "file" => t.say("system.file"),
        "bytes" => t.say("system.size"),
        "journal_segments" => t.say("fact.segments"),
        "master_key" => t.say("fact.master_key"),
        "database" => t.say("doctor.database"),
        "target" => t.say("export.target"),
        "database_address" => t.say("fact.database_address"),
        _ => return name.replace('_', " "),
    };
    known.to_owned()
}

impl JobResult {
    fn of(t: Locale, kind: &str, result: &Value) -> Self {
        let mut found = Self::default();
        match kind {
            "doctor" => {
                for item in result["items"].as_array().into_iter().flatten().take(MAX_LINES) {
                    let what = item["what"].as_str().unwrap_or_default();
                    let (tone, icon) = match (item["ok"] == true, item["note"] == true) {
                        (true, false) => ("ok", "okc"),
                        (true, true) => ("warn", "warn"),
                        (false, _) => ("bad", "badc"),
                    };
                    let mark = Mark::new(tone, icon, check_name(t, what));
                    found.checks.push((mark, item["text"].as_str().unwrap_or_default().to_owned()));
                }
            }
            "verify" => found.add_sums(t, result),
            "backup_check" => {
                found.checks.push((Mark::new("ok", "okc", t.say("backups.whole")), String::new()));
                let verified = &result["verified"];
                if verified.is_null() {
                    found.checks.push((Mark::new("off", "stop", t.say("backups.no_database")), String::new()));
                } else {
                    found.add_sums(t, verified);
                }
            }
            "export" => found.add_days(t, result),
            _ => {}
        }
        for (name, value) in result.as_object().into_iter().flatten() {
            let text = match value {
                Value::String(text) => text.clone(),
                Value::Number(number) if name == "bytes" => number.as_u64().map_or_else(String::new, |size| format::bytes(t, size)),
                Value::Number(number) => number.as_u64().map_or_else(|| number.to_string(), format::integer),
                Value::Bool(true) => t.say("fact.yes").to_owned(),
                Value::Bool(false) => t.say("fact.no").to_owned(),
                Value::Null | Value::Array(_) | Value::Object(_) => continue,
            };
            if name != "agrees" && !text.is_empty() {
                found.facts.push((fact_name(t, name), text));
            }
        }
        if matches!(kind, "replay" | "import") {
            let text = serde_json::to_string_pretty(result).unwrap_or_default();
            found.json = Some(text.chars().take(MAX_JSON).collect());
        }
        found
    }
}

impl JobResult {
    /// Whether the sums agree, and how they differ.
    fn add_sums(&mut self, t: Locale, verified: &Value) {
        let mark = if verified["agrees"] == true {
            Mark::new("ok", "okc", t.say("system.agrees"))
        } else {
            Mark::new("bad", "badc", t.say("system.differs"))
        };
        self.checks.push((mark, String::new()));
        let differences = verified["differences"].as_array().into_iter().flatten();
        self.lines = differences.filter_map(|it| it["message"].as_str().map(str::to_owned)).take(MAX_LINES).collect();
        let faults = verified["journal_faults"].as_array().into_iter().flatten();
        self.lines.extend(faults.filter_map(|it| it.as_str().map(str::to_owned)).take(MAX_LINES));
    }

    /// The days of an export.
    fn add_days(&mut self, t: Locale, result: &Value) {
        let days = |member: &str| result[member].as_array().into_iter().flatten().take(MAX_LINES);
        let day = |it: &Value| format::day(t, it["day"].as_str().unwrap_or_default());
        for it in days("exported") {
            let number = |name: &str| it[name].as_u64().unwrap_or_default();
            let (records, size) = (format::integer(number("records")), format::bytes(t, number("bytes")));
            let text = t.say_with("export.day_done", &[("records", &records), ("size", &size)]);
            self.checks.push((Mark::new("ok", "okc", day(it)), text));
        }
        for it in days("left_out") {
            self.checks.push((Mark::new("warn", "warn", day(it)), it["reason"].as_str().unwrap_or_default().to_owned()));
        }
        if self.checks.is_empty() {
            self.checks.push((Mark::new("ok", "okc", t.say("export.complete")), String::new()));
        }
    }
}

pub(super) async fn show(request: Arc<PageRequest>) -> Result<PageReply, PageFailure> {
    let t = request.t();
    let call = ApiCall { path: path_of(&[("job", request.path_param("job"))]), ..ApiCall::default() };
    let found = request.read::<JobObject>(operations::GET_JOB, call).await;
    let job = found.map_err(|error| if error.status == StatusCode::NOT_FOUND { error.because("job_gone") } else { error })?;
    let row = JobRow::of(t, &job);
    let fault = |fault: &FaultObject| {
        t.say_with(
            "system.fault",
            &[("line", &fault.line.to_string()), ("column", &fault.column.to_string()), ("text", &fault.message)],
        )
    };
    let layout = request.layout(row.kind).below("/system", t.say("nav.system"));
    let template = JobPage {
        layout: if row.is_open { layout.with(Script::Operators) } else { layout },
        t,
        cancelled_by: job.cancelled_by.as_deref().map(|by| audit_action::author(by).to_owned()),
        faults: job.error.iter().flat_map(|error| &error.faults).take(MAX_LINES).map(fault).collect(),
        error: job.error.as_ref().map(|error| error.message.clone()),
        events: request.url(&format!("/admin/v1/jobs/{}/events", job.id)),
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
    fn row_shows_how_far_a_job_is() {
        let row = JobRow::of(Locale::EN, &job(&json!({"progress": {"step": "records", "done": 500, "total": 2_000}})));
        assert_eq!((row.step.as_str(), row.percent, row.is_open), ("records 500 / 2,000", 25, true));
        let ended =
            json!({"state": "done", "exit_code": 1, "started_at": "2026-11-01T00:00:00Z", "ended_at": "2026-11-01T00:00:02Z"});
        let row = JobRow::of(Locale::EN, &job(&ended));
        assert_eq!((row.mark.tone, row.took.as_str(), row.is_open), ("warn", "2.00 s", false));
    }

    #[test]
    fn job_results_are_shown_as_checks_facts_and_lines() {
        let doctor = JobResult::of(Locale::EN, "doctor", &json!({"items": [{"what": "disk", "ok": false, "text": "full"}]}));
        assert_eq!((doctor.checks[0].0.tone, doctor.checks[0].1.as_str()), ("bad", "full"));
        let low = json!({"items": [{"what": "open files", "ok": true, "note": true, "text": "less than configured"}]});
        let low = JobResult::of(Locale::EN, "doctor", &low);
        assert_eq!((low.checks[0].0.tone, low.checks[0].0.word.as_str()), ("warn", "Open files"));
        let result = json!({"agrees": false, "records": 1_200, "differences": [{"message": "sums differ"}], "journal_faults": []});
        let verify = JobResult::of(Locale::EN, "verify", &result);
        assert_eq!((verify.checks[0].0.tone, verify.lines.as_slice()), ("bad", ["sums differ".to_owned()].as_slice()));
        assert_eq!(verify.facts, [("Records".to_owned(), "1,200".to_owned())]);
        let sound =
            JobResult::of(Locale::EN, "backup_check", &json!({"file": "x.backup", "schema": 1, "verified": {"agrees": true}}));
        assert_eq!(sound.checks.iter().map(|(mark, _)| mark.tone).collect::<Vec<_>>(), ["ok", "ok"]);
        let without = JobResult::of(Locale::EN, "backup_check", &json!({"file": "x.backup", "verified": null}));
        assert_eq!(without.checks[1].0.tone, "off");
    }
}
