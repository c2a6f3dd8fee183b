//! Retention: old usage records and their attempts are removed in small slices, so that appends never wait long, and with them the
//! sums by five minutes. Ledger, balances and the other roll-ups are kept forever.
//!
//! The counter `pruned_until` is advanced with the removal of the first record before it. From then on `verify` does not expect those
//! records, and appending one from the journal again does not restore it: the table `removed` keeps the ids of those with a price for
//! thirty days. The counter `log_time` holds the time of the usage log,
//! which retention uses instead of the clock.
//!
//! On PostgreSQL the usage table has a partition per UTC month of arrival, created ahead of time. A record of a month without one
//! goes to the default partition and moves when the month's partition is created.

use sqlx::{AssertSqlSafe, Row as _};
use tollgate_core::{RequestId, Timestamp};

use super::{
    append::{NEXT_POSITIONS, REMEMBERED},
    dialect::Dialect,
    store::SqlStore,
    usage_filter::bind_ids,
    usage_rows::request_id,
};
use crate::{
    StoreError,
    rollup::{DAY, FIVE_MINUTES, bucket, minute},
};

const LOG_TIME: &str = "keep the usage log's time";
const PRUNE: &str = "remove old usage records";
const SLICE: usize = 500;
/// Keeps the ids of records with a price, so that a journal cannot book them again.
const KEEP_IDS: &str = "INSERT INTO removed (id) SELECT id FROM usage WHERE id < $1 AND sale <> 0 ON CONFLICT (id) DO NOTHING";

impl SqlStore {
    /// Time before which records may have been removed, in microseconds since 1970; 0 if none were.
    pub(super) async fn pruned_until(&self) -> Result<i64, StoreError> {
        let row = sqlx::query("SELECT value FROM counters WHERE name = 'pruned_until'").fetch_one(&self.reader).await;
        row.and_then(|row| row.try_get(0)).map_err(|error| self.failed(PRUNE, error))
    }

    /// Removes up to one slice of the records that arrived before the UTC day of `before`. Returns how many; 0 if none is left.
    pub(super) async fn prune_slice(&self, before: Timestamp) -> Result<u64, StoreError> {
        let failed = |error| self.failed(PRUNE, error);
        // Whole days, so that each roll-up by day covers either all or none of its records.
        let before = Timestamp(bucket(before, DAY));
        let end = RequestId::first_at(before);
        // The first record that is left, if the slice does not have them all.
        let sql = AssertSqlSafe(format!("SELECT id FROM usage WHERE id < $1 ORDER BY id LIMIT 1 OFFSET {SLICE}"));
        let left = self.fetch_as(PRUNE, bind_ids(sqlx::query(sql), &[end]), |row| request_id(row.try_get(0)?)).await?;
        let end = left.first().copied().unwrap_or(end);
        let mut transaction = self.begin(PRUNE).await?;
        // Keeps batches of records out, which look for ids in both tables.
        sqlx::query(NEXT_POSITIONS).bind(0_i64).fetch_one(&mut *transaction).await.map_err(failed)?;
        for sql in [KEEP_IDS, "DELETE FROM attempts WHERE request < $1"] {
            bind_ids(sqlx::query(sql), &[end]).execute(&mut *transaction).await.map_err(failed)?;
        }
        let removed = bind_ids(sqlx::query("DELETE FROM usage WHERE id < $1"), &[end]).execute(&mut *transaction).await;
        let removed = removed.map_err(failed)?.rows_affected();
        if removed == 0 {
            return Ok(0);
        }
        let mark = "UPDATE counters SET value = $1 WHERE name = 'pruned_until' AND value < $1";
        sqlx::query(mark).bind(before.0).execute(&mut *transaction).await.map_err(failed)?;
        let forgotten = RequestId::first_at(Timestamp(before.0.saturating_sub(REMEMBERED)));
        let forget = bind_ids(sqlx::query("DELETE FROM removed WHERE id < $1"), &[forgotten]);
        forget.execute(&mut *transaction).await.map_err(failed)?;
        for sums in
            ["DELETE FROM usage_sums WHERE width = 5 AND minute < $1", "DELETE FROM key_sums WHERE width = 5 AND minute < $1"]
        {
            let sums = sqlx::query(sums).bind(minute(end.time(), FIVE_MINUTES));
            sums.execute(&mut *transaction).await.map_err(failed)?;
        }
        self.commit(PRUNE, transaction).await?;
        Ok(removed)
    }

    pub(super) async fn read_log_time(&self) -> Result<Option<Timestamp>, StoreError> {
        let row = sqlx::query("SELECT value FROM counters WHERE name = 'log_time'").fetch_optional(&self.reader).await;
        let time = row.and_then(|row| row.map(|row| row.try_get(0)).transpose());
        time.map(|time| time.map(Timestamp)).map_err(|error| self.failed(LOG_TIME, error))
    }

