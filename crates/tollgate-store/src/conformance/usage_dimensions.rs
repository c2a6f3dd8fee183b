//! The contract of sums by every one and two dimensions, and of pages by every condition. The reference is the store in memory, which
//! computes both from the records.

use std::collections::BTreeMap;

use tempfile::TempDir;
use tollgate_core::{
    AccountId, ChannelId, KeyId, MemberId, NanoUsd, Outcome, TagName, Tags, Timestamp, TokenSource, Tokens, UsageRecord,
};
use tollgate_protocol::{FinishReason, Protocol};

use super::options;
use crate::{
    AttemptFilter, AttemptsBy, Grouping, KeyUse, KeyUseFilter, LastUse, LogPosition, OTHER_VALUES_LABEL, RecordConditions,
    SortOrder, Store, StoreUrl, Summary, SummaryBy, SummaryFigure, SummaryRow, TagCondition, UsageFilter, WorkControl, open,
    rollup::{DAY, HOUR, MINUTE},
    samples::{MIDNIGHT, arrived, at, record},
};

/// Every grouping but those by tags.
const UNTAGGED: [SummaryBy; 14] = [
    SummaryBy::Nothing,
    SummaryBy::Month,
    SummaryBy::Day,
    SummaryBy::Hour,
    SummaryBy::FiveMinutes,
    SummaryBy::Model,
    SummaryBy::Key,
    SummaryBy::Member,
    SummaryBy::Group,
    SummaryBy::Channel,
    SummaryBy::Account,
    SummaryBy::Protocol,
    SummaryBy::Outcome,
    SummaryBy::Reason,
];

fn tag(name: &str) -> TagName {
    TagName::parse(name).unwrap()
}

fn tagged(name: &str, value: &str) -> TagCondition {
    TagCondition { name: tag(name), value: value.to_owned() }
}

/// Every grouping, with a tag of few values, a tag with another value for each request, and a tag that no request has.
fn all() -> impl Iterator<Item = SummaryBy> {
    UNTAGGED.into_iter().chain(["project", "user", "missing"].map(|name| SummaryBy::Tag(tag(name))))
}

fn ten(n: u64) -> [u8; 10] {
    let mut bytes = [7; 10];
    bytes[2..].copy_from_slice(&n.to_be_bytes());
    bytes
}

/// Records of seventy days, in which every dimension has several values and every figure differs.
pub(super) fn varied() -> Vec<UsageRecord> {
    let of = |n: u64| {
        let after = i64::try_from(n).unwrap() * (7 * HOUR + 13_000_017);
        let mut record = arrived(record(n), Timestamp(MIDNIGHT.0 + after));
        record.tokens = Tokens {
            input: n,
            output: 2 * n,
            cache_read: n % 3,
            cache_write: 9 + n % 5,
            cache_write_1h: n % 4,
            thinking: n % 7,
            image: n % 11,
            audio: n % 13,
            source: TokenSource::Provider,
            web_searches: n % 2,
        };
        if n.is_multiple_of(15) {
            // A complete answer whose output limit was used up by thinking.
            (record.tokens.output, record.tokens.image, record.tokens.audio) = (0, 0, 0);
        }
        record.outcome = [Outcome::Completed, Outcome::Refused, Outcome::UpstreamBroke][usize::try_from(n % 3).unwrap()];
        if n % 12 == 5 {
            record.outcome = if n.is_multiple_of(5) { Outcome::GatewayStopped } else { Outcome::CallerLeft };
        }
        record.reason = (!n.is_multiple_of(3)).then(|| format!("E{}", 40 + n % 5));
        record.protocol_in = if n.is_multiple_of(4) { Protocol::Gemini } else { Protocol::OpenAi };
        (record.status, record.stream) = (if n % 3 == 1 { 429 } else { 200 }, n.is_multiple_of(2));
        (record.ttft_us, record.duration_us) = ((!n.is_multiple_of(5)).then_some(n * 100), n * 1_000);
        record.client_request_id = n.is_multiple_of(9).then(|| format!("theirs-{}", n % 2).into());
        record.address = Some(format!("10.0.0.{}", n % 3).into());
        for (at, attempt) in (0..).zip(&mut record.attempts) {
            attempt.channel = ChannelId::from_parts(MIDNIGHT, ten(n % 4));
            attempt.account = AccountId::from_parts(MIDNIGHT, ten((n + at) % 6));
            attempt.at = Timestamp(record.at.0 + 300 * i64::try_from(at).unwrap());
            attempt.duration_us = 400 * n;
            attempt.cost = Some(NanoUsd(7 + i64::try_from(n).unwrap()));
        }
        record.cost =
            Some(record.attempts.iter().filter_map(|attempt| attempt.cost).fold(NanoUsd(0), |sum, cost| NanoUsd(sum.0 + cost.0)));
        if n.is_multiple_of(17) {
            (record.attempts, record.cost, record.protocol_out) = (Vec::new(), Some(NanoUsd(0)), None);
        }
        if n.is_multiple_of(19) {
            (record.group, record.group_name) = (None, None);
        }
        if n % 19 == 12 {
            // No group of the key offers the model; the request counts in the key's first group.
            (record.attempts, record.cost, record.protocol_out) = (Vec::new(), Some(NanoUsd(0)), None);
            (record.outcome, record.reason, record.model) = (Outcome::Refused, Some("E13".to_owned()), Some("wished".into()));
        }
        record
    };
    (0..240).map(of).collect()
}

