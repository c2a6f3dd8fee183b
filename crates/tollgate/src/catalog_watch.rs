//! Keeps the running gateway's snapshot current: the catalog file on SIGHUP and when it changes, the database when
//! anybody writes to it. A file that is refused changes nothing.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, SystemTime},
};

use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;
use tollgate_core::{KeyId, Revision};
use tollgate_gateway::state::{health_registry::HealthRegistry, shared::Shared};
use tollgate_store::{Actor, ChangeOrigin, ChangeRefusal, RowKind, Store, StoreError};

use crate::{catalog_file, compose, failure::Failure};

/// How often the catalog file is looked at.
const POLL_INTERVAL: Duration = Duration::from_millis(500);
/// Pause after the database did not answer.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// Brings the database in line with the served file. The number of lines of the plan.
pub(crate) async fn serve_file(store: &Store, path: &Path) -> Result<usize, Failure> {
    let file = catalog_file::read(path)?;
    let plan = catalog_file::plan_served(store, path, &file).await?;
    if plan.is_empty() {
        return Ok(0);
    }
    let actor = Actor { door: ChangeOrigin::File, name: path.display().to_string() };
    let applied = store.catalog.apply(&plan.changes, &actor, compose::now()).await;
    if let Err(StoreError::Refused(refused)) = &applied
        && matches!(refused.reason, ChangeRefusal::Stale { .. })
    {
        // Another node was first, perhaps with the same file.
        return Err(Failure::Machine(refused.to_string()));
    }
    applied?;
    for line in &plan.lines {
        tracing::info!(change = %line, "catalog file");
    }
    Ok(plan.lines.len())
}

/// The same at a start. Nodes that start at once with one file meet in the database: whoever comes second finds it done.
pub(crate) async fn serve_file_first(store: &Store, path: &Path) -> Result<usize, Failure> {
    const TRIES: u32 = 5;
    for _ in 1..TRIES {
        match serve_file(store, path).await {
            Err(Failure::Machine(why)) => {
                tracing::info!(catalog.file = %path.display(), "the catalog file is tried again: {why}");
                tokio::time::sleep(POLL_INTERVAL).await;
            }
            served => return served,
        }
    }
    serve_file(store, path).await
}

/// Reads the file again when it changes and on SIGHUP, until it is told to stop.
pub(crate) async fn watch_file(store: Store, path: PathBuf, stop: CancellationToken) {
    let Ok(mut hang_up) = signal(SignalKind::hangup()) else { return };
    // A start without the database has left the file for later.
    let mut seen = if store.spending_known_at().is_none() { stamp(&path) } else { None };
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            _ = hang_up.recv() => {}
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
                tracing::warn!(catalog.file = %path.display(), "the catalog file is tried again: {why}");
                seen = None;
                tokio::time::sleep(RETRY_AFTER).await;
            }
            Err(failure) => {
                tracing::error!(catalog.file = %path.display(), "catalog file refused, the old catalog serves on: {failure}");
            }
        }
    }
}

/// What tells one state of a file from the next.
fn stamp(path: &Path) -> Option<(SystemTime, u64)> {
    let metadata = std::fs::metadata(path).ok()?;
    Some((metadata.modified().ok()?, metadata.len()))
}

/// Loads a new snapshot whenever the revision moves, whoever moved it, until it is told to stop.
pub(crate) async fn watch_database(store: Store, shared: Arc<Shared>, registry: Arc<HealthRegistry>, stop: CancellationToken) {
    let mut known = shared.catalog.load().revision;
    let mut failing = false;
    loop {
        let looked = async {
            // After a failure the first answer counts, even if nothing changed.
            if failing { store.catalog.revision().await } else { store.catalog.wait_for_change(known).await }
        };
        let looked = tokio::select! {
            () = stop.cancelled() => return,
            looked = looked => looked,
        };
        let followed = match looked {
            Ok(revision) if revision == known => Ok(known),
            Ok(_) => follow(&store, &shared, &registry, known).await,
            Err(error) => Err(error.into()),
        };
        match followed {
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
                    tracing::warn!("cannot read the catalog, the known one serves on: {failure}");
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

/// Takes a new snapshot into force and drops what caches hold of the rows that changed.
async fn follow(store: &Store, shared: &Shared, registry: &HealthRegistry, known: Revision) -> Result<Revision, Failure> {
    let changed = store.catalog.changed_since(known).await?;
    let catalog = store.catalog.load().await?;
    let revision = catalog.revision;
    let catalog = Arc::new(catalog);
    shared.traffic.configure(catalog.accounts().map(|account| &**account));
    shared.replace_catalog(Arc::clone(&catalog));
    // Behind it: whoever hears that a rest is over finds the new credential.
    registry.configure(catalog.accounts().map(|account| &**account));
    for row in changed {
        match (row.kind, KeyId::parse(&row.id)) {
            (RowKind::Key, Some(key)) => {
                shared.keys.drop_key(key);
                shared.keys.clear_negatives();
            }
            (RowKind::Member | RowKind::Group | RowKind::Key, _) => shared.keys.clear(),
            (RowKind::Channel | RowKind::Account | RowKind::Model | RowKind::AdminKey, _) => {}
        }
    }
    Ok(revision)
}
