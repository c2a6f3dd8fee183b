//! The contract of [`crate::UsageStore`].

use proptest::{prelude::*, strategy::ValueTree as _, test_runner::TestRunner};
use tempfile::TempDir;
use tollgate_core::{NanoUsd, Outcome, ShortText, Timestamp, UsageRecord};

use super::options;
use crate::{
    Grouping, SortOrder, Store, StoreUrl, SummaryBy, UsageCursor, UsageFilter, WorkControl, open,
    rollup::{DAY, FIVE_MINUTES, HOUR},
    samples::{MIDNIGHT, arrived, at, plain_record, record, request_id},
};

async fn append(store: &Store, numbers: impl IntoIterator<Item = u64>) -> u64 {
    let records: Vec<UsageRecord> = numbers.into_iter().map(record).collect();
    store.usage.append(&records).await.unwrap()
}

async fn page(store: &Store, filter: &UsageFilter) -> (Vec<UsageRecord>, Option<UsageCursor>) {
    let page = store.usage.page(filter).await.unwrap();
    (page.items, page.next)
}

pub(super) async fn record_is_stored_exactly_once(store: &Store) {
    assert_eq!(append(store, 0..50).await, 50);
    assert_eq!(append(store, 30..70).await, 20);
    assert_eq!(append(store, 0..70).await, 0);
    // A second record with a known id changes nothing; a duplicate in one batch counts once.
    let mut other = record(3);
    other.sale = Some(NanoUsd(1));
    other.attempts.truncate(1);
    assert_eq!(store.usage.append(&[other, record(70), record(70)]).await.unwrap(), 1);
    assert_eq!(store.usage.find(request_id(3)).await.unwrap(), Some(record(3)));
    let sums = store.usage.summary(&UsageFilter::default(), SummaryBy::Nothing.into()).await.unwrap();
    assert_eq!(sums[0].requests, 71);
}

/// Few rows are inserted by one statement, many by a stream. Either must keep absent fields absent.
pub(super) async fn batches_of_any_size_store_records_unchanged(store: &Store) {
    let varied = |n: u64| {
        let mut record = if n.is_multiple_of(3) { plain_record(n) } else { record(n) };
        record.address = (!n.is_multiple_of(2)).then(|| format!("10.0.0.{}", n % 5).into());
        record.client_request_id = n.is_multiple_of(11).then(|| format!("caller's {n}").into());
        record.client = (n % 7 != 2).then(|| format!("client/{}", n % 3).into());
        record.request_bytes = n % 5 * 1_000;
        record.attempts[0].sent_us = (n % 6 != 1).then_some(n);
        record.ttft_us = (n % 13 != 1).then_some(100 + n);
        (record.attempts[0].upstream_request_id, record.status) =
            (n.is_multiple_of(4).then(ShortText::default), if n.is_multiple_of(2) { 200 } else { 201 });
        record
    };
    let mut first = 0;
    for size in [1, 7, 8, 9, 31, 1_500] {
        let records: Vec<UsageRecord> = (first..first + size).map(varied).collect();
        first += size;
        assert_eq!(store.usage.append(&records).await.unwrap(), size);
    }
    let mut expected: Vec<UsageRecord> = (0..first).map(varied).collect();
    for order in [SortOrder::Oldest, SortOrder::Newest] {
        let stored = page(store, &UsageFilter { limit: 1_000, order, ..UsageFilter::default() }).await.0;
        assert!(stored == expected[..1_000], "{} records {order:?} first, or other ones", stored.len());
        expected.reverse();
    }
    // One record of a large batch is stored already.
    let again: Vec<UsageRecord> = (first - 1..first + 1_100).map(varied).collect();
    assert_eq!(store.usage.append(&again).await.unwrap(), 1_100);
    let sums = store.usage.summary(&UsageFilter::default(), SummaryBy::Nothing.into()).await.unwrap();
    assert_eq!(sums[0].requests, first + 1_100);
}

pub(super) async fn cache_writes_kept_for_an_hour_are_stored(store: &Store) {
    let mut written = record(1);
    (written.tokens.cache_write, written.tokens.cache_write_1h) = (50, 20);
    written.tokens.web_searches = 3;
    written.attempts[0].tokens = written.tokens;
    store.usage.append(std::slice::from_ref(&written)).await.unwrap();
    assert_eq!(store.usage.find(written.id).await.unwrap(), Some(written));
}