async fn with_reference(store: &Store) -> (Store, TempDir, Vec<UsageRecord>) {
    let records = varied();
    for batch in records.chunks(37) {
        store.usage.append(batch).await.unwrap();
    }
    let dir = TempDir::new().unwrap();
    let reference = open(options(StoreUrl::Memory, &dir)).await.unwrap();
    reference.usage.append(&records).await.unwrap();
    (reference, dir, records)
}

pub(super) async fn attempt_sums_include_failed_attempts_of_answered_requests(store: &Store) {
    let (reference, _dir, records) = with_reference(store).await;
    let all = [
        AttemptsBy::Nothing,
        AttemptsBy::Day,
        AttemptsBy::Hour,
        AttemptsBy::Channel,
        AttemptsBy::Account,
        AttemptsBy::Model,
        AttemptsBy::Result,
        AttemptsBy::Error,
    ];
    let at = |day: i64, more: i64| Some(Timestamp(MIDNIGHT.0 + day * DAY + more));
    let ranges = [(None, None), (at(5, 0), at(12, HOUR)), (at(3, 77), at(64, 3 * HOUR + 5)), (None, at(20, 1)), (at(20, 11), None)];
    let of = &records[22].attempts[0];
    let filters = [
        AttemptFilter::default(),
        AttemptFilter { account: Some(of.account), ..AttemptFilter::default() },
        AttemptFilter { channel: Some(of.channel), result: Some(of.result), ..AttemptFilter::default() },
        AttemptFilter { model: Some("model-2".to_owned()), ..AttemptFilter::default() },
        AttemptFilter { model: Some("none has it".to_owned()), ..AttemptFilter::default() },
    ];
    for (since, until) in ranges {
        for filter in &filters {
            let filter = AttemptFilter { since, until, ..filter.clone() };
            for by in all.iter().flat_map(|first| all.map(|second| (*first, second))) {
                let (found, expected) = (store.usage.attempts(&filter, by).await, reference.usage.attempts(&filter, by).await);
                assert_eq!(found.unwrap(), expected.unwrap(), "{filter:?} {by:?}");
            }
        }
    }
    let by = (AttemptsBy::Account, AttemptsBy::Result);
    let sums = store.usage.attempts(&AttemptFilter::default(), by).await.unwrap();
    let attempts: u64 = sums.iter().map(|row| row.attempts).sum();
    assert_eq!(attempts, records.iter().map(|record| record.attempts.len() as u64).sum::<u64>());
    assert!(sums.iter().any(|row| row.and == "not_sent" && row.answered == 0 && row.attempts > 0), "{sums:?}");
}

