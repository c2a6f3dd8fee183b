//! The advisory lock by which a server excludes other servers from a PostgreSQL database.

use sqlx::{AnyConnection, Connection as _, Row as _, any::AnyConnectOptions};
use tokio::{sync::Mutex, time::timeout};

use super::{
    address::{CONNECT_TIMEOUT, SqlAddress, within_connect_timeout},
    driver_error::failed,
};
use crate::StoreError;

/// Whether other servers may hold the lock at the same time.
#[derive(Clone, Copy, Debug)]
pub(super) enum LockMode {
    Exclusive,
    /// One of several nodes that share their counters. Excludes servers that do not.
    Shared,
}

impl LockMode {
    /// The first number of the lock is "toll" in ASCII; the second one distinguishes the schemas of one database.
    const fn sql(self) -> &'static str {
        match self {
            Self::Exclusive => "SELECT CASE WHEN pg_try_advisory_lock(1953459308, hashtext(current_schema())) THEN 1 ELSE 0 END",
            Self::Shared => {
                "SELECT CASE WHEN pg_try_advisory_lock_shared(1953459308, hashtext(current_schema())) THEN 1 ELSE 0 END"
            }
        }
    }
}

/// The acquired lock. PostgreSQL releases it when the connection ends.
#[derive(Debug)]
pub(super) struct ServerLock {
    connection: Mutex<AnyConnection>,
    options: AnyConnectOptions,
    mode: LockMode,
}

impl ServerLock {
    pub(super) async fn acquire(options: &AnyConnectOptions, mode: LockMode, database: &str) -> Result<Self, StoreError> {
        let connection = Mutex::new(acquire(options, mode, database).await?);
        Ok(Self { connection, options: options.clone(), mode })
    }

    /// Checks the connection, and acquires the lock again if it is broken.
    pub(super) async fn keep(&self, database: &str) -> Result<(), StoreError> {
        let mut connection = self.connection.lock().await;
        if connection.ping().await.is_err() {
            *connection = acquire(&self.options, self.mode, database).await?;
        }
        Ok(())
    }

    /// Acquires the lock again after a release.
    pub(super) async fn retake(&self, database: &str) -> Result<(), StoreError> {
        *self.connection.lock().await = acquire(&self.options, self.mode, database).await?;
        Ok(())
    }

    pub(super) async fn release(&self) {
        let unlock = sqlx::query("SELECT COUNT(*) FROM (SELECT pg_advisory_unlock_all()) AS unlocked");
        // A broken connection holds no lock, so errors do not matter.
        let _ = timeout(CONNECT_TIMEOUT, unlock.execute(&mut *self.connection.lock().await)).await;
    }
}

async fn acquire(options: &AnyConnectOptions, mode: LockMode, database: &str) -> Result<AnyConnection, StoreError> {
    let query = |error| failed(database, "take the server's lock", error);
    let mut connection = within_connect_timeout(database, AnyConnection::connect_with(options)).await?.map_err(query)?;
    let row = sqlx::query(mode.sql()).fetch_one(&mut connection).await.map_err(query)?;
    let acquired: i32 = row.try_get(0).map_err(query)?;
    if acquired == 1 { Ok(connection) } else { Err(StoreError::SecondNode { database: database.to_owned() }) }
}

/// Acquires the exclusive lock for as long as the returned connection lives.
pub(super) async fn lock_exclusively(address: &SqlAddress) -> Result<AnyConnection, StoreError> {
    acquire(&address.connect_options()?, LockMode::Exclusive, &address.shown()).await
}
