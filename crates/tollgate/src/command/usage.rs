//! `usage tail|list|show|summary|export`: the usage log.

mod filter;
mod summary;

use std::{
    collections::{HashSet, VecDeque},
    time::Duration,
};

use http::Method;
use serde_json::Value;
use tollgate_core::{RequestId, Timestamp, UsageRecord};

use crate::{
    admin::{self, Admin, ApiPath},
    cli::{Common, Usage, UsageFilter as FilterArgs},
    command::time_flag,
    failure::Failure,
    output, usage_format,
};
pub(crate) use filter::parse_records;
use filter::{with_filter, with_ids};

/// Interval of queries with `--follow`.
const POLL_INTERVAL: Duration = Duration::from_millis(500);
/// Records per query with `--follow`, newest first. Records are ordered by arrival but appear when the request ends: older pages are
/// read while a page has new records, so bursts are complete. A long request is shown if at most this many requests that arrived
/// after it have been printed.
const WINDOW: usize = 500;
/// Ids of printed records kept in memory.
const MAX_REMEMBERED: usize = 20_000;
/// New records printed per query.
const MAX_NEW: usize = MAX_REMEMBERED / 2;

pub(crate) fn run(common: &Common, subcommand: Usage) -> Result<(), Failure> {
    admin::run(common, async |admin| match subcommand {
        Usage::Tail { follow, lines, filter } => tail(common, admin, &filter, lines as usize, follow).await,
        Usage::Show { id } => super::usage_show::show(common, admin, &id).await,
        Usage::List { limit, after, filter } => list(common, admin, &filter, limit, after.as_deref()).await,
        Usage::Summary { by, previous, sort, rows, filter } => {
            summary::summary(common, admin, &filter, &summary::Wanted { by, previous, sort, rows }).await
        }
        Usage::Export { filter } => export(common, admin, &filter).await,
    })
}

/// Pages that `tail` reads to find the newest records of a rare filter.
const MAX_SEARCHED_PAGES: usize = 20;

/// Records already printed with `--follow`; the oldest are evicted first.
#[derive(Default)]
struct PrintedRecords {
    order: VecDeque<String>,
    ids: HashSet<String>,
    /// Set if older records exist that were not read at the beginning: arrival of the oldest record read, and latest end of those
    /// read. Records before both are old.
    unread_before: Option<(Timestamp, Timestamp)>,
}

impl PrintedRecords {
    /// Sets the initial records, newest first; `complete` if there are no older ones.
    fn begin(&mut self, records: &[Value], complete: bool) {
        for record in records.iter().rev() {
            self.add(record);
        }
        let oldest = records.last().and_then(arrived);
        let newest_end = records.iter().filter_map(ended).max();
        self.unread_before = oldest.zip(newest_end).filter(|_| !complete);
    }

    /// Whether the record existed at the beginning but was not read.
    fn is_old(&self, record: &Value) -> bool {
        let times = self.unread_before.zip(arrived(record)).zip(ended(record));
        times.is_some_and(|(((oldest, newest_end), arrived), ended)| arrived <= oldest && ended <= newest_end)
    }

    /// Adds a record; returns whether it is new.
    fn add(&mut self, record: &Value) -> bool {
        let id = record["id"].as_str().unwrap_or_default().to_owned();
        if self.is_old(record) || !self.ids.insert(id.clone()) {
            return false;
        }
        self.order.push_back(id);
        if self.order.len() > MAX_REMEMBERED
            && let Some(oldest) = self.order.pop_front()
        {
            self.ids.remove(&oldest);
        }
        true
    }
}

fn arrived(record: &Value) -> Option<Timestamp> {
    time_flag::parse("at", record["at"].as_str()?).ok()
}

fn ended(record: &Value) -> Option<Timestamp> {
    Some(Timestamp(arrived(record)?.0.saturating_add(record["duration_us"].as_i64()?)))
}

