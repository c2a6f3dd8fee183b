//! A PostgreSQL database that may be away. What is needed to serve known keys is kept in memory and, sealed, in
//! `<data>/cache.sealed`; when the database does not answer, that is what answers in its place. Whatever it cannot know
//! says that the database is away, never that something does not exist.
//!
//! Bounds: 40 MiB of keys in memory, 64 MiB the file; 1 s for a key that is known here, 5 s for the catalog, 45 s for a
//! batch of records.

mod cache;
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
    LedgerStore as _, RowKind, Spending, StoreError,
    assemble::{self, GroupIds},
    options::OpenOptions,
    rows::Row,
    seal::Sealer,
    sql::{self, SpendingScope, SqlStore},
};

use cache::CacheContents;

/// Longest wait for a key that is known here too.
const KNOWN_KEY: Duration = Duration::from_secs(1);
/// Longest wait for a look at the catalog, or at what was spent.
const LOOK: Duration = Duration::from_secs(5);
/// Longest wait for a whole catalog or a batch of records.
const WORK: Duration = Duration::from_secs(45);
/// How long the lock may be somebody else's after it was lost.
const LOCK_PATIENCE_MS: i64 = 60_000;
/// Pages of what changed between two writes of the file; more is read anew.
const MOST_PAGES: usize = 50;
/// Memory for keys.
const KEY_BYTES: u64 = 40 << 20;

/// How a store that may be away stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DatabaseStatus {
    /// The database was opened and answered when it was last asked.
    There,
    /// It is away since then; what is known serves.
    Away {
        /// When it last answered.
        since: Timestamp,
    },
}

/// The store.
pub(crate) struct CachedStore {
    options: OpenOptions,
    address: sql::SqlAddress,
    place: String,
    path: PathBuf,
    sql: ArcSwapOption<SqlStore>,
    sealer: Sealer,
    known: ArcSwap<KnownCatalog>,
    keys: Cache<[u8; 32], Arc<Row>>,
    state: Mutex<State>,
    /// The database has been away for so long that nothing that is known serves any more.
    too_old: AtomicBool,
}

#[derive(Debug)]
struct State {
    /// When the database last answered; as of the last beat.
    heard: Timestamp,
    /// Since when another server has the lock that was ours.
    refused: Option<Timestamp>,
}

/// The catalog as it was last read.
#[derive(Debug, Default)]
struct KnownCatalog {
    vault: Vec<(String, Vec<u8>)>,
    revision: Revision,
    /// Live rows, and groups that were removed.
    rows: Vec<Row>,
    spending: Spending,
    spending_at: Timestamp,
}

impl KnownCatalog {
    fn live(&self) -> Vec<Row> {
        self.rows.iter().filter(|row| row.removed_at.is_none()).cloned().collect()
    }

    fn groups(&self) -> GroupIds {
        GroupIds::of(self.rows.iter().filter(|row| row.kind == RowKind::Group))
    }
}

impl fmt::Debug for CachedStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CachedStore").field("place", &self.place).field("sql", &self.sql.load().is_some()).finish_non_exhaustive()
    }
}

impl CachedStore {
    /// Around a database that is open.
    pub(crate) async fn around(sql: Arc<SqlStore>, address: sql::SqlAddress, options: OpenOptions) -> Result<Self, StoreError> {
        let vault = sql.sealed_keys().await?;
        let (revision, rows) = sql.all_rows().await?;
        let known = KnownCatalog { vault, revision, rows, ..KnownCatalog::default() };
        let standby = Self::new(address, sql.sealer(), known, options);
        // Keys of the last process are known here too, so that an outage right after a start finds them.
        if let Ok(Some((contents, _))) = cache::read(&standby.path, &standby.place, &standby.options) {
            standby.remember_keys(contents.keys()?);
        }
        standby.refresh_keys(&sql).await?;
        standby.sql.store(Some(sql));
        Ok(standby)
    }

    /// From the file of the last process, because the database is away; `None` when there is none that may serve.
    pub(crate) fn without(
        address: sql::SqlAddress,
        options: OpenOptions,
        max_age: Duration,
    ) -> Result<Option<(Self, crate::KeyHasher)>, StoreError> {
        let path = cache::path(&options.data);
        let place = options.url.shown();
        let Some((contents, opened)) = cache::read(&path, &place, &options)? else { return Ok(None) };
        let age = options.now.ms_since(contents.at());
        if age > i64::try_from(max_age.as_millis()).unwrap_or(i64::MAX) {
            tracing::warn!(path = %path.display(), age_s = age / 1_000, "what is known of the catalog is too old to serve without the database");
            return Ok(None);
        }
        let heard = contents.at();
        let keys = contents.keys()?;
        let standby = Self::new(address, opened.sealer, contents.into_known()?, options);
        standby.remember_keys(keys);
        standby.state().heard = heard;
        Ok(Some((standby, opened.hasher)))
    }

