//! Roll-ups: sums over usage records by five minutes, hours and days, over all keys and for each key, and over attempts by hours and
//! days. Computes what a batch of new records adds to them. Texts are numbers of the dictionary, words are codes, and 0 stands for
//! a text that a record does not have.

mod histogram;

use std::collections::BTreeMap;

use tollgate_core::{Timestamp, Tokens, UsageRecord};

pub(crate) use histogram::Histogram;

/// Microseconds of a minute, of five minutes, of an hour and of a day.
pub(crate) const MINUTE: i64 = 60_000_000;
pub(crate) const FIVE_MINUTES: i64 = 5 * MINUTE;
pub(crate) const HOUR: i64 = 60 * MINUTE;
pub(crate) const DAY: i64 = 24 * HOUR;
/// The widths of the sums over records, and of those over attempts.
pub(crate) const USAGE_WIDTHS: [i64; 3] = [FIVE_MINUTES, HOUR, DAY];
pub(crate) const ATTEMPT_WIDTHS: [i64; 2] = [HOUR, DAY];

/// Dimensions of sums over all keys: minute, group, model, channel, protocol, outcome, reason.
pub(crate) type UsageSumKey = [i64; 7];
/// Dimensions of sums of each key: minute, key, member, group, model, outcome.
pub(crate) type KeySumKey = [i64; 6];
/// Dimensions of sums over attempts: minute, channel, account, model, result, error.
pub(crate) type AttemptSumKey = [i64; 6];

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct UsageSums {
    pub(crate) requests: i64,
    pub(crate) tokens_input: i64,
    pub(crate) tokens_output: i64,
    pub(crate) tokens_cache_read: i64,
    pub(crate) tokens_cache_write: i64,
    pub(crate) tokens_thinking: i64,
    pub(crate) sale: i64,
    pub(crate) cost: i64,
    pub(crate) unpriced: i64,
}

/// Sums over all keys, with the times to the first content and to the end.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct TimedSums {
    pub(crate) sums: UsageSums,
    pub(crate) ttft: Histogram,
    pub(crate) duration: Histogram,
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
        Self {
            requests: 1,
            tokens_input: input,
            tokens_output: output,
            tokens_cache_read: narrow(record.tokens.cache_read),
            tokens_cache_write: narrow(record.tokens.cache_write),
            tokens_thinking: narrow(record.tokens.thinking),
            sale: record.sale.map_or(0, |sale| sale.0),
            cost: record.cost.map_or(0, |cost| cost.0),
            unpriced: i64::from(record.sale.is_none()),
        }
    }

    /// The numbers in the order of their columns.
    pub(crate) const fn figures(&self) -> [i64; 9] {
        [
            self.requests,
            self.tokens_input,
            self.tokens_output,
            self.tokens_cache_read,
            self.tokens_cache_write,
            self.tokens_thinking,
            self.sale,
            self.cost,
            self.unpriced,
        ]
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
        let pairs = [
            (&mut self.requests, other.requests),
            (&mut self.tokens_input, other.tokens_input),
            (&mut self.tokens_output, other.tokens_output),
            (&mut self.tokens_cache_read, other.tokens_cache_read),
            (&mut self.tokens_cache_write, other.tokens_cache_write),
            (&mut self.tokens_thinking, other.tokens_thinking),
            (&mut self.sale, other.sale),
            (&mut self.cost, other.cost),
            (&mut self.unpriced, other.unpriced),
        ];
        for (sum, add) in pairs {
            *sum = sum.saturating_add(add);
        }
    }
}

impl Sums for TimedSums {
    fn merge(&mut self, other: &Self) {
        self.sums.merge(&other.sums);
        self.ttft.merge(&other.ttft);
        self.duration.merge(&other.duration);
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
    at.0.div_euclid(width) * width
}

/// The minute since 1970 in which the bucket of a time begins.
pub(crate) const fn minute(at: Timestamp, width: i64) -> i64 {
    bucket(at, width) / MINUTE
}

/// The same sums by wider buckets. The first number of a key is its minute.
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
