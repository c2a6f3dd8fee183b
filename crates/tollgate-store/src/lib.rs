//! Storage: the catalog, keys, usage records, the ledger, account health, and the journal that survives a kill.
//!
//! One small trait per kind of data. The backends are private; [`open`] chooses one by its address. Time and
//! randomness are arguments: nothing here reads a clock.

mod alerts;
mod apply;
mod assemble;
mod attempts;
mod audit_event;
mod backup;
mod cached;
pub mod catalog_file;
mod catalog_rows;
mod chain;
mod change;
mod client_certificate;
#[cfg(test)]
mod conformance;
mod contents;
mod counters;
mod credential;
mod data_folder;
mod disk_reserve;
mod error;
mod exports;
pub mod fields;
mod group_users;
mod health_history;
mod identity;
mod identity_change;
mod identity_rows;
mod journal;
mod key_use;
mod keys;
mod ledger;
mod listing;
mod memory;
mod open;
mod options;
mod pairing;
mod passkeys;
mod preferences;
mod preview;
mod price_history;
mod proxy;
mod random;
mod rollup;
mod rotation;
mod rows;
mod sampled_times;
#[cfg(test)]
mod samples;
mod seal;
mod spec;
mod sql;
mod square;
mod subject;
mod usage;
mod varint;
mod verify;
mod work;

use std::{collections::HashSet, fmt};

use async_trait::async_trait;
use tollgate_core::{AccountHealth, AccountId, Catalog, Key, KeyId, MemberId, RequestId, Revision, Timestamp, UsageRecord};

pub use alerts::{
    Alert, AlertDestination, AlertDestinationSpec, AlertFilter, AlertMessage, AlertStore, CONFIGURED_DESTINATION, ClaimedMessage,
    DestinationKind, DestinationSecrets, MAX_ALERT_DESTINATIONS, MAX_OPEN_ALERTS, MessageKind, MessageResult, MessageState,
    NotifiedDestination, PLAYGROUND_KEY_NAME,
};
pub use attempts::{AttemptFilter, AttemptsBy, AttemptsRow};
pub use audit_event::{AuditAction, AuditEvent, AuditKind};
pub use backup::{
    BackupFile, BackupFolder, BackupNote, BackupOrigin, BackupReport, BackupSource, FailedBackup, FolderProbe, MAX_FAILED_BACKUPS,
    RestoreReport, RestoreTarget, RestoredBackup, back_up, backup_bytes, restore, restore_to_check,
};
pub use cached::DatabaseStatus;
pub use catalog_rows::{AccountRow, CatalogRows, ChannelRow, KeyRow, KeyScope, OwnedRow};
pub use change::{Actor, Change, ChangeOrigin, ChangedRow, ContentAction, JobAction, RowKind, Toggle};
pub use client_certificate::{MAX_PEM, certificate_chain, private_key};
pub use contents::{ContentStore, StoredContents};
pub use counters::{
    AccessReport, AccessState, CounterHandOver, CounterSnapshot, Counters, RedisAddress, RedisOptions, RedisWorker,
    SharedAccessReports, SharedHealth, SharedHealthUpdate, Spender, check_redis, counters_in_memory, counters_in_redis,
};
pub use data_folder::{DataFolderLock, node_identity};
pub use disk_reserve::{DiskReserve, DiskSpace};
pub use error::{ChangeRefusal, ChangeRefused, ErrorClass, FieldProblem, PostingRefused, StoreError};
pub use exports::{ExportFailure, ExportStore, ExportedDay};
pub use health_history::{
    HealthHistoryStore, LastTest, NODE_GONE_MS, NodeRun, RecordedTransition, TransitionFilter, TransitionPosition,
    TransitionSubject,
};
pub use identity::{
    IdentityStore, IdleTimes, Invite, InviteSpec, InviteState, LinkKind, Login, LoginMember, MAX_INVITES, MAX_SESSIONS, NewSession,
    PasswordLink, SecondFactor, Session, SessionClient, SessionFilter, SessionSpec, SignInMethod,
};
pub use identity_change::{IdentityChange, IdentityRefusal};
pub use journal::{
    DamagedRange, Journal, JournalEntries, JournalEntry, JournalError, JournalFolder, JournalOptions, JournalSync, JournalWriter,
    RecoveryReport, RepairReport, SyncWaiter, TruncatedTail, UnbookedRecords, WrittenEntries, WrittenEntry, read_journal,
    repair as repair_journal, written_entries,
};
pub use key_use::{KeyUse, KeyUseFilter, LastUse};
pub use keys::{
    InvalidSecret, KeyHash, KeyHasher, KeySecret, NewKey, PreviousSecret, looks_like_admin_key, looks_like_key, looks_like_session,
};
pub use ledger::{
    Balance, CoveredRequests, LedgerEntry, LedgerFilter, LedgerKind, LedgerPosition, LedgerStore, Posting, PostingKind,
    PostingReceipt, Spending, SpendingChanges,
};
pub use listing::{
    AdminKey, AuditFilter, AuditPosition, DatabaseSize, GroupUsers, KeyEntry, ListingStore, ObjectScope, RowFilter, RowName,
    RowSearch, StoredRow,
};
pub use open::{Store, open, open_locked, transfer_to_postgres};
pub use options::{AccessMode, OpenOptions, StoreUrl};
pub use pairing::journal_folder;
pub use passkeys::{MAX_PASSKEYS, Passkey, PasskeySpec, UsedChallenge};
pub use preferences::{
    MAX_MAILED_MEMBERS, MAX_SAVED_VIEWS, MAX_SHARING_MEMBERS, MailedMember, MemberPreferences, SavedView, ViewPage,
};
pub use preview::{Preview, PreviewError, infer_apply_mode, preview, preview_changes};
pub use price_history::{ImportedPrice, PriceChange, PriceHistoryFilter, PriceHistoryPosition};
pub use proxy::{ChannelSecrets, redacted_proxy};
pub use random::RandomSource;
pub use rotation::{KeyHolder, MasterKeyRotation, RotationStage};
pub use seal::{MasterKeySource, new_master_key};
pub use spec::{AdminKeySpec, AdminScope, GroupSpec, KeySpec, MemberSpec, StoredSetting, provider_defaults};
pub use sql::{
    pools::use_low_priority_connections,
    transfer::{TransferProgress, TransferredTable},
};
pub use square::{
    OfferBucket, OfferChange, OfferChangeKind, OfferTraffic, OfferedSince, SquareStore, StreamedAnswers, TrafficWidth,
};
pub use usage::{
    BookedRecords, Grouping, LogPosition, OTHER_VALUES_LABEL, Page, Percentiles, RecordConditions, SortOrder, Summary, SummaryBy,
    SummaryFigure, SummaryRow, TagCondition, UsageCursor, UsageFilter,
};
pub use verify::{ConsistencyRule, Mismatch, VerifyReport};
pub use work::{WorkControl, WorkProgress};

