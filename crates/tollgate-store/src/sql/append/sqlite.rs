//! Appends to SQLite: a thread with a connection of its own binds and steps row by row. Multi-row statements through sqlx take three
//! times as long: every text is copied twice more, and SQLite keeps a statement journal.
//!
//! New rows are inserted eight at a time. SQLite opens its cursors for each statement; while they are open, it finds the position
//! of a row that follows the previous one without a search. `OR FAIL` keeps it from writing a statement journal, which is not
//! needed: a transaction in which a statement failed is rolled back.

use std::{
    collections::HashSet,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, mpsc},
    thread::{Builder, JoinHandle},
};

use rusqlite::{Connection, OpenFlags, OptionalExtension as _, Statement, ffi, types::Null};
use sqlx::{Any, AnyPool, pool::PoolConnection};
use tokio::sync::oneshot;
use tollgate_core::RequestId;

use super::{
    APPEND, Bind, StoredHistograms,
    row_batch::{CellValue, OnConflict, RowBatch, TargetTable, Value},
};
use crate::{
    StoreError,
    rollup::UsageSumKey,
    sql::{
        address::SQLITE_SETUP,
        driver_error::{failed, sqlite_failed},
        names::NameText,
    },
};

/// Capacity of the thread's queue. A writer waits for each answer and leaves at most a rollback in it, so the queue never
/// fills up.
const QUEUE_CAPACITY: usize = 16;

/// Prepared statements that are kept; more than an append uses.
const STATEMENTS: usize = 64;

/// Rows that are inserted by one statement.
const ROWS_AT_ONCE: usize = 8;

/// Batches of this size occur when many more records are waiting, such as after an outage.
const LARGE_BATCH: usize = 4_096;
/// Settings for small batches and for large ones. A large batch changes nearly every leaf of the index by key, some 40 MB with ten
/// thousand keys, and many pages of sums: with a smaller cache they are read and written several times, and again with every checkpoint.
/// The next small batch releases the memory.
const SMALL: [&str; 2] = ["PRAGMA cache_size = -8192", "PRAGMA wal_autocheckpoint = 4096"];
const LARGE: [&str; 2] = ["PRAGMA cache_size = -131072", "PRAGMA wal_autocheckpoint = 32768"];

type Job = Box<dyn FnOnce(&Connection) + Send>;
type JobResult<T> = oneshot::Receiver<rusqlite::Result<T>>;

/// Starts the thread at the first append.
#[derive(Debug)]
pub(in crate::sql) struct SqliteAppender {
    path: PathBuf,
    database: String,
    thread: Mutex<Option<Arc<AppendThread>>>,
}

#[derive(Debug)]
struct AppendThread {
    jobs: mpsc::SyncSender<Job>,
    handle: JoinHandle<()>,
    database: String,
}

/// An open transaction; dropping it rolls it back.
pub(super) struct SqliteTransaction {
    thread: Arc<AppendThread>,
    open: bool,
    /// The only connection of the writer pool. Holding it makes all writers of this process wait in one queue.
    _writer: PoolConnection<Any>,
}

impl SqliteAppender {
    pub(super) fn new(path: &Path, database: &str) -> Self {
        Self { path: path.to_owned(), database: database.to_owned(), thread: Mutex::default() }
    }