    fn new(address: sql::SqlAddress, sealer: Sealer, known: KnownCatalog, options: OpenOptions) -> Self {
        let weigh = |_: &[u8; 32], row: &Arc<Row>| u32::try_from(row.spec.len() + row.name.len() + 256).unwrap_or(u32::MAX);
        Self {
            address,
            place: options.url.shown(),
            path: cache::path(&options.data),
            sql: ArcSwapOption::empty(),
            sealer,
            known: ArcSwap::from_pointee(known),
            keys: Cache::builder().max_capacity(KEY_BYTES).weigher(weigh).build(),
            state: Mutex::new(State { heard: options.now, refused: None }),
            too_old: AtomicBool::new(false),
            options,
        }
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The database, if it was ever opened.
    fn sql(&self) -> Result<Arc<SqlStore>, StoreError> {
        self.sql.load_full().ok_or_else(|| self.away("it was away at the start"))
    }

    fn away(&self, detail: &str) -> StoreError {
        StoreError::Unreachable { database: self.place.clone(), detail: detail.to_owned() }
    }

    /// An answer within a time; a database that hangs is away.
    async fn within<T>(&self, limit: Duration, asked: impl Future<Output = Result<T, StoreError>>) -> Result<T, StoreError> {
        timeout(limit, asked).await.unwrap_or_else(|_| Err(self.away("it did not answer in time")))
    }

    // === what is known ===

    fn remember_keys(&self, rows: Vec<([u8; 32], Row)>) {
        for (hash, row) in rows {
            self.keys.insert(hash, Arc::new(row));
        }
    }

    /// A key as it is known here.
    fn known_key(&self, hash: &[u8; 32]) -> Option<Result<Key, StoreError>> {
        if self.too_old.load(Ordering::Relaxed) {
            return None;
        }
        let row = self.keys.get(hash)?;
        let known = self.known.load();
        let member = known.rows.iter().find(|member| member.id == row.parent && member.kind == RowKind::Member)?;
        Some(assemble::key(&row, member, &known.groups()))
    }

    fn note_rows(&self, revision: Revision, rows: Vec<Row>) {
        let old = self.known.load();
        let (vault, spending) = (old.vault.clone(), old.spending.clone());
        self.known.store(Arc::new(KnownCatalog { vault, revision, rows, spending, spending_at: old.spending_at }));
    }

    /// Reads every key that is known here anew: what was revoked meanwhile is known as revoked.
    async fn refresh_keys(&self, sql: &SqlStore) -> Result<(), StoreError> {
        let ids: Vec<String> = self.keys.iter().map(|(_, row)| row.id.clone()).collect();
        self.reread(sql, &ids).await
    }

    /// Reads these keys anew, where they are known here.
    async fn reread(&self, sql: &SqlStore, ids: &[String]) -> Result<(), StoreError> {
        for (hash, row) in sql.key_rows(ids).await? {
            if self.keys.contains_key(&hash) {
                self.keys.insert(hash, Arc::new(row));
            }
        }
        Ok(())
    }

    // === the background ===

    /// Asked for about once a second: opens a database that was away, keeps the server's lock, and writes the file.
    ///
    /// # Errors
    /// When the database is there and may not be served from: another server has it, or it is another one.
    pub(crate) async fn heartbeat(&self, now: Timestamp) -> Result<DatabaseStatus, StoreError> {
        let answered = match self.sql.load_full() {
            None => self.open_now(now).await,
            Some(sql) => self.within(LOOK, sql.keep_lock()).await,
        };
        match answered {
            Ok(()) => {
                let mut state = self.state();
                (state.heard, state.refused) = (now, None);
                self.too_old.store(false, Ordering::Relaxed);
                Ok(DatabaseStatus::There)
            }
            // After a broken connection PostgreSQL may take a while to see that the old one, which has the lock, is gone.
            Err(StoreError::SecondNode { database: place }) if self.sql.load().is_some() => {
                let since = *self.state().refused.get_or_insert(now);
                if now.ms_since(since) < LOCK_PATIENCE_MS {
                    return Ok(DatabaseStatus::There);
                }
                Err(StoreError::SecondNode { database: place })
            }
            Err(error) if error.is_unreachable() || matches!(error, StoreError::Query { .. } | StoreError::InvalidData { .. }) => {
                tracing::debug!(%error, "the database is away");
                let since = self.state().heard;
                let most = self.options.without_database.map_or(0, |most| i64::try_from(most.as_millis()).unwrap_or(i64::MAX));
                self.too_old.store(now.ms_since(since) > most, Ordering::Relaxed);
                Ok(DatabaseStatus::Away { since })
            }
            Err(error) => Err(error),
        }
    }

    async fn open_now(&self, now: Timestamp) -> Result<(), StoreError> {
        let options = OpenOptions { now, ..self.options.clone() };
        let sql = Arc::new(sql::open(self.address.clone(), &options).await?);
        self.refresh_keys(&sql).await?;
        self.sql.store(Some(sql));
        tracing::info!(database = %self.place, "the database is back");
        Ok(())
    }

    /// Writes the file when something in it changed or it is old; to be asked for every 30 s. Whether it was written.
    pub(crate) async fn write_cache(&self, now: Timestamp) -> Result<bool, StoreError> {
        let Some(sql) = self.sql.load_full() else { return Ok(false) };
        let vault = self.within(LOOK, sql.sealed_keys()).await?;
        let old = self.known.load_full();
        let spending = self.within(WORK, self.spending_of_known(&sql, &old, now)).await?;
        let known = KnownCatalog { vault, revision: old.revision, rows: old.rows.clone(), spending, spending_at: now };
        let contents = CacheContents::of(&known, self.keys.iter().map(|(hash, row)| (*hash, row)), now);
        // Somebody may have read a newer catalog meanwhile; the next write has it.
        self.known.rcu(|latest| KnownCatalog {
            vault: known.vault.clone(),
            revision: latest.revision,
            rows: latest.rows.clone(),
            spending: known.spending.clone(),
            spending_at: now,
        });
        let (path, options, place) = (self.path.clone(), self.options.clone(), self.place.clone());
        let written = tokio::task::spawn_blocking(move || cache::write(&path, &place, contents, &options));
        written.await.map_err(|_| self.away("writing what is known was cut off"))??;
        Ok(true)
    }

    /// What was spent by whoever is known here: what was known of it, and what changed since.
    async fn spending_of_known(&self, sql: &SqlStore, old: &KnownCatalog, now: Timestamp) -> Result<Spending, StoreError> {
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
        let is_known: HashSet<Subject> =
            keys.iter().map(|id| Subject::Key(*id)).chain(members.iter().map(|id| Subject::Member(*id))).collect();
        let known = |of: &Subject| !matches!(of, Subject::Key(_) | Subject::Member(_)) || is_known.contains(of);
        let mut spent: HashMap<Subject, SpendTotals> = old.spending.spent.iter().filter(|(of, _)| known(of)).copied().collect();
        let mut balances: HashMap<MemberId, NanoUsd> =
            old.spending.balances.iter().filter(|(of, _)| members.contains(of)).copied().collect();
        let mut place = old.spending.ledger;
        for page in 0.. {
            if page == MOST_PAGES {
                return read(&keys, members.into_iter().collect(), SpendingScope::With).await;
            }
            let changed = sql.spending_since(place, now).await?;
            spent.extend(changed.spent.into_iter().filter(|(of, _)| known(of)));
            balances.extend(changed.balances.into_iter().filter(|(of, _)| members.contains(of)));
            for (of, at, amount) in changed.added {
                spent.entry(of).or_default().add(amount, at);
            }
            place = changed.until;
            if place >= changed.ledger {
                break;
            }
        }
        // Whoever became known meanwhile; who spent nothing is known to have spent nothing.
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
        Ok(Spending { spent: spent.into_iter().collect(), balances: balances.into_iter().collect(), ledger: place })
    }

    /// Closes all connections.
    pub(crate) async fn close(&self) {
        if let Some(sql) = self.sql.load_full() {
            sql.close().await;
        }
    }

    /// The database, for what is done to it alone.
    pub(crate) fn database(&self) -> Result<Arc<SqlStore>, StoreError> {
        self.sql()
    }

    /// What was spent, as it is known, and when that was.
    pub(crate) fn known_spending(&self) -> (Spending, Timestamp) {
        let known = self.known.load();
        (known.spending.clone(), known.spending_at)
    }
}

#[cfg(test)]
mod tests;
