//! The store traits: every query goes to the database with a timeout; keys, catalog and spending fall back to the cache.

use std::{
    collections::{BTreeSet, HashMap, HashSet},
    ops::RangeInclusive,
};

use async_trait::async_trait;
use tollgate_core::{
    AccountHealth, AccountId, Catalog, GroupId, HealthTransition, Key, KeyId, MemberId, NanoUsd, RequestContents, RequestId,
    Revision, Timestamp, UsageRecord,
};

use super::{BATCH_TIMEOUT, CACHED_KEY_TIMEOUT, CachedStore, QUERY_TIMEOUT};
use crate::{
    Actor, AdminKey, AttemptFilter, AttemptsBy, AttemptsRow, AuditEvent, AuditFilter, AuditPosition, BATCH_SIZE, Balance,
    BookedRecords, CatalogRows, CatalogStore, Change, ChangedRow, ContentStore, DatabaseSize, ExportFailure, ExportStore,
    ExportedDay, GroupUsers, Grouping, HealthHistoryStore, HealthStore, ImportedPrice, KeyEntry, KeyHash, KeyScope, KeyStore,
    KeyUse, KeyUseFilter, LastTest, LastUse, LedgerEntry, LedgerFilter, LedgerPosition, LedgerStore, ListingStore, LogPosition,
    NodeRun, ObjectScope, OfferChange, OfferTraffic, OfferedSince, Page, Posting, PostingReceipt, PriceChange, PriceHistoryFilter,
    PriceHistoryPosition, RecordedTransition, RowFilter, RowKind, RowName, Spending, SpendingChanges, SquareStore, StoreError,
    StoredContents, StoredRow, Summary, TrafficWidth, TransitionFilter, UsageFilter, UsageStore, VerifyReport, WorkControl,
    assemble, rows::RowSecret,
};

#[async_trait]
impl CatalogStore for CachedStore {
    async fn load(&self) -> Result<Catalog, StoreError> {
        let Ok(sql) = self.sql() else {
            let known = self.known.load();
            return assemble::catalog(known.revision, &known.live(), &self.sealer);
        };
        let (revision, rows) = self.within(BATCH_TIMEOUT, sql.all_rows()).await?;
        self.store_rows(revision, rows);
        let known = self.known.load();
        match assemble::catalog(known.revision, &known.live(), &self.sealer) {
            Err(StoreError::Sealed { .. }) => {
                self.within(QUERY_TIMEOUT, sql.reload_keys()).await?;
                self.sealer.adopt(&sql.sealer);
                assemble::catalog(known.revision, &known.live(), &self.sealer)
            }
            loaded => loaded,
        }
    }

    async fn apply(&self, changes: &[Change], actor: &Actor, now: Timestamp) -> Result<Revision, StoreError> {
        self.within(BATCH_TIMEOUT, self.sql()?.apply(changes, actor, now)).await
    }

    async fn revision(&self) -> Result<Revision, StoreError> {
        self.within(QUERY_TIMEOUT, CatalogStore::revision(&*self.sql()?)).await
    }

    async fn changed_since(&self, known: Revision) -> Result<Vec<ChangedRow>, StoreError> {
        let sql = self.sql()?;
        let changed = self.within(BATCH_TIMEOUT, sql.changed_since(known)).await?;
        let keys: Vec<String> = changed.iter().filter(|row| row.kind == RowKind::Key).map(|row| row.id.clone()).collect();
        self.within(BATCH_TIMEOUT, self.reread(&sql, &keys)).await?;
        Ok(changed)
    }

    async fn wait_for_change(&self, known: Revision) -> Result<Revision, StoreError> {
        self.sql()?.wait_for_change(known).await
    }

    async fn live_rows(&self, scope: &KeyScope) -> Result<CatalogRows, StoreError> {
        self.within(BATCH_TIMEOUT, self.sql()?.live_rows(scope)).await
    }

    async fn audit(&self, below: Option<Revision>, limit: u32) -> Result<Vec<AuditEvent>, StoreError> {
        self.within(BATCH_TIMEOUT, self.sql()?.audit(below, limit)).await
    }
}

