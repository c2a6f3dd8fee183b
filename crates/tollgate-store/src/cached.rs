//! A PostgreSQL store that survives an outage of its database. The data needed to serve known keys is cached in memory and,
//! sealed, in `<data>/cache.sealed`, and is used when the database does not answer. What is not in the cache fails with
//! [`StoreError::Unreachable`]; the cache never reports that something does not exist.
//!
//! Bounds: 40 MiB of keys in memory, 64 MiB for the file; timeouts of 1 s for a cached key, 5 s for the catalog, 45 s for a
//! batch of records.

mod alerts;
mod cache;
mod identity;
mod serving;

use std::{
    collections::{HashMap, HashSet},
    fmt,
    future::Future,
    path::PathBuf,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use arc_swap::{ArcSwap, ArcSwapOption};
use moka::sync::Cache;
use tokio::time::timeout;
use tollgate_core::{Key, KeyId, MemberId, NanoUsd, Revision, SpendTotals, Subject, Timestamp};

use crate::{
    KeyHash, LedgerStore as _, RowKind, Spending, StoreError, assemble,
    options::OpenOptions,
    rows::CatalogRow,
    seal::Sealer,
    sql::{self, SpendingScope, SqlStore},
};
use cache::{CacheContents, KnownCatalog};

/// Timeout of looking up a key that is cached.
const CACHED_KEY_TIMEOUT: Duration = Duration::from_secs(1);
const QUERY_TIMEOUT: Duration = Duration::from_secs(5);
/// Timeout of a whole catalog or a batch of records.
const BATCH_TIMEOUT: Duration = Duration::from_secs(45);
/// How long another connection may hold the server lock after it was lost.
const LOCK_GRACE_MS: i64 = 60_000;
/// Maximum number of pages of spending changes between two writes of the file; beyond it everything is read again.
const MAX_PAGES: usize = 50;
const KEY_BYTES: u64 = 40 << 20;

/// Whether the database of a cached store answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DatabaseStatus {
    Available,
    /// The cache serves.
    Unavailable {
        since: Timestamp,
    },
}

pub(crate) struct CachedStore {
    options: OpenOptions,
    address: sql::SqlAddress,
    database: String,
    path: PathBuf,
    sql: ArcSwapOption<SqlStore>,
    sealer: Sealer,
    known: ArcSwap<KnownCatalog>,
    keys: Cache<[u8; 32], Arc<CatalogRow>>,
    state: Mutex<State>,
    /// The outage has exceeded the age limit of the cache, which is no longer used.
    is_expired: AtomicBool,
}

#[derive(Debug)]
struct State {
    /// Time of the database's last answer to [`CachedStore::heartbeat`].
    last_answer: Timestamp,
    /// Since when another connection holds the server lock.
    lock_lost: Option<Timestamp>,
}

impl fmt::Debug for CachedStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CachedStore")
            .field("database", &self.database)
            .field("sql", &self.sql.load().is_some())
            .finish_non_exhaustive()
    }
}

impl CachedStore {
    pub(crate) async fn around(sql: Arc<SqlStore>, address: sql::SqlAddress, options: OpenOptions) -> Result<Self, StoreError> {
        let data_keys = sql.sealed_keys().await?;
        let (revision, rows) = sql.all_rows().await?;
        let known = KnownCatalog { data_keys, revision, rows, ..KnownCatalog::default() };
        let standby = Self::new(address, sql.sealer.clone(), known, options);
        // Load the keys cached by the last process, so that an outage right after a start finds them.
        if let Ok(Some((contents, _))) = cache::read(&standby.path, &standby.database, &standby.options) {
            standby.cache_keys(contents.keys()?);
        }
        standby.refresh_keys(&sql).await?;
        standby.sql.store(Some(sql));
        Ok(standby)
    }

