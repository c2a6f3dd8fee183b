//! The one door: from an address to a [`Store`].

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use tollgate_core::{Billing, MemberStatus, Revision, Role, Timestamp};
use url::Url;

use crate::{
    Actor, CatalogStore, Change, ChangeOrigin, Counters, HealthStore, KeyHasher, KeyStore, LedgerPosition, LedgerStore,
    ListingStore, MasterKeySource, MemberSpec, RandomSource, StoreError, TransferProgress, TransferredTable, UsageStore,
    apply::OWNER,
    cached::{CachedStore, DatabaseStatus},
    counters_in_memory,
    folder::{self, FolderLock},
    memory::MemoryStore,
    seal::{Sealer, draw},
    sql::{self, SqlAddress},
};

/// The revision of a catalog to which nothing came after the member `owner`.
const OWNER_MADE: Revision = Revision(1);

/// Where and how a store is opened.
#[derive(Clone, Debug)]
pub struct OpenOptions {
    /// The database.
    pub url: StoreUrl,
    /// The data folder; made when it is not there.
    pub data: PathBuf,
    /// Where the master key comes from.
    pub master: MasterKeySource,
    /// To serve, or for one command.
    pub access: AccessMode,
    /// Source of nonces, ids and new keys.
    pub random: RandomSource,
    /// The time it is.
    pub now: Timestamp,
    /// How long what is known may serve in place of a PostgreSQL database that is away; `None`: not at all.
    pub without_database: Option<Duration>,
}

impl OpenOptions {
    /// The part that a database is opened with.
    pub(crate) fn sql(&self, address: SqlAddress) -> sql::OpenSql<'_> {
        let Self { data, master, access, random, now, .. } = self;
        sql::OpenSql { address, data, master, random, now: *now, access: *access }
    }
}

/// What a store is opened for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AccessMode {
    /// Serving: one process a data folder, and one a PostgreSQL database.
    Serve,
    /// Serving as one of several nodes of a PostgreSQL database, which share what they count.
    Node,
    /// A command, which may run beside a server.
    Command,
}

/// The address of a database.
#[derive(Clone)]
pub enum StoreUrl {
    /// `sqlite:<path>`.
    Sqlite(PathBuf),
    /// `postgres://…`, its password included.
    Postgres(String),
    /// `memory:`; gone with the process.
    Memory,
}

impl std::fmt::Debug for StoreUrl {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.shown())
    }
}

impl StoreUrl {
    /// Reads an address.
    ///
    /// # Errors
    /// When it is none of the forms known.
    pub fn parse(text: &str) -> Result<Self, StoreError> {
        let bad = |detail: &str| StoreError::BadUrl { url: without_password(text), detail: detail.to_owned() };
        if matches!(text, "memory:" | "memory") {
            return Ok(Self::Memory);
        }
        if let Some(path) = text.strip_prefix("sqlite:") {
            let path = path.strip_prefix("//").unwrap_or(path);
            return match path {
                "" | ":memory:" => Err(bad("it names no file")),
                path if path.contains('?') => Err(bad("an SQLite address has no parameters")),
                path => Ok(Self::Sqlite(PathBuf::from(path))),
            };
        }
        if text.starts_with("postgres://") || text.starts_with("postgresql://") {
            Url::parse(text).map_err(|error| bad(&error.to_string()))?;
            return Ok(Self::Postgres(text.to_owned()));
        }
        Err(bad("its form is not known"))
    }

    /// The address without a password.
    #[must_use]
    pub fn shown(&self) -> String {
        match self {
            Self::Sqlite(path) => format!("sqlite:{}", path.display()),
            Self::Postgres(url) => without_password(url),
            Self::Memory => "memory:".to_owned(),
        }
    }
}

/// An address as it may be shown: without password and parameters.
pub(crate) fn without_password(text: &str) -> String {
    match Url::parse(text) {
        Ok(mut url) if url.has_host() => {
            if url.password().is_some() {
                let _ = url.set_password(Some("***"));
            }
            url.set_query(None);
            url.to_string()
        }
        // Something that is no address may still hold a password.
        _ => text.split(['@', '?']).next_back().unwrap_or_default().to_owned(),
    }
}