#[async_trait]
impl KeyStore for CachedStore {
    async fn find(&self, hash: &KeyHash) -> Result<Option<Key>, StoreError> {
        let cached = self.cached_key(&hash.0);
        let query = async {
            let found = self.sql()?.find_row(hash).await?;
            let Some((row, key)) = found else {
                self.keys.invalidate(&hash.0);
                return Ok(None);
            };
            if let RowSecret::Key(_) = &row.secret {
                self.keys.insert(hash.0, std::sync::Arc::new(row));
            }
            Ok(Some(key))
        };
        let Some(cached) = cached else { return self.within(QUERY_TIMEOUT, query).await };
        match self.within(CACHED_KEY_TIMEOUT, query).await {
            Err(error) if error.is_unreachable() => cached.map(Some),
            found => found,
        }
    }

    async fn list(&self) -> Result<Vec<Key>, StoreError> {
        self.within(BATCH_TIMEOUT, KeyStore::list(&*self.sql()?)).await
    }
}

#[async_trait]
impl ListingStore for CachedStore {
    async fn page(&self, filter: &RowFilter) -> Result<Vec<StoredRow>, StoreError> {
        self.within(BATCH_TIMEOUT, ListingStore::page(&*self.sql()?, filter)).await
    }

    async fn key_entries(&self, filter: &RowFilter, limit: u32) -> Result<Vec<KeyEntry>, StoreError> {
        self.within(BATCH_TIMEOUT, self.sql()?.key_entries(filter, limit)).await
    }

    async fn group_users(&self) -> Result<HashMap<String, GroupUsers>, StoreError> {
        self.within(BATCH_TIMEOUT, self.sql()?.group_users()).await
    }

    async fn row(&self, kind: RowKind, id: &str, scope: ObjectScope) -> Result<Option<StoredRow>, StoreError> {
        self.within(BATCH_TIMEOUT, self.sql()?.row(kind, id, scope)).await
    }

    async fn rows(&self, kind: RowKind, ids: Vec<String>, scope: ObjectScope) -> Result<Vec<StoredRow>, StoreError> {
        self.within(BATCH_TIMEOUT, ListingStore::rows(&*self.sql()?, kind, ids, scope)).await
    }

    async fn names(&self, kind: RowKind, ids: Vec<String>, scope: ObjectScope) -> Result<Vec<RowName>, StoreError> {
        self.within(BATCH_TIMEOUT, ListingStore::names(&*self.sql()?, kind, ids, scope)).await
    }

    async fn key(&self, id: KeyId) -> Result<Option<Key>, StoreError> {
        self.within(BATCH_TIMEOUT, self.sql()?.key(id)).await
    }

    async fn audit_page(&self, filter: &AuditFilter) -> Result<Vec<(AuditPosition, AuditEvent)>, StoreError> {
        self.within(BATCH_TIMEOUT, self.sql()?.audit_page(filter)).await
    }

    async fn price_history(&self, filter: &PriceHistoryFilter) -> Result<Vec<(PriceHistoryPosition, PriceChange)>, StoreError> {
        self.within(BATCH_TIMEOUT, self.sql()?.price_history(filter)).await
    }

    async fn database_size(&self) -> Result<DatabaseSize, StoreError> {
        self.within(BATCH_TIMEOUT, self.sql()?.database_size()).await
    }

    async fn imported_prices(&self) -> Result<Vec<ImportedPrice>, StoreError> {
        self.within(BATCH_TIMEOUT, self.sql()?.imported_prices()).await
    }

    async fn admin_key(&self, hash: &KeyHash, now: Timestamp) -> Result<Option<AdminKey>, StoreError> {
        self.within(QUERY_TIMEOUT, self.sql()?.admin_key(hash, now)).await
    }
}

#[async_trait]
impl UsageStore for CachedStore {
    async fn append(&self, records: &[UsageRecord]) -> Result<u64, StoreError> {
        // Safe to repeat after a timeout: records are identified by their id.
        self.within(BATCH_TIMEOUT, self.sql()?.append(records)).await
    }

    fn batch_size(&self) -> usize {
        self.sql().map_or(BATCH_SIZE, |sql| sql.batch_size())
    }

