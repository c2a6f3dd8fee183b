//! Appends usage records: the records, their attempts, the roll-ups, ledger entries and balances are written in one transaction,
//! and only for records that are not stored yet. Both databases get the same rows, each by its fastest method.
//!
//! The lock of the ledger is taken first, so that batches are written one after the other. Facts that a batch has read (which
//! records are new, the numbers of texts, stored histograms) then still hold when it writes.

mod packed;
mod postgres;
mod row_batch;
mod settle;
mod sqlite;
mod sums;
mod tables;
mod tags;

use std::{
    collections::HashSet,
    path::Path,
    sync::{Mutex, MutexGuard},
};

use sqlx::AnyPool;
use tollgate_core::{NanoUsd, RequestId, UsageRecord};

use super::{
    names::{NameLookup, NameMap, NameText},
    usage_rows::RecordRefs,
};
use crate::{
    StoreError,
    chain::ChainKey,
    pairing::JournalPairing,
    rollup::{ATTEMPT_WIDTHS, DAY, MINUTE, TOTAL_WIDTHS, USAGE_WIDTHS, UsageSumKey, UsageSums, by_widths},
};
use packed::PackedAddition;
use row_batch::{RowBatch, TargetTable};
pub(super) use sums::{BatchSums, SumsByKey};
use tags::SummedTags;

const APPEND: &str = "append usage records";
/// Takes `$1` positions of the ledger and returns the last one. Locks the counter until the transaction ends.
pub(super) const NEXT_POSITIONS: &str = "UPDATE counters SET value = value + $1 WHERE name = 'ledger' RETURNING value";
const PRUNED_UNTIL: &str = "SELECT value FROM counters WHERE name = 'pruned_until'";
/// Counts records of a journal.
const BOOK: &str = "INSERT INTO journals (id, booked, unfinished) VALUES ($1, $2, 1) ON CONFLICT (id) DO UPDATE \
     SET booked = journals.booked + excluded.booked, unfinished = 1 RETURNING id, booked";

/// Rows written along with records.
#[derive(Debug)]
pub(super) struct Bookkeeping {
    pub(super) chain: ChainKey,
    /// The journal that the records come from; `None` for commands.
    pub(super) journal: Option<JournalPairing>,
}

/// How long the ids of removed records are kept, in microseconds. For so long after retention has removed a record, its journal can
/// offer it again.
pub(super) const REMEMBERED: i64 = 30 * crate::rollup::DAY;

/// Number of rows of ids that are kept for readers that follow the log, and the maximum number of ids in a row: 64 KiB.
const RECENT_ROWS: i64 = 256;
const IDS_A_ROW: usize = 4_096;

/// Records that are turned into rows at once, so that the rows of a large batch are not all in memory.
const RECORDS_AT_ONCE: usize = 512;

/// A value to bind.
#[derive(Clone, Debug)]
pub(super) enum Bind {
    Number(i64),
    Text(String),
}

impl From<&str> for Bind {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

/// Stored histograms of a row of sums, in the order of their columns.
type StoredHistograms = [Vec<u8>; 3];

#[derive(Debug)]
pub(super) struct UsageAppender {
    database: AppendTarget,
    known: Mutex<KnownTexts>,
}

/// Committed facts that need no query: the numbers of texts, and the tags that have sums.
#[derive(Debug, Default)]
struct KnownTexts {
    names: NameMap,
    tags: SummedTags,
}

#[derive(Debug)]
enum AppendTarget {
    Sqlite(sqlite::SqliteAppender),
    Postgres(postgres::PostgresAppender),
}

/// An open transaction; rolled back unless committed.
enum AppendTransaction {
    Sqlite(sqlite::SqliteTransaction),
    Postgres(Box<postgres::PostgresTransaction>),
}

/// How records that may already be stored are handled.
#[derive(Clone, Copy, PartialEq, Eq)]
enum InsertMode {
    /// All records are expected to be new, which holds except after a crash or a lost answer. Fails if one is not.
    AllNew,
    SkipExisting,
}

impl UsageAppender {
    pub(super) fn sqlite(path: &Path, database: &str) -> Self {
        Self::of(AppendTarget::Sqlite(sqlite::SqliteAppender::new(path, database)))
    }

