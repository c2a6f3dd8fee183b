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

use super::chains::{CHAIN_HEAD, LINK, SET_HEAD};
use crate::{
    LedgerKind, StoreError,
    chain::{self, ChainKey, LedgerLinkRow},
    ledger::settled,
    pairing::JournalPairing,
    rollup::{self, DAY, HOUR},
};
use row_batch::{RowBatch, TargetTable};

const APPEND: &str = "append usage records";
/// Takes `$1` positions of the ledger and returns the last one. Locks the counter until the transaction ends.
pub(super) const NEXT_POSITIONS: &str = "UPDATE counters SET value = value + $1 WHERE name = 'ledger' RETURNING value";
const PRUNED_UNTIL: &str = "SELECT value FROM counters WHERE name = 'pruned_until'";
/// Counts records of a journal.
const BOOK: &str = "INSERT INTO journals (id, booked, unfinished) VALUES ($1, $2, 1) ON CONFLICT (id) DO UPDATE \
     SET booked = journals.booked + excluded.booked, unfinished = 1 RETURNING id, booked";

/// What is written along with records.
#[derive(Debug)]
pub(super) struct Bookkeeping {
    pub(super) chain: ChainKey,
    /// The journal that records come from; none for commands.
    pub(super) journal: Option<JournalPairing>,
}

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

    /// The file of an SQLite database.
    pub(super) fn sqlite_path(&self) -> Option<&Path> {
        match self {
            Self::Sqlite(appender) => Some(appender.path()),
            Self::Postgres(_) => None,
        }
    }

    /// Appends the records that are not stored yet; returns how many those were. On SQLite the transaction holds the connection
    /// of the pool `writer`.
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
        let mut transaction = match self {
            Self::Sqlite(appender) => AppendTransaction::Sqlite(appender.begin(writer).await?),
            Self::Postgres(appender) => AppendTransaction::Postgres(Box::new(appender.begin(mode == InsertMode::AllNew).await?)),
        };
        let Some(added) = transaction.append(records, &books.chain).await? else {
            return transaction.roll_back().await.map(|()| None);
        };
        let booked = transaction.count_booked(books.journal.as_ref(), added).await?;
        transaction.commit().await?;
        // After the commit: the journal never counts more than its database.
        if let (Some(journal), Some(booked)) = (&books.journal, booked) {
            journal.note(booked);
        }
        Ok(Some(added))
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

    /// Counts records as booked from a journal; returns the count afterwards.
    async fn count_booked(&mut self, journal: Option<&JournalPairing>, added: u64) -> Result<Option<u64>, StoreError> {
        let Some(journal) = journal.filter(|_| added > 0) else { return Ok(None) };
        let added = i64::try_from(added).unwrap_or(i64::MAX);
        let counted = self.rows(BOOK, vec![Bind::Text(journal.id.to_string()), Bind::Number(added)]).await?;
        Ok(counted.first().and_then(|(_, booked)| u64::try_from(*booked).ok()))
    }

    async fn append(&mut self, records: &[&UsageRecord], chain: &ChainKey) -> Result<Option<u64>, StoreError> {
        let records = self.without_pruned(records).await?;
        let Some(inserted) = self.add(&tables::USAGE, tables::usage(&records)).await? else { return Ok(None) };
        let new: Vec<&UsageRecord> = records.iter().zip(inserted).filter_map(|(record, new)| new.then_some(*record)).collect();
        if self.add(&tables::ATTEMPTS, tables::attempts(&new)).await?.is_none() {
            return Ok(None);
        }
        self.add_rollups(&new).await?;
        self.settle(&new, chain).await?;
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
    async fn settle(&mut self, new: &[&UsageRecord], chain: &ChainKey) -> Result<(), StoreError> {
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
        let last = first + count - 1;
        let mut link = self.begin_link(chain, first, last).await?;
        for (seq, (record, price)) in (first..).zip(&priced) {
            let balance = balances.entry(record.member).or_default();
            let (after, amount) = settled(*balance, NanoUsd(price.0.saturating_neg()));
            *balance = after;
            entries.number(seq).display(&record.member).number(record.at.0).text(LedgerKind::Settle.as_str());
            entries.number(amount.0).number(after.0).display(&record.id).text("").text("");
            let (member, request) = (record.member.to_string(), record.id.to_string());
            let row = LedgerLinkRow {
                seq,
                member: &member,
                at: record.at.0,
                kind: LedgerKind::Settle.as_str(),
                amount: amount.0,
                balance: after.0,
                request: Some(&request),
                idempotency_key: None,
                note: "",
                actor: "",
            };
            row.add_to(&mut link);
        }
        self.add(&tables::LEDGER, entries).await?;
        self.end_link(chain, first, last, link.finish()).await?;
        let mut rows = RowBatch::with_capacity(&tables::BALANCES, balances.len());
        for (member, balance) in &balances {
            rows.display(member).number(balance.0);
        }
        self.add(&tables::BALANCES, rows).await.map(|_| ())
    }

    /// Begins the next link of the ledger's chain. The positions were taken before, which keeps other writers out.
    async fn begin_link(&mut self, chain: &ChainKey, first: i64, last: i64) -> Result<chain::RowMac, StoreError> {
        let head = self.rows(CHAIN_HEAD, vec![chain::LEDGER.into()]).await?;
        Ok(chain.link(chain::LEDGER, first, last, head.first().map_or("", |(mac, _)| mac)))
    }

    async fn end_link(&mut self, chain: &ChainKey, first: i64, last: i64, mac: String) -> Result<(), StoreError> {
        let seal = chain.head(chain::LEDGER, last, &mac);
        let bind = |more: [Bind; 3]| [Bind::from(chain::LEDGER)].into_iter().chain(more).collect();
        self.rows(LINK, bind([Bind::Number(first), Bind::Number(last), Bind::Text(mac.clone())])).await?;
        self.rows(SET_HEAD, bind([Bind::Number(last), Bind::Text(mac), Bind::Text(seal)])).await?;
        Ok(())
    }
}

/// The price of a record, unless it is unknown or zero.
fn price(record: &UsageRecord) -> Option<NanoUsd> {
    record.sale.filter(|sale| *sale != NanoUsd::ZERO)
}
