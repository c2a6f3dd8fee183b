//! When requests arrive.

use std::ops::Range;

use tollgate_core::Timestamp;

use crate::{
    random::Random,
    workload::{DAY, WORKLOADS, Workload},
};

const HOUR_US: i64 = 3_600_000_000;
const HOURS: i64 = 24;
/// Traffic at the beginning, in thousandths of the traffic at the end.
const AT_FIRST: u64 = 330;

/// The requests that arrive in a range of time, in order. The history is `days` long and ends at `end`.
pub(crate) fn arrivals(
    range: Range<Timestamp>,
    days: i64,
    end: Timestamp,
    random: &mut Random,
) -> Vec<(Timestamp, &'static Workload)> {
    let mut found = Vec::new();
    let hour_of = |at: Timestamp| at.0.div_euclid(HOUR_US);
    for hour in hour_of(range.start)..=hour_of(range.end) {
        let begin = Timestamp(hour * HOUR_US);
        for workload in WORKLOADS {
            let before = end.day() - begin.day();
            if before >= workload.since_days {
                continue;
            }
            for _ in 0..requests(workload, begin, growth(before, days), random) {
                let at = Timestamp(begin.0 + i64::try_from(random.below(HOUR_US.unsigned_abs())).unwrap_or(0));
                if range.contains(&at) {
                    found.push((at, workload));
                }
            }
        }
    }
    found.sort_by_key(|(at, _)| *at);
    found
}

/// How many requests a workload sends in the hour that begins at `begin`.
fn requests(workload: &Workload, begin: Timestamp, growth: u64, random: &mut Random) -> u64 {
    let hour = usize::try_from(begin.0.div_euclid(HOUR_US).rem_euclid(HOURS)).unwrap_or(0);
    // The first day was a Thursday.
    let is_weekend = (begin.day() + 3).rem_euclid(7) >= 5;
    let thousandths = workload.a_day * workload.rhythm.share(hour, is_weekend) * 1_000 / DAY * growth / 1_000;
    thousandths / 1_000 + u64::from(random.happens(thousandths % 1_000))
}

/// Traffic `before` days before the end, in thousandths of the traffic at the end. It grows, and no two days are the
/// same.
fn growth(before: i64, days: i64) -> u64 {
    let left = (days - before).clamp(0, days).unsigned_abs();
    let trend = AT_FIRST + (1_000 - AT_FIRST) * left / days.unsigned_abs().max(1);
    let mut day = Random::seeded(before.unsigned_abs());
    trend * day.between((880, 1_130)) / 1_000
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_have_a_rhythm_and_requests_are_in_order() {
        let end = Timestamp::of_day(20_000);
        let mut random = Random::seeded(1);
        let day = arrivals(Timestamp::of_day(19_998)..Timestamp::of_day(19_999), 30, end, &mut random);
        assert!(day.is_sorted_by_key(|(at, _)| *at) && day.len() > 300, "{}", day.len());
        let in_hour = |hour: i64| {
            let begin = Timestamp::of_day(19_998).plus_ms(hour * 3_600_000);
            day.iter().filter(|(at, _)| (begin..begin.plus_ms(3_600_000)).contains(at)).count()
        };
        assert!(in_hour(10) > 2 * in_hour(5), "{} and {}", in_hour(10), in_hour(5));
    }
}
