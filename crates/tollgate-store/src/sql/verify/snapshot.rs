//! One snapshot of the database for checks that read all of it. On SQLite it has a connection of its own, which blocks the thread and
//! is interrupted in the middle of a query when the work is cancelled; on PostgreSQL the server is told to end the query.

use std::path::Path;

use futures_util::TryStreamExt as _;
use rusqlite::{Connection, OpenFlags};
use sqlx::{Any, AssertSqlSafe, Row as _, Transaction, any::AnyRow};

use super::VERIFY;
use crate::{
    StoreError, WorkControl,
    sql::{append::Bind, driver_error::sqlite_failed, store::SqlStore},
};

/// Steps of SQLite's virtual machine between two checks for cancellation: less than a millisecond.
const STEPS_PER_CHECK: i32 = 10_000;
const SETUP: &str = "PRAGMA busy_timeout = 5000; PRAGMA query_only = 1; BEGIN;";

pub(in crate::sql) struct Snapshot<'a> {
    store: &'a SqlStore,
    control: &'a WorkControl,
    connection: SnapshotConnection,
}

enum SnapshotConnection {
    Sqlite(Connection),
    Postgres {
        transaction: Transaction<'static, Any>,
        /// Process of the server that runs the queries.
        process: i64,
    },
}

/// A row of either database.
pub(in crate::sql) enum SnapshotRow<'r> {
    Sqlite(&'r rusqlite::Row<'r>),
    Postgres(&'r AnyRow),
}

fn unreadable(error: impl std::error::Error + Send + Sync + 'static) -> sqlx::Error {
    sqlx::Error::Decode(Box::new(error))
}

impl SnapshotRow<'_> {
    pub(in crate::sql) fn number(&self, at: usize) -> Result<i64, sqlx::Error> {
        match self {
            Self::Sqlite(row) => row.get(at).map_err(unreadable),
            Self::Postgres(row) => row.try_get(at),
        }
    }

    pub(in crate::sql) fn text(&self, at: usize) -> Result<&str, sqlx::Error> {
        match self {
            Self::Sqlite(row) => row.get_ref(at).map_err(unreadable)?.as_str().map_err(unreadable),
            Self::Postgres(row) => row.try_get(at),
        }
    }

    pub(in crate::sql) fn maybe_text(&self, at: usize) -> Result<Option<&str>, sqlx::Error> {
        match self {
            Self::Sqlite(row) => row.get_ref(at).map_err(unreadable)?.as_str_or_null().map_err(unreadable),
            Self::Postgres(row) => row.try_get(at),
        }
    }
}

impl SnapshotConnection {
    fn sqlite(path: &Path, control: &WorkControl) -> rusqlite::Result<Self> {
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = Connection::open_with_flags(path, flags)?;
        connection.execute_batch(SETUP)?;
        let control = control.clone();
        connection.progress_handler(STEPS_PER_CHECK, Some(move || control.is_cancelled()))?;
        Ok(Self::Sqlite(connection))
    }

    async fn postgres(store: &SqlStore) -> Result<Self, StoreError> {
        let mut transaction = store.snapshot(VERIFY).await?;
        let query = sqlx::query("SELECT CAST(pg_backend_pid() AS BIGINT)");
        let process = query.fetch_one(&mut *transaction).await.and_then(|row| row.try_get(0));
        Ok(Self::Postgres { transaction, process: process.map_err(|error| store.failed(VERIFY, error))? })
    }
}

impl<'a> Snapshot<'a> {
    pub(in crate::sql) async fn begin(store: &'a SqlStore, control: &'a WorkControl) -> Result<Self, StoreError> {
        control.check()?;
        let connection = if let Some(path) = store.appender.sqlite_path() {
            let begun = SnapshotConnection::sqlite(path, control);
            begun.map_err(|error| sqlite_failed(&store.database, VERIFY, error))?
        } else {
            SnapshotConnection::postgres(store).await?
        };
        Ok(Self { store, control, connection })
    }