/// Stores the catalog and its revision.
#[async_trait]
pub trait CatalogStore: Send + Sync + fmt::Debug {
    /// The whole catalog as one snapshot, with credentials in clear text.
    async fn load(&self) -> Result<Catalog, StoreError>;

    /// Applies a batch of changes in one transaction, with its revision and audit events. Returns the revision afterwards, which is
    /// unchanged if the batch changes nothing.
    async fn apply(&self, changes: &[Change], actor: &Actor, now: Timestamp) -> Result<Revision, StoreError>;

    async fn revision(&self) -> Result<Revision, StoreError>;

    /// The rows changed after a revision, oldest first, which caches must drop.
    async fn changed_since(&self, known: Revision) -> Result<Vec<ChangedRow>, StoreError>;

    /// Waits until the revision differs from `known`; changes of other processes count too. Polls every 250 ms on SQLite. On
    /// PostgreSQL changes are notified, and polled every second in case a notification is lost.
    async fn wait_for_change(&self, known: Revision) -> Result<Revision, StoreError>;

    /// All live rows with their owners, and the keys that `scope` selects.
    async fn live_rows(&self, scope: &KeyScope) -> Result<CatalogRows, StoreError>;

    /// Events of the audit log before a revision, newest first; at most 1,000.
    async fn audit(&self, below: Option<Revision>, limit: u32) -> Result<Vec<AuditEvent>, StoreError>;
}

/// Stores service keys. There may be millions, so the request path loads them one by one through a bounded cache.
#[async_trait]
pub trait KeyStore: Send + Sync + fmt::Debug {
    /// The key with this hash and its member, even if it is disabled, revoked or expired. Under the hash of a secret that was replaced
    /// the key expires when that secret does.
    async fn find(&self, hash: &KeyHash) -> Result<Option<Key>, StoreError>;

    /// Every key, including revoked ones, ordered by member and name.
    async fn list(&self) -> Result<Vec<Key>, StoreError>;
}

/// [`UsageStore::batch_size`] of stores that take one writer at a time, which waits no longer than half a second then.
pub const BATCH_SIZE: usize = 16_384;

/// Stores usage records, each exactly once. No method has a default body, so that a store that wraps another one cannot forget to
/// delegate.
#[async_trait]
pub trait UsageStore: Send + Sync + fmt::Debug {
    /// Appends records with their attempts, roll-ups, ledger entries and balances in one transaction. Skips records whose id is
    /// stored already. Returns the number of new records.
    async fn append(&self, records: &[UsageRecord]) -> Result<u64, StoreError>;

