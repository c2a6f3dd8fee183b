//! Transfers a gateway from its SQLite file to PostgreSQL, in passes. A pass copies one snapshot of the file in one transaction of the
//! target; the next pass copies the rows added since.
//!
//! Append-only tables are copied incrementally, by row number or by request id, all others completely in every pass. The sealed
//! keys are copied unchanged, because both databases use the same master key. The journal is not moved: the first start on
//! PostgreSQL appends its records, and skips the copied ones by id.

mod copy;

use std::path::PathBuf;

use sqlx::{AnyConnection, Connection as _, PgConnection, Row as _, SqliteConnection, postgres::PgRow};
use tollgate_core::Timestamp;

use super::{
    address::{SqlAddress, sqlite_url},
    cells::request_id,
    dialect::Dialect,
    driver_error::failed,
    migrate,
    partitions::{self, DayRange},
    server_lock::lock_exclusively,
};
use crate::StoreError;
use copy::{CopiedUntil, CopyOrder, TransferColumn, TransferTable, columns, copy_rows, tables};

const READ: &str = "read the database that is moved";
const WRITE: &str = "write the database that is moved to";

/// Tables whose rows are added and removed when they are old, but never updated; with the order of their rows.
const APPEND_ONLY: [(&str, CopyOrder); 7] = [
    ("usage", CopyOrder::RequestId("id")),
    ("attempts", CopyOrder::RequestId("request")),
    ("ledger", CopyOrder::RowNumber),
    ("audit", CopyOrder::RowNumber),
    ("changes", CopyOrder::RowNumber),
    ("price_history", CopyOrder::RowNumber),
    ("offer_history", CopyOrder::RowNumber),
];

/// Table of the target with the state of the last pass.
const CREATE_STATE: &str =
    "CREATE TABLE IF NOT EXISTS tollgate_moved (name TEXT PRIMARY KEY, last BIGINT NOT NULL, source TEXT NOT NULL)";

#[derive(Clone, Debug)]
pub(crate) struct DatabaseTransfer {
    pub(crate) from: PathBuf,
    /// Address of the target, including the password.
    pub(crate) url: String,
    /// Address of the target without the password.
    pub(crate) shown: String,
    pub(crate) now: Timestamp,
    /// Days for which the gateway keeps records; 0: for ever.
    pub(crate) keep_days: u64,
}

/// Progress of a transfer: the rows of a table that are copied, and all its rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TransferProgress<'a> {
    pub table: &'a str,
    pub done: u64,
    pub of: u64,
}

/// A table that is copied: rows of this pass, and rows in all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TransferredTable {
    pub name: String,
    pub copied: u64,
    /// Rows of the table, the same in both databases.
    pub rows: u64,
}

