//! The meters as Redis last reported them, and which subjects were used recently.

use std::{
    collections::{HashMap, HashSet},
    sync::{Mutex, MutexGuard},
};

use tollgate_core::{MemberId, Meter, NanoUsd, Subject, Timestamp};

use super::super::subjects::{SHARDS, lock, shard_of};
use crate::Spending;

/// Limit of the subjects per shard: about 300,000 in all.
const MAX_PER_SHARD: usize = 5_000;
/// Limit of the subjects that are refreshed after a second.
const MAX_TO_REFRESH: usize = 256;
const MAX_ACTIVE: usize = 10_000;

#[derive(Debug)]
pub(super) struct MeterCache {
    shards: [Mutex<HashMap<Subject, Meter>>; SHARDS],
    /// Subjects used since the last refresh.
    to_refresh: Mutex<HashSet<Subject>>,
    /// Subjects that were used and may still be active.
    active: Mutex<HashSet<Subject>>,
}

impl MeterCache {
    pub(super) fn new(spending: &Spending) -> Self {
        let cache =
            Self { shards: std::array::from_fn(|_| Mutex::default()), to_refresh: Mutex::default(), active: Mutex::default() };
        for (subject, spent) in &spending.spent {
            cache.insert(*subject, &Meter { spent: *spent, ..Meter::default() });
        }
        for (member, balance) in &spending.balances {
            cache.add_balance(*member, *balance);
        }
        cache
    }

    fn shard(&self, subject: Subject) -> MutexGuard<'_, HashMap<Subject, Meter>> {
        lock(&self.shards[shard_of(subject)])
    }

    fn insert(&self, subject: Subject, meter: &Meter) {
        let mut shard = self.shard(subject);
        if shard.len() < MAX_PER_SHARD || shard.contains_key(&subject) {
            shard.insert(subject, *meter);
        }
    }

    pub(super) fn get(&self, subject: Subject) -> Meter {
        self.shard(subject).get(&subject).copied().unwrap_or_default()
    }

    pub(super) fn store(&self, meters: &[(Subject, Meter)]) {
        for (subject, meter) in meters {
            self.insert(*subject, meter);
        }
    }

    /// Marks subjects as used by a request, so that they are refreshed and tracked as active.
    pub(super) fn mark_used(&self, meters: &[(Subject, Meter)]) {
        for (set, limit) in [(&self.to_refresh, MAX_TO_REFRESH), (&self.active, MAX_ACTIVE)] {
            let mut set = lock(set);
            let free = limit.saturating_sub(set.len());
            set.extend(meters.iter().map(|(subject, _)| *subject).take(free));
        }
    }

    /// Takes the subjects used since the last call.
    pub(super) fn take_used(&self) -> Vec<Subject> {
        std::mem::take(&mut *lock(&self.to_refresh)).into_iter().collect()
    }

    /// The active subjects with their meters, and whether the list is complete. `meter` returns `None` for a subject that is
    /// no longer active.
    pub(super) fn active(&self, meter: impl Fn(Subject) -> Option<Meter>) -> (Vec<(Subject, Meter)>, bool) {
        let subjects: Vec<Subject> = lock(&self.active).iter().copied().collect();
        let is_complete = subjects.len() < MAX_ACTIVE;
        let (mut active, mut inactive) = (Vec::new(), Vec::new());
        for subject in subjects {
            match meter(subject) {
                Some(meter) => active.push((subject, meter)),
                None => inactive.push(subject),
            }
        }
        let mut tracked = lock(&self.active);
        for subject in inactive {
            tracked.remove(&subject);
        }
        (active, is_complete)
    }

    /// Counts spending that Redis has not received yet.
    pub(super) fn add_spending(&self, subject: Subject, amount: NanoUsd, at: Timestamp) {
        let mut shard = self.shard(subject);
        if shard.len() >= MAX_PER_SHARD && !shard.contains_key(&subject) {
            return;
        }
        let meter = shard.entry(subject).or_default();
        meter.spent.add(amount, at);
        if matches!(subject, Subject::Member(_)) {
            meter.balance = meter.balance.saturating_sub(amount.0);
        }
    }

    pub(super) fn add_balance(&self, member: MemberId, amount: NanoUsd) {
        let subject = Subject::Member(member);
        let mut meter = self.get(subject);
        meter.balance = meter.balance.saturating_add(amount.0);
        self.insert(subject, &meter);
    }
}
