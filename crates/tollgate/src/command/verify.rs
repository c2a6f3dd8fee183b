//! `verify`: checks that ledger, balances, usage records and journal agree. Exit code 1 with a list of differences if they do not,
//! or if the journal has records that cannot be written to the database.

use std::{
    collections::{BTreeSet, HashSet},
    path::Path,
};

use serde_json::{Value, json};
use tollgate_core::{NanoUsd, RequestId, Timestamp, UsageRecord};
use tollgate_store::{ConsistencyRule, DataFolderLock, JournalEntry, Mismatch, Store, VerifyReport};

use crate::{cli::Common, compose, failure::Failure, journal_backlog, output, retention, traffic_snapshot};

/// Journal records compared per query.
const BATCH_SIZE: usize = 1_000;
/// Rejected records listed in the output.
const MAX_LISTED: usize = 100;

/// Verifies ledger, balances, records, attempts, roll-ups and journal.
pub(crate) fn run(common: &Common) -> Result<(), Failure> {
    compose::block_on(async {
        let store = compose::open(common).await?;
        let config = compose::settings(common, &[])?;
        let data = config.data.clone();
        let mut belonging = store.compare_journal(&data).await?;
        // The journal first: records written to the database in between are in both and must be equal.
        let mut journal = JournalScan::default();
        journal.scan(&store, &compose::journal_folder(&data)).await?;
        journal.is_served = DataFolderLock::is_taken(&data);
        // Read again at the end: a gateway in trouble may have begun to hold records in memory.
        journal.in_memory_only = traffic_snapshot::read(&data, compose::now()).in_memory_only;
        let mut verified = store.ledger.verify(compose::now()).await?;
        verified.differences.append(&mut journal.differences);
        journal.in_memory_only = journal.in_memory_only.max(traffic_snapshot::read(&data, compose::now()).in_memory_only);
        verified.differences.append(&mut belonging);
        if common.json {
            print_json(&verified, &journal);
        } else {
            print(&verified, &journal, config.number("usage.retention_days"));
        }
        judge(&verified, &journal)
    })
}

/// Journal contents compared with the database.
#[derive(Default)]
struct JournalScan {
    /// Ended, not in the database.
    waiting: HashSet<RequestId>,
    /// Rejected by the database, a subset of `waiting`.
    refused: BTreeSet<RequestId>,
    /// Begun, without an end.
    started: HashSet<RequestId>,
    ended: HashSet<RequestId>,
    /// Unreadable parts.
    faults: Vec<String>,
    /// Records that differ between journal and database.
    differences: Vec<Mismatch>,
    /// Whether a gateway is running on this folder.
    is_served: bool,
    /// Records that gateway has in memory only.
    in_memory_only: usize,
}

impl JournalScan {
    /// Reads a journal and compares its records with the database.
    async fn scan(&mut self, store: &Store, folder: &Path) -> Result<(), Failure> {
        let mut batch: Vec<(UsageRecord, bool)> = Vec::new();
        for entry in journal_backlog::entries(folder)? {
            match entry {
                Ok(JournalEntry::Begun(id)) if !self.ended.contains(&id) => {
                    self.started.insert(id);
                }
                Ok(JournalEntry::Begun(_)) => {}
                Ok(JournalEntry::Ended { record, refused }) => {
                    self.started.remove(&record.id);
                    if self.ended.insert(record.id) || refused {
                        batch.push((*record, refused));
                    }
                }
                Err(fault) => self.faults.push(fault.to_string()),
            }
            if batch.len() >= BATCH_SIZE {
                self.compare(store, std::mem::take(&mut batch)).await?;
            }
        }
        self.compare(store, batch).await
    }

    async fn compare(&mut self, store: &Store, batch: Vec<(UsageRecord, bool)>) -> Result<(), Failure> {
        let ids: Vec<RequestId> = batch.iter().map(|(record, _)| record.id).collect();
        let known = store.usage.known(&ids).await?;
        for (record, refused) in batch {
            if !known.contains(&record.id) {
                self.waiting.insert(record.id);
                if refused {
                    self.refused.insert(record.id);
                }
                continue;
            }
            let Some(booked) = store.usage.find(record.id).await? else { continue };
            let money = |record: &UsageRecord| (record.sale, record.cost, record.attempts.len(), record.member);
            if money(&booked) != money(&record) {
                let amount = |record: &UsageRecord| record.sale.map_or(0, |NanoUsd(sale)| sale);
                let what = record.id.to_string();
                let (expected, found) = (amount(&record), amount(&booked));
                self.differences.push(Mismatch { rule: ConsistencyRule::Journal, what, expected, found });
            }
        }
        Ok(())
    }

