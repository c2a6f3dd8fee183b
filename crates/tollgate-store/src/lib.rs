//! What we remember: the catalog, keys, usage records, account health, and the journal that survives a kill.
//!
//! Small traits, one per kind of remembering; the backends behind them are private and [`open`] is the one door.
//! Time and randomness are arguments: nothing here reads a clock of its own.

#![warn(missing_docs)]

mod apply;
mod assemble;
mod cached;
pub mod catalog_file;
mod catalog_rows;
mod change;
#[cfg(test)]
mod conformance;
mod counters;
mod credential;
mod error;
pub mod fields;
mod folder;
mod journal;
mod keys;
mod ledger;
mod listing;
mod memory;
mod open;
mod preview;
mod proxy;
mod random;
mod rollup;
mod rows;
#[cfg(test)]
mod samples;
mod seal;
mod spec;
mod sql;
mod subject;
mod usage;
mod verify;

use std::{collections::HashSet, fmt};

use async_trait::async_trait;
use tollgate_core::{AccountHealth, AccountId, Catalog, Key, RequestId, Revision, Timestamp, UsageRecord};

pub use cached::DatabaseStatus;
pub use catalog_rows::{AccountRow, CatalogRows, ChannelRow, KeyRow, KeyScope, OwnedRow};
pub use change::{Actor, AuditEvent, Change, ChangeOrigin, ChangedRow, KeySecret, RowKind, Toggle};
pub use counters::{
    CounterSnapshot, Counters, RedisAddress, RedisOptions, RedisWorker, SharedHealth, Spender, Spending, SpendingChanges,
    check_redis, counters_in_memory, counters_in_redis,
};
pub use error::{ChangeRefusal, ChangeRefused, ErrorClass, FieldProblem, StoreError};
pub use folder::FolderLock;
pub use journal::{
    DamagedRange, Journal, JournalEntries, JournalEntry, JournalError, JournalOptions, JournalSync, JournalWriter, RecoveryReport,
    RepairReport, SyncWaiter, TruncatedTail, UnbookedRecords, read_journal, repair as repair_journal,
};
pub use keys::{ADMIN_KEY_PREFIX, InvalidSecret, KEY_PREFIX, KeyHash, KeyHasher, NewKey, looks_like_admin_key, looks_like_key};
pub use ledger::{
    Balance, LedgerEntry, LedgerFilter, LedgerKind, LedgerPosition, LedgerStore, Posting, PostingKind, PostingReceipt,
    PostingRefused,
};
pub use listing::{AdminKey, AuditFilter, AuditPosition, ListingStore, RowFilter, StoredRow};
pub use open::{AccessMode, OpenOptions, Store, StoreUrl, move_to_postgres, open};
pub use preview::{Preview, PreviewError, likely_mode, preview, preview_changes};
pub use proxy::redacted_proxy;
pub use random::RandomSource;
pub use seal::MasterKeySource;
pub use spec::{AccountSpec, AdminKeySpec, AdminScope, ChannelSpec, GroupSpec, KeySpec, MemberSpec, ModelSpec, provider_defaults};
pub use sql::transfer::{TransferProgress, TransferredTable};
pub use usage::{Page, SortOrder, SummaryBy, SummaryRow, UsageCursor, UsageFilter};
pub use verify::{ConsistencyRule, Mismatch, VerifyReport};

/// Remembers what is configured.
#[async_trait]
pub trait CatalogStore: Send + Sync + fmt::Debug {
    /// The whole catalog as one snapshot, credentials opened.
    async fn load(&self) -> Result<Catalog, StoreError>;

    /// Writes a batch of changes in one transaction, with its revision and audit rows. All of it or nothing. The
    /// revision afterwards; it stays the same when nothing differs from what is there.
    async fn apply(&self, changes: &[Change], actor: &Actor, now: Timestamp) -> Result<Revision, StoreError>;

    /// The number of the last change.
    async fn revision(&self) -> Result<Revision, StoreError>;

