//! Ranges of summaries, and the indexes that their queries use.

use proptest::prelude::*;

use super::*;
use crate::rollup::{DAY, HOUR};

#[test]
fn ends_before_the_pruning_limit_are_widened_to_whole_hours() {
    let at = |hours: i64, micros: i64| Some(Timestamp(hours * HOUR + micros));
    assert_eq!(widen_to_pruned_hours(at(5, 7), at(9, 7), 24 * HOUR), (at(5, 0), at(10, 0)));
    assert_eq!(widen_to_pruned_hours(at(5, 0), at(9, 0), 24 * HOUR), (at(5, 0), at(9, 0)));
    assert_eq!(widen_to_pruned_hours(at(5, 7), at(30, 7), 24 * HOUR), (at(5, 0), at(30, 7)));
    assert_eq!(widen_to_pruned_hours(at(25, 7), None, 24 * HOUR), (at(25, 7), None));
}

#[test]
fn whole_days_hours_and_five_minutes_come_from_the_rollups() {
    use SummarySource::{Days, FiveMinutes, Hours, Records};
    let at = |days: i64, hours: i64, micros: i64| Some(Timestamp(days * DAY + hours * HOUR + micros));
    let cut =
        |since, until| split_range(since, until, SummarySource::BY_DAY).into_iter().map(|(source, ..)| source).collect::<Vec<_>>();
    assert_eq!(cut(None, None), [Days]);
    assert_eq!(cut(at(1, 0, 0), at(3, 0, 0)), [Days]);
    assert_eq!(cut(at(1, 2, 0), at(1, 5, 0)), [Hours]);
    assert_eq!(cut(at(1, 2, FIVE_MINUTES), at(1, 4, 5 * FIVE_MINUTES)), [FiveMinutes, Hours, FiveMinutes]);
    assert_eq!(cut(at(1, 2, 11 * FIVE_MINUTES), at(1, 3, FIVE_MINUTES)), [FiveMinutes], "across an hour");
    assert_eq!(cut(at(1, 2, 7), at(1, 2, 9)), [Records]);
    assert_eq!(cut(at(1, 2, 7), at(1, 2, FIVE_MINUTES + 9)), [Records], "two incomplete five minutes");
    assert_eq!(cut(at(1, 2, 7), None), [Records, FiveMinutes, Hours, Days]);
    assert_eq!(cut(at(1, 2, 7), at(4, 5, HOUR - 6)), [Records, FiveMinutes, Hours, Days, Hours, FiveMinutes, Records]);
    let hours = split_range(at(1, 2, 7), at(4, 5, 6), SummarySource::BY_HOUR);
    assert_eq!(hours.iter().map(|(source, ..)| *source).collect::<Vec<_>>(), [Records, FiveMinutes, Hours, Records]);
    assert_eq!(split_range(None, None, SummarySource::BY_HOUR), [(Hours, None, None)]);
    assert_eq!(cut(at(1, 2, 9), at(1, 2, 7)), [Records], "nothing, and a valid query");
}

#[test]
fn every_part_of_a_range_is_found_by_an_index_with_its_time() {
    let database = rusqlite::Connection::open_in_memory().unwrap();
    for tables in [include_str!("../../../migrations/0001_schema.sql"), include_str!("../../../migrations/0001_usage.sqlite.sql")] {
        database.execute_batch(tables).unwrap();
    }
    let (since, until) = (Some(Timestamp(7)), Some(Timestamp(3 * DAY + 5 * HOUR - 9)));
    let one = || Some(vec![1]);
    let filters = [
        RefFilter::default(),
        RefFilter { keys: one(), ..RefFilter::default() },
        RefFilter { members: one(), ..RefFilter::default() },
        RefFilter { groups: one(), ..RefFilter::default() },
        RefFilter { models: one(), ..RefFilter::default() },
        RefFilter { outcome: Some(0), ..RefFilter::default() },
        RefFilter { outcome: Some(3), ..RefFilter::default() },
    ];
    for filter in &filters {
        for by in [SummaryBy::Nothing, SummaryBy::Day, SummaryBy::Hour, SummaryBy::Key, SummaryBy::Group] {
            let of_keys = filter.is_of_keys() || by == SummaryBy::Key;
            let of = if of_keys { SumsOf::EachKey } else { SumsOf::AllKeys };
            let query = SummaryQuery { dialect: Dialect::Sqlite, filter, by: by.into(), of, since, until };
            let mut parts = 0;
            let times = if of_keys { Vec::new() } else { query.times() };
            for sql in times.into_iter().chain([query.sums().0]) {
                let mut statement = database.prepare(&format!("EXPLAIN QUERY PLAN {sql}")).unwrap();
                let mut rows = statement.raw_query();
                while let Some(row) = rows.next().unwrap() {
                    let step: String = row.get(3).unwrap();
                    if step.contains("usage") || step.contains("key_sums") {
                        parts += 1;
                        let narrowed = step.contains("id>? AND id<?") || step.contains("minute>? AND minute<?");
                        assert!(step.starts_with("SEARCH ") && narrowed, "{filter:?} {by:?}: {step}");
                    }
                }
            }
            assert!(parts >= 5, "{parts} parts");
        }
    }
}

proptest! {
    /// Ranges of roll-ups also consist of whole buckets, and less than ten minutes are read from records.
    #[test]
    fn split_ranges_cover_each_moment_once(since in 0..5 * DAY, length in 1..5 * DAY, by_hours: bool) {
        let until = since + length;
        let (mut covered, mut records) = (since, 0);
        let sources = if by_hours { SummarySource::BY_HOUR } else { SummarySource::BY_DAY };
        for (source, from, to) in split_range(Some(Timestamp(since)), Some(Timestamp(until)), sources) {
            prop_assert!(!by_hours || source != SummarySource::Days);
            let (from, to) = (from.unwrap(), to.unwrap());
            prop_assert_eq!(from, covered);
            prop_assert!(from < to);
            prop_assert!(from % source.width() == 0 && to % source.width() == 0);
            records += if source == SummarySource::Records { to - from } else { 0 };
            covered = to;
        }
        prop_assert_eq!(covered, until);
        prop_assert!(records < 2 * FIVE_MINUTES);
    }
}
