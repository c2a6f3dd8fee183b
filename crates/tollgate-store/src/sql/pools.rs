//! The pools of connections. A connection runs at the priority of the thread that opens it: SQLite works on a thread started from there,
//! and PostgreSQL's socket is polled by the runtime that opened it. Threads of low priority have separate pools, so that no thread of
//! normal priority gets one of their connections and waits for it.

use std::{cell::Cell, time::Duration};

use sqlx::{
    AnyPool, Connection as _, Error,
    any::{AnyConnectOptions, AnyPoolOptions},
};

use super::{
    address::{POSTGRES_SETUP, SQLITE_READER_SETUP, SQLITE_SETUP},
    connect::ACQUIRE_TIMEOUT,
    dialect::Dialect,
};

const SQLITE_READERS: u32 = 4;
const POSTGRES_CONNECTIONS: u32 = 10;
/// A connection to PostgreSQL that was idle for this long is tested before it is used. A page of the console makes dozens of queries in a
/// row, and a test of each connection would be one more round trip for each.
pub(super) const TESTED_AFTER: Duration = Duration::from_millis(100);
/// Connections to PostgreSQL for threads of low priority.
const LOW_PRIORITY_POSTGRES_CONNECTIONS: u32 = 6;

thread_local! {
    static HAS_LOW_PRIORITY: Cell<bool> = const { Cell::new(false) };
}

/// Marks this thread as one of low priority: it gets connections that no thread of normal priority uses, except for SQLite's
/// writer. Call it when the thread starts.
pub fn use_low_priority_connections() {
    HAS_LOW_PRIORITY.set(true);
}

/// Connections for writing and for reading.
#[derive(Clone, Debug)]
struct Pools {
    writer: AnyPool,
    reader: AnyPool,
}

#[derive(Debug)]
pub(super) struct ConnectionPools {
    normal: Pools,
    low_priority: Pools,
}

impl ConnectionPools {
    /// Opens the first connections; those of low priority are opened by their threads. PostgreSQL uses one pool for both reading and
    /// writing.
    pub(super) async fn open(options: &AnyConnectOptions, dialect: Dialect) -> Result<Self, Error> {
        let (normal, low_priority) = match dialect {
            Dialect::Sqlite => {
                let writer = pool_options(dialect, 1, SQLITE_SETUP).connect_with(options.clone()).await?;
                let readers = || pool_options(dialect, SQLITE_READERS, SQLITE_READER_SETUP);
                let reader = readers().connect_with(options.clone()).await?;
                // There is one writer, so that a thread of low priority never holds the write lock while it waits for a core.
                let low_priority = Pools { writer: writer.clone(), reader: readers().connect_lazy_with(options.clone()) };
                (Pools { writer, reader }, low_priority)
            }
            Dialect::Postgres => {
                let both = |pool: AnyPool| Pools { writer: pool.clone(), reader: pool };
                let normal = pool_options(dialect, POSTGRES_CONNECTIONS, POSTGRES_SETUP).connect_with(options.clone()).await?;
                let low_priority = pool_options(dialect, LOW_PRIORITY_POSTGRES_CONNECTIONS, POSTGRES_SETUP);
                (both(normal), both(low_priority.connect_lazy_with(options.clone())))
            }
        };
        Ok(Self { normal, low_priority })
    }

    pub(super) fn writer(&self) -> &AnyPool {
        &self.of_this_thread().writer
    }

    pub(super) fn reader(&self) -> &AnyPool {
        &self.of_this_thread().reader
    }

    fn of_this_thread(&self) -> &Pools {
        if HAS_LOW_PRIORITY.get() { &self.low_priority } else { &self.normal }
    }

    pub(super) async fn close(&self) {
        for pools in [&self.low_priority, &self.normal] {
            pools.reader.close().await;
            pools.writer.close().await;
        }
    }
}

fn pool_options(dialect: Dialect, connections: u32, setup: &'static str) -> AnyPoolOptions {
    let pool = AnyPoolOptions::new().max_connections(connections).acquire_timeout(ACQUIRE_TIMEOUT).test_before_acquire(false);
    let pool = match dialect {
        // A connection to a file does not break, so replacing it would only repeat its setup.
        Dialect::Sqlite => pool.idle_timeout(None).max_lifetime(None),
        Dialect::Postgres => pool,
    };
    // SQLite rolls a transaction back by itself when the disk fails or is full. The driver still counts it as open and would
    // refuse to begin another one, so drop the connection.
    let pool = pool.before_acquire(move |connection, times| {
        Box::pin(async move {
            if dialect == Dialect::Postgres && times.idle_for >= TESTED_AFTER {
                connection.ping().await?;
            }
            Ok(!connection.is_in_transaction())
        })
    });
    pool.after_connect(move |connection, _| Box::pin(async move { sqlx::raw_sql(setup).execute(connection).await.map(|_| ()) }))
}

#[cfg(test)]
mod tests {
    use std::thread;

    use tokio::runtime::Builder;

    use super::*;

    #[tokio::test(flavor = "multi_thread")]
    async fn low_priority_threads_have_their_own_connections() {
        sqlx::any::install_default_drivers();
        let folder = tempfile::tempdir().unwrap();
        let options = format!("sqlite://{}?mode=rwc", folder.path().join("t.db").display()).parse().unwrap();
        let pools = ConnectionPools::open(&options, Dialect::Sqlite).await.unwrap();
        let mut held = Vec::new();
        for _ in 0..SQLITE_READERS {
            held.push(pools.reader().acquire().await.unwrap());
        }
        assert!(pools.reader().try_acquire().is_none());
        let low_priority = thread::scope(|scope| {
            let query = || {
                use_low_priority_connections();
                let one = sqlx::query("SELECT 1").fetch_one(pools.reader());
                Builder::new_current_thread().enable_all().build().unwrap().block_on(one).is_ok()
            };
            scope.spawn(query).join().unwrap()
        });
        assert!(low_priority, "it waited for a connection of another thread");
        drop(held);
        pools.close().await;
    }
}
