//! Ranges of summaries, and the indexes that their queries use.

use proptest::prelude::*;

use tollgate_core::TagName;

use super::*;
use crate::{
    TagCondition,
    rollup::{DAY, FIVE_MINUTES, HOUR},
    sql::usage_filter::TagFilter,
};

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
    let sources = |ranges: Vec<TimeRange>| ranges.into_iter().map(|range| range.source).collect::<Vec<_>>();
    let cut = |since, until| sources(split_range(since, until, SummarySource::BY_DAY, EndParts::Added));
    assert_eq!(cut(None, None), [Days]);
    assert_eq!(cut(at(1, 0, 0), at(3, 0, 0)), [Days]);
    assert_eq!(cut(at(1, 2, 0), at(1, 5, 0)), [Hours]);
    assert_eq!(cut(at(1, 2, FIVE_MINUTES), at(1, 4, 5 * FIVE_MINUTES)), [FiveMinutes, Hours, FiveMinutes]);
    assert_eq!(cut(at(1, 2, 11 * FIVE_MINUTES), at(1, 3, FIVE_MINUTES)), [FiveMinutes], "across an hour");
    assert_eq!(cut(at(1, 2, 7), at(1, 2, 9)), [Records]);
    assert_eq!(cut(at(1, 2, 7), at(1, 2, FIVE_MINUTES + 9)), [Records], "two incomplete five minutes");
    assert_eq!(cut(at(1, 2, 7), None), [Records, FiveMinutes, Hours, Days]);
    assert_eq!(cut(at(1, 2, 7), at(4, 5, HOUR - 6)), [Records, FiveMinutes, Hours, Days, Hours, FiveMinutes, Records]);
    let hours = split_range(at(1, 2, 7), at(4, 5, 6), SummarySource::BY_HOUR, EndParts::Added);
    assert_eq!(sources(hours), [Records, FiveMinutes, Hours, Records]);
    let all = TimeRange { source: Hours, from: None, to: None, is_subtracted: false };
    assert_eq!(split_range(None, None, SummarySource::BY_HOUR, EndParts::Added), [all]);
    assert_eq!(cut(at(1, 2, 9), at(1, 2, 7)), [Records], "nothing, and a valid query");
}

#[test]
fn shorter_rest_of_a_bucket_is_subtracted() {
    let at = |days: i64, hours: i64| Some(Timestamp(days * DAY + hours * HOUR));
    let cut = |since, until| {
        let ranges = split_range(since, until, SummarySource::BY_DAY, EndParts::Shortest).into_iter();
        ranges.map(|it| (it.is_subtracted, it.from.unwrap() / HOUR, it.to.unwrap() / HOUR)).collect::<Vec<_>>()
    };
    assert_eq!(cut(at(1, 2), at(3, 23)), [(true, 24, 26), (false, 24, 96), (true, 95, 96)]);
    assert_eq!(cut(at(1, 22), at(3, 1)), [(false, 46, 48), (false, 48, 72), (false, 72, 73)]);
    assert_eq!(cut(at(1, 1), at(2, 23)), [(true, 24, 25), (false, 24, 72), (true, 71, 72)], "no whole day within");
    assert_eq!(cut(at(1, 23), at(2, 1)), [(false, 47, 49)]);
    assert_eq!(cut(at(1, 1), at(1, 23)), [(false, 25, 47)], "within one day");
}

/// No filter, and one of each kind.
fn narrow_filters() -> [RefFilter; 10] {
    let one = || Some(vec![1]);
    [
        RefFilter::default(),
        RefFilter { keys: one(), ..RefFilter::default() },
        RefFilter { members: one(), ..RefFilter::default() },
        RefFilter { groups: one(), ..RefFilter::default() },
        RefFilter { models: one(), ..RefFilter::default() },
        RefFilter { outcomes: Some(vec![0]), ..RefFilter::default() },
        RefFilter { outcomes: Some(vec![3]), ..RefFilter::default() },
        RefFilter { outcomes: Some(vec![1, 2, 3, 4]), ..RefFilter::default() },
        RefFilter { outcomes: Some(vec![0, 3]), ..RefFilter::default() },
        RefFilter { tags: vec![TagFilter { tag: Some(7), value: Some(8) }], ..RefFilter::default() },
    ]
}

