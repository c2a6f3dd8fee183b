//! Fills a gateway's database with usage records in the batches of the usage writer, then times the queries of the console's
//! pages and charts, an export of everything, and its verification. The records are spread over 90 days, 200 keys, 50 members, 5 groups and 20 models. Nine of ten arrive at 300,000
//! an hour, from noon of every third day on, so that a range can begin and end in an hour of 300,000 (with ten million records).
//!
//! `usage-records FOLDER COUNT [DATABASE_URL]`: without a URL, the SQLite database in the folder. A database that already has
//! records is only queried. The last line is a JSON summary.
//!
//! `--keys COUNT` spreads the records over as many keys (200 unless said otherwise) and a quarter as many members, `--models COUNT` over
//! as many models (20 unless said otherwise).
//! `--batch RECORDS` changes the records per transaction. `--service` books records of one key and one model, as a gateway in service
//! may, and asks nothing; under callgrind it shows what a record costs.

#![expect(clippy::print_stdout, clippy::disallowed_methods, reason = "a bench prints, and reads the clock")]

use std::{
    pin::pin,
    sync::Arc,
    time::{Duration, Instant},
};

use futures_util::TryStreamExt as _;
use tokio_util::sync::CancellationToken;
use tollgate_bench::{id_bytes, usage_record};
use tollgate_console::{LineFormat, usage_lines};
use tollgate_core::{
    AccountId, AttemptRecord, AttemptResult, ChannelId, GroupId, KeyId, NanoUsd, Outcome, RequestId, Timestamp, TokenSource,
    Tokens, TraceEntry, UsageRecord,
};
use tollgate_protocol::Protocol;
use tollgate_store::{
    Grouping, RecordConditions, SortOrder, Store, StoreError, SummaryBy, TrafficWidth, UsageCursor, UsageFilter, WorkControl,
};

/// Keys, unless said otherwise.
const KEYS: u64 = 200;
/// Models, unless said otherwise. Each key uses a few kinds of them.
const MODELS: u64 = 20;
/// Records per transaction, unless said otherwise: as in the usage writer.
const BATCH: u64 = 4_096;
const USAGE: &str = "usage-records FOLDER COUNT [DATABASE_URL] [--keys COUNT] [--models COUNT] [--batch RECORDS] [--service]";
/// 2026-08-23T00:00:00Z, the time of the first record.
const BEGIN: i64 = 1_787_443_200_000_000;
const DAY: i64 = 86_400_000_000;
const DAYS: i64 = 90;
const HOUR: i64 = DAY / 24;
/// Days from one busy time to the next.
const BUSY_EVERY: i64 = 3;
const BUSY_TIMES: i64 = DAYS / BUSY_EVERY;
/// Records a busy hour, and at most in one busy time.
const BUSY_HOUR: i64 = 300_000;
/// Runs of each query; the slowest counts.
const RUNS: usize = 5;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments: Vec<String> = std::env::args().skip(1).collect();
    let service = arguments.iter().position(|argument| argument == "--service").map(|at| arguments.remove(at)).is_some();
    let keys = match arguments.iter().position(|argument| argument == "--keys") {
        Some(at) => arguments.drain(at..at + 2).nth(1).ok_or(USAGE)?.parse::<u64>()?.max(4),
        None => KEYS,
    };
    let models = match arguments.iter().position(|argument| argument == "--models") {
        Some(at) => arguments.drain(at..at + 2).nth(1).ok_or(USAGE)?.parse::<u64>()?.max(MODELS),
        None => MODELS,
    };
    let batch = match arguments.iter().position(|argument| argument == "--batch") {
        Some(at) => arguments.drain(at..at + 2).nth(1).ok_or(USAGE)?.parse()?,
        None => BATCH,
    };
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?.block_on(async {
        let end = Timestamp(BEGIN + DAYS * DAY);
        let (store, count) = tollgate_bench::open_database(USAGE, arguments.into_iter(), end).await?;
        if service {
            fill(&store, count, batch, service_record).await?;
            store.close().await;
            return Ok(());
        }
        let empty = store.usage.page(&UsageFilter::default()).await?.items.is_empty();
        let rate =
            if empty { Some(fill(&store, count, batch, |number| record(number, count, (keys, models))).await?) } else { None };
        let (page, chart, unaligned) = (time_pages(&store).await?, time_charts(&store).await?, time_unaligned(&store).await?);
        let grouped = time_groupings(&store).await?;
        let searched = time_searches(&store).await?;
        let square = time_square(&store, end).await?;
        let (csv, export) =
            (time_export(&store, count, LineFormat::Csv).await?, time_export(&store, count, LineFormat::Json).await?);
        let verified = time_verification(&store, count, end).await?;
        let ms = |took: Duration| took.as_secs_f64() * 1_000.0;
        // Closing moves the write-ahead log into the file.
        store.close().await;
        println!(
            "{}",
            serde_json::json!({
                "records": count, "per_second": rate, "page_ms": ms(page), "chart_ms": ms(chart), "unaligned_ms": ms(unaligned),
                "grouped_ms": ms(grouped), "searched_ms": ms(searched), "square_ms": ms(square),
                "exported_per_second": export, "exported_csv_per_second": csv, "verify_10_million_s": verified,
                "record_bytes": database_bytes().map(|bytes| bytes / count.max(1)),
            })
        );
        Ok(())
    })
}

