//! Retention: old usage records and their attempts are removed, and with them the sums by five minutes. Ledger, balances and the other
//! roll-ups are kept forever. SQLite deletes records in small slices, so that appends never wait long; PostgreSQL drops whole
//! partitions, and deletes only rows outside of partitions.
//!
//! The counter `pruned_until` is advanced before the first record is removed. From then on `verify` does not expect records before it,
//! and appending one from the journal again does not restore it: the table `removed` keeps the ids of those with a price for
//! thirty days. The counter `log_time` holds the time of the usage log, which retention uses instead of the clock.
//!
//! A partition is dropped in steps, none of which makes appends wait long. First `pruned_until` is advanced; from then on the id of
//! a late record is kept when it is appended. Then the ids of the partition's records are kept, in slices. Then it is dropped while
//! no batch is written; if others use it (`verify` does, while it runs), it stays until the next time.

use std::{
    sync::{Mutex, PoisonError},
    time::Duration,
};

use sqlx::{AssertSqlSafe, Row as _};
use tollgate_core::{RequestId, Timestamp};

use super::{
    append::{NEXT_POSITIONS, REMEMBERED},
    cells::request_id,
    dialect::Dialect,
    partitions::{self, DayRange, begin_of},
    store::SqlStore,
    sum_tables,
    usage_filter::bind_ids,
};
use crate::{
    StoreError,
    rollup::{DAY, FIVE_MINUTES, HOUR, MINUTE, bucket, minute},
};

const LOG_TIME: &str = "keep the usage log's time";
const PRUNE: &str = "remove old usage records";
const MARK: &str = "UPDATE counters SET value = $1 WHERE name = 'pruned_until' AND value < $1";
/// Records that are deleted at once, and ids that are kept or forgotten at once.
const SLICE: usize = 500;
const IDS: u64 = 20_000;
/// Attempts to drop a partition that others use, and the time between them.
const DROPS: usize = 5;
const DROP_AGAIN: Duration = Duration::from_millis(200);

/// Progress of keeping the ids of a partition's records. It is in memory only: another process starts from the beginning.
#[derive(Debug, Default)]
pub(super) struct RetentionProgress(Mutex<Option<KeptIds>>);

#[derive(Clone, Copy, Debug)]
struct KeptIds {
    range: DayRange,
    until: RequestId,
    records: u64,
    is_complete: bool,
}

impl RetentionProgress {
    fn of(&self, range: DayRange) -> Option<KeptIds> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).filter(|kept| kept.range == range)
    }

    fn set(&self, kept: Option<KeptIds>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = kept;
    }
}

impl SqlStore {
    /// Time before which records may have been removed, in microseconds since 1970; 0 if none were.
    pub(super) async fn pruned_until(&self) -> Result<i64, StoreError> {
        let row = sqlx::query("SELECT value FROM counters WHERE name = 'pruned_until'").fetch_one(self.pools.reader()).await;
        row.and_then(|row| row.try_get(0)).map_err(|error| self.failed(PRUNE, error))
    }

    /// Takes one step of removing the records that arrived before the UTC day of `before`. Returns the number of records it removed;
    /// `None` if nothing is left to do, or if the partition to drop is in use.
    pub(super) async fn prune_step(&self, before: Timestamp) -> Result<Option<u64>, StoreError> {
        // Whole days, so that each roll-up by day covers either all or none of its records.
        let day = before.day();
        if self.dialect == Dialect::Sqlite {
            return self.delete_slice(begin_of(day), "").await;
        }
        let existing = self.partitions("usage").await?;
        let before = partitions::removable_before(&existing, day);
        if let Some(oldest) = existing.iter().find(|range| range.next <= before) {
            return self.drop_step(*oldest, begin_of(before)).await;
        }
        if let Some(removed) = self.delete_slice(begin_of(before), "_other").await? {
            return Ok(Some(removed));
        }
        let pruned_until = self.pruned_until().await?;
        let forgot = self.forget_sums(pruned_until).await? || self.forget_ids(pruned_until.saturating_sub(REMEMBERED)).await?;
        Ok(forgot.then_some(0))
    }

