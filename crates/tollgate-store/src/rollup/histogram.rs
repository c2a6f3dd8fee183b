//! Histograms of durations that can be merged. A duration in microseconds is counted in a bin; eight bins of equal width divide each
//! power of two, so that a percentile is at most an eighth too high. Counts are exact, and merging adds them.
//!
//! Stored as pairs of [varints](crate::varint): the distance to the bin before (the first: its number) and its count.

use crate::varint::{pull, push};

/// Powers of two are divided into `1 << DIVIDED` bins.
const DIVIDED: u32 = 3;

/// The bin of the longest duration.
const LAST_BIN: u16 = ((63 - 3) << DIVIDED) + (2 << DIVIDED) - 1;

/// The counts of the bins, up to the last one that is not empty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Histogram(Vec<u64>);

impl Histogram {
    pub(crate) fn add(&mut self, micros: u64) {
        self.add_to(bin(micros), 1);
    }

    pub(crate) fn merge(&mut self, other: &Self) {
        for (bin, count) in other.bins() {
            self.add_to(bin, count);
        }
    }

    fn add_to(&mut self, bin: u16, count: u64) {
        let at = usize::from(bin);
        if at >= self.0.len() && count > 0 {
            self.0.resize(at + 1, 0);
        }
        if let Some(sum) = self.0.get_mut(at) {
            *sum = sum.saturating_add(count);
        }
    }

    /// The bins that are not empty, with their counts.
    fn bins(&self) -> impl Iterator<Item = (u16, u64)> {
        (0..).zip(&self.0).filter(|(_, count)| **count > 0).map(|(bin, count)| (bin, *count))
    }

    /// The number of durations.
    pub(crate) fn count(&self) -> u64 {
        self.0.iter().fold(0, |sum, count| sum.saturating_add(*count))
    }

    /// The duration that `percent` of the durations do not exceed: the upper end of its bin, in microseconds.
    pub(crate) fn percentile(&self, percent: u64) -> Option<u64> {
        let rank = u64::try_from((u128::from(self.count()) * u128::from(percent)).div_ceil(100)).unwrap_or(u64::MAX).max(1);
        let mut seen = 0_u64;
        self.bins().find_map(|(bin, count)| {
            seen = seen.saturating_add(count);
            (seen >= rank).then(|| upper_end(bin))
        })
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut before = 0;
        for (bin, count) in self.bins() {
            push(&mut bytes, u64::from(bin - before));
            push(&mut bytes, count);
            before = bin;
        }
        bytes
    }

    /// `None` if the bytes are not a histogram.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let mut histogram = Self::default();
        histogram.merge_encoded(bytes).then_some(histogram)
    }

    /// Adds a list of encoded histograms in hexadecimal digits. Damaged ones are skipped here; `verify` reports them.
    pub(crate) fn merge_hex_list(&mut self, list: &str) {
        let mut bytes = Vec::new();
        for digits in list.split(',') {
            bytes.resize(digits.len() / 2, 0);
            if hex::decode_to_slice(digits, &mut bytes).is_ok() {
                self.merge_encoded(&bytes);
            }
        }
    }

    /// Adds an encoded histogram. Returns false if the bytes are damaged; a valid beginning may then have been added.
    pub(crate) fn merge_encoded(&mut self, bytes: &[u8]) -> bool {
        let mut bytes = bytes.iter();
        let mut before = 0_u16;
        while !bytes.as_slice().is_empty() {
            let next =
                pull(&mut bytes).and_then(|distance| before.checked_add(u16::try_from(distance).ok()?)).zip(pull(&mut bytes));
            let Some((bin, count)) = next.filter(|(bin, _)| *bin <= LAST_BIN) else { return false };
            self.add_to(bin, count);
            before = bin;
        }
        true
    }
}

fn bin(micros: u64) -> u16 {
    let power = (micros | 1).ilog2().saturating_sub(DIVIDED);
    let within = micros >> power;
    u16::try_from((u64::from(power) << DIVIDED) + within).expect("64 powers of two have few bins")
}

/// The largest duration of a bin.
fn upper_end(bin: u16) -> u64 {
    let bin = u32::from(bin);
    let (power, within) = if bin < 2 << DIVIDED { (0, bin) } else { ((bin >> DIVIDED) - 1, (bin & 7) + 8) };
    u64::try_from(((u128::from(within) + 1) << power) - 1).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn of(durations: &[u64]) -> Histogram {
        let mut histogram = Histogram::default();
        for duration in durations {
            histogram.add(*duration);
        }
        histogram
    }

    #[test]
    fn percentiles_are_at_most_an_eighth_too_high() {
        let histogram = of(&(1..=1_000).map(|ms| ms * 1_000).collect::<Vec<_>>());
        for percent in [1, 50, 95, 99, 100] {
            let (found, exact) = (histogram.percentile(percent).unwrap(), percent * 10_000);
            assert!((exact..=exact + exact / 8).contains(&found), "{percent} %: {found}");
        }
        assert_eq!(Histogram::default().percentile(50), None);
        assert_eq!(of(&[u64::MAX]).percentile(99), Some(u64::MAX));
    }

    #[test]
    fn damaged_histogram_is_not_decoded() {
        assert_eq!(Histogram::decode(&[0x80]), None);
        assert_eq!(Histogram::decode(&[5]), None);
        assert_eq!(Histogram::decode(&[0xff; 30]), None);
        assert_eq!(bin(u64::MAX), LAST_BIN);
        let mut beyond = Vec::new();
        push(&mut beyond, u64::from(LAST_BIN) + 1);
        assert_eq!(Histogram::decode(&[&beyond[..], &[1]].concat()), None, "no duration is so long");
    }

    proptest! {
        #[test]
        fn every_duration_lies_in_its_bin(micros: u64) {
            let bin = bin(micros);
            prop_assert!(micros <= upper_end(bin));
            prop_assert!(bin == 0 || micros > upper_end(bin - 1));
        }

        #[test]
        fn encoding_and_merging_histograms_is_lossless(one: Vec<u64>, other: Vec<u64>) {
            let mut merged = of(&one);
            merged.merge(&of(&other));
            prop_assert_eq!(&merged, &of(&[one, other].concat()));
            prop_assert_eq!(Histogram::decode(&merged.encode()), Some(merged));
        }
    }
}
