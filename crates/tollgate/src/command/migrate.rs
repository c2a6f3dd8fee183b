//! `migrate to-postgres`: a gateway leaves its SQLite file for PostgreSQL, without losing a record and nearly without a
//! stop: a first pass while it serves, a second one when it is stopped, then it starts on the new database.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::Instant;
use tollgate_store::{AccessMode, FolderLock, StoreError, StoreUrl, TransferProgress, TransferredTable};

use crate::{
    cli::{Common, Migrate},
    compose,
    config::Config,
    failure::Failure,
    output,
};

/// How often progress is told.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(1);

/// Runs one of the verbs.
pub(crate) fn run(common: &Common, verb: &Migrate) -> Result<(), Failure> {
    let Migrate::ToPostgres { target: url } = verb;
    let config = compose::settings(common, &[])?;
    let from = match compose::store_url(&config)? {
        StoreUrl::Sqlite(path) if path.exists() => path,
        StoreUrl::Sqlite(path) => {
            return Err(Failure::Machine(format!("there is no database at {}; check --data", path.display())));
        }
        StoreUrl::Postgres(_) | StoreUrl::Memory => {
            return Err(Failure::written("database.url: this gateway's database is not SQLite; there is nothing to move"));
        }
    };
    let to = match StoreUrl::parse(url)? {
        StoreUrl::Postgres(url) => StoreUrl::Postgres(url),
        StoreUrl::Sqlite(_) | StoreUrl::Memory => {
            return Err(Failure::Usage("the address of the new database begins with postgres://".to_owned()));
        }
    };
    compose::block_on(async {
        // Held to the end, so that nothing starts to serve in the middle of the last pass.
        let lock = match FolderLock::take(&config.data) {
            Ok(lock) => Some(lock),
            Err(StoreError::InUse { .. }) => None,
            Err(error) => return Err(error.into()),
        };
        // Checks the master key, and brings an older schema up to date (with a copy of the file before).
        compose::open_as(&config, AccessMode::Command).await?.close().await;
        let mut teller = ProgressReporter { quiet: common.quiet || common.json, last: None };
        let moved = tollgate_store::move_to_postgres(&from, &to, compose::now(), &mut |progress| teller.tell(progress)).await?;
        report(common, &config, &to, &moved, lock.is_none());
        Ok(())
    })
}

/// Tells progress, now and then.
struct ProgressReporter {
    quiet: bool,
    last: Option<Instant>,
}

impl ProgressReporter {
    fn tell(&mut self, progress: TransferProgress<'_>) {
        let now = Instant::now();
        let over = progress.done == progress.of;
        if !self.quiet && (over || self.last.is_none_or(|last| now >= last + PROGRESS_INTERVAL)) {
            self.last = Some(now);
            output::remark(&format!("{}: {} of {} rows", progress.table, progress.done, progress.of));
        }
    }
}

fn report(common: &Common, config: &Config, to: &StoreUrl, moved: &[TransferredTable], serves: bool) {
    if common.json {
        let tables: Vec<Value> =
            moved.iter().map(|table| json!({"table": table.name, "copied": table.copied, "rows": table.rows})).collect();
        output::json(&json!({"to": to.shown(), "tables": tables, "complete": !serves}));
        return;
    }
    let copied: u64 = moved.iter().map(|table| table.copied).sum();
    let rows: u64 = moved.iter().map(|table| table.rows).sum();
    output::line(&format!("{copied} rows copied to {}; {rows} rows in {} tables on both sides", to.shown(), moved.len()));
    if serves {
        output::line("a gateway still serves from this folder: stop it and run the same command again; it copies what came since");
    } else {
        output::line(&format!(
            "complete: start the gateway with this address as DATABASE_URL and the same data folder ({}):",
            config.data.display()
        ));
        output::line("its master key opens the new database too, and what its journal still holds is booked there at the start");
    }
}
