//! Reads from SQLite with `rusqlite`, on threads for blocking work.

use std::{
    path::Path,
    sync::{Arc, Mutex, MutexGuard},
};

use rusqlite::{Connection, OpenFlags, Statement};
use tokio::{sync::Semaphore, task::spawn_blocking, time::timeout};
use tokio_util::sync::CancellationToken;
use tollgate_core::RequestId;

use super::{CONNECTIONS, FoldRows, LookUp};
use crate::{
    StoreError,
    sql::{
        address::SQLITE_READER_SETUP,
        cells::{FromCells, SqliteCells},
        connect::ACQUIRE_TIMEOUT,
        driver_error::{failed, sqlite_failed},
    },
};

/// Steps of SQLite's virtual machine between two checks whether a query is still needed.
const STEPS_PER_CHECK: i32 = 100_000;

/// A connection that only reads.
#[derive(Debug)]
pub(in crate::sql) struct ReadConnection {
    connection: Connection,
    database: Arc<str>,
}

impl ReadConnection {
    pub(in crate::sql) fn open(path: &Path, database: &Arc<str>, operation: &'static str) -> Result<Self, StoreError> {
        // One thread at a time uses the connection, so SQLite's own mutexes are not needed.
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let opened = Connection::open_with_flags(path, flags)
            .and_then(|connection| connection.execute_batch(SQLITE_READER_SETUP).map(|()| connection));
        let connection = opened.map_err(|error| sqlite_failed(database, operation, error))?;
        Ok(Self { connection, database: Arc::clone(database) })
    }

    fn failed(&self, operation: &'static str, error: rusqlite::Error) -> StoreError {
        sqlite_failed(&self.database, operation, error)
    }

    /// Ends the queries from here on as soon as the token is cancelled.
    pub(in crate::sql) fn end_when(&self, token: CancellationToken) {
        let watch = move || token.is_cancelled();
        self.connection.progress_handler(STEPS_PER_CHECK, Some(watch)).expect("the connection was opened here");
    }

    pub(in crate::sql) fn execute(&self, operation: &'static str, sql: &str) -> Result<(), StoreError> {
        self.connection.execute_batch(sql).map_err(|error| self.failed(operation, error))
    }

    /// The number that a query returns.
    pub(in crate::sql) fn number(&self, operation: &'static str, sql: &str) -> Result<i64, StoreError> {
        self.connection.query_row(sql, [], |row| row.get(0)).map_err(|error| self.failed(operation, error))
    }

    pub(in crate::sql) fn rows<T: FromCells>(
        &self,
        operation: &'static str,
        sql: &str,
        ids: &[RequestId],
    ) -> Result<Vec<T>, StoreError> {
        let mut statement = self.connection.prepare_cached(sql).map_err(|error| self.failed(operation, error))?;
        for (number, id) in (1..).zip(ids) {
            bind(&mut statement, &format!("${number}"), *id).map_err(|error| self.failed(operation, error))?;
        }
        let mut rows = Vec::new();
        self.collect(operation, &mut statement, &mut rows)?;
        Ok(rows)
    }

    pub(super) fn rows_with<T: FromCells>(&self, operation: &'static str, sql: &str, values: LookUp) -> Result<Vec<T>, StoreError> {
        let sql = format!("{sql} = ?");
        // Outside of a transaction each look-up locks the database and unlocks it again, which takes longer than the look-up.
        let transaction = self.connection.unchecked_transaction().map_err(|error| self.failed(operation, error))?;
        let mut statement = self.connection.prepare_cached(&sql).map_err(|error| self.failed(operation, error))?;
        let mut rows = Vec::new();
        let mut each = |bound: rusqlite::Result<()>, statement: &mut Statement<'_>| {
            bound.map_err(|error| self.failed(operation, error))?;
            self.collect(operation, statement, &mut rows)
        };
        match values {
            LookUp::Numbers(numbers) => {
                for number in numbers {
                    each(statement.raw_bind_parameter(1, number), &mut statement)?;
                }
            }
            LookUp::Texts(texts) => {
                for text in texts {
                    each(statement.raw_bind_parameter(1, text), &mut statement)?;
                }
            }
            LookUp::Requests(ids) => {
                for id in ids {
                    each(statement.raw_bind_parameter(1, id.uuid().as_bytes().as_slice()), &mut statement)?;
                }
            }
        }
        drop(statement);
        transaction.finish().map_err(|error| self.failed(operation, error))?;
        Ok(rows)
    }

    pub(super) fn fold<F: FoldRows>(
        &self,
        operation: &'static str,
        (sql, ids): (&str, &[RequestId]),
        mut fold: F,
    ) -> Result<F, StoreError> {
        let mut statement = self.connection.prepare(sql).map_err(|error| self.failed(operation, error))?;
        for (number, id) in (1..).zip(ids) {
            bind(&mut statement, &format!("${number}"), *id).map_err(|error| self.failed(operation, error))?;
        }
        let mut rows = statement.raw_query();
        while let Some(row) = rows.next().map_err(|error| self.failed(operation, error))? {
            fold.row(&mut SqliteCells::new(row)).map_err(|error| failed(&self.database, operation, error))?;
            if fold.is_done() {
                break;
            }
        }
        drop(rows);
        Ok(fold)
    }

    /// Runs a statement whose parameters are bound.
    fn collect<T: FromCells>(
        &self,
        operation: &'static str,
        statement: &mut Statement<'_>,
        found: &mut Vec<T>,
    ) -> Result<(), StoreError> {
        let mut rows = statement.raw_query();
        while let Some(row) = rows.next().map_err(|error| self.failed(operation, error))? {
            let row = T::from_cells(&mut SqliteCells::new(row));
            found.push(row.map_err(|error| failed(&self.database, operation, error))?);
        }
        Ok(())
    }
}

