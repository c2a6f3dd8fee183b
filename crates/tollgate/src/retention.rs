//! Removes old usage records in small slices, so that booking and reading go on beside it.
//!
//! A clock that is wrong must not empty the log: what is old is told by the log's own time ([`RetentionClock`]), which the store
//! keeps and which every gateway follows, also while it removes nothing.

use std::time::Duration;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tollgate_core::{RetentionClock, Timestamp};
use tollgate_store::{SortOrder, Store, StoreError, UsageFilter};

use crate::compose;

/// How often time is followed and old records are looked for.
const POLL_INTERVAL: Duration = Duration::from_mins(10);
/// Pause between two slices: the database belongs to booking.
const PAUSE: Duration = Duration::from_millis(50);
const DAY_US: i64 = 86_400_000_000;

/// Follows the log's time and keeps usage records for so many days, 0 for ever, until it is told to stop.
pub(crate) async fn keep(store: Store, days: u64, stop: CancellationToken) {
    let begun = Instant::now();
    let mut time = None;
    loop {
        match follow(&store, &mut time, begun).await {
            Ok(Some(believed)) if days > 0 => remove(&store, before(believed, days), &stop).await,
            Ok(_) => {}
            Err(fault) => tracing::warn!(%fault, "old usage records are not looked for: the log's time cannot be told"),
        }
        if stop.run_until_cancelled(tokio::time::sleep(POLL_INTERVAL)).await.is_none() {
            return;
        }
    }
}

/// What time it is for the log, and stores that. Nothing while the log is empty: it begins with the first record.
async fn follow(store: &Store, time: &mut Option<RetentionClock>, begun: Instant) -> Result<Option<Timestamp>, StoreError> {
    let stored = store.usage.log_time().await?;
    let Some(known) = (match stored {
        Some(stored) => Some(stored),
        None => oldest(store).await?,
    }) else {
        return Ok(None);
    };
    let (now, passed) = (compose::now(), begun.elapsed());
    let time = time.get_or_insert_with(|| RetentionClock::new(known, now, passed));
    let next = time.advance(known, now, passed);
    if store.usage.move_log_time(stored, next).await? {
        time.mark_stored();
    }
    Ok(Some(time.effective_now(now)))
}

async fn oldest(store: &Store) -> Result<Option<Timestamp>, StoreError> {
    let page = store.usage.page(&UsageFilter { limit: 1, order: SortOrder::Oldest, ..UsageFilter::default() }).await?;
    Ok(page.items.first().map(|record| record.at))
}

/// Removes what arrived before, slice by slice; a stop waits for one slice at most.
async fn remove(store: &Store, before: Timestamp, stop: &CancellationToken) {
    let mut removed = 0;
    while !stop.is_cancelled() {
        match store.usage.prune(before).await {
            Ok(0) => break,
            Ok(some) => removed += some,
            Err(fault) => {
                tracing::warn!(%fault, "old usage records were not removed; it is tried again");
                break;
            }
        }
        tokio::time::sleep(PAUSE).await;
    }
    if removed > 0 {
        tracing::info!(records = removed, %before, "old usage records were removed");
    }
}

/// What arrived before goes: whole UTC days, so that at least `days` of them are kept.
pub(crate) fn before(now: Timestamp, days: u64) -> Timestamp {
    let days = i64::try_from(days).unwrap_or(i64::MAX).saturating_mul(DAY_US);
    Timestamp::of_day(Timestamp(now.0.saturating_sub(days)).day())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_days_are_kept() {
        let now = Timestamp::of_day(100);
        assert_eq!(before(now, 30), Timestamp::of_day(70));
        assert_eq!(before(Timestamp(now.0 + 5), 30), Timestamp::of_day(70));
        assert_eq!(before(Timestamp(now.0 - 5), 30), Timestamp::of_day(69));
    }
}