    pub(super) async fn write_log_time(&self, expected: Option<Timestamp>, time: Timestamp) -> Result<bool, StoreError> {
        let failed = |error| self.failed(LOG_TIME, error);
        let query = match expected {
            None => sqlx::query("INSERT INTO counters (name, value) VALUES ('log_time', $1) ON CONFLICT (name) DO NOTHING"),
            Some(_) => sqlx::query("UPDATE counters SET value = $1 WHERE name = 'log_time' AND value = $2"),
        };
        let query = query.bind(time.0);
        let query = if let Some(expected) = expected { query.bind(expected.0) } else { query };
        let mut transaction = self.begin(LOG_TIME).await?;
        let changed = query.execute(&mut *transaction).await.map_err(failed)?.rows_affected();
        self.commit(LOG_TIME, transaction).await?;
        Ok(changed > 0)
    }
}

const CREATE: &str = "create partitions for the coming months";
/// Months that get a partition in advance, not counting the current one.
const MONTHS_AHEAD: i64 = 2;

/// Creates a partition. Binds: the values of [`bounds`].
pub(super) const CREATE_PARTITION: &str = "SELECT tollgate_usage_month($1, $2, $3)";

/// The suffix of a month's partition and the ids `[first, next)` of its requests. Months count as in [`Timestamp::month`].
pub(super) fn bounds(month: i64) -> (String, Vec<u8>, Vec<u8>) {
    let name = format!("{:04}_{:02}", month.div_euclid(12), month.rem_euclid(12) + 1);
    let first = |month: i64| RequestId::first_at(Timestamp::of_month(month)).uuid().as_bytes().to_vec();
    (name, first(month), first(month + 1))
}

impl SqlStore {
    /// Creates the partitions of this month and the coming ones. Returns how many are new; 0 on SQLite.
    pub(super) async fn create_month_partitions(&self, now: Timestamp) -> Result<u64, StoreError> {
        if self.dialect == Dialect::Sqlite {
            return Ok(0);
        }
        let mut transaction = self.begin(CREATE).await?;
        let failed = |error| self.failed(CREATE, error);
        let mut created = 0;
        for month in now.month()..=now.month() + MONTHS_AHEAD {
            let (name, first, next) = bounds(month);
            let query = sqlx::query(CREATE_PARTITION).bind(name).bind(first).bind(next);
            let row = query.fetch_one(&mut *transaction).await.map_err(failed)?;
            created += row.try_get::<i64, _>(0).map_err(failed)?;
        }
        self.commit(CREATE, transaction).await?;
        Ok(u64::try_from(created).unwrap_or(0))
    }
}

#[cfg(test)]
mod tests {
    use sqlx::{Connection as _, SqliteConnection};
    use tempfile::TempDir;
    use tollgate_core::UsageRecord;

    use super::*;
    use crate::rollup::MINUTE;
    use crate::{
        SummaryBy, UsageFilter,
        conformance::{options, sqlite},
        open,
        samples::{MIDNIGHT, record},
        sql::address::sqlite_url,
    };

    #[tokio::test]
    async fn sums_by_five_minutes_are_removed_with_their_records() {
        let dir = TempDir::new().unwrap();
        let store = open(options(sqlite(&dir), &dir)).await.unwrap();
        // A record a minute; the first day has two slices and more.
        let arrive = |number: u64| record(number * 60_000);
        let records: Vec<UsageRecord> = (0..1_500).map(arrive).collect();
        store.usage.append(&records).await.unwrap();
        let mut database = SqliteConnection::connect(&sqlite_url(&dir.path().join("tollgate.db"))).await.unwrap();
        let mut left = Vec::new();
        while store.usage.prune(Timestamp(MIDNIGHT.0 + DAY + 7)).await.unwrap() > 0 {
            let sql = "SELECT MIN(minute) - $1 FROM key_sums WHERE width = 5";
            let first: i64 = sqlx::query_scalar(sql).bind(MIDNIGHT.0 / MINUTE).fetch_one(&mut database).await.unwrap();
            left.push(first);
        }
        assert_eq!(left, [500, 1_000, 1_440], "minutes of the first sums");
        let sums = store.usage.summary(&UsageFilter::default(), SummaryBy::Nothing).await.unwrap();
        assert_eq!(sums[0].requests, 1_500, "of hours and days");
        database.close().await.unwrap();
    }

    #[test]
    fn month_ends_where_the_next_one_begins() {
        let (name, first, next) = bounds(MIDNIGHT.month() + 1);
        assert_eq!((name.as_str(), request_id(&first).unwrap().time().to_string().as_str()), ("2026_12", "2026-12-01T00:00:00Z"));
        let (after, first, _) = bounds(MIDNIGHT.month() + 2);
        assert_eq!((after.as_str(), first), ("2027_01", next));
    }
}