    async fn create_partitions(&self, now: Timestamp, keep_days: u64) -> Result<u64, StoreError> {
        self.within(BATCH_TIMEOUT, self.sql()?.create_partitions(now, keep_days)).await
    }

    async fn prune(&self, before: Timestamp) -> Result<Option<u64>, StoreError> {
        // Safe to repeat after a timeout: each call is one transaction.
        self.within(BATCH_TIMEOUT, self.sql()?.prune(before)).await
    }

    async fn log_time(&self) -> Result<Option<Timestamp>, StoreError> {
        self.within(QUERY_TIMEOUT, self.sql()?.log_time()).await
    }

    async fn set_log_time(&self, known: Option<Timestamp>, time: Timestamp) -> Result<bool, StoreError> {
        self.within(QUERY_TIMEOUT, self.sql()?.set_log_time(known, time)).await
    }

    async fn page(&self, filter: &UsageFilter) -> Result<Page<UsageRecord>, StoreError> {
        self.within(BATCH_TIMEOUT, UsageStore::page(&*self.sql()?, filter)).await
    }

    async fn find(&self, id: RequestId) -> Result<Option<UsageRecord>, StoreError> {
        self.within(BATCH_TIMEOUT, UsageStore::find(&*self.sql()?, id)).await
    }

    async fn booked_after(&self, after: Option<LogPosition>, limit: usize) -> Result<BookedRecords, StoreError> {
        self.within(BATCH_TIMEOUT, self.sql()?.booked_after(after, limit)).await
    }

    async fn known(&self, ids: &[RequestId]) -> Result<HashSet<RequestId>, StoreError> {
        self.within(BATCH_TIMEOUT, self.sql()?.known(ids)).await
    }

    async fn counted_summary(&self, filter: &UsageFilter, by: Grouping) -> Result<Summary, StoreError> {
        self.within(BATCH_TIMEOUT, self.sql()?.counted_summary(filter, by)).await
    }

    async fn attempts(&self, filter: &AttemptFilter, by: (AttemptsBy, AttemptsBy)) -> Result<Vec<AttemptsRow>, StoreError> {
        self.within(BATCH_TIMEOUT, self.sql()?.attempts(filter, by)).await
    }

    async fn key_use(&self, filter: KeyUseFilter, keys: Option<Vec<KeyId>>) -> Result<Vec<(KeyId, KeyUse)>, StoreError> {
        self.within(BATCH_TIMEOUT, self.sql()?.key_use(filter, keys)).await
    }

    async fn unused_keys(&self, filter: KeyUseFilter, keys: Vec<KeyId>) -> Result<Vec<KeyId>, StoreError> {
        self.within(BATCH_TIMEOUT, self.sql()?.unused_keys(filter, keys)).await
    }

    async fn last_use(&self, keys: Vec<KeyId>) -> Result<Vec<(KeyId, LastUse)>, StoreError> {
        self.within(BATCH_TIMEOUT, self.sql()?.last_use(keys)).await
    }

    async fn last_requests(&self, keys: Vec<KeyId>, most: usize) -> Result<Vec<(KeyId, Timestamp)>, StoreError> {
        self.within(BATCH_TIMEOUT, self.sql()?.last_requests(keys, most)).await
    }

    async fn last_use_of_members(&self, members: Vec<MemberId>, most: usize) -> Result<Vec<(MemberId, Timestamp)>, StoreError> {
        self.within(BATCH_TIMEOUT, self.sql()?.last_use_of_members(members, most)).await
    }
}

#[async_trait]
impl LedgerStore for CachedStore {
    async fn post(&self, posting: &Posting, now: Timestamp) -> Result<PostingReceipt, StoreError> {
        self.within(BATCH_TIMEOUT, self.sql()?.post(posting, now)).await
    }

    async fn entries(&self, filter: &LedgerFilter) -> Result<Vec<LedgerEntry>, StoreError> {
        self.within(BATCH_TIMEOUT, self.sql()?.entries(filter)).await
    }

    async fn balances(&self) -> Result<Vec<Balance>, StoreError> {
        self.within(BATCH_TIMEOUT, self.sql()?.balances()).await
    }