pub(super) async fn sums_by_every_pair_of_dimensions_equal_those_of_the_records(store: &Store) {
    let (reference, _dir, records) = with_reference(store).await;
    assert!(store.ledger.verify(MIDNIGHT.plus_ms(200 * 86_400_000), &WorkControl::unattended()).await.unwrap().agrees());
    let at = |day: i64, more: i64| Some(Timestamp(MIDNIGHT.0 + day * DAY + more));
    // Everything, whole months and incomplete ones, and a range within one hour.
    let ranges = [(None, None), (at(5, 0), at(12, HOUR)), (at(3, 77), at(64, 3 * HOUR + 5)), (at(20, 11), at(20, HOUR - 7))];
    for first in all() {
        for second in all() {
            if first == second && first != SummaryBy::Nothing {
                continue;
            }
            for (since, until) in ranges {
                let filter = UsageFilter { since, until, ..UsageFilter::default() };
                let by = Grouping::pair(first, second);
                let (found, expected) = (store.usage.summary(&filter, by).await, reference.usage.summary(&filter, by).await);
                assert_eq!(found.unwrap(), expected.unwrap(), "{filter:?} {by:?}");
            }
        }
    }
    let sample = &records[22];
    let attempt = &sample.attempts[1];
    let not_completed = vec![Outcome::CallerLeft, Outcome::UpstreamBroke, Outcome::Refused, Outcome::GatewayStopped];
    let filters = [
        UsageFilter { channel: Some(attempt.channel), ..UsageFilter::default() },
        UsageFilter { account: Some(attempt.account), ..UsageFilter::default() },
        UsageFilter { account: Some(attempt.account), key: Some(sample.key), ..UsageFilter::default() },
        UsageFilter { protocol: Some(Protocol::Gemini), reason: Some("E41".to_owned()), ..UsageFilter::default() },
        UsageFilter { member: Some(sample.member), channel: Some(attempt.channel), ..UsageFilter::default() },
        UsageFilter { reason: Some("none has it".to_owned()), ..UsageFilter::default() },
        UsageFilter { tags: vec![tagged("project", "p2")], ..UsageFilter::default() },
        UsageFilter { tags: vec![tagged("project", "p2")], key: Some(sample.key), ..UsageFilter::default() },
        UsageFilter { tags: vec![tagged("project", "p0"), tagged("user", "user 35 \u{fc}")], ..UsageFilter::default() },
        UsageFilter { tags: vec![tagged("project", "p9")], ..UsageFilter::default() },
        UsageFilter { outcomes: not_completed.clone(), ..UsageFilter::default() },
        UsageFilter { outcomes: not_completed.clone(), key: Some(sample.key), ..UsageFilter::default() },
        UsageFilter { outcomes: not_completed.clone(), account: Some(attempt.account), ..UsageFilter::default() },
        UsageFilter { outcomes: not_completed, tags: vec![tagged("project", "p2")], ..UsageFilter::default() },
        UsageFilter { outcomes: vec![Outcome::Refused, Outcome::Completed], ..UsageFilter::default() },
        UsageFilter { tags: vec![tagged("missing", "p2")], ..UsageFilter::default() },
        UsageFilter {
            conditions: RecordConditions { min_tokens: Some(300), stream: Some(true), ..RecordConditions::default() },
            ..UsageFilter::default()
        },
    ];
    for filter in filters {
        for by in all() {
            for (since, until) in ranges {
                let filter = UsageFilter { since, until, ..filter.clone() };
                let (found, expected) =
                    (store.usage.summary(&filter, by.into()).await, reference.usage.summary(&filter, by.into()).await);
                assert_eq!(found.unwrap(), expected.unwrap(), "{filter:?} {by:?}");
            }
        }
    }
}

