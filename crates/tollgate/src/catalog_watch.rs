//! Keeps the snapshot of the running gateway current: follows the catalog file (on changes and SIGHUP) and the catalog revision in
//! the database. An invalid file changes nothing.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, SystemTime},
};

use tokio::{
    signal::unix::{SignalKind, signal},
    sync::mpsc,
};
use tokio_util::sync::CancellationToken;
use tollgate_core::{KeyId, MemberId, Revision, Subject};
use tollgate_gateway::state::{health_registry::HealthRegistry, shared::Shared};
use tollgate_store::{AccessReport, Actor, ChangeOrigin, ChangeRefusal, ObjectScope, RowKind, Store, StoreError};

use crate::{access_share, catalog_file, compose, failure::Failure, live_settings::LiveSettings};

/// Interval of checks for a changed catalog file. A change is applied when the file is the same at two checks in a row.
const POLL_INTERVAL: Duration = Duration::from_millis(250);
/// Pause after a failed database query.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// Applies the served file to the database. Returns the number of changed rows.
pub(crate) async fn serve_file(store: &Store, path: &Path) -> Result<usize, Failure> {
    let (file, text) = catalog_file::read_to_serve(store, path).await?;
    let plan = catalog_file::plan_served(store, path, &file).await?;
    if plan.is_empty() {
        return Ok(0);
    }
    if text.trim().is_empty() {
        return Err(Failure::invalid(format!(
            "the catalog file {} is empty, which would remove everything that came from it ({} changes); if that is meant, leave a \
             comment in it",
            path.display(),
            plan.lines.len()
        )));
    }
    let actor = Actor::local(ChangeOrigin::File, path.display().to_string());
    let applied = store.catalog.apply(&plan.changes, &actor, compose::now()).await;
    if let Err(StoreError::Refused(refused)) = &applied
        && matches!(refused.reason, ChangeRefusal::Stale { .. })
    {
        // Another node applied a file concurrently, possibly the same one.
        return Err(Failure::Machine(refused.to_string()));
    }
    applied?;
    for line in &plan.lines {
        tracing::info!(change = %line, "catalog file");
    }
    Ok(plan.lines.len())
}

/// Applies the file at the start, with retries: nodes that start together with the same file conflict, and all but one find it
/// already applied.
pub(crate) async fn serve_file_at_start(store: &Store, path: &Path) -> Result<usize, Failure> {
    const TRIES: u32 = 5;
    for _ in 1..TRIES {
        match serve_file(store, path).await {
            Err(Failure::Machine(why)) => {
                tracing::info!(catalog.file = %path.display(), "retrying to apply the catalog file: {why}");
                tokio::time::sleep(POLL_INTERVAL).await;
            }
            served => return served,
        }
    }
    serve_file(store, path).await
}

/// Applies the file again when it changes and on SIGHUP, until `stop` is cancelled.
pub(crate) async fn watch_file(store: Store, path: PathBuf, stop: CancellationToken) {
    let Ok(mut sighup) = signal(SignalKind::hangup()) else { return };
    let mut watch = FileWatch::new(stamp(&path));
    if store.spending_known_at().is_some() {
        // A start without the database has not applied the file yet.
        watch.retry();
    }
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            _ = sighup.recv() => {}
            () = tokio::time::sleep(POLL_INTERVAL) => {
                if !watch.has_settled(stamp(&path)) || store.spending_known_at().is_some() {
                    continue;
                }
            }
        }
        watch.read(stamp(&path));
        match serve_file(&store, &path).await {
            Ok(lines) => tracing::info!(catalog.file = %path.display(), changes = lines, "catalog file read"),
            Err(Failure::Unreachable(why) | Failure::Machine(why)) => {
                tracing::warn!(catalog.file = %path.display(), "retrying to apply the catalog file: {why}");
                watch.retry();
                tokio::time::sleep(RETRY_AFTER).await;
            }
            Err(failure) => {
                tracing::error!(catalog.file = %path.display(), "catalog file refused, the previous catalog stays in force: {failure}");
            }
        }
    }
}

/// Modification time and size, to detect changes of a file; `None` if there is no file.
type FileStamp = Option<(SystemTime, u64)>;

/// Determines when a changed file can be read. A program that rewrites a file empties it first, and a part of a catalog may be a
/// valid catalog without the rest.
#[derive(Debug)]
struct FileWatch {
    /// The file as it was read last; `None` if it is to be read in any case.
    read: Option<FileStamp>,
    /// The file at the last check.
    last: FileStamp,
}

impl FileWatch {
    fn new(read: FileStamp) -> Self {
        Self { read: Some(read), last: read }
    }

    /// Whether the file differs from the version that was read last, and has not changed since the last check.
    fn has_settled(&mut self, found: FileStamp) -> bool {
        let is_same = std::mem::replace(&mut self.last, found) == found;
        is_same && self.read != Some(found)
    }

