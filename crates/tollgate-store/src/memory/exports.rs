//! The [`ExportStore`] in memory.

use std::collections::BTreeMap;

use async_trait::async_trait;
use tollgate_core::Timestamp;

use super::MemoryStore;
use crate::{ExportFailure, ExportStore, ExportedDay, StoreError};

#[derive(Debug, Default)]
pub(super) struct MemoryExports {
    holder: Option<(String, Timestamp)>,
    days: BTreeMap<i64, ExportedDay>,
    failure: Option<ExportFailure>,
}

#[async_trait]
impl ExportStore for MemoryStore {
    async fn claim_export(&self, holder: &str, now: Timestamp, lease_ms: i64) -> Result<bool, StoreError> {
        let mut state = self.exports.lock().await;
        let is_held =
            |(other, at): &(String, Timestamp)| other != holder && *at > now.plus_ms(-lease_ms) && *at <= now.plus_ms(lease_ms);
        if state.holder.as_ref().is_some_and(is_held) {
            return Ok(false);
        }
        state.holder = Some((holder.to_owned(), now));
        Ok(true)
    }

    async fn release_export(&self, holder: &str) -> Result<(), StoreError> {
        self.exports.lock().await.holder.take_if(|(other, _)| other == holder);
        Ok(())
    }

    async fn exported_days(&self, since: i64) -> Result<Vec<ExportedDay>, StoreError> {
        Ok(self.exports.lock().await.days.range(since..).map(|(_, day)| *day).collect())
    }

    async fn put_exported_day(&self, day: &ExportedDay) -> Result<(), StoreError> {
        let mut state = self.exports.lock().await;
        state.days.insert(day.day, *day);
        state.failure = None;
        Ok(())
    }

    async fn export_failure(&self) -> Result<Option<ExportFailure>, StoreError> {
        Ok(self.exports.lock().await.failure.clone())
    }

    async fn put_export_failure(&self, day: i64, message: &str, now: Timestamp) -> Result<(), StoreError> {
        let mut state = self.exports.lock().await;
        let since = state.failure.as_ref().map_or(now, |failure| failure.since);
        state.failure = Some(ExportFailure { day, since, at: now, message: message.to_owned() });
        Ok(())
    }
}
