//! `/admin/v1/backups`: the files that backup jobs made, in the folder of backups, and the schedule by which the gateway makes some by
//! itself. No path comes from a request: a name must be one that the folder lists.

use std::io;

use axum::body::Body;
use bytes::Bytes;
use futures_util::stream;
use serde_json::{Value, json};
use tokio::{io::AsyncReadExt as _, task::spawn_blocking};
use tollgate_core::Timestamp;
use tollgate_store::{
    AdminScope, BackupFile, BackupFolder, BackupNote, BackupOrigin, FailedBackup, MAX_FAILED_BACKUPS, StoreError,
    fields::{Kind, Object},
};

use super::{
    jobs::jobs,
    request_context::RequestContext,
    route::{Method, Needs, Resource, ResponseSchema, Route, handler},
    schema::{COUNT, NAME, TEXT, read},
};
use crate::{api_error::ApiError, jobs::Jobs, response::ApiResponse, time::time_value};

/// Backups made on request that are kept on the gateway's disk.
const MAX_BACKUPS: usize = 8;
const CHUNK_BYTES: usize = 64 << 10;

static BACKUP: Object = Object::of(
    "Backup",
    &[
        read("name", NAME, "Name of the file."),
        read("bytes", COUNT, "Its size."),
        read("made_at", Kind::Time, "When it was begun, to the second."),
        read("scheduled", Kind::Flag, "Whether the gateway made it by itself. Old ones of these are removed (`backup.keep`)."),
        read("check", Kind::Object(&CHECK), "Its last check by a job of kind `backup_check`; null: it was not checked.").or_null(),
    ],
);
static CHECK: Object = Object::of(
    "BackupCheck",
    &[
        read("at", Kind::Time, "When it was checked."),
        read("fault", TEXT, "The fault; null: it can be restored, and its sums agree.").or_null(),
    ],
);
static FAILURE: Object = Object::of(
    "BackupFailure",
    &[
        read("since", Kind::Time, "The first failure since a backup was made."),
        read("at", Kind::Time, "The last failure."),
        read("message", TEXT, "What went wrong."),
    ],
);
static SCHEDULE: Object = Object::of(
    "BackupSchedule",
    &[
        read("supported", Kind::Flag, "Whether the database is SQLite; that of PostgreSQL is backed up with its own tools."),
        read("interval_hours", COUNT, "Hours between two backups; 0: none are made (`backup.interval_hours`)."),
        read("keep", COUNT, "How many of them are kept (`backup.keep`)."),
        read("folder", TEXT, "Folder of all backups (`backup.folder`)."),
        read("last_at", Kind::Time, "When the newest of them was begun.").or_null(),
        read("next_at", Kind::Time, "When the next one is due; null: never.").or_null(),
        read("failure", Kind::Object(&FAILURE), "Why the last one failed; null once one is made, and after a restart.").or_null(),
        read(
            "failures",
            Kind::List { of: &Kind::Object(&FAILURE), max: MAX_FAILED_BACKUPS },
            "Those that failed, newest first, also if others were made since; failures in a row are one. They are kept as long as the \
             backups after them.",
        ),
        read("folder_fault", TEXT, "Why the folder cannot be read; null: it is readable.").or_null(),
    ],
);

const RESOURCE: Resource = Resource { tag: "backups", needs: Needs::Scope(AdminScope::Admin) };

pub(super) static ROUTES: &[Route] = &[
    RESOURCE
        .route(Method::Get, "/admin/v1/backups", "list_backups", "Backups on the gateway's disk, newest first.", handler!(list))
        .returns(ResponseSchema::Page(&BACKUP)),
    RESOURCE
        .route(Method::Get, "/admin/v1/backups/{name}", "get_backup", "The file of a backup.", handler!(download))
        .returns(ResponseSchema::File("application/x-tar")),
    RESOURCE.route(
        Method::Delete,
        "/admin/v1/backups/{name}",
        "remove_backup",
        "Removes a backup from the gateway's disk.",
        handler!(remove),
    ),
    RESOURCE
        .route(
            Method::Get,
            "/admin/v1/backup-schedule",
            "get_backup_schedule",
            "The backups that the gateway makes by itself: interval, folder, the next one, and why the last one failed.",
            handler!(schedule),
        )
        .returns(ResponseSchema::Object(&SCHEDULE)),
];

/// Works on the folder without blocking the threads of the console.
async fn on_folder<T: Send + 'static>(
    jobs: &Jobs,
    work: impl FnOnce(BackupFolder) -> Result<T, StoreError> + Send + 'static,
) -> Result<T, ApiError> {
    let folder = jobs.backups().clone();
    Ok(spawn_blocking(move || work(folder)).await.map_err(|_| ApiError::internal())??)
}

/// Refuses another backup when there are as many as are kept.
pub(super) async fn require_room(jobs: &Jobs) -> Result<(), ApiError> {
    let files = on_folder(jobs, |folder| folder.list()).await?;
    if files.iter().filter(|file| file.origin == BackupOrigin::Request).count() < MAX_BACKUPS {
        return Ok(());
    }
    let message =
        format!("There are {MAX_BACKUPS} backups on the gateway's disk already; remove one (DELETE /admin/v1/backups/…).");
    Err(ApiError::conflict("too_many_backups", message))
}

