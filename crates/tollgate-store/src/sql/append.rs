//! Appends usage records: the records, their attempts, the roll-ups, ledger entries and balances are written in one transaction,
//! and only for records that are not stored yet. Both databases get the same rows, each in the way that is fastest for it.

mod postgres;
mod row_batch;
mod sqlite;
mod tables;

use std::{
    collections::{HashMap, HashSet},
    path::Path,
};

use sqlx::AnyPool;
use tollgate_core::{MemberId, NanoUsd, UsageRecord};

use crate::{
    LedgerKind, StoreError,
    ledger::settled,
    rollup::{self, DAY, HOUR},
};
use row_batch::{RowBatch, TargetTable};

const APPEND: &str = "append usage records";
/// Takes `$1` positions of the ledger and returns the last one. Locks the counter until the transaction ends.
pub(super) const NEXT_POSITIONS: &str = "UPDATE counters SET value = value + $1 WHERE name = 'ledger' RETURNING value";
const PRUNED_UNTIL: &str = "SELECT value FROM counters WHERE name = 'pruned_until'";

#[derive(Debug)]
pub(super) enum UsageAppender {
    Sqlite(sqlite::SqliteAppender),
    Postgres(postgres::PostgresAppender),
}

/// An open transaction; rolled back unless committed.
enum AppendTransaction {
    Sqlite(sqlite::SqliteTransaction),
    Postgres(Box<postgres::PostgresTransaction>),
}

/// How records that may be stored already are handled.
#[derive(Clone, Copy, PartialEq, Eq)]
enum InsertMode {
    /// All records are expected to be new, which holds except after a crash or a lost answer. Fails if one is not.
    AllNew,
    SkipExisting,
}

impl UsageAppender {
    pub(super) fn sqlite(path: &Path, database: &str) -> Self {
        Self::Sqlite(sqlite::SqliteAppender::new(path, database))
    }

    pub(super) fn postgres(url: &str, database: &str) -> Self {
        Self::Postgres(postgres::PostgresAppender::new(url, database))
    }

    /// Appends the records that are not stored yet; returns how many those were. On SQLite the transaction holds the connection
    /// of the pool `writer`.
    pub(super) async fn append(&self, writer: &AnyPool, records: &[&UsageRecord]) -> Result<u64, StoreError> {
        if let Some(added) = self.try_append(writer, records, InsertMode::AllNew).await? {
            return Ok(added);
        }
        Ok(self.try_append(writer, records, InsertMode::SkipExisting).await?.unwrap_or(0))
    }

    /// `None` if the mode is [`InsertMode::AllNew`] and a record exists; nothing is written then.
    async fn try_append(&self, writer: &AnyPool, records: &[&UsageRecord], mode: InsertMode) -> Result<Option<u64>, StoreError> {
        let mut transaction = match self {
            Self::Sqlite(appender) => AppendTransaction::Sqlite(appender.begin(writer).await?),
            Self::Postgres(appender) => AppendTransaction::Postgres(Box::new(appender.begin(mode == InsertMode::AllNew).await?)),
        };
        match transaction.append(records).await? {
            Some(added) => transaction.commit().await.map(|()| Some(added)),
            None => transaction.roll_back().await.map(|()| None),
        }
    }

