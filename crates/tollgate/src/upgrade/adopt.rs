//! Books the records that another process of this folder has left in its journal, because it ended after an upgrade before
//! it had booked everything.

use std::{io, path::PathBuf, sync::Arc, time::Duration};

use tokio_util::sync::CancellationToken;
use tollgate_gateway::{background::usage_writer::replay, state::shared::Shared};
use tollgate_store::{Journal, JournalFolder, JournalOptions, Store};
use uuid::Uuid;

use crate::compose;

/// How often the folders of other processes are checked.
const CHECK_INTERVAL: Duration = Duration::from_millis(500);

/// Watches the folders beside `own` until no other process writes one, or `stop` is cancelled.
pub(crate) async fn watch(own: Arc<JournalFolder>, root: PathBuf, store: Store, shared: Arc<Shared>, stop: CancellationToken) {
    while !stop.is_cancelled() {
        match adopt(&own, &root, &store, &shared).await {
            Ok(true) => return,
            Ok(false) => {}
            Err(error) => tracing::warn!(%error, "the journal of an ended process cannot be booked yet"),
        }
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(CHECK_INTERVAL) => {}
        }
    }
}

/// Books the journals of ended processes. True if no other process writes one.
async fn adopt(own: &JournalFolder, root: &std::path::Path, store: &Store, shared: &Shared) -> io::Result<bool> {
    let (left, written) = own.others(root).map_err(io::Error::other)?;
    for folder in left {
        if !folder.is_empty().map_err(io::Error::other)? {
            let options = JournalOptions::new(folder.path().to_owned(), Uuid::nil());
            let opened = tokio::task::spawn_blocking(move || Journal::open(options)).await.map_err(io::Error::other)?;
            let (journal, recovery) = opened.map_err(io::Error::other)?;
            // Requests without a reservation in this process were counted when they ended.
            for record in journal.backlog().map_err(io::Error::other)?.flatten() {
                if shared.counters.has_reservation(record.id) {
                    shared.counters.settle(&record, compose::instant());
                }
            }
            let booked = replay(&*store.usage, &journal, recovery.records).await.map_err(io::Error::other)?;
            tracing::info!(booked, stopped = recovery.stopped.len(), "booked the journal that an ended process left behind");
        }
        folder.remove_if_empty(root);
    }
    Ok(written == 0)
}