    /// Deletes up to one slice of records together with the rows that depend on them. `part` is the suffix of the partition's
    /// tables on PostgreSQL, whose remaining rows are handled by separate steps.
    async fn delete_slice(&self, before: i64, part: &str) -> Result<Option<u64>, StoreError> {
        let failed = |error| self.failed(PRUNE, error);
        let end = RequestId::first_at(Timestamp(before));
        // The first record after the slice, if there is one.
        let sql = AssertSqlSafe(format!("SELECT id FROM usage{part} WHERE id < $1 ORDER BY id LIMIT 1 OFFSET {SLICE}"));
        let left = self.fetch_as(PRUNE, bind_ids(sqlx::query(sql), &[end]), |row| request_id(row.try_get(0)?)).await?;
        let end = left.first().copied().unwrap_or(end);
        let mut transaction = self.begin(PRUNE).await?;
        // Excludes batches of records, which search for ids in both tables.
        sqlx::query(NEXT_POSITIONS).bind(0_i64).fetch_one(&mut *transaction).await.map_err(failed)?;
        let keep_ids =
            format!("INSERT INTO removed (id) SELECT id FROM usage{part} WHERE id < $1 AND sale <> 0 ON CONFLICT (id) DO NOTHING");
        for sql in [keep_ids, format!("DELETE FROM attempts{part} WHERE request < $1")] {
            bind_ids(sqlx::query(AssertSqlSafe(sql)), &[end]).execute(&mut *transaction).await.map_err(failed)?;
        }
        let delete = AssertSqlSafe(format!("DELETE FROM usage{part} WHERE id < $1"));
        let removed = bind_ids(sqlx::query(delete), &[end]).execute(&mut *transaction).await;
        let removed = removed.map_err(failed)?.rows_affected();
        if removed == 0 {
            return Ok(None);
        }
        sqlx::query(MARK).bind(before).execute(&mut *transaction).await.map_err(failed)?;
        if self.dialect == Dialect::Sqlite {
            let forgotten = RequestId::first_at(Timestamp(before.saturating_sub(REMEMBERED)));
            let forget = bind_ids(sqlx::query("DELETE FROM removed WHERE id < $1"), &[forgotten]);
            forget.execute(&mut *transaction).await.map_err(failed)?;
            for sql in delete_sums() {
                let sums = sqlx::query(sql).bind(minute(end.time(), FIVE_MINUTES));
                sums.execute(&mut *transaction).await.map_err(failed)?;
            }
        }
        self.commit(PRUNE, transaction).await?;
        Ok(Some(removed))
    }

    pub(super) async fn read_log_time(&self) -> Result<Option<Timestamp>, StoreError> {
        let row = sqlx::query("SELECT value FROM counters WHERE name = 'log_time'").fetch_optional(self.pools.reader()).await;
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

/// The tables with sums by five minutes.
fn narrow_sums() -> impl Iterator<Item = &'static str> {
    sum_tables::OF_RECORDS.iter().filter(|table| table.has_five_minutes()).map(|table| table.name)
}

/// Deletes the sums by five minutes before a minute.
fn delete_sums() -> impl Iterator<Item = AssertSqlSafe<String>> {
    narrow_sums().map(|table| AssertSqlSafe(format!("DELETE FROM {table} WHERE width = 5 AND minute < $1")))
}

// Steps on PostgreSQL.
impl SqlStore {
    /// Takes the next step of dropping a partition. `before`: the end of everything that is due.
    async fn drop_step(&self, range: DayRange, before: i64) -> Result<Option<u64>, StoreError> {
        if self.pruned_until().await? < begin_of(range.next) {
            let mut transaction = self.begin(PRUNE).await?;
            let mark = async {
                // Batches of records read the counter behind the same lock.
                sqlx::query(NEXT_POSITIONS).bind(0_i64).fetch_one(&mut *transaction).await?;
                sqlx::query(MARK).bind(before).execute(&mut *transaction).await
            };
            mark.await.map_err(|error| self.failed(PRUNE, error))?;
            self.commit(PRUNE, transaction).await?;
            return Ok(Some(0));
        }
        match self.retention.of(range) {
            None => self.begin_keeping(range).await,
            Some(kept) if !kept.is_complete => self.keep_ids(kept).await.map(|()| Some(0)),
            Some(kept) => {
                let suffix = range.suffix();
                let is_dropped = self.drop_tables(&format!("usage_{suffix}, attempts_{suffix}")).await?;
                self.retention.set(Some(kept).filter(|_| !is_dropped));
                Ok(is_dropped.then_some(kept.records))
            }
        }
    }

    /// Creates the partition for the ids of a partition's records. Late records may have kept theirs already.
    async fn begin_keeping(&self, range: DayRange) -> Result<Option<u64>, StoreError> {
        let mut transaction = self.begin_without_waiting(PRUNE).await?;
        let created = async {
            sqlx::query(NEXT_POSITIONS).bind(0_i64).fetch_one(&mut *transaction).await?;
            partitions::create(&mut transaction, "removed", range).await
        };
        match created.await {
            Ok(_) => self.commit(PRUNE, transaction).await?,
            Err(error) if partitions::is_in_use(&error) => return Ok(None),
            Err(error) => return Err(self.failed(PRUNE, error)),
        }
        // Before the first id of the days.
        let until = RequestId::first_at(Timestamp::of_day(range.first).plus_ms(-1));
        self.retention.set(Some(KeptIds { range, until, records: 0, is_complete: false }));
        Ok(Some(0))
    }

