//! `/admin/v1/backups`: the files that backup jobs made, in a folder of the gateway's data folder. No path comes from a request: a
//! name must be one that the folder lists.

use std::io;

use axum::body::Body;
use bytes::Bytes;
use futures_util::stream;
use serde_json::json;
use tokio::{io::AsyncReadExt as _, task::spawn_blocking};
use tollgate_store::{
    AdminScope, BackupFile, BackupFolder, StoreError,
    fields::{Kind, Object},
};

use super::{
    jobs::jobs,
    request_context::RequestContext,
    route::{Method, Needs, Resource, ResponseSchema, Route, handler},
    schema::{COUNT, NAME, read},
};
use crate::{api_error::ApiError, jobs::Jobs, response::ApiResponse, time::time_value};

/// Backups that are kept on the gateway's disk.
const MAX_BACKUPS: usize = 8;
const CHUNK_BYTES: usize = 64 << 10;

static BACKUP: Object = Object::of(
    "Backup",
    &[
        read("name", NAME, "Name of the file."),
        read("bytes", COUNT, "Its size."),
        read("made_at", Kind::Time, "When it was begun, to the second."),
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
    if on_folder(jobs, |folder| folder.list()).await?.len() < MAX_BACKUPS {
        return Ok(());
    }
    let message =
        format!("There are {MAX_BACKUPS} backups on the gateway's disk already; remove one (DELETE /admin/v1/backups/…).");
    Err(ApiError::conflict("too_many_backups", message))
}

async fn list(context: RequestContext) -> Result<ApiResponse, ApiError> {
    let files = on_folder(jobs(&context)?, |folder| folder.list()).await?;
    let show = |file: &BackupFile| json!({"name": file.name, "bytes": file.bytes, "made_at": time_value(file.made_at)});
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
