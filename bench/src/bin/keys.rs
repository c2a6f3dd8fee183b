//! Fills a gateway's database with keys that all spent something, then measures a node's work with them: loading the spending at
//! startup, counting, looking up keys, and reading changes. Prints durations and resident memory.
//!
//! `keys FOLDER COUNT [DATABASE_URL]`: without a URL, the SQLite database in the folder. A database that already has records is
//! only measured.

#![expect(clippy::print_stdout, clippy::disallowed_methods, reason = "a bench prints, and reads the clock")]

use std::time::{Duration, Instant};

use tollgate_bench::{id_bytes, usage_record};
use tollgate_core::{KeyId, RequestId, Secret, Subject, Timestamp, UsageRecord, Window};
use tollgate_store::{Actor, Change, ChangeOrigin, KeySpec, MemberSpec, RandomSource, Store, UsageFilter};

/// Records per transaction.
const BATCH: u64 = 1_000;
/// 2026-11-21T12:00:00Z.
const NOW: Timestamp = Timestamp(1_795_262_400_000_000);
/// Number of key lookups and of spending queries.
const LOOKUPS: u64 = 10_000;
/// Number of keys that spend again.
const CHANGED: u64 = 10_000;
/// Keys per member.
const KEYS_PER_MEMBER: u64 = 100;

type BoxError = Box<dyn std::error::Error>;

fn main() -> Result<(), BoxError> {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?.block_on(async {
        let (store, count) =
            tollgate_bench::open_database("keys FOLDER COUNT [DATABASE_URL]", std::env::args().skip(1), NOW).await?;
        if store.usage.page(&UsageFilter::default()).await?.items.is_empty() {
            fill(&store, count).await?;
            println!("filled; run this again to measure with fresh memory");
        } else {
            measure(&store, count).await?;
        }
        store.close().await;
        Ok(())
    })
}

/// Creates the keys and adds one usage record for each.
async fn fill(store: &Store, count: u64) -> Result<(), BoxError> {
    let actor = Actor { origin: ChangeOrigin::Cli, name: "bench".to_owned(), address: None };
    let begin = Instant::now();
    for member in 0..count.div_ceil(KEYS_PER_MEMBER) {
        let mut changes = vec![Change::PutMember(Box::new(MemberSpec { name: member_name(member), ..MemberSpec::default() }))];
        for number in member * KEYS_PER_MEMBER..count.min((member + 1) * KEYS_PER_MEMBER) {
            let spec = KeySpec { name: format!("key {number}"), member: member_name(member), ..KeySpec::default() };
            let secret = store.hasher.import(&Secret::new(secret(number)))?;
            changes.push(Change::PutKey { key: Box::new(spec), secret: Some(secret) });
        }
        store.catalog.apply(&changes, &actor, NOW).await?;
    }
    println!("created {count} keys in {:.1?}", begin.elapsed());
    let begin = Instant::now();
    store.usage.create_partitions(NOW, 0).await?;
    for first in (0..count).step_by(usize::try_from(BATCH)?) {
        let records: Vec<UsageRecord> = (first..count.min(first + BATCH)).map(|number| record(number, number)).collect();
        store.usage.append(&records).await?;
    }
    println!("inserted one record each in {:.1?}", begin.elapsed());
    Ok(())
}

async fn measure(store: &Store, count: u64) -> Result<(), BoxError> {
    println!("memory before: {}", memory()?);
    let started = Instant::now();
    let (counters, position) = store.counters(NOW, Duration::from_mins(11)).await?;
    println!("counters with the spending of {count} keys: {:.2?}, {}", started.elapsed(), memory()?);
    let mut slowest = Duration::ZERO;
    let begin = Instant::now();
    for number in 0..LOOKUPS {
        let started = Instant::now();
        let of = number.wrapping_mul(7_919) % count;
        let hash = store.hasher.import(&Secret::new(secret(of)))?.hash;
        let found = store.keys.find(&hash).await?;
        assert!(found.is_some(), "key {of} is there");
        slowest = slowest.max(started.elapsed());
    }
    let each = begin.elapsed() / u32::try_from(LOOKUPS)?;
    println!("looking up one key of {count} in the database: {each:.1?} on average, at most {slowest:.1?}; {}", memory()?);
    let begin = Instant::now();
    let spent: i64 = (0..LOOKUPS).map(|number| counters.spent(Subject::Key(key(number % count)), Window::Month, NOW).0).sum();
    println!("reading the counters {LOOKUPS} times: {:.2?}, {spent} nano-USD", begin.elapsed());

    // Add spending for some of the keys.
    let changed = CHANGED.min(count);
    let id_base: [u8; 8] = RandomSource::system().bytes();
    for first in (0..changed).step_by(usize::try_from(BATCH)?) {
        let last = changed.min(first + BATCH);
        let records: Vec<UsageRecord> =
            (first..last).map(|number| record(u64::from_be_bytes(id_base).wrapping_add(number), number)).collect();
        store.usage.append(&records).await?;
    }
    let (begin, mut from, mut subjects, mut slowest) = (Instant::now(), position, 0, Duration::ZERO);
    loop {
        let started = Instant::now();
        let page = store.ledger.spending_since(from, NOW).await?;
        slowest = slowest.max(started.elapsed());
        subjects += page.spent.len() + page.added.len();
        from = page.until;
        if page.until >= page.ledger {
            break;
        }
    }
    println!(
        "changes of {changed} keys: {subjects} sums in {:.2?}, the slowest page {slowest:.2?}; {}",
        begin.elapsed(),
        memory()?
    );
    Ok(())
}

/// Current and peak resident memory of this process.
fn memory() -> Result<String, BoxError> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let mib = |name: &str| -> Option<u64> {
        let line = status.lines().find(|line| line.starts_with(name))?;
        Some(line.split_whitespace().nth(1)?.parse::<u64>().ok()? / 1_024)
    };
    Ok(format!("{} MiB resident, at most {} MiB so far", mib("VmRSS").unwrap_or(0), mib("VmHWM").unwrap_or(0)))
}

fn key(number: u64) -> KeyId {
    KeyId::from_parts(NOW, id_bytes(number))
}

fn member_name(number: u64) -> String {
    format!("member {number}")
}

fn secret(number: u64) -> String {
    format!("bench-key-{number:016}-0123456789")
}

/// The usage record of a request. Its key id is derived from the number and differs from that of the key's row.
fn record(id: u64, of: u64) -> UsageRecord {
    usage_record(NOW, RequestId::from_parts(NOW, id_bytes(id)), NOW, [of, of / KEYS_PER_MEMBER, 1])
}
