//! Availability and speed of an offer, from its traffic. Figures of few requests are left out: they say little, and could reveal
//! who sent them.

use std::collections::HashMap;

use serde::Serialize;
use tollgate_core::{GroupId, OfferState, Timestamp};
use tollgate_store::{OfferBucket, OfferTraffic, Percentiles, SquareStore, StoreError, TrafficWidth};

/// Least number of requests of a figure, and of a bucket.
pub(super) const MIN_SAMPLE: u64 = 20;
const MIN_BUCKET_SAMPLE: u64 = 5;
const HOURS: usize = 24;
const DAYS: usize = 7;
const DAYS_OF_MONTH: usize = 30;
/// Number of five-minute buckets, including the current one, that show the present state of an offer.
const LATEST: i64 = 3;

/// The traffic of all offers.
#[derive(Debug, Default)]
pub(super) struct TrafficPart {
    pub(super) read_at: Timestamp,
    day: HashMap<(GroupId, String), OfferTraffic>,
    week: HashMap<(GroupId, String), OfferTraffic>,
    month: HashMap<(GroupId, String), OfferTraffic>,
    latest: HashMap<(GroupId, String), OfferTraffic>,
}

impl TrafficPart {
    pub(super) async fn read(store: &dyn SquareStore, now: Timestamp) -> Result<Self, StoreError> {
        let since = |width: TrafficWidth, buckets: usize| width.bucket(now, i64::try_from(buckets).unwrap_or(1) - 1);
        let by_offer =
            |all: Vec<OfferTraffic>| all.into_iter().map(|traffic| ((traffic.group, traffic.model.clone()), traffic)).collect();
        let day = store.offer_traffic(since(TrafficWidth::Hour, HOURS), TrafficWidth::Hour).await?;
        let week = store.offer_traffic(since(TrafficWidth::Day, DAYS), TrafficWidth::Day).await?;
        let month = store.offer_traffic(since(TrafficWidth::Day, DAYS_OF_MONTH), TrafficWidth::Day).await?;
        let five = TrafficWidth::FiveMinutes;
        let latest = store.offer_traffic(five.bucket(now, LATEST - 1), five).await?;
        Ok(Self { read_at: now, day: by_offer(day), week: by_offer(week), month: by_offer(month), latest: by_offer(latest) })
    }

    /// The figures of the last 24 hours, of the last 7 days and of the last 30.
    pub(super) fn figures(&self, group: GroupId, model: &str) -> [TrafficFigures; 3] {
        let key = (group, model.to_owned());
        let of =
            |traffic: &HashMap<_, OfferTraffic>, width, count| TrafficFigures::of(traffic.get(&key), width, count, self.read_at);
        [
            of(&self.day, TrafficWidth::Hour, HOURS),
            of(&self.week, TrafficWidth::Day, DAYS),
            of(&self.month, TrafficWidth::Day, DAYS_OF_MONTH),
        ]
    }

    /// The state of an offer, adjusted by its latest requests: those of the latest five-minute bucket with enough requests, or of all
    /// buckets if none has enough.
    pub(super) fn state(&self, group: GroupId, model: &str, state: OfferState) -> OfferState {
        let Some(traffic) = self.latest.get(&(group, model.to_owned())) else { return state };
        let has_enough = |bucket: &&OfferBucket| bucket.answered.saturating_add(bucket.failed) >= MIN_SAMPLE;
        let bucket = traffic.buckets.iter().rev().find(has_enough).copied().unwrap_or_else(|| {
            let first = traffic.buckets.first().map(|bucket| bucket.at).unwrap_or_default();
            let mut sum = OfferBucket { at: first, ..OfferBucket::default() };
            traffic.buckets.iter().for_each(|bucket| sum.add(bucket));
            sum
        });
        state.with_requests(bucket.answered, bucket.failed, bucket.at)
    }

    /// Requests of the last 7 days that were answered; `None` if they are few.
    pub(super) fn answered(&self, group: GroupId, model: &str) -> Option<u64> {
        let traffic = self.week.get(&(group, model.to_owned()))?;
        let answered = traffic.buckets.iter().map(|bucket| bucket.answered).sum();
        Some(answered).filter(|answered| *answered >= MIN_SAMPLE)
    }
}

/// The figures of one offer and span of time, as the document shows them.
#[derive(Debug, PartialEq, Serialize)]
pub(super) struct TrafficFigures {
    /// Share of answered requests, not counting failures that were the caller's fault.
    availability: Option<f64>,
    first_content_ms: Option<FirstContent>,
    output_tokens_per_s: Option<f64>,
    /// Availability by hour or day, the current one last.
    buckets: Vec<Option<f64>>,
}

