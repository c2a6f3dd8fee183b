//! Keeps an eye on a database that may be away: opens it when it comes back, writes what serves in its place, and ends the
//! serving of what is too old.

use std::{sync::Arc, time::Duration};

use tokio_util::sync::CancellationToken;
use tollgate_core::Timestamp;
use tollgate_gateway::state::shared::Shared;
use tollgate_store::{AccessMode, DatabaseStatus, Store};

use crate::{compose, config::Config, failure::Failure};

/// How often the database is asked for a sign of life.
const BEAT_EVERY: Duration = Duration::from_secs(1);
/// How often a start that waits for its database says so.
const SAY_EVERY: u32 = 10;

/// Opens the store for serving. A database that is away, with nothing known of it, is waited for.
pub(crate) async fn open(config: &Config, access: AccessMode) -> Result<Store, Failure> {
    let mut tries = 0;
    loop {
        match compose::open_as(config, access).await {
            Err(Failure::Unreachable(why)) => {
                if tries % SAY_EVERY == 0 {
                    tracing::warn!("waiting for the database, nothing is served yet: {why}");
                }
                tries += 1;
                tokio::time::sleep(BEAT_EVERY).await;
            }
            opened => return opened,
        }
    }
}

/// Watches until it is told to stop. A database that may not be served from any more ends the serving.
pub(crate) async fn watch(
    store: Store,
    shared: Arc<Shared>,
    config: DegradedLimits,
    stop: CancellationToken,
    stop_serving: CancellationToken,
) -> Result<(), Failure> {
    let mut written: Option<Timestamp> = None;
    let mut too_old = false;
    loop {
        tokio::select! {
            () = stop.cancelled() => return Ok(()),
            () = tokio::time::sleep(BEAT_EVERY) => {}
        }
        let now = compose::now();
        match store.beat(now).await {
            Ok(DatabaseStatus::There) => {
                if too_old {
                    tracing::info!("the database is back, keys are served again");
                    shared.condition.set_without_catalog(false);
                }
                too_old = false;
            }
            Ok(DatabaseStatus::Away { since }) => {
                shared.condition.set_degraded(true);
                let away = Duration::from_millis(u64::try_from(now.ms_since(since)).unwrap_or(0));
                if away > config.max_age && !too_old {
                    tracing::error!(away_s = away.as_secs(), "the database was away for too long, no key is served any more");
                    shared.condition.set_without_catalog(true);
                    too_old = true;
                }
                if too_old {
                    shared.keys.clear();
                }
                continue;
            }
            Err(error) => {
                tracing::error!("serving ends: {error}");
                stop_serving.cancel();
                return Err(error.into());
            }
        }
        let age = written.map_or(i64::MAX, |written| now.ms_since(written));
        if age >= i64::try_from(config.write_every.as_millis()).unwrap_or(i64::MAX) {
            written = Some(now);
            if let Err(error) = store.write_cache(now).await {
                shared.metrics.store_error("write_cache");
                tracing::warn!(%error, "what serves while the database is away was not written");
            }
        }
    }
}

/// The bounds of serving without a database.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DegradedLimits {
    max_age: Duration,
    write_every: Duration,
}

impl DegradedLimits {
    /// As they are set.
    pub(crate) fn of(config: &Config) -> Self {
        Self {
            max_age: Duration::from_secs(config.number("degraded.max_age_s")),
            write_every: config.millis("degraded.write_every_ms"),
        }
    }
}
