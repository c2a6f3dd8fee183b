//! Reads from PostgreSQL in its binary format.

use std::str::FromStr as _;

use futures_util::TryStreamExt as _;
use sqlx::{
    AssertSqlSafe, Connection as _, PgPool, Postgres, Transaction,
    postgres::{PgArguments, PgConnectOptions, PgPoolOptions},
    query::Query,
};
use tollgate_core::RequestId;

use super::{CONNECTIONS, FoldRows, LookUp};
use crate::{
    StoreError,
    sql::{
        address::POSTGRES_SETUP,
        cells::{FromCells, PostgresCells},
        connect::ACQUIRE_TIMEOUT,
        driver_error::failed,
        own_task::on_own_task,
        pools::TESTED_AFTER,
    },
};

type PgQuery<'q> = Query<'q, Postgres, PgArguments>;

/// Connects when a page is read.
#[derive(Debug)]
pub(in crate::sql) struct PostgresReader {
    pool: PgPool,
    database: String,
}

impl PostgresReader {
    pub(in crate::sql) fn new(url: &str, database: &str) -> Result<Self, StoreError> {
        let options = PgConnectOptions::from_str(url)
            .map_err(|error| StoreError::BadUrl { url: database.to_owned(), detail: error.to_string() })?;
        let pool = PgPoolOptions::new()
            .max_connections(CONNECTIONS)
            .acquire_timeout(ACQUIRE_TIMEOUT)
            .test_before_acquire(false)
            .before_acquire(|connection, times| {
                Box::pin(async move {
                    if times.idle_for >= TESTED_AFTER {
                        connection.ping().await?;
                    }
                    Ok(true)
                })
            })
            .after_connect(|connection, _| {
                Box::pin(async move { sqlx::raw_sql(POSTGRES_SETUP).execute(connection).await.map(|_| ()) })
            })
            .connect_lazy_with(options);
        Ok(Self { pool, database: database.to_owned() })
    }

    pub(super) async fn rows<T: FromCells>(
        &self,
        operation: &'static str,
        sql: String,
        ids: &[RequestId],
    ) -> Result<Vec<T>, StoreError> {
        let rows = rows(query(&sql, ids), &self.pool).await;
        rows.map_err(|error| failed(&self.database, operation, error))
    }

    pub(super) async fn rows_with<T: FromCells>(
        &self,
        operation: &'static str,
        sql: String,
        values: LookUp,
    ) -> Result<Vec<T>, StoreError> {
        let query = sqlx::query(AssertSqlSafe(format!("{sql} = ANY($1)")));
        let query = match values {
            LookUp::Numbers(numbers) => query.bind(numbers),
            LookUp::Texts(texts) => query.bind(texts),
            LookUp::Requests(ids) => query.bind(ids.into_iter().map(bytes).collect::<Vec<_>>()),
        };
        self::rows(query, &self.pool).await.map_err(|error| failed(&self.database, operation, error))
    }

    pub(super) async fn fold<F: FoldRows>(
        &self,
        operation: &'static str,
        (sql, ids): (&str, &[RequestId]),
        mut fold: F,
    ) -> Result<F, StoreError> {
        let (query, pool, database) = (query(sql, ids), self.pool.clone(), self.database.clone());
        // Queries of one answer are read on several threads.
        on_own_task(async move {
            let failed = |error| failed(&database, operation, error);
            let mut rows = query.fetch(&pool);
            while let Some(row) = rows.try_next().await.map_err(failed)? {
                fold.row(&mut PostgresCells::new(&row)).map_err(failed)?;
                if fold.is_done() {
                    break;
                }
            }
            drop(rows);
            Ok(fold)
        })
        .await
    }

    /// Begins a transaction with the snapshot that another one exported. Also returns the server's process.
    pub(in crate::sql) async fn snapshot(
        &self,
        operation: &'static str,
        exported: &str,
    ) -> Result<(Transaction<'static, Postgres>, i64), StoreError> {
        let failed = |error| failed(&self.database, operation, error);
        let begin = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY";
        let mut transaction = self.pool.begin_with(begin).await.map_err(failed)?;
        let set = format!(
            "SET TRANSACTION SNAPSHOT '{exported}'; SET LOCAL statement_timeout = 0; \
             SET LOCAL idle_in_transaction_session_timeout = 0"
        );
        sqlx::raw_sql(AssertSqlSafe(set)).execute(&mut *transaction).await.map_err(failed)?;
        let process = sqlx::query_scalar("SELECT CAST(pg_backend_pid() AS BIGINT)").fetch_one(&mut *transaction).await;
        Ok((transaction, process.map_err(failed)?))
    }

    pub(super) async fn close(&self) {
        self.pool.close().await;
    }
}

fn bytes(id: RequestId) -> Vec<u8> {
    id.uuid().as_bytes().to_vec()
}

/// A query with ids bound from `$1` on.
pub(in crate::sql) fn query(sql: &str, ids: &[RequestId]) -> PgQuery<'static> {
    ids.iter().fold(sqlx::query(AssertSqlSafe(sql.to_owned())), |query, id| query.bind(bytes(*id)))
}

/// The rows of a query.
pub(in crate::sql) async fn rows<'c, T: FromCells>(
    query: PgQuery<'static>,
    connection: impl sqlx::PgExecutor<'c>,
) -> Result<Vec<T>, sqlx::Error> {
    let (mut rows, mut found) = (query.fetch(connection), Vec::new());
    while let Some(row) = rows.try_next().await? {
        found.push(T::from_cells(&mut PostgresCells::new(&row))?);
    }
    Ok(found)
}