    pub(super) fn postgres(url: &str, database: &str) -> Self {
        Self::of(AppendTarget::Postgres(postgres::PostgresAppender::new(url, database)))
    }

    fn of(database: AppendTarget) -> Self {
        Self { database, known: Mutex::default() }
    }

    fn known(&self) -> MutexGuard<'_, KnownTexts> {
        self.known.lock().expect("no code panics while it holds this lock")
    }

    /// Appends the records that are not stored yet and returns their number. `records` are ordered by id, each once. On SQLite
    /// the transaction holds the connection of the pool `writer`.
    pub(super) async fn append(&self, writer: &AnyPool, records: &[&UsageRecord], books: &Bookkeeping) -> Result<u64, StoreError> {
        if let Some(added) = self.try_append(writer, records, books, InsertMode::AllNew).await? {
            return Ok(added);
        }
        Ok(self.try_append(writer, records, books, InsertMode::SkipExisting).await?.unwrap_or(0))
    }

    /// `None` if the mode is [`InsertMode::AllNew`] and a record exists; nothing is written then.
    async fn try_append(
        &self,
        writer: &AnyPool,
        records: &[&UsageRecord],
        books: &Bookkeeping,
        mode: InsertMode,
    ) -> Result<Option<u64>, StoreError> {
        let mut transaction = match &self.database {
            AppendTarget::Sqlite(appender) => AppendTransaction::Sqlite(appender.begin(writer, records.len()).await?),
            AppendTarget::Postgres(appender) => AppendTransaction::Postgres(Box::new(appender.begin().await?)),
        };
        // Taken here and put back after the commit, so that numbers of a transaction that is rolled back are not kept.
        let KnownTexts { names, tags } = std::mem::take(&mut *self.known());
        let mut known = KnownTexts { names: names.bounded(), tags: tags.bounded() };
        let Some(added) = transaction.append(records, &books.chain, mode, &mut known).await? else {
            return transaction.roll_back().await.map(|()| None);
        };
        let booked = transaction.count_booked(books.journal.as_ref(), added).await?;
        transaction.commit().await?;
        *self.known() = known;
        // After the commit: the journal never counts more than its database.
        if let (Some(journal), Some(booked)) = (&books.journal, booked) {
            journal.note(booked);
        }
        Ok(Some(added))
    }

    pub(super) async fn close(&self) {
        match &self.database {
            AppendTarget::Sqlite(appender) => appender.close().await,
            AppendTarget::Postgres(appender) => appender.close().await,
        }
    }
}

impl AppendTransaction {
    async fn number(&mut self, sql: &'static str, bind: Option<i64>) -> Result<i64, StoreError> {
        match self {
            Self::Sqlite(transaction) => transaction.number(sql, bind).await,
            Self::Postgres(transaction) => transaction.number(sql, bind).await,
        }
    }

    /// Rows of a text and a number.
    async fn rows(&mut self, sql: &'static str, binds: Vec<Bind>) -> Result<Vec<(String, i64)>, StoreError> {
        match self {
            Self::Sqlite(transaction) => transaction.rows(sql, binds).await,
            Self::Postgres(transaction) => transaction.rows(sql, binds).await,
        }
    }

    /// Rows of an id and a number. `sql` ends with the name of the id column.
    async fn find(&mut self, sql: &'static str, ids: Vec<String>) -> Result<Vec<(String, i64)>, StoreError> {
        if ids.is_empty() {
            return Ok(Vec::new());
        }
        match self {
            Self::Sqlite(transaction) => transaction.find(sql, ids).await,
            Self::Postgres(transaction) => transaction.find(sql, ids).await,
        }
    }