    async fn balances_of(&self, members: Vec<MemberId>) -> Result<Vec<Balance>, StoreError> {
        self.within(QUERY_TIMEOUT, self.sql()?.balances_of(members)).await
    }

    async fn posted_since(&self, position: LedgerPosition) -> Result<(Vec<LedgerEntry>, LedgerPosition), StoreError> {
        self.within(QUERY_TIMEOUT, self.sql()?.posted_since(position)).await
    }

    /// The last known spending if the database was never opened.
    async fn spending(&self, now: Timestamp) -> Result<Spending, StoreError> {
        match self.sql() {
            Ok(sql) => LedgerStore::spending(&*sql, now).await,
            Err(_) => Ok(self.known_spending().0),
        }
    }

    async fn positions(&self, requests: &[RequestId]) -> Result<Vec<(RequestId, LedgerPosition)>, StoreError> {
        self.within(QUERY_TIMEOUT, self.sql()?.positions(requests)).await
    }

    async fn hedge_costs(&self, now: Timestamp) -> Result<Vec<(GroupId, NanoUsd)>, StoreError> {
        LedgerStore::hedge_costs(&*self.sql()?, now).await
    }

    async fn spending_since(&self, position: LedgerPosition, now: Timestamp) -> Result<SpendingChanges, StoreError> {
        self.within(BATCH_TIMEOUT, self.sql()?.spending_since(position, now)).await
    }

    async fn keys_spent_since(&self, position: LedgerPosition) -> Result<(BTreeSet<KeyId>, LedgerPosition), StoreError> {
        self.within(QUERY_TIMEOUT, self.sql()?.keys_spent_since(position)).await
    }

    async fn verify(&self, now: Timestamp, control: &WorkControl) -> Result<VerifyReport, StoreError> {
        self.sql()?.verify(now, control).await
    }
}

#[async_trait]
impl HealthStore for CachedStore {
    /// Empty if the database was never opened: all accounts then start as usable.
    async fn load_health(&self) -> Result<Vec<(AccountId, AccountHealth)>, StoreError> {
        match self.sql() {
            Ok(sql) => self.within(BATCH_TIMEOUT, sql.load_health()).await,
            Err(_) => Ok(Vec::new()),
        }
    }

    async fn save_health(&self, health: &[(AccountId, AccountHealth)], now: Timestamp) -> Result<(), StoreError> {
        self.within(QUERY_TIMEOUT, self.sql()?.save_health(health, now)).await
    }

    async fn save_test(&self, account: AccountId, now: Timestamp) -> Result<(), StoreError> {
        self.within(QUERY_TIMEOUT, self.sql()?.save_test(account, now)).await
    }

    async fn load_tests(&self) -> Result<Vec<(AccountId, Timestamp)>, StoreError> {
        self.within(QUERY_TIMEOUT, self.sql()?.load_tests()).await
    }
}

#[async_trait]
impl HealthHistoryStore for CachedStore {
    async fn record_transitions(&self, node: &str, transitions: &[HealthTransition]) -> Result<(), StoreError> {
        // Safe to repeat after a timeout: rows are replaced.
        self.within(QUERY_TIMEOUT, self.sql()?.record_transitions(node, transitions)).await
    }

    async fn last_transitions(&self, node: &str) -> Result<Vec<HealthTransition>, StoreError> {
        self.within(BATCH_TIMEOUT, self.sql()?.last_transitions(node)).await
    }

    async fn transitions(&self, filter: &TransitionFilter) -> Result<Vec<RecordedTransition>, StoreError> {
        self.within(BATCH_TIMEOUT, self.sql()?.transitions(filter)).await
    }

    async fn note_node(&self, node: &str, now: Timestamp) -> Result<(), StoreError> {
        self.within(QUERY_TIMEOUT, self.sql()?.note_node(node, now)).await
    }

    async fn node_runs(&self) -> Result<Vec<NodeRun>, StoreError> {
        self.within(QUERY_TIMEOUT, self.sql()?.node_runs()).await
    }

    async fn prune_transitions(&self, before: Timestamp, max: u64) -> Result<u64, StoreError> {
        self.within(BATCH_TIMEOUT, self.sql()?.prune_transitions(before, max)).await
    }

