//! How subjects stood when Redis was last asked, and which were asked for lately.

use std::{
    collections::{HashMap, HashSet},
    sync::{Mutex, MutexGuard, PoisonError},
};

use tollgate_core::{MemberId, Meter, NanoUsd, Subject, Timestamp};

use super::script::SubjectMeter;
use crate::{Spending, subject};

const SHARDS: usize = 64;
/// Most subjects of a shard: about 300,000 in all.
const MOST: usize = 5_000;
/// Most subjects that are looked at again after a second.
const TOUCHED: usize = 256;
/// Most subjects that are known to be in use.
const LATELY: usize = 10_000;

/// The views.
#[derive(Debug)]
pub(super) struct MeterCache {
    shards: [Mutex<HashMap<Subject, Meter>>; SHARDS],
    touched: Mutex<HashSet<Subject>>,
    /// Who was asked for and may be in use still.
    lately: Mutex<HashSet<Subject>>,
}

impl MeterCache {
    /// Beginning with what the database says.
    pub(super) fn new(spending: &Spending) -> Self {
        let views = Self { shards: std::array::from_fn(|_| Mutex::default()), touched: Mutex::default(), lately: Mutex::default() };
        for (of, spent) in &spending.spent {
            views.put(*of, &Meter { spent: *spent, ..Meter::default() });
        }
        for (member, balance) in &spending.balances {
            views.posted(*member, *balance);
        }
        views
    }

    fn shard(&self, of: Subject) -> MutexGuard<'_, HashMap<Subject, Meter>> {
        let place = subject::name(of).bytes().fold(0_usize, |sum, byte| sum.wrapping_mul(31).wrapping_add(usize::from(byte)));
        locked(&self.shards[place % SHARDS])
    }

    fn put(&self, of: Subject, meter: &Meter) {
        let mut shard = self.shard(of);
        if shard.len() < MOST || shard.contains_key(&of) {
            shard.insert(of, *meter);
        }
    }

    /// How a subject stood.
    pub(super) fn of(&self, of: Subject) -> Meter {
        self.shard(of).get(&of).copied().unwrap_or_default()
    }

    /// An answer of Redis. `asked`: somebody wanted to know, who may want to know again.
    pub(super) fn note(&self, meters: &[SubjectMeter], asked: bool) {
        for (of, meter) in meters {
            self.put(*of, meter);
        }
        if asked {
            let mut touched = locked(&self.touched);
            let room = TOUCHED.saturating_sub(touched.len());
            touched.extend(meters.iter().map(|(of, _)| *of).take(room));
            drop(touched);
            let mut lately = locked(&self.lately);
            let room = LATELY.saturating_sub(lately.len());
            lately.extend(meters.iter().map(|(of, _)| *of).take(room));
        }
    }

    /// What was asked for since the last call.
    pub(super) fn take_touched(&self) -> Vec<Subject> {
        std::mem::take(&mut *locked(&self.touched)).into_iter().collect()
    }

    /// Who is in use, with how they stand, and whether that is everybody; `stands` says `None` of whoever no longer is.
    pub(super) fn lately(&self, stands: impl Fn(Subject) -> Option<Meter>) -> (Vec<(Subject, Meter)>, bool) {
        let subjects: Vec<Subject> = locked(&self.lately).iter().copied().collect();
        let is_all = subjects.len() < LATELY;
        let (mut found, mut over) = (Vec::new(), Vec::new());
        for of in subjects {
            match stands(of) {
                Some(meter) => found.push((of, meter)),
                None => over.push(of),
            }
        }
        let mut lately = locked(&self.lately);
        for of in over {
            lately.remove(&of);
        }
        (found, is_all)
    }

    /// Money was spent that Redis has not counted yet.
    pub(super) fn spent(&self, of: Subject, amount: NanoUsd, at: Timestamp) {
        let mut shard = self.shard(of);
        if shard.len() >= MOST && !shard.contains_key(&of) {
            return;
        }
        let meter = shard.entry(of).or_default();
        meter.spent.add(amount, at);
        if matches!(of, Subject::Member(_)) {
            meter.balance = meter.balance.saturating_sub(amount.0);
        }
    }

    /// Money was posted.
    pub(super) fn posted(&self, member: MemberId, amount: NanoUsd) {
        let of = Subject::Member(member);
        let mut meter = self.of(of);
        meter.balance = meter.balance.saturating_add(amount.0);
        self.put(of, &meter);
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