async fn tail(common: &Common, admin: &Admin, args: &FilterArgs, lines: usize, follow: bool) -> Result<(), Failure> {
    let target = with_filter(ApiPath::of(&["usage"]), args)?;
    // With --follow, read a full window first, so that none of its records seem new later.
    let count = if follow { lines.max(WINDOW) } else { lines };
    let mut records = newest(admin, &target, count).await?;
    let mut printed = PrintedRecords::default();
    printed.begin(&records, records.len() < count);
    records.truncate(lines);
    records.reverse();
    if !print_records(common, &records, true) || !follow {
        return Ok(());
    }
    loop {
        tokio::time::sleep(POLL_INTERVAL).await;
        let page = async |after: Option<String>| -> Result<_, Failure> {
            let page = target.clone().with("limit", &WINDOW.to_string()).maybe("after", after.as_deref());
            Ok(admin.page(&page).await?)
        };
        if !print_records(common, &unseen(page, &mut printed).await?, false) {
            return Ok(());
        }
    }
}

/// Prints one page.
async fn list(common: &Common, admin: &Admin, args: &FilterArgs, limit: u32, after: Option<&str>) -> Result<(), Failure> {
    let target = with_filter(ApiPath::of(&["usage"]), args)?.with("limit", &limit.to_string()).maybe("after", after);
    let page = admin.get(&target).await?;
    let records: Vec<Value> = page["items"].as_array().into_iter().flatten().cloned().collect();
    if print_records(common, &records, true)
        && let Some(next) = page["next"].as_str()
    {
        let searched =
            page["searched_until"].as_str().map_or_else(String::new, |time| format!("; records since {time} were searched"));
        output::remark(&format!("more with --after {next}{searched}"));
    }
    Ok(())
}

/// The newest records. A rare filter needs several pages, because a page ends early when it has read many records; the last time it
/// searched is printed if all of them were not enough.
async fn newest(admin: &Admin, target: &ApiPath, count: usize) -> Result<Vec<Value>, Failure> {
    let (mut records, mut after, mut searched) = (Vec::new(), None::<String>, None::<String>);
    for _ in 0..MAX_SEARCHED_PAGES {
        let limit = (count - records.len()).to_string();
        let page = admin.get(&target.clone().with("limit", &limit).maybe("after", after.as_deref())).await?;
        records.extend(page["items"].as_array().into_iter().flatten().cloned());
        after = page["next"].as_str().map(str::to_owned);
        if after.is_none() || records.len() >= count {
            return Ok(records);
        }
        let Some(time) = page["searched_until"].as_str() else { return Ok(records) };
        searched = Some(time.to_owned());
    }
    if let Some(time) = searched {
        output::remark(&format!("older records than {time} were not searched: set --until {time} to go on"));
    }
    Ok(records)
}

/// Records not printed yet, oldest first. `page` returns a page, newest first, and the next cursor; older pages are read while a
/// page has new records.
async fn unseen(
    page: impl AsyncFn(Option<String>) -> Result<(Vec<Value>, Option<String>), Failure>,
    printed: &mut PrintedRecords,
) -> Result<Vec<Value>, Failure> {
    let (mut new, mut after) = (Vec::new(), None);
    loop {
        let (items, next) = page(after).await?;
        let before = new.len();
        new.extend(items.into_iter().filter(|record| printed.add(record)));
        after = next;
        if after.is_none() || new.len() == before || new.len() >= MAX_NEW {
            break;
        }
    }
    new.reverse();
    Ok(new)
}

fn print_records(common: &Common, records: &[Value], heading: bool) -> bool {
    if common.json {
        return records.iter().all(|record| output::raw(format!("{record}\n").as_bytes()));
    }
    let rows: Vec<_> = records.iter().map(usage_format::table_row).collect();
    output::table(if heading { &usage_format::HEADINGS } else { &[] }, &rows)
}

/// Streams all records; those that are only in the local journal come last.
async fn export(common: &Common, admin: &Admin, args: &FilterArgs) -> Result<(), Failure> {
    // Read before the database, so that no record is missed; records in both are exported once.
    let mut backlog = admin.journal_backlog(common)?;
    let format = if common.json { "jsonl" } else { "csv" };
    let target = with_filter(ApiPath::of(&["usage", "export"]).with("format", format), args)?;
    let mut lines = admin.lines(Method::GET, &target, None).await?;
    while let Some(lines) = lines.next_lines().await? {
        if !backlog.is_empty() {
            for id in lines.split_inclusive(|byte| *byte == b'\n').filter_map(id_of).filter_map(RequestId::parse) {
                backlog.remove(id);
            }
        }
        if !output::raw(&lines) {
            return Ok(());
        }
    }
    if backlog.is_empty() {
        return Ok(());
    }
    let filter = with_ids(admin, args).await?;
    let print = if common.json { usage_format::print_json } else { usage_format::print_csv };
    let each = |record: &UsageRecord| !filter.matches(record) || print(record);
    admin.for_each_remaining(backlog, each).await
}

