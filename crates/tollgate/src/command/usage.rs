//! `usage tail|summary|export`: the usage log.

use std::{
    collections::{HashSet, VecDeque},
    time::Duration,
};

use http::Method;
use serde_json::{Value, json};
use tollgate_core::{RequestId, Timestamp, UsageRecord};
use tollgate_store::UsageFilter;

use crate::{
    admin::{Admin, ApiPath, FolderPolicy},
    cli::{Common, GroupBy, Usage, UsageFilter as Asked},
    command::time_flag,
    compose,
    failure::Failure,
    output, usage_format,
};

/// How often a follower looks.
const POLL_INTERVAL: Duration = Duration::from_millis(500);
/// Records that a follower looks at together, the newest first. Records stand in order of arrival and come when they end: it
/// goes on to older ones while some were new, and so shows a burst whole; a long stream is shown as long as no more than so many
/// requests arrived after it and are known.
const WINDOW: usize = 500;
/// Records that are remembered as shown.
const REMEMBERED: usize = 20_000;
/// New records of one look: half of what is remembered.
const MOST_NEW: usize = REMEMBERED / 2;

/// Runs one of the verbs.
pub(crate) fn run(common: &Common, verb: Usage) -> Result<(), Failure> {
    compose::block_on(async {
        let admin = Admin::open(common, FolderPolicy::MustExist).await?;
        match verb {
            Usage::Tail { follow, lines, filter } => tail(common, &admin, &filter, lines as usize, follow).await,
            Usage::Summary { by, filter } => summary(common, &admin, &filter, by).await,
            Usage::Export { filter } => export(common, &admin, &filter).await,
        }
    })
}

/// A target of the usage log with what was asked.
fn narrowed(target: ApiPath, asked: &Asked) -> Result<ApiPath, Failure> {
    for (flag, text) in [("--since", &asked.since), ("--until", &asked.until)] {
        if let Some(text) = text {
            time_flag::parse(flag, text)?;
        }
    }
    const OUTCOMES: [&str; 5] = ["completed", "caller_left", "upstream_broke", "refused", "gateway_stopped"];
    if let Some(word) = asked.outcome.as_deref().filter(|word| !OUTCOMES.contains(word)) {
        let known = OUTCOMES.join(", ");
        return Err(Failure::Usage(format!("--outcome takes one of {known}, not '{word}'")));
    }
    Ok(target
        .maybe("key", asked.key.as_deref())
        .maybe("member", asked.member.as_deref())
        .maybe("group", asked.group.as_deref())
        .maybe("model", asked.model.as_deref())
        .maybe("outcome", asked.outcome.as_deref())
        .maybe("since", asked.since.as_deref())
        .maybe("until", asked.until.as_deref()))
}

/// What a follower has shown, forgotten from the oldest on.
#[derive(Default)]
struct PrintedRecords {
    order: VecDeque<String>,
    ids: HashSet<String>,
    /// Where older records were not looked at in the beginning: they arrived before the first time, and are old if they ended
    /// before the second.
    behind: Option<(Timestamp, Timestamp)>,
}

impl PrintedRecords {
    /// What is there in the beginning, newest first; `whole`: there is nothing else.
    fn begin(&mut self, records: &[Value], whole: bool) {
        for record in records.iter().rev() {
            self.add(record);
        }
        let oldest = records.last().and_then(arrived);
        let newest_end = records.iter().filter_map(ended).max();
        self.behind = oldest.zip(newest_end).filter(|_| !whole);
    }

    /// Whether it was there in the beginning, and only not looked at.
    fn is_old(&self, record: &Value) -> bool {
        let times = self.behind.zip(arrived(record)).zip(ended(record));
        times.is_some_and(|(((oldest, newest_end), arrived), ended)| arrived <= oldest && ended <= newest_end)
    }

