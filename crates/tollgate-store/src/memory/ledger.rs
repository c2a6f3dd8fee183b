//! The ledger in memory. Keeps the newest 100,000 entries, and all balances and spending.

use std::collections::{BTreeMap, HashMap, VecDeque};

use tollgate_core::{MemberId, NanoUsd, RequestId, Subject, Timestamp, UsageRecord};

use crate::{LedgerEntry, LedgerKind, LedgerPosition, ledger::settled};

const MAX_ENTRIES: usize = 100_000;

#[derive(Debug, Default)]
pub(super) struct MemoryLedger {
    pub(super) entries: VecDeque<LedgerEntry>,
    /// Sum of the entries evicted, by member.
    pub(super) evicted: HashMap<MemberId, NanoUsd>,
    pub(super) balances: BTreeMap<MemberId, NanoUsd>,
    pub(super) position: LedgerPosition,
    /// Spending by subject and UTC day.
    pub(super) days: BTreeMap<Subject, BTreeMap<i64, i64>>,
}

impl MemoryLedger {
    pub(super) fn book(&mut self, new: &[&UsageRecord]) {
        for record in new {
            let sale = record.sale.unwrap_or_default();
            let payers = [Subject::Key(record.key), Subject::Member(record.member), Subject::Gateway];
            for subject in payers.into_iter().chain(record.group.map(Subject::Group)) {
                self.spend(subject, sale, record.at);
            }
            for attempt in &record.attempts {
                self.spend(Subject::Channel(attempt.channel), attempt.cost.unwrap_or_default(), record.at);
            }
            if sale != NanoUsd::ZERO {
                let (_, amount) = settled(self.balance(record.member), NanoUsd(sale.0.saturating_neg()));
                self.append(LedgerEntry {
                    position: self.position,
                    member: record.member,
                    at: record.at,
                    kind: LedgerKind::Settle,
                    amount,
                    balance: NanoUsd::ZERO,
                    request: Some(record.id),
                    idempotency_key: None,
                    note: String::new(),
                    actor: String::new(),
                });
            }
        }
    }

    fn spend(&mut self, subject: Subject, amount: NanoUsd, at: Timestamp) {
        if amount != NanoUsd::ZERO {
            let day = self.days.entry(subject).or_default().entry(at.day()).or_default();
            *day = day.saturating_add(amount.0);
        }
    }

    /// True if the ledger has an entry for a request.
    pub(super) fn is_settled(&self, request: RequestId) -> bool {
        self.entries.iter().any(|entry| entry.request == Some(request))
    }

    pub(super) fn balance(&self, member: MemberId) -> NanoUsd {
        self.balances.get(&member).copied().unwrap_or_default()
    }

    /// Appends an entry, and sets its position and the balance after it.
    pub(super) fn append(&mut self, entry: LedgerEntry) -> LedgerEntry {
        self.position.0 += 1;
        let (balance, _) = settled(self.balance(entry.member), entry.amount);
        let entry = LedgerEntry { position: self.position, balance, ..entry };
        self.balances.insert(entry.member, balance);
        self.entries.push_back(entry.clone());
        if self.entries.len() > MAX_ENTRIES
            && let Some(old) = self.entries.pop_front()
        {
            let sum = self.evicted.entry(old.member).or_default();
            *sum = settled(*sum, old.amount).0;
        }
        entry
    }
}
