//! Opens a [`Store`] from an address.

use std::{path::Path, sync::Arc, time::Duration};

use tollgate_core::{Billing, MemberStatus, Revision, Role, Timestamp};

use crate::{
    AccessMode, Actor, AlertStore, CatalogStore, Change, ChangeOrigin, ContentStore, Counters, ExportStore, HealthHistoryStore,
    HealthStore, IdentityStore, KeyHasher, KeyStore, LedgerPosition, LedgerStore, ListingStore, MemberSpec, Mismatch, OpenOptions,
    RandomSource, SquareStore, StoreError, StoreUrl, TransferProgress, TransferredTable, UsageStore,
    apply::OWNER,
    cached::{CachedStore, DatabaseStatus},
    counters_in_memory,
    data_folder::{self, DataFolderLock},
    memory::MemoryStore,
    rotation::MasterKeyRotation,
    seal::{Sealer, generate_key},
    sql::{self, SqlAddress},
};

/// Revision of a catalog that contains nothing but the member `owner`.
const OWNER_CREATED: Revision = Revision(1);

/// The storage of a gateway. Cheap to clone; a data folder stays locked until the last clone is dropped.
#[derive(Clone, Debug)]
pub struct Store {
    pub catalog: Arc<dyn CatalogStore>,
    pub keys: Arc<dyn KeyStore>,
    pub listing: Arc<dyn ListingStore>,
    pub usage: Arc<dyn UsageStore>,
    pub ledger: Arc<dyn LedgerStore>,
    pub health: Arc<dyn HealthStore>,
    pub health_history: Arc<dyn HealthHistoryStore>,
    pub square: Arc<dyn SquareStore>,
    pub identity: Arc<dyn IdentityStore>,
    pub alerts: Arc<dyn AlertStore>,
    pub contents: Arc<dyn ContentStore>,
    pub exports: Arc<dyn ExportStore>,
    pub hasher: KeyHasher,
    /// The catalog never contained anything but the member `owner`.
    pub first_start: bool,
    /// Address without a password, for messages.
    pub database: String,
    backend: Backend,
    lock: Option<Arc<DataFolderLock>>,
}

#[derive(Clone, Debug)]
enum Backend {
    Memory,
    Sql(Arc<sql::SqlStore>),
    Cached(Arc<CachedStore>),
}

/// Opens a store: creates the data folder, locks it for serving, creates or migrates the database, checks the master key. A new
/// catalog gets the member `owner`.
/// A database that is damaged, newer, or sealed with another master key is refused and not changed.
pub async fn open(options: OpenOptions) -> Result<Store, StoreError> {
    open_locked(options, None).await
}

/// As [`open`], with a lock of the data folder that was handed over.
pub async fn open_locked(options: OpenOptions, lock: Option<DataFolderLock>) -> Result<Store, StoreError> {
    let database = options.url.shown();
    let address = match options.url.clone() {
        StoreUrl::Memory => return open_memory(options.random, database, options.now).await,
        StoreUrl::Sqlite(path) => SqlAddress::Sqlite(path),
        StoreUrl::Postgres(url) => SqlAddress::Postgres { url, shown: database.clone() },
    };
    data_folder::create(&options.data)?;
    let lock = match (options.access, lock) {
        (AccessMode::Serve | AccessMode::Node, Some(lock)) => Some(Arc::new(lock)),
        (AccessMode::Serve | AccessMode::Node, None) => Some(Arc::new(DataFolderLock::take(&options.data)?)),
        (AccessMode::Command, _) => None,
    };
    if lock.is_some() {
        let file = if let SqlAddress::Sqlite(path) = &address { Some(path.as_path()) } else { None };
        data_folder::protect(&options.data, file);
    }
    let now = options.now;
    let max_age = options.without_database.filter(|_| matches!(address, SqlAddress::Postgres { .. }));
    let opened = sql::open(address.clone(), &options).await;
    let (opened, max_age) = match (opened, max_age) {
        (Err(unreachable), Some(max_age)) if unreachable.is_unreachable() => {
            let Some((cached, hasher)) = CachedStore::without(address, options, max_age)? else { return Err(unreachable) };
            tracing::warn!(database = %database, "the database is unreachable, serving from the cache: {unreachable}");
            let cached = Arc::new(cached);
            return Ok(Store::new(Arc::clone(&cached), Backend::Cached(cached), hasher, database, lock));
        }
        (opened, max_age) => (opened?, max_age),
    };
    let sql = Arc::new(opened);
    let hasher = sql.hasher.clone();
    let store = if max_age.is_some() {
        let cached = Arc::new(CachedStore::around(sql, address, options).await?);
        Store::new(Arc::clone(&cached), Backend::Cached(cached), hasher, database, lock)
    } else {
        Store::new(Arc::clone(&sql), Backend::Sql(sql), hasher, database, lock)
    };
    with_owner(store, now).await
}