    /// Whether it is new.
    fn add(&mut self, record: &Value) -> bool {
        let id = record["id"].as_str().unwrap_or_default().to_owned();
        if self.is_old(record) || !self.ids.insert(id.clone()) {
            return false;
        }
        self.order.push_back(id);
        if self.order.len() > REMEMBERED
            && let Some(oldest) = self.order.pop_front()
        {
            self.ids.remove(&oldest);
        }
        true
    }
}

/// When a shown record arrived.
fn arrived(record: &Value) -> Option<Timestamp> {
    time_flag::parse("at", record["at"].as_str()?).ok()
}

/// When it ended.
fn ended(record: &Value) -> Option<Timestamp> {
    Some(Timestamp(arrived(record)?.0.saturating_add(record["duration_us"].as_i64()?)))
}

async fn tail(common: &Common, admin: &Admin, asked: &Asked, lines: usize, follow: bool) -> Result<(), Failure> {
    let target = narrowed(ApiPath::of(&["usage"]), asked)?;
    // A follower knows a whole window from the beginning, so that nothing old of it seems new later.
    let first = if follow { lines.max(WINDOW) } else { lines };
    let mut records = newest(admin, &target, first).await?;
    let mut shown = PrintedRecords::default();
    shown.begin(&records, records.len() < first);
    records.truncate(lines);
    records.reverse();
    if !show(common, &records, true) || !follow {
        return Ok(());
    }
    loop {
        tokio::time::sleep(POLL_INTERVAL).await;
        let page = async |after: Option<String>| -> Result<_, Failure> {
            let page = target.clone().with("limit", &WINDOW.to_string()).maybe("after", after.as_deref());
            Ok(admin.page(&page).await?)
        };
        if !show(common, &unseen(page, &mut shown).await?, false) {
            return Ok(());
        }
    }
}

async fn newest(admin: &Admin, target: &ApiPath, count: usize) -> Result<Vec<Value>, Failure> {
    Ok(admin.page(&target.clone().with("limit", &count.to_string())).await?.0)
}

/// Records that were not shown yet, oldest first. `page` gives those behind a place, newest first, and the next place; older
/// ones are looked at while some of a page are new.
async fn unseen(
    page: impl AsyncFn(Option<String>) -> Result<(Vec<Value>, Option<String>), Failure>,
    shown: &mut PrintedRecords,
) -> Result<Vec<Value>, Failure> {
    let (mut new, mut after) = (Vec::new(), None);
    loop {
        let (items, next) = page(after).await?;
        let before = new.len();
        new.extend(items.into_iter().filter(|record| shown.add(record)));
        after = next;
        if after.is_none() || new.len() == before || new.len() >= MOST_NEW {
            break;
        }
    }
    new.reverse();
    Ok(new)
}

/// Prints records; `false` when nobody reads any more.
fn show(common: &Common, records: &[Value], heading: bool) -> bool {
    if common.json {
        return records.iter().all(|record| output::raw(format!("{record}\n").as_bytes()));
    }
    let mut rows = Vec::new();
    if heading {
        rows.push(usage_format::headings());
    }
    rows.extend(records.iter().map(usage_format::people));
    output::table(&rows)
}

async fn summary(common: &Common, admin: &Admin, asked: &Asked, by: GroupBy) -> Result<(), Failure> {
    let word = match by {
        GroupBy::Nothing => "nothing",
        GroupBy::Day => "day",
        GroupBy::Hour => "hour",
        GroupBy::Model => "model",
        GroupBy::Key => "key",
        GroupBy::Member => "member",
        GroupBy::Group => "group",
        GroupBy::Outcome => "outcome",
    };
    if by == GroupBy::Hour && asked.since.is_none() {
        return Err(Failure::Usage("sums by hour are over at most 31 days: say where they begin with --since".to_owned()));
    }
    let (items, _) = admin.page(&narrowed(ApiPath::of(&["usage", "summary"]).with("by", word), asked)?).await?;
    if common.json {
        output::json(&json!({"items": items}));
        return Ok(());
    }
    let mut table =
        vec![["of", "requests", "completed", "in", "out", "sale USD", "cost USD", "not priced"].map(str::to_owned).to_vec()];
    const COLUMNS: [&str; 8] = ["of", "requests", "completed", "tokens_input", "tokens_output", "sale_usd", "cost_usd", "unpriced"];
    table.extend(items.iter().map(|row| COLUMNS.iter().map(|column| super::resource::cell(&row[*column])).collect()));
    output::table(&table);
    Ok(())
}