#[test]
fn every_part_of_a_range_is_found_by_an_index() {
    let database = rusqlite::Connection::open_in_memory().unwrap();
    for tables in [include_str!("../../../migrations/0001_schema.sql"), include_str!("../../../migrations/0001_usage.sqlite.sql")] {
        database.execute_batch(tables).unwrap();
    }
    let (since, until) = (Some(Timestamp(7)), Some(Timestamp(3 * DAY + 5 * HOUR - 9)));
    let name = TagName::parse("project").unwrap();
    let condition = || vec![TagCondition { name, value: "web".to_owned() }];
    for filter in &narrow_filters() {
        for by in [SummaryBy::Nothing, SummaryBy::Day, SummaryBy::Hour, SummaryBy::Key, SummaryBy::Group, SummaryBy::Tag(name)] {
            let tags = if filter.tags.is_empty() { Vec::new() } else { condition() };
            let by = Grouping::from(by);
            let table = tables::choose(filter, by, &tags);
            let query = SummaryQuery {
                dialect: Dialect::Sqlite,
                filter,
                by,
                table,
                tags: [7, 0],
                since,
                until,
                matching: Vec::new(),
                most: 1,
            };
            let table = query.table.unwrap_or_else(|| panic!("{filter:?} {by:?} cannot be answered by sums"));
            let mut parts = 0;
            let rows = |range: &TimeRange| {
                if table.name == "usage_sums" {
                    vec![query.rows_of_times(*range), query.rows_of_sums(table, *range)]
                } else {
                    Vec::new()
                }
            };
            let times: Vec<String> =
                query.ranges().iter().filter(|range| range.source != SummarySource::Records).flat_map(rows).collect();
            let (of_records, of_sums): (Vec<TimeRange>, Vec<TimeRange>) =
                query.ranges().into_iter().partition(|range| range.source == SummarySource::Records);
            let sums = if table.is_packed() {
                let cells =
                    of_sums.into_iter().flat_map(|range| query.cells(range, Some(&[0]))).map(|cells| cells.sql(Dialect::Sqlite));
                cells.chain(of_records.iter().map(|range| query.rows_of_records(*range).0)).collect()
            } else {
                vec![query.sums(&query.ranges()).0]
            };
            for sql in times.into_iter().chain(sums) {
                let mut statement = database.prepare(&format!("EXPLAIN QUERY PLAN {sql}")).unwrap();
                let mut rows = statement.raw_query();
                while let Some(row) = rows.next().unwrap() {
                    let step: String = row.get(3).unwrap();
                    if step.contains("usage") || step.contains("_sums") || step.contains("_totals") {
                        parts += 1;
                        let narrowed =
                            ["id>? AND id<?", "minute>? AND minute<?", "minute=?"].iter().any(|times| step.contains(times));
                        assert!(step.starts_with("SEARCH ") && narrowed, "{filter:?} {by:?}: {step}");
                    }
                }
            }
            assert!(parts >= 4, "{parts} parts");
        }
    }
}

#[test]
fn smallest_sufficient_table_is_chosen() {
    let of = |filter: &RefFilter, by: Grouping, tags: &[TagCondition]| tables::choose(filter, by, tags).map(|table| table.name);
    let (all, of_key) = (RefFilter::default(), RefFilter { keys: Some(vec![1]), ..RefFilter::default() });
    let name = |text: &str| TagName::parse(text).unwrap();
    let tagged =
        |keys: Option<Vec<i64>>| RefFilter { keys, tags: vec![TagFilter { tag: Some(7), value: Some(8) }], ..RefFilter::default() };
    let condition = [TagCondition { name: name("project"), value: "web".to_owned() }];
    use SummaryBy::{Account, Channel, Day, Key, Member, Model, Outcome, Tag};
    for (by, expected) in [
        (Grouping::pair(Model, Day), Some("usage_sums")),
        (Key.into(), Some("key_totals")),
        (Grouping::pair(Member, Outcome), Some("key_totals")),
        (Grouping::pair(Key, Model), Some("key_sums")),
        (Grouping::pair(Account, Channel), Some("account_sums")),
        (Grouping::pair(Account, Key), Some("key_sums")),
        (Grouping::pair(Tag(name("a")), Model), Some("tag_sums")),
        (Grouping::pair(Tag(name("a")), Key), Some("key_tag_sums")),
        (Grouping::pair(Tag(name("a")), Channel), Some("key_tag_sums")),
        (Grouping::pair(Tag(name("a")), Tag(name("b"))), None),
    ] {
        assert_eq!(of(&all, by, &[]), expected, "{by:?}");
    }
    assert_eq!(of(&of_key, Key.into(), &[]), Some("key_totals"));
    assert_eq!(of(&of_key, Account.into(), &[]), Some("key_sums"));
    assert_eq!(of(&of_key, Tag(name("a")).into(), &[]), Some("key_tag_sums"));
    assert_eq!(of(&tagged(None), Day.into(), &condition), Some("tag_sums"));
    assert_eq!(of(&tagged(Some(vec![1])), Tag(name("project")).into(), &condition), Some("key_tag_sums"));
    assert_eq!(of(&tagged(None), Tag(name("other")).into(), &condition), None);
}

proptest! {
    /// Ranges of roll-ups also consist of whole buckets, and few records are read.
    #[test]
    fn split_ranges_cover_each_moment_once(since in 0..70 * DAY, length in 1..70 * DAY, sources in 0_usize..3, ends in 0_usize..2) {
        let until = since + length;
        let sources = [SummarySource::BY_DAY, SummarySource::BY_HOUR, SummarySource::BY_MONTH][sources];
        let ends = [EndParts::Added, EndParts::Shortest][ends];
        let mut records = 0;
        // For each time, the change in the number of ranges that cover it.
        let mut steps: BTreeMap<i64, i64> = BTreeMap::new();
        for TimeRange { source, from, to, is_subtracted } in split_range(Some(Timestamp(since)), Some(Timestamp(until)), sources, ends) {
            let (from, to, times) = (from.unwrap(), to.unwrap(), if is_subtracted { -1 } else { 1 });
            prop_assert!(from < to && sources.contains(&source));
            prop_assert_eq!((bucket(Timestamp(from), source.width()), bucket(Timestamp(to), source.width())), (from, to));
            *steps.entry(from).or_default() += times;
            *steps.entry(to).or_default() -= times;
            records += if source == SummarySource::Records { to - from } else { 0 };
        }
        steps.retain(|_, step| *step != 0);
        prop_assert_eq!(steps.into_iter().collect::<Vec<_>>(), [(since, 1), (until, -1)]);
        let most = if ends == EndParts::Added { 2 * FIVE_MINUTES } else { FIVE_MINUTES + 1 };
        prop_assert!(records < most);
    }
}