/// Copies a snapshot of a gateway's SQLite file to PostgreSQL in one transaction and compares the row counts. Can be repeated while
/// the gateway serves from the file; a repetition copies the rows added since. `now` and `keep_days`, for which
/// records are kept (0: for ever), determine the partitions to create.
/// Fails with [`StoreError::TransferRefused`] when the target holds other data, [`StoreError::SecondNode`] when a server runs on it.
pub async fn transfer_to_postgres(
    from: &Path,
    to: &StoreUrl,
    now: Timestamp,
    keep_days: u64,
    progress: &mut (dyn FnMut(TransferProgress<'_>) + Send),
) -> Result<Vec<TransferredTable>, StoreError> {
    let StoreUrl::Postgres(url) = to else {
        return Err(StoreError::BadUrl { url: to.shown(), detail: "it is not PostgreSQL's".to_owned() });
    };
    sql::transfer::run(
        &sql::transfer::DatabaseTransfer { from: from.to_owned(), url: url.clone(), shown: to.shown(), now, keep_days },
        progress,
    )
    .await
}

async fn open_memory(random: RandomSource, database: String, now: Timestamp) -> Result<Store, StoreError> {
    let hasher = KeyHasher::new(&generate_key(&random));
    let memory = Arc::new(MemoryStore::new(Sealer::new(&generate_key(&random), random.clone()), hasher.clone(), random));
    with_owner(Store::new(memory, Backend::Memory, hasher, database, None), now).await
}

/// Creates the member `owner`, which keys without a member belong to, in a catalog without any revision.
async fn with_owner(mut store: Store, now: Timestamp) -> Result<Store, StoreError> {
    if store.catalog.revision().await?.0 == 0 {
        let owner = MemberSpec {
            name: OWNER.to_owned(),
            role: Role::Admin,
            status: MemberStatus::Active,
            billing: Billing::Postpaid,
            ..MemberSpec::default()
        };
        let actor = Actor::local(ChangeOrigin::Gateway, "first start");
        let created = store.catalog.apply(&[Change::PutMember(Box::new(owner))], &actor, now).await;
        // Another node may have created it at the same time.
        if let Err(error) = created
            && store.catalog.revision().await?.0 == 0
        {
            return Err(error);
        }
    }
    // By revision, because a command may have created the database before the first server started.
    store.first_start = store.catalog.revision().await? <= OWNER_CREATED;
    Ok(store)
}

impl Store {
    fn new<S>(stores: Arc<S>, backend: Backend, hasher: KeyHasher, database: String, lock: Option<Arc<DataFolderLock>>) -> Self
    where
        S: CatalogStore
            + KeyStore
            + ListingStore
            + UsageStore
            + LedgerStore
            + HealthStore
            + HealthHistoryStore
            + SquareStore
            + IdentityStore
            + AlertStore
            + ContentStore
            + ExportStore
            + 'static,
    {
        Self {
            catalog: Arc::clone(&stores) as _,
            keys: Arc::clone(&stores) as _,
            listing: Arc::clone(&stores) as _,
            usage: Arc::clone(&stores) as _,
            ledger: Arc::clone(&stores) as _,
            health: Arc::clone(&stores) as _,
            health_history: Arc::clone(&stores) as _,
            square: Arc::clone(&stores) as _,
            identity: Arc::clone(&stores) as _,
            alerts: Arc::clone(&stores) as _,
            contents: Arc::clone(&stores) as _,
            exports: stores,
            hasher,
            first_start: false,
            database,
            backend,
            lock,
        }
    }

    /// Opens a database that was unreachable, keeps the server's lock on it, and returns its status. Call about once a second.
    /// SQLite and memory are always available.
    /// Fails when the database is reachable but must not be served from: another server holds its lock, or it is a different database.
    pub async fn heartbeat(&self, now: Timestamp) -> Result<DatabaseStatus, StoreError> {
        match &self.backend {
            Backend::Memory | Backend::Sql(_) => Ok(DatabaseStatus::Available),
            Backend::Cached(cached) => cached.heartbeat(now).await,
        }
    }

    /// Writes `<data>/cache.sealed`, from which the next process serves if the database is unreachable at its start. Returns
    /// whether it was written; without a cache it never is.
    pub async fn write_cache(&self, now: Timestamp) -> Result<bool, StoreError> {
        match &self.backend {
            Backend::Memory | Backend::Sql(_) => Ok(false),
            Backend::Cached(cached) => cached.write_cache(now).await,
        }
    }

    /// The time of the cached spending, if it comes from the last process because the database was never reached.
    pub fn spending_known_at(&self) -> Option<Timestamp> {
        match &self.backend {
            Backend::Cached(cached) if cached.sql().is_err() => Some(cached.known_spending().1),
            Backend::Memory | Backend::Sql(_) | Backend::Cached(_) => None,
        }
    }

    /// Counters in memory, initialised with everything spent so far, and the ledger position they include: later postings have to
    /// be added to them. Call after the journal's records were appended. A reservation that is not renewed for `life` expires.
    pub async fn counters(&self, now: Timestamp, life: Duration) -> Result<(Arc<dyn Counters>, LedgerPosition), StoreError> {
        let spending = self.ledger.spending(now).await?;
        Ok((counters_in_memory(&spending, life), spending.ledger))
    }

    /// A name that distinguishes this gateway from others on a shared service such as Redis. Derived from the pepper, so all its
    /// nodes have the same one.
    pub fn namespace(&self) -> String {
        hex::encode(&self.hasher.hash("namespace").0[..8])
    }

    /// The lock of the data folder, if it is held.
    pub fn folder_lock(&self) -> Option<&DataFolderLock> {
        self.lock.as_deref()
    }

    /// Lets another server of the same node use a PostgreSQL database. Until it does, [`Self::heartbeat`] may be called to
    /// exclude others again.
    pub async fn release_server_lock(&self) {
        match &self.backend {
            Backend::Memory => {}
            Backend::Sql(sql) => sql.release_lock().await,
            Backend::Cached(cached) => {
                if let Ok(sql) = cached.sql() {
                    sql.release_lock().await;
                }
            }
        }
    }

    /// Excludes other servers again after [`Self::release_server_lock`].
    pub async fn retake_server_lock(&self) -> Result<(), StoreError> {
        match &self.backend {
            Backend::Memory => Ok(()),
            Backend::Sql(sql) => sql.retake_lock().await,
            Backend::Cached(cached) => match cached.sql() {
                Ok(sql) => sql.retake_lock().await,
                Err(_) => Ok(()),
            },
        }
    }

    /// Records that everything in the journal is booked and the gateway stops: from now on the database may be copied alone. Call
    /// before [`Store::close`], and only if no other process of the data folder runs.
    ///
    /// # Errors
    /// When the database takes no writes.
    pub async fn finish_journal(&self) -> Result<(), StoreError> {
        match &self.backend {
            Backend::Memory => Ok(()),
            Backend::Sql(sql) => sql.finish_journal().await,
            Backend::Cached(cached) => cached.sql()?.finish_journal().await,
        }
    }

    /// The mismatches between the journal of a data folder and the database, for `verify`; empty if they belong together.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn compare_journal(&self, data: &Path) -> Result<Vec<Mismatch>, StoreError> {
        match &self.backend {
            Backend::Memory => Ok(Vec::new()),
            Backend::Sql(sql) => sql.compare_journal(data).await,
            Backend::Cached(cached) => cached.sql()?.compare_journal(data).await,
        }
    }

    /// Accepts journal and database as they are, so that missing records are not reported again. Returns those reported now.
    ///
    /// # Errors
    /// When the database cannot be read or written.
    pub async fn accept_journal(&self, data: &Path) -> Result<Vec<Mismatch>, StoreError> {
        match &self.backend {
            Backend::Memory => Ok(Vec::new()),
            Backend::Sql(sql) => sql.accept_journal(data).await,
            Backend::Cached(cached) => cached.sql()?.accept_journal(data).await,
        }
    }

    /// Detects a changed master key or data key, and reports to a rotation which keys this gateway holds. Call about once a second
    /// while serving. Returns whether the keys have changed.
    ///
    /// # Errors
    /// When the database or the master key cannot be read.
    pub async fn watch_keys(&self) -> Result<bool, StoreError> {
        match &self.backend {
            Backend::Memory => Ok(false),
            Backend::Sql(sql) => sql.watch_keys().await,
            Backend::Cached(cached) => cached.watch_keys().await,
        }
    }

    /// Records that this gateway stops, so that no key rotation waits for its answer. Call only if no other process of the
    /// data folder runs, because such a process must still answer.
    ///
    /// # Errors
    /// When the database takes no writes.
    pub async fn stop_watching_keys(&self) -> Result<(), StoreError> {
        match &self.backend {
            Backend::Memory => Ok(()),
            Backend::Sql(sql) => sql.stop_holding().await,
            Backend::Cached(cached) => cached.sql()?.stop_holding().await,
        }
    }

    /// Begins or resumes a rotation of the master key.
    ///
    /// # Errors
    /// When there is no other key, and none can be added.
    pub async fn rotate_master_key(&self) -> Result<MasterKeyRotation, StoreError> {
        match &self.backend {
            Backend::Memory => Err(StoreError::RotationRefused { detail: "a database in memory has none".to_owned() }),
            Backend::Sql(sql) => MasterKeyRotation::resume(Arc::clone(sql)).await,
            Backend::Cached(cached) => MasterKeyRotation::resume(cached.sql()?).await,
        }
    }

    /// Closes all connections; SQLite checkpoints its write-ahead log into the file.
    pub async fn close(&self) {
        match &self.backend {
            Backend::Memory => {}
            Backend::Sql(sql) => sql.close().await,
            Backend::Cached(cached) => cached.close().await,
        }
    }
}

#[cfg(test)]
mod tests;