    /// Passes each row of a query to `each`.
    pub(in crate::sql) async fn each(
        &mut self,
        sql: &str,
        bound: &[Bind],
        mut each: impl FnMut(&SnapshotRow<'_>) -> Result<(), sqlx::Error> + Send,
    ) -> Result<(), StoreError> {
        let Self { store, control, connection } = self;
        let failed = |error| store.failed(VERIFY, error);
        control.check()?;
        match connection {
            SnapshotConnection::Sqlite(connection) => {
                let read = each_in_sqlite(connection, sql, bound, &mut each);
                read.map_err(|error| match error {
                    _ if control.is_cancelled() => StoreError::Cancelled,
                    SqliteFault::Database(error) => sqlite_failed(&store.database, VERIFY, error),
                    SqliteFault::Row(error) => failed(error),
                })
            }
            SnapshotConnection::Postgres { transaction, process } => {
                let query = bound.iter().fold(sqlx::query(AssertSqlSafe(sql)), |query, value| match value {
                    Bind::Number(number) => query.bind(*number),
                    Bind::Text(text) => query.bind(text.clone()),
                });
                let reading = async {
                    let mut rows = query.fetch(&mut **transaction);
                    while let Some(row) = rows.try_next().await? {
                        each(&SnapshotRow::Postgres(&row))?;
                    }
                    Ok(())
                };
                tokio::select! {
                    read = reading => read.map_err(failed),
                    () = control.cancelled() => {
                        let end = sqlx::query("SELECT pg_cancel_backend(CAST($1 AS INT))").bind(*process);
                        end.execute(&store.reader).await.map_err(failed)?;
                        Err(StoreError::Cancelled)
                    }
                }
            }
        }
    }
}

enum SqliteFault {
    Database(rusqlite::Error),
    Row(sqlx::Error),
}

impl From<rusqlite::Error> for SqliteFault {
    fn from(error: rusqlite::Error) -> Self {
        Self::Database(error)
    }
}

fn each_in_sqlite(
    connection: &Connection,
    sql: &str,
    bound: &[Bind],
    each: &mut dyn FnMut(&SnapshotRow<'_>) -> Result<(), sqlx::Error>,
) -> Result<(), SqliteFault> {
    let mut statement = connection.prepare(sql)?;
    for (at, value) in (1..).zip(bound) {
        match value {
            Bind::Number(number) => statement.raw_bind_parameter(at, number)?,
            Bind::Text(text) => statement.raw_bind_parameter(at, text)?,
        }
    }
    let mut rows = statement.raw_query();
    while let Some(row) = rows.next()? {
        each(&SnapshotRow::Sqlite(row)).map_err(SqliteFault::Row)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use tempfile::TempDir;
    use tokio_util::sync::CancellationToken;

    use super::*;
    use crate::{
        StoreUrl,
        conformance::{options, postgres, sqlite},
        sql::{SqlAddress, open},
    };

    const ENDLESS: &str = "WITH RECURSIVE numbers(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM numbers) SELECT";

    /// Runs a query that does not end, and cancels it once it runs.
    async fn cancelled_in(address: SqlAddress, url: StoreUrl) {
        let dir = TempDir::new().unwrap();
        let store = open(address, &options(url, &dir)).await.unwrap();
        let token = CancellationToken::new();
        let control = WorkControl::new(token.clone(), |_| {});
        let mut snapshot = Snapshot::begin(&store, &control).await.unwrap();
        // One that has rows: it is cancelled by the third.
        let mut rows = 0;
        let count = |_: &SnapshotRow<'_>| {
            rows += 1;
            if rows == 3 {
                token.cancel();
            }
            Ok(())
        };
        let read = snapshot.each(&format!("{ENDLESS} x FROM numbers"), &[], count).await;
        assert!(matches!(read, Err(StoreError::Cancelled)), "{read:?}");
        // One that has none before its end.
        let token = CancellationToken::new();
        let control = WorkControl::new(token.clone(), |_| {});
        let mut snapshot = Snapshot::begin(&store, &control).await.unwrap();
        let canceller = std::thread::spawn(move || token.cancel());
        let read = snapshot.each(&format!("{ENDLESS} COUNT(*) FROM numbers"), &[], |_| Ok(())).await;
        assert!(matches!(read, Err(StoreError::Cancelled)), "{read:?}");
        canceller.join().unwrap();
        assert!(matches!(Snapshot::begin(&store, &control).await, Err(StoreError::Cancelled)), "it stays cancelled");
        store.close().await;
    }

    #[tokio::test]
    async fn query_is_cancelled_while_it_runs() {
        let dir = TempDir::new().unwrap();
        cancelled_in(SqlAddress::Sqlite(dir.path().join("tollgate.db")), sqlite(&dir)).await;
        let Some(schema) = postgres("query_is_cancelled_while_it_runs").await else { return };
        let StoreUrl::Postgres(url) = &schema.address else { panic!("an address of PostgreSQL") };
        cancelled_in(SqlAddress::Postgres { url: url.clone(), shown: url.clone() }, schema.address.clone()).await;
        schema.drop().await;
    }
}
