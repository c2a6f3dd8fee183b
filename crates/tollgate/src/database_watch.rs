//! Follows the availability of the database: waits for it at the start, writes the cache that serves while it is unreachable, and
//! stops serving from a cache that is too old.

use std::{sync::Arc, time::Duration};

use tokio_util::sync::CancellationToken;
use tollgate_core::Timestamp;
use tollgate_gateway::state::shared::Shared;
use tollgate_store::{AccessMode, DatabaseStatus, Store};

use crate::{compose, config::Config, failure::Failure, live_settings::LiveSettings};

/// Interval of heartbeat queries.
const HEARTBEAT_INTERVAL: Duration = Duration::from_secs(1);
/// Failed heartbeats per log message while waiting for the database at the start.
const HEARTBEATS_PER_MESSAGE: u32 = 10;

/// Opens the store for serving. Waits while the database is unreachable and there is no usable cache.
pub(crate) async fn open(config: &Config, access: AccessMode) -> Result<Store, Failure> {
    let mut tries = 0;
    loop {
        match compose::open_as(config, access).await {
            Err(Failure::Unreachable(why)) => {
                if tries % HEARTBEATS_PER_MESSAGE == 0 {
                    tracing::warn!("waiting for the database, nothing is served yet: {why}");
                }
                tries += 1;
                tokio::time::sleep(HEARTBEAT_INTERVAL).await;
            }
            opened => return opened,
        }
    }
}

/// Runs until `stop` is cancelled.
/// When the gateway must no longer serve from the database (for example, because its schema is newer), cancels `stop_serving`
/// and fails.
pub(crate) async fn watch(
    store: Store,
    (shared, settings): (Arc<Shared>, Arc<LiveSettings>),
    stop: CancellationToken,
    stop_serving: CancellationToken,
) -> Result<(), Failure> {
    // Read only at the start, because the contents of the cache depend on it.
    let max_age = Duration::from_secs(settings.current().number("degraded.max_age_s"));
    let mut written: Option<Timestamp> = None;
    let mut too_old = false;
    loop {
        tokio::select! {
            () = stop.cancelled() => return Ok(()),
            () = tokio::time::sleep(HEARTBEAT_INTERVAL) => {}
        }
        let now = compose::now();
        match store.heartbeat(now).await {
            Ok(DatabaseStatus::Available) => {
                if too_old {
                    tracing::info!("the database is reachable again, keys are served");
                    shared.serving.set_without_catalog(false);
                }
                too_old = false;
            }
            Ok(DatabaseStatus::Unavailable { since }) => {
                shared.serving.set_degraded(true);
                let outage = Duration::from_millis(u64::try_from(now.ms_since(since)).unwrap_or(0));
                if outage > max_age && !too_old {
                    tracing::error!(
                        away_s = outage.as_secs(),
                        "the database has been unreachable for too long, keys are no longer served"
                    );
                    shared.serving.set_without_catalog(true);
                    too_old = true;
                }
                if too_old {
                    shared.keys.clear();
                }
                continue;
            }
            Err(error) => {
                tracing::error!("stopping: {error}");
                stop_serving.cancel();
                return Err(error.into());
            }
        }
        let age = written.map_or(i64::MAX, |written| now.ms_since(written));
        let write_every = settings.current().millis("degraded.write_every_ms");
        if age >= i64::try_from(write_every.as_millis()).unwrap_or(i64::MAX) {
            written = Some(now);
            if let Err(error) = store.write_cache(now).await {
                shared.metrics.store_error("write_cache");
                tracing::warn!(%error, "the cache for database outages was not written");
            }
        }
    }
}