    /// The given ids that a table has. `table` is `usage` or `removed`.
    async fn existing(&mut self, table: &'static str, ids: Vec<RequestId>) -> Result<HashSet<RequestId>, StoreError> {
        if ids.is_empty() {
            return Ok(HashSet::new());
        }
        match self {
            Self::Sqlite(transaction) => transaction.existing(table, ids).await,
            Self::Postgres(transaction) => transaction.existing(table, ids).await,
        }
    }

    /// The numbers of texts; `None` for those that are not in the dictionary.
    async fn find_names(&mut self, texts: &[NameText]) -> Result<Vec<Option<i64>>, StoreError> {
        match self {
            Self::Sqlite(transaction) => transaction.find_names(texts).await,
            Self::Postgres(transaction) => transaction.find_names(texts).await,
        }
    }

    /// The histograms of rows of `usage_sums`, which are given by width in minutes and key.
    async fn histograms(&mut self, keys: Vec<(i64, UsageSumKey)>) -> Result<Vec<Option<StoredHistograms>>, StoreError> {
        match self {
            Self::Sqlite(transaction) => transaction.histograms(keys).await,
            Self::Postgres(transaction) => transaction.histograms(keys).await,
        }
    }

    /// The packed sums of parts of a table and a width in minutes, which are given by minute and number.
    async fn packed(&mut self, table: &str, width: i64, parts: Vec<(i64, i64)>) -> Result<Vec<Option<Vec<u8>>>, StoreError> {
        match self {
            Self::Sqlite(transaction) => transaction.packed(table, width, parts).await,
            Self::Postgres(transaction) => transaction.packed(table, width, parts).await,
        }
    }

    /// Adds rows; false if one of them exists already and the table does not merge rows.
    async fn add_new(&mut self, table: &'static TargetTable, rows: RowBatch) -> Result<bool, StoreError> {
        if rows.len() == 0 {
            return Ok(true);
        }
        match self {
            Self::Sqlite(transaction) => transaction.add(table, rows).await,
            Self::Postgres(transaction) => transaction.add(table, rows).await,
        }
    }

    /// Adds rows that cannot exist yet, or adds their figures to existing rows.
    async fn add(&mut self, table: &'static TargetTable, rows: RowBatch) -> Result<(), StoreError> {
        if self.add_new(table, rows).await? {
            return Ok(());
        }
        let database = match self {
            Self::Sqlite(transaction) => transaction.database(),
            Self::Postgres(transaction) => transaction.database(),
        };
        let detail = format!("the table {} has rows that cannot be there", table.name);
        Err(StoreError::Corrupt { database: database.to_owned(), detail })
    }

    async fn commit(self) -> Result<(), StoreError> {
        match self {
            Self::Sqlite(transaction) => transaction.commit().await,
            Self::Postgres(transaction) => transaction.commit().await,
        }
    }

    async fn roll_back(self) -> Result<(), StoreError> {
        match self {
            Self::Sqlite(transaction) => {
                drop(transaction);
                Ok(())
            }
            Self::Postgres(transaction) => transaction.roll_back().await,
        }
    }

    /// Counts records as booked from a journal; returns the count afterwards.
    async fn count_booked(&mut self, journal: Option<&JournalPairing>, added: u64) -> Result<Option<u64>, StoreError> {
        let Some(journal) = journal.filter(|_| added > 0) else { return Ok(None) };
        let added = i64::try_from(added).unwrap_or(i64::MAX);
        let counted = self.rows(BOOK, vec![Bind::Text(journal.id.to_string()), Bind::Number(added)]).await?;
        Ok(counted.first().and_then(|(_, booked)| u64::try_from(*booked).ok()))
    }