/// Everything that is remembered. Cheap to clone; the data folder stays locked until the last clone is gone.
#[derive(Clone, Debug)]
pub struct Store {
    /// The catalog.
    pub catalog: Arc<dyn CatalogStore>,
    /// Service keys.
    pub keys: Arc<dyn KeyStore>,
    /// Rows as the admin API shows them.
    pub listing: Arc<dyn ListingStore>,
    /// Usage records.
    pub usage: Arc<dyn UsageStore>,
    /// Money that moves.
    pub ledger: Arc<dyn LedgerStore>,
    /// Account health.
    pub health: Arc<dyn HealthStore>,
    /// Hashes presented keys.
    pub hasher: KeyHasher,
    /// Nothing but the member `owner` was ever put into the catalog, whichever command made the database.
    pub first_start: bool,
    /// The address without a password, for messages.
    pub place: String,
    backend: Backend,
    _lock: Option<Arc<FolderLock>>,
}

/// What is behind the traits.
#[derive(Clone, Debug)]
enum Backend {
    Memory,
    Sql(Arc<sql::SqlStore>),
    CachedStore(Arc<CachedStore>),
}

/// Opens a store: makes the data folder, locks it for serving, makes or migrates the database, checks the master key.
/// A first start makes the member `owner`.
///
/// # Errors
/// See [`StoreError`]; a database that is damaged, newer, or sealed with another master key is left as it is.
pub async fn open(options: OpenOptions) -> Result<Store, StoreError> {
    let place = options.url.shown();
    let address = match options.url.clone() {
        StoreUrl::Memory => return open_memory(options.random, place, options.now).await,
        StoreUrl::Sqlite(path) => SqlAddress::Sqlite(path),
        StoreUrl::Postgres(url) => SqlAddress::Postgres { url, place: place.clone() },
    };
    folder::make(&options.data)?;
    let lock = match options.access {
        AccessMode::Serve | AccessMode::Node => Some(Arc::new(FolderLock::take(&options.data)?)),
        AccessMode::Command => None,
    };
    let now = options.now;
    let max_age = options.without_database.filter(|_| matches!(address, SqlAddress::Postgres { .. }));
    let opened = sql::open(options.sql(address.clone())).await;
    let (opened, max_age) = match (opened, max_age) {
        (Err(away), Some(max_age)) if away.is_away() => {
            let Some((standby, hasher)) = CachedStore::without(address, options, max_age)? else { return Err(away) };
            tracing::warn!(database = %place, "the database is away; what is known of it serves: {away}");
            return Ok(Store::standing_by(Arc::new(standby), hasher, place, lock));
        }
        (opened, max_age) => (opened?, max_age),
    };
    let sql = Arc::new(opened);
    let hasher = sql.hasher.clone();
    let store = if max_age.is_some() {
        let standby = CachedStore::around(sql, address, options).await?;
        Store::standing_by(Arc::new(standby), hasher, place, lock)
    } else {
        Store {
            catalog: Arc::clone(&sql) as _,
            keys: Arc::clone(&sql) as _,
            listing: Arc::clone(&sql) as _,
            usage: Arc::clone(&sql) as _,
            ledger: Arc::clone(&sql) as _,
            health: Arc::clone(&sql) as _,
            hasher,
            first_start: false,
            place,
            backend: Backend::Sql(sql),
            _lock: lock,
        }
    };
    with_owner(store, now).await
}

