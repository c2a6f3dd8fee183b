//! How soon first tokens come, by model, from real traffic of the last five to ten minutes. Kept only for groups that hedge.
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

/// Length of a window; there are two, so that what is told is never younger than the last five minutes.
const WINDOW: Duration = Duration::from_mins(5);
/// With fewer, nothing is told.
const ENOUGH: u32 = 20;
/// Eight steps an octave: a figure is at most 12.5 % above the truth.
const STEPS: u32 = 8;
/// Up to 2^40 µs, twelve days.
const BUCKETS: usize = 41 * STEPS as usize;
/// Most models.
const MOST_MODELS: usize = 10_000;

/// First-token times. Locked for finding a model alone: counting and reading need no lock.
#[derive(Debug, Default)]
pub(crate) struct LatencyEstimate {
    models: RwLock<HashMap<String, Arc<Times>>>,
}

/// Those of one model.
#[derive(Debug)]
struct Times {
    since: Instant,
    windows: [Window; 2],
}

/// What was counted in one window of time.
#[derive(Debug)]
struct Window {
    /// Which one: how many passed since the beginning.
    number: AtomicU64,
    counts: [AtomicU32; BUCKETS],
}

impl Times {
    fn new(since: Instant) -> Self {
        let window = || Window { number: AtomicU64::new(0), counts: [const { AtomicU32::new(0) }; BUCKETS] };
        Self { since, windows: [window(), window()] }
    }

    fn number(&self, now: Instant) -> u64 {
        now.saturating_duration_since(self.since).as_secs() / WINDOW.as_secs()
    }

    fn note(&self, micros: u64, now: Instant) {
        let number = self.number(now);
        let window = &self.windows[usize::from(number % 2 == 1)];
        let before = window.number.load(Ordering::Acquire);
        // The first writer in a window clears it; what others count at that moment may go with it.
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
        if all < ENOUGH {
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
    /// A first token came after so many microseconds.
    pub(crate) fn note(&self, model: &str, micros: u64, now: Instant) {
        if let Some(times) = self.of(model) {
            return times.note(micros, now);
        }
        let mut models = self.models.write().unwrap_or_else(PoisonError::into_inner);
        if models.contains_key(model) || models.len() < MOST_MODELS {
            models.entry(model.to_owned()).or_insert_with(|| Arc::new(Times::new(now))).note(micros, now);
        }
    }

    /// The time within which 95 of 100 first tokens came; `None` while too few are known.
    pub(crate) fn p95(&self, model: &str, now: Instant) -> Option<Duration> {
        self.of(model)?.p95(now)
    }

    fn of(&self, model: &str) -> Option<Arc<Times>> {
        self.models.read().unwrap_or_else(PoisonError::into_inner).get(model).cloned()
    }
}

/// Where a time is counted: its octave, and the three bits below its leading one.
fn bucket(micros: u64) -> usize {
    let micros = micros.max(1);
    let octave = micros.ilog2();
    let step = if octave >= 3 { (micros >> (octave - 3)) & 7 } else { (micros << (3 - octave)) & 7 };
    let at = u64::from(octave * STEPS) + step;
    usize::try_from(at).map_or(BUCKETS - 1, |at| at.min(BUCKETS - 1))
}

/// The first time that is counted in the bucket after this one.
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
    async fn the_time_of_95_in_100_is_told_once_enough_are_known() {
        let (pace, now) = (LatencyEstimate::default(), Instant::now());
        for n in 1..=19_u64 {
            pace.note("m", n * 1_000, now);
        }
        assert_eq!(pace.p95("m", now), None);
        for n in 20..=100_u64 {
            pace.note("m", n * 1_000, now);
        }
        let p95 = pace.p95("m", now).unwrap();
        assert!((95_000..=107_000).contains(&p95.as_micros()), "{p95:?}");
        assert_eq!(pace.p95("other", now), None);
    }

    #[tokio::test(start_paused = true)]
    async fn only_the_last_minutes_count() {
        let pace = LatencyEstimate::default();
        let slow = |pace: &LatencyEstimate| (0..100).for_each(|_| pace.note("m", 5_000_000, Instant::now()));
        let fast = |pace: &LatencyEstimate| (0..1_000).for_each(|_| pace.note("m", 10_000, Instant::now()));
        slow(&pace);
        tokio::time::advance(WINDOW).await;
        fast(&pace);
        assert!(pace.p95("m", Instant::now()).unwrap() > Duration::from_secs(4), "9 of 100 were slow");
        tokio::time::advance(WINDOW).await;
        fast(&pace);
        assert!(pace.p95("m", Instant::now()).unwrap() < Duration::from_millis(12));
        tokio::time::advance(2 * WINDOW).await;
        assert_eq!(pace.p95("m", Instant::now()), None);
    }

    #[tokio::test(start_paused = true)]
    async fn cores_count_side_by_side() {
        let (pace, now) = (LatencyEstimate::default(), Instant::now());
        std::thread::scope(|threads| {
            for _ in 0..4 {
                threads.spawn(|| (0..10_000).for_each(|_| pace.note("m", 5_000, now)));
            }
        });
        let times = pace.of("m").unwrap();
        let counted: u32 = times.windows.iter().flat_map(|window| &window.counts).map(|count| count.load(Ordering::Relaxed)).sum();
        assert_eq!(counted, 40_000);
    }

    proptest! {
        #[test]
        fn a_bucket_ends_above_its_times_and_not_far(micros in 1u64..(1 << 40)) {
            let end = end_of(bucket(micros));
            prop_assert!(end > micros || micros < 8, "{micros} {end}");
            prop_assert!(end <= micros + micros / 8 + 1, "{micros} {end}");
        }
    }
}