/// Streams every record as it comes; those that are in this machine's journal only come last.
async fn export(common: &Common, admin: &Admin, asked: &Asked) -> Result<(), Failure> {
    // Read before the database: what is booked in between is in both and shown once.
    let mut waiting = admin.unbooked(common)?;
    let format = if common.json { "jsonl" } else { "csv" };
    let target = narrowed(ApiPath::of(&["usage", "export"]).with("format", format), asked)?;
    let mut lines = admin.lines(Method::GET, &target, None).await?;
    while let Some(line) = lines.next().await? {
        if !waiting.is_empty()
            && let Some(id) = id_of(&line).and_then(RequestId::parse)
        {
            waiting.shown(id);
        }
        if !output::raw(&line) {
            return Ok(());
        }
    }
    if waiting.is_empty() {
        return Ok(());
    }
    let filter = filter(admin, asked).await?;
    let each = |record: &UsageRecord| {
        !matches(&filter, record)
            || if common.json { usage_format::print_json(record) } else { write_csv(&usage_format::row(record)) }
    };
    admin.rest(waiting, each).await
}

/// The id that a line of an export begins with.
fn id_of(line: &[u8]) -> Option<&str> {
    const LENGTH: usize = 30;
    let start = if line.starts_with(b"{\"id\":\"") { 7 } else { 0 };
    let id = std::str::from_utf8(line.get(start..start + LENGTH)?).ok()?;
    id.starts_with("req_").then_some(id)
}

/// What was asked, for records that are not in the database: names become ids.
async fn filter(admin: &Admin, asked: &Asked) -> Result<UsageFilter, Failure> {
    let mut filter = UsageFilter {
        model: asked.model.clone(),
        outcome: asked.outcome.as_ref().and_then(|word| serde_json::from_value(json!(word)).ok()),
        since: asked.since.as_deref().map(|text| time_flag::parse("--since", text)).transpose()?,
        until: asked.until.as_deref().map(|text| time_flag::parse("--until", text)).transpose()?,
        ..UsageFilter::default()
    };
    if let Some(key) = &asked.key {
        let id = super::key::id(admin, key).await?;
        filter.key = serde_json::from_value(json!(id)).ok();
    }
    if let Some(member) = &asked.member {
        filter.member = id(admin, "members", member).await?;
    }
    if let Some(group) = &asked.group {
        filter.group = id(admin, "groups", group).await?;
    }
    Ok(filter)
}

async fn id<T: serde::de::DeserializeOwned>(admin: &Admin, path: &str, name: &str) -> Result<Option<T>, Failure> {
    // An id may be of what was removed since.
    if let Ok(id) = serde_json::from_value(json!(name)) {
        return Ok(Some(id));
    }
    let mut row = admin.get(&ApiPath::of(&[path, name])).await?;
    Ok(serde_json::from_value(row["id"].take()).ok())
}

/// Whether a filter takes a record that is not in the database.
pub(crate) fn matches(filter: &UsageFilter, record: &UsageRecord) -> bool {
    filter.key.is_none_or(|key| record.key == key)
        && filter.member.is_none_or(|member| record.member == member)
        && filter.group.is_none_or(|group| record.group == Some(group))
        && filter.model.as_ref().is_none_or(|model| record.model.as_ref() == Some(model))
        && filter.outcome.is_none_or(|outcome| record.outcome == outcome)
        && filter.since.is_none_or(|since| record.at >= since)
        && filter.until.is_none_or(|until| record.at < until)
}

