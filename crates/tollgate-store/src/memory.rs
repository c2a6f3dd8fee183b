//! The memory backend, for tests and trials. The usage log keeps the newest 100,000 records.

mod alerts;
mod contents;
mod exports;
mod health_history;
mod identity;
mod ids;
mod ledger;
mod rows;
mod square;
mod usage;

pub(crate) use usage::groups_of;

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    sync::Arc,
};

use async_trait::async_trait;
use tokio::sync::{Mutex, watch};
use tollgate_core::{AccountHealth, AccountId, Catalog, Key, KeyId, MemberId, RequestId, Revision, Timestamp, UsageRecord};

use crate::{
    Actor, AttemptFilter, AttemptsBy, AttemptsRow, AuditEvent, BATCH_SIZE, BookedRecords, CatalogRows, CatalogStore, Change,
    ChangedRow, Grouping, HealthStore, KeyHash, KeyHasher, KeyScope, KeyStore, KeyUse, KeyUseFilter, LastUse, LogPosition,
    OfferChange, Page, PriceChange, RandomSource, RowKind, StoreError, Summary, UsageFilter, UsageStore,
    apply::apply,
    assemble::{self, GroupIds},
    catalog_rows::PRICE_LIMITED,
    rows::{CatalogRow, IdempotentBatch, RowSecret},
    seal::Sealer,
};

pub(crate) use ids::RowIds;

#[derive(Debug)]
pub(crate) struct MemoryStore {
    catalog: Mutex<State>,
    usage: Mutex<usage::MemoryUsageLog>,
    ledger: Mutex<ledger::MemoryLedger>,
    health: Mutex<HashMap<AccountId, AccountHealth>>,
    health_history: Mutex<health_history::MemoryHealthHistory>,
    tests: Mutex<BTreeMap<AccountId, Timestamp>>,
    alerts: Mutex<alerts::MemoryAlerts>,
    contents: Mutex<contents::MemoryContents>,
    exports: Mutex<exports::MemoryExports>,
    revision: watch::Sender<Revision>,
    sealer: Sealer,
    hasher: KeyHasher,
    random: RandomSource,
}

#[derive(Clone, Debug, Default)]
struct State {
    /// By id.
    rows: BTreeMap<String, CatalogRow>,
    revision: Revision,
    changed: Vec<ChangedRow>,
    audit: Vec<AuditEvent>,
    prices: Vec<PriceChange>,
    offers: Vec<OfferChange>,
    idempotent: HashMap<String, IdempotentBatch>,
    identity: identity::MemoryIdentity,
    /// Ids for new rows, if they are derived from names.
    ids: Option<Arc<RowIds>>,
}

impl MemoryStore {
    pub(crate) fn new(sealer: Sealer, hasher: KeyHasher, random: RandomSource) -> Self {
        Self {
            catalog: Mutex::default(),
            usage: Mutex::default(),
            ledger: Mutex::default(),
            health: Mutex::default(),
            health_history: Mutex::default(),
            tests: Mutex::default(),
            alerts: Mutex::default(),
            contents: Mutex::default(),
            exports: Mutex::default(),
            revision: watch::Sender::default(),
            sealer,
            hasher,
            random,
        }
    }

    /// Derives the ids of new rows from their names, so that a copy of a catalog has the ids of the original.
    pub(crate) fn with_ids(mut self, ids: RowIds) -> Self {
        self.catalog.get_mut().ids = Some(Arc::new(ids));
        self
    }
}

impl State {
    fn live(&self) -> impl Iterator<Item = &CatalogRow> {
        self.rows.values().filter(|row| row.removed_at.is_none())
    }

    fn keys(&self) -> impl Iterator<Item = &CatalogRow> {
        self.rows.values().filter(|row| row.kind == RowKind::Key)
    }

    /// The revision of the last change of a row; 0 if there was none.
    fn last_change(&self, id: &str) -> Revision {
        self.changed.iter().rev().find(|row| row.id == id).map(|row| row.revision).unwrap_or_default()
    }

    fn key(&self, row: &CatalogRow) -> Result<Key, StoreError> {
        let member = self.rows.get(&row.parent).ok_or_else(|| row.broken("its member does not exist"))?;
        assemble::key(row, member, &self.group_ids())
    }

    fn group_ids(&self) -> GroupIds {
        GroupIds::of(self.rows.values().filter(|row| row.kind == RowKind::Group))
    }
}