    fn thread(&self) -> MutexGuard<'_, Option<Arc<AppendThread>>> {
        self.thread.lock().expect("no code panics while it holds this lock")
    }

    /// Begins a transaction for a number of records.
    pub(super) async fn begin(&self, writers: &AnyPool, records: usize) -> Result<SqliteTransaction, StoreError> {
        let writer = writers.acquire().await.map_err(|error| failed(&self.database, APPEND, error))?;
        let running = self.thread().clone();
        let thread = match running {
            Some(thread) if !thread.handle.is_finished() => thread,
            Some(_) | None => {
                let thread = Arc::new(self.start().await?);
                *self.thread() = Some(Arc::clone(&thread));
                thread
            }
        };
        let mut transaction = SqliteTransaction { thread, open: true, _writer: writer };
        let settings = if records < LARGE_BATCH { SMALL } else { LARGE };
        transaction
            .run(move |connection| {
                for setting in settings {
                    connection.prepare_cached(setting)?.query([])?.next()?;
                }
                execute(connection, "BEGIN IMMEDIATE")
            })
            .await?;
        Ok(transaction)
    }

    /// Starts the thread, which ends when the last sender of jobs is dropped.
    async fn start(&self) -> Result<AppendThread, StoreError> {
        let (jobs, queue) = mpsc::sync_channel::<Job>(QUEUE_CAPACITY);
        let (opened, open) = oneshot::channel();
        let path = self.path.clone();
        let run = move || match connect(&path) {
            Ok(connection) => {
                let _ = opened.send(Ok(()));
                for job in queue {
                    job(&connection);
                }
            }
            Err(error) => drop(opened.send(Err(error))),
        };
        let handle = Builder::new().name("usage-append".to_owned()).spawn(run).map_err(|source| StoreError::File {
            action: "start the thread that writes to",
            path: self.path.clone(),
            source,
        })?;
        open.await.map_err(|_| ended(&self.database))?.map_err(|error| sqlite_failed(&self.database, APPEND, error))?;
        Ok(AppendThread { jobs, handle, database: self.database.clone() })
    }

    /// Ends the thread and waits for it, so that its connection is closed properly.
    pub(super) async fn close(&self) {
        let thread = self.thread().take();
        if let Some(AppendThread { jobs, handle, .. }) = thread.and_then(Arc::into_inner) {
            drop(jobs);
            // Joining only fails if the thread panicked; uncommitted work is rolled back then.
            let _ = tokio::task::spawn_blocking(move || handle.join()).await;
        }
    }
}

fn connect(path: &Path) -> rusqlite::Result<Connection> {
    // Only one thread uses the connection, so SQLite's own mutexes are not needed.
    let connection = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX)?;
    connection.set_prepared_statement_cache_capacity(STATEMENTS);
    connection.execute_batch(SQLITE_SETUP)?;
    Ok(connection)
}

fn ended(database: &str) -> StoreError {
    StoreError::Unreachable { database: database.to_owned(), detail: "the thread that writes has ended".to_owned() }
}

impl SqliteTransaction {
    /// Runs a function on the thread and returns its result.
    async fn run<T: Send + 'static>(
        &mut self,
        function: impl FnOnce(&Connection) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<T, StoreError> {
        let result = self.start(function)?;
        self.result(result).await
    }

    /// Hands a function to the thread.
    fn start<T: Send + 'static>(
        &mut self,
        function: impl FnOnce(&Connection) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<JobResult<T>, StoreError> {
        let (sender, result) = oneshot::channel();
        let job: Job = Box::new(move |connection| drop(sender.send(function(connection))));
        self.thread.jobs.send(job).map_err(|_| ended(&self.thread.database))?;
        Ok(result)
    }

    async fn result<T>(&mut self, result: JobResult<T>) -> Result<T, StoreError> {
        let database = &self.thread.database;
        result.await.map_err(|_| ended(database))?.map_err(|error| sqlite_failed(database, APPEND, error))
    }

    pub(super) async fn number(&mut self, sql: &'static str, bind: Option<i64>) -> Result<i64, StoreError> {
        self.run(move |connection| {
            let mut statement = connection.prepare_cached(sql)?;
            match bind {
                Some(value) => statement.query_row([value], |row| row.get(0)),
                None => statement.query_row([], |row| row.get(0)),
            }
        })
        .await
    }

    pub(super) async fn rows(&mut self, sql: &'static str, binds: Vec<Bind>) -> Result<Vec<(String, i64)>, StoreError> {
        self.run(move |connection| {
            let mut statement = connection.prepare_cached(sql)?;
            for (index, bind) in (1..).zip(binds) {
                match bind {
                    Bind::Number(number) => statement.raw_bind_parameter(index, number)?,
                    Bind::Text(text) => statement.raw_bind_parameter(index, text)?,
                }
            }
            statement.raw_query().mapped(|row| Ok((row.get(0)?, row.get(1)?))).collect()
        })
        .await
    }

