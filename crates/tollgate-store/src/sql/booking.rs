//! Booking usage records: the records, their attempts, what they cost in the ledger, balances and roll-ups, all of it in one
//! transaction, and only for records that were not there. What is written is the same on both databases; how it gets there
//! is not, because neither likes what the other does.

mod postgres;
mod rows;
mod sqlite;
mod tables;

use std::{
    collections::{HashMap, HashSet},
    path::Path,
};

use tollgate_core::{MemberId, NanoUsd, UsageRecord};

use super::SqlStore;
use crate::{
    LedgerKind, StoreError,
    ledger::settled,
    rollup::{self, DAY, HOUR},
};
use rows::{BookingTable, RowBatch};

const BOOK: &str = "book usage records";
/// Takes so many places of the ledger and gives the last of them. Whoever else wants some waits for the end of this
/// transaction.
pub(super) const NEXT_PLACES: &str = "UPDATE counters SET value = value + $1 WHERE name = 'ledger' RETURNING value";
const PRUNED: &str = "SELECT value FROM counters WHERE name = 'pruned_until'";

/// Where is booked, by its own connection.
#[derive(Debug)]
pub(super) enum BookingConnection {
    Sqlite(sqlite::SqliteBooking),
    Postgres(postgres::PostgresBooking),
}

/// A transaction; without a commit nothing of it stays.
enum BookingTransaction {
    Sqlite(sqlite::SqliteTransaction),
    Postgres(Box<postgres::PostgresTransaction>),
}

/// What is known of the records that are to be booked.
#[derive(Clone, Copy, PartialEq, Eq)]
enum KnownRecords {
    /// They are new, as all are but for a crash or an answer that got lost. Where one is not, it shows.
    AllNew,
    /// Some may be there.
    Nothing,
}

impl BookingConnection {
    pub(super) fn in_file(path: &Path, place: &str) -> Self {
        Self::Sqlite(sqlite::SqliteBooking::new(path, place))
    }

    pub(super) fn at(url: &str, place: &str) -> Self {
        Self::Postgres(postgres::PostgresBooking::new(url, place))
    }

    pub(super) async fn close(&self) {
        match self {
            Self::Sqlite(books) => books.close().await,
            Self::Postgres(books) => books.close().await,
        }
    }
}

impl SqlStore {
    /// Writes the records that are not there yet; how many those were.
    pub(super) async fn append_records(&self, records: &[&UsageRecord]) -> Result<u64, StoreError> {
        if let Some(added) = self.append_known(records, KnownRecords::AllNew).await? {
            return Ok(added);
        }
        Ok(self.append_known(records, KnownRecords::Nothing).await?.unwrap_or(0))
    }

    /// `None`: they were taken to be new, and one was not. Nothing is written then.
    async fn append_known(&self, records: &[&UsageRecord], known: KnownRecords) -> Result<Option<u64>, StoreError> {
        let mut writing = match &self.books {
            BookingConnection::Sqlite(books) => BookingTransaction::Sqlite(books.begin(&self.writer).await?),
            BookingConnection::Postgres(books) => {
                BookingTransaction::Postgres(Box::new(books.begin(known == KnownRecords::AllNew).await?))
            }
        };
        match writing.append(records).await? {
            Some(added) => writing.commit().await.map(|()| Some(added)),
            None => writing.roll_back().await.map(|()| None),
        }
    }
}

impl BookingTransaction {
    async fn number(&mut self, sql: &'static str, with: Option<i64>) -> Result<i64, StoreError> {
        match self {
            Self::Sqlite(writing) => writing.number(sql, with).await,
            Self::Postgres(writing) => writing.number(sql, with).await,
        }
    }

    /// Rows of an id and a number; `sql` ends with the id's column.
    async fn find(&mut self, sql: &'static str, ids: Vec<String>) -> Result<Vec<(String, i64)>, StoreError> {
        if ids.is_empty() {
            return Ok(Vec::new());
        }
        match self {
            Self::Sqlite(writing) => writing.find(sql, ids).await,
            Self::Postgres(writing) => writing.find(sql, ids).await,
        }
    }

    /// Which of the rows were inserted or changed; `None`: they were taken to be new, and one was not.
    async fn add(&mut self, table: &'static BookingTable, rows: RowBatch) -> Result<Option<Vec<bool>>, StoreError> {
        if rows.len() == 0 {
            return Ok(Some(Vec::new()));
        }
        match self {
            Self::Sqlite(writing) => writing.add(table, rows).await.map(Some),
            Self::Postgres(writing) => writing.add(table, rows).await,
        }
    }

