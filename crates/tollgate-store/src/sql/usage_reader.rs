//! Reads rows of the usage log through the drivers of the two databases. Through sqlx's `Any` driver a row takes several times as
//! long: each of its values is copied into one of the driver's own and, on SQLite, handed from one thread to another.

mod postgres;
mod sqlite;

use tollgate_core::RequestId;

use super::cells::{Cells, FromCells};
use crate::StoreError;

pub(super) use postgres::{PostgresReader, query as postgres_query, rows as postgres_rows};
pub(super) use sqlite::{ReadConnection, SqliteReader, read_blocking};

/// Queries that run at the same time.
const CONNECTIONS: u32 = 4;

/// Connections for pages of the usage log.
#[derive(Debug)]
pub(super) enum UsageReader {
    Sqlite(SqliteReader),
    Postgres(PostgresReader),
}

/// Values of a column by which rows are looked up.
#[derive(Clone, Debug)]
pub(super) enum LookUp {
    Numbers(Vec<i64>),
    Requests(Vec<RequestId>),
    Texts(Vec<String>),
}

/// Takes the rows of a query one by one.
pub(super) trait FoldRows: Send + 'static {
    fn row(&mut self, cells: &mut impl Cells) -> Result<(), sqlx::Error>;

    /// Whether no further row is needed.
    fn is_done(&self) -> bool {
        false
    }
}

impl UsageReader {
    /// Passes the rows of a query, with ids bound from `$1` on, to `fold`, and returns it.
    pub(super) async fn fold<F: FoldRows>(
        &self,
        operation: &'static str,
        (sql, ids): (String, Vec<RequestId>),
        fold: F,
    ) -> Result<F, StoreError> {
        match self {
            Self::Sqlite(reader) => reader.run(operation, move |connection| connection.fold(operation, (&sql, &ids), fold)).await,
            Self::Postgres(reader) => reader.fold(operation, (&sql, &ids), fold).await,
        }
    }

    /// The rows of a query, with ids bound from `$1` on.
    pub(super) async fn rows<T: FromCells>(
        &self,
        operation: &'static str,
        sql: String,
        ids: Vec<RequestId>,
    ) -> Result<Vec<T>, StoreError> {
        match self {
            Self::Sqlite(reader) => reader.run(operation, move |connection| connection.rows(operation, &sql, &ids)).await,
            Self::Postgres(reader) => reader.rows(operation, sql, &ids).await,
        }
    }

    /// The rows that have one of these values in a column. `sql` ends with the name of the column.
    pub(super) async fn rows_with<T: FromCells>(
        &self,
        operation: &'static str,
        sql: String,
        values: LookUp,
    ) -> Result<Vec<T>, StoreError> {
        match self {
            Self::Sqlite(reader) => reader.run(operation, move |connection| connection.rows_with(operation, &sql, values)).await,
            Self::Postgres(reader) => reader.rows_with(operation, sql, values).await,
        }
    }

    pub(super) async fn close(&self) {
        match self {
            Self::Sqlite(reader) => reader.close(),
            Self::Postgres(reader) => reader.close().await,
        }
    }
}
