//! The catalog and the spending as they were last read from the database.

use tollgate_core::{Revision, Timestamp};

use crate::{RowKind, Spending, assemble::GroupIds, rows::CatalogRow};

/// The last known state of the database, without keys.
#[derive(Debug, Default)]
pub(super) struct KnownCatalog {
    pub(super) vault: Vec<(String, Vec<u8>)>,
    pub(super) revision: Revision,
    /// Live rows and removed groups.
    pub(super) rows: Vec<CatalogRow>,
    pub(super) spending: Spending,
    pub(super) spending_at: Timestamp,
}

impl KnownCatalog {
    pub(super) fn live(&self) -> Vec<CatalogRow> {
        self.rows.iter().filter(|row| row.removed_at.is_none()).cloned().collect()
    }

    pub(super) fn groups(&self) -> GroupIds {
        GroupIds::of(self.rows.iter().filter(|row| row.kind == RowKind::Group))
    }
}