#[derive(Debug, PartialEq, Serialize)]
struct FirstContent {
    p50: f64,
    p95: f64,
}

impl TrafficFigures {
    fn of(traffic: Option<&OfferTraffic>, width: TrafficWidth, count: usize, now: Timestamp) -> Self {
        let mut buckets = vec![None; count];
        let Some(traffic) = traffic else {
            return Self { availability: None, first_content_ms: None, output_tokens_per_s: None, buckets };
        };
        let mut sum = OfferBucket::default();
        for bucket in &traffic.buckets {
            sum.add(bucket);
            let back = width.bucket(now, 0).0.saturating_sub(bucket.at.0) / width.micros();
            let place = usize::try_from(back).ok().and_then(|back| count.checked_sub(back + 1));
            if let Some(shown) = place.and_then(|place| buckets.get_mut(place)) {
                *shown = availability(bucket, MIN_BUCKET_SAMPLE);
            }
        }
        let streamed = sum.streamed;
        let speed = (streamed.answers >= MIN_SAMPLE && streamed.micros > 0)
            .then(|| rounded(ratio(streamed.tokens, streamed.micros) * 1e6, 10.0));
        let times = traffic.first_content.filter(|_| sum.answered >= MIN_SAMPLE);
        let shown = |Percentiles { p50_us, p95_us, .. }| {
            let ms = |micros| rounded(ratio(micros, 1_000), 10.0);
            FirstContent { p50: ms(p50_us), p95: ms(p95_us) }
        };
        Self {
            availability: availability(&sum, MIN_SAMPLE),
            first_content_ms: times.map(shown),
            output_tokens_per_s: speed,
            buckets,
        }
    }
}

fn availability(bucket: &OfferBucket, least: u64) -> Option<f64> {
    let counted = bucket.answered.saturating_add(bucket.failed);
    (counted >= least).then(|| rounded(ratio(bucket.answered, counted), 10_000.0))
}

#[expect(clippy::cast_precision_loss, reason = "figures are rounded to four digits")]
fn ratio(part: u64, whole: u64) -> f64 {
    part as f64 / whole as f64
}

/// Rounded to a multiple of 1/`steps`.
fn rounded(number: f64, steps: f64) -> f64 {
    (number * steps).round() / steps
}

#[cfg(test)]
mod tests {
    use tollgate_store::StreamedAnswers;

    use super::*;

    const NOW: Timestamp = Timestamp(1_795_219_200_000_000);

    fn bucket(hours_ago: i64, answered: u64, failed: u64) -> OfferBucket {
        let streamed = StreamedAnswers { answers: answered, tokens: 50 * answered, micros: 2_000_000 * answered };
        OfferBucket { at: TrafficWidth::Hour.bucket(NOW, hours_ago), answered, failed, streamed }
    }

    fn figures(buckets: Vec<OfferBucket>) -> TrafficFigures {
        let first_content = Some(Percentiles { p50_us: 123_456, p95_us: 2_000_000, p99_us: 9 });
        let group = GroupId::from_parts(NOW, [1; 10]);
        let traffic = OfferTraffic { group, model: "m".to_owned(), buckets, first_content };
        TrafficFigures::of(Some(&traffic), TrafficWidth::Hour, HOURS, NOW)
    }

    #[test]
    fn figures_exclude_requests_that_failed_by_the_callers_fault() {
        let shown = figures(vec![bucket(23, 10, 0), bucket(2, 19, 1), bucket(0, 3, 1)]);
        assert_eq!(shown.availability, Some(0.9412));
        assert_eq!(shown.output_tokens_per_s, Some(25.0));
        assert_eq!(shown.first_content_ms, Some(FirstContent { p50: 123.5, p95: 2_000.0 }));
        assert_eq!((shown.buckets[0], shown.buckets[21], shown.buckets[23]), (Some(1.0), Some(0.95), None), "four are too few");
        assert_eq!(shown.buckets.len(), 24);
    }

    #[test]
    fn figures_with_too_few_requests_are_omitted() {
        let shown = figures(vec![bucket(1, 19, 0)]);
        assert_eq!((shown.availability, shown.output_tokens_per_s, shown.first_content_ms), (None, None, None));
        assert_eq!(figures(vec![bucket(1, 10, 10)]).availability, Some(0.5), "failures count as requests");
        let nothing = TrafficFigures::of(None, TrafficWidth::Day, DAYS, NOW);
        assert_eq!((nothing.availability, nothing.buckets), (None, vec![None; 7]));
    }
}
