//! The [`ContentStore`] in memory.

use std::collections::BTreeMap;

use async_trait::async_trait;
use tollgate_core::{KeyId, RequestContents, RequestId, Timestamp, fair_level};

use super::MemoryStore;
use crate::{
    ContentStore, StoreError, StoredContents,
    contents::{PRUNED_AT_ONCE, pack},
};

/// Contents by request, with their size in a database.
#[derive(Debug, Default)]
pub(super) struct MemoryContents(BTreeMap<RequestId, (RequestContents, u64)>);

#[async_trait]
impl ContentStore for MemoryStore {
    async fn store_contents(&self, contents: Vec<RequestContents>) -> Result<(), StoreError> {
        let mut stored = self.contents.lock().await;
        for row in contents {
            let bytes = pack(&row).len() as u64;
            stored.0.entry(row.id).or_insert((row, bytes));
        }
        Ok(())
    }

    async fn contents(&self, request: RequestId) -> Result<Option<RequestContents>, StoreError> {
        Ok(self.contents.lock().await.0.get(&request).map(|(contents, _)| contents.clone()))
    }

    async fn has_contents(&self, request: RequestId) -> Result<bool, StoreError> {
        Ok(self.contents.lock().await.0.contains_key(&request))
    }

    async fn remove_contents(&self, request: RequestId) -> Result<bool, StoreError> {
        Ok(self.contents.lock().await.0.remove(&request).is_some())
    }

    async fn stored_contents(&self) -> Result<StoredContents, StoreError> {
        let stored = self.contents.lock().await;
        Ok(StoredContents { requests: stored.0.len() as u64, bytes: stored.0.values().map(|(_, bytes)| bytes).sum() })
    }

    async fn prune_contents(&self, before: Timestamp, max_bytes: u64) -> Result<u64, StoreError> {
        let mut stored = self.contents.lock().await;
        let mut held: BTreeMap<KeyId, u64> = BTreeMap::new();
        for (contents, bytes) in stored.0.values() {
            *held.entry(contents.key).or_default() += bytes;
        }
        let level = fair_level(&held.values().copied().collect::<Vec<_>>(), max_bytes);
        // Ids are in the order of time.
        let excess: Vec<RequestId> = stored
            .0
            .values()
            .filter_map(|(contents, bytes)| {
                let held = held.get_mut(&contents.key)?;
                let goes = contents.at < before || *held > level;
                if goes {
                    *held -= bytes;
                }
                goes.then_some(contents.id)
            })
            .take(PRUNED_AT_ONCE)
            .collect();
        for id in &excess {
            stored.0.remove(id);
        }
        Ok(excess.len() as u64)
    }
}