    pub(super) async fn find(&mut self, sql: &'static str, ids: Vec<String>) -> Result<Vec<(String, i64)>, StoreError> {
        self.run(move |connection| {
            let mut statement = connection.prepare_cached(&format!("{sql} = ?"))?;
            let mut found = Vec::new();
            for id in ids {
                let rows = statement.query_map([id], |row| Ok((row.get(0)?, row.get(1)?)))?;
                found.extend(rows.collect::<rusqlite::Result<Vec<_>>>()?);
            }
            Ok(found)
        })
        .await
    }

    pub(super) async fn existing(&mut self, table: &'static str, ids: Vec<RequestId>) -> Result<HashSet<RequestId>, StoreError> {
        self.run(move |connection| {
            let mut statement = connection.prepare_cached(&format!("SELECT 1 FROM {table} WHERE id = ?"))?;
            let mut found = HashSet::new();
            for id in ids {
                if statement.exists([id.uuid().as_bytes().as_slice()])? {
                    found.insert(id);
                }
            }
            Ok(found)
        })
        .await
    }

    pub(super) async fn find_names(&mut self, texts: &[NameText]) -> Result<Vec<Option<i64>>, StoreError> {
        let texts = texts.to_vec();
        self.run(move |connection| {
            let mut statement = connection.prepare_cached("SELECT ref FROM names WHERE kind = ? AND id = ? AND name = ?")?;
            let mut find =
                |text: NameText| statement.query_row((text.kind.code(), text.stored_id(), &text.name), |row| row.get(0)).optional();
            texts.into_iter().map(&mut find).collect()
        })
        .await
    }

    pub(super) async fn histograms(&mut self, keys: Vec<(i64, UsageSumKey)>) -> Result<Vec<Option<StoredHistograms>>, StoreError> {
        self.run(move |connection| {
            let mut statement = connection.prepare_cached(
                "SELECT ttft, duration, overhead FROM usage_sums WHERE width = ?8 AND minute = ?1 AND grp = ?2 AND model = ?3 \
                 AND channel = ?4 AND protocol_in = ?5 AND outcome = ?6 AND reason = ?7",
            )?;
            let mut find = |(width, key): (i64, UsageSumKey)| {
                let [minute, group, model, channel, protocol, outcome, reason] = key;
                let binds = (minute, group, model, channel, protocol, outcome, reason, width);
                statement.query_row(binds, |row| Ok([row.get(0)?, row.get(1)?, row.get(2)?])).optional()
            };
            keys.into_iter().map(&mut find).collect()
        })
        .await
    }

    pub(super) async fn packed(
        &mut self,
        table: &str,
        width: i64,
        parts: Vec<(i64, i64)>,
    ) -> Result<Vec<Option<Vec<u8>>>, StoreError> {
        let sql = format!("SELECT sums FROM {table} WHERE width = ? AND minute = ? AND part = ?");
        self.run(move |connection| {
            let mut statement = connection.prepare_cached(&sql)?;
            let mut find = |(minute, part): (i64, i64)| statement.query_row((width, minute, part), |row| row.get(0)).optional();
            parts.into_iter().map(&mut find).collect()
        })
        .await
    }

    /// Adds rows; false if one of them exists already and the table does not merge rows.
    pub(super) async fn add(&mut self, table: &'static TargetTable, rows: RowBatch) -> Result<bool, StoreError> {
        self.run(move |connection| add(connection, table, &rows)).await
    }

    /// As [`Self::add`], of rows in several pieces. Each is inserted while the next one is made.
    pub(super) async fn add_pieces(
        &mut self,
        table: &'static TargetTable,
        pieces: impl Iterator<Item = RowBatch>,
    ) -> Result<bool, StoreError> {
        let mut adding: Option<JobResult<bool>> = None;
        for rows in pieces {
            if let Some(before) = adding.take()
                && !self.result(before).await?
            {
                return Ok(false);
            }
            adding = Some(self.start(move |connection| add(connection, table, &rows))?);
        }
        match adding {
            Some(last) => self.result(last).await,
            None => Ok(true),
        }
    }

