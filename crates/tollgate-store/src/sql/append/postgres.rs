//! Appends to PostgreSQL: new rows by binary `COPY`, sums by `INSERT` from arrays. Parsing a statement with many placeholders would
//! take the server longer than inserting the rows.

use std::{collections::HashSet, str::FromStr as _, sync::Arc};

use sqlx::{AssertSqlSafe, Connection as _, Executor as _, PgConnection, Row as _, postgres::PgConnectOptions, query::Query};
use tokio::sync::{Mutex, OwnedMutexGuard};

use super::{
    APPEND, Bind,
    row_batch::{OnConflict, RowBatch, TargetTable, Value},
    tables::is_number,
};
use crate::{
    StoreError,
    sql::{
        address::{POSTGRES_SETUP, within_connect_timeout},
        driver_error::failed,
    },
};

/// Header of `COPY … (FORMAT binary)`: signature, flags, length of the header extension.
const HEADER: &[u8] = b"PGCOPY\n\xff\r\n\0\0\0\0\0\0\0\0\0";
/// Trailer of `COPY … (FORMAT binary)`.
const TRAILER: &[u8] = &[0xff, 0xff];
/// `unique_violation`.
const UNIQUE_VIOLATION: &str = "23505";

/// Keeps one connection open between batches.
#[derive(Debug)]
pub(in crate::sql) struct PostgresAppender {
    url: String,
    database: String,
    connection: Arc<Mutex<Option<PgConnection>>>,
}

/// An open transaction. Dropping it closes the connection, which rolls it back.
pub(super) struct PostgresTransaction {
    connection: PgConnection,
    /// Where the connection is kept after the transaction.
    slot: OwnedMutexGuard<Option<PgConnection>>,
    database: String,
    all_new: bool,
}

impl PostgresAppender {
    pub(super) fn new(url: &str, database: &str) -> Self {
        Self { url: url.to_owned(), database: database.to_owned(), connection: Arc::default() }
    }

    pub(super) async fn begin(&self, all_new: bool) -> Result<PostgresTransaction, StoreError> {
        let failed = |error| failed(&self.database, APPEND, error);
        let mut slot = Arc::clone(&self.connection).lock_owned().await;
        let kept = match slot.take() {
            Some(mut kept) => kept.ping().await.is_ok().then_some(kept),
            None => None,
        };
        let mut connection = if let Some(kept) = kept { kept } else { self.connect().await? };
        connection.execute("BEGIN").await.map_err(failed)?;
        Ok(PostgresTransaction { connection, slot, database: self.database.clone(), all_new })
    }

    async fn connect(&self) -> Result<PgConnection, StoreError> {
        let failed = |error| failed(&self.database, APPEND, error);
        let options = PgConnectOptions::from_str(&self.url)
            .map_err(|error| StoreError::BadUrl { url: self.database.clone(), detail: error.to_string() })?;
        let mut connection = within_connect_timeout(&self.database, PgConnection::connect_with(&options)).await?.map_err(failed)?;
        sqlx::raw_sql(POSTGRES_SETUP).execute(&mut connection).await.map_err(failed)?;
        Ok(connection)
    }

    pub(super) async fn close(&self) {
        if let Some(connection) = self.connection.lock().await.take() {
            // If closing fails, the server detects the broken connection.
            let _ = connection.close().await;
        }
    }
}

impl PostgresTransaction {
    fn failed(&self, error: sqlx::Error) -> StoreError {
        failed(&self.database, APPEND, error)
    }

    pub(super) async fn number(&mut self, sql: &'static str, bind: Option<i64>) -> Result<i64, StoreError> {
        let query = sqlx::query_scalar(sql);
        let query = if let Some(value) = bind { query.bind(value) } else { query };
        let found = query.fetch_one(&mut self.connection).await;
        found.map_err(|error| self.failed(error))
    }

    pub(super) async fn rows(&mut self, sql: &'static str, binds: Vec<Bind>) -> Result<Vec<(String, i64)>, StoreError> {
        let query = binds.into_iter().fold(sqlx::query_as(sql), |query, bind| match bind {
            Bind::Number(number) => query.bind(number),
            Bind::Text(text) => query.bind(text),
        });
        query.fetch_all(&mut self.connection).await.map_err(|error| failed(&self.database, APPEND, error))
    }

    pub(super) async fn find(&mut self, sql: &'static str, ids: Vec<String>) -> Result<Vec<(String, i64)>, StoreError> {
        let sql = AssertSqlSafe(format!("{sql} = ANY($1)"));
        let rows = sqlx::query(sql).bind(ids).fetch_all(&mut self.connection).await;
        let read = |row: &sqlx::postgres::PgRow| Ok((row.try_get(0)?, row.try_get(1)?));
        rows.and_then(|rows| rows.iter().map(read).collect()).map_err(|error| self.failed(error))
    }

