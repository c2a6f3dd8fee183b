//! Starts an export as soon as a day is finished, and counts exports in the metrics. With several nodes on a database, the first node
//! that finds a due day exports it, and the others find nothing to do.

use std::{sync::Arc, time::Duration};

use tokio_util::sync::CancellationToken;
use tollgate_console::{ExportRequest, JobRequest, Jobs, ScheduledEnd, export_days};
use tollgate_core::Timestamp;
use tollgate_gateway::state::{metrics::ExportFigures, shared::Shared};
use tollgate_store::{Store, StoreError};

use crate::{compose, config::Config, live_settings::LiveSettings};

/// Interval of checks for a due day.
const POLL_INTERVAL: Duration = Duration::from_mins(1);
/// Pause after an export that failed or left out a day because another node exports or records wait in the journal.
const RETRY_MS: i64 = 10 * 60_000;

/// Exports days until `stop` is cancelled; does nothing without storage in the settings.
pub(crate) async fn run(settings: Arc<LiveSettings>, store: Store, shared: Arc<Shared>, jobs: Jobs, stop: CancellationToken) {
    let mut rests_since: Option<Timestamp> = None;
    while settings.current().export_endpoint.is_some() {
        let now = compose::now();
        let rests = rests_since.is_some_and(|at| (0..RETRY_MS).contains(&now.ms_since(at)));
        match look(&store, &settings.current(), &shared, now).await {
            Ok(true) if !rests => {
                if let ScheduledEnd::Failed(fault) = jobs.run_scheduled(JobRequest::Export(ExportRequest::Due)).await {
                    shared.metrics.export_failed();
                    tracing::warn!(fault, "usage records were not exported; this is tried again in 10 minutes");
                }
                let is_left = look(&store, &settings.current(), &shared, compose::now()).await.unwrap_or(true);
                rests_since = is_left.then(compose::now);
            }
            Ok(_) => {}
            // `database_watch` reports this.
            Err(fault) => tracing::debug!(%fault, "it is not known which days are to be exported"),
        }
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(POLL_INTERVAL) => {}
        }
    }
}

/// Updates the metrics. Returns whether a day is to be exported.
async fn look(store: &Store, config: &Config, shared: &Shared, now: Timestamp) -> Result<bool, StoreError> {
    let until = export_days::first_unfinished(now, config.number("export.delay_minutes"));
    let due = export_days::unexported(store, until).await?;
    let exported = store.exports.exported_days(i64::MIN).await?;
    shared.metrics.exports(&ExportFigures {
        days: exported.len() as u64,
        records: exported.iter().map(|day| day.records).sum(),
        bytes: exported.iter().map(|day| day.bytes).sum(),
        due: due.len() as u64,
        last_success: exported.iter().map(|day| day.at).max(),
    });
    Ok(due.iter().any(|day| !day.waits(now)))
}