    /// The rows changed after a revision, oldest first: what caches drop.
    async fn changed_since(&self, known: Revision) -> Result<Vec<ChangedRow>, StoreError>;

    /// Waits until the revision is another than `known`, whoever wrote it (250 ms on SQLite, 1 s on PostgreSQL).
    async fn wait_for_change(&self, known: Revision) -> Result<Revision, StoreError>;

    /// All live rows with their owners: what a catalog file is planned against.
    async fn current(&self, scope: &KeyScope) -> Result<CatalogRows, StoreError>;

    /// The newest lines of the audit log below a revision, newest first; at most 1,000.
    async fn audit(&self, below: Option<Revision>, limit: u32) -> Result<Vec<AuditEvent>, StoreError>;
}

/// Remembers service keys. They may number millions and are asked for one by one, behind a bounded cache.
#[async_trait]
pub trait KeyStore: Send + Sync + fmt::Debug {
    /// The key with this hash, its member included; also when it is disabled, revoked or over its time.
    async fn find(&self, hash: &KeyHash) -> Result<Option<Key>, StoreError>;

    /// Every key, revoked ones included, in order of member and name.
    async fn list(&self) -> Result<Vec<Key>, StoreError>;
}

/// Remembers usage records, each exactly once. Nothing here has a body of its own: what stands before another store would
/// answer with it instead of asking.
#[async_trait]
pub trait UsageStore: Send + Sync + fmt::Debug {
    /// Adds records with their attempts in one transaction, and in the same one their ledger entries, balances and
    /// roll-ups. A record whose id is there already is left alone, and all that belongs to it. How many were new.
    async fn append(&self, records: &[UsageRecord]) -> Result<u64, StoreError>;

    /// Makes room for the records of the coming months where the database keeps months apart; to be asked for now and
    /// then. How many months were new.
    async fn make_room(&self, now: Timestamp) -> Result<u64, StoreError>;

    /// Removes some of the records that arrived before the UTC day of `before` began, with their attempts; what they came to
    /// stays in ledger and roll-ups. To be called until it says 0. How many were removed.
    async fn prune(&self, before: Timestamp) -> Result<u64, StoreError>;

    /// What time it has come to be for the log, which retention believes instead of a clock. None: nobody said yet.
    async fn log_time(&self) -> Result<Option<Timestamp>, StoreError>;

    /// Sets the log's time, where it still is what was `known` of it. Whether it was.
    async fn move_log_time(&self, known: Option<Timestamp>, time: Timestamp) -> Result<bool, StoreError>;

    /// One page of records; continue with [`Page::next`] in [`UsageFilter::after`].
    async fn page(&self, filter: &UsageFilter) -> Result<Page<UsageRecord>, StoreError>;

    /// One record.
    async fn find(&self, id: RequestId) -> Result<Option<UsageRecord>, StoreError>;

    /// Which of these ids are booked.
    async fn known(&self, ids: &[RequestId]) -> Result<HashSet<RequestId>, StoreError>;

    /// Sums over the records a filter names; its order, place and limit do not count.
    async fn summary(&self, filter: &UsageFilter, by: SummaryBy) -> Result<Vec<SummaryRow>, StoreError>;
}

/// Remembers the health of accounts between starts.
#[async_trait]
pub trait HealthStore: Send + Sync + fmt::Debug {
    /// What is known of every account that still exists.
    async fn load_health(&self) -> Result<Vec<(AccountId, AccountHealth)>, StoreError>;

    /// Writes the health of these accounts; of others it stays.
    async fn save_health(&self, health: &[(AccountId, AccountHealth)], now: Timestamp) -> Result<(), StoreError>;

    /// Notes that an account passed a test.
    async fn save_test(&self, account: AccountId, now: Timestamp) -> Result<(), StoreError>;

    /// When accounts passed a test the last time; those that never did are left out.
    async fn load_tests(&self) -> Result<Vec<(AccountId, Timestamp)>, StoreError>;
}