fn write_csv(cells: &[String]) -> bool {
    let mut writer = csv::Writer::from_writer(Vec::new());
    if writer.write_record(cells).is_err() {
        return false;
    }
    writer.into_inner().is_ok_and(|line| output::raw(&line))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_id_of_a_line_is_found_in_both_formats() {
        let id = RequestId::from_parts(Timestamp(5_000_000), [7; 10]).to_string();
        assert_eq!(id_of(format!("{id},2026-01-01").as_bytes()), Some(id.as_str()));
        assert_eq!(id_of(json!({"id": id, "at": "x"}).to_string().as_bytes()), Some(id.as_str()));
        assert_eq!(id_of(b"id,at,outcome,reason,status,key,key_name\n"), None);
        assert_eq!(id_of(b"x"), None);
    }

    #[test]
    fn a_follower_shows_each_record_once_and_forgets_the_oldest() {
        let mut shown = PrintedRecords::default();
        assert!(shown.add(&json!({"id": "a"})) && !shown.add(&json!({"id": "a"})));
        for number in 0..REMEMBERED {
            assert!(shown.add(&json!({"id": number.to_string()})));
        }
        assert_eq!((shown.ids.len(), shown.order.len()), (REMEMBERED, REMEMBERED));
        assert!(shown.add(&json!({"id": "a"})));
    }

    /// A log of records by their arrival in seconds, with how long they took, as pages say it.
    async fn looked(log: &[(u32, u64)], shown: &mut PrintedRecords) -> Vec<String> {
        let mut newest: Vec<Value> = log.iter().map(record).collect();
        newest.reverse();
        let page = async |after: Option<String>| -> Result<_, Failure> {
            let from = after.map_or(0, |after| after.parse().unwrap());
            let to = newest.len().min(from + WINDOW);
            Ok((newest[from..to].to_vec(), (to < newest.len()).then(|| to.to_string())))
        };
        let new = unseen(page, shown).await.unwrap_or_else(|_| panic!("pages do not fail here"));
        new.iter().map(|record| record["id"].as_str().unwrap().to_owned()).collect()
    }

    fn record((arrived, seconds): &(u32, u64)) -> Value {
        let at = format!("2026-11-30T{:02}:{:02}:{:02}Z", arrived / 3_600, arrived / 60 % 60, arrived % 60);
        json!({"id": arrived.to_string(), "at": at, "duration_us": seconds * 1_000_000})
    }

    #[tokio::test]
    async fn a_burst_between_two_looks_is_shown_whole_even_around_one_that_was_shown() {
        // More than a window of old ones, of which the first look sees the newest.
        let mut log: Vec<(u32, u64)> = (0..800).filter(|second| *second != 200).map(|second| (second, 1)).collect();
        let mut shown = PrintedRecords::default();
        let newest: Vec<Value> = log.iter().rev().take(WINDOW).map(record).collect();
        shown.begin(&newest, false);
        assert_eq!(looked(&log, &mut shown).await, Vec::<String>::new());
        // One that arrived last is done first; the 1,200 before it come at once.
        log.push((5_000, 1));
        assert_eq!(looked(&log, &mut shown).await, ["5000"]);
        let burst: Vec<(u32, u64)> = (1_000..2_200).map(|second| (second, 6_000)).collect();
        log.splice(799..799, burst.iter().copied());
        log.push((5_001, 1));
        // A long stream that arrived before all that was looked at is new when it ends; its neighbours ended before.
        log.insert(200, (200, 9_000));
        let mut expected = vec!["200".to_owned()];
        expected.extend(burst.iter().map(|(second, _)| second.to_string()));
        expected.push("5001".to_owned());
        assert_eq!(looked(&log, &mut shown).await, expected);
        assert_eq!(looked(&log, &mut shown).await, Vec::<String>::new());
    }
}
