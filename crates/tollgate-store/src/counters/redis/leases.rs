//! The leases of one node on all subjects. A reservation takes from several of them atomically.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard},
};

use tokio::time::Instant;
use tollgate_core::{Meter, Reservation, Subject};

use super::{
    super::subjects::{SHARDS, binding_subjects, lock, lock_order, shard_of},
    deltas::CounterDeltas,
    lease::{GrantTime, LeaseGrant, LeasePool, LeaseRequest, LeaseReturn},
};

#[derive(Debug)]
pub(super) struct Leases {
    shards: [Mutex<LeasePools>; SHARDS],
}

type LeasePools = HashMap<Subject, LeasePool>;

/// Money and concurrency permits that were leased when the connection to Redis was lost. No other node can use them.
pub(super) type RetainedLeases = HashMap<Subject, (i64, u64)>;

#[derive(Clone, Copy, Debug)]
pub(super) struct LeasedReservation {
    /// The minute its tokens were counted in, if they were.
    pub(super) minute: Option<u64>,
}

impl Leases {
    pub(super) fn new() -> Self {
        Self { shards: std::array::from_fn(|_| Mutex::default()) }
    }

    fn shard(&self, subject: Subject) -> MutexGuard<'_, LeasePools> {
        lock(&self.shards[shard_of(subject)])
    }

    /// Takes a reservation if the leases cover all of it.
    pub(super) fn reserve(&self, reservation: &Reservation, now: Instant) -> Option<LeasedReservation> {
        let subjects = binding_subjects(reservation);
        let mut pools = LockedLeases::of(self, &subjects);
        let mut is_covered = |subject: &Subject| pools.get(*subject).is_some_and(|pool| pool.covers(reservation, *subject, now));
        if !subjects.iter().all(&mut is_covered) {
            return None;
        }
        let mut minute = None;
        for subject in subjects {
            minute = pools.get_or_insert(subject, now).reserve(reservation, subject, now).or(minute);
        }
        Some(LeasedReservation { minute })
    }

    /// Begins a request for leases along with these reservations, by subject. A reservation is left out if a request for one
    /// of its subjects is in flight.
    pub(super) fn request(&self, reservations: &[&Reservation], now: Instant) -> HashMap<Subject, (LeaseRequest, LeaseReturn)> {
        let mut requests = HashMap::new();
        for reservation in reservations {
            let subjects = binding_subjects(reservation);
            if subjects.iter().any(|subject| requests.contains_key(subject)) {
                continue;
            }
            let mut pools = LockedLeases::of(self, &subjects);
            if subjects.iter().all(|subject| pools.get_or_insert(*subject, now).may_request(reservation)) {
                let request = |subject| (subject, pools.get_or_insert(subject, now).request(reservation, subject, now));
                requests.extend(subjects.into_iter().map(request));
            }
        }
        requests
    }

    pub(super) fn request_failed(&self, subjects: impl Iterator<Item = Subject>) {
        for subject in subjects {
            if let Some(pool) = self.shard(subject).get_mut(&subject) {
                pool.request_failed();
            }
        }
    }

    /// Ends a request with a grant. Returns allowances of a past minute.
    pub(super) fn grant(&self, granted: LeaseGrant, reservation: &Reservation, subject: Subject, at: GrantTime) -> LeaseReturn {
        self.shard(subject).entry(subject).or_insert_with(|| LeasePool::new(at.now)).grant(granted, reservation, subject, at)
    }

    /// Settles a request that took `amount` and `permits` of a subject's lease. Returns how much of the money is used up.
    pub(super) fn settle(&self, subject: Subject, amount: i64, spent: i64, permits: u64, now: Instant) -> i64 {
        let mut shard = self.shard(subject);
        let pool = shard.entry(subject).or_insert_with(|| LeasePool::new(now));
        for _ in 0..permits {
            pool.release_permit();
        }
        pool.settle(amount, spent)
    }

    pub(super) fn add_prepared(&self, subject: Subject, amount: i64, now: Instant) {
        let mut shard = self.shard(subject);
        let pool = shard.entry(subject).or_insert_with(|| LeasePool::new(now));
        pool.prepared = pool.prepared.saturating_add(amount).max(0);
    }

    /// Returns leases that are idle, expired or too large. `left` is a subject's total remaining money, `None` if unknown.
    pub(super) fn sweep(&self, now: Instant, left: impl Fn(Subject, &LeasePool) -> Option<i64>, deltas: &mut CounterDeltas) {
        for shard in &self.shards {
            let mut shard = lock(shard);
            for (subject, pool) in shard.iter_mut() {
                let left = left(*subject, pool);
                pool.sweep(now, left).add_to(deltas, *subject);
            }
            shard.retain(|_, pool| !pool.is_disused(now));
        }
    }

    pub(super) fn return_all(&self, deltas: &mut CounterDeltas) {
        for shard in &self.shards {
            for (subject, pool) in lock(shard).iter_mut() {
                pool.return_all().add_to(deltas, *subject);
            }
        }
    }

    /// Ends all leases because the connection to Redis was lost. `unused` gets the requests and tokens that were not used.
    pub(super) fn drain(&self, unused: &mut CounterDeltas) -> RetainedLeases {
        let mut retained = RetainedLeases::new();
        for shard in &self.shards {
            let mut pools = std::mem::take(&mut *lock(shard));
            for (subject, pool) in &mut pools {
                let (requests, tokens) = (pool.requests.take(), pool.tokens.take());
                LeaseReturn { requests, tokens, ..LeaseReturn::default() }.add_to(unused, *subject);
            }
            let used = pools.into_iter().filter(|(_, pool)| pool.money > 0 || pool.permits > 0);
            retained.extend(used.map(|(subject, pool)| (subject, (pool.money, pool.permits))));
        }
        retained
    }

    /// A meter without amounts that this node has leased or prepared and that no request uses.
    pub(super) fn exclude_unused(&self, subject: Subject, mut meter: Meter, micros: u64) -> Meter {
        let shard = self.shard(subject);
        let Some(pool) = shard.get(&subject) else { return meter };
        meter.reserved = meter.reserved.saturating_sub(pool.money).saturating_sub(pool.prepared).max(0);
        meter.running = meter.running.saturating_sub(pool.permits);
        meter.requests.adjust(pool.requests.minute, pool.requests.left, 0, micros);
        meter.tokens.adjust(pool.tokens.minute, pool.tokens.left, 0, micros);
        meter
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.shards.iter().all(|shard| lock(shard).values().all(|pool| pool.money == 0))
    }

    /// At most `limit` subjects with leased money.
    pub(super) fn subjects(&self, limit: usize) -> Vec<Subject> {
        let mut subjects = Vec::new();
        for shard in &self.shards {
            let shard = lock(shard);
            subjects.extend(shard.iter().filter(|(_, pool)| pool.money > 0).map(|(subject, _)| *subject));
            if subjects.len() >= limit {
                subjects.truncate(limit);
                break;
            }
        }
        subjects
    }
}

