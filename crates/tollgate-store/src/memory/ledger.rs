//! The ledger in memory, and its [`LedgerStore`]. Keeps the newest 100,000 entries, and all balances and spending.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};

use async_trait::async_trait;
use tollgate_core::{AttemptRecord, GroupId, KeyId, MemberId, NanoUsd, RequestId, SpendTotals, Subject, Timestamp, UsageRecord};

use super::MemoryStore;
use crate::{
    Balance, CoveredRequests, LedgerEntry, LedgerFilter, LedgerKind, LedgerPosition, LedgerStore, Posting, PostingReceipt,
    PostingRefused, RowKind, Spending, SpendingChanges, StoreError, VerifyReport, WorkControl,
    ledger::{posted, settled},
    verify::ConsistencyRule,
};

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
    /// Enters new records: one entry for each member. Returns the position of the last entry.
    pub(super) fn book(&mut self, new: &[UsageRecord]) -> LedgerPosition {
        let mut members: BTreeMap<MemberId, (NanoUsd, CoveredRequests)> = BTreeMap::new();
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
                let none = CoveredRequests { count: 0, first: record.at, last: record.at };
                let (price, covers) = members.entry(record.member).or_insert((NanoUsd::ZERO, none));
                price.0 = price.0.saturating_add(sale.0);
                covers.count += 1;
                (covers.first, covers.last) = (covers.first.min(record.at), covers.last.max(record.at));
            }
        }
        for (member, (price, covers)) in members {
            let (_, amount) = settled(self.balance(member), NanoUsd(price.0.saturating_neg()));
            self.append(LedgerEntry {
                position: self.position,
                member,
                at: covers.last,
                kind: LedgerKind::Settle,
                amount,
                balance: NanoUsd::ZERO,
                covers: Some(covers),
                idempotency_key: None,
                note: String::new(),
                actor: String::new(),
                address: None,
            });
        }
        self.position
    }

    fn spend(&mut self, subject: Subject, amount: NanoUsd, at: Timestamp) {
        if amount != NanoUsd::ZERO {
            let day = self.days.entry(subject).or_default().entry(at.day()).or_default();
            *day = day.saturating_add(amount.0);
        }
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
        let mut ledger = self.ledger.lock().await;
        if let Some(key) = &posting.idempotency_key
            && let Some(entry) = ledger.entries.iter().find(|entry| entry.idempotency_key.as_ref() == Some(key))
        {
            return Ok(posting.repeats(entry.clone())?);
        }
        posted(ledger.balance(posting.member), posting.amount)?;
        let entry = ledger.append(LedgerEntry {
            position: LedgerPosition::default(),
            member: posting.member,
            at: now,
            kind: posting.kind.into(),
            amount: posting.amount,
            balance: NanoUsd::ZERO,
            covers: None,
            idempotency_key: posting.idempotency_key.clone(),
            note: posting.note.clone(),
            actor: posting.actor.clone(),
            address: posting.address_text(),
        });
        Ok(PostingReceipt { entry, repeated: false })
    }

    async fn entries(&self, filter: &LedgerFilter) -> Result<Vec<LedgerEntry>, StoreError> {
        let ledger = self.ledger.lock().await;
        let wanted = |entry: &&LedgerEntry| {
            filter.member.is_none_or(|member| entry.member == member)
                && filter.kind.is_none_or(|kind| entry.kind == kind)
                && filter.before.is_none_or(|before| entry.position < before)
                && filter.has_time(entry.at)
        };
        Ok(ledger.entries.iter().rev().filter(wanted).take(filter.size() as usize).cloned().collect())
    }

    async fn balances(&self) -> Result<Vec<Balance>, StoreError> {
        let state = self.catalog.lock().await;
        let ledger = self.ledger.lock().await;
        let mut balances: Vec<Balance> = state
            .rows
            .values()
            .filter(|row| row.kind == RowKind::Member)
            .filter_map(|row| Some((row, MemberId::parse(&row.id)?)))
            .filter(|(row, member)| row.removed_at.is_none() || ledger.balances.contains_key(member))
            .map(|(row, member)| Balance { member, name: row.name.clone(), balance: ledger.balance(member) })
            .collect();
        let unknown = |member: &MemberId| !state.rows.contains_key(&member.to_string());
        let removed = ledger.balances.iter().filter(|(member, _)| unknown(member));
        balances.extend(removed.map(|(member, balance)| Balance { member: *member, name: String::new(), balance: *balance }));
        balances.sort_by(|a, b| (&a.name, a.member).cmp(&(&b.name, b.member)));
        Ok(balances)
    }

    async fn balances_of(&self, members: Vec<MemberId>) -> Result<Vec<Balance>, StoreError> {
        let mut balances = self.balances().await?;
        balances.retain(|balance| members.contains(&balance.member));
        Ok(balances)
    }

    async fn posted_since(&self, position: LedgerPosition) -> Result<(Vec<LedgerEntry>, LedgerPosition), StoreError> {
        let ledger = self.ledger.lock().await;
        let by_hand = |entry: &&LedgerEntry| entry.position > position && entry.kind != LedgerKind::Settle;
        Ok((ledger.entries.iter().filter(by_hand).cloned().collect(), ledger.position))
    }

    async fn positions(&self, requests: &[RequestId]) -> Result<Vec<(RequestId, LedgerPosition)>, StoreError> {
        let usage = self.usage.lock().await;
        Ok(requests.iter().filter_map(|request| Some((*request, usage.booked(*request)?))).collect())
    }

    async fn spending(&self, now: Timestamp) -> Result<Spending, StoreError> {
        let ledger = self.ledger.lock().await;
        let month = Timestamp::of_month(now.month()).day();
        let spent = ledger.days.iter().map(|(subject, days)| {
            let since = |first: i64| NanoUsd(days.range(first..).map(|(_, amount)| amount).sum());
            (*subject, SpendTotals::loaded(now, since(now.day()), since(month), since(i64::MIN)))
        });
        let balances = ledger.balances.iter().map(|(member, balance)| (*member, *balance));
        Ok(Spending { spent: spent.collect(), balances: balances.collect(), ledger: ledger.position })
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

    /// Ignores the position and returns all subjects.
    async fn spending_since(&self, _: LedgerPosition, now: Timestamp) -> Result<SpendingChanges, StoreError> {
        let Spending { spent, balances, ledger } = self.spending(now).await?;
        Ok(SpendingChanges { spent, balances, added: Vec::new(), until: ledger, ledger })
    }

    /// Ignores the position and returns all keys.
    async fn keys_spent_since(&self, _: LedgerPosition) -> Result<(BTreeSet<KeyId>, LedgerPosition), StoreError> {
        let ledger = self.ledger.lock().await;
        let keys = ledger.days.keys().filter_map(|subject| if let Subject::Key(key) = subject { Some(*key) } else { None });
        Ok((keys.collect(), ledger.position))
    }

    async fn verify(&self, _now: Timestamp, _control: &WorkControl) -> Result<VerifyReport, StoreError> {
        let usage = self.usage.lock().await;
        let ledger = self.ledger.lock().await;
        let mut verified = VerifyReport {
            members: ledger.balances.len() as u64,
            entries: ledger.entries.len() as u64,
            records: usage.all().count() as u64,
            attempts: usage.all().map(|record| record.attempts.len() as u64).sum(),
            ..VerifyReport::default()
        };
        let mut running = ledger.evicted.clone();
        for entry in &ledger.entries {
            let sum = running.entry(entry.member).or_default();
            *sum = settled(*sum, entry.amount).0;
            if *sum != entry.balance {
                verified.differs(ConsistencyRule::Running, entry.position.0.to_string(), sum.0, entry.balance.0);
            }
        }
        for (member, balance) in &ledger.balances {
            let sum = running.get(member).copied().unwrap_or_default();
            if sum != *balance {
                verified.differs(ConsistencyRule::Balance, member.to_string(), sum.0, balance.0);
            }
        }
        if usage.pruned_until() == Timestamp::default() && ledger.evicted.is_empty() {
            let sold = |member: &MemberId| {
                let sales = usage.all().filter(|record| record.member == *member).filter_map(|record| record.sale);
                sales.map(|sale| sale.0).sum::<i64>()
            };
            for member in ledger.balances.keys() {
                let entries = ledger.entries.iter().filter(|entry| entry.member == *member && entry.kind == LedgerKind::Settle);
                let (due, there) = (-sold(member), entries.map(|entry| entry.amount.0).sum());
                if due != there {
                    verified.differs(ConsistencyRule::Settled, member.to_string(), due, there);
                }
            }
        }
        Ok(verified)
    }
}
