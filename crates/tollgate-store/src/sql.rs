//! The database backend: one SQL text for SQLite and PostgreSQL, through sqlx `Any`.

mod booking;
mod catalog;
mod change_signal;
mod connect;
mod data_keys;
mod health;
mod keys;
mod ledger;
mod listing;
mod migrate;
mod months;
mod prune;
mod rows;
mod spending;
mod statement;
mod summary;
pub(crate) mod transfer;
mod usage;
mod usage_rows;
mod verify;

use sqlx::{Any, AnyPool, Transaction};

use crate::{KeyHasher, RandomSource, StoreError, seal::Sealer};

use booking::BookingConnection;
use change_signal::ChangeSignal;

pub(crate) use connect::{OpenSql, SqlAddress, open};
pub(crate) use data_keys::{DataKeys, open_rows as open_data_keys, rotate};
pub(crate) use spending::SpendingScope;

/// Which database is behind `Any`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dialect {
    Sqlite,
    Postgres,
}

/// A database with what is needed to ask it.
#[derive(Debug)]
pub(crate) struct SqlStore {
    dialect: Dialect,
    /// For messages; without a password.
    place: String,
    writer: AnyPool,
    reader: AnyPool,
    sealer: Sealer,
    pub(crate) hasher: KeyHasher,
    random: RandomSource,
    /// Holds the lock of a server on a PostgreSQL database.
    guard: Option<connect::ServerLock>,
    news: ChangeSignal,
    /// Booking has its own way in.
    books: BookingConnection,
}

impl SqlStore {
    /// Begins a transaction that will write. On SQLite it takes the write lock at once: one that reads first and then
    /// writes would fail when another process wrote in between.
    async fn begin(&self, operation: &'static str) -> Result<Transaction<'static, Any>, StoreError> {
        let begun = match self.dialect {
            Dialect::Sqlite => self.writer.begin_with("BEGIN IMMEDIATE").await,
            Dialect::Postgres => self.writer.begin().await,
        };
        begun.map_err(|error| self.failed(operation, error))
    }

    /// What a driver's error means.
    fn failed(&self, operation: &'static str, error: sqlx::Error) -> StoreError {
        connect::failed(&self.place, operation, error)
    }

    async fn commit(&self, operation: &'static str, transaction: Transaction<'static, Any>) -> Result<(), StoreError> {
        transaction.commit().await.map_err(|error| self.failed(operation, error))
    }

    /// Asks for a sign of life, and takes the server's lock again when it was lost.
    pub(crate) async fn keep_lock(&self) -> Result<(), StoreError> {
        match &self.guard {
            Some(guard) => guard.keep(&self.place).await,
            None => Ok(()),
        }
    }

    /// Closes all connections.
    pub(crate) async fn close(&self) {
        self.news.close();
        self.books.close().await;
        self.reader.close().await;
        self.writer.close().await;
        if let Some(guard) = &self.guard {
            guard.let_go().await;
        }
    }
}