    async fn append(
        &mut self,
        records: &[&UsageRecord],
        chain: &ChainKey,
        mode: InsertMode,
        known: &mut KnownTexts,
    ) -> Result<Option<u64>, StoreError> {
        let reached = self.number(NEXT_POSITIONS, Some(0)).await?;
        let pruned_until = self.number(PRUNED_UNTIL, None).await?;
        let mut records = self.without_removed(records, pruned_until).await?;
        if mode == InsertMode::SkipExisting {
            let stored = self.existing("usage", records.iter().map(|record| record.id).collect()).await?;
            records.retain(|record| !stored.contains(&record.id));
        }
        let mut records = self.with_refs(records, &mut known.names).await?;
        self.count_tags(&mut records, &mut known.names, &mut known.tags).await?;
        let settled = settle::by_member(&records);
        let booked = reached + i64::try_from(settled.len()).unwrap_or(i64::MAX);
        let Some(sums) = self.add_records(&records, booked).await? else { return Ok(None) };
        self.add(&tables::ATTEMPTS, tables::attempts(&records)).await?;
        self.note_ids(&records).await?;
        // Retention may already have passed the time of these records.
        let late = records.iter().map(|(record, _)| record).filter(|record| record.at.0 < pruned_until).map(|record| record.id);
        self.add(&tables::REMOVED, tables::removed(late)).await?;
        self.add_rollups(sums).await?;
        self.settle(settled, booked, chain).await?;
        Ok(Some(records.len() as u64))
    }

    /// Adds the rows of records, and returns the additions to the sums; `None` if a record is stored already. The database inserts some
    /// records while the rows and sums of the next ones are computed.
    async fn add_records(&mut self, records: &[(&UsageRecord, RecordRefs)], booked: i64) -> Result<Option<BatchSums>, StoreError> {
        let mut sums = BatchSums::default();
        let pieces = records.chunks(RECORDS_AT_ONCE).map(|piece| {
            for (record, refs) in piece {
                sums.add(record, refs);
            }
            tables::usage(piece, booked)
        });
        let added = match self {
            Self::Sqlite(transaction) => transaction.add_pieces(&tables::USAGE, pieces).await?,
            Self::Postgres(transaction) => transaction.add_pieces(&tables::USAGE, records.len(), pieces).await?,
        };
        Ok(added.then_some(sums))
    }

    /// Stores the ids of a batch for readers that follow the log, and deletes the oldest ones.
    async fn note_ids(&mut self, records: &[(&UsageRecord, RecordRefs)]) -> Result<(), StoreError> {
        const FORGET: &str = "DELETE FROM recent_batches WHERE batch <= $1 RETURNING CAST('' AS TEXT), batch";
        if records.is_empty() {
            return Ok(());
        }
        let mut last = self.number("SELECT CAST(COALESCE(MAX(batch), 0) AS BIGINT) FROM recent_batches", None).await?;
        for records in records.chunks(IDS_A_ROW) {
            last += 1;
            self.add(&tables::RECENT_BATCHES, tables::recent_batch(last, records)).await?;
        }
        self.rows(FORGET, vec![Bind::Number(last - RECENT_ROWS)]).await.map(drop)
    }

