//! Keeps disk space in reserve, and frees it when the disk is full, so that the database can take the waiting records. Until
//! then records are not written to the journal, which would use up that space.

use std::{sync::Arc, time::Duration};

use tokio_util::sync::CancellationToken;
use tollgate_gateway::state::shared::Shared;
use tollgate_store::{DiskReserve, DiskSpace, Journal};

use crate::{config::Config, live_settings::LiveSettings};

const CHECK_INTERVAL: Duration = Duration::from_secs(1);

pub(crate) fn reserve(config: &Config) -> DiskReserve {
    DiskReserve::new(&config.data, config.number("journal.reserve_bytes"))
}

/// Watches the disk until `stop` is cancelled.
pub(crate) async fn watch(
    mut reserve: DiskReserve,
    journal: Arc<Journal>,
    (shared, settings): (Arc<Shared>, Arc<LiveSettings>),
    stop: CancellationToken,
) {
    let mut was_scarce = false;
    while !stop.is_cancelled() {
        reserve.resize(settings.current().number("journal.reserve_bytes"));
        let checked = reserve.clone();
        // Allocating may take long on some file systems.
        let space = tokio::task::spawn_blocking(move || checked.update()).await.unwrap_or(DiskSpace::Enough);
        let is_scarce = space == DiskSpace::Scarce;
        journal.pause_writing(is_scarce);
        shared.serving.set_disk_full(is_scarce);
        if is_scarce != was_scarce {
            if is_scarce {
                tracing::warn!("the disk of the data folder has too little space; free some");
            } else {
                tracing::info!("the disk of the data folder has space again");
            }
        }
        was_scarce = is_scarce;
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(CHECK_INTERVAL) => {}
        }
    }
}
