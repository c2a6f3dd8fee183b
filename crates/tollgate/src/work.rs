//! Long work on a data folder: one function for each kind, which the command calls, and a running gateway for a job. It reports
//! its progress, ends soon after it is cancelled, and returns the output of the command.

pub(crate) mod backup;
pub(crate) mod backup_check;
pub(crate) mod doctor;
pub(crate) mod export;
pub(crate) mod import;
mod ports;
pub(crate) mod replay;
pub(crate) mod verify;

use tollgate_store::{Store, WorkControl};

use crate::{compose, config::Config, failure::Failure};

/// Opens the database of these settings for one piece of work, and closes it afterwards.
fn with_store<T, E: From<Failure>>(
    config: &Config,
    control: &WorkControl,
    work: impl AsyncFnOnce(&Store) -> Result<T, E>,
) -> Result<T, E> {
    compose::runtime()?.block_on(async {
        let store = compose::open_required(config).await?;
        let result = work(&store).await;
        // A query of cancelled work may still run; closing its connection would wait for it.
        if !control.is_cancelled() {
            store.close().await;
        }
        result
    })
}
