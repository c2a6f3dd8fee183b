//! Days of usage records that were exported to object storage, the process that exports, and the latest failure.

use std::fmt;

use async_trait::async_trait;
use tollgate_core::Timestamp;

use crate::StoreError;

/// A day that was exported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExportedDay {
    /// UTC day, counted from 1970-01-01.
    pub day: i64,
    /// Records in its files.
    pub records: u64,
    pub files: u64,
    /// Bytes of all files.
    pub bytes: u64,
    /// When the last file was written.
    pub at: Timestamp,
}

/// Why no day was exported since the last one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExportFailure {
    /// The day that was to be exported, counted from 1970-01-01.
    pub day: i64,
    /// The first failure after the last success.
    pub since: Timestamp,
    /// The last failure.
    pub at: Timestamp,
    pub message: String,
}

/// The state of exports, which all nodes share.
#[async_trait]
pub trait ExportStore: Send + Sync + fmt::Debug {
    /// Claims the export for `holder`, and returns whether `holder` now exports. A claim ends if it is not renewed for `lease_ms`.
    async fn claim_export(&self, holder: &str, now: Timestamp, lease_ms: i64) -> Result<bool, StoreError>;

    /// Releases the claim, so that others can export immediately. Does nothing if `holder` has no claim.
    async fn release_export(&self, holder: &str) -> Result<(), StoreError>;

    /// The exported days from one on, in order.
    async fn exported_days(&self, since: i64) -> Result<Vec<ExportedDay>, StoreError>;

    /// Stores an exported day, replacing an earlier export of it, and clears the failure.
    async fn put_exported_day(&self, day: &ExportedDay) -> Result<(), StoreError>;

    async fn export_failure(&self) -> Result<Option<ExportFailure>, StoreError>;

    /// Stores why a day was not exported.
    async fn put_export_failure(&self, day: i64, message: &str, now: Timestamp) -> Result<(), StoreError>;
}