    async fn save_last_tests(&self, tests: &[(AccountId, LastTest)]) -> Result<(), StoreError> {
        self.within(QUERY_TIMEOUT, self.sql()?.save_last_tests(tests)).await
    }

    async fn last_tests(&self, accounts: RangeInclusive<AccountId>) -> Result<Vec<(AccountId, LastTest)>, StoreError> {
        self.within(QUERY_TIMEOUT, self.sql()?.last_tests(accounts)).await
    }
}

#[async_trait]
impl ContentStore for CachedStore {
    async fn store_contents(&self, contents: Vec<RequestContents>) -> Result<(), StoreError> {
        // Safe to repeat after a timeout: rows that are already stored stay unchanged.
        self.within(BATCH_TIMEOUT, self.sql()?.store_contents(contents)).await
    }

    async fn contents(&self, request: RequestId) -> Result<Option<RequestContents>, StoreError> {
        self.within(QUERY_TIMEOUT, self.sql()?.contents(request)).await
    }

    async fn has_contents(&self, request: RequestId) -> Result<bool, StoreError> {
        self.within(QUERY_TIMEOUT, self.sql()?.has_contents(request)).await
    }

    async fn remove_contents(&self, request: RequestId) -> Result<bool, StoreError> {
        self.within(QUERY_TIMEOUT, self.sql()?.remove_contents(request)).await
    }

    async fn stored_contents(&self) -> Result<StoredContents, StoreError> {
        self.within(BATCH_TIMEOUT, self.sql()?.stored_contents()).await
    }

    async fn prune_contents(&self, before: Timestamp, max_bytes: u64) -> Result<u64, StoreError> {
        self.within(BATCH_TIMEOUT, self.sql()?.prune_contents(before, max_bytes)).await
    }
}

#[async_trait]
impl ExportStore for CachedStore {
    async fn claim_export(&self, holder: &str, now: Timestamp, lease_ms: i64) -> Result<bool, StoreError> {
        self.within(QUERY_TIMEOUT, self.sql()?.claim_export(holder, now, lease_ms)).await
    }

    async fn release_export(&self, holder: &str) -> Result<(), StoreError> {
        self.within(QUERY_TIMEOUT, self.sql()?.release_export(holder)).await
    }

    async fn exported_days(&self, since: i64) -> Result<Vec<ExportedDay>, StoreError> {
        self.within(QUERY_TIMEOUT, self.sql()?.exported_days(since)).await
    }

    async fn put_exported_day(&self, day: &ExportedDay) -> Result<(), StoreError> {
        self.within(QUERY_TIMEOUT, self.sql()?.put_exported_day(day)).await
    }

    async fn export_failure(&self) -> Result<Option<ExportFailure>, StoreError> {
        self.within(QUERY_TIMEOUT, self.sql()?.export_failure()).await
    }

    async fn put_export_failure(&self, day: i64, message: &str, now: Timestamp) -> Result<(), StoreError> {
        self.within(QUERY_TIMEOUT, self.sql()?.put_export_failure(day, message, now)).await
    }
}

#[async_trait]
impl SquareStore for CachedStore {
    async fn offer_traffic(&self, since: Timestamp, width: TrafficWidth) -> Result<Vec<OfferTraffic>, StoreError> {
        self.within(BATCH_TIMEOUT, self.sql()?.offer_traffic(since, width)).await
    }

    async fn offer_changes(&self, limit: u32) -> Result<Vec<(PriceHistoryPosition, OfferChange)>, StoreError> {
        self.within(BATCH_TIMEOUT, self.sql()?.offer_changes(limit)).await
    }

    async fn offered_since(&self) -> Result<Vec<OfferedSince>, StoreError> {
        self.within(BATCH_TIMEOUT, self.sql()?.offered_since()).await
    }

    async fn sale_price_changes(&self, limit: u32) -> Result<Vec<(PriceHistoryPosition, PriceChange)>, StoreError> {
        self.within(BATCH_TIMEOUT, self.sql()?.sale_price_changes(limit)).await
    }
}
