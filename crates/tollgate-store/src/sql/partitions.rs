//! Partitions of the usage log on PostgreSQL: records, their attempts and the ids of removed records are divided by days of arrival,
//! so that retention drops tables instead of deleting rows. Which ones to create and to drop is decided here.
//!
//! A partition has one day, a week or four weeks: the narrowest width with which the retention setting does not lead to thousands of
//! partitions, because statements that name no time lock every partition. A record of a day without one goes to the default
//! partition and moves when its partition is created.

use sqlx::{Any, AnyConnection, Row as _, Transaction};
use tollgate_core::{RequestId, Timestamp};

use super::{cells::request_id, dialect::Dialect, store::SqlStore};
use crate::{StoreError, rollup::DAY};

const CREATE: &str = "create partitions for the coming days";
const LIST: &str = "list the partitions of the usage log";
/// The tables that are created together.
pub(super) const TABLES: [&str; 2] = ["usage", "attempts"];
/// Days that get a partition in advance, and more if a partition has many days.
const DAYS_AHEAD: i64 = 7;
/// Partitions of the past that a transfer creates at most.
const MAX_PAST_PARTITIONS: i64 = 130;
/// How long a statement that locks a whole table waits; other statements queue behind it.
const LOCK_TIMEOUT: &str = "SET LOCAL lock_timeout = '100ms'";
/// `lock_not_available`.
const LOCK_NOT_AVAILABLE: &str = "55P03";
/// `undefined_table`.
const UNDEFINED_TABLE: &str = "42P01";

/// Days since 1970 that are a partition: [first, next).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct DayRange {
    pub(super) first: i64,
    pub(super) next: i64,
}

impl DayRange {
    /// The end of the names of its tables.
    pub(super) fn suffix(self) -> String {
        Timestamp::of_day(self.first).to_string()[..10].replace('-', "_")
    }

    /// The ids of its requests: [first, next).
    pub(super) fn ids(self) -> [Vec<u8>; 2] {
        [self.first, self.next].map(|day| RequestId::first_at(Timestamp::of_day(day)).uuid().as_bytes().to_vec())
    }

    /// The days between two ids.
    pub(super) fn between(ids: [Vec<u8>; 2]) -> Result<Self, sqlx::Error> {
        let day = |mut id: Vec<u8>| {
            // A partition that was created by hand may be shorter.
            id.resize(16, 0);
            request_id(&id).map(|id| id.time().day())
        };
        let [first, next] = ids.map(day);
        Ok(Self { first: first?, next: next? })
    }

    const fn has(self, day: i64) -> bool {
        self.first <= day && day < self.next
    }
}

/// Days of a new partition if records are kept for this many days (0: for ever). Records may outlive them by the days of one partition
/// less one.
const fn width(keep_days: u64) -> i64 {
    match keep_days {
        1..=100 => 1,
        101..=700 => 7,
        _ => 28,
    }
}

/// The partitions that the days from `from` on lack, up to some days from `today`.
pub(super) fn missing(existing: &[DayRange], from: i64, today: i64, keep_days: u64) -> Vec<DayRange> {
    let width = width(keep_days);
    let until = today + DAYS_AHEAD.max(2 * width);
    let mut day = from.max(today - MAX_PAST_PARTITIONS * width);
    let mut new = Vec::new();
    while day <= until {
        if let Some(partition) = existing.iter().find(|range| range.has(day)) {
            day = partition.next;
            continue;
        }
        let first = day.div_euclid(width) * width;
        let wide = DayRange { first, next: first + width };
        // Beside partitions of another width, a whole one may not fit.
        let overlaps = |range: &DayRange| range.first < wide.next && wide.first < range.next;
        let range = if existing.iter().any(overlaps) { DayRange { first: day, next: day + 1 } } else { wide };
        new.push(range);
        day = range.next;
    }
    new
}

/// The day before which everything is removed if records before `limit` are due: a partition goes as a whole or stays.
pub(super) fn removable_before(existing: &[DayRange], limit: i64) -> i64 {
    existing.iter().find(|range| range.has(limit)).map_or(limit, |range| range.first)
}

/// The partitions of a table without the default one, oldest first: ids at which they begin and end.
pub(super) const LIST_PARTITIONS: &str = "SELECT first, next FROM tollgate_partitions($1)";
/// Creates a partition of a table; 0 if there is one. Binds: the table and [`DayRange::suffix`] and [`DayRange::ids`].
pub(super) const CREATE_PARTITION: &str = "SELECT tollgate_create_partition($1, $2, $3, $4)";

