//! `replay`: routes the requests of the usage log again under a changed catalog file and compares the result. It writes nothing and
//! sends nothing.

use std::{collections::HashMap, sync::Arc};

use serde_json::json;
use tollgate_core::{
    GroupId, Key, KeyId, MemberId, NanoUsd, Replay, ReplayChannel, ReplayReport, ReplayShare, ReplaySide, ReplayTotals, UsageRecord,
};
use tollgate_store::{KeyScope, RandomSource, RowFilter, RowKind, SortOrder, Store, UsageFilter, infer_apply_mode, preview};

use crate::{
    catalog_file,
    cli::{Common, Replay as Arguments, UsageFilter as FilterArgs},
    command::usage,
    compose,
    failure::Failure,
    journal_backlog::JournalBacklog,
    output,
};

/// Records per page.
const PAGE_SIZE: u32 = 1_000;

/// Replays the usage log under the file.
pub(crate) fn run(common: &Common, arguments: &Arguments) -> Result<(), Failure> {
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
        let filter = read_filter(&store, &arguments.filter).await?;
        let lines: Vec<String> = after.lines.iter().map(ToString::to_string).collect();
        let before = ReplaySide { catalog: &after.before, keys: &keys };
        let sides = Replay::new(before, ReplaySide { catalog: &after.after, keys: &keys_after });
        Ok((replay(&store, filter, backlog, sides).await?, lines))
    })?;
    if common.json {
        print_json(&report, &lines);
    } else {
        print(&report, &lines);
    }
    Ok(())
}

/// Builds the store filter, resolving names to ids.
async fn read_filter(store: &Store, args: &FilterArgs) -> Result<UsageFilter, Failure> {
    let mut filter = usage::parse_filter(args)?;
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

async fn replay(
    store: &Store,
    mut filter: UsageFilter,
    mut backlog: JournalBacklog,
    mut replay: Replay<'_>,
) -> Result<ReplayReport, Failure> {
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
        if filter.matches(record) {
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
        "{} requests replayed, {} of them change their target; {} never reached routing, {} have a key that does not work",
        report.replayed,
        report.moved(),
        report.not_routed,
        report.without_key
    ));
    if report.replayed == 0 {
        return;
    }
    output::line("");
    output::table(&["", "as it is", "changed", "difference"], &totals(&report.before, &report.after));
    if !report.channels.is_empty() {
        output::line("");
        print_channels(report);
    }
    if !report.moves.is_empty() {
        output::line("");
        print_moves(report);
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

fn print_channels(report: &ReplayReport) {
    let row = |(of, share): (&ReplayChannel, &ReplayShare)| {
        vec![
            of.model.clone(),
            of.channel.clone(),
            share.before.to_string(),
            share.after.to_string(),
            share.cost_before.to_usd_string(),
            share.cost_after.to_usd_string(),
        ]
    };
    let headings = ["model", "channel", "requests as it is", "changed", "cost USD as it is", "changed"];
    output::long_table(&headings, &report.channels.iter().map(row).collect::<Vec<_>>());
}

fn print_moves(report: &ReplayReport) {
    let mut moves: Vec<_> = report.moves.iter().collect();
    moves.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
    let rows = moves.into_iter().map(|(of, count)| vec![count.to_string(), of.model.clone(), of.from.clone(), of.to.clone()]);
    output::long_table(&["requests", "model", "from", "to"], &rows.collect::<Vec<_>>());
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
