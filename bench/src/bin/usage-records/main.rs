//! Fills a gateway's database with usage records in the batches of the usage writer, then times the queries of the console's
//! pages and charts, an export of everything, and its verification. The records are spread over 90 days, 200 keys, 50 members, 5 groups
//! and 20 models. Nine of ten arrive at 300,000 an hour, from noon of every third day on, so that a range can begin and end in an hour
//! of 300,000 (with ten million records).
//!
//! `usage-records FOLDER COUNT [DATABASE_URL]`: without a URL, the SQLite database in the folder. A database that already has
//! records is only queried. The last line is a JSON summary.
//!
//! `--keys COUNT` spreads the records over as many keys (200 unless said otherwise) and a quarter as many members, `--models COUNT` over
//! as many models (20 unless said otherwise).
//! `--rows` makes rows of these keys and members, so that a gateway on the database has names for them.
//! `--tags` gives half of them a tag with fifty values, and a tenth a tag with a value of its own.
//! `--batch RECORDS` changes the records per transaction. `--service` only books records of one key and one model, as a gateway in
//! service may, and runs no queries; under callgrind it shows the cost of a record. `--brief` exports and verifies nothing.

#![expect(clippy::print_stdout, clippy::disallowed_methods, reason = "a bench prints, and reads the clock")]

mod data;
mod questions;
mod rows;

use std::{
    pin::pin,
    sync::Arc,
    time::{Duration, Instant},
};

use futures_util::TryStreamExt as _;
use tokio_util::sync::CancellationToken;
use tollgate_console::{ExportFormat, ExportView, export_usage};
use tollgate_core::{Timestamp, UsageRecord};
use tollgate_store::{Store, StoreError, UsageFilter, WorkControl};

use data::{BEGIN, DAY, DAYS, KEYS, MODELS, Shape, at, record, service_record};

const USAGE: &str = "usage-records FOLDER COUNT [DATABASE_URL] [--keys COUNT] [--models COUNT] [--rows] [--tags] [--batch RECORDS] [--service] [--brief]";

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments: Vec<String> = std::env::args().skip(1).collect();
    let mut flag = |name: &str| arguments.iter().position(|argument| argument == name).map(|at| arguments.remove(at)).is_some();
    let (service, tags, has_rows, brief) = (flag("--service"), flag("--tags"), flag("--rows"), flag("--brief"));
    let keys = match arguments.iter().position(|argument| argument == "--keys") {
        Some(at) => arguments.drain(at..at + 2).nth(1).ok_or(USAGE)?.parse::<u64>()?.max(4),
        None => KEYS,
    };
    let models = match arguments.iter().position(|argument| argument == "--models") {
        Some(at) => arguments.drain(at..at + 2).nth(1).ok_or(USAGE)?.parse::<u64>()?.max(MODELS),
        None => MODELS,
    };
    let batch = match arguments.iter().position(|argument| argument == "--batch") {
        Some(at) => Some(arguments.drain(at..at + 2).nth(1).ok_or(USAGE)?.parse::<u64>()?),
        None => None,
    };
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?.block_on(async {
        let end = Timestamp(BEGIN + DAYS * DAY);
        let (store, count) = tollgate_bench::open_database(USAGE, arguments.into_iter(), end).await?;
        // As the usage writer does, unless said otherwise.
        let batch = batch.unwrap_or(u64::try_from(store.usage.batch_size())?);
        if service {
            fill(&store, count, batch, service_record).await?;
            store.close().await;
            return Ok(());
        }
        if has_rows {
            rows::prepare(&store, keys).await?;
        }
        let empty = store.usage.page(&UsageFilter::default()).await?.items.is_empty();
        let rate = if empty {
            Some(fill(&store, count, batch, |number| record(number, Shape { count, keys, models, tags })).await?)
        } else {
            None
        };
        let (page, chart) = (questions::time_pages(&store).await?, questions::time_charts(&store).await?);
        let (unaligned, grouped) = (questions::time_unaligned(&store).await?, questions::time_groupings(&store, tags).await?);
        let (filtered, searched) = (questions::time_filters(&store, tags).await?, questions::time_searches(&store).await?);
        let square = questions::time_square(&store, end).await?;
        if brief {
            store.close().await;
            return Ok(());
        }
        let (csv, export) =
            (time_export(&store, count, ExportFormat::Csv).await?, time_export(&store, count, ExportFormat::JsonLines).await?);
        let verified = time_verification(&store, count, end).await?;
        let ms = |took: Duration| took.as_secs_f64() * 1_000.0;
        // Closing moves the write-ahead log into the file.
        store.close().await;
        println!(
            "{}",
            serde_json::json!({
                "records": count, "per_second": rate, "page_ms": ms(page), "chart_ms": ms(chart), "unaligned_ms": ms(unaligned),
                "grouped_ms": ms(grouped), "filtered_ms": ms(filtered), "searched_ms": ms(searched), "square_ms": ms(square),
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

/// Exports all records as the admin API does. Returns records per second.
async fn time_export(store: &Store, count: u64, format: ExportFormat) -> Result<u64, StoreError> {
    let usage = Arc::clone(&store.usage);
    let read = move |filter: UsageFilter| {
        let usage = Arc::clone(&usage);
        async move { usage.page(&filter).await }
    };
    let started = Instant::now();
    let (mut exported, mut bytes) = (0, 0);
    let mut lines = pin!(export_usage(UsageFilter::default(), format, ExportView::Operator, read));
    while let Some(block) = lines.try_next().await? {
        exported += block.split(|byte| *byte == b'\n').count().saturating_sub(1) as u64;
        bytes += block.len();
    }
    let heading = u64::from(format == ExportFormat::Csv);
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