pub(super) async fn create(connection: &mut AnyConnection, table: &str, range: DayRange) -> Result<i64, sqlx::Error> {
    let [first, next] = range.ids();
    let query = sqlx::query(CREATE_PARTITION).bind(table).bind(range.suffix()).bind(first).bind(next);
    query.fetch_one(connection).await?.try_get(0)
}

/// Whether a statement timed out because the table is in use.
pub(super) fn is_in_use(error: &sqlx::Error) -> bool {
    has_code(error, LOCK_NOT_AVAILABLE)
}

/// Whether a statement names a table that does not exist: another node dropped it.
pub(super) fn is_unknown_table(error: &sqlx::Error) -> bool {
    has_code(error, UNDEFINED_TABLE)
}

fn has_code(error: &sqlx::Error, expected: &str) -> bool {
    error.as_database_error().and_then(sqlx::error::DatabaseError::code).is_some_and(|code| code == expected)
}

impl SqlStore {
    pub(super) async fn partitions(&self, table: &str) -> Result<Vec<DayRange>, StoreError> {
        let query = sqlx::query(LIST_PARTITIONS).bind(table.to_owned());
        self.fetch_as(LIST, query, |row| DayRange::between([row.try_get(0)?, row.try_get(1)?])).await
    }

    /// Creates the partitions of this day and the coming ones. Returns how many are new; 0 on SQLite.
    pub(super) async fn create_coming_partitions(&self, now: Timestamp, keep_days: u64) -> Result<u64, StoreError> {
        if self.dialect == Dialect::Sqlite {
            return Ok(0);
        }
        let existing = self.partitions("usage").await?;
        let mut created = 0;
        for range in missing(&existing, now.day(), now.day(), keep_days) {
            let mut transaction = self.begin_without_waiting(CREATE).await?;
            for table in TABLES {
                let new = create(&mut transaction, table, range).await.map_err(|error| self.failed(CREATE, error))?;
                created += u64::from(table == "usage" && new > 0);
            }
            self.commit(CREATE, transaction).await?;
        }
        Ok(created)
    }

    /// Begins a transaction whose statements wait for no lock long.
    pub(super) async fn begin_without_waiting(&self, operation: &'static str) -> Result<Transaction<'static, Any>, StoreError> {
        let mut transaction = self.begin(operation).await?;
        sqlx::raw_sql(LOCK_TIMEOUT).execute(&mut *transaction).await.map_err(|error| self.failed(operation, error))?;
        Ok(transaction)
    }
}

/// The time in microseconds at which a day begins.
pub(super) const fn begin_of(day: i64) -> i64 {
    day.saturating_mul(DAY)
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn days(first: i64, next: i64) -> DayRange {
        DayRange { first, next }
    }

    #[test]
    fn partitions_are_as_narrow_as_their_number_allows() {
        assert_eq!([7, 100, 101, 700, 701, 0].map(width), [1, 1, 7, 7, 28, 28]);
        let coming = missing(&[], 20_000, 20_000, 7);
        assert_eq!((coming.len(), coming[0], coming[7]), (8, days(20_000, 20_001), days(20_007, 20_008)));
        assert_eq!(missing(&[], 20_000, 20_000, 365), [days(19_999, 20_006), days(20_006, 20_013), days(20_013, 20_020)]);
        assert_eq!(missing(&[], 20_000, 20_000, 0)[0], days(19_992, 20_020));
        assert_eq!(missing(&[], 0, 20_000, 7)[0].first, 20_000 - MAX_PAST_PARTITIONS);
    }

    #[test]
    fn partitions_of_another_width_are_kept() {
        let old = [days(19_992, 20_020)];
        assert_eq!(missing(&old, 20_000, 20_000, 7), []);
        assert_eq!(missing(&old, 20_018, 20_018, 7)[..2], [days(20_020, 20_021), days(20_021, 20_022)]);
        // From days to weeks: single days until the next whole week is free.
        let old = [days(20_000, 20_001), days(20_001, 20_002)];
        assert_eq!(
            missing(&old, 20_001, 20_001, 365)[..5],
            [days(20_002, 20_003), days(20_003, 20_004), days(20_004, 20_005), days(20_005, 20_006), days(20_006, 20_013)]
        );
    }

    #[test]
    fn partition_is_removed_only_when_all_its_days_are_due() {
        let weeks = [days(19_999, 20_006), days(20_006, 20_013)];
        assert_eq!(
            [20_005, 20_006, 20_012, 20_013, 20_014].map(|limit| removable_before(&weeks, limit)),
            [19_999, 20_006, 20_006, 20_013, 20_014]
        );
    }

    #[test]
    fn partition_ends_where_the_next_one_begins() {
        let range = days(20_783, 20_784);
        assert_eq!(range.suffix(), "2026_11_26");
        assert_eq!(range.ids()[1], days(20_784, 20_785).ids()[0]);
    }
}
