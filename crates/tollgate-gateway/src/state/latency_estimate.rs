//! Time to first token by model, from traffic of the last five to ten minutes. Collected only for groups that hedge.
//!
//! Bounds: 10,000 models, 2.6 KiB each.

use std::{
    collections::HashMap,
    sync::{
        Arc, PoisonError, RwLock,
        atomic::{AtomicU32, AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::time::Instant;

/// Length of a window. Two windows are kept, so an estimate covers at least the last five minutes.
const WINDOW: Duration = Duration::from_mins(5);
/// Minimum samples for an estimate.
const MIN_SAMPLES: u32 = 20;
/// Buckets per power of two: an estimate is at most 12.5 % too high.
const STEPS: u32 = 8;
/// Buckets up to 2^40 µs, twelve days.
const BUCKETS: usize = 41 * STEPS as usize;
const MAX_MODELS: usize = 10_000;

/// Histograms of time to first token. The lock covers only the look-up of a model; the counts are atomics.
#[derive(Debug, Default)]
pub(crate) struct LatencyEstimate {
    models: RwLock<HashMap<String, Arc<ModelHistogram>>>,
}

#[derive(Debug)]
struct ModelHistogram {
    since: Instant,
    windows: [Window; 2],
}

#[derive(Debug)]
struct Window {
    /// Index of the window since `since`.
    number: AtomicU64,
    counts: [AtomicU32; BUCKETS],
}

impl ModelHistogram {
    fn new(since: Instant) -> Self {
        let window = || Window { number: AtomicU64::new(0), counts: [const { AtomicU32::new(0) }; BUCKETS] };
        Self { since, windows: [window(), window()] }
    }

    fn number(&self, now: Instant) -> u64 {
        now.saturating_duration_since(self.since).as_secs() / WINDOW.as_secs()
    }

    fn record(&self, micros: u64, now: Instant) {
        let number = self.number(now);
        let window = &self.windows[usize::from(number % 2 == 1)];
        let before = window.number.load(Ordering::Acquire);
        // The first sample of a window clears it; samples counted concurrently may be lost.
        if before < number && window.number.compare_exchange(before, number, Ordering::AcqRel, Ordering::Acquire).is_ok() {
            window.counts.iter().for_each(|count| count.store(0, Ordering::Relaxed));
        }
        window.counts[bucket(micros)].fetch_add(1, Ordering::Relaxed);
    }

    fn p95(&self, now: Instant) -> Option<Duration> {
        let number = self.number(now);
        let mut counts = [0_u32; BUCKETS];
        for window in &self.windows {
            if window.number.load(Ordering::Acquire) + 1 >= number {
                counts
                    .iter_mut()
                    .zip(&window.counts)
                    .for_each(|(sum, count)| *sum = sum.saturating_add(count.load(Ordering::Relaxed)));
            }
        }
        let all = counts.iter().copied().fold(0, u32::saturating_add);
        if all < MIN_SAMPLES {
            return None;
        }
        let mut above = u64::from(all) * 5 / 100;
        for (bucket, count) in counts.into_iter().enumerate().rev() {
            if u64::from(count) > above {
                return Some(Duration::from_micros(end_of(bucket)));
            }
            above -= u64::from(count);
        }
        None
    }
}

impl LatencyEstimate {
    /// Records a first token that came after `micros` microseconds.
    pub(crate) fn record(&self, model: &str, micros: u64, now: Instant) {
        if let Some(times) = self.of(model) {
            return times.record(micros, now);
        }
        let mut models = self.models.write().unwrap_or_else(PoisonError::into_inner);
        if models.contains_key(model) || models.len() < MAX_MODELS {
            models.entry(model.to_owned()).or_insert_with(|| Arc::new(ModelHistogram::new(now))).record(micros, now);
        }
    }

    /// The 95th percentile of time to first token; `None` with fewer than [`MIN_SAMPLES`] samples.
    pub(crate) fn p95(&self, model: &str, now: Instant) -> Option<Duration> {
        self.of(model)?.p95(now)
    }

    fn of(&self, model: &str) -> Option<Arc<ModelHistogram>> {
        self.models.read().unwrap_or_else(PoisonError::into_inner).get(model).cloned()
    }
}

/// The bucket of a time: its power of two, and the three bits below the leading one.
fn bucket(micros: u64) -> usize {
    let micros = micros.max(1);
    let octave = micros.ilog2();
    let step = if octave >= 3 { (micros >> (octave - 3)) & 7 } else { (micros << (3 - octave)) & 7 };
    let at = u64::from(octave * STEPS) + step;
    usize::try_from(at).map_or(BUCKETS - 1, |at| at.min(BUCKETS - 1))
}

/// The exclusive upper end of a bucket.
fn end_of(bucket: usize) -> u64 {
    let next = bucket as u64 + 1;
    let (octave, step) = (next / u64::from(STEPS), next % u64::from(STEPS));
    ((8 + step) << octave) >> 3
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn p95_needs_enough_samples() {
        let (latency, now) = (LatencyEstimate::default(), Instant::now());
        for n in 1..=19_u64 {
            latency.record("m", n * 1_000, now);
        }
        assert_eq!(latency.p95("m", now), None);
        for n in 20..=100_u64 {
            latency.record("m", n * 1_000, now);
        }
        let p95 = latency.p95("m", now).unwrap();
        assert!((95_000..=107_000).contains(&p95.as_micros()), "{p95:?}");
        assert_eq!(latency.p95("other", now), None);
    }

    #[tokio::test(start_paused = true)]
    async fn old_windows_expire() {
        let latency = LatencyEstimate::default();
        let slow = |latency: &LatencyEstimate| (0..100).for_each(|_| latency.record("m", 5_000_000, Instant::now()));
        let fast = |latency: &LatencyEstimate| (0..1_000).for_each(|_| latency.record("m", 10_000, Instant::now()));
        slow(&latency);
        tokio::time::advance(WINDOW).await;
        fast(&latency);
        assert!(latency.p95("m", Instant::now()).unwrap() > Duration::from_secs(4), "9 of 100 were slow");
        tokio::time::advance(WINDOW).await;
        fast(&latency);
        assert!(latency.p95("m", Instant::now()).unwrap() < Duration::from_millis(12));
        tokio::time::advance(2 * WINDOW).await;
        assert_eq!(latency.p95("m", Instant::now()), None);
    }

    #[tokio::test(start_paused = true)]
    async fn concurrent_samples_are_all_counted() {
        let (latency, now) = (LatencyEstimate::default(), Instant::now());
        std::thread::scope(|threads| {
            for _ in 0..4 {
                threads.spawn(|| (0..10_000).for_each(|_| latency.record("m", 5_000, now)));
            }
        });
        let times = latency.of("m").unwrap();
        let count: u32 = times.windows.iter().flat_map(|window| &window.counts).map(|count| count.load(Ordering::Relaxed)).sum();
        assert_eq!(count, 40_000);
    }

    proptest! {
        #[test]
        fn bucket_end_exceeds_its_times_by_at_most_an_eighth(micros in 1u64..(1 << 40)) {
            let end = end_of(bucket(micros));
            prop_assert!(end > micros || micros < 8, "{micros} {end}");
            prop_assert!(end <= micros + micros / 8 + 1, "{micros} {end}");
        }
    }
}
