//! Appends to PostgreSQL: many new rows by binary `COPY`, sums and few rows by `INSERT` from arrays. Parsing a statement with many
//! placeholders would take the server longer than inserting the rows. With arrays the server takes three times as long for a row as
//! with `COPY`. But the end of a `COPY` is a separate message, which waits until the server has acknowledged the rows: up to 40 ms,
//! during which other batches wait for the lock of the ledger.

use std::{collections::HashSet, str::FromStr as _, sync::Arc};

use sqlx::{AssertSqlSafe, Connection as _, Executor as _, PgConnection, Row as _, postgres::PgConnectOptions, query::Query};
use tokio::sync::{Mutex, OwnedMutexGuard};
use tollgate_core::RequestId;

use super::{
    APPEND, Bind, StoredHistograms,
    row_batch::{OnConflict, RowBatch, TargetTable, Value},
};
use crate::{
    StoreError,
    rollup::UsageSumKey,
    sql::{
        address::{POSTGRES_SETUP, within_connect_timeout},
        cells::request_id,
        columns::{ColumnKind, column_list},
        driver_error::failed,
        names::NameText,
    },
};

/// Header of `COPY … (FORMAT binary)`: signature, flags, length of the header extension.
const HEADER: &[u8] = b"PGCOPY\n\xff\r\n\0\0\0\0\0\0\0\0\0";
/// Trailer of `COPY … (FORMAT binary)`.
const TRAILER: &[u8] = &[0xff, 0xff];
/// Number of rows from which `COPY` is faster than arrays despite its wait.
const COPY_FROM: usize = 1_024;
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
    /// Keeps the connection after the transaction.
    slot: OwnedMutexGuard<Option<PgConnection>>,
    database: String,
}

impl PostgresAppender {
    pub(super) fn new(url: &str, database: &str) -> Self {
        Self { url: url.to_owned(), database: database.to_owned(), connection: Arc::default() }
    }

