//! Booking into PostgreSQL: rows that are new by `COPY`, sums by arrays that the server unfolds. A statement of many
//! values costs the server more to read than the rows cost it to insert.

use std::{collections::HashSet, str::FromStr as _, sync::Arc};

use sqlx::{AssertSqlSafe, Connection as _, Executor as _, PgConnection, Row as _, postgres::PgConnectOptions, query::Query};
use tokio::sync::{Mutex, OwnedMutexGuard};

use super::{
    BOOK,
    rows::{BookingColumnType, BookingTable, ConflictAction, RowBatch, Value},
};
use crate::{
    StoreError,
    sql::connect::{POSTGRES_SETUP, failed, in_time},
};

/// What `COPY … (FORMAT binary)` begins with: signature, flags, length of the header's extension.
const HEADER: &[u8] = b"PGCOPY\n\xff\r\n\0\0\0\0\0\0\0\0\0";
/// What it ends with.
const TRAILER: &[u8] = &[0xff, 0xff];
/// `unique_violation`.
const TAKEN: &str = "23505";

/// The connection, kept between batches.
#[derive(Debug)]
pub(in crate::sql) struct PostgresBooking {
    url: String,
    place: String,
    connection: Arc<Mutex<Option<PgConnection>>>,
}

/// A transaction. Dropped, it takes its connection with it, which rolls it back.
pub(super) struct PostgresTransaction {
    connection: PgConnection,
    home: OwnedMutexGuard<Option<PgConnection>>,
    place: String,
    /// Whether the rows are taken to be new, all of them.
    all_new: bool,
}

impl PostgresBooking {
    pub(super) fn new(url: &str, place: &str) -> Self {
        Self { url: url.to_owned(), place: place.to_owned(), connection: Arc::default() }
    }

    pub(super) async fn begin(&self, all_new: bool) -> Result<PostgresTransaction, StoreError> {
        let failed = |error| failed(&self.place, BOOK, error);
        let mut home = Arc::clone(&self.connection).lock_owned().await;
        let kept = match home.take() {
            Some(mut kept) => kept.ping().await.is_ok().then_some(kept),
            None => None,
        };
        let mut connection = if let Some(kept) = kept { kept } else { self.connect().await? };
        connection.execute("BEGIN").await.map_err(failed)?;
        Ok(PostgresTransaction { connection, home, place: self.place.clone(), all_new })
    }

    async fn connect(&self) -> Result<PgConnection, StoreError> {
        let failed = |error| failed(&self.place, BOOK, error);
        let options = PgConnectOptions::from_str(&self.url)
            .map_err(|error| StoreError::BadUrl { url: self.place.clone(), detail: error.to_string() })?;
        let mut connection = in_time(&self.place, PgConnection::connect_with(&options)).await?.map_err(failed)?;
        sqlx::raw_sql(POSTGRES_SETUP).execute(&mut connection).await.map_err(failed)?;
        Ok(connection)
    }

    pub(super) async fn close(&self) {
        if let Some(connection) = self.connection.lock().await.take() {
            // The server notices by itself when that fails.
            let _ = connection.close().await;
        }
    }
}

impl PostgresTransaction {
    fn failed(&self, error: sqlx::Error) -> StoreError {
        failed(&self.place, BOOK, error)
    }

    pub(super) async fn number(&mut self, sql: &'static str, with: Option<i64>) -> Result<i64, StoreError> {
        let query = sqlx::query_scalar(sql);
        let query = if let Some(with) = with { query.bind(with) } else { query };
        let found = query.fetch_one(&mut self.connection).await;
        found.map_err(|error| self.failed(error))
    }

    pub(super) async fn find(&mut self, sql: &'static str, ids: Vec<String>) -> Result<Vec<(String, i64)>, StoreError> {
        let sql = AssertSqlSafe(format!("{sql} = ANY($1)"));
        let rows = sqlx::query(sql).bind(ids).fetch_all(&mut self.connection).await;
        let read = |row: &sqlx::postgres::PgRow| Ok((row.try_get(0)?, row.try_get(1)?));
        rows.and_then(|rows| rows.iter().map(read).collect()).map_err(|error| self.failed(error))
    }

