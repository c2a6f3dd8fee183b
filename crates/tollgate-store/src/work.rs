//! Control of long work, such as a consistency check or a backup: it reports its progress, and ends soon after it is cancelled.

use std::{fmt, sync::Arc};

use tokio_util::sync::CancellationToken;

use crate::StoreError;

/// Progress of long work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WorkProgress {
    /// The step in progress, such as `journal`.
    pub step: &'static str,
    /// Finished entries, bytes or checks of the step.
    pub done: u64,
    /// Total of the step; `None` if it is unknown.
    pub total: Option<u64>,
}

/// Progress report and cancellation of long work. Cheap to clone.
#[derive(Clone)]
pub struct WorkControl {
    cancel: CancellationToken,
    report: Arc<dyn Fn(WorkProgress) + Send + Sync>,
}

impl fmt::Debug for WorkControl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WorkControl").field("cancelled", &self.is_cancelled()).finish_non_exhaustive()
    }
}

impl WorkControl {
    pub fn new(cancel: CancellationToken, report: impl Fn(WorkProgress) + Send + Sync + 'static) -> Self {
        Self { cancel, report: Arc::new(report) }
    }

    /// Work that is never cancelled and whose progress is not shown.
    pub fn unattended() -> Self {
        Self::new(CancellationToken::new(), |_| {})
    }

    pub fn report(&self, step: &'static str, done: u64, total: Option<u64>) {
        (self.report)(WorkProgress { step, done, total });
    }

    pub fn is_cancelled(&self) -> bool {
        self.cancel.is_cancelled()
    }

    /// Fails with [`StoreError::Cancelled`] once the work is cancelled.
    pub fn check(&self) -> Result<(), StoreError> {
        if self.is_cancelled() { Err(StoreError::Cancelled) } else { Ok(()) }
    }

    /// Waits until the work is cancelled.
    pub async fn cancelled(&self) {
        self.cancel.cancelled().await;
    }
}