impl LeaseReturn {
    pub(super) fn add_to(self, deltas: &mut CounterDeltas, subject: Subject) {
        if self == Self::default() {
            return;
        }
        let delta = deltas.entry(subject).or_default();
        delta.reserved = delta.reserved.saturating_sub(self.money);
        delta.running = delta.running.saturating_sub_unsigned(self.permits);
        delta.requests.extend(self.requests);
        delta.tokens.extend(self.tokens.map(|(minute, left)| (minute, left, 0)));
    }
}

struct LockedLeases<'a>(Vec<(usize, MutexGuard<'a, LeasePools>)>);

impl<'a> LockedLeases<'a> {
    fn of(leases: &'a Leases, subjects: &[Subject]) -> Self {
        let shards = lock_order(subjects.iter().copied());
        Self(shards.into_iter().map(|shard| (shard, lock(&leases.shards[shard]))).collect())
    }

    fn pools(&mut self, subject: Subject) -> &mut LeasePools {
        let wanted = shard_of(subject);
        let found = self.0.iter_mut().find(|(shard, _)| *shard == wanted);
        &mut found.expect("the shard of every subject is locked").1
    }

    fn get(&mut self, subject: Subject) -> Option<&mut LeasePool> {
        self.pools(subject).get_mut(&subject)
    }

    fn get_or_insert(&mut self, subject: Subject, now: Instant) -> &mut LeasePool {
        self.pools(subject).entry(subject).or_insert_with(|| LeasePool::new(now))
    }
}
