//! `verify`: whether the books agree, with the journal too. Exit code 1 with every difference when they do not, and when
//! something in the journal can never be booked as it is.

use std::{
    collections::{BTreeSet, HashSet},
    path::Path,
};

use serde_json::{Value, json};
use tollgate_core::{NanoUsd, RequestId, Timestamp, UsageRecord};
use tollgate_store::{ConsistencyRule, FolderLock, JournalEntry, Mismatch, Store, VerifyReport};

use crate::{cli::Common, compose, failure::Failure, journal_backlog, output, retention, traffic_snapshot};

/// Records of the journal that are compared at once.
const AT_ONCE: usize = 1_000;
/// Refused records that are named.
const MOST_NAMED: usize = 100;

/// Looks at ledger, balances, records, attempts, roll-ups and journal.
pub(crate) fn run(common: &Common) -> Result<(), Failure> {
    compose::block_on(async {
        let store = compose::open(common).await?;
        let config = compose::settings(common, &[])?;
        let data = config.data.clone();
        // The journal first: what is booked in between is in both, and must be the same.
        let mut journal = JournalScan::default();
        journal.take(&store, &compose::journal_folder(&data)).await?;
        journal.is_served = FolderLock::is_taken(&data);
        journal.in_memory_only = traffic_snapshot::read(&data, compose::now()).in_memory_only;
        let mut verified = store.ledger.verify(compose::now()).await?;
        verified.differences.append(&mut journal.differences);
        if common.json {
            print_json(&verified, &journal);
        } else {
            print(&verified, &journal, config.number("usage.retention_days"));
        }
        judge(&verified, &journal)
    })
}

/// What the journal holds beside what is booked.
#[derive(Default)]
struct JournalScan {
    /// Ended and not booked.
    waiting: HashSet<RequestId>,
    /// Those of them that the database refused.
    refused: BTreeSet<RequestId>,
    /// Begun without an end.
    begun: HashSet<RequestId>,
    ended: HashSet<RequestId>,
    /// What cannot be read.
    faults: Vec<String>,
    /// Booked otherwise than it stands here.
    differences: Vec<Mismatch>,
    /// Whether a gateway runs on this folder.
    is_served: bool,
    /// What that gateway has in memory and not in its journal.
    in_memory_only: usize,
}

impl JournalScan {
    /// Reads a journal, and holds what stands in it to what was booked.
    async fn take(&mut self, store: &Store, folder: &Path) -> Result<(), Failure> {
        let mut batch: Vec<(UsageRecord, bool)> = Vec::new();
        for entry in journal_backlog::entries(folder)? {
            match entry {
                Ok(JournalEntry::Begun(id)) if !self.ended.contains(&id) => {
                    self.begun.insert(id);
                }
                Ok(JournalEntry::Begun(_)) => {}
                Ok(JournalEntry::Ended { record, refused }) => {
                    self.begun.remove(&record.id);
                    if self.ended.insert(record.id) || refused {
                        batch.push((*record, refused));
                    }
                }
                Err(fault) => self.faults.push(fault.to_string()),
            }
            if batch.len() >= AT_ONCE {
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

    /// Records that will be booked.
    fn waiting(&self) -> usize {
        self.waiting.len() - self.refused.len()
    }

    /// Whether all that stands there is booked or will be.
    fn is_well(&self) -> bool {
        self.faults.is_empty() && self.refused.is_empty()
    }
}

/// What was removed for its age, beside what the setting of now would remove: it may have been another one then.
fn removed(before: Timestamp, days: u64) -> String {
    if days == 0 {
        return format!("records before {before} were removed for their age; usage.retention_days = 0 as it is now removes none");
    }
    let due = retention::before(compose::now(), days);
    let now = if before > due {
        format!("; usage.retention_days = {days} as it is now removes those before {due}")
    } else {
        String::new()
    };
    format!("records before {before} were removed for their age{now}")
}

fn print(verified: &VerifyReport, journal: &JournalScan, days: u64) {
    let VerifyReport { members, entries, records, attempts, removed_before, .. } = verified;
    output::line(&format!("{members} balances, {entries} ledger entries, {records} records, {attempts} attempts"));
    if let Some(before) = removed_before {
        output::line(&removed(*before, days));
    }
    if journal.waiting() > 0 {
        let who = if journal.is_served { "the running gateway" } else { "the next start" };
        output::line(&format!("{} records wait in the journal; {who} books them", journal.waiting()));
    }
    if !journal.begun.is_empty() {
        let what = if journal.is_served { "are under way" } else { "were cut by a kill; the next start records them" };
        output::line(&format!("{} requests {what}", journal.begun.len()));
    }
    if journal.in_memory_only > 0 {
        output::line(&format!(
            "{} more requests are recorded in the running gateway's memory only, because its journal has no room",
            journal.in_memory_only
        ));
    }
    if verified.agrees() && journal.is_well() {
        output::line("everything agrees");
    }
}

fn print_json(verified: &VerifyReport, journal: &JournalScan) {
    let VerifyReport { members, entries, records, attempts, removed_before, differences, more } = verified;
    let items: Vec<Value> = differences
        .iter()
        .map(|it| {
            json!({
                "rule": it.rule.as_str(), "what": it.what, "expected": it.expected, "found": it.found, "message": it.to_string(),
            })
        })
        .collect();
    output::json(&json!({
        "agrees": verified.agrees() && journal.is_well(), "members": members, "ledger_entries": entries, "records": records,
        "attempts": attempts, "removed_before": removed_before.map(|at| at.to_string()), "waiting_in_journal": journal.waiting(), "begun_in_journal": journal.begun.len(),
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
        let (count, named) = (journal.refused.len(), journal.refused.iter().take(MOST_NAMED).map(ToString::to_string));
        let named: Vec<String> = named.collect();
        lines.push(format!(
            "{count} records wait in the journal because the database refuses them (the log says why; each start offers them again): {}",
            named.join(" ")
        ));
    }
    if lines.is_empty() { Ok(()) } else { Err(Failure::Machine(lines.join("\n"))) }
}