pub(super) async fn pages_contain_the_records_that_meet_every_condition(store: &Store) {
    let (reference, _dir, records) = with_reference(store).await;
    let sample = &records[22];
    let attempt = &sample.attempts[1];
    let not_completed = vec![Outcome::CallerLeft, Outcome::UpstreamBroke, Outcome::Refused, Outcome::GatewayStopped];
    let of = |conditions: RecordConditions| UsageFilter { conditions, ..UsageFilter::default() };
    let none = RecordConditions::default;
    let filters = [
        UsageFilter { channel: Some(attempt.channel), ..UsageFilter::default() },
        UsageFilter { account: Some(attempt.account), ..UsageFilter::default() },
        UsageFilter { account: Some(attempt.account), key: Some(sample.key), ..UsageFilter::default() },
        UsageFilter { protocol: Some(Protocol::Gemini), ..UsageFilter::default() },
        UsageFilter { reason: Some("E42".to_owned()), member: Some(sample.member), ..UsageFilter::default() },
        UsageFilter { tags: vec![tagged("project", "p2")], ..UsageFilter::default() },
        UsageFilter { tags: vec![tagged("project", "p0"), tagged("user", "user 35 \u{fc}")], ..UsageFilter::default() },
        of(RecordConditions { status: Some((400, 499)), ..none() }),
        of(RecordConditions { stream: Some(false), ..none() }),
        of(RecordConditions { finish: Some(FinishReason::Length), ..none() }),
        of(RecordConditions { min_sale: Some(NanoUsd(2_000)), ..none() }),
        of(RecordConditions { min_cost: Some(NanoUsd(100)), ..none() }),
        of(RecordConditions { min_tokens: Some(400), ..none() }),
        of(RecordConditions { min_ttft_us: Some(9_000), ..none() }),
        of(RecordConditions { min_duration_us: Some(90_000), ..none() }),
        of(RecordConditions { client_request_id: Some("theirs-1".to_owned()), ..none() }),
        of(RecordConditions { failed_over: Some(true), ..none() }),
        of(RecordConditions { failed_over: Some(false), ..none() }),
        of(RecordConditions { empty: Some(true), ..none() }),
        of(RecordConditions { empty: Some(false), ..none() }),
        of(RecordConditions { address: Some("10.0.0.0".to_owned()), client_request_id: Some("theirs-0".to_owned()), ..none() }),
        of(RecordConditions { tried_channel: Some(attempt.channel), ..none() }),
        of(RecordConditions { tried_account: Some(sample.attempts[0].account), ..none() }),
        of(RecordConditions { tried_channel: Some(attempt.channel), tried_failed: true, ..none() }),
        of(RecordConditions { tried_account: Some(attempt.account), tried_failed: true, ..none() }),
        UsageFilter { outcomes: not_completed.clone(), ..UsageFilter::default() },
        UsageFilter { outcomes: not_completed.clone(), key: Some(sample.key), ..UsageFilter::default() },
        UsageFilter { outcomes: not_completed, channel: Some(attempt.channel), ..UsageFilter::default() },
        UsageFilter { outcomes: vec![Outcome::Refused, Outcome::Refused], ..UsageFilter::default() },
        UsageFilter { outcomes: vec![Outcome::Refused, Outcome::Completed], ..UsageFilter::default() },
        of(RecordConditions { unknown_model: records[38].model.clone().map(Into::into), ..none() }),
        UsageFilter {
            group: records[12].group,
            ..of(RecordConditions { unknown_model: records[12].model.clone().map(Into::into), ..none() })
        },
        UsageFilter {
            key: Some(sample.key),
            outcomes: vec![Outcome::Refused],
            ..of(RecordConditions { address: Some("10.0.0.1".to_owned()), status: Some((429, 429)), ..none() })
        },
    ];
    for filter in filters {
        for order in [SortOrder::Newest, SortOrder::Oldest] {
            let since = Some(Timestamp(MIDNIGHT.0 + 2 * DAY + 5));
            let mut filter = UsageFilter { order, limit: 7, since, ..filter.clone() };
            let whole = reference.usage.page(&UsageFilter { limit: 1_000, ..filter.clone() }).await.unwrap();
            assert!(!whole.items.is_empty(), "the check needs matches: {filter:?}");
            let mut found = Vec::new();
            loop {
                let page = store.usage.page(&filter).await.unwrap();
                found.extend(page.items);
                match page.next {
                    Some(next) => filter.after = Some(next),
                    None => break,
                }
            }
            assert_eq!(found, whole.items, "{filter:?}");
        }
    }
}

