//! An in-memory store for tests: one key, the appended records and health, and switches for faults.

use std::{
    collections::HashSet,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
};

use async_trait::async_trait;
use tollgate_core::{AccountHealth, AccountId, Key, KeyId, MemberId, RequestId, Timestamp, UsageRecord};
use tollgate_store::{
    AttemptFilter, AttemptsBy, AttemptsRow, BATCH_SIZE, BookedRecords, Grouping, HealthStore, KeyHash, KeyStore, KeyUse,
    KeyUseFilter, LastUse, LogPosition, Page, StoreError, Summary, UsageFilter, UsageStore,
};

/// The in-memory store.
#[derive(Debug)]
pub(crate) struct MemoryStore {
    key: Mutex<Key>,
    records: Mutex<Vec<UsageRecord>>,
    health: Mutex<Vec<AccountId>>,
    passed: Mutex<Vec<(AccountId, Timestamp)>>,
    unreachable: AtomicBool,
    /// Records that `append` rejects.
    rejected: Mutex<HashSet<RequestId>>,
    appends: AtomicUsize,
    /// Duration of an append in milliseconds.
    append_ms: AtomicUsize,
    /// Larger batches fail as if the database did not answer in time.
    max_batch: AtomicUsize,
}

impl MemoryStore {
    pub(crate) fn new(key: Key) -> Arc<Self> {
        let (records, health, passed) = (Mutex::default(), Mutex::default(), Mutex::default());
        Arc::new(Self {
            key: Mutex::new(key),
            records,
            health,
            passed,
            unreachable: AtomicBool::new(false),
            rejected: Mutex::default(),
            appends: AtomicUsize::new(0),
            append_ms: AtomicUsize::new(0),
            max_batch: AtomicUsize::new(usize::MAX),
        })
    }

    /// Makes every further look-up return the key after `change`.
    pub(crate) fn change_key(&self, change: impl FnOnce(&mut Key)) {
        change(&mut self.key.lock().unwrap());
    }

    /// Makes the store unreachable or reachable.
    pub(crate) fn set_unreachable(&self, unreachable: bool) {
        self.unreachable.store(unreachable, Ordering::SeqCst);
    }

    /// Sets the duration of each append.
    pub(crate) fn set_append_ms(&self, ms: usize) {
        self.append_ms.store(ms, Ordering::SeqCst);
    }

    /// Makes `append` fail for more records than this.
    pub(crate) fn set_max_batch(&self, max_batch: usize) {
        self.max_batch.store(max_batch, Ordering::SeqCst);
    }

    /// Makes `append` reject these records.
    pub(crate) fn reject(&self, ids: &[RequestId]) {
        self.rejected.lock().unwrap().extend(ids);
    }

    /// The ids of the stored records in ascending order.
    pub(crate) fn ids(&self) -> Vec<RequestId> {
        let mut ids: Vec<_> = self.records.lock().unwrap().iter().map(|record| record.id).collect();
        ids.sort();
        ids
    }

    /// The number of calls of `append`, failed ones included.
    pub(crate) fn appends(&self) -> usize {
        self.appends.load(Ordering::SeqCst)
    }

    /// Accounts whose health was saved, once per save.
    pub(crate) fn saved_health(&self) -> Vec<AccountId> {
        self.health.lock().unwrap().clone()
    }

    /// Records a passed test as another process does.
    pub(crate) fn note_test(&self, account: AccountId, at: Timestamp) {
        self.passed.lock().unwrap().push((account, at));
    }

    fn check_reachable(&self) -> Result<(), StoreError> {
        if self.unreachable.load(Ordering::SeqCst) {
            return Err(StoreError::Unreachable { database: "test".to_owned(), detail: "gone".to_owned() });
        }
        Ok(())
    }
}

#[async_trait]
impl KeyStore for MemoryStore {
    async fn find(&self, _hash: &KeyHash) -> Result<Option<Key>, StoreError> {
        Ok(Some(self.key.lock().unwrap().clone()))
    }

    async fn list(&self) -> Result<Vec<Key>, StoreError> {
        Ok(vec![self.key.lock().unwrap().clone()])
    }
}