/// The size of the SQLite database in the folder of the arguments.
fn database_bytes() -> Option<u64> {
    let path = std::path::Path::new(&std::env::args().nth(1)?).join("tollgate.db");
    std::fs::metadata(path).ok().map(|file| file.len())
}

/// Inserts all records in order of arrival. Returns records per second.
async fn fill(store: &Store, count: u64, batch: u64, record: impl Fn(u64) -> UsageRecord) -> Result<u64, StoreError> {
    for day in 0..DAYS {
        store.usage.create_partitions(at(day, 0), DAYS.unsigned_abs()).await?;
    }
    let begin = Instant::now();
    let (mut append_time, mut last) = (Duration::ZERO, Instant::now());
    for first in (0..count).step_by(usize::try_from(batch).unwrap_or(1)) {
        let records: Vec<UsageRecord> = (first..count.min(first + batch)).map(&record).collect();
        let started = Instant::now();
        store.usage.append(&records).await?;
        append_time += started.elapsed();
        if last.elapsed() > Duration::from_secs(20) {
            last = Instant::now();
            println!("  {} records, {} a second so far", first + batch, rate(first + batch, append_time));
        }
    }
    println!("inserted {count} records in {:.1?}: {} a second", begin.elapsed(), rate(count, append_time));
    Ok(rate(count, append_time))
}

fn rate(count: u64, took: Duration) -> u64 {
    u64::try_from(u128::from(count) * 1_000_000 / took.as_micros().max(1)).unwrap_or(u64::MAX)
}

const fn at(day: i64, more: i64) -> Timestamp {
    Timestamp(BEGIN + day * DAY + more)
}

/// The slowest page.
async fn time_pages(store: &Store) -> Result<Duration, StoreError> {
    let deep = UsageFilter { limit: 100, since: None, until: Some(at(40, 12_345_678)), ..UsageFilter::default() };
    let after = store.usage.page(&deep).await?.items.last().map(|record| UsageCursor(record.id));
    let page = UsageFilter { limit: 100, ..UsageFilter::default() };
    let pages: [(&str, UsageFilter); 7] = [
        ("newest page", page.clone()),
        ("page in the middle", UsageFilter { after, ..page.clone() }),
        ("oldest page", UsageFilter { order: SortOrder::Oldest, ..page.clone() }),
        ("page of a key", UsageFilter { key: Some(key(7)), ..page.clone() }),
        (
            "page of a group in a day",
            UsageFilter { group: Some(group(3)), since: Some(at(20, 0)), until: Some(at(21, 0)), ..page.clone() },
        ),
        ("page of a model", UsageFilter { model: Some("model-11".to_owned()), ..page.clone() }),
        ("page of what the upstream broke", UsageFilter { outcome: Some(Outcome::UpstreamBroke), ..page }),
    ];
    let mut longest = Duration::ZERO;
    for (what, filter) in pages {
        longest = longest.max(slowest(what, async || Ok(store.usage.page(&filter).await?.items.len())).await?);
    }
    Ok(longest)
}