    /// Returns for each row whether it was inserted or changed; `None` if all rows were expected to be new and one exists.
    pub(super) async fn add(&mut self, table: &'static TargetTable, rows: RowBatch) -> Result<Option<Vec<bool>>, StoreError> {
        let copied = match table.on_conflict {
            OnConflict::Fail => true,
            OnConflict::Ignore => self.all_new,
            OnConflict::Add { .. } | OnConflict::Replace { .. } => false,
        };
        if copied {
            return match self.copy(table, &rows).await {
                Ok(()) => Ok(Some(vec![true; rows.len()])),
                Err(error) if table.on_conflict == OnConflict::Ignore && is_unique_violation(&error) => Ok(None),
                Err(error) => Err(self.failed(error)),
            };
        }
        let added = match table.on_conflict {
            OnConflict::Ignore => self.insert_missing(table, &rows).await,
            OnConflict::Fail | OnConflict::Add { .. } | OnConflict::Replace { .. } => {
                let sql = AssertSqlSafe(table.insert(&select_unnest(table)));
                let done = bind(sqlx::query(sql), table, &rows).execute(&mut self.connection).await;
                done.map(|_| vec![true; rows.len()])
            }
        };
        added.map(Some).map_err(|error| self.failed(error))
    }

    async fn copy(&mut self, table: &TargetTable, rows: &RowBatch) -> Result<(), sqlx::Error> {
        let sql = format!("COPY {} ({}) FROM STDIN (FORMAT binary)", table.name, table.columns);
        let mut copy = self.connection.copy_in_raw(&sql).await?;
        copy.send(encode(rows)).await?;
        copy.finish().await.map(|_| ())
    }

    /// The first column identifies the inserted rows; of duplicates within the batch the first one is inserted.
    async fn insert_missing(&mut self, table: &TargetTable, rows: &RowBatch) -> Result<Vec<bool>, sqlx::Error> {
        let sql = AssertSqlSafe(table.insert(&select_unnest(table)) + " RETURNING " + table.columns().next().unwrap_or_default());
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

    async fn end(mut self, sql: &'static str) -> Result<(), StoreError> {
        if let Err(error) = self.connection.execute(sql).await {
            return Err(self.failed(error));
        }
        let Self { connection, mut slot, .. } = self;
        *slot = Some(connection);
        Ok(())
    }
}

fn is_unique_violation(error: &sqlx::Error) -> bool {
    error.as_database_error().and_then(sqlx::error::DatabaseError::code).is_some_and(|code| code == UNIQUE_VIOLATION)
}

/// A `SELECT` from one array per column.
fn select_unnest(table: &TargetTable) -> String {
    let kind = |column| if is_number(column) { "BIGINT" } else { "TEXT" };
    let arrays = (1..).zip(table.columns()).map(|(number, column)| format!("${number}::{}[]", kind(column)));
    format!("SELECT * FROM UNNEST({})", arrays.collect::<Vec<_>>().join(", "))
}

type PgQuery<'q> = Query<'q, sqlx::Postgres, sqlx::postgres::PgArguments>;

fn bind<'q>(query: PgQuery<'q>, table: &TargetTable, rows: &RowBatch) -> PgQuery<'q> {
    table.columns().enumerate().fold(query, |query, (at, column)| {
        let values = rows.column(at);
        if is_number(column) {
            query.bind(values.map(|value| if let Value::Number(number) = value { Some(number) } else { None }).collect::<Vec<_>>())
        } else {
            let text = |value| if let Value::Text(text) = value { Some(text.to_owned()) } else { None };
            query.bind(values.map(text).collect::<Vec<Option<String>>>())
        }
    })
}

/// Encodes rows in PostgreSQL's binary `COPY` format: per row the number of columns, then each value prefixed with its length.
fn encode(rows: &RowBatch) -> Vec<u8> {
    let mut bytes = HEADER.to_vec();
    for row in rows.rows() {
        let start = bytes.len();
        bytes.extend_from_slice(&[0; 2]);
        let mut columns: i16 = 0;
        for value in row {
            columns += 1;
            match value {
                Value::Null => bytes.extend_from_slice(&(-1_i32).to_be_bytes()),
                Value::Number(number) => {
                    bytes.extend_from_slice(&8_i32.to_be_bytes());
                    bytes.extend_from_slice(&number.to_be_bytes());
                }
                Value::Text(text) => {
                    let length = i32::try_from(text.len()).expect("texts of usage records are far below 2 GiB");
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