    /// Opens from the cache file of the last process because the database is unreachable; `None` if there is no usable one.
    pub(crate) fn without(
        address: sql::SqlAddress,
        options: OpenOptions,
        max_age: Duration,
    ) -> Result<Option<(Self, crate::KeyHasher)>, StoreError> {
        let path = cache::path(&options.data);
        let database = options.url.shown();
        let Some((contents, opened)) = cache::read(&path, &database, &options)? else { return Ok(None) };
        let age = options.now.ms_since(contents.at());
        if age > i64::try_from(max_age.as_millis()).unwrap_or(i64::MAX) {
            tracing::warn!(path = %path.display(), age_s = age / 1_000, "the cached catalog is too old to serve without the database");
            return Ok(None);
        }
        let last_answer = contents.at();
        let keys = contents.keys()?;
        let standby = Self::new(address, opened.sealer, contents.into_known()?, options);
        standby.cache_keys(keys);
        standby.state().last_answer = last_answer;
        Ok(Some((standby, opened.hasher)))
    }

    fn new(address: sql::SqlAddress, sealer: Sealer, known: KnownCatalog, options: OpenOptions) -> Self {
        let weigh = |_: &[u8; 32], row: &Arc<CatalogRow>| u32::try_from(row.spec.len() + row.name.len() + 256).unwrap_or(u32::MAX);
        Self {
            address,
            database: options.url.shown(),
            path: cache::path(&options.data),
            sql: ArcSwapOption::empty(),
            sealer,
            known: ArcSwap::from_pointee(known),
            keys: Cache::builder().max_capacity(KEY_BYTES).weigher(weigh).build(),
            state: Mutex::new(State { last_answer: options.now, lock_lost: None }),
            is_expired: AtomicBool::new(false),
            options,
        }
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn sql(&self) -> Result<Arc<SqlStore>, StoreError> {
        self.sql.load_full().ok_or_else(|| self.unreachable("it was unreachable at startup"))
    }

    fn unreachable(&self, detail: &str) -> StoreError {
        StoreError::Unreachable { database: self.database.clone(), detail: detail.to_owned() }
    }

    async fn within<T>(&self, limit: Duration, query: impl Future<Output = Result<T, StoreError>>) -> Result<T, StoreError> {
        timeout(limit, query).await.unwrap_or_else(|_| Err(self.unreachable("it did not answer in time")))
    }

    // === the cache ===

    fn cache_keys(&self, rows: Vec<([u8; 32], CatalogRow)>) {
        for (hash, row) in rows {
            self.keys.insert(hash, Arc::new(row));
        }
    }

    fn cached_key(&self, hash: &[u8; 32]) -> Option<Result<Key, StoreError>> {
        if self.is_expired.load(Ordering::Relaxed) {
            return None;
        }
        let row = self.keys.get(hash)?;
        let known = self.known.load();
        let member = known.rows.iter().find(|member| member.id == row.parent && member.kind == RowKind::Member)?;
        let key = assemble::key(&row, member, &known.groups());
        Some(key.map(|key| assemble::as_presented(key, &row, &KeyHash(*hash))))
    }

    fn store_rows(&self, revision: Revision, rows: Vec<CatalogRow>) {
        let old = self.known.load();
        let (data_keys, spending) = (old.data_keys.clone(), old.spending.clone());
        self.known.store(Arc::new(KnownCatalog { data_keys, revision, rows, spending, spending_at: old.spending_at }));
    }

    /// Reads all cached keys again, so that revoked keys are cached as revoked.
    async fn refresh_keys(&self, sql: &SqlStore) -> Result<(), StoreError> {
        let ids: Vec<String> = self.keys.iter().map(|(_, row)| row.id.clone()).collect();
        self.reread(sql, &ids).await
    }

    /// Reads these keys again if they are cached.
    async fn reread(&self, sql: &SqlStore, ids: &[String]) -> Result<(), StoreError> {
        for (hash, row) in sql.key_rows(ids).await? {
            if self.keys.contains_key(&hash) {
                self.keys.insert(hash, Arc::new(row));
            }
        }
        Ok(())
    }

    // === background tasks ===

    /// Called about once a second: opens a database that was unreachable, or renews the server lock.
    pub(crate) async fn heartbeat(&self, now: Timestamp) -> Result<DatabaseStatus, StoreError> {
        let answered = match self.sql.load_full() {
            None => self.reopen(now).await,
            Some(sql) => self.within(QUERY_TIMEOUT, sql.keep_lock()).await,
        };
        match answered {
            Ok(()) => {
                let mut state = self.state();
                (state.last_answer, state.lock_lost) = (now, None);
                self.is_expired.store(false, Ordering::Relaxed);
                Ok(DatabaseStatus::Available)
            }
            // After a lost connection PostgreSQL may take a while to close the old session, which holds the lock.
            Err(StoreError::SecondNode { database }) if self.sql.load().is_some() => {
                let since = *self.state().lock_lost.get_or_insert(now);
                if now.ms_since(since) < LOCK_GRACE_MS {
                    return Ok(DatabaseStatus::Available);
                }
                Err(StoreError::SecondNode { database })
            }
            Err(error) if error.is_unreachable() || matches!(error, StoreError::Query { .. } | StoreError::InvalidData { .. }) => {
                tracing::debug!(%error, "the database is unreachable");
                let since = self.state().last_answer;
                let max_age = self.options.without_database.map_or(0, |age| i64::try_from(age.as_millis()).unwrap_or(i64::MAX));
                self.is_expired.store(now.ms_since(since) > max_age, Ordering::Relaxed);
                Ok(DatabaseStatus::Unavailable { since })
            }
            Err(error) => Err(error),
        }
    }

    async fn reopen(&self, now: Timestamp) -> Result<(), StoreError> {
        let options = OpenOptions { now, ..self.options.clone() };
        let sql = Arc::new(sql::open(self.address.clone(), &options).await?);
        self.refresh_keys(&sql).await?;
        self.sql.store(Some(sql));
        tracing::info!(database = %self.database, "the database is reachable again");
        Ok(())
    }

    /// Writes the cache file; called every 30 s. False if the database was not opened.
    pub(crate) async fn write_cache(&self, now: Timestamp) -> Result<bool, StoreError> {
        let Some(sql) = self.sql.load_full() else { return Ok(false) };
        let data_keys = self.within(QUERY_TIMEOUT, sql.sealed_keys()).await?;
        if data_keys != self.known.load().data_keys {
            // The master key was rotated: the rows are sealed with another data key.
            self.within(BATCH_TIMEOUT, self.reread_rows(&sql, &data_keys)).await?;
        }
        let old = self.known.load_full();
        let spending = self.within(BATCH_TIMEOUT, self.spending_of_cached(&sql, &old, now)).await?;
        let known = KnownCatalog { data_keys, revision: old.revision, rows: old.rows.clone(), spending, spending_at: now };
        let contents = CacheContents::of(&known, self.keys.iter().map(|(hash, row)| (*hash, row)), now);
        // Keep a newer catalog that was read in the meantime; the next write includes it.
        self.known.rcu(|latest| KnownCatalog {
            data_keys: known.data_keys.clone(),
            revision: latest.revision,
            rows: latest.rows.clone(),
            spending: known.spending.clone(),
            spending_at: now,
        });
        let (path, options, database) = (self.path.clone(), self.options.clone(), self.database.clone());
        let written = tokio::task::spawn_blocking(move || cache::write(&path, &database, contents, &options));
        written.await.map_err(|_| self.unreachable("writing the cache file was interrupted"))??;
        Ok(true)
    }

    /// Reads the rows again until they belong to the data keys read along with them.
    async fn reread_rows(&self, sql: &SqlStore, sealed_keys: &[(String, Vec<u8>)]) -> Result<(), StoreError> {
        let mut sealed_keys = sealed_keys.to_vec();
        loop {
            let (revision, rows) = sql.all_rows().await?;
            let again = sql.sealed_keys().await?;
            if sealed_keys == again {
                let old = self.known.load();
                let (spending, spending_at) = (old.spending.clone(), old.spending_at);
                self.known.store(Arc::new(KnownCatalog { data_keys: sealed_keys, revision, rows, spending, spending_at }));
                return Ok(());
            }
            sealed_keys = again;
        }
    }

    /// See [`SqlStore::watch_keys`].
    pub(crate) async fn watch_keys(&self) -> Result<bool, StoreError> {
        let sql = self.sql()?;
        let changed = self.within(QUERY_TIMEOUT, sql.watch_keys()).await?;
        self.sealer.adopt(&sql.sealer);
        Ok(changed)
    }

    /// The spending of cached keys and their members, from the last known spending and the changes since.
    async fn spending_of_cached(&self, sql: &SqlStore, old: &KnownCatalog, now: Timestamp) -> Result<Spending, StoreError> {
        let (mut keys, mut members) = (Vec::new(), HashSet::new());
        for (_, row) in &self.keys {
            keys.extend(KeyId::parse(&row.id));
            members.extend(MemberId::parse(&row.parent));
        }
        let read = async |keys: &[KeyId], members: Vec<MemberId>, shared: SpendingScope| {
            let keys: Vec<String> = keys.iter().map(KeyId::to_string).collect();
            let members: Vec<String> = members.iter().map(MemberId::to_string).collect();
            sql.spending_of(&keys, &members, shared, now).await
        };
        if old.spending_at == Timestamp::default() {
            return read(&keys, members.into_iter().collect(), SpendingScope::With).await;
        }
        let cached: HashSet<Subject> =
            keys.iter().map(|id| Subject::Key(*id)).chain(members.iter().map(|id| Subject::Member(*id))).collect();
        let known = |of: &Subject| !matches!(of, Subject::Key(_) | Subject::Member(_)) || cached.contains(of);
        let mut spent: HashMap<Subject, SpendTotals> = old.spending.spent.iter().filter(|(of, _)| known(of)).copied().collect();
        let mut balances: HashMap<MemberId, NanoUsd> =
            old.spending.balances.iter().filter(|(of, _)| members.contains(of)).copied().collect();
        let mut position = old.spending.ledger;
        for page in 0.. {
            if page == MAX_PAGES {
                return read(&keys, members.into_iter().collect(), SpendingScope::With).await;
            }
            let changed = sql.spending_since(position, now).await?;
            spent.extend(changed.spent.into_iter().filter(|(of, _)| known(of)));
            balances.extend(changed.balances.into_iter().filter(|(of, _)| members.contains(of)));
            for (of, at, amount) in changed.added {
                spent.entry(of).or_default().add(amount, at);
            }
            position = changed.until;
            if position >= changed.ledger {
                break;
            }
        }
        // Keys and members cached since then. An entry of zero marks those without spending as read.
        keys.retain(|id| !spent.contains_key(&Subject::Key(*id)));
        let new: Vec<MemberId> = members.iter().filter(|id| !spent.contains_key(&Subject::Member(**id))).copied().collect();
        if !keys.is_empty() || !new.is_empty() {
            for id in &keys {
                spent.insert(Subject::Key(*id), SpendTotals::default());
            }
            for id in &new {
                spent.insert(Subject::Member(*id), SpendTotals::default());
            }
            let more = read(&keys, new, SpendingScope::Without).await?;
            spent.extend(more.spent);
            balances.extend(more.balances);
        }
        Ok(Spending { spent: spent.into_iter().collect(), balances: balances.into_iter().collect(), ledger: position })
    }

    pub(crate) async fn close(&self) {
        if let Some(sql) = self.sql.load_full() {
            sql.close().await;
        }
    }

    /// The last known spending and its time.
    pub(crate) fn known_spending(&self) -> (Spending, Timestamp) {
        let known = self.known.load();
        (known.spending.clone(), known.spending_at)
    }
}

#[cfg(test)]
mod tests;