#[async_trait]
impl UsageStore for MemoryStore {
    async fn append(&self, records: &[UsageRecord]) -> Result<u64, StoreError> {
        self.appends.fetch_add(1, Ordering::SeqCst);
        let append_ms = self.append_ms.load(Ordering::SeqCst);
        if append_ms > 0 {
            tokio::time::sleep(std::time::Duration::from_millis(append_ms as u64)).await;
        }
        self.check_reachable()?;
        if records.len() > self.max_batch.load(Ordering::SeqCst) {
            return Err(StoreError::Unreachable { database: "memory".to_owned(), detail: "it did not answer in time".to_owned() });
        }
        let rejected = self.rejected.lock().unwrap();
        if records.iter().any(|record| rejected.contains(&record.id)) {
            return Err(StoreError::InvalidData { detail: "no such number".to_owned() });
        }
        let mut stored = self.records.lock().unwrap();
        let mut ids: HashSet<_> = stored.iter().map(|record| record.id).collect();
        let new: Vec<_> = records.iter().filter(|record| ids.insert(record.id)).cloned().collect();
        let count = new.len() as u64;
        stored.extend(new);
        Ok(count)
    }

    fn batch_size(&self) -> usize {
        BATCH_SIZE
    }

    async fn create_partitions(&self, _now: Timestamp, _keep_days: u64) -> Result<u64, StoreError> {
        Ok(0)
    }

    async fn prune(&self, _before: Timestamp) -> Result<Option<u64>, StoreError> {
        Ok(None)
    }

    async fn log_time(&self) -> Result<Option<Timestamp>, StoreError> {
        Ok(None)
    }

    async fn set_log_time(&self, _known: Option<Timestamp>, _time: Timestamp) -> Result<bool, StoreError> {
        Ok(false)
    }

    async fn page(&self, _filter: &UsageFilter) -> Result<Page<UsageRecord>, StoreError> {
        Ok(Page { items: self.records.lock().unwrap().clone(), next: None, searched_until: None })
    }

    async fn find(&self, id: RequestId) -> Result<Option<UsageRecord>, StoreError> {
        Ok(self.records.lock().unwrap().iter().find(|record| record.id == id).cloned())
    }

    async fn booked_after(&self, _after: Option<LogPosition>, _limit: usize) -> Result<BookedRecords, StoreError> {
        Ok(BookedRecords::default())
    }

    async fn known(&self, ids: &[RequestId]) -> Result<HashSet<RequestId>, StoreError> {
        let stored = self.ids();
        Ok(ids.iter().copied().filter(|id| stored.contains(id)).collect())
    }

    async fn counted_summary(&self, _filter: &UsageFilter, _by: Grouping) -> Result<Summary, StoreError> {
        Ok(Summary::default())
    }

    async fn attempts(&self, _filter: &AttemptFilter, _by: (AttemptsBy, AttemptsBy)) -> Result<Vec<AttemptsRow>, StoreError> {
        Ok(Vec::new())
    }

    async fn key_use(&self, _filter: KeyUseFilter, _keys: Option<Vec<KeyId>>) -> Result<Vec<(KeyId, KeyUse)>, StoreError> {
        Ok(Vec::new())
    }

    async fn unused_keys(&self, _filter: KeyUseFilter, keys: Vec<KeyId>) -> Result<Vec<KeyId>, StoreError> {
        Ok(keys)
    }

    async fn last_use(&self, _keys: Vec<KeyId>) -> Result<Vec<(KeyId, LastUse)>, StoreError> {
        Ok(Vec::new())
    }

    async fn last_requests(&self, _keys: Vec<KeyId>, _most: usize) -> Result<Vec<(KeyId, Timestamp)>, StoreError> {
        Ok(Vec::new())
    }

    async fn last_use_of_members(&self, _members: Vec<MemberId>, _most: usize) -> Result<Vec<(MemberId, Timestamp)>, StoreError> {
        Ok(Vec::new())
    }
}

#[async_trait]
impl HealthStore for MemoryStore {
    async fn load_health(&self) -> Result<Vec<(AccountId, AccountHealth)>, StoreError> {
        Ok(Vec::new())
    }

    async fn save_health(&self, health: &[(AccountId, AccountHealth)], _now: Timestamp) -> Result<(), StoreError> {
        self.check_reachable()?;
        self.health.lock().unwrap().extend(health.iter().map(|(account, _)| *account));
        Ok(())
    }

    async fn save_test(&self, account: AccountId, now: Timestamp) -> Result<(), StoreError> {
        self.passed.lock().unwrap().push((account, now));
        Ok(())
    }

    async fn load_tests(&self) -> Result<Vec<(AccountId, Timestamp)>, StoreError> {
        Ok(self.passed.lock().unwrap().clone())
    }
}