/// The slowest sum over whole days, or over days and hours.
async fn time_charts(store: &Store) -> Result<Duration, StoreError> {
    let all = UsageFilter::default();
    let month = UsageFilter { since: Some(at(45, 1_234_567)), until: Some(at(75, 7_654_321)), ..UsageFilter::default() };
    let charts: [(&str, UsageFilter, SummaryBy); 7] = [
        ("all of it", all.clone(), SummaryBy::Nothing),
        ("all by day", all.clone(), SummaryBy::Day),
        ("all by model", all.clone(), SummaryBy::Model),
        ("all by key", all.clone(), SummaryBy::Key),
        ("all by outcome", all, SummaryBy::Outcome),
        ("thirty days from one minute to another, by group", month.clone(), SummaryBy::Group),
        ("one key's thirty days by day", UsageFilter { key: Some(key(7)), ..month }, SummaryBy::Day),
    ];
    let mut longest = Duration::ZERO;
    for (what, filter, by) in charts {
        longest = longest.max(slowest(what, async || Ok(store.usage.summary(&filter, by.into()).await?.len())).await?);
    }
    Ok(longest)
}

/// The slowest sum over a range that begins and ends within five minutes of a busy hour.
async fn time_unaligned(store: &Store) -> Result<Duration, StoreError> {
    const SECOND: i64 = 1_000_000;
    let noon = |busy_time: i64, seconds: i64| at(busy_time * BUSY_EVERY, 12 * HOUR + seconds * SECOND);
    let ranges = [
        ("ten minutes but two seconds", noon(15, 1), noon(15, 599)),
        ("an hour but two seconds", noon(15, 1), noon(15, 3_599)),
        ("a busy hour to the next", noon(15, 1), noon(16, 3_599)),
        ("a month from one busy hour to another", noon(15, 1), noon(25, 3_599)),
        ("all of it from one busy hour to another", noon(0, 1), noon(BUSY_TIMES - 1, 3_599)),
    ];
    let any = UsageFilter::default();
    let filters = [
        ("", any.clone(), SummaryBy::Nothing),
        (", by day", any.clone(), SummaryBy::Day),
        (", by model", any.clone(), SummaryBy::Model),
        (", by key", any.clone(), SummaryBy::Key),
        (", by group", any.clone(), SummaryBy::Group),
        (", by outcome", any.clone(), SummaryBy::Outcome),
        (", of a key by day", UsageFilter { key: Some(key(7)), ..any.clone() }, SummaryBy::Day),
        (", of a model by key", UsageFilter { model: Some("model-11".to_owned()), ..any.clone() }, SummaryBy::Key),
        (", of a group by model", UsageFilter { group: Some(group(3)), ..any.clone() }, SummaryBy::Model),
        (", of the completed by day", UsageFilter { outcome: Some(Outcome::Completed), ..any }, SummaryBy::Day),
    ];
    let mut longest = Duration::ZERO;
    for (range, since, until) in ranges {
        for (what, filter, by) in &filters {
            let filter = UsageFilter { since: Some(since), until: Some(until), ..filter.clone() };
            let what = format!("{range}{what}");
            longest = longest.max(slowest(&what, async || Ok(store.usage.summary(&filter, (*by).into()).await?.len())).await?);
        }
    }
    let filter = UsageFilter { since: Some(noon(15, 1)), until: Some(noon(25, 3_599)), ..UsageFilter::default() };
    let hours = async || Ok(store.usage.summary(&filter, SummaryBy::Hour.into()).await?.len());
    Ok(longest.max(slowest("a month from one busy hour to another, by hour", hours).await?))
}