/// Refuses a name that is not a backup's.
pub(super) async fn require(jobs: &Jobs, name: &str) -> Result<(), ApiError> {
    let wanted = name.to_owned();
    if on_folder(jobs, move |folder| Ok(folder.find(&wanted))).await?.is_some() {
        return Ok(());
    }
    Err(ApiError::value("name", format_args!("there is no backup '{name}' on the gateway's disk")))
}

fn show(file: &BackupFile) -> Value {
    let check = |note: &BackupNote| json!({"at": time_value(Timestamp(note.at)), "fault": note.fault});
    json!({
        "name": file.name, "bytes": file.bytes, "made_at": time_value(file.made_at),
        "scheduled": file.origin == BackupOrigin::Schedule, "check": file.note.as_ref().map(check),
    })
}

async fn schedule(context: RequestContext) -> Result<ApiResponse, ApiError> {
    let jobs = jobs(&context)?;
    let (scheduled, now) = (jobs.scheduled_backups(), context.state.gateway.now());
    let settings = context.state.gateway.settings();
    let number = |name: &str| -> u64 {
        let setting = settings.iter().find(|setting| setting.name == name);
        setting.and_then(|setting| setting.value.as_ref()?.parse().ok()).unwrap_or(0)
    };
    let hours = number("backup.interval_hours");
    let found = on_folder(jobs, |folder| Ok(folder.list().and_then(|files| Ok((files, folder.failures()?))))).await?;
    // The schedule and why it fails are shown even if the folder cannot be read.
    let (files, noted, folder_fault) = match found {
        Ok((files, noted)) => (files, noted, None),
        Err(fault) => (Vec::new(), Vec::new(), Some(fault.to_string())),
    };
    let last = files.iter().find(|file| file.origin == BackupOrigin::Schedule).map(|file| file.made_at);
    let failure = |it: &FailedBackup| json!({"since": time_value(it.since), "at": time_value(it.at), "message": it.message});
    let current = scheduled.failure();
    let failures: Vec<Value> = all_failures(current.clone(), noted).iter().map(failure).collect();
    Ok(ApiResponse::ok(json!({
        "supported": scheduled.is_supported(), "interval_hours": hours, "keep": number("backup.keep"),
        "folder": jobs.backups().path().display().to_string(), "last_at": last.map(time_value),
        "next_at": scheduled.next(last, hours, now).map(time_value), "failure": current.as_ref().map(failure),
        "failures": failures, "folder_fault": folder_fault,
    })))
}

/// The failures that are noted in the folder, newest first, with the present one, which may not have been written there.
fn all_failures(current: Option<FailedBackup>, noted: Vec<FailedBackup>) -> Vec<FailedBackup> {
    let since = current.as_ref().map(|current| current.since);
    let others = noted.into_iter().filter(|noted| Some(noted.since) != since);
    current.into_iter().chain(others).take(MAX_FAILED_BACKUPS).collect()
}

async fn list(context: RequestContext) -> Result<ApiResponse, ApiError> {
    let files = on_folder(jobs(&context)?, |folder| folder.list()).await?;
    Ok(ApiResponse::ok(json!({"items": files.iter().map(show).collect::<Vec<_>>(), "next": null})))
}

async fn download(context: RequestContext) -> Result<ApiResponse, ApiError> {
    let (jobs, name) = (jobs(&context)?, context.path_param("name").to_owned());
    let permit = jobs.download_permit()?;
    let wanted = name.clone();
    let opened = on_folder(jobs, move |folder| folder.open(&wanted)).await?;
    let (file, bytes) = opened.ok_or_else(|| ApiError::not_found("backup"))?;
    let file = tokio::fs::File::from_std(file).take(bytes);
    let chunks = stream::try_unfold((file, permit), |(mut file, permit)| async move {
        let mut chunk = vec![0; CHUNK_BYTES];
        let read = file.read(&mut chunk).await?;
        chunk.truncate(read);
        Ok::<_, io::Error>((read > 0).then(|| (Bytes::from(chunk), (file, permit))))
    });
    Ok(ApiResponse::streamed("application/x-tar", Body::from_stream(chunks)).header("content-length", &bytes.to_string()))
}

async fn remove(context: RequestContext) -> Result<ApiResponse, ApiError> {
    let name = context.path_param("name").to_owned();
    let wanted = name.clone();
    if on_folder(jobs(&context)?, move |folder| folder.remove(&wanted)).await? {
        Ok(ApiResponse::no_content())
    } else {
        Err(ApiError::not_found("backup"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn present_failure_comes_first_and_once() {
        let failed =
            |since, message: &str| FailedBackup { since: Timestamp(since), at: Timestamp(since), message: message.to_owned() };
        let noted = || vec![failed(2, "noted"), failed(1, "before")];
        assert_eq!(all_failures(None, noted()), noted());
        assert_eq!(all_failures(Some(failed(2, "now")), noted()), [failed(2, "now"), failed(1, "before")]);
        assert_eq!(all_failures(Some(failed(3, "now")), noted()), [failed(3, "now"), failed(2, "noted"), failed(1, "before")]);
        let many: Vec<FailedBackup> = (0..20).map(|since| failed(since, "")).collect();
        assert_eq!(all_failures(Some(failed(30, "")), many).len(), MAX_FAILED_BACKUPS);
    }
}
