//! `usage tail|summary|export`: the usage log.

use std::{collections::HashSet, time::Duration};

use serde_json::json;
use tollgate_core::{KeyId, Outcome, RequestId, Timestamp, UsageRecord};
use tollgate_store::{Cursor, Order, Store, SummaryBy, UsageFilter};

use crate::{
    cli::{By, Common, Usage, UsageFilter as Asked},
    command::key,
    compose,
    failure::Failure,
    say, usage_line,
};

/// How many records one page of an export holds.
const PAGE: u32 = 1_000;

/// Runs one of the verbs.
pub(crate) fn run(common: &Common, verb: Usage) -> Result<(), Failure> {
    compose::block_on(async {
        let store = compose::open(common).await?;
        match verb {
            Usage::Tail { follow, lines, filter } => {
                let filter = read_filter(&store, filter).await?;
                tail(common, &store, filter, lines, follow).await
            }
            Usage::Summary { by, filter } => {
                let filter = read_filter(&store, filter).await?;
                summary(common, &store, &filter, by).await
            }
            Usage::Export { filter } => {
                let filter = read_filter(&store, filter).await?;
                export(common, &store, filter).await
            }
        }
    })
}

pub(crate) async fn read_filter(store: &Store, asked: Asked) -> Result<UsageFilter, Failure> {
    let key = match &asked.key {
        Some(name) => Some(key::find(store, name).await?.id),
        None => None,
    };
    let outcome = match asked.outcome.as_deref() {
        None => None,
        Some(word) => Some(serde_json::from_value::<Outcome>(json!(word)).map_err(|_| {
            Failure::Usage(format!(
                "--outcome takes completed, caller_left, upstream_broke, refused or gateway_stopped, not '{word}'"
            ))
        })?),
    };
    Ok(UsageFilter {
        key,
        model: asked.model,
        outcome,
        since: asked.since.as_deref().map(|text| time("--since", text)).transpose()?,
        until: asked.until.as_deref().map(|text| time("--until", text)).transpose()?,
        ..UsageFilter::default()
    })
}

/// Reads an RFC 3339 time.
pub(crate) fn time(flag: &str, text: &str) -> Result<Timestamp, Failure> {
    text.parse::<jiff::Timestamp>()
        .map(|time| Timestamp(time.as_microsecond()))
        .map_err(|_| Failure::Usage(format!("{flag} takes a time such as 2026-11-30T12:00:00Z, not '{text}'")))
}

async fn tail(common: &Common, store: &Store, mut filter: UsageFilter, lines: u32, follow: bool) -> Result<(), Failure> {
    filter.order = Order::Newest;
    filter.limit = lines.clamp(1, PAGE);
    let mut page = store.usage.page(&filter).await?.items;
    page.reverse();
    let mut last = page.last().map(|record| Cursor { at: record.at, id: record.id });
    show(common, &page, true);
    if !follow {
        return Ok(());
    }
    loop {
        tokio::time::sleep(Duration::from_millis(500)).await;
        filter.order = Order::Oldest;
        filter.after = last;
        filter.limit = PAGE;
        let new = store.usage.page(&filter).await?.items;
        if let Some(record) = new.last() {
            last = Some(Cursor { at: record.at, id: record.id });
        }
        if !show(common, &new, false) {
            return Ok(());
        }
    }
}

/// Prints records; `false` when nobody reads any more.
fn show(common: &Common, records: &[UsageRecord], heading: bool) -> bool {
    if common.json {
        return records.iter().all(usage_line::print_json);
    }
    let mut rows = Vec::new();
    if heading {
        rows.push(usage_line::headings());
    }
    rows.extend(records.iter().map(usage_line::people));
    say::table(&rows);
    true
}

async fn summary(common: &Common, store: &Store, filter: &UsageFilter, by: By) -> Result<(), Failure> {
    let by = match by {
        By::Nothing => SummaryBy::Nothing,
        By::Day => SummaryBy::Day,
        By::Model => SummaryBy::Model,
        By::Key => SummaryBy::Key,
        By::Group => SummaryBy::Group,
        By::Outcome => SummaryBy::Outcome,
    };
    let rows = store.usage.summary(filter, by).await?;
    if common.json {
        let items: Vec<_> = rows
            .iter()
            .map(|row| {
                json!({
                    "of": row.of, "requests": row.requests, "completed": row.completed, "tokens_input": row.tokens_input,
                    "tokens_output": row.tokens_output, "sale_nano_usd": row.sale, "cost_nano_usd": row.cost, "unpriced": row.unpriced,
                })
            })
            .collect();
        say::json(&json!({"items": items}));
        return Ok(());
    }
    let mut table =
        vec![["of", "requests", "completed", "in", "out", "sale USD", "cost USD", "not priced"].map(str::to_owned).to_vec()];
    for row in rows {
        table.push(vec![
            if row.of.is_empty() { "–".to_owned() } else { row.of },
            row.requests.to_string(),
            row.completed.to_string(),
            row.tokens_input.to_string(),
            row.tokens_output.to_string(),
            row.sale.to_usd_string(),
            row.cost.to_usd_string(),
            row.unpriced.to_string(),
        ]);
    }
    say::table(&table);
    Ok(())
}

/// Streams every record, page by page; those that are still in the journal only come last.
async fn export(common: &Common, store: &Store, mut filter: UsageFilter) -> Result<(), Failure> {
    // Read before the database: what is booked in between is in both and shown once.
    let waiting = compose::unbooked(common)?;
    let waiting_ids: HashSet<RequestId> = waiting.iter().map(|record| record.id).collect();
    let mut shown = HashSet::new();
    filter.order = Order::Oldest;
    filter.limit = PAGE;
    if !common.json && !write_csv(&usage_line::COLUMNS.map(str::to_owned)) {
        return Ok(());
    }
    loop {
        let page = store.usage.page(&filter).await?;
        for record in &page.items {
            if waiting_ids.contains(&record.id) {
                shown.insert(record.id);
            }
            if !print(common, record) {
                return Ok(());
            }
        }
        match page.next {
            Some(next) => filter.after = Some(next),
            None => break,
        }
    }
    for record in waiting.iter().filter(|record| !shown.contains(&record.id) && matches(&filter, record)) {
        if !print(common, record) {
            return Ok(());
        }
    }
    Ok(())
}

/// Whether a filter takes a record that is not in the database.
pub(crate) fn matches(filter: &UsageFilter, record: &UsageRecord) -> bool {
    let of_key = |key: KeyId| record.key == key;
    filter.key.is_none_or(of_key)
        && filter.model.as_ref().is_none_or(|model| record.model.as_ref() == Some(model))
        && filter.outcome.is_none_or(|outcome| record.outcome == outcome)
        && filter.since.is_none_or(|since| record.at >= since)
        && filter.until.is_none_or(|until| record.at < until)
}

fn print(common: &Common, record: &UsageRecord) -> bool {
    if common.json { usage_line::print_json(record) } else { write_csv(&usage_line::row(record)) }
}

fn write_csv(cells: &[String]) -> bool {
    let mut writer = csv::Writer::from_writer(Vec::new());
    if writer.write_record(cells).is_err() {
        return false;
    }
    writer.into_inner().is_ok_and(|line| say::raw(&line))
}
