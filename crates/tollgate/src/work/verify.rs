//! Checks that ledger, balances, usage records and journal agree.

use std::{
    collections::{BTreeSet, HashSet},
    path::Path,
};

use serde::{Deserialize, Serialize};
use tollgate_core::{NanoUsd, RequestId, Timestamp, UsageRecord};
use tollgate_store::{ConsistencyRule, DataFolderLock, JournalEntry, Mismatch, Store, VerifyReport, WorkControl};

use super::with_store;
use crate::{compose, config::Config, failure::Failure, journal_backlog, live_settings, retention, traffic_snapshot};

/// Journal records compared per query.
const BATCH_SIZE: usize = 1_000;

/// Output of `verify`.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct VerifyOutcome {
    pub(crate) agrees: bool,
    pub(crate) members: u64,
    pub(crate) ledger_entries: u64,
    pub(crate) records: u64,
    pub(crate) attempts: u64,
    /// Records that arrived before this time were removed by retention.
    pub(crate) removed_before: Option<String>,
    /// `removed_before` in a sentence, with the effect of the current setting.
    pub(crate) removed_message: Option<String>,
    /// Whether a gateway is running on this folder.
    pub(crate) served: bool,
    /// Records of the journal that will be written to the database.
    pub(crate) waiting_in_journal: usize,
    /// Requests of the journal without an end.
    pub(crate) begun_in_journal: usize,
    pub(crate) refused_by_database: Vec<String>,
    /// Records that the gateway has only in memory.
    pub(crate) in_memory_only: usize,
    /// Unreadable parts of the journal.
    pub(crate) journal_faults: Vec<String>,
    pub(crate) differences: Vec<Difference>,
    pub(crate) more_differences: u64,
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Difference {
    pub(crate) rule: String,
    pub(crate) what: String,
    pub(crate) expected: i64,
    pub(crate) found: i64,
    pub(crate) message: String,
}

impl Difference {
    fn of(mismatch: &Mismatch) -> Self {
        let Mismatch { rule, what, expected, found } = mismatch;
        let (rule, message) = (rule.as_str().to_owned(), mismatch.to_string());
        Self { rule, what: what.clone(), expected: *expected, found: *found, message }
    }
}

/// Verifies ledger, balances, records, attempts, roll-ups and journal.
pub(crate) fn verify(config: &Config, control: &WorkControl) -> Result<VerifyOutcome, Failure> {
    with_store(config, control, async |store| verify_store(store, config, control).await)
}

async fn verify_store(store: &Store, config: &Config, control: &WorkControl) -> Result<VerifyOutcome, Failure> {
    let data = &config.data;
    let mut belonging = store.compare_journal(data).await?;
    // The journal first: records written to the database in between are in both and must be equal.
    let mut journal = JournalScan::default();
    journal.scan(store, &compose::journal_folder(data), control).await?;
    let served = DataFolderLock::is_taken(data);
    // Read again at the end, because a gateway that cannot write may have begun to hold records in memory.
    let in_memory_only = || traffic_snapshot::read(data, compose::now()).in_memory_only;
    let held = in_memory_only();
    let in_force = live_settings::with_stored(config, &live_settings::stored(store).await?);
    let mut verified = store.ledger.verify(compose::now(), control).await?;
    verified.differences.append(&mut journal.differences);
    let held = held.max(in_memory_only());
    verified.differences.append(&mut belonging);
    let removed_message = verified.removed_before.map(|before| removed(before, in_force.number("usage.retention_days")));
    let VerifyReport { members, entries, records, attempts, removed_before, differences, more } = verified;
    Ok(VerifyOutcome {
        agrees: differences.is_empty() && journal.is_ok(),
        members,
        ledger_entries: entries,
        records,
        attempts,
        removed_before: removed_before.map(|at| at.to_string()),
        removed_message,
        served,
        waiting_in_journal: journal.waiting.len() - journal.refused.len(),
        begun_in_journal: journal.started.len(),
        refused_by_database: journal.refused.iter().map(ToString::to_string).collect(),
        in_memory_only: held,
        journal_faults: journal.faults,
        differences: differences.iter().map(Difference::of).collect(),
        more_differences: more,
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
}

impl JournalScan {
    /// Reads a journal and compares its records with the database.
    async fn scan(&mut self, store: &Store, folder: &Path, control: &WorkControl) -> Result<(), Failure> {
        let mut batch: Vec<(UsageRecord, bool)> = Vec::new();
        for (read, entry) in (0..).zip(journal_backlog::entries(folder)?) {
            journal_backlog::checked(control, read)?;
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