pub(super) async fn pages_have_no_gap_or_overlap(store: &Store) {
    let mut records: Vec<UsageRecord> = (0..45).map(record).collect();
    // Records of the same microsecond are ordered by id.
    for record in &mut records[10..20] {
        *record = arrived(record.clone(), at(10));
    }
    store.usage.append(&records).await.unwrap();
    for order in [SortOrder::Oldest, SortOrder::Newest] {
        let mut seen = Vec::new();
        let mut filter = UsageFilter { order, limit: 7, ..UsageFilter::default() };
        loop {
            let (items, next) = page(store, &filter).await;
            assert!(items.len() == 7 || next.is_none());
            seen.extend(items.into_iter().map(|record| UsageCursor(record.id)));
            match next {
                Some(next) => filter.after = Some(next),
                None => break,
            }
        }
        let mut expected: Vec<UsageCursor> = records.iter().map(|record| UsageCursor(record.id)).collect();
        expected.sort_unstable();
        if order == SortOrder::Newest {
            expected.reverse();
        }
        assert_eq!(seen, expected);
    }
    let (items, next) = page(store, &UsageFilter { limit: 45, ..UsageFilter::default() }).await;
    assert_eq!((items.len(), next), (45, None), "a full last page has no next one");
}

pub(super) async fn pages_continue_across_days(store: &Store) {
    // Days with several records, with one, and without any; the first and the last moment of a day.
    let times = [(0, [0, 1, 2, 3, DAY - 1].as_slice()), (1, &[0]), (4, &[DAY - 1]), (5, &[0, 5, 7, 9]), (9, &[40])];
    let times = times.into_iter().flat_map(|(day, times)| times.iter().map(move |time| Timestamp(MIDNIGHT.0 + day * DAY + time)));
    let records: Vec<UsageRecord> = (0..).zip(times).map(|(number, at)| arrived(record(number), at)).collect();
    store.usage.append(&records).await.unwrap();
    for order in [SortOrder::Oldest, SortOrder::Newest] {
        for limit in [1, 2, 3, 5, 20] {
            for (since, until) in [(None, None), (Some(records[2].at), Some(records[9].at))] {
                let filter = UsageFilter { since, until, order, limit, ..UsageFilter::default() };
                let (mut seen, mut after) = (Vec::new(), None);
                loop {
                    let (items, next) = page(store, &UsageFilter { after, ..filter.clone() }).await;
                    assert!(items.len() == limit as usize || next.is_none(), "{filter:?}");
                    seen.extend(items);
                    after = next;
                    if after.is_none() {
                        break;
                    }
                }
                let mut expected: Vec<UsageRecord> = records.iter().filter(|record| filter.matches(record)).cloned().collect();
                if order == SortOrder::Newest {
                    expected.reverse();
                }
                assert_eq!(seen, expected, "{filter:?}");
            }
        }
    }
}

pub(super) async fn filters_apply_to_pages_and_sums(store: &Store) {
    append(store, 0..60).await;
    let all: Vec<UsageRecord> = (0..60).map(record).collect();
    let filters = [
        UsageFilter { key: Some(record(1).key), ..UsageFilter::default() },
        UsageFilter { member: Some(record(0).member), ..UsageFilter::default() },
        UsageFilter { group: record(0).group, ..UsageFilter::default() },
        UsageFilter { model: Some("model-2".to_owned()), outcomes: vec![Outcome::Completed], ..UsageFilter::default() },
        UsageFilter { since: Some(at(10)), until: Some(at(20)), ..UsageFilter::default() },
        UsageFilter { model: Some("model-2' OR '1'='1".to_owned()), ..UsageFilter::default() },
    ];
    for filter in filters {
        let filter = UsageFilter { limit: 100, order: SortOrder::Oldest, ..filter };
        let expected: Vec<&UsageRecord> = all
            .iter()
            .filter(|record| {
                filter.key.is_none_or(|key| key == record.key)
                    && filter.member.is_none_or(|member| member == record.member)
                    && filter.group.is_none_or(|group| Some(group) == record.group)
                    && filter.model.as_deref().is_none_or(|model| Some(model) == record.model.as_deref())
                    && (filter.outcomes.is_empty() || filter.outcomes.contains(&record.outcome))
                    && filter.since.is_none_or(|since| record.at >= since)
                    && filter.until.is_none_or(|until| record.at < until)
            })
            .collect();
        let (items, _) = page(store, &filter).await;
        assert_eq!(items.iter().collect::<Vec<_>>(), expected, "{filter:?}");
        for by in [SummaryBy::Nothing, SummaryBy::Model, SummaryBy::Key, SummaryBy::Member, SummaryBy::Group, SummaryBy::Outcome] {
            let sums = store.usage.summary(&filter, by.into()).await.unwrap();
            let count: u64 = sums.iter().map(|sum| sum.requests).sum();
            let sale: i64 = sums.iter().map(|sum| sum.sale.0).sum();
            let input: u64 = sums.iter().map(|sum| sum.tokens_input).sum();
            assert_eq!(count, expected.len() as u64);
            assert_eq!(sale, expected.iter().filter_map(|record| record.sale).map(|sale| sale.0).sum::<i64>());
            assert_eq!(input, expected.iter().map(|record| record.tokens.input + record.tokens.cache_read).sum::<u64>());
            assert_eq!(
                sums.iter().map(|sum| sum.unpriced).sum::<u64>(),
                expected.iter().filter(|it| it.sale.is_none()).count() as u64
            );
            assert!(sums.is_sorted_by(|a, b| a.of < b.of));
        }
    }
    let days = store.usage.summary(&UsageFilter::default(), SummaryBy::Day.into()).await.unwrap();
    assert_eq!(days.iter().map(|day| (day.of.as_str(), day.requests)).collect::<Vec<_>>(), [("2026-11-21", 60)]);
}

