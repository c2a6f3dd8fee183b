//! Roll-ups. Usage records are summed by five minutes, hours, days and months: over all keys, for each key, for each account and for
//! each value of a tag. Each key also has totals by hours, days and months, and attempts are summed by hours and days. This module
//! computes the amounts that a batch of new records adds to the sums. Texts are stored as numbers of the dictionary, fixed words as
//! codes, and 0 means that the record has no such text.

mod histogram;
mod packed;

use std::collections::BTreeMap;

use tollgate_core::{Outcome, Timestamp, Tokens, UsageRecord};

pub(crate) use histogram::Histogram;
#[cfg(test)]
pub(crate) use packed::CellWriter;
pub(crate) use packed::{CellReader, PartSpan, VALUE_END, add_to_cells, by_part, keys_of_parts, part_of};

/// Lengths in microseconds. [`MONTH`] is the length of the longest month, and is used for every month.
pub(crate) const MINUTE: i64 = 60_000_000;
pub(crate) const FIVE_MINUTES: i64 = 5 * MINUTE;
pub(crate) const HOUR: i64 = 60 * MINUTE;
pub(crate) const DAY: i64 = 24 * HOUR;
pub(crate) const MONTH: i64 = 31 * DAY;
/// The widths of the sums over records, of the totals of each key, and of the sums over attempts.
pub(crate) const USAGE_WIDTHS: [i64; 4] = [FIVE_MINUTES, HOUR, DAY, MONTH];
pub(crate) const TOTAL_WIDTHS: [i64; 3] = [HOUR, DAY, MONTH];
pub(crate) const ATTEMPT_WIDTHS: [i64; 2] = [HOUR, DAY];

/// Dimensions of sums over all keys: minute, group, model, channel, protocol, outcome, reason.
pub(crate) type UsageSumKey = [i64; 7];
/// Dimensions of sums of each key: minute, key, member, group, model, channel, account, protocol, outcome, reason.
pub(crate) type KeySumKey = [i64; 10];
/// Dimensions of totals of each key: minute, key, member, outcome.
pub(crate) type KeyTotalKey = [i64; 4];
/// Dimensions of sums of each value of a tag: minute, tag, value, group, model, outcome.
pub(crate) type TagSumKey = [i64; 6];
/// Dimensions of sums of each value of a tag by key: minute, key, member, tag, value, group, model, channel, account, protocol,
/// outcome, reason.
pub(crate) type KeyTagSumKey = [i64; 12];
/// Dimensions of sums of each account: minute, account, group, model, channel, protocol, outcome, reason.
pub(crate) type AccountSumKey = [i64; 8];
/// Dimensions of sums over attempts: minute, channel, account, model, result, error.
pub(crate) type AttemptSumKey = [i64; 6];

/// Sums over records in the order of their columns: requests; tokens of input (of every kind), output (of every kind), cache reads, cache
/// writes, cache writes kept for an hour, thinking, images and audio; sale, cost; requests without a sale amount.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct UsageSums(pub(crate) [i64; 12]);

/// Sums over all keys, with the times to the first content and to the end, and the gateway's own.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct TimedSums {
    pub(crate) sums: UsageSums,
    pub(crate) streamed: StreamedSums,
    pub(crate) times: RequestTimes,
}

/// Sums over complete answers that were streamed, in the order of their columns: answers, output tokens without thinking, microseconds
/// from the first content to the end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct StreamedSums(pub(crate) [i64; 3]);

/// Histograms of the times of requests.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RequestTimes {
    /// To the first content.
    pub(crate) ttft: Histogram,
    /// To the end.
    pub(crate) duration: Histogram,
    /// Durations of requests, without the durations of their attempts.
    pub(crate) overhead: Histogram,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct AttemptSums {
    pub(crate) attempts: i64,
    pub(crate) tokens_input: i64,
    pub(crate) tokens_output: i64,
    pub(crate) cost: i64,
}

pub(crate) trait Sums: Clone + Default {
    fn merge(&mut self, other: &Self);
}

impl UsageSums {
    pub(crate) fn of(record: &UsageRecord) -> Self {
        let (input, output) = tokens(&record.tokens);
        let Tokens { cache_read, cache_write, cache_write_1h, thinking, image, audio, .. } = record.tokens;
        let [cache_read, cache_write, cache_write_1h, thinking, image, audio] =
            [cache_read, cache_write, cache_write_1h, thinking, image, audio].map(narrow);
        let (sale, cost) = (record.sale.map_or(0, |sale| sale.0), record.cost.map_or(0, |cost| cost.0));
        let unpriced = i64::from(record.sale.is_none());
        Self([1, input, output, cache_read, cache_write, cache_write_1h, thinking, image, audio, sale, cost, unpriced])
    }
}

impl TimedSums {
    pub(crate) fn add(&mut self, record: &UsageRecord, sums: &UsageSums) {
        self.sums.merge(sums);
        self.streamed.merge(&StreamedSums::of(record));
        self.times.add(record);
    }

    /// The numbers in the order of their columns.
    pub(crate) fn figures(&self) -> [i64; 15] {
        let mut figures = [0; 15];
        let numbers = self.sums.0.iter().chain(&self.streamed.0);
        figures.iter_mut().zip(numbers).for_each(|(figure, number)| *figure = *number);
        figures
    }
}

