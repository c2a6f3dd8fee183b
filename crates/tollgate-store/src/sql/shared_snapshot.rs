//! One snapshot of the database on several concurrent connections: one for queries, the others for many rows.

use std::sync::{Arc, Mutex};

use sqlx::{Any, Postgres, Row as _, Transaction};
use tollgate_core::RequestId;

use super::{
    cells::FromCells,
    driver_error::failed,
    store::SqlStore,
    usage_reader::{PostgresReader, ReadConnection, SqliteReader, UsageReader, postgres_query, postgres_rows, read_blocking},
};
use crate::StoreError;

/// Readers beside the connection for queries.
const READERS: usize = 2;

/// A transaction sees the state that its first query reads.
const READ: &str = "SELECT COUNT(*) FROM counters";

/// The connections, each in a transaction that sees the same state. None has a time limit.
pub(super) struct SharedSnapshot {
    pub(super) queries: Transaction<'static, Any>,
    pub(super) readers: [SnapshotReader; READERS],
    /// Processes of the server behind the connections; none on SQLite.
    pub(super) processes: Vec<i64>,
}

/// Reads rows of a snapshot. Dropping it, or a read in progress, ends its queries.
pub(super) enum SnapshotReader {
    Sqlite(Arc<Mutex<ReadConnection>>),
    Postgres { transaction: Transaction<'static, Postgres>, database: String },
}

impl SqlStore {
    pub(super) async fn shared_snapshot(&self, operation: &'static str) -> Result<SharedSnapshot, StoreError> {
        match &self.usage_reader {
            UsageReader::Sqlite(reader) => self.share_on_sqlite(operation, reader).await,
            UsageReader::Postgres(reader) => self.share_on_postgres(operation, reader).await,
        }
    }

    /// SQLite cannot pass a snapshot from one connection to another. All of them begin while this process holds the write lock, so that
    /// no other process changes the database in between.
    async fn share_on_sqlite(&self, operation: &'static str, reader: &SqliteReader) -> Result<SharedSnapshot, StoreError> {
        let connections = [reader.open(operation).await?, reader.open(operation).await?];
        let lock = self.begin(operation).await?;
        let mut queries = self.snapshot(operation).await?;
        sqlx::query(READ).fetch_one(&mut *queries).await.map_err(|error| self.failed(operation, error))?;
        for connection in &connections {
            connection.execute(operation, "BEGIN")?;
            connection.number(operation, READ)?;
        }
        lock.rollback().await.map_err(|error| self.failed(operation, error))?;
        let readers = connections.map(|connection| SnapshotReader::Sqlite(Arc::new(Mutex::new(connection))));
        Ok(SharedSnapshot { queries, readers, processes: Vec::new() })
    }

    async fn share_on_postgres(&self, operation: &'static str, reader: &PostgresReader) -> Result<SharedSnapshot, StoreError> {
        let failed = |error| self.failed(operation, error);
        let mut queries = self.snapshot(operation).await?;
        // Locked before the snapshot is taken: retention could drop a partition that it still counts.
        let begin = "LOCK TABLE usage, attempts IN ACCESS SHARE MODE; SET LOCAL idle_in_transaction_session_timeout = 0";
        sqlx::raw_sql(begin).execute(&mut *queries).await.map_err(failed)?;
        let row = sqlx::query("SELECT pg_export_snapshot(), CAST(pg_backend_pid() AS BIGINT)").fetch_one(&mut *queries).await;
        let (exported, process): (String, i64) = row.and_then(|row| Ok((row.try_get(0)?, row.try_get(1)?))).map_err(failed)?;
        let (first, first_process) = reader.snapshot(operation, &exported).await?;
        let (second, second_process) = reader.snapshot(operation, &exported).await?;
        let database = || self.database.clone();
        let readers = [first, second].map(|transaction| SnapshotReader::Postgres { transaction, database: database() });
        Ok(SharedSnapshot { queries, readers, processes: vec![process, first_process, second_process] })
    }
}

impl SnapshotReader {
    /// The rows of a query, with ids bound from `$1` on.
    pub(super) async fn rows<T: FromCells>(
        &mut self,
        operation: &'static str,
        sql: &Arc<str>,
        ids: Vec<RequestId>,
    ) -> Result<Vec<T>, StoreError> {
        match self {
            Self::Sqlite(connection) => {
                let (connection, sql) = (Arc::clone(connection), Arc::clone(sql));
                read_blocking(move |dropped| {
                    let connection = connection.lock().expect("no reader panics");
                    connection.end_when(dropped);
                    connection.rows(operation, &sql, &ids)
                })
                .await
            }
            Self::Postgres { transaction, database } => {
                let rows = postgres_rows(postgres_query(sql, &ids), &mut **transaction).await;
                rows.map_err(|error| failed(database, operation, error))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use tempfile::TempDir;

    use super::*;
    use crate::{
        conformance::{options, sqlite},
        sql::{self, SqlAddress, cells::Cells},
    };

    struct Number(i64);

    impl FromCells for Number {
        fn from_cells(cells: &mut impl Cells) -> Result<Self, sqlx::Error> {
            cells.number().map(Number)
        }
    }

    #[tokio::test]
    async fn connections_see_the_same_state_while_another_process_writes() {
        let dir = TempDir::new().unwrap();
        let path = dir.path().join("tollgate.db");
        let store = sql::open(SqlAddress::Sqlite(path.clone()), &options(sqlite(&dir), &dir)).await.unwrap();
        let done = Arc::new(AtomicBool::new(false));
        let writer = {
            let done = Arc::clone(&done);
            std::thread::spawn(move || {
                let connection = rusqlite::Connection::open(path).unwrap();
                connection.execute_batch("PRAGMA synchronous = OFF").unwrap();
                while !done.load(Ordering::Relaxed) {
                    connection.execute_batch("UPDATE counters SET value = value + 1 WHERE name = 'ledger'").unwrap();
                }
            })
        };
        let sql: Arc<str> = "SELECT value FROM counters WHERE name = 'ledger'".into();
        for _ in 0..100 {
            let SharedSnapshot { mut queries, readers, .. } = store.shared_snapshot("test").await.unwrap();
            let row = sqlx::query(sqlx::AssertSqlSafe(sql.to_string())).fetch_one(&mut *queries).await.unwrap();
            let expected: i64 = row.try_get(0).unwrap();
            for mut reader in readers {
                let seen: Vec<Number> = reader.rows("test", &sql, Vec::new()).await.unwrap();
                assert_eq!(seen[0].0, expected);
            }
        }
        done.store(true, Ordering::Relaxed);
        writer.join().unwrap();
        store.close().await;
    }
}