pub(super) async fn tag_values_beyond_the_limit_are_summed_as_one(store: &Store) {
    const COUNT: u64 = 1_200;
    let of = |n: u64, name: &str, value: String| {
        let mut tags = Tags::default();
        tags.add_metadata(&[(name.to_owned(), value)]);
        UsageRecord { tags, member: record(0).member, cost: Some(NanoUsd(14)), ..record(n) }
    };
    // A member that sends a new value with each request, and a new name, before another member sends one.
    let values: Vec<UsageRecord> = (0..COUNT).map(|n| of(n, "session", format!("s{n}"))).collect();
    let names: Vec<UsageRecord> = (0..300).map(|n| of(COUNT + n, &format!("name{n}"), "a".to_owned())).collect();
    let other = UsageRecord { member: record(1).member, ..of(COUNT + 300, "session", "late".to_owned()) };
    for batch in [&values[..500], &values[500..], &names, &[other]] {
        store.usage.append(batch).await.unwrap();
    }
    assert!(store.ledger.verify(MIDNIGHT.plus_ms(86_400_000), &WorkControl::unattended()).await.unwrap().agrees());
    let sums = async |name: &str, tags: Vec<TagCondition>| {
        let filter = UsageFilter { tags, ..UsageFilter::default() };
        store.usage.summary(&filter, SummaryBy::Tag(tag(name)).into()).await.unwrap()
    };
    let by_session = sums("session", Vec::new()).await;
    let of_value = |value: &str| by_session.iter().find(|row| row.of == value).map_or(0, |row| row.requests);
    assert_eq!(by_session.iter().map(|row| row.requests).sum::<u64>(), COUNT + 301);
    assert_eq!((of_value(""), of_value("s0"), of_value("late")), (300, 1, 1));
    // The store in memory has separate sums for every value.
    let own = by_session.len() as u64 - u64::from(of_value(OTHER_VALUES_LABEL) > 0) - 1;
    assert!(own > 500 && own + of_value(OTHER_VALUES_LABEL) == COUNT + 1, "{own} values have sums");
    for (name, value) in [("session", "s3"), ("session", "s1199"), ("name0", "a"), ("name299", "a")] {
        let found = sums("session", vec![tagged(name, value)]).await;
        assert_eq!(found.iter().map(|row| row.requests).sum::<u64>(), 1, "{name}={value}");
        let page = store.usage.page(&UsageFilter { tags: vec![tagged(name, value)], ..UsageFilter::default() }).await.unwrap();
        assert_eq!((page.items.len(), page.items[0].tags.get(name)), (1, Some(value)), "{name}={value}");
    }
}

pub(super) async fn records_are_followed_in_booking_order(store: &Store) {
    let begin = store.usage.booked_after(None, 10).await.unwrap();
    assert!(begin.items.is_empty() && !begin.missed);
    // The second batch arrived before the first.
    let (late, early): (Vec<UsageRecord>, Vec<UsageRecord>) = ((20..25).map(record).collect(), (0..5).map(record).collect());
    store.usage.append(&late).await.unwrap();
    store.usage.append(&early).await.unwrap();
    let (mut at, mut found) = (begin.until, Vec::new());
    loop {
        let booked = store.usage.booked_after(Some(at), 3).await.unwrap();
        assert!(!booked.missed && booked.items.len() <= 3);
        assert_eq!(booked.items.last().map_or(at, |(position, _)| *position), booked.until);
        if booked.items.is_empty() {
            break;
        }
        at = booked.until;
        found.extend(booked.items.into_iter().map(|(_, record)| record));
    }
    assert_eq!(found, [late, early].concat());
    let beyond = LogPosition { batch: at.batch + 1_000, records: 0 };
    let lost = store.usage.booked_after(Some(beyond), 3).await.unwrap();
    assert!(lost.missed && lost.items.is_empty() && lost.until.batch == at.batch, "{lost:?}");
}

pub(super) async fn booking_order_of_old_batches_is_discarded(store: &Store) {
    store.usage.append(&[record(0)]).await.unwrap();
    let first = store.usage.booked_after(None, 1).await.unwrap().until;
    for number in 1..=10_001 {
        // In the store in memory every record is a batch.
        store.usage.append(&[record(number)]).await.unwrap();
        let booked = store.usage.booked_after(Some(first), 1).await.unwrap();
        if booked.missed {
            assert!(number > 256, "{number} batches ago");
            return;
        }
    }
    panic!("nothing is ever forgotten");
}