pub(crate) async fn run(
    transfer: &DatabaseTransfer,
    progress: &mut (dyn FnMut(TransferProgress<'_>) + Send),
) -> Result<Vec<TransferredTable>, StoreError> {
    sqlx::any::install_default_drivers();
    let address = SqlAddress::Postgres { url: transfer.url.clone(), shown: transfer.shown.clone() };
    // Held until the pass ends, so that no server runs on the target.
    let _lock = lock_exclusively(&address).await?;
    migrate_target(transfer, &address).await?;
    let mut pass = TransferPass::begin(transfer).await?;
    let transferred = pass.copy(progress).await?;
    pass.commit().await?;
    Ok(transferred)
}

async fn migrate_target(transfer: &DatabaseTransfer, address: &SqlAddress) -> Result<(), StoreError> {
    let target = &transfer.shown;
    let writing = |error| failed(target, WRITE, error);
    let mut connection = AnyConnection::connect_with(&address.connect_options()?).await.map_err(writing)?;
    migrate::check(&mut connection, Dialect::Postgres, target).await?;
    migrate::run(&mut connection, Dialect::Postgres, target, transfer.now, migrate::ALL).await?;
    connection.close().await.map_err(writing)
}

/// A pass in progress: a snapshot of the source and a transaction of the target.
struct TransferPass<'t> {
    transfer: &'t DatabaseTransfer,
    source: SqliteConnection,
    target: PgConnection,
    /// Identifies the source: its sealed check value, which is unique because of the random nonce.
    fingerprint: String,
}

impl<'t> TransferPass<'t> {
    async fn begin(transfer: &'t DatabaseTransfer) -> Result<Self, StoreError> {
        let from = transfer.from.display().to_string();
        let reading = |error| failed(&from, READ, error);
        let writing = |error| failed(&transfer.shown, WRITE, error);
        let mut source = SqliteConnection::connect(&sqlite_url(&transfer.from)).await.map_err(reading)?;
        let mut target = PgConnection::connect(&transfer.url).await.map_err(writing)?;
        sqlx::raw_sql("PRAGMA query_only = 1; PRAGMA busy_timeout = 5000; BEGIN").execute(&mut source).await.map_err(reading)?;
        let setup = "BEGIN; SET LOCAL statement_timeout = 0; SET LOCAL idle_in_transaction_session_timeout = 0;";
        sqlx::raw_sql(setup).execute(&mut target).await.map_err(writing)?;
        sqlx::raw_sql(CREATE_STATE).execute(&mut target).await.map_err(writing)?;
        let row =
            sqlx::query("SELECT hex(sealed) FROM data_keys WHERE name = 'check'").fetch_one(&mut source).await.map_err(reading)?;
        let fingerprint = row.try_get(0).map_err(reading)?;
        Ok(Self { transfer, source, target, fingerprint })
    }

    async fn commit(mut self) -> Result<(), StoreError> {
        let committed = sqlx::raw_sql("COMMIT").execute(&mut self.target).await;
        committed.map_err(|error| failed(&self.transfer.shown, WRITE, error))?;
        // Everything is committed: errors of closing do not matter.
        let _ = self.target.close().await;
        let _ = self.source.close().await;
        Ok(())
    }

    async fn copy(&mut self, progress: &mut (dyn FnMut(TransferProgress<'_>) + Send)) -> Result<Vec<TransferredTable>, StoreError> {
        self.check_target().await?;
        self.create_partitions().await?;
        let from = self.transfer.from.display().to_string();
        let names = tables(&mut self.source).await.map_err(|error| failed(&from, READ, error))?;
        let mut transferred = Vec::new();
        for name in names {
            transferred.push(self.copy_table(&name, progress).await?);
        }
        let revision = self.target_number("SELECT value FROM counters WHERE name = 'revision'").await?;
        self.save_state(REVISION, revision).await?;
        Ok(transferred)
    }

    /// Refuses a target that is neither new nor unchanged since the last pass from the same source.
    async fn check_target(&mut self) -> Result<(), StoreError> {
        let refused =
            |detail: &str| StoreError::TransferRefused { database: self.transfer.shown.clone(), detail: detail.to_owned() };
        let writing = |error| failed(&self.transfer.shown, WRITE, error);
        let state =
            sqlx::query("SELECT name, last, source FROM tollgate_moved").fetch_all(&mut self.target).await.map_err(writing)?;
        if state.is_empty() {
            let rows = self.target_number("SELECT COUNT(*) FROM data_keys").await?;
            return if rows == 0 { Ok(()) } else { Err(refused("it belongs to another gateway already")) };
        }
        for row in &state {
            let source: String = row.try_get("source").map_err(writing)?;
            if source != self.fingerprint {
                return Err(refused("it was filled from another gateway"));
            }
        }
        let saved = |wanted: &str| {
            state
                .iter()
                .find(|row| row.try_get::<String, _>("name").is_ok_and(|name| name == wanted))
                .map(|row| row.try_get("last"))
        };
        let revision: i64 = saved(REVISION).transpose().map_err(writing)?.unwrap_or(0);
        let usage: i64 = saved(RECORDS).transpose().map_err(writing)?.unwrap_or(0);
        let now = self.target_number("SELECT value FROM counters WHERE name = 'revision'").await?;
        let records = self.target_number("SELECT COUNT(*) FROM usage").await?;
        if (now, records) != (revision, usage) {
            return Err(refused("it was used since the last pass; what was written there would be lost"));
        }
        Ok(())
    }

    async fn create_partitions(&mut self) -> Result<(), StoreError> {
        let from = self.transfer.from.display().to_string();
        let reading = |error| failed(&from, READ, error);
        let row = sqlx::query("SELECT MIN(id) FROM usage").fetch_one(&mut self.source).await.map_err(reading)?;
        let first: Option<Vec<u8>> = row.try_get(0).map_err(reading)?;
        let first = first.map(|id| request_id(&id)).transpose().map_err(reading)?;
        let today = self.transfer.now.day();
        let first = first.map_or(today, |first| first.time().day().min(today));
        let writing = |error| failed(&self.transfer.shown, WRITE, error);
        let rows = sqlx::query(partitions::LIST_PARTITIONS).bind("usage").fetch_all(&mut self.target).await.map_err(writing)?;
        let range = |row: &PgRow| DayRange::between([row.try_get(0)?, row.try_get(1)?]);
        let existing = rows.iter().map(range).collect::<Result<Vec<_>, _>>().map_err(writing)?;
        for range in partitions::missing(&existing, first, today, self.transfer.keep_days) {
            for table in partitions::TABLES {
                let [first, next] = range.ids();
                let create = sqlx::query(partitions::CREATE_PARTITION).bind(table).bind(range.suffix()).bind(first).bind(next);
                create.execute(&mut self.target).await.map_err(writing)?;
            }
        }
        Ok(())
    }

    async fn copy_table(
        &mut self,
        name: &str,
        progress: &mut (dyn FnMut(TransferProgress<'_>) + Send),
    ) -> Result<TransferredTable, StoreError> {
        let from = self.transfer.from.display().to_string();
        let reading = |error| failed(&from, READ, error);
        let columns: Vec<TransferColumn> = columns(&mut self.source, name).await.map_err(reading)?;
        let order = APPEND_ONLY.iter().find(|(table, _)| *table == name).map_or(CopyOrder::None, |(_, order)| *order);
        let table = TransferTable { name, columns: &columns, order };
        let mut after = self.copied_until(name, order).await?;
        if after != CopiedUntil::Nothing {
            // If rows were removed from the source meanwhile, or added before the last one, the whole table is copied again.
            let kept = table.count(&mut self.source, &after, false).await.map_err(reading)?;
            let copied = self.target_count(name).await?;
            after = if kept == copied { after } else { CopiedUntil::Nothing };
        }
        if after == CopiedUntil::Nothing {
            let sql = sqlx::AssertSqlSafe(format!("DELETE FROM {name}"));
            sqlx::query(sql).execute(&mut self.target).await.map_err(|error| failed(&self.transfer.shown, WRITE, error))?;
        }
        let of = table.count(&mut self.source, &after, true).await.map_err(reading)?;
        let mut report = |done| progress(TransferProgress { table: name, done, of });
        let copied = copy_rows(&mut self.source, &mut self.target, &table, after, &mut report).await;
        let (copied, last) = copied.map_err(|error| match error {
            copy::CopyError::Read(error) => failed(&from, READ, error),
            copy::CopyError::Write(error) => failed(&self.transfer.shown, WRITE, error),
        })?;
        let rows = table.count(&mut self.source, &CopiedUntil::Nothing, true).await.map_err(reading)?;
        let target_rows = self.target_count(name).await?;
        if rows != target_rows {
            return Err(StoreError::TransferRefused {
                database: self.transfer.shown.clone(),
                detail: format!("the table {name} has {target_rows} rows there and {rows} here after copying; nothing was kept"),
            });
        }
        self.save_state(name, if let CopiedUntil::Row(row) = last { row } else { -1 }).await?;
        if name == "usage" {
            self.save_state(RECORDS, i64::try_from(rows).unwrap_or(i64::MAX)).await?;
        }
        Ok(TransferredTable { name: name.to_owned(), copied, rows })
    }

    /// Position at which the last pass ended.
    async fn copied_until(&mut self, name: &str, order: CopyOrder) -> Result<CopiedUntil, StoreError> {
        Ok(match order {
            CopyOrder::None => CopiedUntil::Nothing,
            CopyOrder::RowNumber => match self.saved_state(name).await? {
                row @ 0.. => CopiedUntil::Row(row),
                _ => CopiedUntil::Nothing,
            },
            CopyOrder::RequestId(column) => {
                // The newest id in the target.
                let sql = sqlx::AssertSqlSafe(format!("SELECT {column} FROM {name} ORDER BY {column} DESC LIMIT 1"));
                let row = sqlx::query(sql).fetch_optional(&mut self.target).await;
                let id = row.and_then(|row| row.map(|row| row.try_get(0)).transpose());
                let id = id.map_err(|error| failed(&self.transfer.shown, WRITE, error))?;
                id.map_or(CopiedUntil::Nothing, CopiedUntil::Request)
            }
        })
    }

    /// The row number up to which a table was copied; -1 before the first pass.
    async fn saved_state(&mut self, name: &str) -> Result<i64, StoreError> {
        let writing = |error| failed(&self.transfer.shown, WRITE, error);
        let row = sqlx::query("SELECT last FROM tollgate_moved WHERE name = $1").bind(name).fetch_optional(&mut self.target).await;
        row.map_err(writing)?.map_or(Ok(-1), |row| row.try_get(0).map_err(writing))
    }

    async fn save_state(&mut self, name: &str, last: i64) -> Result<(), StoreError> {
        let sql = "INSERT INTO tollgate_moved (name, last, source) VALUES ($1, $2, $3) \
                   ON CONFLICT (name) DO UPDATE SET last = excluded.last, source = excluded.source";
        let query = sqlx::query(sql).bind(name).bind(last).bind(&self.fingerprint);
        query.execute(&mut self.target).await.map(drop).map_err(|error| failed(&self.transfer.shown, WRITE, error))
    }

    async fn target_count(&mut self, name: &str) -> Result<u64, StoreError> {
        let sql = format!("SELECT COUNT(*) FROM {name}");
        self.target_number(sql).await.map(|count| u64::try_from(count).unwrap_or(0))
    }

    async fn target_number(&mut self, sql: impl Into<String>) -> Result<i64, StoreError> {
        let row = sqlx::query(sqlx::AssertSqlSafe(sql.into())).fetch_one(&mut self.target).await;
        row.and_then(|row| row.try_get(0)).map_err(|error| failed(&self.transfer.shown, WRITE, error))
    }
}

/// Names in the state that are not tables.
const REVISION: &str = "(revision)";
const RECORDS: &str = "(records)";

#[cfg(test)]
mod tests;
