//! The ledger in memory. It keeps its newest 100,000 entries; balances and what was spent are kept whole.

use std::collections::{BTreeMap, HashMap, VecDeque};

use async_trait::async_trait;
use tollgate_core::{AttemptRecord, GroupId, MemberId, NanoUsd, SpendTotals, Subject, Timestamp, UsageRecord};

use super::MemoryStore;
use crate::{
    Balance, LedgerEntry, LedgerFilter, LedgerKind, LedgerPosition, LedgerStore, Posting, PostingReceipt, PostingRefused, RowKind,
    Spending, SpendingChanges, StoreError, VerifyReport,
    ledger::{posted, settled},
    verify::ConsistencyRule,
};

/// How many entries are kept.
const BOUND: usize = 100_000;

/// Ledger, balances, and what was spent by day.
#[derive(Debug, Default)]
pub(super) struct MemoryLedger {
    entries: VecDeque<LedgerEntry>,
    /// What the entries that are not kept any more came to.
    before: HashMap<MemberId, NanoUsd>,
    balances: BTreeMap<MemberId, NanoUsd>,
    position: LedgerPosition,
    /// By subject and UTC day.
    days: BTreeMap<Subject, BTreeMap<i64, i64>>,
}

impl MemoryLedger {
    /// Enters what new records cost.
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
                self.enter(LedgerEntry {
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

    /// Whether a request is entered.
    pub(super) fn settled(&self, request: tollgate_core::RequestId) -> bool {
        self.entries.iter().any(|entry| entry.request == Some(request))
    }

    fn balance(&self, member: MemberId) -> NanoUsd {
        self.balances.get(&member).copied().unwrap_or_default()
    }

    /// Writes an entry; its position and the balance after it are found here.
    fn enter(&mut self, entry: LedgerEntry) -> LedgerEntry {
        self.position.0 += 1;
        let (balance, _) = settled(self.balance(entry.member), entry.amount);
        let entry = LedgerEntry { position: self.position, balance, ..entry };
        self.balances.insert(entry.member, balance);
        self.entries.push_back(entry.clone());
        if self.entries.len() > BOUND
            && let Some(old) = self.entries.pop_front()
        {
            let sum = self.before.entry(old.member).or_default();
            *sum = settled(*sum, old.amount).0;
        }
        entry
    }
}

#[async_trait]
impl LedgerStore for MemoryStore {
    async fn post(&self, posting: &Posting, now: Timestamp) -> Result<PostingReceipt, StoreError> {
        posting.check()?;
        let is_member = {
            let state = self.catalog.lock().await;
            state.rows.get(&posting.member.to_string()).is_some_and(|row| row.kind == RowKind::Member)
        };
        if !is_member {
            return Err(PostingRefused::NoMember(posting.member).into());
        }
        let mut books = self.books.lock().await;
        if let Some(key) = &posting.idempotency_key
            && let Some(entry) = books.entries.iter().find(|entry| entry.idempotency_key.as_ref() == Some(key))
        {
            return Ok(posting.repeats(entry.clone())?);
        }
        posted(books.balance(posting.member), posting.amount)?;
        let entry = books.enter(LedgerEntry {
            position: LedgerPosition::default(),
            member: posting.member,
            at: now,
            kind: posting.kind.into(),
            amount: posting.amount,
            balance: NanoUsd::ZERO,
            request: None,
            idempotency_key: posting.idempotency_key.clone(),
            note: posting.note.clone(),
            actor: posting.actor.clone(),
        });
        Ok(PostingReceipt { entry, repeated: false })
    }

    async fn entries(&self, filter: &LedgerFilter) -> Result<Vec<LedgerEntry>, StoreError> {
        let books = self.books.lock().await;
        let wanted = |entry: &&LedgerEntry| {
            filter.member.is_none_or(|member| entry.member == member)
                && filter.kind.is_none_or(|kind| entry.kind == kind)
                && filter.before.is_none_or(|before| entry.position < before)
        };
        Ok(books.entries.iter().rev().filter(wanted).take(filter.size() as usize).cloned().collect())
    }

    async fn balances(&self) -> Result<Vec<Balance>, StoreError> {
        let state = self.catalog.lock().await;
        let books = self.books.lock().await;
        let mut balances: Vec<Balance> = state
            .rows
            .values()
            .filter(|row| row.kind == RowKind::Member)
            .filter_map(|row| Some((row, MemberId::parse(&row.id)?)))
            .filter(|(row, member)| row.removed_at.is_none() || books.balances.contains_key(member))
            .map(|(row, member)| Balance { member, name: row.name.clone(), balance: books.balance(member) })
            .collect();
        let unknown = |member: &MemberId| !state.rows.contains_key(&member.to_string());
        let strays = books.balances.iter().filter(|(member, _)| unknown(member));
        balances.extend(strays.map(|(member, balance)| Balance { member: *member, name: String::new(), balance: *balance }));
        balances.sort_by(|a, b| (&a.name, a.member).cmp(&(&b.name, b.member)));
        Ok(balances)
    }

    async fn posted_since(&self, position: LedgerPosition) -> Result<(Vec<LedgerEntry>, LedgerPosition), StoreError> {
        let books = self.books.lock().await;
        let by_hand = |entry: &&LedgerEntry| entry.position > position && entry.kind != LedgerKind::Settle;
        Ok((books.entries.iter().filter(by_hand).cloned().collect(), books.position))
    }

    async fn spending(&self, now: Timestamp) -> Result<Spending, StoreError> {
        let books = self.books.lock().await;
        let month = Timestamp::of_month(now.month()).day();
        let spent = books.days.iter().map(|(subject, days)| {
            let since = |first: i64| NanoUsd(days.range(first..).map(|(_, amount)| amount).sum());
            (*subject, SpendTotals::loaded(now, since(now.day()), since(month), since(i64::MIN)))
        });
        let balances = books.balances.iter().map(|(member, balance)| (*member, *balance));
        Ok(Spending { spent: spent.collect(), balances: balances.collect(), ledger: books.position })
    }

    async fn hedge_costs(&self, now: Timestamp) -> Result<Vec<(GroupId, NanoUsd)>, StoreError> {
        let usage = self.usage.lock().await;
        let mut hedged: BTreeMap<GroupId, i64> = BTreeMap::new();
        for record in usage.all() {
            let Some(group) = record.group else { continue };
            let today = |attempt: &&AttemptRecord| attempt.hedged && attempt.at.day() >= now.day();
            for cost in record.attempts.iter().filter(today).filter_map(|attempt| attempt.cost) {
                *hedged.entry(group).or_default() += cost.0;
            }
        }
        Ok(hedged.into_iter().map(|(group, cost)| (group, NanoUsd(cost))).collect())
    }

    /// Everybody: it is small.
    async fn spending_since(&self, _: LedgerPosition, now: Timestamp) -> Result<SpendingChanges, StoreError> {
        let Spending { spent, balances, ledger } = self.spending(now).await?;
        Ok(SpendingChanges { spent, balances, added: Vec::new(), until: ledger, ledger })
    }

    async fn verify(&self, _now: Timestamp) -> Result<VerifyReport, StoreError> {
        let usage = self.usage.lock().await;
        let books = self.books.lock().await;
        let mut verified = VerifyReport {
            members: books.balances.len() as u64,
            entries: books.entries.len() as u64,
            records: usage.all().count() as u64,
            attempts: usage.all().map(|record| record.attempts.len() as u64).sum(),
            ..VerifyReport::default()
        };
        let mut running = books.before.clone();
        for entry in &books.entries {
            let sum = running.entry(entry.member).or_default();
            *sum = settled(*sum, entry.amount).0;
            if *sum != entry.balance {
                verified.differs(ConsistencyRule::Running, entry.position.0.to_string(), sum.0, entry.balance.0);
            }
        }
        for (member, balance) in &books.balances {
            let sum = running.get(member).copied().unwrap_or_default();
            if sum != *balance {
                verified.differs(ConsistencyRule::Balance, member.to_string(), sum.0, balance.0);
            }
        }
        let settles: HashMap<_, NanoUsd> = books.entries.iter().filter_map(|entry| Some((entry.request?, entry.amount))).collect();
        for record in usage.all() {
            let (sale, entered) = (record.sale.unwrap_or_default(), settles.get(&record.id).copied().unwrap_or_default());
            if sale.0 != -entered.0 {
                verified.differs(ConsistencyRule::Settled, record.id.to_string(), -sale.0, entered.0);
            }
        }
        Ok(verified)
    }
}
