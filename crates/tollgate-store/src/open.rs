//! The one door: from an address to a [`Store`].

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use tollgate_core::{Billing, MemberStatus, Revision, Role, Timestamp};
use url::Url;

use crate::{
    Actor, CatalogStore, Change, Counters, Door, HealthStore, KeyHasher, KeyStore, LedgerPlace, LedgerStore, Listing,
    MasterKeySource, MemberSpec, MoveProgress, MovedTable, Random, StoreError, UsageStore,
    apply::OWNER,
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
    pub access: Access,
    /// Source of nonces, ids and new keys.
    pub random: Random,
    /// The time it is.
    pub now: Timestamp,
}

/// What a store is opened for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Access {
    /// Serving: one process a data folder, and one a PostgreSQL database.
    Serve,
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
fn without_password(text: &str) -> String {
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
    pub listing: Arc<dyn Listing>,
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
    sql: Option<Arc<sql::SqlStore>>,
    _lock: Option<Arc<FolderLock>>,
}

/// Opens a store: makes the data folder, locks it for serving, makes or migrates the database, checks the master key.
/// A first start makes the member `owner`.
///
/// # Errors
/// See [`StoreError`]; a database that is damaged, newer, or sealed with another master key is left as it is.
pub async fn open(options: OpenOptions) -> Result<Store, StoreError> {
    let OpenOptions { url, data, master, access, random, now } = options;
    let place = url.shown();
    let address = match url {
        StoreUrl::Memory => return open_memory(random, place, now).await,
        StoreUrl::Sqlite(path) => SqlAddress::Sqlite(path),
        StoreUrl::Postgres(url) => SqlAddress::Postgres { url, place: place.clone() },
    };
    folder::make(&data)?;
    let lock = match access {
        Access::Serve => Some(Arc::new(FolderLock::take(&data)?)),
        Access::Command => None,
    };
    let sql = sql::open(sql::OpenSql { address, data: &data, master: &master, random: &random, now, access }).await?;
    let sql = Arc::new(sql);
    let store = Store {
        catalog: Arc::clone(&sql) as _,
        keys: Arc::clone(&sql) as _,
        listing: Arc::clone(&sql) as _,
        usage: Arc::clone(&sql) as _,
        ledger: Arc::clone(&sql) as _,
        health: Arc::clone(&sql) as _,
        hasher: sql.hasher.clone(),
        first_start: false,
        place,
        sql: Some(sql),
        _lock: lock,
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
    progress: &mut (dyn FnMut(MoveProgress<'_>) + Send),
) -> Result<Vec<MovedTable>, StoreError> {
    let StoreUrl::Postgres(url) = to else {
        return Err(StoreError::BadUrl { url: to.shown(), detail: "it is not PostgreSQL's".to_owned() });
    };
    sql::moving::run(&sql::moving::Move { from: from.to_owned(), url: url.clone(), place: to.shown(), now }, progress).await
}

async fn open_memory(random: Random, place: String, now: Timestamp) -> Result<Store, StoreError> {
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
        sql: None,
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
        let actor = Actor { door: Door::Gateway, name: "first start".to_owned() };
        store.catalog.apply(&[Change::PutMember(Box::new(owner))], &actor, now).await?;
    }
    // A command may have made the database before the first server came.
    store.first_start = store.catalog.revision().await? <= OWNER_MADE;
    Ok(store)
}

impl Store {
    /// Counters for this node, beginning with what was spent until now; to be asked for once everything the journal held
    /// is booked. A hold without a sign of life ends after `life`. Also how far the ledger had come: what is posted
    /// behind that place is to be told to the counters.
    ///
    /// # Errors
    /// When the database does not say what was spent.
    pub async fn counters(&self, now: Timestamp, life: Duration) -> Result<(Arc<dyn Counters>, LedgerPlace), StoreError> {
        let spending = self.ledger.spending(now).await?;
        Ok((counters_in_memory(&spending, life), spending.ledger))
    }

    /// Seals the data key anew with the first of these master keys; any of them may open it.
    ///
    /// # Errors
    /// When none of them does.
    pub async fn rotate_master_key(&self, source: &MasterKeySource, data: &Path) -> Result<(), StoreError> {
        match &self.sql {
            Some(sql) => sql::rotate(sql, source, data).await,
            None => Ok(()),
        }
    }

    /// Closes all connections; on SQLite what is in the write-ahead log goes into the file.
    pub async fn close(&self) {
        if let Some(sql) = &self.sql {
            sql.close().await;
        }
    }
}

#[cfg(test)]
mod tests;