pub(super) async fn records_are_stored_with_every_field(store: &Store) {
    let mut bare = record(1);
    bare.group = None;
    bare.group_name = None;
    bare.protocol_out = None;
    bare.model = None;
    bare.tokens = tollgate_core::Tokens::default();
    (bare.cost, bare.sale, bare.ttft_us, bare.address) = (None, None, None, None);
    bare.outcome = Outcome::GatewayStopped;
    (bare.reason, bare.detail) = (Some("E62".to_owned()), None);
    (bare.dropped, bare.trace, bare.attempts) = (Vec::new(), Vec::new(), Vec::new());
    let mut strange = record(2);
    strange.model = Some("m\u{0}l \u{1f600} '\"\\".into());
    strange.sale = Some(NanoUsd(-5));
    store.usage.append(&[record(0), bare.clone(), strange.clone()]).await.unwrap();
    assert_eq!(store.usage.find(request_id(0)).await.unwrap(), Some(record(0)));
    assert_eq!(store.usage.find(request_id(1)).await.unwrap(), Some(bare));
    let found = store.usage.find(request_id(2)).await.unwrap().unwrap();
    assert_eq!(found.model.as_ref().map(|model| model.replace(['\u{0}', '\u{fffd}'], "")), Some("ml \u{1f600} '\"\\".to_owned()));
    assert_eq!(found.sale, strange.sale);
    assert_eq!(store.usage.find(request_id(9)).await.unwrap(), None);
}

pub(super) async fn attempt_that_adds_nothing_is_stored_in_the_row_of_its_record(store: &Store) {
    let mut records: Vec<UsageRecord> = (0..12).map(plain_record).collect();
    records[1].attempts[0].status = None;
    records[2].attempts[0].status = Some(503);
    records[3].attempts[0].protocol = tollgate_protocol::Protocol::Anthropic;
    (records[4].protocol_out, records[4].attempts[0].first_byte_us) = (None, Some(77));
    records[5].attempts[0].error = Some("E57".to_owned());
    records[6].attempts[0].at = Timestamp(records[6].at.0 - 3);
    // Subjects with a row of their own.
    records[7].attempts[0].hedged = true;
    records[8].attempts[0].tokens.output += 1;
    records[9].cost = None;
    records[10].attempts[0].at = Timestamp(records[10].at.0 + i64::from(i32::MAX) + 1);
    records[11].attempts.insert(0, tollgate_core::AttemptRecord { cost: Some(NanoUsd(0)), ..record(11).attempts[0].clone() });
    store.usage.append(&records).await.unwrap();
    for record in records {
        assert_eq!(store.usage.find(record.id).await.unwrap(), Some(record));
    }
}

pub(super) async fn trace_with_details_and_long_traces_are_stored(store: &Store) {
    let entry = |account: &str, detail: Option<&str>| tollgate_core::TraceEntry {
        channel: "main".into(),
        account: Some(account.into()),
        code: "cooling".into(),
        detail: detail.map(str::to_owned),
    };
    let traces = [
        vec![entry("a", None), entry("b", None)],
        vec![entry("a", Some("until 12:00"))],
        (0..40).map(|number| entry(&format!("account {number}"), None)).collect(),
    ];
    let traced = |(number, trace): (u64, &Vec<tollgate_core::TraceEntry>)| UsageRecord { trace: trace.clone(), ..record(number) };
    let records: Vec<UsageRecord> = (0..).zip(&traces).map(traced).collect();
    store.usage.append(&records).await.unwrap();
    for record in records {
        assert_eq!(store.usage.find(record.id).await.unwrap(), Some(record));
    }
}

