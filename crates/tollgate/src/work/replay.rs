//! Routes the requests of the usage log again under a changed catalog file and compares the result. It writes nothing and sends
//! nothing.

use std::{collections::HashMap, sync::Arc};

use serde::{Deserialize, Serialize};
use tollgate_console::RecordSelection;
use tollgate_core::{GroupId, Key, KeyId, MemberId, Replay, ReplayReport, ReplaySide, ReplayTotals, UsageRecord};
use tollgate_store::{
    KeyScope, ObjectScope, PreviewError, RandomSource, RowFilter, RowKind, SortOrder, Store, UsageFilter, WorkControl,
    catalog_file::{CatalogFile, FileError},
    infer_apply_mode, preview,
};

use super::with_store;
use crate::{compose, config::Config, failure::Failure, journal_backlog::JournalBacklog};

/// Records per page.
const PAGE_SIZE: u32 = 1_000;

/// Output of `replay`.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct ReplayOutcome {
    /// Changes by the file, one line each.
    pub(crate) changes: Vec<String>,
    pub(crate) replayed: u64,
    pub(crate) not_routed: u64,
    pub(crate) without_key: u64,
    pub(crate) before: Totals,
    pub(crate) after: Totals,
    /// Requests that change their target.
    pub(crate) moved: u64,
    pub(crate) moves: Vec<Move>,
    pub(crate) channels: Vec<ChannelShare>,
}

/// Sums of one side; amounts in USD.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Totals {
    pub(crate) served: u64,
    pub(crate) refused: u64,
    pub(crate) sale: String,
    pub(crate) cost: String,
    pub(crate) unpriced: u64,
    pub(crate) cost_unknown: u64,
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Move {
    pub(crate) model: String,
    pub(crate) from: String,
    pub(crate) to: String,
    pub(crate) requests: u64,
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct ChannelShare {
    pub(crate) model: String,
    pub(crate) channel: String,
    pub(crate) requests_before: u64,
    pub(crate) requests_after: u64,
    pub(crate) cost_before: String,
    pub(crate) cost_after: String,
}

/// Why nothing was replayed.
#[derive(Debug)]
pub(crate) enum ReplayFailure {
    /// The file conflicts with the catalog.
    File(Vec<FileError>),
    Other(Failure),
}

impl<E: Into<Failure>> From<E> for ReplayFailure {
    fn from(error: E) -> Self {
        Self::Other(error.into())
    }
}

/// Replays the usage log under a file.
pub(crate) fn replay(
    config: &Config,
    file: &CatalogFile,
    records: &RecordSelection,
    control: &WorkControl,
) -> Result<ReplayOutcome, ReplayFailure> {
    // Read before the database, so that no record is missed; records in both are counted once.
    let backlog = JournalBacklog::read_folder(&config.data, control)?;
    with_store(config, control, async |store| replay_store(store, file, records, backlog, control).await)
}

async fn replay_store(
    store: &Store,
    file: &CatalogFile,
    records: &RecordSelection,
    backlog: JournalBacklog,
    control: &WorkControl,
) -> Result<ReplayOutcome, ReplayFailure> {
    let current = store.catalog.live_rows(&KeyScope::All).await?;
    let mode = infer_apply_mode(&current);
    let after = preview(&current, file, mode, RandomSource::system(), compose::now()).await;
    let after = after.map_err(|error| match error {
        PreviewError::File(faults) => ReplayFailure::File(faults),
        PreviewError::Store(error) => error.into(),
    })?;
    // Both sides come from the preview: session affinity depends on account ids, which differ from the originals.
    let (keys, keys_after) = (into_arcs(after.keys_before), into_arcs(after.keys));
    let filter = resolve(store, records).await?;
    let lines: Vec<String> = after.lines.iter().map(ToString::to_string).collect();
    let before = ReplaySide { catalog: &after.before, keys: &keys };
    let sides = Replay::new(before, ReplaySide { catalog: &after.after, keys: &keys_after });
    let report = replay_records(store, filter, backlog, sides, control).await?;
    Ok(ReplayOutcome::of(&report, lines))
}

/// Resolves names to ids.
async fn resolve(store: &Store, records: &RecordSelection) -> Result<UsageFilter, Failure> {
    let mut filter = records.filter.clone();
    if let Some(key) = &records.key {
        filter.key = KeyId::parse(&id_of(store, RowKind::Key, key).await?);
    }
    if let Some(member) = &records.member {
        filter.member = MemberId::parse(&id_of(store, RowKind::Member, member).await?);
    }
    if let Some(group) = &records.group {
        filter.group = GroupId::parse(&id_of(store, RowKind::Group, group).await?);
    }
    Ok(filter)
}

/// Resolves a row id, or a name if it is unambiguous.
async fn id_of(store: &Store, kind: RowKind, text: &str) -> Result<String, Failure> {
    if store.listing.row(kind, text, ObjectScope::Everything).await?.is_some() {
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

async fn replay_records(
    store: &Store,
    mut filter: UsageFilter,
    mut backlog: JournalBacklog,
    mut replay: Replay<'_>,
    control: &WorkControl,
) -> Result<ReplayReport, Failure> {
    filter.order = SortOrder::Oldest;
    filter.limit = PAGE_SIZE;
    let mut done = 0;
    loop {
        control.check()?;
        control.report("records", done, None);
        let page = store.usage.page(&filter).await?;
        for record in &page.items {
            backlog.remove(record.id);
            replay.add(record);
        }
        done += page.items.len() as u64;
        match page.next {
            Some(next) => filter.after = Some(next),
            None => break,
        }
    }
    let each = |record: &UsageRecord| {
        if filter.matches(record) {
            replay.add(record);
        }
        !control.is_cancelled()
    };
    backlog.for_each_remaining(store, each).await?;
    control.check()?;
    Ok(replay.finish())
}

impl Totals {
    fn of(totals: &ReplayTotals) -> Self {
        let ReplayTotals { served, refused, sale, cost, unpriced, cost_unknown } = totals;
        Self {
            served: *served,
            refused: *refused,
            sale: sale.to_usd_string(),
            cost: cost.to_usd_string(),
            unpriced: *unpriced,
            cost_unknown: *cost_unknown,
        }
    }
}

impl ReplayOutcome {
    fn of(report: &ReplayReport, changes: Vec<String>) -> Self {
        let moves = report.moves.iter().map(|(of, count)| Move {
            model: of.model.clone(),
            from: of.from.clone(),
            to: of.to.clone(),
            requests: *count,
        });
        let channels = report.channels.iter().map(|(of, share)| ChannelShare {
            model: of.model.clone(),
            channel: of.channel.clone(),
            requests_before: share.before,
            requests_after: share.after,
            cost_before: share.cost_before.to_usd_string(),
            cost_after: share.cost_after.to_usd_string(),
        });
        Self {
            changes,
            replayed: report.replayed,
            not_routed: report.not_routed,
            without_key: report.without_key,
            before: Totals::of(&report.before),
            after: Totals::of(&report.after),
            moved: report.moved(),
            moves: moves.collect(),
            channels: channels.collect(),
        }
    }
}
