//! Removes old usage records in small slices, so that booking and reading go on beside it.

use std::time::Duration;

use tokio_util::sync::CancellationToken;
use tollgate_core::Timestamp;
use tollgate_store::Store;

use crate::compose;

/// How often old records are looked for.
const LOOK_EVERY: Duration = Duration::from_mins(10);
/// Pause between two slices: the database belongs to booking.
const PAUSE: Duration = Duration::from_millis(50);
const DAY_US: i64 = 86_400_000_000;

/// Keeps usage records for so many days, until it is told to stop.
pub(crate) async fn keep(store: Store, days: u64, stop: CancellationToken) {
    loop {
        let kept_from = before(compose::now(), days);
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

/// What arrived before goes: whole UTC days, so that at least `days` of them are kept.
fn before(now: Timestamp, days: u64) -> Timestamp {
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