#[async_trait]
impl CatalogStore for MemoryStore {
    async fn load(&self) -> Result<Catalog, StoreError> {
        let state = self.catalog.lock().await;
        let rows: Vec<CatalogRow> =
            state.live().filter(|row| !matches!(row.kind, RowKind::Key | RowKind::AdminKey)).cloned().collect();
        assemble::catalog(state.revision, &rows, &self.sealer)
    }

    async fn apply(&self, changes: &[Change], actor: &Actor, now: Timestamp) -> Result<Revision, StoreError> {
        let mut state = self.catalog.lock().await;
        let mut draft = state.clone();
        let revision = apply(&mut draft, &self.sealer, &self.random, changes, actor, now).await?;
        *state = draft;
        self.revision.send_replace(revision);
        Ok(revision)
    }

    async fn revision(&self) -> Result<Revision, StoreError> {
        Ok(self.catalog.lock().await.revision)
    }

    async fn changed_since(&self, known: Revision) -> Result<Vec<ChangedRow>, StoreError> {
        let state = self.catalog.lock().await;
        Ok(state.changed.iter().filter(|row| row.revision > known).cloned().collect())
    }

    async fn wait_for_change(&self, known: Revision) -> Result<Revision, StoreError> {
        let mut revision = self.revision.subscribe();
        let now = *revision.wait_for(|now| *now != known).await.expect("the store owns the sender");
        Ok(now)
    }

    async fn audit(&self, below: Option<Revision>, limit: u32) -> Result<Vec<AuditEvent>, StoreError> {
        let state = self.catalog.lock().await;
        let below = |event: &&AuditEvent| below.is_none_or(|below| event.revision < below);
        Ok(state.audit.iter().rev().filter(below).take(limit.min(1_000) as usize).cloned().collect())
    }

    async fn live_rows(&self, scope: &KeyScope) -> Result<CatalogRows, StoreError> {
        let state = self.catalog.lock().await;
        let mut rows: Vec<CatalogRow> = state
            .live()
            .filter(|row| row.kind != RowKind::AdminKey && (row.kind != RowKind::Key || scope.selects(row)))
            .cloned()
            .collect();
        let mut cut = false;
        if let KeyScope::Limited { max, .. } = scope {
            let is_limited =
                |row: &&CatalogRow| row.kind == RowKind::Key && !scope.selects(row) && row.spec.contains(PRICE_LIMITED);
            let mut limited: Vec<&CatalogRow> = state.live().filter(is_limited).collect();
            limited.sort_by(|a, b| a.id.cmp(&b.id));
            cut = limited.len() > *max as usize;
            rows.extend(limited.into_iter().take(*max as usize).cloned());
        }
        let current = CatalogRows::from_rows(state.revision, &rows, &self.sealer, self.hasher.clone())?;
        Ok(CatalogRows { keys_cut: cut, ..current })
    }
}

#[async_trait]
impl KeyStore for MemoryStore {
    async fn find(&self, hash: &KeyHash) -> Result<Option<Key>, StoreError> {
        let state = self.catalog.lock().await;
        let has_hash = |row: &&CatalogRow| matches!(&row.secret, RowSecret::Key(secret) if secret.hashes().any(|it| it == *hash));
        let found = state.keys().filter(has_hash).max_by_key(|row| (row.removed_at.is_none(), row.created_at));
        found.map(|row| Ok(assemble::as_presented(state.key(row)?, row, hash))).transpose()
    }

    async fn list(&self) -> Result<Vec<Key>, StoreError> {
        let state = self.catalog.lock().await;
        let mut keys = state.keys().map(|row| state.key(row)).collect::<Result<Vec<_>, _>>()?;
        keys.sort_by(|a, b| (&a.member.name, &a.name, a.id).cmp(&(&b.member.name, &b.name, b.id)));
        Ok(keys)
    }
}

#[async_trait]
impl UsageStore for MemoryStore {
    async fn append(&self, records: &[UsageRecord]) -> Result<u64, StoreError> {
        let mut usage = self.usage.lock().await;
        let mut ledger = self.ledger.lock().await;
        let new = usage.append(records);
        let position = ledger.book(&new);
        usage.set_booked(&new, position);
        Ok(new.len() as u64)
    }

    fn batch_size(&self) -> usize {
        BATCH_SIZE
    }

    async fn create_partitions(&self, _now: Timestamp, _keep_days: u64) -> Result<u64, StoreError> {
        Ok(0)
    }

    async fn prune(&self, before: Timestamp) -> Result<Option<u64>, StoreError> {
        Ok(Some(self.usage.lock().await.prune(before)).filter(|removed| *removed > 0))
    }

