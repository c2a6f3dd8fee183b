//! Records in the order in which they were booked, by all nodes. Every batch notes the ids of its records; the latest batches are kept.

use std::collections::HashMap;

use sqlx::{Row as _, any::AnyRow};
use tollgate_core::{RequestId, UsageRecord};

use super::{cells::request_id, store::SqlStore};
use crate::{BookedRecords, LogPosition, StoreError};

const FOLLOW: &str = "follow the usage log";
/// Batches that are read at once.
const BATCHES: i64 = 8;

impl SqlStore {
    pub(super) async fn read_booked(&self, after: Option<LogPosition>, limit: usize) -> Result<BookedRecords, StoreError> {
        let ends = "SELECT CAST(COALESCE(MIN(batch), 0) AS BIGINT), CAST(COALESCE(MAX(batch), 0) AS BIGINT) FROM recent_batches";
        let read = |row: &AnyRow| Ok((row.try_get(0)?, row.try_get(1)?));
        let ends: Vec<(i64, i64)> = self.fetch_as(FOLLOW, sqlx::query(ends), read).await?;
        let (oldest, newest) = ends.first().copied().unwrap_or_default();
        let end = LogPosition { batch: newest, records: u32::MAX };
        let Some(after) = after else { return Ok(BookedRecords { until: end, ..BookedRecords::default() }) };
        if after.batch > newest {
            // The position is of another database.
            return Ok(BookedRecords { until: end, missed: true, ..BookedRecords::default() });
        }
        let mut booked = BookedRecords { until: after, missed: after.batch + 1 < oldest, ..BookedRecords::default() };
        let sql = "SELECT batch, ids FROM recent_batches WHERE batch >= $1 ORDER BY batch LIMIT $2";
        let read = |row: &AnyRow| Ok((row.try_get(0)?, row.try_get(1)?));
        let batches: Vec<(i64, Vec<u8>)> = self.fetch_as(FOLLOW, sqlx::query(sql).bind(after.batch).bind(BATCHES), read).await?;
        let mut found = Vec::new();
        for (batch, ids) in batches {
            let positions = (1..).map(|records| LogPosition { batch, records });
            for (position, id) in positions.zip(ids.chunks_exact(16)).filter(|(position, _)| *position > after) {
                if found.len() == limit {
                    break;
                }
                found.push((position, request_id(id).map_err(|error| self.failed(FOLLOW, error))?));
                booked.until = position;
            }
        }
        let records = self.records_with_ids(found.iter().map(|(_, id)| *id).collect()).await?;
        let mut records: HashMap<RequestId, UsageRecord> = records.into_iter().map(|record| (record.id, record)).collect();
        // Retention may have removed some.
        booked.items = found.into_iter().filter_map(|(position, id)| Some((position, records.remove(&id)?))).collect();
        Ok(booked)
    }
}