/// The slowest sum by one or two groupings: over everything, over a month that begins and ends in busy hours, and as a histogram.
async fn time_groupings(store: &Store) -> Result<Duration, StoreError> {
    const SECOND: i64 = 1_000_000;
    let noon = |busy_time: i64, seconds: i64| at(busy_time * BUSY_EVERY, 12 * HOUR + seconds * SECOND);
    let all = UsageFilter::default();
    let month = UsageFilter { since: Some(noon(15, 1)), until: Some(noon(25, 3_599)), ..UsageFilter::default() };
    let week = UsageFilter { since: Some(at(50, 0)), until: Some(at(57, 0)), ..UsageFilter::default() };
    use SummaryBy::{
        Account, Channel, Day, FiveMinutes, Group, Hour, Key, Member, Model, Month, Nothing, Outcome, Protocol, Reason,
    };
    let singles = [Nothing, Month, Day, Model, Key, Member, Group, Channel, Account, Protocol, Outcome, Reason];
    let pairs = [
        (Model, Day),
        (Channel, Outcome),
        (Account, Day),
        (Account, Reason),
        (Member, Model),
        (Key, Day),
        (Key, Model),
        (Key, Outcome),
        (Group, Month),
        (Protocol, Model),
    ];
    let groupings = singles.map(Grouping::from).into_iter().chain(pairs.map(|(first, second)| Grouping::pair(first, second)));
    let mut longest = Duration::ZERO;
    let mut time = async |what: String, filter: &UsageFilter, by: Grouping| {
        let took = slowest(&what, async || Ok(store.usage.summary(filter, by).await?.len())).await?;
        longest = longest.max(took);
        Ok::<(), StoreError>(())
    };
    for by in groupings {
        time(format!("all by {:?} and {:?}", by.first, by.second), &all, by).await?;
        time(format!("a month by {:?} and {:?}", by.first, by.second), &month, by).await?;
    }
    let account = UsageFilter { account: Some(account(5)), ..month.clone() };
    time("a month of an account by model".to_owned(), &account, Model.into()).await?;
    let of_key = UsageFilter { key: Some(key(7)), ..month };
    time("a month of a key by account".to_owned(), &of_key, Account.into()).await?;
    time("histogram of a week by hour".to_owned(), &week, Grouping::pair(Hour, Outcome)).await?;
    let busy = UsageFilter { since: Some(noon(15, 0)), until: Some(noon(15, 3 * 3_600)), ..UsageFilter::default() };
    time("histogram of three hours by five minutes".to_owned(), &busy, Grouping::pair(FiveMinutes, Outcome)).await?;
    Ok(longest)
}

/// The slowest page of a filter that sums do not answer.
async fn time_searches(store: &Store) -> Result<Duration, StoreError> {
    let of = |conditions: RecordConditions| UsageFilter { limit: 100, conditions, ..UsageFilter::default() };
    let none = RecordConditions::default;
    let searches = [
        ("page of a channel", UsageFilter { limit: 100, channel: Some(channel(1)), ..UsageFilter::default() }),
        ("page of an account", UsageFilter { limit: 100, account: Some(account(5)), ..UsageFilter::default() }),
        ("page of streams", of(RecordConditions { stream: Some(true), ..none() })),
        ("page of dear requests", of(RecordConditions { min_cost: Some(NanoUsd(1_990)), ..none() })),
        ("page of a status that none has", of(RecordConditions { status: Some((400, 499)), ..none() })),
        ("page of long requests that there are not", of(RecordConditions { min_duration_us: Some(60_000_000), ..none() })),
        ("page of an id that none has", of(RecordConditions { client_request_id: Some("none".to_owned()), ..none() })),
        ("page of an address", of(RecordConditions { address: Some("10.0.0.1".to_owned()), ..none() })),
    ];
    let mut longest = Duration::ZERO;
    for (what, filter) in searches {
        longest = longest.max(slowest(what, async || Ok(store.usage.page(&filter).await?.items.len())).await?);
    }
    Ok(longest)
}

