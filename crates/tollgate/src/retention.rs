//! Removes old usage records in small slices, so that booking and reading go on beside it.
//!
//! A clock that is wrong must not empty the log. So the newest record tells what day it was when the process started, and
//! from there on the wall clock is followed no faster than [`CATCH_UP`]: a step forward of 40 days takes 40 hours to cost a
//! record, and one that is put right before that costs none.

use std::time::Duration;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tollgate_core::Timestamp;
use tollgate_store::{Store, StoreError, UsageFilter};

use crate::compose;

/// How often old records are looked for.
const LOOK_EVERY: Duration = Duration::from_mins(10);
/// Pause between two slices: the database belongs to booking.
const PAUSE: Duration = Duration::from_millis(50);
const DAY_US: i64 = 86_400_000_000;
/// How much faster than time passes a wall clock is followed that is ahead of the log: after a long stop the log catches up at
/// a day each hour.
const CATCH_UP: u32 = 24;

/// Keeps usage records for so many days, until it is told to stop.
pub(crate) async fn keep(store: Store, days: u64, stop: CancellationToken) {
    let Some(known) = stop.run_until_cancelled(last_known(&store)).await else { return };
    let begun = Instant::now();
    loop {
        let kept_from = before(believed(compose::now(), known, begun.elapsed()), days);
        let mut removed = 0;
        let pause = loop {
            if stop.is_cancelled() {
                return;
            }
            match store.usage.prune(kept_from).await {
                Ok(0) => break LOOK_EVERY,
                Ok(some) => removed += some,
                Err(fault) => {
                    tracing::warn!(%fault, "old usage records were not removed; it is tried again");
                    break LOOK_EVERY;
                }
            }
            tokio::time::sleep(PAUSE).await;
        };
        if removed > 0 {
            tracing::info!(records = removed, before = %kept_from, "old usage records were removed");
        }
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(pause) => {}
        }
    }
}

/// The time that is known to have come: the newest record's, as soon as the database tells it. An empty log has nothing to
/// lose, so the wall clock is as good there.
async fn last_known(store: &Store) -> Timestamp {
    loop {
        match newest(store).await {
            Ok(newest) => return newest.unwrap_or_else(compose::now),
            Err(fault) => tracing::warn!(%fault, "old usage records are not looked for yet: the log cannot be read"),
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

async fn newest(store: &Store) -> Result<Option<Timestamp>, StoreError> {
    let page = store.usage.page(&UsageFilter { limit: 1, ..UsageFilter::default() }).await?;
    Ok(page.items.first().map(|record| record.at))
}

/// What of the wall clock is believed, so long after `known` was.
fn believed(now: Timestamp, known: Timestamp, passed: Duration) -> Timestamp {
    let passed = i64::try_from(passed.saturating_mul(CATCH_UP).as_micros()).unwrap_or(i64::MAX);
    now.min(Timestamp(known.0.saturating_add(passed)))
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

    #[test]
    fn a_clock_that_jumps_ahead_is_followed_at_a_day_an_hour() {
        let (known, hour) = (Timestamp::of_day(100), Duration::from_hours(1));
        let ahead = Timestamp::of_day(140);
        assert_eq!(believed(ahead, known, Duration::ZERO), known);
        assert_eq!(believed(ahead, known, hour), Timestamp::of_day(101));
        assert_eq!(believed(ahead, known, hour * 50), ahead);
        // A clock that is right or behind is believed at once.
        assert_eq!(believed(known.plus_ms(5), known, Duration::from_secs(1)), known.plus_ms(5));
        assert_eq!(believed(Timestamp::of_day(60), known, hour), Timestamp::of_day(60));
    }
}