    /// Keeps a slice of a partition's ids. A slice that is not full is the last one: the ids of late records are kept when they are
    /// appended, and late records must not delay the drop as long as they keep arriving.
    async fn keep_ids(&self, kept: KeptIds) -> Result<(), StoreError> {
        let suffix = kept.range.suffix();
        let sql = AssertSqlSafe(format!(
            "WITH slice AS (SELECT id, sale FROM usage_{suffix} WHERE id > $1 ORDER BY id LIMIT {IDS}), \
             kept AS (INSERT INTO removed_{suffix} (id) SELECT id FROM slice WHERE sale <> 0 ON CONFLICT (id) DO NOTHING) \
             SELECT (SELECT COUNT(*) FROM slice), (SELECT id FROM slice ORDER BY id DESC LIMIT 1)"
        ));
        let failed = |error| self.failed(PRUNE, error);
        let row = match bind_ids(sqlx::query(sql), &[kept.until]).fetch_one(self.pools.writer()).await {
            Ok(row) => row,
            // The node that dropped it kept its ids.
            Err(error) if partitions::is_unknown_table(&error) => {
                self.retention.set(None);
                return Ok(());
            }
            Err(error) => return Err(failed(error)),
        };
        let records = u64::try_from(row.try_get::<i64, _>(0).map_err(failed)?).unwrap_or(0);
        let last: Option<Vec<u8>> = row.try_get(1).map_err(failed)?;
        let until = last.map(|id| request_id(&id)).transpose().map_err(failed)?;
        let next =
            KeptIds { records: kept.records + records, until: until.unwrap_or(kept.until), is_complete: records < IDS, ..kept };
        self.retention.set(Some(next));
        Ok(())
    }

    /// Drops tables while no batch of records is written. False if others use them.
    async fn drop_tables(&self, tables: &str) -> Result<bool, StoreError> {
        for attempt in 1..=DROPS {
            let mut transaction = self.begin_without_waiting(PRUNE).await?;
            let dropped = async {
                // A batch that has not found a record's id must not find that its table was dropped.
                sqlx::query(NEXT_POSITIONS).bind(0_i64).fetch_one(&mut *transaction).await?;
                sqlx::raw_sql(AssertSqlSafe(format!("DROP TABLE IF EXISTS {tables}"))).execute(&mut *transaction).await
            };
            match dropped.await {
                Ok(_) => return self.commit(PRUNE, transaction).await.map(|()| true),
                Err(error) if partitions::is_in_use(&error) => {
                    transaction.rollback().await.map_err(|error| self.failed(PRUNE, error))?;
                }
                Err(error) => return Err(self.failed(PRUNE, error)),
            }
            if attempt < DROPS {
                tokio::time::sleep(DROP_AGAIN).await;
            }
        }
        tracing::info!(tables, "old usage records are in use; they are removed later");
        Ok(false)
    }

    /// Deletes an hour of the sums by five minutes of removed records. False if there are none.
    async fn forget_sums(&self, pruned_until: i64) -> Result<bool, StoreError> {
        // The smallest of the existing values.
        let oldest = narrow_sums().map(|table| format!("(SELECT MIN(minute) FROM {table} WHERE width = 5)")).collect::<Vec<_>>();
        let sql = AssertSqlSafe(format!("SELECT CAST(LEAST({}) AS BIGINT)", oldest.join(", ")));
        let oldest: Vec<Option<i64>> = self.fetch_as(PRUNE, sqlx::query(sql), |row| row.try_get(0)).await?;
        let Some(oldest) = oldest.into_iter().flatten().next().filter(|oldest| *oldest < pruned_until / MINUTE) else {
            return Ok(false);
        };
        let end = (oldest + HOUR / MINUTE).min(pruned_until / MINUTE);
        let mut transaction = self.begin(PRUNE).await?;
        for sql in delete_sums() {
            sqlx::query(sql).bind(end).execute(&mut *transaction).await.map_err(|error| self.failed(PRUNE, error))?;
        }
        self.commit(PRUNE, transaction).await?;
        Ok(true)
    }

    /// Deletes ids of removed records that arrived before a time: one partition, or a slice of the ids outside partitions. Returns
    /// false if there are none.
    async fn forget_ids(&self, before: i64) -> Result<bool, StoreError> {
        let kept = self.partitions("removed").await?;
        if let Some(oldest) = kept.iter().find(|range| begin_of(range.next) <= before) {
            return self.drop_tables(&format!("removed_{}", oldest.suffix())).await;
        }
        let end = RequestId::first_at(Timestamp(bucket(Timestamp(before), DAY)));
        let sql = AssertSqlSafe(format!(
            "DELETE FROM removed_other WHERE id IN (SELECT id FROM removed_other WHERE id < $1 LIMIT {IDS})"
        ));
        let deleted = bind_ids(sqlx::query(sql), &[end]).execute(self.pools.writer()).await;
        deleted.map(|deleted| deleted.rows_affected() > 0).map_err(|error| self.failed(PRUNE, error))
    }
}

#[cfg(test)]
mod tests;