/// The traffic of the model square: of the last 24 hours and of the last 7 days, together.
async fn time_square(store: &Store, end: Timestamp) -> Result<Duration, StoreError> {
    let last = end.plus_ms(-1);
    let (day, week) = (TrafficWidth::Hour.bucket(last, 23), TrafficWidth::Day.bucket(last, 6));
    slowest("traffic of the model square", async || {
        let of_day = store.square.offer_traffic(day, TrafficWidth::Hour).await?.len();
        Ok(of_day + store.square.offer_traffic(week, TrafficWidth::Day).await?.len())
    })
    .await
}

/// Exports all records as the admin API does. Returns records per second.
async fn time_export(store: &Store, count: u64, format: LineFormat) -> Result<u64, StoreError> {
    let usage = Arc::clone(&store.usage);
    let read = move |filter: UsageFilter| {
        let usage = Arc::clone(&usage);
        async move { usage.page(&filter).await }
    };
    let started = Instant::now();
    let (mut exported, mut bytes) = (0, 0);
    let mut lines = pin!(usage_lines(UsageFilter::default(), format, read));
    while let Some(block) = lines.try_next().await? {
        exported += block.split(|byte| *byte == b'\n').count().saturating_sub(1) as u64;
        bytes += block.len();
    }
    let heading = u64::from(format == LineFormat::Csv);
    assert_eq!(exported, count + heading, "lines exported");
    println!("exported {count} records as {format:?}, {bytes} bytes, in {:.1?}", started.elapsed());
    Ok(rate(count, started.elapsed()))
}

/// Verifies everything. Returns the seconds that it takes for each ten million records.
async fn time_verification(store: &Store, count: u64, now: Timestamp) -> Result<f64, StoreError> {
    let started = Instant::now();
    let step = std::sync::Mutex::new(started);
    let control = WorkControl::new(CancellationToken::new(), move |progress| {
        let mut step = step.lock().expect("nothing panics while it holds this lock");
        println!("  step {} after {:.1?}", progress.done, step.elapsed());
        *step = Instant::now();
    });
    let report = store.ledger.verify(now, &control).await?;
    let took = started.elapsed();
    assert!(report.agrees() && report.records == count, "{} of {count} records agree", report.records);
    println!("verified {count} records in {took:.1?}");
    Ok(took.as_secs_f64() * 10_000_000.0 / f64::from(u32::try_from(count).unwrap_or(u32::MAX)))
}

/// Runs a query that returns a number of rows several times.
async fn slowest(what: &str, query: impl AsyncFn() -> Result<usize, StoreError>) -> Result<Duration, StoreError> {
    let (mut slowest, mut rows) = (Duration::ZERO, 0);
    for _ in 0..RUNS {
        let started = Instant::now();
        rows = query().await?;
        slowest = slowest.max(started.elapsed());
    }
    println!("{what}: {rows} rows, at most {slowest:.1?}");
    Ok(slowest)
}

fn key(number: u64) -> KeyId {
    KeyId::from_parts(Timestamp(BEGIN), id_bytes(number))
}

fn account(number: u64) -> AccountId {
    AccountId::from_parts(Timestamp(BEGIN), id_bytes(number))
}

fn channel(number: u64) -> ChannelId {
    ChannelId::from_parts(Timestamp(BEGIN), id_bytes(number))
}

fn group(number: u64) -> GroupId {
    GroupId::from_parts(Timestamp(BEGIN), id_bytes(number))
}

