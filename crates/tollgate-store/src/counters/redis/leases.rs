//! What this node has on lease of all subjects: taken from in one step, or not at all.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use tokio::time::Instant;
use tollgate_core::{Limit, LimitRule, Meter, NanoUsd, Reservation, Subject};

use super::{
    super::memory::{SHARDS, place_of},
    lease::{GrantTime, LeaseGrant, LeasePool, LeaseRequest, LeaseReturn},
    reservations::{CounterDelta, CounterDeltas},
};

/// The leases of one node.
#[derive(Debug)]
pub(super) struct Leases {
    shards: [Mutex<LeasePools>; SHARDS],
}

type LeasePools = HashMap<Subject, LeasePool>;

/// Money and places that were on lease when Redis was lost; nobody else has them.
pub(super) type RetainedLeases = HashMap<Subject, (i64, u64)>;

/// A hold was taken from leases.
#[derive(Clone, Copy, Debug)]
pub(super) struct LeasedReservation {
    /// The minute its tokens were counted in, where they are.
    pub(super) minute: Option<u64>,
}

impl Leases {
    pub(super) fn new() -> Self {
        Self { shards: std::array::from_fn(|_| Mutex::default()) }
    }

    fn shard(&self, of: Subject) -> MutexGuard<'_, LeasePools> {
        locked(&self.shards[place_of(of)])
    }

    /// Takes a hold if all of it is on lease here.
    pub(super) fn reserve(&self, hold: &Reservation, now: Instant) -> Option<LeasedReservation> {
        let subjects = subjects_of(hold);
        let mut pools = LockedLeases::all(self, &subjects);
        if !subjects.iter().all(|of| pools.pool(*of).is_some_and(|pool| pool.suffices(hold, *of, now))) {
            return None;
        }
        let mut minute = None;
        for of in subjects {
            if let Some(pool) = pools.pool(of) {
                minute = pool.reserve(hold, of, now).or(minute);
            }
        }
        Some(LeasedReservation { minute })
    }

    /// What is wanted on lease with these holds, by subject, and what comes back for it; nothing for a hold while somebody
    /// else asks for one of its subjects.
    pub(super) fn ask(&self, holds: &[&Reservation], now: Instant) -> HashMap<Subject, (LeaseRequest, LeaseReturn)> {
        let mut asks = HashMap::new();
        for hold in holds {
            let subjects = subjects_of(hold);
            if subjects.iter().any(|of| asks.contains_key(of)) {
                continue;
            }
            let mut pools = LockedLeases::all(self, &subjects);
            if subjects.iter().all(|of| pools.pool_or_new(*of, now).may_ask(hold)) {
                asks.extend(subjects.into_iter().map(|of| (of, pools.pool_or_new(of, now).ask(hold, of, now))));
            }
        }
        asks
    }

    /// Somebody asked and got nothing.
    pub(super) fn not_given(&self, subjects: impl Iterator<Item = Subject>) {
        for of in subjects {
            if let Some(pool) = self.shard(of).get_mut(&of) {
                pool.not_given();
            }
        }
    }

    /// What was given for a subject in answer to a hold; what of older minutes goes back is told.
    pub(super) fn give(&self, given: LeaseGrant, hold: &Reservation, of: Subject, at: GrantTime) -> LeaseReturn {
        self.shard(of).entry(of).or_insert_with(|| LeasePool::new(at.now)).give(given, hold, of, at)
    }

    /// A request that took so much money, or a place, of a subject's lease has ended: how much of it is used up.
    pub(super) fn end(&self, of: Subject, amount: i64, spent: i64, places: u64, now: Instant) -> i64 {
        let mut shard = self.shard(of);
        let pool = shard.entry(of).or_insert_with(|| LeasePool::new(now));
        for _ in 0..places {
            pool.free_place();
        }
        pool.end(amount, spent)
    }

    /// Money was set aside for an attempt to come, or is no longer.
    pub(super) fn ahead(&self, of: Subject, amount: i64, now: Instant) {
        let mut shard = self.shard(of);
        let pool = shard.entry(of).or_insert_with(|| LeasePool::new(now));
        pool.ahead = pool.ahead.saturating_add(amount).max(0);
    }

    /// Gives back what is not used, what is over, and what others may need; `view`: how a subject stands.
    pub(super) fn sweep(&self, now: Instant, view: impl Fn(Subject, &LeasePool) -> Option<i64>, deltas: &mut CounterDeltas) {
        for shard in &self.shards {
            let mut shard = locked(shard);
            for (of, pool) in shard.iter_mut() {
                let left = view(*of, pool);
                told(deltas, *of, pool.sweep(now, left));
            }
            shard.retain(|_, pool| !pool.is_over(now));
        }
    }

    /// Gives everything back.
    pub(super) fn give_all_back(&self, deltas: &mut CounterDeltas) {
        for shard in &self.shards {
            for (of, pool) in locked(shard).iter_mut() {
                told(deltas, *of, pool.give_all_back());
            }
        }
    }

    /// Redis is lost: nothing is on lease any more, but nobody else has it either.
    pub(super) fn drain(&self) -> RetainedLeases {
        let mut kept = RetainedLeases::new();
        for shard in &self.shards {
            let pools = std::mem::take(&mut *locked(shard));
            let here = pools.into_iter().filter(|(_, pool)| pool.money() > 0 || pool.places() > 0);
            kept.extend(here.map(|(of, pool)| (of, (pool.money(), pool.places()))));
        }
        kept
    }

    /// A subject as it stands, without what only this node has and nobody uses.
    pub(super) fn without(&self, of: Subject, mut meter: Meter, micros: u64) -> Meter {
        let shard = self.shard(of);
        let Some(pool) = shard.get(&of) else { return meter };
        meter.reserved = meter.reserved.saturating_sub(pool.money()).saturating_sub(pool.ahead).max(0);
        meter.running = meter.running.saturating_sub(pool.places());
        let (requests, tokens) = pool.prepaid();
        meter.requests.adjust(requests.minute, requests.left, 0, micros);
        meter.tokens.adjust(tokens.minute, tokens.left, 0, micros);
        meter
    }

    /// Whether nobody has anything on lease.
    #[cfg(test)]
    pub(super) fn drained(&self) -> bool {
        self.shards.iter().all(|shard| locked(shard).values().all(|pool| pool.money() == 0))
    }

    /// Who has something on lease.
    pub(super) fn subjects(&self, most: usize) -> Vec<Subject> {
        let mut subjects = Vec::new();
        for shard in &self.shards {
            let shard = locked(shard);
            subjects.extend(shard.iter().filter(|(_, pool)| pool.money() > 0).map(|(of, _)| *of));
            if subjects.len() >= most {
                subjects.truncate(most);
                break;
            }
        }
        subjects
    }
}

