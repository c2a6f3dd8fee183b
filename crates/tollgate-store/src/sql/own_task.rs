//! Work that runs beside what awaits it.

use tokio::task::JoinSet;

use crate::StoreError;

/// Runs work on a task of its own, so that it may have a processor to itself. The work ends when the returned future is dropped.
pub(super) async fn on_own_task<T: Send + 'static>(
    work: impl Future<Output = Result<T, StoreError>> + Send + 'static,
) -> Result<T, StoreError> {
    let mut task = JoinSet::new();
    task.spawn(work);
    match task.join_next().await {
        Some(Ok(result)) => result,
        Some(Err(error)) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
        // The runtime is ending.
        Some(Err(_)) | None => Err(StoreError::Cancelled),
    }
}
