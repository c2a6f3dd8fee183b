//! The [`UsageStore`] of the database.

use std::{
    borrow::Cow,
    collections::{BTreeSet, HashMap, HashSet},
};

use async_trait::async_trait;
use foldhash::fast::RandomState;
use sqlx::{AnyConnection, AssertSqlSafe, Row as _};
use tollgate_core::{IdHash, KeyId, MemberId, RequestId, Timestamp, UsageRecord};

use super::{
    cells::{Cells, FromCells, request_id},
    columns::{ATTEMPTS, column_list},
    dialect::Dialect,
    store::SqlStore,
    usage_filter::{bind_ids, list},
    usage_reader::LookUp,
    usage_rows::stored::{AttemptRow, StoredText, TextsByRef, UsageRow, usage_columns},
};
use crate::{
    AttemptFilter, AttemptsBy, AttemptsRow, BATCH_SIZE, BookedRecords, Grouping, KeyUse, KeyUseFilter, LastUse, LogPosition, Page,
    StoreError, Summary, UsageFilter, UsageStore, usage::with_time_of_id,
};

pub(super) const IDS_AT_ONCE: usize = 500;

const READ: &str = "read the usage log";

/// Ids and names by their numbers.
pub(super) type NamesByRef = HashMap<i64, (String, String)>;

/// A text of the dictionary.
struct RefName {
    number: i64,
    id: String,
    name: String,
}

impl FromCells for RefName {
    fn from_cells(cells: &mut impl Cells) -> Result<Self, sqlx::Error> {
        Ok(Self { number: cells.number()?, id: cells.text()?.to_owned(), name: cells.text()?.to_owned() })
    }
}

impl SqlStore {
    /// Texts of the dictionary by their numbers.
    pub(super) async fn names(&self, operation: &'static str, refs: &BTreeSet<i64>) -> Result<NamesByRef, StoreError> {
        let refs = LookUp::Numbers(refs.iter().copied().collect());
        let names = self.usage_reader.rows_with(operation, "SELECT ref, id, name FROM names WHERE ref".to_owned(), refs).await?;
        Ok(names.into_iter().map(|RefName { number, id, name }| (number, (id, name))).collect())
    }

    /// The records with these ids, in any order.
    pub(super) async fn records_with_ids(&self, ids: Vec<RequestId>) -> Result<Vec<UsageRecord>, StoreError> {
        if ids.is_empty() {
            return Ok(Vec::new());
        }
        let sql = format!("SELECT {} FROM usage WHERE id", usage_columns());
        let rows = self.usage_reader.rows_with(READ, sql, LookUp::Requests(ids)).await?;
        self.records_of(rows).await
    }

    /// The records of rows, with texts and attempts.
    pub(super) async fn records_of(&self, rows: Vec<UsageRow>) -> Result<Vec<UsageRecord>, StoreError> {
        let incomplete = rows.iter().filter(|row| row.attempts > usize::from(row.inline.is_some()));
        let incomplete: Vec<RequestId> = incomplete.map(|row| row.id).collect();
        let mut others: HashMap<RequestId, Vec<AttemptRow>, IdHash> = HashMap::default();
        if !incomplete.is_empty() {
            let sql = format!("SELECT {} FROM attempts WHERE request", column_list(ATTEMPTS));
            for row in self.usage_reader.rows_with::<AttemptRow>(READ, sql, LookUp::Requests(incomplete)).await? {
                others.entry(row.request).or_default().push(row);
            }
        }
        let mut refs: HashSet<i64, RandomState> = rows.iter().flat_map(UsageRow::refs).collect();
        refs.extend(others.values().flatten().flat_map(AttemptRow::refs));
        let sql = format!("SELECT {} FROM names WHERE ref", StoredText::COLUMNS);
        let texts = self.usage_reader.rows_with(READ, sql, LookUp::Numbers(refs.into_iter().collect())).await?;
        let texts = TextsByRef::of(texts);
        let record = |row: UsageRow| {
            let others = others.remove(&row.id).unwrap_or_default();
            row.into_record(others, &texts).map_err(|error| self.failed(READ, error))
        };
        rows.into_iter().map(record).collect()
    }
}

/// As [`SqlStore::names`], on a connection.
pub(super) async fn names_on(connection: &mut AnyConnection, refs: &BTreeSet<i64>) -> Result<NamesByRef, sqlx::Error> {
    let mut names = NamesByRef::with_capacity(refs.len());
    let refs: Vec<i64> = refs.iter().copied().collect();
    for refs in refs.chunks(IDS_AT_ONCE) {
        let sql = AssertSqlSafe(format!("SELECT ref, id, name FROM names WHERE ref IN ({})", list(refs)));
        for row in sqlx::query(sql).fetch_all(&mut *connection).await? {
            names.insert(row.try_get(0)?, (row.try_get(1)?, row.try_get(2)?));
        }
    }
    Ok(names)
}

