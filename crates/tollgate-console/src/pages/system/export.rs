//! The export of usage records on the page of the system: its state, the last days, and a form that exports days again.

use serde::Deserialize;
use serde_json::{Map, Value};

use crate::{
    api_error::ApiError,
    dispatch::ApiCall,
    pages::{
        format::{self, TimeText},
        locale::Locale,
        mark::Mark,
        operations,
        request::PageRequest,
    },
};

/// Exported days that are shown.
const SHOWN_DAYS: usize = 7;

#[derive(Debug, Deserialize)]
struct ExportsObject {
    target: Option<String>,
    due: u64,
    first_due: Option<String>,
    failure: Option<FailureObject>,
    days: Vec<DayObject>,
}

#[derive(Debug, Deserialize)]
struct FailureObject {
    day: String,
    since: String,
    message: String,
}

#[derive(Debug, Deserialize)]
struct DayObject {
    day: String,
    records: u64,
    files: u64,
    bytes: u64,
    exported_at: String,
}

/// The state of exports; empty without storage.
#[derive(Debug)]
pub(super) struct ExportPart {
    pub(super) target: Option<String>,
    pub(super) mark: Mark,
    /// The failing day, the time of its first failure, and the reason.
    pub(super) failure: Option<(String, Option<TimeText>, String)>,
    pub(super) days: Vec<DayRow>,
    /// The last day that can be exported.
    pub(super) last_day: String,
}

#[derive(Debug)]
pub(super) struct DayRow {
    pub(super) day: String,
    pub(super) records: String,
    pub(super) files: String,
    pub(super) size: String,
    pub(super) exported: Option<TimeText>,
}

impl ExportPart {
    pub(super) async fn load(request: &PageRequest) -> Result<Self, ApiError> {
        let t = request.t();
        let found: ExportsObject = request.read(operations::GET_EXPORTS, ApiCall::default()).await?;
        let row = |it: &DayObject| DayRow {
            day: format::day(t, &it.day),
            records: format::integer(it.records),
            files: format::integer(it.files),
            size: format::bytes(t, it.bytes),
            exported: format::time(t, &it.exported_at),
        };
        Ok(Self {
            mark: mark(t, &found),
            failure: found.failure.as_ref().map(|it| {
                let title = t.say_with("export.failed", &[("day", &format::day(t, &it.day))]);
                (title, format::time(t, &it.since), format::capital(&it.message))
            }),
            days: found.days.iter().take(SHOWN_DAYS).map(row).collect(),
            last_day: crate::time::day_text(request.state.gateway.now().day() - 1),
            target: found.target,
        })
    }
}

fn mark(t: Locale, found: &ExportsObject) -> Mark {
    if found.target.is_none() {
        return Mark::new("off", "stop", t.say("export.off"));
    }
    let first = found.first_due.as_deref().map(|day| format::day(t, day)).unwrap_or_default();
    let due = || t.say_with("export.due", &[("count", &format::integer(found.due)), ("day", &first)]);
    match (&found.failure, found.due) {
        (Some(_), _) => Mark::new("bad", "badc", if found.due > 0 { due() } else { t.say("system.failed").to_owned() }),
        (None, 0) => Mark::new("ok", "okc", t.say("export.complete")),
        (None, _) => Mark::new("info", "clock", due()),
    }
}

/// The job that a form requests: an export of the given days, or of all that are due.
pub(super) fn job(request: &PageRequest) -> Map<String, Value> {
    let mut body = Map::from_iter([("kind".to_owned(), Value::from("export"))]);
    for name in ["from", "to"] {
        body.extend(request.form.filled(name).map(|day| (name.to_owned(), day.into())));
    }
    body
}
