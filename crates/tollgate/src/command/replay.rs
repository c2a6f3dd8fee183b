//! `replay`: routes the requests of the usage log again under a changed catalog file and compares the result. It writes nothing and
//! sends nothing.

use std::{collections::HashMap, sync::Arc};

use serde_json::json;
use tollgate_core::{
    Catalog, GroupId, Key, KeyId, MemberId, NanoUsd, Outcome, Replay, ReplayReport, ReplaySide, ReplayTotals, UsageRecord,
};
use tollgate_store::{KeyScope, RandomSource, RowFilter, RowKind, SortOrder, Store, UsageFilter, infer_apply_mode, preview};

use crate::{
    catalog_file,
    cli::{Common, Replay as Arguments, UsageFilter as FilterArgs},
    command::{time_flag, usage},
    compose,
    failure::Failure,
    journal_backlog::JournalBacklog,
    output,
};

/// Records per page.
const PAGE_SIZE: u32 = 1_000;
/// Rows shown in a table; JSON output has all of them.
const MAX_ROWS: usize = 40;

/// Replays the usage log under the file.
pub(crate) fn run(common: &Common, arguments: Arguments) -> Result<(), Failure> {
    let file = catalog_file::read(&arguments.file)?;
    // Read before the database, so that no record is missed; records in both are counted once.
    let backlog = JournalBacklog::read(common)?;
    let (report, lines) = compose::block_on(async {
        let store = compose::open(common).await?;
        let current = store.catalog.live_rows(&KeyScope::All).await?;
        let mode = infer_apply_mode(&current);
        let after = preview(&current, &file, mode, RandomSource::system(), compose::now()).await;
        let after = after.map_err(|error| catalog_file::preview_failure(&arguments.file, error))?;
        // Both sides come from the preview: session affinity depends on account ids, which differ from the originals.
        let (keys, keys_after) = (into_arcs(after.keys_before), into_arcs(after.keys));
        let filter = read_filter(&store, arguments.filter).await?;
        let lines: Vec<String> = after.lines.iter().map(ToString::to_string).collect();
        Ok((replay(&store, filter, backlog, (&after.before, &keys), (&after.after, &keys_after)).await?, lines))
    })?;
    if common.json {
        print_json(&report, &lines);
    } else {
        print(&report, &lines);
    }
    Ok(())
}

/// Builds the store filter, resolving names to ids.
async fn read_filter(store: &Store, args: FilterArgs) -> Result<UsageFilter, Failure> {
    let outcome = match args.outcome.as_deref() {
        None => None,
        Some(word) => Some(serde_json::from_value::<Outcome>(json!(word)).map_err(|_| {
            Failure::Usage(format!(
                "--outcome takes completed, caller_left, upstream_broke, refused or gateway_stopped, not '{word}'"
            ))
        })?),
    };
    let mut filter = UsageFilter {
        model: args.model,
        outcome,
        since: args.since.as_deref().map(|text| time_flag::parse("--since", text)).transpose()?,
        until: args.until.as_deref().map(|text| time_flag::parse("--until", text)).transpose()?,
        ..UsageFilter::default()
    };
    if let Some(key) = &args.key {
        filter.key = KeyId::parse(&id_of(store, RowKind::Key, key).await?);
    }
    if let Some(member) = &args.member {
        filter.member = MemberId::parse(&id_of(store, RowKind::Member, member).await?);
    }
    if let Some(group) = &args.group {
        filter.group = GroupId::parse(&id_of(store, RowKind::Group, group).await?);
    }
    Ok(filter)
}

/// Resolves a row id, or a name if it is unambiguous.
async fn id_of(store: &Store, kind: RowKind, text: &str) -> Result<String, Failure> {
    if store.listing.row(kind, text).await?.is_some() {
        return Ok(text.to_owned());
    }
    let mut named = store.listing.page(&RowFilter { name: Some(text.to_owned()), ..RowFilter::of(kind, 2) }).await?;
    match (named.pop(), named.is_empty()) {
        (Some(row), true) => Ok(row.id),
        (Some(_), false) => Err(Failure::Machine(format!("more than one {kind} is called '{text}'; name it by its id"))),
        (None, _) => Err(Failure::Machine(format!("there is no {kind} '{text}'; `tollgate {kind} list` shows them"))),
    }
}

fn into_arcs(keys: HashMap<KeyId, Key>) -> HashMap<KeyId, Arc<Key>> {
    keys.into_iter().map(|(id, key)| (id, Arc::new(key))).collect()
}

/// Catalog and keys of one side.
type CatalogWithKeys<'a> = (&'a Catalog, &'a HashMap<KeyId, Arc<Key>>);

async fn replay(
    store: &Store,
    mut filter: UsageFilter,
    mut backlog: JournalBacklog,
    before: CatalogWithKeys<'_>,
    after: CatalogWithKeys<'_>,
) -> Result<ReplayReport, Failure> {
    let side = |(catalog, keys)| ReplaySide { catalog, keys };
    let mut replay = Replay::new(side(before), side(after));
    filter.order = SortOrder::Oldest;
    filter.limit = PAGE_SIZE;
    loop {
        let page = store.usage.page(&filter).await?;
        for record in &page.items {
            backlog.remove(record.id);
            replay.add(record);
        }
        match page.next {
            Some(next) => filter.after = Some(next),
            None => break,
        }
    }
    let each = |record: &UsageRecord| {
        if usage::matches(&filter, record) {
            replay.add(record);
        }
        true
    };
    backlog.for_each_remaining(store, each).await?;
    Ok(replay.finish())
}

