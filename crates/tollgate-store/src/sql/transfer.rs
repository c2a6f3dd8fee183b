//! Moving a gateway from its SQLite file to PostgreSQL, in passes. A pass copies what one moment of the file holds, in one
//! transaction of the target, so that it happens whole or not at all; the next pass copies what came since.
//!
//! Tables that only grow go by their row numbers; all others are copied whole in every pass. The vault is copied as it is:
//! both databases are sealed with the same master key. The journal stays where it is: the first start on PostgreSQL books
//! what it holds, each record once, because a record that was booked and copied is known by its id.

mod copy;

use std::path::PathBuf;

use sqlx::{AnyConnection, Connection as _, PgConnection, Row as _, SqliteConnection};
use tollgate_core::Timestamp;

use super::{
    Dialect, SqlAddress,
    connect::{failed, postgres_alone, sqlite_url},
    migrate, months,
};
use crate::StoreError;

use copy::{TransferColumn, TransferTable, columns, copy_rows, tables};

const READ: &str = "read the database that is moved";
const WRITE: &str = "write the database that is moved to";

/// Tables whose rows are only ever added, or dropped when they are old.
const GROWING: [&str; 5] = ["usage", "attempts", "ledger", "audit", "changes"];

/// What the target remembers of the last pass.
const NOTES: &str = "CREATE TABLE IF NOT EXISTS tollgate_moved (name TEXT PRIMARY KEY, last BIGINT NOT NULL, source TEXT NOT NULL)";

/// From where to where.
#[derive(Clone, Debug)]
pub(crate) struct DatabaseTransfer {
    pub(crate) from: PathBuf,
    /// The target's address, and the same without its password.
    pub(crate) url: String,
    pub(crate) place: String,
    pub(crate) now: Timestamp,
}

/// How far a pass is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TransferProgress<'a> {
    /// The table that is copied.
    pub table: &'a str,
    /// Rows copied of it in this pass.
    pub done: u64,
    /// Rows to copy of it in this pass.
    pub of: u64,
}

/// What a pass did to a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TransferredTable {
    /// Its name.
    pub name: String,
    /// Rows copied in this pass.
    pub copied: u64,
    /// Rows it has now, in both databases.
    pub rows: u64,
}