    async fn commit(self) -> Result<(), StoreError> {
        match self {
            Self::Sqlite(writing) => writing.commit().await,
            Self::Postgres(writing) => writing.commit().await,
        }
    }

    async fn roll_back(self) -> Result<(), StoreError> {
        match self {
            Self::Sqlite(writing) => {
                drop(writing);
                Ok(())
            }
            Self::Postgres(writing) => writing.roll_back().await,
        }
    }

    async fn append(&mut self, records: &[&UsageRecord]) -> Result<Option<u64>, StoreError> {
        let records = self.without_pruned(records).await?;
        let Some(inserted) = self.add(&tables::USAGE, tables::usage(&records)).await? else { return Ok(None) };
        let new: Vec<&UsageRecord> = records.iter().zip(inserted).filter_map(|(record, new)| new.then_some(*record)).collect();
        if self.add(&tables::ATTEMPTS, tables::attempts(&new)).await?.is_none() {
            return Ok(None);
        }
        self.roll_up(&new).await?;
        self.enter(&new).await?;
        Ok(Some(new.len() as u64))
    }

    /// Leaves out records of a time whose records were removed, if their money stands in the ledger: they were booked.
    /// Those without money are left out too; nothing but their line in the log would come of them.
    async fn without_pruned<'a>(&mut self, records: &[&'a UsageRecord]) -> Result<Vec<&'a UsageRecord>, StoreError> {
        let pruned = self.number(PRUNED, None).await?;
        let old = records.iter().filter(|record| record.at.0 < pruned && sold(record).is_some());
        let old: Vec<String> = old.map(|record| record.id.to_string()).collect();
        let booked = self.find("SELECT request_id, seq FROM ledger WHERE request_id", old).await?;
        let booked: HashSet<String> = booked.into_iter().map(|(id, _)| id).collect();
        let lost = |record: &UsageRecord| sold(record).is_some() && !booked.contains(&record.id.to_string());
        Ok(records.iter().copied().filter(|record| record.at.0 >= pruned || lost(record)).collect())
    }

    async fn roll_up(&mut self, new: &[&UsageRecord]) -> Result<(), StoreError> {
        for (table, width) in [(&tables::USAGE_HOURS, HOUR), (&tables::USAGE_DAYS, DAY)] {
            let sums = rollup::usage(new.iter().copied(), width);
            self.add(table, tables::usage_sums(table, sums.iter())).await?;
        }
        for (table, width) in [(&tables::ATTEMPT_HOURS, HOUR), (&tables::ATTEMPT_DAYS, DAY)] {
            let sums = rollup::attempts(new.iter().copied(), width);
            self.add(table, tables::attempt_sums(table, sums.iter())).await?;
        }
        Ok(())
    }

    /// Enters what new records cost.
    async fn enter(&mut self, new: &[&UsageRecord]) -> Result<(), StoreError> {
        let sold: Vec<(&UsageRecord, NanoUsd)> = new.iter().filter_map(|record| sold(record).map(|sale| (*record, sale))).collect();
        if sold.is_empty() {
            return Ok(());
        }
        let count = i64::try_from(sold.len()).unwrap_or(i64::MAX);
        let first = self.number(NEXT_PLACES, Some(count)).await? - count + 1;
        let members: HashSet<MemberId> = sold.iter().map(|(record, _)| record.member).collect();
        let members = members.iter().map(MemberId::to_string).collect();
        let found = self.find("SELECT member_id, balance FROM balances WHERE member_id", members).await?;
        let known = found.into_iter().filter_map(|(id, balance)| Some((MemberId::parse(&id)?, NanoUsd(balance))));
        let mut balances: HashMap<MemberId, NanoUsd> = known.collect();
        let mut entries = RowBatch::of(&tables::LEDGER, sold.len());
        for (seq, (record, sale)) in (first..).zip(&sold) {
            let balance = balances.entry(record.member).or_default();
            let (after, amount) = settled(*balance, NanoUsd(sale.0.saturating_neg()));
            *balance = after;
            entries.number(seq).shown(&record.member).number(record.at.0).text(LedgerKind::Settle.as_str());
            entries.number(amount.0).number(after.0).shown(&record.id).text("").text("");
        }
        self.add(&tables::LEDGER, entries).await?;
        let mut rows = RowBatch::of(&tables::BALANCES, balances.len());
        for (member, balance) in &balances {
            rows.shown(member).number(balance.0);
        }
        self.add(&tables::BALANCES, rows).await.map(|_| ())
    }
}

/// What a record costs its member, where it does.
fn sold(record: &UsageRecord) -> Option<NanoUsd> {
    record.sale.filter(|sale| *sale != NanoUsd::ZERO)
}