/// When record `number` of `count` arrives. Nine of ten records of three days, at most [`BUSY_HOUR`], arrive from the first noon on at
/// [`BUSY_HOUR`] an hour. The others are spread evenly over the time before and after.
fn arrival(number: u64, count: u64) -> Timestamp {
    let narrow = |number: u64| i64::try_from(number).unwrap_or(0);
    let each = narrow(count.div_ceil(BUSY_TIMES.unsigned_abs())).max(1);
    let (busy_time, within) = (narrow(number) / each, narrow(number) % each);
    let busy = (each * 9 / 10).min(BUSY_HOUR);
    let before = (each - busy) / 6;
    let after = each - busy - before;
    let (noon, evening) = (12 * HOUR, 13 * HOUR);
    let at = if within < before {
        within * noon / before
    } else if within < before + busy {
        noon + (within - before) * (HOUR / BUSY_HOUR)
    } else {
        evening + (within - before - busy) * ((BUSY_EVERY * DAY - evening) / after)
    };
    Timestamp(BEGIN + busy_time * BUSY_EVERY * DAY + at)
}

/// A completed request of the only key, which arrives 12 ms after the one before.
fn service_record(number: u64) -> UsageRecord {
    let at = Timestamp(BEGIN + i64::try_from(number).unwrap_or(0) * (HOUR / BUSY_HOUR));
    let like = record(1, 1, (KEYS, MODELS));
    let attempt = AttemptRecord { at, duration_us: 1_990_000 + number % 1_000, ..like.attempts[0].clone() };
    let trace = TraceEntry {
        channel: attempt.channel_name.clone(),
        account: Some(attempt.account_name.clone()),
        code: "planned".into(),
        detail: None,
    };
    UsageRecord {
        id: RequestId::from_parts(at, id_bytes(number)),
        at,
        outcome: Outcome::Completed,
        duration_us: 2_000_000 + number % 1_000,
        trace: vec![trace],
        attempts: vec![attempt],
        ..like
    }
}

/// Record `number` of `count`, of one of `keys` keys and `models` models.
fn record(number: u64, count: u64, (keys, models): (u64, u64)) -> UsageRecord {
    let at = arrival(number, count);
    // Keys are in no particular order, and each uses a few models.
    let hash = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
    let (caller, model) = (hash % keys, hash % keys / (keys / 4) % 4 * 5 + hash / keys % 5);
    let cost = NanoUsd(1_000 + i64::try_from(hash % 1_000).unwrap_or(0));
    let outcome = match hash % 1_000 {
        0..5 => Outcome::UpstreamBroke,
        5..10 => Outcome::CallerLeft,
        10..20 => Outcome::Refused,
        _ => Outcome::Completed,
    };
    let tokens = Tokens { input: 800, output: 200, source: TokenSource::Provider, ..Tokens::default() };
    UsageRecord {
        protocol_out: Some(Protocol::OpenAi),
        model: Some(format!("model-{}", model + hash / keys / 5 % (models / MODELS) * MODELS)),
        stream: number.is_multiple_of(2),
        outcome,
        tokens,
        cost: Some(cost),
        sale: Some(NanoUsd(cost.0 * 2)),
        ttft_us: Some(250_000),
        duration_us: 2_000_000,
        address: Some("10.0.0.1".to_owned()),
        attempts: vec![AttemptRecord {
            channel: channel(model % 4),
            channel_name: format!("channel {}", model % 4),
            account: account(hash % 12),
            account_name: format!("account {}", hash % 12),
            protocol: Protocol::OpenAi,
            upstream_model: format!("upstream-{model}"),
            at,
            status: Some(200),
            result: AttemptResult::Answered,
            error: None,
            tokens,
            cost: Some(cost),
            first_byte_us: Some(240_000),
            duration_us: 1_990_000,
            upstream_request_id: None,
            hedged: false,
        }],
        ..usage_record(Timestamp(BEGIN), RequestId::from_parts(at, id_bytes(number)), at, [caller, caller % (keys / 4), caller % 5])
    }
}
