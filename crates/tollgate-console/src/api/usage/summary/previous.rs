//! The period before that of a summary, and its sums for the same groups.

use std::collections::BTreeMap;

use tollgate_core::Timestamp;
use tollgate_store::{Grouping, SummaryBy, SummaryRow, UsageFilter};

use crate::{api_error::ApiError, time::parse_rfc3339};

/// Sums are kept by five minutes. A period until now of at least `ROUNDED_US` is compared with whole five minutes, so that no
/// records are read for the beginning of the period before: at most 0.7 % more.
const GRID_US: i64 = 5 * 60_000_000;
const ROUNDED_US: i64 = 12 * 60 * 60_000_000;

/// The period before: of the same length, ending where the period begins.
pub(super) struct PreviousPeriod {
    pub(super) filter: UsageFilter,
    since: i64,
    length: i64,
}

pub(super) fn period(filter: &UsageFilter, now: Timestamp) -> Result<PreviousPeriod, ApiError> {
    let Some(since) = filter.since else {
        let message = "Missing required parameter: 'since'. The period before ends there.";
        return Err(ApiError::invalid("missing_required_parameter", "since", message));
    };
    let length = length(since, filter.until, now);
    let begin = Timestamp(since.0.saturating_sub(length));
    let filter = UsageFilter { since: Some(begin), until: Some(since), ..filter.clone() };
    Ok(PreviousPeriod { filter, since: begin.0, length })
}

/// The length of the period before that from `since` to `until`, or until now, in microseconds.
pub(crate) fn length(since: Timestamp, until: Option<Timestamp>, now: Timestamp) -> i64 {
    let length = until.unwrap_or(now).0.saturating_sub(since.0).max(0);
    if until.is_none() && length >= ROUNDED_US { (length + GRID_US - 1) / GRID_US * GRID_US } else { length }
}

/// The rows with those of the period before, in the order of their groups. A group that only the period before has is a row of zeros.
pub(super) fn side_by_side(
    rows: Vec<SummaryRow>,
    earlier: Vec<SummaryRow>,
    by: Grouping,
    period: Option<&PreviousPeriod>,
) -> Vec<(SummaryRow, Option<SummaryRow>)> {
    let Some(period) = period else { return rows.into_iter().map(|row| (row, None)).collect() };
    let mut pairs: BTreeMap<(String, String), (SummaryRow, Option<SummaryRow>)> =
        rows.into_iter().map(|row| ((row.of.clone(), row.and.clone()), (row, None))).collect();
    for row in earlier {
        let key = (period.moved(by.first, &row.of), period.moved(by.second, &row.and));
        let blank = || SummaryRow { of: key.0.clone(), and: key.1.clone(), ..SummaryRow::default() };
        let (_, before) = pairs.entry(key.clone()).or_insert_with(|| (blank(), None));
        match before {
            // The buckets of the two periods may be offset, so that two of them move into one.
            Some(before) => before.add(&row),
            None => *before = Some(row),
        }
    }
    pairs.into_values().collect()
}

impl PreviousPeriod {
    /// The group of the current period beside which a group of the earlier period is shown. Times are shifted by the length
    /// of the period.
    fn moved(&self, by: SummaryBy, group: &str) -> String {
        let (begin, keep) = match by {
            SummaryBy::Month => (format!("{group}-01T00:00:00Z"), 7),
            SummaryBy::Day => (format!("{group}T00:00:00Z"), 10),
            SummaryBy::Hour => (group.to_owned(), 13),
            SummaryBy::Nothing
            | SummaryBy::FiveMinutes
            | SummaryBy::Model
            | SummaryBy::Key
            | SummaryBy::Member
            | SummaryBy::Group
            | SummaryBy::Channel
            | SummaryBy::Account
            | SummaryBy::Protocol
            | SummaryBy::Outcome
            | SummaryBy::Reason
            | SummaryBy::Tag(_) => return group.to_owned(),
        };
        let Some(begin) = parse_rfc3339(&begin) else { return group.to_owned() };
        let moved = Timestamp(begin.0.max(self.since).saturating_add(self.length)).to_string();
        let rest = if by == SummaryBy::Hour { ":00:00Z" } else { "" };
        format!("{}{rest}", &moved[..keep])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(since: &str, until: &str) -> PreviousPeriod {
        let time = |text: &str| parse_rfc3339(text);
        let filter = UsageFilter { since: time(since), until: time(until), ..UsageFilter::default() };
        period(&filter, Timestamp(0)).unwrap()
    }

    #[test]
    fn time_groups_of_the_previous_period_are_shifted_by_its_length() {
        let week = of("2026-11-15T10:30:00Z", "2026-11-22T10:30:00Z");
        assert_eq!(week.filter.since, parse_rfc3339("2026-11-08T10:30:00Z"));
        assert_eq!(week.moved(SummaryBy::Day, "2026-11-08"), "2026-11-15");
        assert_eq!(week.moved(SummaryBy::Day, "2026-11-14"), "2026-11-21");
        assert_eq!(week.moved(SummaryBy::Hour, "2026-11-08T11:00:00Z"), "2026-11-15T11:00:00Z");
        assert_eq!(week.moved(SummaryBy::Model, "gpt"), "gpt");
        let month = of("2026-11-01T00:00:00Z", "2026-12-01T00:00:00Z");
        assert_eq!(month.moved(SummaryBy::Month, "2026-10"), "2026-11");
    }

    #[test]
    fn start_of_a_long_previous_period_is_aligned_to_the_rollups() {
        let until_now = |since: &str, now: &str| {
            let filter = UsageFilter { since: parse_rfc3339(since), ..UsageFilter::default() };
            period(&filter, parse_rfc3339(now).unwrap()).unwrap().filter.since
        };
        assert_eq!(until_now("2026-11-21T10:25:00Z", "2026-11-22T10:27:31Z"), parse_rfc3339("2026-11-20T10:20:00Z"));
        assert_eq!(until_now("2026-11-22T10:25:00Z", "2026-11-22T11:27:31Z"), parse_rfc3339("2026-11-22T09:22:29Z"));
    }

    #[test]
    fn groups_present_in_only_one_period_are_kept() {
        let row = |of: &str, requests: u64| SummaryRow { of: of.to_owned(), requests, ..SummaryRow::default() };
        let period = of("2026-11-15T00:00:00Z", "2026-11-16T00:00:00Z");
        let rows =
            side_by_side(vec![row("a", 1), row("b", 2)], vec![row("b", 3), row("c", 4)], SummaryBy::Model.into(), Some(&period));
        let shown: Vec<_> =
            rows.iter().map(|(row, before)| (row.of.as_str(), row.requests, before.as_ref().map(|row| row.requests))).collect();
        assert_eq!(shown, [("a", 1, None), ("b", 2, Some(3)), ("c", 0, Some(4))]);
    }
}