/// One pass.
pub(crate) async fn run(
    what: &DatabaseTransfer,
    progress: &mut (dyn FnMut(TransferProgress<'_>) + Send),
) -> Result<Vec<TransferredTable>, StoreError> {
    sqlx::any::install_default_drivers();
    // Held until the pass is over: no server may run on what is written.
    let _alone = postgres_alone(&what.url, &what.place).await?;
    migrate_target(what).await?;
    let mut pass = TransferPass::begin(what).await?;
    let moved = pass.copy(progress).await?;
    pass.commit().await?;
    Ok(moved)
}

async fn migrate_target(what: &DatabaseTransfer) -> Result<(), StoreError> {
    let address = SqlAddress::Postgres { url: what.url.clone(), place: what.place.clone() };
    let mut connection =
        AnyConnection::connect_with(&address.options()?).await.map_err(|error| failed(&what.place, WRITE, error))?;
    migrate::check(&mut connection, Dialect::Postgres, &what.place).await?;
    migrate::run(&mut connection, Dialect::Postgres, &what.place, what.now, migrate::ALL).await?;
    connection.close().await.map_err(|error| failed(&what.place, WRITE, error))
}

/// A pass under way: one moment of the source, one transaction of the target.
struct TransferPass<'w> {
    what: &'w DatabaseTransfer,
    source: SqliteConnection,
    target: PgConnection,
    /// Tells one source from another.
    fingerprint: String,
}

impl<'w> TransferPass<'w> {
    async fn begin(what: &'w DatabaseTransfer) -> Result<Self, StoreError> {
        let from = what.from.display().to_string();
        let reading = |error| failed(&from, READ, error);
        let writing = |error| failed(&what.place, WRITE, error);
        let mut source = SqliteConnection::connect(&sqlite_url(&what.from)).await.map_err(reading)?;
        let mut target = PgConnection::connect(&what.url).await.map_err(writing)?;
        sqlx::raw_sql("PRAGMA query_only = 1; PRAGMA busy_timeout = 5000; BEGIN").execute(&mut source).await.map_err(reading)?;
        let setup = "BEGIN; SET LOCAL statement_timeout = 0; SET LOCAL idle_in_transaction_session_timeout = 0;";
        sqlx::raw_sql(setup).execute(&mut target).await.map_err(writing)?;
        sqlx::raw_sql(NOTES).execute(&mut target).await.map_err(writing)?;
        let row =
            sqlx::query("SELECT hex(sealed) FROM vault WHERE name = 'check'").fetch_one(&mut source).await.map_err(reading)?;
        let fingerprint = row.try_get(0).map_err(reading)?;
        Ok(Self { what, source, target, fingerprint })
    }

    async fn commit(mut self) -> Result<(), StoreError> {
        let committed = sqlx::raw_sql("COMMIT").execute(&mut self.target).await;
        committed.map_err(|error| failed(&self.what.place, WRITE, error))?;
        // Only read: how these connections end changes nothing.
        let _ = self.target.close().await;
        let _ = self.source.close().await;
        Ok(())
    }

    async fn copy(&mut self, progress: &mut (dyn FnMut(TransferProgress<'_>) + Send)) -> Result<Vec<TransferredTable>, StoreError> {
        self.check_target().await?;
        self.make_months().await?;
        let from = self.what.from.display().to_string();
        let names = tables(&mut self.source).await.map_err(|error| failed(&from, READ, error))?;
        let mut moved = Vec::new();
        for name in names {
            moved.push(self.copy_table(&name, progress).await?);
        }
        let revision = self.target_number("SELECT value FROM counters WHERE name = 'revision'").await?;
        self.note(REVISION, revision).await?;
        Ok(moved)
    }

    /// The target must be new, or what the last pass from the same source left.
    async fn check_target(&mut self) -> Result<(), StoreError> {
        let refused = |detail: &str| StoreError::MoveRefused { place: self.what.place.clone(), detail: detail.to_owned() };
        let writing = |error| failed(&self.what.place, WRITE, error);
        let notes =
            sqlx::query("SELECT name, last, source FROM tollgate_moved").fetch_all(&mut self.target).await.map_err(writing)?;
        if notes.is_empty() {
            let rows = self.target_number("SELECT COUNT(*) FROM vault").await?;
            return if rows == 0 { Ok(()) } else { Err(refused("it belongs to another gateway already")) };
        }
        for row in &notes {
            let source: String = row.try_get("source").map_err(writing)?;
            if source != self.fingerprint {
                return Err(refused("it was filled from another gateway"));
            }
        }
        let noted = |wanted: &str| {
            notes
                .iter()
                .find(|row| row.try_get::<String, _>("name").is_ok_and(|name| name == wanted))
                .map(|row| row.try_get("last"))
        };
        let revision: i64 = noted(REVISION).transpose().map_err(writing)?.unwrap_or(0);
        let usage: i64 = noted(RECORDS).transpose().map_err(writing)?.unwrap_or(0);
        let now = self.target_number("SELECT value FROM counters WHERE name = 'revision'").await?;
        let records = self.target_number("SELECT COUNT(*) FROM usage").await?;
        if (now, records) != (revision, usage) {
            return Err(refused("it was used since the last pass; what was written there would be lost"));
        }
        Ok(())
    }

    async fn make_months(&mut self) -> Result<(), StoreError> {
        let from = self.what.from.display().to_string();
        let reading = |error| failed(&from, READ, error);
        let row = sqlx::query("SELECT MIN(at), MAX(at) FROM usage").fetch_one(&mut self.source).await.map_err(reading)?;
        let (first, last): (Option<i64>, Option<i64>) = (row.try_get(0).map_err(reading)?, row.try_get(1).map_err(reading)?);
        let now = self.what.now;
        let first = first.map_or(now, |first| Timestamp(first).min(now)).month();
        // A clock that was years off must not make hundreds of months; what has none is kept all the same.
        for month in first.max(now.month() - 120)..=last.map_or(now, |last| Timestamp(last).max(now)).month().min(now.month() + 2) {
            let (name, first, next) = months::bounds(month);
            let made = sqlx::query(months::MAKE_MONTH).bind(name).bind(first).bind(next).execute(&mut self.target).await;
            made.map_err(|error| failed(&self.what.place, WRITE, error))?;
        }
        Ok(())
    }

    async fn copy_table(
        &mut self,
        name: &str,
        progress: &mut (dyn FnMut(TransferProgress<'_>) + Send),
    ) -> Result<TransferredTable, StoreError> {
        let from = self.what.from.display().to_string();
        let reading = |error| failed(&from, READ, error);
        let columns: Vec<TransferColumn> = columns(&mut self.source, name).await.map_err(reading)?;
        let table = TransferTable { name, columns: &columns };
        let mut behind = if GROWING.contains(&name) { self.noted(name).await? } else { -1 };
        if behind >= 0 {
            // Old rows that were dropped meanwhile: the whole table is copied anew.
            let kept = table.count(&mut self.source, i64::MIN, behind).await.map_err(reading)?;
            let there = self.target_count(name).await?;
            behind = if kept == there { behind } else { -1 };
        }
        if behind < 0 {
            let sql = sqlx::AssertSqlSafe(format!("DELETE FROM {name}"));
            sqlx::query(sql).execute(&mut self.target).await.map_err(|error| failed(&self.what.place, WRITE, error))?;
        }
        let of = table.count(&mut self.source, behind, i64::MAX).await.map_err(reading)?;
        let mut told = |done| progress(TransferProgress { table: name, done, of });
        let copied = copy_rows(&mut self.source, &mut self.target, &table, behind, &mut told).await;
        let (copied, last) = copied.map_err(|fault| match fault {
            copy::TransferError::ReplySummary(error) => failed(&from, READ, error),
            copy::TransferError::Writing(error) => failed(&self.what.place, WRITE, error),
        })?;
        let rows = table.count(&mut self.source, i64::MIN, i64::MAX).await.map_err(reading)?;
        let there = self.target_count(name).await?;
        if rows != there {
            return Err(StoreError::MoveRefused {
                place: self.what.place.clone(),
                detail: format!("the table {name} has {there} rows there and {rows} here after copying; nothing was kept"),
            });
        }
        self.note(name, last.max(behind)).await?;
        if name == "usage" {
            self.note(RECORDS, i64::try_from(rows).unwrap_or(i64::MAX)).await?;
        }
        Ok(TransferredTable { name: name.to_owned(), copied, rows })
    }

    async fn noted(&mut self, name: &str) -> Result<i64, StoreError> {
        let writing = |error| failed(&self.what.place, WRITE, error);
        let row = sqlx::query("SELECT last FROM tollgate_moved WHERE name = $1").bind(name).fetch_optional(&mut self.target).await;
        row.map_err(writing)?.map_or(Ok(-1), |row| row.try_get(0).map_err(writing))
    }

    async fn note(&mut self, name: &str, last: i64) -> Result<(), StoreError> {
        let sql = "INSERT INTO tollgate_moved (name, last, source) VALUES ($1, $2, $3) \
                   ON CONFLICT (name) DO UPDATE SET last = excluded.last, source = excluded.source";
        let query = sqlx::query(sql).bind(name).bind(last).bind(&self.fingerprint);
        query.execute(&mut self.target).await.map(drop).map_err(|error| failed(&self.what.place, WRITE, error))
    }

    async fn target_count(&mut self, name: &str) -> Result<u64, StoreError> {
        let sql = format!("SELECT COUNT(*) FROM {name}");
        self.target_number(sql).await.map(|count| u64::try_from(count).unwrap_or(0))
    }

    async fn target_number(&mut self, sql: impl Into<String>) -> Result<i64, StoreError> {
        let row = sqlx::query(sqlx::AssertSqlSafe(sql.into())).fetch_one(&mut self.target).await;
        row.and_then(|row| row.try_get(0)).map_err(|error| failed(&self.what.place, WRITE, error))
    }
}

/// Names among the notes that are no tables.
const REVISION: &str = "(revision)";
const RECORDS: &str = "(records)";

#[cfg(test)]
mod tests;