/// A changed row of sums takes PostgreSQL as long as a new record does. In a larger batch more records share such rows. A transaction
/// of this size takes some 1.4 s.
const POSTGRES_BATCH_SIZE: usize = 4 * BATCH_SIZE;

#[async_trait]
impl UsageStore for SqlStore {
    async fn append(&self, records: &[UsageRecord]) -> Result<u64, StoreError> {
        if records.is_empty() {
            return Ok(0);
        }
        let records: Vec<Cow<'_, UsageRecord>> = records.iter().map(with_time_of_id).collect();
        let mut records: Vec<&UsageRecord> = records.iter().map(AsRef::as_ref).collect();
        // In the order of the table. If a record occurs twice, the first one counts.
        records.sort_by_key(|record| record.id);
        records.dedup_by_key(|record| record.id);
        self.appender.append(self.pools.writer(), &records, &self.books).await
    }

    fn batch_size(&self) -> usize {
        match self.dialect {
            Dialect::Sqlite => BATCH_SIZE,
            Dialect::Postgres => POSTGRES_BATCH_SIZE,
        }
    }

    async fn prune(&self, before: Timestamp) -> Result<Option<u64>, StoreError> {
        self.prune_step(before).await
    }

    async fn log_time(&self) -> Result<Option<Timestamp>, StoreError> {
        self.read_log_time().await
    }

    async fn set_log_time(&self, expected: Option<Timestamp>, time: Timestamp) -> Result<bool, StoreError> {
        self.write_log_time(expected, time).await
    }

    async fn create_partitions(&self, now: Timestamp, keep_days: u64) -> Result<u64, StoreError> {
        self.create_coming_partitions(now, keep_days).await
    }

    async fn page(&self, filter: &UsageFilter) -> Result<Page<UsageRecord>, StoreError> {
        let page = self.usage_page(filter).await?;
        Ok(Page { items: self.records_of(page.items).await?, next: page.next, searched_until: page.searched_until })
    }

    async fn find(&self, id: RequestId) -> Result<Option<UsageRecord>, StoreError> {
        let sql = format!("SELECT {} FROM usage WHERE id = $1", usage_columns());
        let found = self.usage_reader.rows(READ, sql, vec![id]).await?;
        Ok(self.records_of(found).await?.pop())
    }

    async fn booked_after(&self, after: Option<LogPosition>, limit: usize) -> Result<BookedRecords, StoreError> {
        self.read_booked(after, limit).await
    }

    async fn known(&self, ids: &[RequestId]) -> Result<HashSet<RequestId>, StoreError> {
        let mut known = HashSet::new();
        for ids in ids.chunks(IDS_AT_ONCE) {
            let sql = self.dialect.list("SELECT id FROM usage WHERE id IN (", ids.len(), ")");
            let read = |row: &sqlx::any::AnyRow| request_id(row.try_get(0)?);
            known.extend(self.fetch_as(READ, bind_ids(sqlx::query(sql), ids), read).await?);
        }
        Ok(known)
    }

    async fn counted_summary(&self, filter: &UsageFilter, by: Grouping) -> Result<Summary, StoreError> {
        self.summarise_usage(filter, by).await
    }

    async fn attempts(&self, filter: &AttemptFilter, by: (AttemptsBy, AttemptsBy)) -> Result<Vec<AttemptsRow>, StoreError> {
        self.summarise_attempts(filter, by).await
    }

    async fn key_use(&self, filter: KeyUseFilter, keys: Option<Vec<KeyId>>) -> Result<Vec<(KeyId, KeyUse)>, StoreError> {
        self.use_of_keys(filter, keys).await
    }

    async fn unused_keys(&self, filter: KeyUseFilter, keys: Vec<KeyId>) -> Result<Vec<KeyId>, StoreError> {
        self.keys_without_use(filter, keys).await
    }

    async fn last_use(&self, keys: Vec<KeyId>) -> Result<Vec<(KeyId, LastUse)>, StoreError> {
        self.last_use_of_keys(&keys).await
    }

    async fn last_requests(&self, keys: Vec<KeyId>, most: usize) -> Result<Vec<(KeyId, Timestamp)>, StoreError> {
        self.last_requests_of_keys(&keys, most).await
    }

    async fn last_use_of_members(&self, members: Vec<MemberId>, most: usize) -> Result<Vec<(MemberId, Timestamp)>, StoreError> {
        self.last_requests_of_members(&members, most).await
    }
}