fn print(report: &ReplayReport, lines: &[String]) {
    if lines.is_empty() {
        output::line("the file changes nothing");
    }
    for line in lines {
        output::line(line);
    }
    output::line("");
    output::line(&format!(
        "{} requests replayed, {} of them end elsewhere; {} were settled before accounts were chosen, {} are of keys that do not work",
        report.replayed,
        report.moved(),
        report.not_routed,
        report.without_key
    ));
    if report.replayed == 0 {
        return;
    }
    output::line("");
    output::table(&totals(&report.before, &report.after));
    if !report.channels.is_empty() {
        output::line("");
        output::table(&channels(report));
    }
    if !report.moves.is_empty() {
        output::line("");
        output::table(&moves(report));
    }
}

fn totals(before: &ReplayTotals, after: &ReplayTotals) -> Vec<Vec<String>> {
    let count = |name: &str, of: fn(&ReplayTotals) -> u64| {
        let (a, b) = (of(before), of(after));
        vec![name.to_owned(), a.to_string(), b.to_string(), difference(i128::from(a), i128::from(b), |value| value.to_string())]
    };
    let money = |name: &str, of: fn(&ReplayTotals) -> NanoUsd| {
        let (a, b) = (of(before), of(after));
        let amount = |value: i128| NanoUsd(i64::try_from(value).unwrap_or(i64::MAX)).to_usd_string();
        let changed = difference(i128::from(a.0), i128::from(b.0), amount);
        vec![name.to_owned(), a.to_usd_string(), b.to_usd_string(), changed]
    };
    vec![
        ["", "as it is", "changed", "difference"].map(str::to_owned).to_vec(),
        count("served", |totals| totals.served),
        count("refused", |totals| totals.refused),
        money("sale USD", |totals| totals.sale),
        money("cost USD", |totals| totals.cost),
        count("not priced", |totals| totals.unpriced),
        count("cost not known", |totals| totals.cost_unknown),
    ]
}

/// A difference with its sign; empty if there is none.
fn difference(before: i128, after: i128, shown: impl Fn(i128) -> String) -> String {
    match after - before {
        0 => String::new(),
        more @ 1.. => format!("+{}", shown(more)),
        less => format!("-{}", shown(-less)),
    }
}

fn channels(report: &ReplayReport) -> Vec<Vec<String>> {
    let headings = ["model", "channel", "requests as it is", "changed", "cost USD as it is", "changed"];
    let rows = report.channels.iter().map(|(of, share)| {
        vec![
            of.model.clone(),
            of.channel.clone(),
            share.before.to_string(),
            share.after.to_string(),
            share.cost_before.to_usd_string(),
            share.cost_after.to_usd_string(),
        ]
    });
    truncated(headings.map(str::to_owned).to_vec(), rows.collect())
}

fn moves(report: &ReplayReport) -> Vec<Vec<String>> {
    let mut moves: Vec<_> = report.moves.iter().collect();
    moves.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
    let rows = moves.into_iter().map(|(of, count)| vec![count.to_string(), of.model.clone(), of.from.clone(), of.to.clone()]);
    truncated(["requests", "model", "from", "to"].map(str::to_owned).to_vec(), rows.collect())
}

/// Heading and rows, truncated to [`MAX_ROWS`].
fn truncated(headings: Vec<String>, mut rows: Vec<Vec<String>>) -> Vec<Vec<String>> {
    let more = rows.len().saturating_sub(MAX_ROWS);
    rows.truncate(MAX_ROWS);
    rows.insert(0, headings);
    if more > 0 {
        rows.push(vec![format!("… {more} more; --json has all")]);
    }
    rows
}

fn print_json(report: &ReplayReport, lines: &[String]) {
    let totals = |it: &ReplayTotals| {
        json!({
            "served": it.served, "refused": it.refused, "sale": it.sale.to_usd_string(), "cost": it.cost.to_usd_string(),
            "unpriced": it.unpriced, "cost_unknown": it.cost_unknown,
        })
    };
    let moves: Vec<_> = report
        .moves
        .iter()
        .map(|(of, count)| json!({"model": of.model, "from": of.from, "to": of.to, "requests": count}))
        .collect();
    let channels: Vec<_> = report
        .channels
        .iter()
        .map(|(of, share)| {
            json!({
                "model": of.model, "channel": of.channel, "requests_before": share.before, "requests_after": share.after,
                "cost_before": share.cost_before.to_usd_string(), "cost_after": share.cost_after.to_usd_string(),
            })
        })
        .collect();
    output::json(&json!({
        "changes": lines, "replayed": report.replayed, "not_routed": report.not_routed, "without_key": report.without_key,
        "before": totals(&report.before), "after": totals(&report.after), "moved": report.moved(), "moves": moves, "channels": channels,
    }));
}