    /// Drops records older than `pruned_until` that were stored before: those whose id is kept, and all those without a price,
    /// because nothing shows whether they were stored.
    async fn without_removed<'a>(
        &mut self,
        records: &[&'a UsageRecord],
        pruned_until: i64,
    ) -> Result<Vec<&'a UsageRecord>, StoreError> {
        let may_be_removed = |record: &UsageRecord| record.at.0 < pruned_until;
        let may_be_new = |record: &UsageRecord| price(record).is_some() && record.at.0 >= pruned_until.saturating_sub(REMEMBERED);
        let old = records.iter().filter(|record| may_be_removed(record) && may_be_new(record));
        let removed = self.existing("removed", old.map(|record| record.id).collect()).await?;
        let is_new = |record: &UsageRecord| may_be_new(record) && !removed.contains(&record.id);
        Ok(records.iter().copied().filter(|record| !may_be_removed(record) || is_new(record)).collect())
    }

    /// Looks up the texts of the records, and adds new ones to the dictionary.
    async fn with_refs<'a>(
        &mut self,
        records: Vec<&'a UsageRecord>,
        names: &mut NameMap,
    ) -> Result<Vec<(&'a UsageRecord, RecordRefs)>, StoreError> {
        let (found, missing) = look_up(&records, names);
        if missing.is_empty() {
            return Ok(found);
        }
        self.add_names(missing, names).await?;
        Ok(look_up(&records, names).0)
    }

    /// Finds the numbers of texts, and adds those that are new to the dictionary.
    async fn add_names(&mut self, missing: Vec<NameText>, names: &mut NameMap) -> Result<(), StoreError> {
        if missing.is_empty() {
            return Ok(());
        }
        let numbers = self.find_names(&missing).await?;
        let mut next = self.number("SELECT CAST(COALESCE(MAX(ref), 0) AS BIGINT) FROM names", None).await?;
        let mut new = Vec::new();
        for (text, number) in missing.into_iter().zip(numbers) {
            if let Some(number) = number {
                names.insert(text, number);
            } else {
                next += 1;
                new.push((text, next));
            }
        }
        self.add(&tables::NAMES, tables::names(new.iter().map(|(text, number)| (text, *number)))).await?;
        for (text, number) in new {
            names.insert(text, number);
        }
        Ok(())
    }

    /// Adds sums over records of each width to a table.
    async fn add_sums<const N: usize>(
        &mut self,
        table: &'static TargetTable,
        sums: SumsByKey<N, UsageSums>,
        widths: &[i64],
    ) -> Result<(), StoreError> {
        self.add(table, tables::record_sums(table, &by_widths(sums.sorted(), widths))).await
    }

    /// Adds to the sums. Histograms and packed sums are merged here.
    async fn add_rollups(&mut self, sums: BatchSums) -> Result<(), StoreError> {
        let mut usage = by_widths(sums.usage.sorted(), &USAGE_WIDTHS);
        let keys = usage.iter().flat_map(|(width, sums)| sums.keys().map(move |key| (width / MINUTE, *key))).collect();
        let stored = self.histograms(keys).await?;
        for (sums, stored) in usage.iter_mut().flat_map(|(_, sums)| sums.values_mut()).zip(stored) {
            for (histogram, stored) in sums.times.each_mut().into_iter().zip(stored.iter().flatten()) {
                // Damaged histograms are skipped here; `verify` reports them.
                histogram.merge_encoded(stored);
            }
        }
        self.add(&tables::USAGE_SUMS, tables::usage_sums(&usage)).await?;
        let totals = by_widths(sums.totals.sorted(), &TOTAL_WIDTHS);
        let days: Vec<_> = totals.iter().filter(|(width, _)| *width == DAY).cloned().collect();
        let of_keys = PackedAddition::all(&tables::KEY_SUMS, by_widths(sums.keys.sorted(), &USAGE_WIDTHS));
        let of_tags = PackedAddition::all(&tables::KEY_TAG_SUMS, by_widths(sums.key_tags.sorted(), &USAGE_WIDTHS));
        let of_totals = PackedAddition::all(&tables::KEY_TOTALS, totals);
        self.add_packed(of_keys.chain(of_totals).chain(of_tags).collect()).await?;
        self.add(&tables::KEY_DAYS, tables::record_sums(&tables::KEY_DAYS, &days)).await?;
        self.add_sums(&tables::ACCOUNT_SUMS, sums.accounts, &USAGE_WIDTHS).await?;
        self.add_sums(&tables::TAG_SUMS, sums.tags, &USAGE_WIDTHS).await?;
        self.add(&tables::ATTEMPT_SUMS, tables::attempt_sums(&by_widths(sums.attempts.sorted(), &ATTEMPT_WIDTHS))).await
    }
}

/// The numbers of the texts of records, and the texts that are not known.
fn look_up<'a>(records: &[&'a UsageRecord], names: &NameMap) -> (Vec<(&'a UsageRecord, RecordRefs)>, Vec<NameText>) {
    let mut lookup = NameLookup::new(names);
    let found = records.iter().map(|record| (*record, RecordRefs::of(record, &mut lookup))).collect();
    (found, lookup.missing.into_iter().collect())
}

/// The price of a record, unless it is unknown or zero.
fn price(record: &UsageRecord) -> Option<NanoUsd> {
    record.sale.filter(|sale| *sale != NanoUsd::ZERO)
}
