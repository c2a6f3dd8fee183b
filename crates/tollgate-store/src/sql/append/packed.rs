//! Additions of a batch to the packed sums of keys.

use std::collections::BTreeMap;

use tokio::task::{JoinHandle, spawn_blocking};

use super::{
    AppendTransaction,
    row_batch::{RowBatch, TargetTable},
    tables,
};
use crate::{
    StoreError,
    rollup::{MINUTE, UsageSums, add_to_cells, by_part},
};

/// The stored value of each minute and part; `None` if there is none yet.
type StoredParts = Vec<Option<Vec<u8>>>;
type Merge = dyn FnOnce(StoredParts) -> RowBatch + Send;

/// Sums of keys of a batch and a width, to be added to the packed ones.
pub(super) struct PackedAddition {
    table: &'static TargetTable,
    /// In minutes.
    width: i64,
    /// The minutes and parts with sums.
    places: Vec<(i64, i64)>,
    /// Computes the new rows of these minutes and parts from the stored values.
    merge: Box<Merge>,
}

impl PackedAddition {
    pub(super) fn all<const N: usize>(
        table: &'static TargetTable,
        sums: Vec<(i64, BTreeMap<[i64; N], UsageSums>)>,
    ) -> impl Iterator<Item = Self> {
        sums.into_iter().filter(|(_, sums)| !sums.is_empty()).map(move |(width, sums)| {
            let width = width / MINUTE;
            let places = by_part(&sums).into_iter().map(|(place, _)| place).collect();
            let merge = move |stored: StoredParts| {
                let parts = by_part(&sums).into_iter().zip(stored);
                let merged =
                    parts.map(|((place, sums), stored)| (place, add_to_cells(&stored.unwrap_or_default(), sums.into_iter())));
                tables::packed_sums(table, width, merged)
            };
            Self { table, width, places, merge: Box::new(merge) }
        })
    }
}

/// The rows of a thread that merges.
async fn merged(rows: JoinHandle<RowBatch>) -> Result<RowBatch, StoreError> {
    match rows.await {
        Ok(rows) => Ok(rows),
        Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
        // The runtime is ending.
        Err(_) => Err(StoreError::Cancelled),
    }
}

impl AppendTransaction {
    /// Adds packed sums, width by width. While one width is merged, the next one is read and the previous one is written.
    pub(super) async fn add_packed(&mut self, additions: Vec<PackedAddition>) -> Result<(), StoreError> {
        let mut merging: Option<(&'static TargetTable, JoinHandle<RowBatch>)> = None;
        for PackedAddition { table, width, places, merge } in additions {
            let stored = self.packed(table.name, width, places).await?;
            let next = (table, spawn_blocking(move || merge(stored)));
            if let Some((table, rows)) = merging.replace(next) {
                self.add(table, merged(rows).await?).await?;
            }
        }
        match merging {
            Some((table, rows)) => self.add(table, merged(rows).await?).await,
            None => Ok(()),
        }
    }
}
