//! Booking into SQLite: one thread with one connection, which binds and steps row by row. A statement of many rows
//! through sqlx costs three times as much: every text is copied twice more, and what it may have to undo is kept.

use std::{
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, mpsc},
    thread::{Builder, JoinHandle},
};

use rusqlite::{Connection, OpenFlags, Statement, types::Null};
use sqlx::{Any, AnyPool, pool::PoolConnection};
use tokio::sync::oneshot;

use super::{
    BOOK,
    rows::{BookingTable, RowBatch, Value},
};
use crate::{
    StoreError,
    sql::connect::{SQLITE_SETUP, failed, sqlite_failed},
};

/// What may wait for the thread: one who writes waits for each answer, and leaves a roll-back behind at most.
const JOBS: usize = 16;

type Job = Box<dyn FnOnce(&Connection) + Send>;

/// The thread, once there is something to book.
#[derive(Debug)]
pub(in crate::sql) struct SqliteBooking {
    path: PathBuf,
    place: String,
    thread: Mutex<Option<Arc<BookingThread>>>,
}

#[derive(Debug)]
struct BookingThread {
    jobs: mpsc::SyncSender<Job>,
    handle: JoinHandle<()>,
    place: String,
}

/// A transaction. Dropped, it is rolled back.
pub(super) struct SqliteTransaction {
    thread: Arc<BookingThread>,
    open: bool,
    /// Whoever writes holds the writers' one connection, so that all of them come to their turn in order.
    _turn: PoolConnection<Any>,
}

impl SqliteBooking {
    pub(super) fn new(path: &Path, place: &str) -> Self {
        Self { path: path.to_owned(), place: place.to_owned(), thread: Mutex::default() }
    }

    fn thread(&self) -> MutexGuard<'_, Option<Arc<BookingThread>>> {
        self.thread.lock().expect("nothing panics while it holds this lock")
    }

    pub(super) async fn begin(&self, writers: &AnyPool) -> Result<SqliteTransaction, StoreError> {
        let turn = writers.acquire().await.map_err(|error| failed(&self.place, BOOK, error))?;
        let there = self.thread().clone();
        let thread = match there {
            Some(thread) if !thread.handle.is_finished() => thread,
            Some(_) | None => {
                let thread = Arc::new(self.start().await?);
                *self.thread() = Some(Arc::clone(&thread));
                thread
            }
        };
        let mut writing = SqliteTransaction { thread, open: true, _turn: turn };
        writing.ask(|connection| connection.execute_batch("BEGIN IMMEDIATE")).await?;
        Ok(writing)
    }

    /// Starts the thread, which lives until the last of its users is gone.
    async fn start(&self) -> Result<BookingThread, StoreError> {
        let (jobs, queue) = mpsc::sync_channel::<Job>(JOBS);
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
        let handle = Builder::new().name("books".to_owned()).spawn(run).map_err(|source| StoreError::File {
            action: "start the thread that writes",
            path: self.path.clone(),
            source,
        })?;
        open.await.map_err(|_| ended(&self.place))?.map_err(|error| sqlite_failed(&self.place, BOOK, error))?;
        Ok(BookingThread { jobs, handle, place: self.place.clone() })
    }

    /// Ends the thread and waits for it: its connection leaves a file that is whole.
    pub(super) async fn close(&self) {
        let thread = self.thread().take();
        if let Some(BookingThread { jobs, handle, .. }) = thread.and_then(Arc::into_inner) {
            drop(jobs);
            // It can only fail when the thread panicked, and what it had not committed is rolled back then.
            let _ = tokio::task::spawn_blocking(move || handle.join()).await;
        }
    }
}

fn connect(path: &Path) -> rusqlite::Result<Connection> {
    // One thread has it, so it needs no locks of its own.
    let connection = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX)?;
    connection.execute_batch(SQLITE_SETUP)?;
    Ok(connection)
}

fn ended(place: &str) -> StoreError {
    StoreError::Unreachable { place: place.to_owned(), detail: "the thread that writes has ended".to_owned() }
}

impl SqliteTransaction {
    async fn ask<T: Send + 'static>(
        &mut self,
        ask: impl FnOnce(&Connection) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<T, StoreError> {
        let BookingThread { jobs, place, .. } = &*self.thread;
        let (answer, answered) = oneshot::channel();
        let job: Job = Box::new(move |connection| drop(answer.send(ask(connection))));
        jobs.send(job).map_err(|_| ended(place))?;
        answered.await.map_err(|_| ended(place))?.map_err(|error| sqlite_failed(place, BOOK, error))
    }

    pub(super) async fn number(&mut self, sql: &'static str, with: Option<i64>) -> Result<i64, StoreError> {
        self.ask(move |connection| match with {
            Some(with) => connection.query_row(sql, [with], |row| row.get(0)),
            None => connection.query_row(sql, [], |row| row.get(0)),
        })
        .await
    }

    pub(super) async fn find(&mut self, sql: &'static str, ids: Vec<String>) -> Result<Vec<(String, i64)>, StoreError> {
        self.ask(move |connection| {
            let mut statement = connection.prepare(&format!("{sql} = ?"))?;
            let mut found = Vec::new();
            for id in ids {
                let rows = statement.query_map([id], |row| Ok((row.get(0)?, row.get(1)?)))?;
                found.extend(rows.collect::<rusqlite::Result<Vec<_>>>()?);
            }
            Ok(found)
        })
        .await
    }

    /// Which of them were inserted or changed.
    pub(super) async fn add(&mut self, table: &'static BookingTable, rows: RowBatch) -> Result<Vec<bool>, StoreError> {
        let places = vec!["?"; table.columns.len()].join(", ");
        let sql = table.insert(&format!("VALUES ({places})"));
        self.ask(move |connection| {
            let mut statement = connection.prepare(&sql)?;
            rows.rows().map(|row| put(&mut statement, row)).collect()
        })
        .await
    }

    pub(super) async fn commit(mut self) -> Result<(), StoreError> {
        self.ask(|connection| connection.execute_batch("COMMIT")).await?;
        self.open = false;
        Ok(())
    }
}

fn put<'a>(statement: &mut Statement<'_>, row: impl Iterator<Item = Value<'a>>) -> rusqlite::Result<bool> {
    for (place, value) in (1..).zip(row) {
        match value {
            Value::Nothing => statement.raw_bind_parameter(place, Null)?,
            Value::Number(number) => statement.raw_bind_parameter(place, number)?,
            Value::Text(text) => statement.raw_bind_parameter(place, text)?,
        }
    }
    statement.raw_execute().map(|changed| changed > 0)
}

impl Drop for SqliteTransaction {
    fn drop(&mut self) {
        if self.open {
            // Behind whatever is under way. After a commit nobody waited for there is nothing to roll back, which is fine.
            let _ = self.thread.jobs.send(Box::new(|connection| drop(connection.execute_batch("ROLLBACK"))));
        }
    }
}
