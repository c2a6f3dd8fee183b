//! `migrate to-postgres`: copies the SQLite database of a gateway to PostgreSQL without losing records and with little downtime: a
//! first pass while it serves, a second one while it is stopped; then it starts on the new database.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::Instant;
use tollgate_store::{AccessMode, DataFolderLock, StoreError, StoreUrl, TransferProgress, TransferredTable};

use crate::{
    cli::{Common, Migrate},
    compose,
    config::Config,
    failure::Failure,
    live_settings, output,
};

const PROGRESS_INTERVAL: Duration = Duration::from_secs(1);

pub(crate) fn run(common: &Common, subcommand: &Migrate) -> Result<(), Failure> {
    let Migrate::ToPostgres { target: url } = subcommand;
    let config = compose::settings(common, &[])?;
    let from = match compose::store_url(&config)? {
        StoreUrl::Sqlite(path) if path.exists() => path,
        StoreUrl::Sqlite(path) => {
            return Err(Failure::Machine(format!("there is no database at {}; check --data", path.display())));
        }
        StoreUrl::Postgres(_) | StoreUrl::Memory => {
            return Err(Failure::invalid("database.url: this gateway's database is not SQLite; there is nothing to move"));
        }
    };
    let to = match StoreUrl::parse(url)? {
        StoreUrl::Postgres(url) => StoreUrl::Postgres(url),
        StoreUrl::Sqlite(_) | StoreUrl::Memory => {
            return Err(Failure::Usage("the address of the new database must begin with postgres://".to_owned()));
        }
    };
    compose::block_on(async {
        // Held to the end, so that no gateway starts during the last pass.
        let lock = match DataFolderLock::take(&config.data) {
            Ok(lock) => Some(lock),
            Err(StoreError::InUse { .. }) => None,
            Err(error) => return Err(error.into()),
        };
        // Validates the master key and migrates an older schema (after copying the file).
        let store = compose::open_as(&config, AccessMode::Command).await?;
        let keep_days = live_settings::with_stored(&config, &live_settings::stored(&store).await?).number("usage.retention_days");
        store.close().await;
        let mut reporter = MigrationReporter { quiet: common.quiet || common.json, last: None };
        let mut progress = |progress: TransferProgress<'_>| reporter.report(progress);
        let moved = tollgate_store::transfer_to_postgres(&from, &to, compose::now(), keep_days, &mut progress).await?;
        report(common, &config, &to, &moved, lock.is_none());
        Ok(())
    })
}

/// Explains why a running gateway cannot do this.
pub(crate) fn of_a_stopped_gateway(failure: Failure) -> Failure {
    let Failure::Usage(text) = failure else { return failure };
    Failure::Usage(format!(
        "a running gateway has brought its database up to date when it started, and moves to another one only while it is stopped; {text}"
    ))
}

struct MigrationReporter {
    quiet: bool,
    last: Option<Instant>,
}

impl MigrationReporter {
    fn report(&mut self, progress: TransferProgress<'_>) {
        let now = compose::instant();
        let is_done = progress.done == progress.of;
        if !self.quiet && (is_done || self.last.is_none_or(|last| now >= last + PROGRESS_INTERVAL)) {
            self.last = Some(now);
            output::remark(&format!("{}: {} of {} rows", progress.table, progress.done, progress.of));
        }
    }
}

fn report(common: &Common, config: &Config, to: &StoreUrl, moved: &[TransferredTable], is_serving: bool) {
    if common.json {
        let tables: Vec<Value> =
            moved.iter().map(|table| json!({"table": table.name, "copied": table.copied, "rows": table.rows})).collect();
        output::json(&json!({"to": to.shown(), "tables": tables, "complete": !is_serving}));
        return;
    }
    let copied: u64 = moved.iter().map(|table| table.copied).sum();
    let rows: u64 = moved.iter().map(|table| table.rows).sum();
    output::line(&format!("{copied} rows copied to {}; {rows} rows in {} tables on both sides", to.shown(), moved.len()));
    if is_serving {
        output::line("a gateway still serves from this folder: stop it and run the same command again to copy the new rows");
    } else {
        output::line(&format!(
            "complete: start the gateway with this address as DATABASE_URL and the same data folder ({}):",
            config.data.display()
        ));
        output::line("keep its master key; records that are still in its journal are written to the new database at the start");
    }
}
