//! The end of `serve`.

use tollgate_gateway::{
    background::usage_writer::UsageBacklog,
    server::{Drained, RunError},
    state::shared::Shared,
};
use tollgate_store::{Journal, JournalFolder, Store};

use crate::{compose, config::Config, failure::Failure};

/// Closes the database. First marks it as cleanly closed, if all records are in it and no other process of the data folder runs.
/// In an upgrade the process that ends last does so, whether it is the new or the old one.
pub(super) async fn leave_database(
    config: &Config,
    store: &Store,
    (journal, folder): (&Journal, &JournalFolder),
    left: UsageBacklog,
) {
    if left.waiting > left.lost {
        let records = left.waiting - left.lost;
        tracing::warn!(records, "the last records are not in the database; they are kept in the journal");
    }
    match folder.others(&compose::journal_folder(&config.data)) {
        Ok((ended, 0)) => {
            if let Err(fault) = store.stop_watching_keys().await {
                tracing::debug!(%fault, "a rotation of the master key will wait for this gateway's answer");
            }
            let is_empty = |folder: &JournalFolder| folder.is_empty().unwrap_or(false);
            if left.waiting == 0
                && journal.unbooked() == 0
                && ended.iter().all(is_empty)
                && let Err(fault) = store.finish_journal().await
            {
                tracing::debug!(%fault, "the database was not marked as cleanly closed");
            }
        }
        Ok(_) => {}
        Err(error) => tracing::debug!(%error, "the journals of other processes cannot be read"),
    }
    store.close().await;
}

pub(super) fn report_open_reservations(shared: &Shared) {
    let open = shared.counters.own_reservations();
    if open > 0 {
        tracing::error!(reservations = open, "reservations were not released by their requests");
    }
}

pub(super) fn exit_status(
    config: &Config,
    drained: Result<Drained, RunError>,
    left: UsageBacklog,
    is_ending_now: bool,
) -> Result<(), Failure> {
    match drained {
        _ if left.lost > 0 => Err(Failure::Machine(format!(
            "{} requests are lost: neither the database nor the journal in {} took their records; free space on its disk",
            left.lost,
            compose::journal_folder(&config.data).display()
        ))),
        Ok(Drained::Complete) => Ok(()),
        Ok(Drained::CutOff(count)) if is_ending_now => {
            Err(Failure::Machine(format!("{count} responses were cut off by a second signal")))
        }
        Ok(Drained::CutOff(count)) => {
            let limit = config.number("server.drain_timeout_ms");
            Err(Failure::Machine(format!("{count} responses were cut off after {limit} ms (server.drain_timeout_ms)")))
        }
        Err(error) => Err(cannot_run(&error)),
    }
}

pub(crate) fn cannot_run(error: &RunError) -> Failure {
    match error {
        RunError::Tls(_) => Failure::invalid(error.to_string()),
        RunError::Core { .. } | RunError::Ended(_) => Failure::Machine(error.to_string()),
    }
}