pub(super) async fn records_keep_their_former_names_and_sums_group_by_id(store: &Store) {
    let named = |number: u64, name: &str| UsageRecord { key: record(0).key, key_name: name.into(), ..record(number) };
    let records = [named(0, "ci"), named(1, "renamed"), named(2, "ci")];
    for record in &records {
        store.usage.append(std::slice::from_ref(record)).await.unwrap();
    }
    let filter = UsageFilter { key: Some(record(0).key), order: SortOrder::Oldest, limit: 2, ..UsageFilter::default() };
    let (first, next) = page(store, &filter).await;
    let (second, _) = page(store, &UsageFilter { after: next, ..filter.clone() }).await;
    assert_eq!([first, second].concat(), records);
    let sums = store.usage.summary(&filter, SummaryBy::Key.into()).await.unwrap();
    assert_eq!((sums.len(), sums[0].requests, sums[0].of.clone()), (1, 3, record(0).key.to_string()));
}

pub(super) async fn arrival_time_of_a_record_is_taken_from_its_id(store: &Store) {
    let mut other = record(5);
    other.at = at(70_000);
    store.usage.append(std::slice::from_ref(&other)).await.unwrap();
    assert_eq!(store.usage.find(other.id).await.unwrap().unwrap().at, at(5));
    let (found, _) = page(store, &UsageFilter { until: Some(at(6)), ..UsageFilter::default() }).await;
    assert_eq!(found.len(), 1);
    let mut within = record(6);
    within.at.0 += 999;
    store.usage.append(std::slice::from_ref(&within)).await.unwrap();
    assert_eq!(store.usage.find(within.id).await.unwrap().unwrap().at, within.at);
    let from = |micros: i64| UsageFilter { since: Some(Timestamp(at(6).0 + micros)), ..UsageFilter::default() };
    assert_eq!((page(store, &from(999)).await.0.len(), page(store, &from(1_000)).await.0.len()), (1, 0));
    assert!(
        store
            .ledger
            .verify(MIDNIGHT, &WorkControl::unattended())
            .await
            .unwrap()
            .differences
            .iter()
            .all(|it| it.rule.as_str() != "rollup")
    );
}

pub(super) async fn summaries_have_percentiles(store: &Store) {
    let timed = |number: u64| UsageRecord {
        ttft_us: number.is_multiple_of(2).then_some(number * 1_000),
        duration_us: number * 10_000,
        ..record(number)
    };
    let records: Vec<UsageRecord> = (1..=100).map(timed).collect();
    for batch in records.chunks(30) {
        store.usage.append(batch).await.unwrap();
    }
    let sums = store.usage.summary(&UsageFilter::default(), SummaryBy::Nothing.into()).await.unwrap();
    let near = |found: u64, exact: u64| (exact..=exact + exact / 8).contains(&found);
    let (ttft, duration) = (sums[0].ttft.unwrap(), sums[0].duration.unwrap());
    assert!(near(ttft.p50_us, 50_000) && near(ttft.p99_us, 100_000), "{ttft:?}");
    assert!(near(duration.p50_us, 500_000) && near(duration.p95_us, 950_000), "{duration:?}");
    let of_key = UsageFilter { key: Some(record(1).key), ..UsageFilter::default() };
    let sums = store.usage.summary(&of_key, SummaryBy::Nothing.into()).await.unwrap();
    assert_eq!((sums[0].requests, sums[0].sampled), (34, 34), "from its records");
    assert!(sums[0].duration.is_some_and(|times| near(times.p99_us, 1_000_000)), "{sums:?}");
    let untimed = Grouping::from(SummaryBy::Nothing).without_times();
    assert_eq!(store.usage.summary(&of_key, untimed).await.unwrap()[0].duration, None);
}

pub(super) async fn known_returns_stored_ids(store: &Store) {
    append(store, 0..3).await;
    let ids: Vec<_> = (0..1_200).map(request_id).collect();
    let mut known: Vec<_> = store.usage.known(&ids).await.unwrap().into_iter().collect();
    known.sort_unstable();
    assert_eq!(known, ids[..3]);
    assert!(store.usage.known(&[]).await.unwrap().is_empty());
}

