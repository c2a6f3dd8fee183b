//! Makes backups at the interval of the settings. The time of the next one follows from the existing files, so neither a restart
//! nor an upgrade makes an additional one.

use std::{sync::Arc, time::Duration};

use tokio::task::spawn_blocking;
use tokio_util::sync::CancellationToken;
use tollgate_console::{JobRequest, Jobs, ScheduledEnd};
use tollgate_core::Timestamp;
use tollgate_store::{BackupOrigin, StoreError};

use crate::{compose, live_settings::LiveSettings};

/// Interval of checks for a due backup.
const POLL_INTERVAL: Duration = Duration::from_secs(5);

/// Makes backups until `stop` is cancelled.
pub(crate) async fn run(settings: Arc<LiveSettings>, jobs: Jobs, stop: CancellationToken) {
    let scheduled = jobs.scheduled_backups().clone();
    while !stop.is_cancelled() && scheduled.is_supported() {
        let hours = settings.current().number("backup.interval_hours");
        if hours == 0 {
            scheduled.set_well();
        } else if is_due(&jobs, hours).await {
            match jobs.run_scheduled(JobRequest::Backup(BackupOrigin::Schedule)).await {
                ScheduledEnd::Done => scheduled.set_well(),
                ScheduledEnd::Failed(fault) => {
                    tracing::warn!(fault, "the scheduled backup was not made; this is tried again in 10 minutes");
                    note_failure(&jobs, fault).await;
                }
                // Another backup is being made, or this one was cancelled; it remains due.
                ScheduledEnd::NotRun => {}
            }
        } else if scheduled.failure().is_none() {
            scheduled.set_well();
        }
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(POLL_INTERVAL) => {}
        }
    }
}

async fn is_due(jobs: &Jobs, hours: u64) -> bool {
    let (last, now) = match newest(jobs).await {
        Ok(last) => (last, compose::now()),
        Err(fault) => {
            let now = compose::now();
            let scheduled = jobs.scheduled_backups();
            if scheduled.next(None, hours, now).is_some_and(|at| at <= now) {
                tracing::warn!(%fault, "the folder of backups cannot be read");
                note_failure(jobs, fault.to_string()).await;
            }
            return false;
        }
    };
    jobs.scheduled_backups().next(last, hours, now).is_some_and(|at| at <= now)
}

/// Records a failure, also in the folder of backups, so that the series of failures continues after a restart.
async fn note_failure(jobs: &Jobs, message: String) {
    let (scheduled, folder) = (jobs.scheduled_backups().clone(), jobs.backups().clone());
    let noting = spawn_blocking(move || {
        // If the folder cannot be read, no earlier notes are found.
        let noted = if scheduled.is_unknown() { folder.failing_since().unwrap_or_default() } else { None };
        folder.note_failure(&scheduled.set_failed(message, noted, compose::now()))
    });
    if let Ok(Err(fault)) = noting.await {
        tracing::debug!(%fault, "the failure of a scheduled backup was not stored; it is forgotten at a restart");
    }
}

/// When the newest backup of the schedule was made.
async fn newest(jobs: &Jobs) -> Result<Option<Timestamp>, StoreError> {
    let folder = jobs.backups().clone();
    let listed = spawn_blocking(move || folder.list()).await.unwrap_or_else(|_| Ok(Vec::new()))?;
    Ok(listed.iter().find(|file| file.origin == BackupOrigin::Schedule).map(|file| file.made_at))
}