/// Copies a gateway's SQLite file to PostgreSQL: one moment of it, in one transaction, counted at the end. May be repeated
/// while the gateway serves from the file, and copies then what came since; `now` is for the months that are made.
///
/// # Errors
/// [`StoreError::MoveRefused`] when the target holds something else, [`StoreError::SecondNode`] when a server runs on it.
pub async fn move_to_postgres(
    from: &Path,
    to: &StoreUrl,
    now: Timestamp,
    progress: &mut (dyn FnMut(TransferProgress<'_>) + Send),
) -> Result<Vec<TransferredTable>, StoreError> {
    let StoreUrl::Postgres(url) = to else {
        return Err(StoreError::BadUrl { url: to.shown(), detail: "it is not PostgreSQL's".to_owned() });
    };
    sql::transfer::run(
        &sql::transfer::DatabaseTransfer { from: from.to_owned(), url: url.clone(), place: to.shown(), now },
        progress,
    )
    .await
}

async fn open_memory(random: RandomSource, place: String, now: Timestamp) -> Result<Store, StoreError> {
    let hasher = KeyHasher::new(&draw(&random));
    let memory = Arc::new(MemoryStore::new(Sealer::new(&draw(&random), random.clone()), hasher.clone(), random));
    let store = Store {
        catalog: Arc::clone(&memory) as _,
        keys: Arc::clone(&memory) as _,
        listing: Arc::clone(&memory) as _,
        usage: Arc::clone(&memory) as _,
        ledger: Arc::clone(&memory) as _,
        health: memory,
        hasher,
        first_start: false,
        place,
        backend: Backend::Memory,
        _lock: None,
    };
    with_owner(store, now).await
}

/// A catalog without any change in it is new: it gets the member that keys without one belong to.
async fn with_owner(mut store: Store, now: Timestamp) -> Result<Store, StoreError> {
    if store.catalog.revision().await?.0 == 0 {
        let owner = MemberSpec {
            name: OWNER.to_owned(),
            role: Role::Admin,
            status: MemberStatus::Active,
            billing: Billing::Postpaid,
            ..MemberSpec::default()
        };
        let actor = Actor { door: ChangeOrigin::Gateway, name: "first start".to_owned() };
        let made = store.catalog.apply(&[Change::PutMember(Box::new(owner))], &actor, now).await;
        // Another node may have made it at the same time.
        if let Err(error) = made
            && store.catalog.revision().await?.0 == 0
        {
            return Err(error);
        }
    }
    // A command may have made the database before the first server came.
    store.first_start = store.catalog.revision().await? <= OWNER_MADE;
    Ok(store)
}

impl Store {
    fn standing_by(standby: Arc<CachedStore>, hasher: KeyHasher, place: String, lock: Option<Arc<FolderLock>>) -> Self {
        Self {
            catalog: Arc::clone(&standby) as _,
            keys: Arc::clone(&standby) as _,
            listing: Arc::clone(&standby) as _,
            usage: Arc::clone(&standby) as _,
            ledger: Arc::clone(&standby) as _,
            health: Arc::clone(&standby) as _,
            hasher,
            first_start: false,
            place,
            backend: Backend::CachedStore(standby),
            _lock: lock,
        }
    }

    /// To be asked for about once a second: opens a database that was away, and keeps the lock of a server on it. How
    /// the database stands; SQLite and memory are always there.
    ///
    /// # Errors
    /// When the database is there and may not be served from: another server has it, or it is another one.
    pub async fn beat(&self, now: Timestamp) -> Result<DatabaseStatus, StoreError> {
        match &self.backend {
            Backend::Memory | Backend::Sql(_) => Ok(DatabaseStatus::There),
            Backend::CachedStore(standby) => standby.beat(now).await,
        }
    }

    /// Writes `<data>/cache.sealed`, from which the next process serves when the database is away; nothing where there is
    /// no such file. Whether it was written.
    ///
    /// # Errors
    /// When the database or the file system does not answer.
    pub async fn write_cache(&self, now: Timestamp) -> Result<bool, StoreError> {
        match &self.backend {
            Backend::Memory | Backend::Sql(_) => Ok(false),
            Backend::CachedStore(standby) => standby.write_cache(now).await,
        }
    }

    /// When what was spent was read, where it is only known from the last process; `None`: the database is there.
    #[must_use]
    pub fn spending_known_at(&self) -> Option<Timestamp> {
        match &self.backend {
            Backend::CachedStore(standby) if standby.database().is_err() => Some(standby.known_spending().1),
            Backend::Memory | Backend::Sql(_) | Backend::CachedStore(_) => None,
        }
    }

    /// Counters for this node, beginning with what was spent until now; to be asked for once everything the journal held
    /// is booked. A hold without a sign of life ends after `life`. Also how far the ledger had come: what is posted
    /// behind that place is to be told to the counters.
    ///
    /// # Errors
    /// When the database does not say what was spent.
    pub async fn counters(&self, now: Timestamp, life: Duration) -> Result<(Arc<dyn Counters>, LedgerPosition), StoreError> {
        let spending = self.ledger.spending(now).await?;
        Ok((counters_in_memory(&spending, life), spending.ledger))
    }

    /// A name for this gateway where several share a service; the same on all its nodes, and nobody else's.
    #[must_use]
    pub fn namespace(&self) -> String {
        hex::encode(&self.hasher.hash("namespace").0[..8])
    }

    /// Seals the data key anew with the first of these master keys; any of them may open it.
    ///
    /// # Errors
    /// When none of them does.
    pub async fn rotate_master_key(&self, source: &MasterKeySource, data: &Path) -> Result<(), StoreError> {
        match &self.backend {
            Backend::Memory => Ok(()),
            Backend::Sql(sql) => sql::rotate(sql, source, data).await,
            Backend::CachedStore(standby) => sql::rotate(&*standby.database()?, source, data).await,
        }
    }

    /// Closes all connections; on SQLite what is in the write-ahead log goes into the file.
    pub async fn close(&self) {
        match &self.backend {
            Backend::Memory => {}
            Backend::Sql(sql) => sql.close().await,
            Backend::CachedStore(standby) => standby.close().await,
        }
    }
}

#[cfg(test)]
mod tests;