    /// The most records that [`Self::append`] should get at once. The more there are, the more of them share a row of sums, and the
    /// longer other writers wait for the transaction.
    fn batch_size(&self) -> usize;

    /// Creates the partitions of the coming days on databases that partition the usage log, for records that are kept for `keep_days`
    /// (0: for ever). Call now and then. Returns the number of new partitions.
    async fn create_partitions(&self, now: Timestamp, keep_days: u64) -> Result<u64, StoreError>;

    /// Takes one step of removing the records that arrived before the UTC day of `before`, with their attempts; ledger and roll-ups
    /// stay. Returns the number of records it removed, which may be 0. Repeat until it is `None`.
    async fn prune(&self, before: Timestamp) -> Result<Option<u64>, StoreError>;

    /// The time of the usage log, which retention uses instead of the clock. `None` until it is first set.
    async fn log_time(&self) -> Result<Option<Timestamp>, StoreError>;

    /// Sets the time of the usage log if it is still `expected`. Returns whether it was.
    async fn set_log_time(&self, expected: Option<Timestamp>, time: Timestamp) -> Result<bool, StoreError>;

    /// One page of records. Pass [`Page::next`] as [`UsageFilter::after`] to continue.
    async fn page(&self, filter: &UsageFilter) -> Result<Page<UsageRecord>, StoreError>;

    async fn find(&self, id: RequestId) -> Result<Option<UsageRecord>, StoreError>;

    async fn known(&self, ids: &[RequestId]) -> Result<HashSet<RequestId>, StoreError>;

    /// Up to `limit` records after a position, in the order in which they were booked. `None` returns no records and the current
    /// end of the log. The order is kept for the latest 256 batches only.
    async fn booked_after(&self, after: Option<LogPosition>, limit: usize) -> Result<BookedRecords, StoreError>;

    /// Sums over the selected records: the 10,000 groups with most requests. Ignores the order, cursor and limit of the filter. Sums
    /// that no roll-up has are read from at most 500,000 records.
    async fn summary(&self, filter: &UsageFilter, by: Grouping) -> Result<Vec<SummaryRow>, StoreError> {
        Ok(self.counted_summary(filter, by).await?.rows)
    }

    /// As [`Self::summary`], with the number of groups.
    async fn counted_summary(&self, filter: &UsageFilter, by: Grouping) -> Result<Summary, StoreError>;

    /// Sums over attempts by two groupings: the 10,000 groups with most attempts.
    async fn attempts(&self, filter: &AttemptFilter, by: (AttemptsBy, AttemptsBy)) -> Result<Vec<AttemptsRow>, StoreError>;

    /// The usage of these keys (`None`: of all), ordered by their ids, without keys that had no request.
    async fn key_use(&self, filter: KeyUseFilter, keys: Option<Vec<KeyId>>) -> Result<Vec<(KeyId, KeyUse)>, StoreError>;

    /// The keys among `keys` that had no request.
    async fn unused_keys(&self, filter: KeyUseFilter, keys: Vec<KeyId>) -> Result<Vec<KeyId>, StoreError>;

    /// The last requests of these keys, ordered by their ids, without keys that have no record. Takes one look-up for each key, so
    /// pass the keys of one page.
    async fn last_use(&self, keys: Vec<KeyId>) -> Result<Vec<(KeyId, LastUse)>, StoreError>;

    /// The times of the last requests of these keys, to the millisecond, in any order, without keys that have no record. If more than
    /// `most` of them have records, those of keys that were used less recently may be missing, which is much faster with many keys.
    async fn last_requests(&self, keys: Vec<KeyId>, most: usize) -> Result<Vec<(KeyId, Timestamp)>, StoreError>;

    /// The same of members, ordered by their ids. Takes one look-up for each key that such a member used on the last day with requests.
    async fn last_use_of_members(&self, members: Vec<MemberId>, most: usize) -> Result<Vec<(MemberId, Timestamp)>, StoreError>;
}

/// Stores the health of accounts between starts.
#[async_trait]
pub trait HealthStore: Send + Sync + fmt::Debug {
    /// The stored health of accounts that are not removed.
    async fn load_health(&self) -> Result<Vec<(AccountId, AccountHealth)>, StoreError>;

    /// Stores the health of these accounts; that of others is unchanged.
    async fn save_health(&self, health: &[(AccountId, AccountHealth)], now: Timestamp) -> Result<(), StoreError>;

    async fn save_test(&self, account: AccountId, now: Timestamp) -> Result<(), StoreError>;

    /// The time of each account's last passed test; without accounts that never passed one.
    async fn load_tests(&self) -> Result<Vec<(AccountId, Timestamp)>, StoreError>;
}