/// Requests of ten keys, in all months, in the month before that of `now`, on the days before it, and in its last hours and
/// minutes. The higher the number of a key, the earlier its last request.
fn of_keys_that_ended(now: Timestamp) -> Vec<UsageRecord> {
    const STEPS: [i64; 10] =
        [1, 7 * MINUTE, 50 * MINUTE, 5 * HOUR, DAY + 1, 3 * DAY, 11 * DAY, 29 * DAY + HOUR, 45 * DAY, 80 * DAY];
    let mut records = Vec::new();
    for (key, step) in STEPS.into_iter().enumerate() {
        for again in 0..3 {
            let made = record(u64::try_from(records.len()).unwrap());
            let name = if again == 0 && key % 2 == 0 { "renamed" } else { "ci" };
            let made = UsageRecord { key: key_number(key), key_name: name.into(), ..made };
            records.push(arrived(made, Timestamp(now.0 - step - again * 17 * DAY)));
        }
    }
    records
}

fn key_number(number: usize) -> KeyId {
    KeyId::from_parts(at(0), [u8::try_from(number).unwrap(); 10])
}

pub(super) async fn key_usage_matches_the_records(store: &Store) {
    let now = Timestamp(at(0).0 + 8 * HOUR + 13);
    let records = of_keys_that_ended(now);
    for batch in records.chunks(7) {
        store.usage.append(batch).await.unwrap();
    }
    let all: Vec<KeyId> = (0..11).rev().map(key_number).collect();
    let spans = [0, 2, 7 * MINUTE, 3 * HOUR, DAY, 4 * DAY, 20 * DAY, 30 * DAY, 46 * DAY, 90 * DAY, 400 * DAY];
    for (span, member) in spans.into_iter().flat_map(|span| [(span, None), (span, Some(records[1].member))]) {
        let filter = KeyUseFilter { member, since: Timestamp(now.0 - span) };
        let mut used: BTreeMap<KeyId, KeyUse> = BTreeMap::new();
        for record in &records {
            if record.at >= filter.since && member.is_none_or(|member| record.member == member) {
                let sum = used.entry(record.key).or_default();
                sum.requests += 1;
                sum.sale.0 += record.sale.map_or(0, |sale| sale.0);
            }
        }
        let of_all = store.usage.key_use(filter, None).await.unwrap();
        assert_eq!(of_all, used.iter().map(|(key, used)| (*key, *used)).collect::<Vec<_>>(), "{span} {member:?}");
        let some = [key_number(2), key_number(7), key_number(10)];
        let expected: Vec<_> = of_all.into_iter().filter(|(key, _)| some.contains(key)).collect();
        assert_eq!(store.usage.key_use(filter, Some(some.to_vec())).await.unwrap(), expected, "{span} {member:?}");

        let unused: Vec<KeyId> = all.iter().copied().filter(|key| !used.contains_key(key)).collect();
        assert_eq!(store.usage.unused_keys(filter, all.clone()).await.unwrap(), unused, "{span} {member:?}");
        let of_some = some.into_iter().filter(|key| !used.contains_key(key)).collect::<Vec<_>>();
        assert_eq!(store.usage.unused_keys(filter, some.to_vec()).await.unwrap(), of_some, "{span} {member:?}");
    }
    let filter = KeyUseFilter { member: None, since: Timestamp(0) };
    assert_eq!(store.usage.key_use(filter, Some(Vec::new())).await.unwrap(), []);
    assert_eq!(store.usage.unused_keys(filter, Vec::new()).await.unwrap(), []);
    let other = KeyUseFilter { member: Some(MemberId::from_parts(now, [9; 10])), ..filter };
    assert_eq!(store.usage.unused_keys(other, all.clone()).await.unwrap(), all);

    let mut last: BTreeMap<KeyId, LastUse> = BTreeMap::new();
    for record in &records {
        let of = LastUse { at: record.id.time(), address: record.address.as_deref().map(str::to_owned) };
        let known = last.entry(record.key).or_insert_with(|| of.clone());
        if known.at < of.at {
            *known = of;
        }
    }
    assert!(last.len() > 8, "{last:?}");
    assert_eq!(store.usage.last_use(all.clone()).await.unwrap(), last.clone().into_iter().collect::<Vec<_>>());
    let one = key_number(2);
    assert_eq!(store.usage.last_use(vec![one]).await.unwrap(), [(one, last[&one].clone())]);
    assert_eq!(store.usage.last_use(Vec::new()).await.unwrap(), []);
    let times = |last: Vec<(KeyId, Timestamp)>| last.into_iter().collect::<BTreeMap<_, _>>();
    let expected: BTreeMap<KeyId, Timestamp> = last.iter().map(|(key, last)| (*key, last.at)).collect();
    assert_eq!(times(store.usage.last_requests(all.clone(), usize::MAX).await.unwrap()), expected);
    assert_eq!(store.usage.last_requests(vec![one], 1).await.unwrap(), [(one, last[&one].at)]);
    assert_eq!(store.usage.last_requests(Vec::new(), 1).await.unwrap(), []);

    let mut of_members: BTreeMap<MemberId, Timestamp> = BTreeMap::new();
    for record in &records {
        let known = of_members.entry(record.member).or_insert(record.id.time());
        *known = record.id.time().max(*known);
    }
    assert!(of_members.len() > 1, "{of_members:?}");
    let without_requests = MemberId::from_parts(now, [9; 10]);
    let asked = of_members.keys().copied().chain([without_requests]).collect();
    let expected: Vec<_> = of_members.into_iter().collect();
    assert_eq!(store.usage.last_use_of_members(asked, usize::MAX).await.unwrap(), expected);
    assert_eq!(store.usage.last_use_of_members(vec![expected[1].0], 1).await.unwrap(), [expected[1]]);
    assert_eq!(store.usage.last_use_of_members(Vec::new(), 1).await.unwrap(), []);
}