    /// Which of them were inserted or changed; `None`: they were taken to be new, and one was not.
    pub(super) async fn add(&mut self, table: &'static BookingTable, rows: RowBatch) -> Result<Option<Vec<bool>>, StoreError> {
        let copied = match table.there {
            ConflictAction::Fails => true,
            ConflictAction::Stays => self.all_new,
            ConflictAction::Grows { .. } | ConflictAction::Changes { .. } => false,
        };
        if copied {
            let there = table.there;
            return match self.copy(table, &rows).await {
                Ok(()) => Ok(Some(vec![true; rows.len()])),
                Err(error) if there == ConflictAction::Stays && is_taken(&error) => Ok(None),
                Err(error) => Err(self.failed(error)),
            };
        }
        let added = match table.there {
            ConflictAction::Stays => self.insert_missing(table, &rows).await,
            ConflictAction::Fails | ConflictAction::Grows { .. } | ConflictAction::Changes { .. } => {
                let sql = AssertSqlSafe(table.insert(&unfolded(table)));
                let done = bind(sqlx::query(sql), table, &rows).execute(&mut self.connection).await;
                done.map(|_| vec![true; rows.len()])
            }
        };
        added.map(Some).map_err(|error| self.failed(error))
    }

    async fn copy(&mut self, table: &BookingTable, rows: &RowBatch) -> Result<(), sqlx::Error> {
        let sql = format!("COPY {} ({}) FROM STDIN (FORMAT binary)", table.name, table.names());
        let mut copy = self.connection.copy_in_raw(&sql).await?;
        copy.send(encode(rows)).await?;
        copy.finish().await.map(|_| ())
    }

    /// The first column tells which of them went in; what stands twice went in once, as the first.
    async fn insert_missing(&mut self, table: &BookingTable, rows: &RowBatch) -> Result<Vec<bool>, sqlx::Error> {
        let sql = AssertSqlSafe(table.insert(&unfolded(table)) + " RETURNING " + table.columns[0].name);
        let found = bind(sqlx::query(sql), table, rows).fetch_all(&mut self.connection).await?;
        let mut inserted = found.iter().map(|row| row.try_get::<String, _>(0)).collect::<Result<HashSet<_>, _>>()?;
        let is_new = |value: Value<'_>| matches!(value, Value::Text(id) if inserted.remove(id));
        Ok(rows.column(0).map(is_new).collect())
    }

    pub(super) async fn commit(self) -> Result<(), StoreError> {
        self.end("COMMIT").await
    }

    pub(super) async fn roll_back(self) -> Result<(), StoreError> {
        self.end("ROLLBACK").await
    }

    async fn end(mut self, how: &'static str) -> Result<(), StoreError> {
        if let Err(error) = self.connection.execute(how).await {
            return Err(self.failed(error));
        }
        let Self { connection, mut home, .. } = self;
        *home = Some(connection);
        Ok(())
    }
}

fn is_taken(error: &sqlx::Error) -> bool {
    error.as_database_error().and_then(sqlx::error::DatabaseError::code).is_some_and(|code| code == TAKEN)
}

/// `SELECT` of one array a column.
fn unfolded(table: &BookingTable) -> String {
    let arrays = (1..).zip(table.columns).map(|(place, column)| match column.kind {
        BookingColumnType::Number => format!("${place}::BIGINT[]"),
        BookingColumnType::Text => format!("${place}::TEXT[]"),
    });
    format!("SELECT * FROM UNNEST({})", arrays.collect::<Vec<_>>().join(", "))
}

type PgQuery<'q> = Query<'q, sqlx::Postgres, sqlx::postgres::PgArguments>;

fn bind<'q>(query: PgQuery<'q>, table: &BookingTable, rows: &RowBatch) -> PgQuery<'q> {
    let number = |value: Value<'_>| if let Value::Number(number) = value { Some(number) } else { None };
    table.columns.iter().enumerate().fold(query, |query, (at, column)| match column.kind {
        BookingColumnType::Number => query.bind(rows.column(at).map(number).collect::<Vec<Option<i64>>>()),
        BookingColumnType::Text => query.bind(
            rows.column(at)
                .map(|value| if let Value::Text(text) = value { Some(text.to_owned()) } else { None })
                .collect::<Vec<Option<String>>>(),
        ),
    })
}

/// Rows in PostgreSQL's binary form: the number of columns, then each value with its length in front.
fn encode(rows: &RowBatch) -> Vec<u8> {
    let mut bytes = HEADER.to_vec();
    for row in rows.rows() {
        let start = bytes.len();
        bytes.extend_from_slice(&[0; 2]);
        let mut columns: i16 = 0;
        for value in row {
            columns += 1;
            match value {
                Value::Nothing => bytes.extend_from_slice(&(-1_i32).to_be_bytes()),
                Value::Number(number) => {
                    bytes.extend_from_slice(&8_i32.to_be_bytes());
                    bytes.extend_from_slice(&number.to_be_bytes());
                }
                Value::Text(text) => {
                    let length = i32::try_from(text.len()).expect("texts of records are far below 2 GiB");
                    bytes.extend_from_slice(&length.to_be_bytes());
                    bytes.extend_from_slice(text.as_bytes());
                }
            }
        }
        bytes[start..start + 2].copy_from_slice(&columns.to_be_bytes());
    }
    bytes.extend_from_slice(TRAILER);
    bytes
}