    pub(super) fn database(&self) -> &str {
        &self.thread.database
    }

    pub(super) async fn commit(mut self) -> Result<(), StoreError> {
        self.run(|connection| execute(connection, "COMMIT")).await?;
        self.open = false;
        Ok(())
    }
}

fn execute(connection: &Connection, sql: &str) -> rusqlite::Result<()> {
    connection.prepare_cached(sql)?.execute([]).map(drop)
}

/// Adds rows; false if one of them exists already and the table does not merge rows.
fn add(connection: &Connection, table: &TargetTable, rows: &RowBatch) -> rusqlite::Result<bool> {
    match insert(connection, table, rows) {
        Ok(()) => Ok(true),
        Err(error) if is_existing(&error) => Ok(false),
        Err(error) => Err(error),
    }
}

fn insert(connection: &Connection, table: &TargetTable, rows: &RowBatch) -> rusqlite::Result<()> {
    let values = |rows: usize| {
        let row = format!("({})", vec!["?"; table.columns.len()].join(", "));
        format!("VALUES {}", vec![row; rows].join(", "))
    };
    let mut done = 0;
    // `DO UPDATE` would write a statement journal.
    if table.on_conflict == OnConflict::Fail && rows.len() >= ROWS_AT_ONCE {
        let sql = table.statements.rows.get_or_init(|| table.insert("INSERT OR FAIL", &values(ROWS_AT_ONCE)));
        execute_groups(&mut *connection.prepare_cached(sql)?, rows, rows.groups(0, ROWS_AT_ONCE))?;
        done = rows.len() / ROWS_AT_ONCE * ROWS_AT_ONCE;
    }
    let sql = table.statements.row.get_or_init(|| table.insert("INSERT", &values(1)));
    execute_groups(&mut *connection.prepare_cached(sql)?, rows, rows.groups(done, 1))
}

/// Executes a statement for each group of cells. A parameter keeps its value, so only cells that differ from those of the group
/// before are bound: most cells of a request equal those of the previous one.
fn execute_groups<'a>(
    statement: &mut Statement<'_>,
    rows: &RowBatch,
    groups: impl Iterator<Item = &'a [CellValue]>,
) -> rusqlite::Result<()> {
    let mut bound: Option<&[CellValue]> = None;
    for group in groups {
        for (at, cell) in group.iter().enumerate() {
            if bound.is_none_or(|bound| !rows.is_same(bound[at], *cell)) {
                bind(statement, at + 1, rows.value(*cell))?;
            }
        }
        statement.raw_execute()?;
        bound = Some(group);
    }
    Ok(())
}

fn bind(statement: &mut Statement<'_>, index: usize, value: Value<'_>) -> rusqlite::Result<()> {
    match value {
        Value::Null => statement.raw_bind_parameter(index, Null),
        Value::Number(number) => statement.raw_bind_parameter(index, number),
        Value::Text(text) => statement.raw_bind_parameter(index, text),
        Value::Bytes(bytes) => statement.raw_bind_parameter(index, bytes),
    }
}

fn is_existing(error: &rusqlite::Error) -> bool {
    const CODES: [i32; 2] = [ffi::SQLITE_CONSTRAINT_PRIMARYKEY, ffi::SQLITE_CONSTRAINT_UNIQUE];
    error.sqlite_error().is_some_and(|error| CODES.contains(&error.extended_code))
}

impl Drop for SqliteTransaction {
    fn drop(&mut self) {
        if self.open {
            // Queued after the job in progress. If that was a commit, there is nothing to roll back and the error is ignored.
            let _ = self.thread.jobs.send(Box::new(|connection| drop(connection.execute_batch("ROLLBACK"))));
        }
    }
}