    fn read(&mut self, found: FileStamp) {
        self.read = Some(found);
    }

    fn retry(&mut self) {
        self.read = None;
    }
}

fn stamp(path: &Path) -> FileStamp {
    let metadata = std::fs::metadata(path).ok()?;
    Some((metadata.modified().ok()?, metadata.len()))
}

/// Loads a new snapshot whenever the catalog revision changes, until `stop` is cancelled.
pub(crate) async fn watch_database(
    store: Store,
    shared: Arc<Shared>,
    registry: Arc<HealthRegistry>,
    settings: Arc<LiveSettings>,
    reports: mpsc::Sender<Vec<AccessReport>>,
    stop: CancellationToken,
) {
    let mut known = shared.catalog.load().revision;
    shared.keys.has_read(known);
    let mut failing = false;
    loop {
        let next_revision = async {
            // After a failure any successful read ends the degraded state, even if nothing changed.
            if failing { store.catalog.revision().await } else { store.catalog.wait_for_change(known).await }
        };
        let revision = tokio::select! {
            () = stop.cancelled() => return,
            revision = next_revision => revision,
        };
        let loaded = match revision {
            Ok(revision) if revision == known => Ok(known),
            Ok(_) => load_snapshot(&store, (&shared, &registry, &settings), &reports, known).await,
            Err(error) => Err(error.into()),
        };
        match loaded {
            Ok(revision) => {
                known = revision;
                if failing {
                    tracing::info!("the catalog can be read again");
                }
                failing = false;
                shared.serving.set_degraded(false);
            }
            Err(failure) => {
                if !failing {
                    tracing::warn!("cannot read the catalog, the last known one stays in force: {failure}");
                }
                failing = true;
                shared.serving.set_degraded(true);
                tokio::select! {
                    () = stop.cancelled() => return,
                    () = tokio::time::sleep(RETRY_AFTER) => {}
                }
            }
        }
    }
}

/// Installs the current snapshot, invalidates cached keys affected by the changed rows, and queues reports about their access
/// for other nodes.
async fn load_snapshot(
    store: &Store,
    (shared, registry, settings): (&Shared, &HealthRegistry, &LiveSettings),
    queue: &mpsc::Sender<Vec<AccessReport>>,
    known: Revision,
) -> Result<Revision, Failure> {
    let changed = store.catalog.changed_since(known).await?;
    let catalog = store.catalog.load().await?;
    let revision = catalog.revision;
    let catalog = Arc::new(catalog);
    shared.traffic.configure(catalog.channels.values().map(|channel| &**channel));
    settings.apply(&catalog);
    shared.replace_catalog(Arc::clone(&catalog));
    // Done after the catalog, because a request woken by the end of a cooldown must see the new credential.
    registry.configure(catalog.accounts().map(|account| &**account));
    let mut reports = Vec::new();
    for row in changed {
        let subject = match row.kind {
            RowKind::Key => KeyId::parse(&row.id).map(Subject::Key),
            RowKind::Member => MemberId::parse(&row.id).map(Subject::Member),
            RowKind::Channel
            | RowKind::Account
            | RowKind::Model
            | RowKind::Group
            | RowKind::AdminKey
            | RowKind::Setting
            | RowKind::AlertDestination => None,
        };
        match (row.kind, subject) {
            (RowKind::Key, Some(Subject::Key(key))) => {
                shared.keys.drop_key(key);
                shared.keys.clear_negatives();
            }
            (RowKind::Member | RowKind::Group | RowKind::Key, _) => shared.keys.clear(),
            (
                RowKind::Channel
                | RowKind::Account
                | RowKind::Model
                | RowKind::AdminKey
                | RowKind::Setting
                | RowKind::AlertDestination,
                _,
            ) => {}
        }
        if let Some(subject) = subject
            && let Some(found) = store.listing.row(row.kind, &row.id, ObjectScope::Everything).await?
            && let Some(report) = access_share::report(&found, subject, revision)
        {
            shared.follow_access(&report);
            reports.push(report);
        }
    }
    shared.keys.has_read(revision);
    access_share::enqueue(queue, reports);
    Ok(revision)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changed_file_is_read_once_it_has_settled() {
        let at = |seconds, bytes| Some((SystemTime::UNIX_EPOCH + Duration::from_secs(seconds), bytes));
        let mut watch = FileWatch::new(at(1, 500));
        assert!(!watch.has_settled(at(1, 500)));
        // The file is emptied, written in two parts, and then complete.
        assert!(!watch.has_settled(at(2, 0)));
        assert!(!watch.has_settled(at(2, 300)));
        assert!(!watch.has_settled(at(3, 600)));
        assert!(watch.has_settled(at(3, 600)));
        watch.read(at(3, 600));
        assert!(!watch.has_settled(at(3, 600)));
        watch.retry();
        assert!(watch.has_settled(at(3, 600)));
    }
}