/// The id at the start of an exported line.
fn id_of(line: &[u8]) -> Option<&str> {
    const LENGTH: usize = 30;
    let start = if line.starts_with(b"{\"id\":\"") { 7 } else { 0 };
    let id = std::str::from_utf8(line.get(start..start + LENGTH)?).ok()?;
    id.starts_with("req_").then_some(id)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn id_is_found_in_both_formats() {
        let id = RequestId::from_parts(Timestamp(5_000_000), [7; 10]).to_string();
        assert_eq!(id_of(format!("{id},2026-01-01").as_bytes()), Some(id.as_str()));
        assert_eq!(id_of(json!({"id": id, "at": "x"}).to_string().as_bytes()), Some(id.as_str()));
        assert_eq!(id_of(b"id,at,outcome,reason,status,key,key_name\n"), None);
        assert_eq!(id_of(b"x"), None);
    }

    #[test]
    fn each_record_is_printed_once_and_oldest_ids_are_forgotten() {
        let mut printed = PrintedRecords::default();
        assert!(printed.add(&json!({"id": "a"})) && !printed.add(&json!({"id": "a"})));
        for number in 0..MAX_REMEMBERED {
            assert!(printed.add(&json!({"id": number.to_string()})));
        }
        assert_eq!((printed.ids.len(), printed.order.len()), (MAX_REMEMBERED, MAX_REMEMBERED));
        assert!(printed.add(&json!({"id": "a"})));
    }

    /// Runs one query over a log of (arrival, duration) in seconds.
    async fn query(log: &[(u32, u64)], printed: &mut PrintedRecords) -> Vec<String> {
        let mut newest: Vec<Value> = log.iter().map(record).collect();
        newest.reverse();
        let page = async |after: Option<String>| -> Result<_, Failure> {
            let from = after.map_or(0, |after| after.parse().unwrap());
            let to = newest.len().min(from + WINDOW);
            Ok((newest[from..to].to_vec(), (to < newest.len()).then(|| to.to_string())))
        };
        let new = unseen(page, printed).await.unwrap_or_else(|_| panic!("pages do not fail here"));
        new.iter().map(|record| record["id"].as_str().unwrap().to_owned()).collect()
    }

    fn record((arrived, seconds): &(u32, u64)) -> Value {
        let at = format!("2026-11-30T{:02}:{:02}:{:02}Z", arrived / 3_600, arrived / 60 % 60, arrived % 60);
        json!({"id": arrived.to_string(), "at": at, "duration_us": seconds * 1_000_000})
    }

    #[tokio::test]
    async fn burst_between_two_queries_is_printed_completely() {
        // More than a window of old records; the first query reads the newest.
        let mut log: Vec<(u32, u64)> = (0..800).filter(|second| *second != 200).map(|second| (second, 1)).collect();
        let mut printed = PrintedRecords::default();
        let newest: Vec<Value> = log.iter().rev().take(WINDOW).map(record).collect();
        printed.begin(&newest, false);
        assert_eq!(query(&log, &mut printed).await, Vec::<String>::new());
        // The last arrival ends first; then the 1,200 before it end together.
        log.push((5_000, 1));
        assert_eq!(query(&log, &mut printed).await, ["5000"]);
        let burst: Vec<(u32, u64)> = (1_000..2_200).map(|second| (second, 6_000)).collect();
        log.splice(799..799, burst.iter().copied());
        log.push((5_001, 1));
        // A long stream that arrived before everything read so far is new when it ends; its neighbours ended earlier.
        log.insert(200, (200, 9_000));
        let mut expected = vec!["200".to_owned()];
        expected.extend(burst.iter().map(|(second, _)| second.to_string()));
        expected.push("5001".to_owned());
        assert_eq!(query(&log, &mut printed).await, expected);
        assert_eq!(query(&log, &mut printed).await, Vec::<String>::new());
    }
}