pub(super) async fn largest_groups_and_member_filters_match_the_full_summary(store: &Store) {
    let records = of_keys_that_ended(at(0));
    store.usage.append(&records).await.unwrap();
    let all = UsageFilter::default();
    type Size = fn(&SummaryRow) -> u64;
    let sizes: [(SummaryFigure, Size); 5] = [
        (SummaryFigure::Requests, |row| row.requests),
        (SummaryFigure::Errors, SummaryRow::failed),
        (SummaryFigure::Tokens, |row| row.tokens_input + row.tokens_output),
        (SummaryFigure::Sale, |row| row.sale.0.unsigned_abs()),
        (SummaryFigure::Cost, |row| row.cost.0.unsigned_abs()),
    ];
    for (largest, size) in sizes {
        for (by, wanted) in
            [SummaryBy::Key, SummaryBy::Member, SummaryBy::Model].into_iter().flat_map(|by| [(by, 1), (by, 3), (by, 20)])
        {
            let by = Grouping { largest, ..by.into() };
            let first = async |by| {
                let Summary { mut rows, groups } = store.usage.counted_summary(&all, by).await.unwrap();
                rows.sort_by_key(|row| std::cmp::Reverse(size(row)));
                rows.truncate(wanted);
                (rows, groups)
            };
            assert_eq!(first(Grouping { wanted: u32::try_from(wanted).ok(), ..by }).await, first(by).await, "{by:?} {wanted}");
        }
    }
    let one = records[0].member;
    let of_one = UsageFilter { member: Some(one), ..UsageFilter::default() };
    let among = |members: Vec<MemberId>| UsageFilter { members, ..UsageFilter::default() };
    let unknown = MemberId::from_parts(at(0), [9; 10]);
    for by in
        [Grouping::from(SummaryBy::Member), Grouping::from(SummaryBy::Nothing), Grouping::pair(SummaryBy::Model, SummaryBy::Day)]
    {
        let sums = async |filter: UsageFilter| store.usage.summary(&filter, by).await.unwrap();
        assert_eq!(sums(among(vec![one, unknown])).await, sums(of_one.clone()).await);
        let total = |rows: Vec<SummaryRow>| rows.iter().map(|row| row.requests).sum::<u64>();
        assert_eq!(total(sums(among(vec![one, records[1].member])).await), total(sums(all.clone()).await));
        assert_eq!(sums(among(vec![unknown])).await, []);
        assert_eq!(sums(UsageFilter { members: vec![unknown], ..of_one.clone() }).await, []);
        let timed = sums(all.clone()).await.into_iter();
        let untimed: Vec<SummaryRow> =
            timed.map(|row| SummaryRow { sampled: 0, ttft: None, duration: None, overhead: None, ..row }).collect();
        assert_eq!(store.usage.summary(&all, by.without_times()).await.unwrap(), untimed);
    }
}