    pub(super) async fn begin(&self) -> Result<PostgresTransaction, StoreError> {
        let failed = |error| failed(&self.database, APPEND, error);
        let mut slot = Arc::clone(&self.connection).lock_owned().await;
        let kept = match slot.take() {
            Some(mut kept) => kept.ping().await.is_ok().then_some(kept),
            None => None,
        };
        let mut connection = if let Some(kept) = kept { kept } else { self.connect().await? };
        connection.execute("BEGIN").await.map_err(failed)?;
        Ok(PostgresTransaction { connection, slot, database: self.database.clone() })
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

    pub(super) async fn existing(&mut self, table: &'static str, ids: Vec<RequestId>) -> Result<HashSet<RequestId>, StoreError> {
        let sql = AssertSqlSafe(format!("SELECT id FROM {table} WHERE id = ANY($1)"));
        let ids: Vec<Vec<u8>> = ids.into_iter().map(|id| id.uuid().as_bytes().to_vec()).collect();
        let rows = sqlx::query(sql).bind(ids).fetch_all(&mut self.connection).await;
        let read = |row: &sqlx::postgres::PgRow| request_id(row.try_get(0)?);
        rows.and_then(|rows| rows.iter().map(read).collect()).map_err(|error| self.failed(error))
    }

    pub(super) async fn find_names(&mut self, texts: &[NameText]) -> Result<Vec<Option<i64>>, StoreError> {
        const SQL: &str = "SELECT t.place, n.ref::BIGINT FROM UNNEST($1::BIGINT[], $2::TEXT[], $3::TEXT[]) \
             WITH ORDINALITY AS t (kind, id, name, place) JOIN names n ON n.kind = t.kind AND n.id = t.id AND n.name = t.name";
        let query = sqlx::query_as(SQL)
            .bind(texts.iter().map(|text| text.kind.code()).collect::<Vec<_>>())
            .bind(texts.iter().map(NameText::stored_id).collect::<Vec<_>>())
            .bind(texts.iter().map(|text| text.name.clone()).collect::<Vec<_>>());
        let rows: Result<Vec<(i64, i64)>, _> = query.fetch_all(&mut self.connection).await;
        let rows = rows.map_err(|error| self.failed(error))?;
        Ok(in_places(texts.len(), rows))
    }

    pub(super) async fn histograms(&mut self, keys: Vec<(i64, UsageSumKey)>) -> Result<Vec<Option<StoredHistograms>>, StoreError> {
        const SQL: &str = "SELECT k.place, s.ttft, s.duration, s.overhead FROM UNNEST($1::INTEGER[], $2::INTEGER[], $3::INTEGER[], $4::INTEGER[], \
             $5::INTEGER[], $6::SMALLINT[], $7::SMALLINT[], $8::INTEGER[]) WITH ORDINALITY \
             AS k (width, minute, grp, model, channel, protocol_in, outcome, reason, place) \
             JOIN usage_sums s ON s.width = k.width AND s.minute = k.minute AND s.grp = k.grp AND s.model = k.model \
             AND s.channel = k.channel AND s.protocol_in = k.protocol_in AND s.outcome = k.outcome AND s.reason = k.reason";
        let ints = |at: usize| keys.iter().map(|(_, key)| int(key[at])).collect::<Vec<_>>();
        let smalls = |at: usize| keys.iter().map(|(_, key)| small(key[at])).collect::<Vec<_>>();
        let widths = keys.iter().map(|(width, _)| int(*width)).collect::<Vec<_>>();
        let query = sqlx::query_as(SQL).bind(widths).bind(ints(0)).bind(ints(1)).bind(ints(2)).bind(ints(3));
        let rows = query.bind(smalls(4)).bind(smalls(5)).bind(ints(6)).fetch_all(&mut self.connection).await;
        type Row = (i64, Vec<u8>, Vec<u8>, Vec<u8>);
        let rows: Vec<Row> = rows.map_err(|error| self.failed(error))?;
        let stored = |(place, ttft, duration, overhead): Row| (place, [ttft, duration, overhead]);
        Ok(in_places(keys.len(), rows.into_iter().map(stored)))
    }

    pub(super) async fn packed(
        &mut self,
        table: &str,
        width: i64,
        parts: Vec<(i64, i64)>,
    ) -> Result<Vec<Option<Vec<u8>>>, StoreError> {
        let sql = format!(
            "SELECT k.place, s.sums FROM UNNEST($2::INTEGER[], $3::INTEGER[]) WITH ORDINALITY AS k (minute, part, place) \
             JOIN {table} s ON s.width = $1::INTEGER AND s.minute = k.minute AND s.part = k.part"
        );
        let query = sqlx::query_as(AssertSqlSafe(sql))
            .bind(int(width))
            .bind(parts.iter().map(|(minute, _)| int(*minute)).collect::<Vec<_>>())
            .bind(parts.iter().map(|(_, part)| int(*part)).collect::<Vec<_>>());
        let rows: Result<Vec<(i64, Vec<u8>)>, _> = query.fetch_all(&mut self.connection).await;
        Ok(in_places(parts.len(), rows.map_err(|error| self.failed(error))?))
    }

    /// Adds rows; false if one of them exists already and the table does not merge rows.
    pub(super) async fn add(&mut self, table: &'static TargetTable, rows: RowBatch) -> Result<bool, StoreError> {
        let count = rows.len();
        self.add_pieces(table, count, std::iter::once(rows)).await
    }

    /// As [`Self::add`], for `count` rows in several pieces, each made when it is sent.
    pub(super) async fn add_pieces(
        &mut self,
        table: &'static TargetTable,
        count: usize,
        pieces: impl Iterator<Item = RowBatch>,
    ) -> Result<bool, StoreError> {
        let added = if table.on_conflict == OnConflict::Fail && count >= COPY_FROM {
            self.copy(table, pieces).await
        } else {
            self.insert(table, pieces).await
        };
        match added {
            Ok(()) => Ok(true),
            Err(error) if is_unique_violation(&error) => Ok(false),
            Err(error) => Err(self.failed(error)),
        }
    }

    async fn insert(&mut self, table: &'static TargetTable, pieces: impl Iterator<Item = RowBatch>) -> Result<(), sqlx::Error> {
        let sql = table.statements.arrays.get_or_init(|| table.insert("INSERT", &select_unnest(table)));
        for rows in pieces {
            bind(sqlx::query(sql.as_str()), table, &rows).execute(&mut self.connection).await?;
        }
        Ok(())
    }

    /// The server inserts a piece while the next one is encoded.
    async fn copy(&mut self, table: &TargetTable, pieces: impl Iterator<Item = RowBatch>) -> Result<(), sqlx::Error> {
        let sql = format!("COPY {} ({}) FROM STDIN (FORMAT binary)", table.name, column_list(table.columns));
        let mut copy = self.connection.copy_in_raw(&sql).await?;
        copy.send(HEADER).await?;
        for rows in pieces {
            copy.send(encode(table, &rows)).await?;
        }
        copy.send(TRAILER).await?;
        copy.finish().await.map(|_| ())
    }

    pub(super) fn database(&self) -> &str {
        &self.database
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

/// Values in the order of their position, which counts from 1; `None` for a missing one.
fn in_places<T>(count: usize, found: impl IntoIterator<Item = (i64, T)>) -> Vec<Option<T>> {
    let mut places: Vec<Option<T>> = std::iter::repeat_with(|| None).take(count).collect();
    for (place, value) in found {
        if let Some(slot) = usize::try_from(place - 1).ok().and_then(|place| places.get_mut(place)) {
            *slot = Some(value);
        }
    }
    places
}

/// A `SELECT` from one array per column.
fn select_unnest(table: &TargetTable) -> String {
    let kind = |kind| match kind {
        ColumnKind::Small => "SMALLINT",
        ColumnKind::Int => "INTEGER",
        ColumnKind::Big => "BIGINT",
        ColumnKind::Text => "TEXT",
        ColumnKind::Bytes => "BYTEA",
    };
    let arrays = (1..).zip(table.columns).map(|(number, column)| format!("${number}::{}[]", kind(column.kind)));
    format!("SELECT * FROM UNNEST({})", arrays.collect::<Vec<_>>().join(", "))
}

type PgQuery<'q> = Query<'q, sqlx::Postgres, sqlx::postgres::PgArguments>;

fn bind<'q>(query: PgQuery<'q>, table: &TargetTable, rows: &RowBatch) -> PgQuery<'q> {
    table.columns.iter().enumerate().fold(query, |query, (at, column)| {
        let values = rows.column(at);
        let number = |value| if let Value::Number(number) = value { Some(number) } else { None };
        match column.kind {
            ColumnKind::Small => query.bind(values.map(|value| number(value).map(small)).collect::<Vec<_>>()),
            ColumnKind::Int => query.bind(values.map(|value| number(value).map(int)).collect::<Vec<_>>()),
            ColumnKind::Big => query.bind(values.map(number).collect::<Vec<_>>()),
            ColumnKind::Text => {
                let text = |value| if let Value::Text(text) = value { Some(text.to_owned()) } else { None };
                query.bind(values.map(text).collect::<Vec<Option<String>>>())
            }
            ColumnKind::Bytes => {
                let bytes = |value| if let Value::Bytes(bytes) = value { Some(bytes.to_vec()) } else { None };
                query.bind(values.map(bytes).collect::<Vec<Option<Vec<u8>>>>())
            }
        }
    })
}

/// Encodes rows in PostgreSQL's binary `COPY` format: per row the number of columns, then each value prefixed with its length.
fn encode(table: &TargetTable, rows: &RowBatch) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(rows.len() * 256);
    let columns = i16::try_from(table.columns.len()).expect("tables have few columns");
    for row in rows.rows() {
        bytes.extend_from_slice(&columns.to_be_bytes());
        for (value, column) in row.zip(table.columns) {
            match value {
                Value::Null => bytes.extend_from_slice(&(-1_i32).to_be_bytes()),
                Value::Number(number) => number_value(&mut bytes, column.kind, number),
                Value::Text(text) => bytes_value(&mut bytes, text.as_bytes()),
                Value::Bytes(value) => bytes_value(&mut bytes, value),
            }
        }
    }
    bytes
}

/// A number in as many bytes as its column has.
fn number_value(bytes: &mut Vec<u8>, kind: ColumnKind, number: i64) {
    match kind {
        ColumnKind::Small => bytes_value(bytes, &small(number).to_be_bytes()),
        ColumnKind::Int => bytes_value(bytes, &int(number).to_be_bytes()),
        ColumnKind::Big | ColumnKind::Text | ColumnKind::Bytes => bytes_value(bytes, &number.to_be_bytes()),
    }
}

/// Saturates, as [`int`] does.
fn small(number: i64) -> i16 {
    i16::try_from(number).unwrap_or(if number < 0 { i16::MIN } else { i16::MAX })
}

fn int(number: i64) -> i32 {
    i32::try_from(number).unwrap_or(if number < 0 { i32::MIN } else { i32::MAX })
}

fn bytes_value(bytes: &mut Vec<u8>, value: &[u8]) {
    let length = i32::try_from(value.len()).expect("values of usage records are far below 2 GiB");
    bytes.extend_from_slice(&length.to_be_bytes());
    bytes.extend_from_slice(value);
}