pub(super) async fn concurrent_appends_of_the_same_records_store_each_once(store: &Store) {
    let records: Vec<UsageRecord> = (0..200).map(record).collect();
    let reversed: Vec<UsageRecord> = records.iter().rev().cloned().collect();
    let (one, two) = tokio::join!(store.usage.append(&records), store.usage.append(&reversed));
    assert_eq!(one.unwrap() + two.unwrap(), 200);
    let (items, _) = page(store, &UsageFilter { limit: 1_000, order: SortOrder::Oldest, ..UsageFilter::default() }).await;
    assert_eq!(items, records);
}

/// Records over three days, each a little later in its hour.
fn spread() -> Vec<UsageRecord> {
    const STEP: i64 = 47 * 60_000_000 + 13;
    (0_i64..)
        .zip((0..90).map(record))
        .map(|(number, record)| arrived(UsageRecord { cost: Some(NanoUsd(14)), ..record }, Timestamp(at(0).0 + number * STEP)))
        .collect()
}

pub(super) async fn sums_from_rollups_and_records_are_equal(store: &Store) {
    let records = spread();
    store.usage.append(&records).await.unwrap();
    let (first, last) = (records[0].at.0, records[89].at.0);
    for (from, length) in [(0, 1), (60, 3_600), (7_200, 100_000), (3_601, 200_000), (0, 300_000), (40_000, 90_001)] {
        let since = Timestamp(first + from * 1_000_000);
        let until = Timestamp((since.0 + length * 1_000_000).min(last + 1));
        let filter = UsageFilter { since: Some(since), until: Some(until), ..UsageFilter::default() };
        let expected: Vec<&UsageRecord> = records.iter().filter(|it| it.at >= since && it.at < until).collect();
        for by in [SummaryBy::Nothing, SummaryBy::Day, SummaryBy::Hour, SummaryBy::Model, SummaryBy::Outcome, SummaryBy::Key] {
            let sums = store.usage.summary(&filter, by.into()).await.unwrap();
            let total = |of: fn(&crate::SummaryRow) -> i64| sums.iter().map(of).sum::<i64>();
            assert_eq!(sums.iter().map(|sum| sum.requests).sum::<u64>(), expected.len() as u64, "{filter:?} {by:?}");
            assert_eq!(total(|sum| sum.sale.0), expected.iter().filter_map(|it| it.sale).map(|it| it.0).sum::<i64>());
            assert_eq!(total(|sum| sum.cost.0), 14 * i64::try_from(expected.len()).unwrap());
            let completed = expected.iter().filter(|it| it.outcome == Outcome::Completed).count() as u64;
            assert_eq!(sums.iter().map(|sum| sum.completed).sum::<u64>(), completed);
            if by == SummaryBy::Hour {
                let mut hours: Vec<String> = expected.iter().map(|it| crate::usage::hour(it.at)).collect();
                hours.dedup();
                assert_eq!(sums.iter().map(|sum| sum.of.clone()).collect::<Vec<_>>(), hours);
            }
        }
    }
}

/// Times of three days, half of them at most two microseconds from a boundary of a roll-up.
fn times() -> impl Strategy<Value = Timestamp> {
    let boundary = |width: i64| (0..3 * DAY / width, -2..=2_i64).prop_map(move |(number, more)| number * width + more);
    let near = prop_oneof![boundary(FIVE_MINUTES), boundary(HOUR), boundary(DAY)];
    prop_oneof![0..3 * DAY, near].prop_map(|after| Timestamp(MIDNIGHT.0 + after))
}

fn arrivals(times: &[Timestamp]) -> Vec<UsageRecord> {
    let arrive = |(number, at): (u64, &Timestamp)| {
        let mut record = arrived(UsageRecord { cost: Some(NanoUsd(14)), ..record(number) }, *at);
        if number.is_multiple_of(11) {
            (record.group, record.group_name, record.outcome) = (None, None, Outcome::Refused);
        }
        record
    };
    (0..).zip(times).map(arrive).collect()
}