fn bind(statement: &mut Statement<'_>, name: &str, id: RequestId) -> rusqlite::Result<()> {
    match statement.parameter_index(name)? {
        Some(index) => statement.raw_bind_parameter(index, id.uuid().as_bytes().as_slice()),
        None => Ok(()),
    }
}

/// Opens connections when they are needed and keeps them.
#[derive(Debug)]
pub(in crate::sql) struct SqliteReader {
    path: Arc<Path>,
    database: Arc<str>,
    permits: Arc<Semaphore>,
    idle: Arc<Mutex<Vec<ReadConnection>>>,
}

impl SqliteReader {
    pub(in crate::sql) fn new(path: &Path, database: &str) -> Self {
        let permits = Arc::new(Semaphore::new(CONNECTIONS as usize));
        Self { path: path.into(), database: database.into(), permits, idle: Arc::default() }
    }

    /// A connection that is not one of those kept.
    pub(in crate::sql) async fn open(&self, operation: &'static str) -> Result<ReadConnection, StoreError> {
        let (path, database) = (Arc::clone(&self.path), Arc::clone(&self.database));
        read_blocking(move |_| ReadConnection::open(&path, &database, operation)).await
    }

    /// Reads on a connection.
    pub(super) async fn run<T: Send + 'static>(
        &self,
        operation: &'static str,
        read: impl FnOnce(&ReadConnection) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let unreachable = |detail: &str| StoreError::Unreachable { database: self.database.to_string(), detail: detail.to_owned() };
        let permit = match timeout(ACQUIRE_TIMEOUT, Arc::clone(&self.permits).acquire_owned()).await {
            Ok(Ok(permit)) => permit,
            Ok(Err(_)) => return Err(unreachable("it was closed")),
            Err(_) => return Err(unreachable("all connections that read the usage log are busy")),
        };
        let (path, database) = (Arc::clone(&self.path), Arc::clone(&self.database));
        let (permits, idle) = (Arc::clone(&self.permits), Arc::clone(&self.idle));
        read_blocking(move |dropped| {
            let _permit = permit;
            let kept = lock(&idle).pop();
            let connection = kept.map_or_else(|| ReadConnection::open(&path, &database, operation), Ok)?;
            connection.end_when(dropped);
            // A connection that failed is closed.
            let result = read(&connection)?;
            let mut idle = lock(&idle);
            if !permits.is_closed() {
                idle.push(connection);
            }
            Ok(result)
        })
        .await
    }

    /// Closes the connections. One that is reading is closed when it is done.
    pub(super) fn close(&self) {
        let mut idle = lock(&self.idle);
        self.permits.close();
        idle.clear();
    }
}

fn lock(idle: &Mutex<Vec<ReadConnection>>) -> MutexGuard<'_, Vec<ReadConnection>> {
    idle.lock().expect("no code panics while it holds this lock")
}

/// Reads on a thread for blocking work. The token that the function gets is cancelled when the result is no longer awaited.
pub(in crate::sql) async fn read_blocking<T: Send + 'static>(
    read: impl FnOnce(CancellationToken) -> Result<T, StoreError> + Send + 'static,
) -> Result<T, StoreError> {
    let dropped = CancellationToken::new();
    let _guard = dropped.clone().drop_guard();
    match spawn_blocking(move || read(dropped)).await {
        Ok(result) => result,
        Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
        // The runtime is ending.
        Err(_) => Err(StoreError::Cancelled),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tempfile::TempDir;

    use super::*;

    #[tokio::test]
    async fn abandoned_query_is_ended() {
        // Takes minutes.
        const LONG: &str =
            "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n WHERE x < 2000000000) SELECT COUNT(*) FROM n";
        let dir = TempDir::new().unwrap();
        let path = dir.path().join("x.db");
        Connection::open(&path).unwrap();
        let reader = SqliteReader::new(&path, "x.db");
        let (began, begun) = tokio::sync::oneshot::channel();
        let long = reader.run("test", |connection| {
            began.send(()).unwrap();
            connection.number("test", LONG)
        });
        tokio::select! {
            result = long => panic!("it ended: {result:?}"),
            begun = begun => begun.unwrap(),
        }
        let all = timeout(Duration::from_secs(30), reader.permits.acquire_many(CONNECTIONS)).await;
        drop(all.expect("no connection is busy").unwrap());
        assert!(lock(&reader.idle).is_empty(), "its connection is closed");

        assert_eq!(reader.run("test", |connection| connection.number("test", "SELECT 1")).await.unwrap(), 1);
        assert_eq!(lock(&reader.idle).len(), 1);
        reader.close();
        assert_eq!(lock(&reader.idle).len(), 0);
        let closed = reader.run("test", |connection| connection.number("test", "SELECT 1")).await;
        assert!(matches!(closed, Err(StoreError::Unreachable { .. })), "{closed:?}");
    }
}
