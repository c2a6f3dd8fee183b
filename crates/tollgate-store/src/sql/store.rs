//! The opened database with everything its queries need.

use std::path::Path;

use arc_swap::ArcSwap;
use sqlx::{Any, Transaction, any::AnyRow};

use super::{
    append::{Bookkeeping, UsageAppender},
    change_signal::ChangeSignal,
    dialect::Dialect,
    driver_error,
    known_keys::KnownKeys,
    pools::ConnectionPools,
    retention::RetentionProgress,
    rows::{AnyQuery, catalog_row},
    server_lock::ServerLock,
    summary::KeysByNumber,
    usage_reader::UsageReader,
};
use crate::{KeyHasher, MasterKeySource, RandomSource, StoreError, rows::CatalogRow, seal::Sealer};

/// A database that implements the store's traits. Each module of this folder adds the queries of one trait or topic.
#[derive(Debug)]
pub(crate) struct SqlStore {
    pub(super) dialect: Dialect,
    /// Address without a password, for messages.
    pub(super) database: String,
    pub(super) pools: ConnectionPools,
    pub(crate) sealer: Sealer,
    pub(crate) hasher: KeyHasher,
    pub(super) random: RandomSource,
    /// Held by servers on PostgreSQL.
    pub(super) server_lock: Option<ServerLock>,
    pub(super) change_signal: ChangeSignal,
    pub(super) appender: UsageAppender,
    pub(super) usage_reader: UsageReader,
    pub(super) books: Bookkeeping,
    pub(super) retention: RetentionProgress,
    pub(super) keys: KnownKeys,
    /// Service keys of the usage log that were looked up, by their numbers in the dictionary.
    pub(super) key_numbers: ArcSwap<KeysByNumber>,
}

impl SqlStore {
    /// Begins a transaction that will write. On SQLite it acquires the write lock at once: a transaction that reads first fails at
    /// its first write if another process wrote in between.
    pub(super) async fn begin(&self, operation: &'static str) -> Result<Transaction<'static, Any>, StoreError> {
        let begun = match self.dialect {
            Dialect::Sqlite => self.pools.writer().begin_with("BEGIN IMMEDIATE").await,
            Dialect::Postgres => self.pools.writer().begin().await,
        };
        begun.map_err(|error| self.failed(operation, error))
    }

    pub(super) async fn commit(&self, operation: &'static str, transaction: Transaction<'static, Any>) -> Result<(), StoreError> {
        transaction.commit().await.map_err(|error| self.failed(operation, error))
    }

    /// Begins a transaction that reads one consistent snapshot, without a time limit.
    pub(super) async fn snapshot(&self, operation: &'static str) -> Result<Transaction<'static, Any>, StoreError> {
        let failed = |error| self.failed(operation, error);
        match self.dialect {
            Dialect::Sqlite => self.pools.reader().begin().await.map_err(failed),
            Dialect::Postgres => {
                let begin = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY";
                let mut transaction = self.pools.reader().begin_with(begin).await.map_err(failed)?;
                sqlx::raw_sql("SET LOCAL statement_timeout = 0").execute(&mut *transaction).await.map_err(failed)?;
                Ok(transaction)
            }
        }
    }

    pub(super) async fn fetch(&self, operation: &'static str, query: AnyQuery<'_>) -> Result<Vec<AnyRow>, StoreError> {
        query.fetch_all(self.pools.reader()).await.map_err(|error| self.failed(operation, error))
    }

    pub(super) async fn fetch_as<T>(
        &self,
        operation: &'static str,
        query: AnyQuery<'_>,
        read: fn(&AnyRow) -> Result<T, sqlx::Error>,
    ) -> Result<Vec<T>, StoreError> {
        let rows = self.fetch(operation, query).await?;
        rows.iter().map(read).collect::<Result<_, _>>().map_err(|error| self.failed(operation, error))
    }

    pub(super) async fn fetch_rows(&self, operation: &'static str, query: AnyQuery<'_>) -> Result<Vec<CatalogRow>, StoreError> {
        self.fetch(operation, query).await?.iter().map(catalog_row).collect()
    }

    pub(super) fn failed(&self, operation: &'static str, error: sqlx::Error) -> StoreError {
        driver_error::failed(&self.database, operation, error)
    }

    /// The source of the master key, and the data folder.
    pub(crate) fn source_of_master_key(&self) -> (&MasterKeySource, &Path) {
        (&self.keys.master, &self.keys.data)
    }

    pub(crate) const fn random(&self) -> &RandomSource {
        &self.random
    }

    /// Checks the server's lock, and acquires it again if its connection is broken.
    pub(crate) async fn keep_lock(&self) -> Result<(), StoreError> {
        match &self.server_lock {
            Some(lock) => lock.keep(&self.database).await,
            None => Ok(()),
        }
    }

    pub(crate) async fn release_lock(&self) {
        if let Some(lock) = &self.server_lock {
            lock.release().await;
        }
    }

    /// Acquires the lock again after [`Self::release_lock`].
    pub(crate) async fn retake_lock(&self) -> Result<(), StoreError> {
        match &self.server_lock {
            Some(lock) => lock.retake(&self.database).await,
            None => Ok(()),
        }
    }

    pub(crate) async fn close(&self) {
        self.change_signal.close();
        self.appender.close().await;
        self.usage_reader.close().await;
        self.pools.close().await;
        if let Some(lock) = &self.server_lock {
            lock.release().await;
        }
    }
}