    pub(super) async fn close(&self) {
        match self {
            Self::Sqlite(appender) => appender.close().await,
            Self::Postgres(appender) => appender.close().await,
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

    /// Returns for each row whether it was inserted or changed; `None` if all rows were expected to be new and one exists.
    async fn add(&mut self, table: &'static TargetTable, rows: RowBatch) -> Result<Option<Vec<bool>>, StoreError> {
        if rows.len() == 0 {
            return Ok(Some(Vec::new()));
        }
        match self {
            Self::Sqlite(transaction) => transaction.add(table, rows).await.map(Some),
            Self::Postgres(transaction) => transaction.add(table, rows).await,
        }
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

    async fn append(&mut self, records: &[&UsageRecord]) -> Result<Option<u64>, StoreError> {
        let records = self.without_pruned(records).await?;
        let Some(inserted) = self.add(&tables::USAGE, tables::usage(&records)).await? else { return Ok(None) };
        let new: Vec<&UsageRecord> = records.iter().zip(inserted).filter_map(|(record, new)| new.then_some(*record)).collect();
        if self.add(&tables::ATTEMPTS, tables::attempts(&new)).await?.is_none() {
            return Ok(None);
        }
        self.add_rollups(&new).await?;
        self.settle(&new).await?;
        Ok(Some(new.len() as u64))
    }

    /// Drops records older than `pruned_until` that were stored before: those with a ledger entry, and those without a price, of
    /// which nothing tells whether they were stored.
    async fn without_pruned<'a>(&mut self, records: &[&'a UsageRecord]) -> Result<Vec<&'a UsageRecord>, StoreError> {
        let pruned_until = self.number(PRUNED_UNTIL, None).await?;
        let old = records.iter().filter(|record| record.at.0 < pruned_until && price(record).is_some());
        let old: Vec<String> = old.map(|record| record.id.to_string()).collect();
        let settled = self.find("SELECT request_id, seq FROM ledger WHERE request_id", old).await?;
        let settled: HashSet<String> = settled.into_iter().map(|(id, _)| id).collect();
        let is_new = |record: &UsageRecord| price(record).is_some() && !settled.contains(&record.id.to_string());
        Ok(records.iter().copied().filter(|record| record.at.0 >= pruned_until || is_new(record)).collect())
    }

    async fn add_rollups(&mut self, new: &[&UsageRecord]) -> Result<(), StoreError> {
        let mut sums = rollup::usage(new.iter().copied());
        self.add(&tables::USAGE_FIVE_MINUTES, tables::usage_sums(&tables::USAGE_FIVE_MINUTES, sums.iter())).await?;
        for (table, width) in [(&tables::USAGE_HOURS, HOUR), (&tables::USAGE_DAYS, DAY)] {
            sums = rollup::widen(&sums, width);
            self.add(table, tables::usage_sums(table, sums.iter())).await?;
        }
        for (table, width) in [(&tables::ATTEMPT_HOURS, HOUR), (&tables::ATTEMPT_DAYS, DAY)] {
            let sums = rollup::attempts(new.iter().copied(), width);
            self.add(table, tables::attempt_sums(table, sums.iter())).await?;
        }
        Ok(())
    }

    /// Enters the prices of new records into the ledger and updates the balances.
    async fn settle(&mut self, new: &[&UsageRecord]) -> Result<(), StoreError> {
        let priced: Vec<(&UsageRecord, NanoUsd)> =
            new.iter().filter_map(|record| price(record).map(|price| (*record, price))).collect();
        if priced.is_empty() {
            return Ok(());
        }
        let count = i64::try_from(priced.len()).unwrap_or(i64::MAX);
        let first = self.number(NEXT_POSITIONS, Some(count)).await? - count + 1;
        let members: HashSet<MemberId> = priced.iter().map(|(record, _)| record.member).collect();
        let members = members.iter().map(MemberId::to_string).collect();
        let found = self.find("SELECT member_id, balance FROM balances WHERE member_id", members).await?;
        let known = found.into_iter().filter_map(|(id, balance)| Some((MemberId::parse(&id)?, NanoUsd(balance))));
        let mut balances: HashMap<MemberId, NanoUsd> = known.collect();
        let mut entries = RowBatch::with_capacity(&tables::LEDGER, priced.len());
        for (seq, (record, price)) in (first..).zip(&priced) {
            let balance = balances.entry(record.member).or_default();
            let (after, amount) = settled(*balance, NanoUsd(price.0.saturating_neg()));
            *balance = after;
            entries.number(seq).display(&record.member).number(record.at.0).text(LedgerKind::Settle.as_str());
            entries.number(amount.0).number(after.0).display(&record.id).text("").text("");
        }
        self.add(&tables::LEDGER, entries).await?;
        let mut rows = RowBatch::with_capacity(&tables::BALANCES, balances.len());
        for (member, balance) in &balances {
            rows.display(member).number(balance.0);
        }
        self.add(&tables::BALANCES, rows).await.map(|_| ())
    }
}

/// The price of a record, unless it is unknown or zero.
fn price(record: &UsageRecord) -> Option<NanoUsd> {
    record.sale.filter(|sale| *sale != NanoUsd::ZERO)
}