/// What goes back is told.
pub(super) fn told(deltas: &mut CounterDeltas, of: Subject, back: LeaseReturn) {
    if back == LeaseReturn::default() {
        return;
    }
    let delta: &mut CounterDelta = deltas.entry(of).or_default();
    delta.held = delta.held.saturating_sub(back.money);
    delta.running = delta.running.saturating_sub_unsigned(back.places);
    delta.requests.extend(back.requests);
    delta.tokens.extend(back.tokens.map(|(minute, left)| (minute, left, 0)));
}

/// What a hold has to be measured against: budgets that only alert refuse nothing, and what costs nothing is no money.
pub(super) fn binding(hold: &Reservation) -> impl Iterator<Item = &Limit> {
    hold.limits.iter().filter(|limit| match limit.rule {
        LimitRule::Budget(_) | LimitRule::Balance => limit.bounds_money() && hold.amount > NanoUsd::ZERO,
        LimitRule::Requests(_) | LimitRule::Tokens(_) | LimitRule::Concurrency(_) => true,
    })
}

/// Who measures it so, each once.
pub(super) fn subjects_of(hold: &Reservation) -> Vec<Subject> {
    let mut subjects: Vec<Subject> = binding(hold).map(|limit| limit.subject).collect();
    subjects.sort_unstable();
    subjects.dedup();
    subjects
}

/// The shards of some subjects, locked in order so that nobody waits for each other.
struct LockedLeases<'a>(Vec<(usize, MutexGuard<'a, LeasePools>)>);

impl<'a> LockedLeases<'a> {
    fn all(leases: &'a Leases, subjects: &[Subject]) -> Self {
        let mut places: Vec<usize> = subjects.iter().map(|of| place_of(*of)).collect();
        places.sort_unstable();
        places.dedup();
        Self(places.into_iter().map(|place| (place, locked(&leases.shards[place]))).collect())
    }

    fn pools(&mut self, of: Subject) -> &mut LeasePools {
        let place = place_of(of);
        let found = self.0.iter_mut().find(|(at, _)| *at == place);
        &mut found.expect("the shard of every subject of these holds is locked").1
    }

    fn pool(&mut self, of: Subject) -> Option<&mut LeasePool> {
        self.pools(of).get_mut(&of)
    }

    fn pool_or_new(&mut self, of: Subject, now: Instant) -> &mut LeasePool {
        self.pools(of).entry(of).or_insert_with(|| LeasePool::new(now))
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
