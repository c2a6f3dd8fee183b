//! What this node holds and has not told Redis yet. Nothing here waits.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::time::Instant;
use tollgate_core::{Budget, Limit, LimitRule, NanoUsd, RequestId, Subject, Timestamp, UsageRecord};

use super::super::memory::{money_subjects, spends_of};

const SHARDS: usize = 64;

/// A hold that was taken.
#[derive(Clone, Debug)]
pub(super) struct Open {
    pub(super) limits: Vec<Limit>,
    tokens: u64,
    amount: NanoUsd,
    /// The minute its tokens were counted in; `None`: Redis was away.
    minute: Option<u64>,
    until: Instant,
    /// Taken out of this node's share, without Redis.
    pub(super) by_share: bool,
}

impl Open {
    pub(super) fn new(hold: &tollgate_core::Hold, minute: Option<u64>, until: Instant) -> Self {
        Self { limits: hold.limits.clone(), tokens: hold.tokens, amount: hold.amount, minute, until, by_share: minute.is_none() }
    }
}

/// What is to be told of one subject.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Delta {
    pub(super) held: i64,
    pub(super) running: i64,
    /// Minute, estimate, actual.
    pub(super) tokens: Vec<(u64, u64, u64)>,
    /// By day and month of the requests' arrival.
    pub(super) spends: BTreeMap<(i64, i64), i64>,
    /// Budgets that alert, with the time they are to be looked at.
    pub(super) watches: Vec<(Budget, Timestamp)>,
}

/// What is to be told.
pub(super) type Deltas = HashMap<Subject, Delta>;

/// Open holds, and takes under way.
#[derive(Debug)]
pub(super) struct Book {
    shards: [Mutex<Shard>; SHARDS],
    life: Duration,
}

#[derive(Debug, Default)]
struct Shard {
    open: HashMap<RequestId, Vec<Open>>,
    /// Takes that Redis has not answered; `true`: their request has ended meanwhile.
    asked: HashMap<RequestId, (u32, bool)>,
}

impl Book {
    pub(super) fn new(life: Duration) -> Self {
        Self { shards: std::array::from_fn(|_| Mutex::default()), life }
    }

    fn shard(&self, id: RequestId) -> MutexGuard<'_, Shard> {
        // The last bytes of a version 7 uuid are random.
        locked(&self.shards[usize::from(id.uuid().as_bytes()[15]) % SHARDS])
    }

    pub(super) fn until(&self, now: Instant) -> Instant {
        now + self.life
    }

    /// Redis is being asked for a hold of this request.
    pub(super) fn asking(&self, id: RequestId) {
        self.shard(id).asked.entry(id).or_default().0 += 1;
    }

    /// Redis has answered; `open` is what was taken. `false`: its request is over, so that it has to go back.
    pub(super) fn answered(&self, id: RequestId, open: Option<Open>) -> bool {
        let mut shard = self.shard(id);
        let mut over = false;
        if let Some((count, ended)) = shard.asked.get_mut(&id) {
            *count -= 1;
            over = *ended;
            if *count == 0 {
                shard.asked.remove(&id);
            }
        }
        match open {
            Some(open) if !over => {
                shard.open.entry(id).or_default().push(open);
                true
            }
            Some(_) => false,
            None => true,
        }
    }

    /// A hold that was taken without asking.
    pub(super) fn add(&self, id: RequestId, open: Open) {
        self.shard(id).open.entry(id).or_default().push(open);
    }

    /// A request has ended: its holds.
    pub(super) fn remove(&self, id: RequestId) -> Vec<Open> {
        let mut shard = self.shard(id);
        if let Some((_, ended)) = shard.asked.get_mut(&id) {
            *ended = true;
        }
        shard.open.remove(&id).unwrap_or_default()
    }

    pub(super) fn renew(&self, id: RequestId, now: Instant) {
        for open in self.shard(id).open.get_mut(&id).into_iter().flatten() {
            open.until = now + self.life;
        }
    }

    /// Takes out what has lived for too long.
    pub(super) fn over(&self, now: Instant) -> Vec<Open> {
        let mut over = Vec::new();
        for shard in &self.shards {
            let mut shard = locked(shard);
            for opens in shard.open.values_mut() {
                over.extend(opens.extract_if(.., |open| open.until <= now));
            }
            shard.open.retain(|_, opens| !opens.is_empty());
        }
        over
    }

    pub(super) fn open(&self) -> usize {
        self.shards.iter().map(|shard| locked(shard).open.values().map(Vec::len).sum::<usize>()).sum()
    }

    /// All that is held, as what has to be told to a Redis that knows nothing of it.
    pub(super) fn snapshot(&self) -> Deltas {
        let mut deltas = Deltas::new();
        for shard in &self.shards {
            for open in locked(shard).open.values().flatten() {
                hold(&mut deltas, open, 1);
            }
        }
        deltas
    }

    /// What this node has running of a subject.
    pub(super) fn running(&self, subject: Subject) -> u64 {
        let of = |open: &Open| {
            open.limits.iter().filter(|limit| limit.subject == subject && matches!(limit.rule, LimitRule::Concurrency(_))).count()
        };
        self.shards.iter().map(|shard| locked(shard).open.values().flatten().map(of).sum::<usize>() as u64).sum()
    }
}

/// Adds a hold to what is told, or takes it away (`sign` −1).
pub(super) fn hold(deltas: &mut Deltas, open: &Open, sign: i64) {
    for limit in &open.limits {
        if matches!(limit.rule, LimitRule::Concurrency(_)) {
            deltas.entry(limit.subject).or_default().running += sign;
        }
    }
    for subject in money_subjects(&open.limits) {
        let held = &mut deltas.entry(subject).or_default().held;
        *held = held.saturating_add(open.amount.0.saturating_mul(sign));
    }
}

/// Puts the estimate of a hold's tokens right.
pub(super) fn correct(deltas: &mut Deltas, open: &Open, tokens: u64) {
    let Some(minute) = open.minute else { return };
    for limit in &open.limits {
        if let LimitRule::Tokens(most) = limit.rule {
            deltas.entry(limit.subject).or_default().tokens.push((minute, open.tokens.min(most), tokens));
        }
    }
}

/// Counts what a request came to.
pub(super) fn spend(deltas: &mut Deltas, record: &UsageRecord) -> Vec<(Subject, NanoUsd)> {
    let spends = spends_of(record);
    for (subject, amount) in &spends {
        let period = (record.at.day(), record.at.month());
        let spent = deltas.entry(*subject).or_default().spends.entry(period).or_default();
        *spent = spent.saturating_add(amount.0);
    }
    spends
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
