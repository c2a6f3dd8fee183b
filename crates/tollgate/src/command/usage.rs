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
    admin::{Admin, Folder, Target},
    cli::{By, Common, Usage, UsageFilter as Asked},
    compose,
    failure::Failure,
    say, usage_line,
};

/// How often a follower looks.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// Newest records in which a follower looks for new ones. Records stand in order of arrival and come when they end: a long
/// stream is shown as long as no more than so many requests arrived after it.
const WINDOW: usize = 500;
/// Records that are remembered as shown.
const REMEMBERED: usize = 20_000;

/// Runs one of the verbs.
pub(crate) fn run(common: &Common, verb: Usage) -> Result<(), Failure> {
    compose::block_on(async {
        let admin = Admin::open(common, Folder::MustExist).await?;
        match verb {
            Usage::Tail { follow, lines, filter } => tail(common, &admin, &filter, lines as usize, follow).await,
            Usage::Summary { by, filter } => summary(common, &admin, &filter, by).await,
            Usage::Export { filter } => export(common, &admin, &filter).await,
        }
    })
}

/// A target of the usage log with what was asked.
fn narrowed(target: Target, asked: &Asked) -> Result<Target, Failure> {
    for (flag, text) in [("--since", &asked.since), ("--until", &asked.until)] {
        if let Some(text) = text {
            time(flag, text)?;
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

/// Reads an RFC 3339 time.
pub(crate) fn time(flag: &str, text: &str) -> Result<Timestamp, Failure> {
    text.parse::<jiff::Timestamp>()
        .map(|time| Timestamp(time.as_microsecond()))
        .map_err(|_| Failure::Usage(format!("{flag} takes a time such as 2026-11-30T12:00:00Z, not '{text}'")))
}

/// What a follower has shown, forgotten from the oldest on.
#[derive(Default)]
struct Shown {
    order: VecDeque<String>,
    ids: HashSet<String>,
}

impl Shown {
    /// Whether it is new.
    fn add(&mut self, record: &Value) -> bool {
        let id = record["id"].as_str().unwrap_or_default().to_owned();
        if !self.ids.insert(id.clone()) {
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

async fn tail(common: &Common, admin: &Admin, asked: &Asked, lines: usize, follow: bool) -> Result<(), Failure> {
    let target = narrowed(Target::of(&["usage"]), asked)?;
    // A follower knows the whole window from the beginning, so that nothing old of it seems new later.
    let first = if follow { lines.max(WINDOW) } else { lines };
    let mut records = newest(admin, &target, first).await?;
    let mut shown = Shown::default();
    for record in records.iter().rev() {
        shown.add(record);
    }
    records.truncate(lines);
    records.reverse();
    if !show(common, &records, true) || !follow {
        return Ok(());
    }
    loop {
        tokio::time::sleep(LOOK_EVERY).await;
        if !show(common, &unseen(admin, &target, &mut shown).await?, false) {
            return Ok(());
        }
    }
}

async fn newest(admin: &Admin, target: &Target, count: usize) -> Result<Vec<Value>, Failure> {
    Ok(admin.page(&target.clone().with("limit", &count.to_string())).await?.0)
}

/// Records that were not shown yet, oldest first. Further pages are looked at while all of one is new.
async fn unseen(admin: &Admin, target: &Target, shown: &mut Shown) -> Result<Vec<Value>, Failure> {
    let target = target.clone().with("limit", &WINDOW.to_string());
    let (mut new, mut next) = (Vec::new(), Some(target.clone()));
    while let Some(page_target) = next {
        let (items, after) = admin.page(&page_target).await?;
        let asked = items.len();
        let before = new.len();
        new.extend(items.into_iter().filter(|record| shown.add(record)));
        let all_new = asked > 0 && new.len() - before == asked && new.len() < REMEMBERED / 2;
        next = after.filter(|_| all_new).map(|after| target.clone().with("after", &after));
    }
    new.reverse();
    Ok(new)
}

/// Prints records; `false` when nobody reads any more.
fn show(common: &Common, records: &[Value], heading: bool) -> bool {
    if common.json {
        return records.iter().all(|record| say::raw(format!("{record}\n").as_bytes()));
    }
    let mut rows = Vec::new();
    if heading {
        rows.push(usage_line::headings());
    }
    rows.extend(records.iter().map(usage_line::people));
    say::table(&rows)
}

async fn summary(common: &Common, admin: &Admin, asked: &Asked, by: By) -> Result<(), Failure> {
    let word = match by {
        By::Nothing => "nothing",
        By::Day => "day",
        By::Hour => "hour",
        By::Model => "model",
        By::Key => "key",
        By::Member => "member",
        By::Group => "group",
        By::Outcome => "outcome",
    };
    if by == By::Hour && asked.since.is_none() {
        return Err(Failure::Usage("sums by hour are over at most 31 days: say where they begin with --since".to_owned()));
    }
    let (items, _) = admin.page(&narrowed(Target::of(&["usage", "summary"]).with("by", word), asked)?).await?;
    if common.json {
        say::json(&json!({"items": items}));
        return Ok(());
    }
    let mut table =
        vec![["of", "requests", "completed", "in", "out", "sale USD", "cost USD", "not priced"].map(str::to_owned).to_vec()];
    const COLUMNS: [&str; 8] = ["of", "requests", "completed", "tokens_input", "tokens_output", "sale_usd", "cost_usd", "unpriced"];
    table.extend(items.iter().map(|row| COLUMNS.iter().map(|column| super::row::cell(&row[*column])).collect()));
    say::table(&table);
    Ok(())
}

/// Streams every record as it comes; those that are in this machine's journal only come last.
async fn export(common: &Common, admin: &Admin, asked: &Asked) -> Result<(), Failure> {
    // Read before the database: what is booked in between is in both and shown once.
    let mut waiting = admin.unbooked(common)?;
    let format = if common.json { "jsonl" } else { "csv" };
    let target = narrowed(Target::of(&["usage", "export"]).with("format", format), asked)?;
    let mut lines = admin.lines(Method::GET, &target, None).await?;
    while let Some(line) = lines.next().await? {
        if !waiting.is_empty()
            && let Some(id) = id_of(&line).and_then(RequestId::parse)
        {
            waiting.shown(id);
        }
        if !say::raw(&line) {
            return Ok(());
        }
    }
    if waiting.is_empty() {
        return Ok(());
    }
    let filter = filter(admin, asked).await?;
    let each = |record: &UsageRecord| {
        !matches(&filter, record) || if common.json { usage_line::print_json(record) } else { write_csv(&usage_line::row(record)) }
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
        since: asked.since.as_deref().map(|text| time("--since", text)).transpose()?,
        until: asked.until.as_deref().map(|text| time("--until", text)).transpose()?,
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
    let mut row = admin.get(&Target::of(&[path, name])).await?;
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
    writer.into_inner().is_ok_and(|line| say::raw(&line))
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
        let mut shown = Shown::default();
        assert!(shown.add(&json!({"id": "a"})) && !shown.add(&json!({"id": "a"})));
        for number in 0..REMEMBERED {
            assert!(shown.add(&json!({"id": number.to_string()})));
        }
        assert_eq!((shown.ids.len(), shown.order.len()), (REMEMBERED, REMEMBERED));
        assert!(shown.add(&json!({"id": "a"})));
    }
}
