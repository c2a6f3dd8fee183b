//! Follows the master key and the data key while they are rotated: reads a changed key file without a restart, and reports to
//! the rotation which keys this gateway holds.

use std::time::Duration;

use tokio_util::sync::CancellationToken;
use tollgate_store::Store;

use crate::{compose, failure::Failure, last_fault::LastFault};

/// How often keys are compared.
const INTERVAL: Duration = Duration::from_secs(1);

/// Announces this gateway to rotations. If the database is unreachable or takes no writes, it does so later.
///
/// # Errors
/// The keys cannot be read.
pub(crate) async fn announce(store: &Store) -> Result<(), Failure> {
    match store.watch_keys().await {
        Err(fault) if !fault.is_unreachable() => Err(fault.into()),
        Ok(_) | Err(_) => Ok(()),
    }
}

/// Runs until `stop` is cancelled.
pub(crate) async fn run(store: Store, stop: CancellationToken) {
    let mut last_fault = LastFault::default();
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(INTERVAL) => {}
        }
        let watched = store.watch_keys().await;
        if let Some(fault) = last_fault.observe(&watched) {
            tracing::error!("the keys in use stay: {fault}");
        }
        if let Ok(true) = watched {
            tracing::info!("the keys that seal secrets have changed; the new ones are in use");
            renew_cache(&store).await;
        }
    }
}

/// Seals the cache for outages with the new master key.
async fn renew_cache(store: &Store) {
    if let Err(fault) = store.write_cache(compose::now()).await {
        tracing::warn!(%fault, "the cache for database outages was not written");
    }
}
