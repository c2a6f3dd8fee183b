//! Creates partitions for coming usage records, and removes old records, stored contents and health transitions in small steps, so that
//! it does not block reads and writes.
//!
//! A wrong system clock must not empty the log: age is measured by [`RetentionClock`], which the store persists and which every
//! gateway advances, even if it removes nothing.

use std::{sync::Arc, time::Duration};

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tollgate_console::export_days;
use tollgate_core::{RetentionClock, Timestamp};
use tollgate_store::{SortOrder, Store, StoreError, UsageFilter};

use crate::{compose, config::Config, live_settings::LiveSettings};

/// Interval of clock updates, new partitions and removals.
const POLL_INTERVAL: Duration = Duration::from_mins(10);
/// Pause between steps, to leave the database to other work.
const PAUSE: Duration = Duration::from_millis(50);
const DAY_US: i64 = 86_400_000_000;

/// Additional days for which usage records are kept while their export is overdue.
pub(crate) const MAX_EXPORT_WAIT_DAYS: u64 = 30;

/// Maximum number of health transitions that are kept, however young they are.
const MAX_TRANSITIONS: u64 = 500_000;

/// Retention times in days.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct RetentionDays {
    /// Usage records; 0: for ever.
    usage: u64,
    /// Health transitions.
    health: u64,
    /// Contents of requests, and the bytes that all of them may take.
    contents: (u64, u64),
}

impl RetentionDays {
    fn of(config: &Config) -> Self {
        Self {
            usage: config.number("usage.retention_days"),
            health: config.number("health.history_days"),
            contents: (config.number("contents.retention_days"), config.number("contents.total_bytes")),
        }
    }
}

/// Creates partitions and removes expired data until `stop` is cancelled.
pub(crate) async fn run(store: Store, settings: Arc<LiveSettings>, stop: CancellationToken) {
    let started = compose::instant();
    let mut clock = None;
    let mut changes = settings.subscribe();
    loop {
        let days = RetentionDays::of(&changes.borrow_and_update());
        // Records of days without a partition are stored nevertheless.
        if let Err(fault) = store.usage.create_partitions(compose::now(), days.usage).await {
            tracing::debug!(%fault, "partitions for the coming days were not created");
        }
        match advance_clock(&store, &mut clock, started).await {
            Ok(Some(now)) => {
                if days.usage > 0 {
                    remove_usage(&store, &settings.current(), now, days.usage, &stop).await;
                }
                remove_transitions(&store, cutoff(now, days.health), &stop).await;
                let (contents, max_bytes) = days.contents;
                remove_contents(&store, cutoff(now, contents), max_bytes, &stop).await;
            }
            Ok(None) => {}
            Err(fault) => tracing::warn!(%fault, "old usage records are not removed: the retention clock cannot be read"),
        }
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(POLL_INTERVAL) => {}
            changed = changes.wait_for(|config| RetentionDays::of(config) != days) => drop(changed),
        }
    }
}

/// Advances and stores the retention clock, and returns its time; `None` while there are no records.
async fn advance_clock(
    store: &Store,
    clock: &mut Option<RetentionClock>,
    started: Instant,
) -> Result<Option<Timestamp>, StoreError> {
    let stored = store.usage.log_time().await?;
    let Some(known) = (match stored {
        Some(stored) => Some(stored),
        None => oldest(store).await?,
    }) else {
        return Ok(None);
    };
    let (now, passed) = (compose::now(), compose::instant().saturating_duration_since(started));
    let clock = clock.get_or_insert_with(|| RetentionClock::new(known, now, passed));
    let next = clock.advance(known, now, passed);
    if store.usage.set_log_time(stored, next).await? {
        clock.mark_stored();
    }
    Ok(Some(clock.effective_now(now)))
}

async fn oldest(store: &Store) -> Result<Option<Timestamp>, StoreError> {
    let page = store.usage.page(&UsageFilter { limit: 1, order: SortOrder::Oldest, ..UsageFilter::default() }).await?;
    Ok(page.items.first().map(|record| record.at))
}

/// Removes usage records that are too old. Records that are to be exported are kept until then, within bounds.
async fn remove_usage(store: &Store, config: &Config, now: Timestamp, keep_days: u64, stop: &CancellationToken) {
    let before = cutoff(now, keep_days);
    if config.export_endpoint.is_none() {
        return remove_before(store, before, stop).await;
    }
    let unexported = match export_days::unexported(store, before.day()).await {
        Ok(days) => days.first().map(|day| Timestamp::of_day(day.day)),
        Err(fault) => {
            tracing::warn!(%fault, "old usage records are not removed: it is not known which of them are exported");
            return;
        }
    };
    let last_wait = cutoff(now, keep_days.saturating_add(MAX_EXPORT_WAIT_DAYS));
    if unexported.is_some_and(|first| first < last_wait) {
        tracing::warn!(before = %last_wait, "usage records are removed although they were not exported: their export has failed for too long");
    }
    remove_before(store, unexported.map_or(before, |first| before.min(first.max(last_wait))), stop).await;
}

/// Removes records before a time, step by step; a stop waits for one step at most.
async fn remove_before(store: &Store, before: Timestamp, stop: &CancellationToken) {
    let mut removed = 0;
    while !stop.is_cancelled() {
        match store.usage.prune(before).await {
            Ok(None) => break,
            Ok(Some(count)) => removed += count,
            Err(fault) => {
                tracing::warn!(%fault, "removing old usage records failed; it will be retried");
                break;
            }
        }
        tokio::time::sleep(PAUSE).await;
    }
    if removed > 0 {
        tracing::info!(records = removed, %before, "old usage records were removed");
    }
}

/// Removes health transitions that ended before a time, and those that are too many.
async fn remove_transitions(store: &Store, before: Timestamp, stop: &CancellationToken) {
    while !stop.is_cancelled() {
        match store.health_history.prune_transitions(before, MAX_TRANSITIONS).await {
            Ok(0) => return,
            Ok(removed) => tracing::info!(transitions = removed, %before, "old health transitions were removed"),
            Err(fault) => {
                tracing::warn!(%fault, "removing old health transitions failed; it will be retried");
                return;
            }
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// Removes contents of requests that arrived before a time, and those for which there is no space.
async fn remove_contents(store: &Store, before: Timestamp, max_bytes: u64, stop: &CancellationToken) {
    let mut removed = 0;
    while !stop.is_cancelled() {
        match store.contents.prune_contents(before, max_bytes).await {
            Ok(0) => break,
            Ok(count) => removed += count,
            Err(fault) => {
                tracing::warn!(%fault, "removing stored contents failed; it will be retried");
                break;
            }
        }
        tokio::time::sleep(PAUSE).await;
    }
    if removed > 0 {
        tracing::info!(requests = removed, "stored contents were removed");
    }
}

/// Records before this time are removed: the start of a UTC day, so that at least `days` whole days are kept.
pub(crate) fn cutoff(now: Timestamp, days: u64) -> Timestamp {
    let days = i64::try_from(days).unwrap_or(i64::MAX).saturating_mul(DAY_US);
    Timestamp::of_day(Timestamp(now.0.saturating_sub(days)).day())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cutoff_is_the_start_of_a_day() {
        let now = Timestamp::of_day(100);
        assert_eq!(cutoff(now, 30), Timestamp::of_day(70));
        assert_eq!(cutoff(Timestamp(now.0 + 5), 30), Timestamp::of_day(70));
        assert_eq!(cutoff(Timestamp(now.0 - 5), 30), Timestamp::of_day(69));
    }
}