impl StreamedSums {
    pub(crate) fn of(record: &UsageRecord) -> Self {
        let streaming = record.ttft_us.and_then(|ttft| record.duration_us.checked_sub(ttft)).filter(|micros| *micros > 0);
        match streaming {
            Some(micros) if record.stream && record.outcome == Outcome::Completed && record.tokens.output > 0 => {
                Self([1, narrow(record.tokens.output), narrow(micros)])
            }
            Some(_) | None => Self::default(),
        }
    }

    fn merge(&mut self, other: &Self) {
        for (sum, add) in self.0.iter_mut().zip(other.0) {
            *sum = sum.saturating_add(add);
        }
    }
}

impl RequestTimes {
    pub(crate) fn add(&mut self, record: &UsageRecord) {
        self.duration.add(record.duration_us);
        if let Some(ttft) = record.ttft_us {
            self.ttft.add(ttft);
        }
        if let Some(overhead) = record.overhead_us() {
            self.overhead.add(overhead);
        }
    }

    /// The histograms in the order of their columns.
    pub(crate) const fn each(&self) -> [&Histogram; 3] {
        [&self.ttft, &self.duration, &self.overhead]
    }

    pub(crate) const fn each_mut(&mut self) -> [&mut Histogram; 3] {
        [&mut self.ttft, &mut self.duration, &mut self.overhead]
    }

    pub(crate) fn merge(&mut self, other: &Self) {
        for (times, more) in self.each_mut().into_iter().zip(other.each()) {
            times.merge(more);
        }
    }
}

impl AttemptSums {
    /// The numbers in the order of their columns.
    pub(crate) const fn figures(&self) -> [i64; 4] {
        [self.attempts, self.tokens_input, self.tokens_output, self.cost]
    }
}

impl Sums for UsageSums {
    fn merge(&mut self, other: &Self) {
        for (sum, add) in self.0.iter_mut().zip(other.0) {
            *sum = sum.saturating_add(add);
        }
    }
}

impl Sums for TimedSums {
    fn merge(&mut self, other: &Self) {
        self.sums.merge(&other.sums);
        self.streamed.merge(&other.streamed);
        self.times.merge(&other.times);
    }
}

impl Sums for AttemptSums {
    fn merge(&mut self, other: &Self) {
        let pairs = [
            (&mut self.attempts, other.attempts),
            (&mut self.tokens_input, other.tokens_input),
            (&mut self.tokens_output, other.tokens_output),
            (&mut self.cost, other.cost),
        ];
        for (sum, add) in pairs {
            *sum = sum.saturating_add(add);
        }
    }
}

/// The beginning of the bucket of a time; both in microseconds.
pub(crate) const fn bucket(at: Timestamp, width: i64) -> i64 {
    if width == MONTH { Timestamp::of_month(at.month()).0 } else { at.0.div_euclid(width) * width }
}

/// The end of the bucket of a time; both in microseconds.
pub(crate) const fn bucket_end(at: Timestamp, width: i64) -> i64 {
    // The width is that of the longest bucket, so a bucket's beginning plus the width lies in the next one.
    bucket(Timestamp(bucket(at, width).saturating_add(width)), width)
}

/// The first beginning of a bucket that is not before a time; both in microseconds.
pub(crate) const fn next_bucket(at: i64, width: i64) -> i64 {
    bucket_end(Timestamp(at.saturating_sub(1)), width)
}

/// The minute since 1970 in which the bucket of a time begins.
pub(crate) const fn minute(at: Timestamp, width: i64) -> i64 {
    bucket(at, width) / MINUTE
}

/// Adds sums up into wider buckets. The first number of a key is its minute.
pub(crate) fn widen<const N: usize, S: Sums>(rows: &BTreeMap<[i64; N], S>, width: i64) -> BTreeMap<[i64; N], S> {
    let mut wide: BTreeMap<[i64; N], S> = BTreeMap::new();
    for (key, sums) in rows {
        let mut key = *key;
        key[0] = minute(Timestamp(key[0] * MINUTE), width);
        wide.entry(key).or_default().merge(sums);
    }
    wide
}

/// Sums of the first width, and the same by each wider one.
pub(crate) fn by_widths<const N: usize, S: Sums>(rows: BTreeMap<[i64; N], S>, widths: &[i64]) -> Vec<(i64, BTreeMap<[i64; N], S>)> {
    let Some((first, wider)) = widths.split_first() else { return Vec::new() };
    let mut all = vec![(*first, rows)];
    for width in wider {
        let wide = all.last().map(|(_, rows)| widen(rows, *width)).unwrap_or_default();
        all.push((*width, wide));
    }
    all
}

/// Input and output tokens of every kind.
pub(crate) fn tokens(tokens: &Tokens) -> (i64, i64) {
    (narrow(tokens.prompt()), narrow(tokens.completion()))
}

fn narrow(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn month_buckets_follow_the_calendar() {
        let day = |text: &str| text.parse::<jiff::Timestamp>().unwrap().as_microsecond();
        let (november, december) = (day("2026-11-01T00:00:00Z"), day("2026-12-01T00:00:00Z"));
        assert_eq!(bucket(Timestamp(december - 1), MONTH), november);
        assert_eq!(bucket_end(Timestamp(november), MONTH), december);
        assert_eq!(bucket_end(Timestamp(day("2027-02-03T04:05:06Z")), MONTH), day("2027-03-01T00:00:00Z"));
        assert_eq!([next_bucket(november, MONTH), next_bucket(november + 1, MONTH)], [november, december]);
        assert_eq!(
            [next_bucket(HOUR, HOUR), next_bucket(HOUR + 1, HOUR), bucket_end(Timestamp(HOUR), HOUR)],
            [HOUR, 2 * HOUR, 2 * HOUR]
        );
    }
}
