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
use tollgate_core::{KeyId, Revision};
use tollgate_gateway::state::{health_registry::HealthRegistry, shared::Shared};
use tollgate_store::{Actor, ChangeOrigin, ChangeRefusal, RowKind, Store, StoreError};

use crate::{catalog_file, compose, failure::Failure};

/// Interval of checks for a changed catalog file.
const POLL_INTERVAL: Duration = Duration::from_millis(500);
/// Pause after a failed database query.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// Applies the served file to the database. Returns the number of changed rows.
pub(crate) async fn serve_file(store: &Store, path: &Path) -> Result<usize, Failure> {
    let file = catalog_file::read(path)?;
    let plan = catalog_file::plan_served(store, path, &file).await?;
    if plan.is_empty() {
        return Ok(0);
    }
    let actor = Actor { origin: ChangeOrigin::File, name: path.display().to_string() };
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
    // A start without the database has not applied the file yet.
    let mut seen = if store.spending_known_at().is_none() { stamp(&path) } else { None };
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            _ = sighup.recv() => {}
            () = tokio::time::sleep(POLL_INTERVAL) => {
                if stamp(&path) == seen || store.spending_known_at().is_some() {
                    continue;
                }
            }
        }
        seen = stamp(&path);
        match serve_file(&store, &path).await {
            Ok(lines) => tracing::info!(catalog.file = %path.display(), changes = lines, "catalog file read"),
            Err(Failure::Unreachable(why) | Failure::Machine(why)) => {
                tracing::warn!(catalog.file = %path.display(), "retrying to apply the catalog file: {why}");
                seen = None;
                tokio::time::sleep(RETRY_AFTER).await;
            }
            Err(failure) => {
                tracing::error!(catalog.file = %path.display(), "catalog file refused, the previous catalog stays in force: {failure}");
            }
        }
    }
}

/// Modification time and size, to detect changes of a file.
fn stamp(path: &Path) -> Option<(SystemTime, u64)> {
    let metadata = std::fs::metadata(path).ok()?;
    Some((metadata.modified().ok()?, metadata.len()))
}

/// Loads a new snapshot whenever the catalog revision changes, until `stop` is cancelled.
pub(crate) async fn watch_database(
    store: Store,
    shared: Arc<Shared>,
    registry: Arc<HealthRegistry>,
    revoked: mpsc::Sender<KeyId>,
    stop: CancellationToken,
) {
    let mut known = shared.catalog.load().revision;
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
            Ok(_) => load_snapshot(&store, &shared, &registry, &revoked, known).await,
            Err(error) => Err(error.into()),
        };
        match loaded {
            Ok(revision) => {
                known = revision;
                if failing {
                    tracing::info!("the catalog can be read again");
                }
                failing = false;
                shared.condition.set_degraded(false);
            }
            Err(failure) => {
                if !failing {
                    tracing::warn!("cannot read the catalog, the last known one stays in force: {failure}");
                }
                failing = true;
                shared.condition.set_degraded(true);
                tokio::select! {
                    () = stop.cancelled() => return,
                    () = tokio::time::sleep(RETRY_AFTER) => {}
                }
            }
        }
    }
}

/// Installs the current snapshot and invalidates cached keys affected by the changed rows.
async fn load_snapshot(
    store: &Store,
    shared: &Shared,
    registry: &HealthRegistry,
    revoked: &mpsc::Sender<KeyId>,
    known: Revision,
) -> Result<Revision, Failure> {
    let changed = store.catalog.changed_since(known).await?;
    let catalog = store.catalog.load().await?;
    let revision = catalog.revision;
    let catalog = Arc::new(catalog);
    shared.traffic.configure(catalog.accounts().map(|account| &**account));
    shared.replace_catalog(Arc::clone(&catalog));
    // After the catalog: a request woken by the end of a cooldown must see the new credential.
    registry.configure(catalog.accounts().map(|account| &**account));
    for row in changed {
        match (row.kind, KeyId::parse(&row.id)) {
            (RowKind::Key, Some(key)) => {
                shared.keys.drop_key(key);
                shared.keys.clear_negatives();
                if store.listing.row(RowKind::Key, &row.id).await?.is_some_and(|row| row.removed_at.is_some()) {
                    shared.revoke([key]);
                    // A full queue, or no Redis: the other nodes read it from the database.
                    let _ = revoked.try_send(key);
                }
            }
            (RowKind::Member | RowKind::Group | RowKind::Key, _) => shared.keys.clear(),
            (RowKind::Channel | RowKind::Account | RowKind::Model | RowKind::AdminKey, _) => {}
        }
    }
    Ok(revision)
}
