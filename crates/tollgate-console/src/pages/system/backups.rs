//! The backups on the page of the system: their schedule, and those on the gateway's disk with the result of their last check.

use std::sync::Arc;

use serde::Deserialize;
use serde_json::{Map, Value};

use crate::{
    api_error::ApiError,
    dispatch::ApiCall,
    pages::{
        control,
        form::FormState,
        format::{self, TimeText},
        locale::Locale,
        mark::Mark,
        operations,
        preferences::Toast,
        reply::{PageFailure, PageReply},
        request::{ApiPage, PageRequest, path_of},
    },
};

#[derive(Debug, Deserialize)]
struct ScheduleObject {
    supported: bool,
    interval_hours: u64,
    keep: u64,
    folder: String,
    next_at: Option<String>,
    failure: Option<FailureObject>,
    failures: Vec<FailureObject>,
    folder_fault: Option<String>,
}

#[derive(Debug, Deserialize)]
struct FailureObject {
    since: String,
    at: String,
    message: String,
}

#[derive(Debug, Deserialize)]
struct BackupObject {
    name: String,
    bytes: u64,
    made_at: String,
    scheduled: bool,
    check: Option<CheckObject>,
}

#[derive(Debug, Deserialize)]
struct CheckObject {
    at: String,
    fault: Option<String>,
}

/// Schedule and backups, which admins see.
#[derive(Debug)]
pub(super) struct BackupPart {
    pub(super) is_supported: bool,
    pub(super) mark: Mark,
    /// The interval and the number of kept backups, as a sentence; `None` without a schedule.
    pub(super) schedule: Option<String>,
    pub(super) folder: String,
    pub(super) next: Option<TimeText>,
    /// Time of the first failure, and the reason.
    pub(super) failure: Option<(Option<TimeText>, String)>,
    /// Why the folder cannot be read.
    pub(super) folder_fault: Option<String>,
    pub(super) rows: Vec<BackupRow>,
}

/// A backup, or a scheduled one that failed.
#[derive(Debug)]
pub(super) struct BackupRow {
    /// When it began; for consecutive failures, when the first one began.
    pub(super) begun: Option<TimeText>,
    pub(super) is_scheduled: bool,
    /// The backup; `None`: it failed.
    pub(super) file: Option<BackupFileCell>,
    /// The result of its last check, or that it was not made.
    pub(super) mark: Mark,
    /// When it was checked, or the time of the last of consecutive failures.
    pub(super) marked: Option<TimeText>,
    /// What the check found, or why it failed.
    pub(super) fault: Option<String>,
}

#[derive(Debug)]
pub(super) struct BackupFileCell {
    pub(super) name: String,
    pub(super) size: String,
    pub(super) link: String,
    /// A removal for which another name was typed.
    pub(super) refused: Option<RefusedRemoval>,
}

#[derive(Debug)]
pub(super) struct RefusedRemoval {
    pub(super) typed: String,
    pub(super) fault: String,
}

impl BackupPart {
    /// `state`: a form of the page that was refused.
    pub(super) async fn load(request: &PageRequest, state: &FormState) -> Result<Self, ApiError> {
        let schedule: ScheduleObject = request.read(operations::GET_BACKUP_SCHEDULE, ApiCall::default()).await?;
        let backups = match schedule.folder_fault {
            None => request.read::<ApiPage<BackupObject>>(operations::LIST_BACKUPS, ApiCall::default()).await?.items,
            Some(_) => Vec::new(),
        };
        let t = request.t();
        let link = |name: &str| request.url(&format!("/admin/v1/backups/{name}"));
        let made = backups.into_iter().map(|it| (it.made_at.clone(), row(t, link(&it.name), it)));
        let failed = schedule.failures.iter().map(|it| (it.since.clone(), failed_row(t, it)));
        let mut rows: Vec<(String, BackupRow)> = made.chain(failed).collect();
        rows.sort_by(|(one, _), (other, _)| other.cmp(one));
        if let Some(fault) = state.fault(control::TYPED_NAME) {
            let mut files = rows.iter_mut().filter_map(|(_, row)| row.file.as_mut());
            if let Some(file) = files.find(|file| file.name == request.path_param("name")) {
                let typed = state.value(control::TYPED_NAME).to_owned();
                file.refused = Some(RefusedRemoval { typed, fault: fault.to_owned() });
            }
        }
        Ok(Self {
            is_supported: schedule.supported,
            mark: mark(t, &schedule),
            schedule: said(t, &schedule),
            next: schedule.next_at.as_deref().and_then(|at| format::time(t, at)),
            failure: schedule.failure.map(|it| (format::time(t, &it.since), format::capital(&it.message))),
            folder: schedule.folder,
            folder_fault: schedule.folder_fault.as_deref().map(format::capital),
            rows: rows.into_iter().map(|(_, row)| row).collect(),
        })
    }
}

fn mark(t: Locale, schedule: &ScheduleObject) -> Mark {
    match (schedule.supported && schedule.interval_hours > 0, &schedule.failure) {
        (false, _) => Mark::new("off", "stop", t.say("backups.off")),
        (true, Some(_)) => Mark::new("bad", "badc", t.say("system.failed")),
        (true, None) => Mark::new("ok", "okc", t.say("backups.on")),
    }
}

fn said(t: Locale, schedule: &ScheduleObject) -> Option<String> {
    let keep = format::integer(schedule.keep);
    match schedule.interval_hours {
        _ if !schedule.supported => None,
        0 => None,
        1 => Some(t.say_with("backups.hourly", &[("keep", &keep)])),
        24 => Some(t.say_with("backups.daily", &[("keep", &keep)])),
        hours => Some(t.say_with("backups.every", &[("hours", &format::integer(hours)), ("keep", &keep)])),
    }
}