    async fn log_time(&self) -> Result<Option<Timestamp>, StoreError> {
        Ok(self.usage.lock().await.time)
    }

    async fn set_log_time(&self, known: Option<Timestamp>, time: Timestamp) -> Result<bool, StoreError> {
        let log = &mut self.usage.lock().await.time;
        let is_known = *log == known;
        if is_known {
            *log = Some(time);
        }
        Ok(is_known)
    }

    async fn page(&self, filter: &UsageFilter) -> Result<Page<UsageRecord>, StoreError> {
        Ok(self.usage.lock().await.page(filter))
    }

    async fn find(&self, id: RequestId) -> Result<Option<UsageRecord>, StoreError> {
        Ok(self.usage.lock().await.find(id))
    }

    async fn booked_after(&self, after: Option<LogPosition>, limit: usize) -> Result<BookedRecords, StoreError> {
        Ok(self.usage.lock().await.booked_after(after, limit))
    }

    async fn known(&self, ids: &[RequestId]) -> Result<HashSet<RequestId>, StoreError> {
        let usage = self.usage.lock().await;
        Ok(ids.iter().copied().filter(|id| usage.has(*id)).collect())
    }

    async fn counted_summary(&self, filter: &UsageFilter, by: Grouping) -> Result<Summary, StoreError> {
        let rows = self.usage.lock().await.summary(filter, by);
        Ok(Summary { groups: rows.len(), rows })
    }

    async fn attempts(&self, filter: &AttemptFilter, by: (AttemptsBy, AttemptsBy)) -> Result<Vec<AttemptsRow>, StoreError> {
        Ok(self.usage.lock().await.attempts(filter, by))
    }

    async fn key_use(&self, filter: KeyUseFilter, keys: Option<Vec<KeyId>>) -> Result<Vec<(KeyId, KeyUse)>, StoreError> {
        let mut used = self.usage.lock().await.key_use(filter);
        if let Some(keys) = keys {
            used.retain(|key, _| keys.contains(key));
        }
        Ok(used.into_iter().collect())
    }

    async fn unused_keys(&self, filter: KeyUseFilter, keys: Vec<KeyId>) -> Result<Vec<KeyId>, StoreError> {
        let used = self.usage.lock().await.key_use(filter);
        Ok(keys.into_iter().filter(|key| !used.contains_key(key)).collect())
    }

    async fn last_use(&self, keys: Vec<KeyId>) -> Result<Vec<(KeyId, LastUse)>, StoreError> {
        let mut used = self.usage.lock().await.last_use();
        used.retain(|key, _| keys.contains(key));
        Ok(used.into_iter().collect())
    }

    async fn last_requests(&self, keys: Vec<KeyId>, _most: usize) -> Result<Vec<(KeyId, Timestamp)>, StoreError> {
        Ok(self.last_use(keys).await?.into_iter().map(|(key, last)| (key, last.at)).collect())
    }

    async fn last_use_of_members(&self, members: Vec<MemberId>, _most: usize) -> Result<Vec<(MemberId, Timestamp)>, StoreError> {
        let mut last = self.usage.lock().await.last_use_by_member();
        last.retain(|member, _| members.contains(member));
        Ok(last.into_iter().collect())
    }
}

#[async_trait]
impl HealthStore for MemoryStore {
    async fn load_health(&self) -> Result<Vec<(AccountId, AccountHealth)>, StoreError> {
        let state = self.catalog.lock().await;
        let exists = |id: &AccountId| state.rows.get(&id.to_string()).is_some_and(|row| row.removed_at.is_none());
        let health = self.health.lock().await;
        let mut known: Vec<_> = health.iter().filter(|(id, _)| exists(id)).map(|(id, health)| (*id, *health)).collect();
        known.sort_unstable_by_key(|(id, _)| *id);
        Ok(known)
    }

    async fn save_health(&self, health: &[(AccountId, AccountHealth)], _now: Timestamp) -> Result<(), StoreError> {
        self.health.lock().await.extend(health.iter().copied());
        Ok(())
    }

    async fn save_test(&self, account: AccountId, now: Timestamp) -> Result<(), StoreError> {
        self.tests.lock().await.insert(account, now);
        Ok(())
    }

    async fn load_tests(&self) -> Result<Vec<(AccountId, Timestamp)>, StoreError> {
        Ok(self.tests.lock().await.iter().map(|(account, at)| (*account, *at)).collect())
    }
}