pub(super) async fn sums_of_any_range_equal_those_of_its_records(store: &Store) {
    let mut runner = TestRunner::default();
    let mut random = |strategy: &BoxedStrategy<Vec<Timestamp>>| strategy.new_tree(&mut runner).unwrap().current();
    let records = arrivals(&random(&prop::collection::vec(times(), 400).boxed()));
    for batch in records.chunks(37) {
        store.usage.append(batch).await.unwrap();
    }
    assert!(store.ledger.verify(MIDNIGHT.plus_ms(30 * 86_400_000), &WorkControl::unattended()).await.unwrap().agrees());
    // In memory sums are computed from the records.
    let dir = TempDir::new().unwrap();
    let reference = open(options(StoreUrl::Memory, &dir)).await.unwrap();
    reference.usage.append(&records).await.unwrap();
    let groupings = [SummaryBy::Nothing, SummaryBy::Day, SummaryBy::Hour, SummaryBy::Model, SummaryBy::Key, SummaryBy::Member];
    let ends = random(&prop::collection::vec(times(), 240).boxed());
    for (number, ends) in (0..).zip(ends.chunks_exact(2)) {
        let (since, until) = (ends[0].min(ends[1]), ends[0].max(ends[1]));
        let sample = record(number);
        let narrow = |turn: u64| number % 13 == turn;
        let filter = UsageFilter {
            key: narrow(1).then_some(sample.key),
            member: narrow(2).then_some(sample.member),
            group: sample.group.filter(|_| narrow(3)),
            model: sample.model.filter(|_| narrow(4)).map(Into::into),
            outcomes: if narrow(5) { vec![sample.outcome] } else { Vec::new() },
            since: (!narrow(6)).then_some(since),
            until: (!narrow(7)).then_some(until),
            ..UsageFilter::default()
        };
        let by = groupings[usize::try_from(number).unwrap() % groupings.len()];
        let (found, expected) = (store.usage.summary(&filter, by.into()).await, reference.usage.summary(&filter, by.into()).await);
        assert_eq!(found.unwrap(), expected.unwrap(), "{filter:?} {by:?}");
    }
}

pub(super) async fn pruned_records_do_not_come_back(store: &Store) {
    let records = spread();
    let (late, stored): (Vec<_>, Vec<_>) = records.iter().cloned().partition(|it| it.id == records[4].id);
    assert!(late[0].sale.is_some_and(|sale| sale.0 > 0), "the record has a price");
    store.usage.append(&stored).await.unwrap();
    let before = Timestamp::of_day(records[0].at.day() + 1);
    let old = stored.iter().filter(|it| it.at < before).count() as u64;
    let in_time_of_day = Timestamp(before.0 + 5_000_000);
    let balances = store.ledger.balances().await.unwrap();
    let mut removed = 0;
    loop {
        match store.usage.prune(in_time_of_day).await.unwrap() {
            None => break,
            Some(some) => removed += some,
        }
        assert!(store.ledger.verify(MIDNIGHT.plus_ms(30 * 86_400_000), &WorkControl::unattended()).await.unwrap().agrees());
    }
    assert!(old > 0);
    assert_eq!(removed, old);
    let (left, _) = page(store, &UsageFilter { limit: 1_000, order: SortOrder::Oldest, ..UsageFilter::default() }).await;
    assert!(left.iter().all(|it| it.at >= before) && left.len() as u64 == stored.len() as u64 - old);
    assert_eq!(store.ledger.balances().await.unwrap(), balances, "pruning changes no balance");
    // The journal may offer records again that are stored.
    assert_eq!(store.usage.append(&stored).await.unwrap(), 0);
    assert_eq!(store.ledger.balances().await.unwrap(), balances);
    assert_eq!(store.usage.append(&late).await.unwrap(), 1, "a record that was never stored is, even if late");
    assert_eq!(store.usage.append(&late).await.unwrap(), 0);
    while store.usage.prune(in_time_of_day).await.unwrap().is_some() {}
    assert_eq!(store.usage.append(&late).await.unwrap(), 0);
    assert!(store.ledger.verify(MIDNIGHT.plus_ms(30 * 86_400_000), &WorkControl::unattended()).await.unwrap().agrees());
}

pub(super) async fn log_time_is_set_only_from_the_expected_value(store: &Store) {
    let later = MIDNIGHT.plus_ms(5);
    assert_eq!(store.usage.log_time().await.unwrap(), None);
    assert!(!store.usage.set_log_time(Some(MIDNIGHT), later).await.unwrap());
    assert!(store.usage.set_log_time(None, MIDNIGHT).await.unwrap());
    assert!(!store.usage.set_log_time(None, later).await.unwrap());
    assert!(!store.usage.set_log_time(Some(later), later).await.unwrap());
    assert_eq!(store.usage.log_time().await.unwrap(), Some(MIDNIGHT));
    assert!(store.usage.set_log_time(Some(MIDNIGHT), later).await.unwrap());
    assert_eq!(store.usage.log_time().await.unwrap(), Some(later));
}