fn row(t: Locale, link: String, backup: BackupObject) -> BackupRow {
    let check = match &backup.check {
        None => Mark::new("off", "clock", t.say("backups.unchecked")),
        Some(CheckObject { fault: None, .. }) => Mark::new("ok", "okc", t.say("backups.sound")),
        Some(CheckObject { fault: Some(_), .. }) => Mark::new("bad", "badc", t.say("backups.unsound")),
    };
    BackupRow {
        begun: format::time(t, &backup.made_at),
        is_scheduled: backup.scheduled,
        mark: check,
        marked: backup.check.as_ref().and_then(|check| format::time(t, &check.at)),
        fault: backup.check.and_then(|check| check.fault).map(|fault| format::capital(&fault)),
        file: Some(BackupFileCell { name: backup.name, size: format::bytes(t, backup.bytes), link, refused: None }),
    }
}

fn failed_row(t: Locale, failure: &FailureObject) -> BackupRow {
    BackupRow {
        begun: format::time(t, &failure.since),
        is_scheduled: true,
        file: None,
        mark: Mark::new("bad", "badc", t.say("backups.not_made")),
        marked: Some(&failure.at).filter(|at| **at != failure.since).and_then(|at| format::time(t, at)),
        fault: Some(format::capital(&failure.message)),
    }
}

/// The job that checks a backup.
pub(super) async fn check(request: Arc<PageRequest>) -> Result<PageReply, PageFailure> {
    let name = request.path_param("name");
    let body = Map::from_iter([("kind".to_owned(), Value::from("backup_check")), ("name".to_owned(), name.into())]);
    match super::send_job(&request, body).await {
        Ok(reply) => Ok(reply),
        Err(error) => {
            let state = FormState::refused_at(request.t(), &request.form, &error, None)?;
            super::system_page(&request, &state).await
        }
    }
}

pub(super) async fn remove(request: Arc<PageRequest>) -> Result<PageReply, PageFailure> {
    let name = request.path_param("name");
    // The name of the file is typed: a backup cannot be made again.
    let removed = match control::check_typed_name(&request.form, name) {
        Ok(()) => {
            let call = ApiCall { path: path_of(&[("name", name)]), ..ApiCall::default() };
            request.call(operations::REMOVE_BACKUP, call).await
        }
        Err(error) => Err(error),
    };
    match removed {
        Ok(_) => Ok(PageReply::redirect(&request.url("/system")).toast(Toast::Removed)),
        Err(error) => {
            let state = FormState::refused(request.t(), &request.form, &error, &[control::TYPED_NAME])?;
            super::system_page(&request, &state).await
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failure(at: &str) -> FailureObject {
        FailureObject { since: "2026-11-01T00:00:00Z".to_owned(), at: at.to_owned(), message: "no space".to_owned() }
    }

    #[test]
    fn failed_backup_is_a_row_with_its_reason() {
        let row = |at: &str| failed_row(Locale::EN, &failure(at));
        let once = row("2026-11-01T00:00:00Z");
        assert!(once.file.is_none() && once.is_scheduled && once.begun.is_some() && once.marked.is_none());
        assert_eq!((once.mark.tone, once.fault.as_deref()), ("bad", Some("No space")));
        assert!(row("2026-11-01T01:00:00Z").marked.is_some(), "the last of several");
    }

    fn schedule(supported: bool, interval_hours: u64, failing: bool) -> ScheduleObject {
        let failure = failing.then(|| failure("2026-11-01T01:00:00Z"));
        let (folder, failures) = ("/b".to_owned(), Vec::new());
        ScheduleObject { supported, interval_hours, keep: 7, folder, next_at: None, failure, failures, folder_fault: None }
    }

    #[test]
    fn schedule_is_shown_with_its_state() {
        let of = |it: &ScheduleObject| (mark(Locale::EN, it).tone, said(Locale::EN, it));
        assert_eq!(of(&schedule(true, 0, false)), ("off", None));
        assert_eq!(of(&schedule(false, 24, false)), ("off", None), "PostgreSQL");
        assert_eq!(of(&schedule(true, 24, false)), ("ok", Some("Every day; the newest 7 are kept.".to_owned())));
        assert_eq!(of(&schedule(true, 6, true)), ("bad", Some("Every 6 hours; the newest 7 are kept.".to_owned())));
    }

    #[test]
    fn backup_shows_what_its_last_check_found() {
        let of = |check: Option<CheckObject>| {
            let name = "tollgate-2026-11-22T18-23-29Z.backup".to_owned();
            let made_at = "2026-11-22T18:23:29Z".to_owned();
            let row = row(Locale::EN, String::new(), BackupObject { name, bytes: 2_048, made_at, scheduled: true, check });
            assert_eq!((row.file.unwrap().size.as_str(), row.is_scheduled), ("2.0 KiB", true));
            (row.mark.tone, row.marked.is_some(), row.fault)
        };
        let at = || "2026-11-22T19:00:00Z".to_owned();
        assert_eq!(of(None), ("off", false, None));
        assert_eq!(of(Some(CheckObject { at: at(), fault: None })), ("ok", true, None));
        let fault = Some("the sums differ".to_owned());
        assert_eq!(of(Some(CheckObject { at: at(), fault })), ("bad", true, Some("The sums differ".to_owned())));
    }
}