    /// Number of records that will be written to the database.
    fn waiting(&self) -> usize {
        self.waiting.len() - self.refused.len()
    }

    /// Whether every record is, or will be, in the database.
    fn is_ok(&self) -> bool {
        self.faults.is_empty() && self.refused.is_empty()
    }
}

/// Message about records removed by retention. The setting may have changed since.
fn removed(before: Timestamp, days: u64) -> String {
    if days == 0 {
        return format!("records before {before} were removed by retention; the current usage.retention_days = 0 removes none");
    }
    let due = retention::cutoff(compose::now(), days);
    let note = if before > due {
        format!("; the current usage.retention_days = {days} removes those before {due}")
    } else {
        String::new()
    };
    format!("records before {before} were removed by retention{note}")
}

fn print(verified: &VerifyReport, journal: &JournalScan, days: u64) {
    let VerifyReport { members, entries, records, attempts, removed_before, .. } = verified;
    output::line(&format!(
        "{}, {}, {}, {}",
        output::counted(*members, "balance", "balances"),
        output::counted(*entries, "ledger entry", "ledger entries"),
        output::counted(*records, "record", "records"),
        output::counted(*attempts, "attempt", "attempts")
    ));
    if let Some(before) = removed_before {
        output::line(&removed(*before, days));
    }
    if journal.waiting() > 0 {
        let writer = if journal.is_served { "the running gateway" } else { "the next start" };
        let (waits, them) = if journal.waiting() == 1 { ("record waits", "it") } else { ("records wait", "them") };
        let count = journal.waiting();
        output::line(&format!("{count} {waits} in the journal; {writer} writes {them} to the database"));
    }
    if !journal.started.is_empty() {
        let what = match (journal.is_served, journal.started.len()) {
            (true, 1) => "request is in progress",
            (true, _) => "requests are in progress",
            (false, 1) => "request was cut by a kill; the next start records it",
            (false, _) => "requests were cut by a kill; the next start records them",
        };
        output::line(&format!("{} {what}", journal.started.len()));
    }
    if journal.in_memory_only > 0 {
        output::line(&format!(
            "{} more requests are recorded in the running gateway's memory only, because its journal is full",
            journal.in_memory_only
        ));
    }
    if verified.agrees() && journal.is_ok() {
        output::line("everything agrees");
    }
}

fn print_json(verified: &VerifyReport, journal: &JournalScan) {
    let VerifyReport { members, entries, records, attempts, removed_before, differences, more } = verified;
    let items: Vec<Value> = differences
        .iter()
        .map(|difference| {
            json!({
                "rule": difference.rule.as_str(), "what": difference.what, "expected": difference.expected, "found": difference.found,
                "message": difference.to_string(),
            })
        })
        .collect();
    output::json(&json!({
        "agrees": verified.agrees() && journal.is_ok(), "members": members, "ledger_entries": entries, "records": records,
        "attempts": attempts, "removed_before": removed_before.map(|at| at.to_string()), "waiting_in_journal": journal.waiting(), "begun_in_journal": journal.started.len(),
        "refused_by_database": journal.refused, "in_memory_only": journal.in_memory_only, "journal_faults": journal.faults,
        "differences": items, "more_differences": more,
    }));
}

fn judge(verified: &VerifyReport, journal: &JournalScan) -> Result<(), Failure> {
    let mut lines = Vec::new();
    if !verified.agrees() {
        lines.push("the books do not agree:".to_owned());
        lines.extend(verified.differences.iter().map(ToString::to_string));
        if verified.more > 0 {
            lines.push(format!("and {} more", verified.more));
        }
    }
    lines.extend(journal.faults.iter().cloned());
    if !journal.refused.is_empty() {
        let (count, named) = (journal.refused.len(), journal.refused.iter().take(MAX_LISTED).map(ToString::to_string));
        let named: Vec<String> = named.collect();
        lines.push(format!(
            "{count} records wait in the journal because the database rejects them (see the log; each start tries them again): {}",
            named.join(" ")
        ));
    }
    if lines.is_empty() { Ok(()) } else { Err(Failure::Machine(lines.join("\n"))) }
}
