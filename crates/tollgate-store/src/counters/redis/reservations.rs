//! What this node holds and has not told Redis yet. Nothing here waits.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::time::Instant;
use tollgate_core::{Budget, Limit, LimitRule, NanoUsd, RequestId, Reservation, Subject, Timestamp, UsageRecord, Window};

use super::super::{
    Spender,
    memory::{alerts, money_subjects, spends_of},
};

const SHARDS: usize = 64;
/// Most requests of one message that are known by name for one budget.
const MOST_SPENDERS: usize = 64;

/// A hold that was taken.
#[derive(Clone, Debug)]
pub(super) struct OpenReservation {
    pub(super) limits: Vec<Limit>,
    tokens: u64,
    pub(super) amount: NanoUsd,
    /// The minute its tokens were counted in; `None`: they were not.
    minute: Option<u64>,
    until: Instant,
    pub(super) source: ReservationSource,
    /// Set aside for an attempt that has not begun.
    pub(super) ahead: bool,
}

/// Where a hold was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReservationSource {
    /// Redis was asked, or there was nothing to ask.
    Redis,
    /// Out of what was on lease, of this seat.
    Lease(u64),
    /// Out of this node's share, without Redis.
    OutageShare,
}

/// What came of setting aside ahead.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum AheadClaim {
    /// Nothing was, or nobody asked.
    None,
    /// It was asked for, and there was too little.
    Refused,
    /// It was, so much in all; this much was more than needed.
    Taken { amount: i64, surplus: i64 },
}

impl OpenReservation {
    pub(super) fn new(hold: &Reservation, source: ReservationSource, minute: Option<u64>, until: Instant) -> Self {
        Self { limits: hold.limits.clone(), tokens: hold.tokens, amount: hold.amount, minute, until, source, ahead: false }
    }

    /// For an attempt to come.
    pub(super) fn ahead(hold: &Reservation, until: Instant) -> Self {
        Self { ahead: true, ..Self::new(hold, ReservationSource::Redis, None, until) }
    }

    /// Who lends money or a place to it: subject, money, places.
    pub(super) fn lent(&self) -> impl Iterator<Item = (Subject, i64, u64)> {
        let money = money_subjects(&self.limits).into_iter().map(|of| (of, self.amount.0, 0));
        let concurrent = self.limits.iter().filter(|limit| matches!(limit.rule, LimitRule::Concurrency(_)));
        money.chain(concurrent.map(|limit| (limit.subject, 0, 1)))
    }
}

/// What is to be told of one subject.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct CounterDelta {
    pub(super) held: i64,
    pub(super) running: i64,
    /// Minute, estimate, actual.
    pub(super) tokens: Vec<(u64, u64, u64)>,
    /// Minute, and requests that were counted in it and not made.
    pub(super) requests: Vec<(u64, u64)>,
    /// By day and month of the requests' arrival.
    pub(super) spends: BTreeMap<(i64, i64), i64>,
    /// Budgets that alert, each once for a day.
    pub(super) watches: Vec<BudgetWatch>,
}

/// A budget that alerts, and who may have crossed it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct BudgetWatch {
    pub(super) budget: Budget,
    /// When it is looked at.
    pub(super) at: Timestamp,
    /// Requests with what they spent, in the order they ended. Of more than [`MOST_SPENDERS`] the last stands for the rest.
    spenders: Vec<(Spender, i64)>,
}

impl BudgetWatch {
    /// Who crossed it, and what was spent then. `after`: what is spent now; `told`: how much of that was told along with
    /// this watch.
    pub(super) fn crossed_by(&self, after: i64, told: i64) -> Option<(&Spender, i64)> {
        let known = self.spenders.iter().fold(0_i64, |sum, (_, amount)| sum.saturating_add(*amount));
        // What others came to, who were not held to this budget, came before.
        let mut spent = after.saturating_sub(told).saturating_add(told.saturating_sub(known));
        let found = self.spenders.iter().find(|(_, amount)| {
            spent = spent.saturating_add(*amount);
            spent >= self.budget.amount.0
        });
        found.or(self.spenders.last()).map(|(spender, _)| (spender, spent.min(after)))
    }
}

impl CounterDelta {
    /// What is told to be spent in the period that `at` lies in.
    pub(super) fn told(&self, window: Window, at: Timestamp) -> i64 {
        let within = self.spends.iter().filter(|((day, month), _)| match window {
            Window::Day => *day == at.day(),
            Window::Month => *month == at.month(),
            Window::Total => true,
        });
        within.fold(0, |sum, (_, amount)| sum.saturating_add(*amount))
    }
}

/// What is to be told.
pub(super) type CounterDeltas = HashMap<Subject, CounterDelta>;

/// Open reservations, and takes under way.
#[derive(Debug)]
pub(super) struct ReservationTable {
    shards: [Mutex<ReservationShard>; SHARDS],
    life: Duration,
}

#[derive(Debug, Default)]
struct ReservationShard {
    open: HashMap<RequestId, Vec<OpenReservation>>,
    /// Takes that Redis has not answered; `true`: their request has ended meanwhile.
    asked: HashMap<RequestId, (u32, bool)>,
    /// What was asked for attempts to come, and was too much.
    refused: HashMap<RequestId, Vec<Subject>>,
}

impl ReservationTable {
    pub(super) fn new(life: Duration) -> Self {
        Self { shards: std::array::from_fn(|_| Mutex::default()), life }
    }

    fn shard(&self, id: RequestId) -> MutexGuard<'_, ReservationShard> {
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

    /// Redis has answered; `opens` is what was taken, `refused` what was not for attempts to come. `false`: its request is
    /// over, so that it has to go back.
    pub(super) fn answered(&self, id: RequestId, opens: &[OpenReservation], refused: Vec<Subject>) -> bool {
        let mut shard = self.shard(id);
        let mut over = false;
        if let Some((count, ended)) = shard.asked.get_mut(&id) {
            *count -= 1;
            over = *ended;
            if *count == 0 {
                shard.asked.remove(&id);
            }
        }
        if over {
            return false;
        }
        if !opens.is_empty() {
            shard.open.entry(id).or_default().extend_from_slice(opens);
        }
        if !refused.is_empty() {
            shard.refused.entry(id).or_default().extend(refused);
        }
        true
    }

    /// What was set aside for an attempt becomes its hold.
    pub(super) fn claim(&self, hold: &Reservation) -> AheadClaim {
        let mut shard = self.shard(hold.id);
        let opens = shard.open.get_mut(&hold.id).into_iter().flatten();
        for open in opens {
            if open.ahead && open.limits == hold.limits && open.amount >= hold.amount {
                let amount = open.amount.0;
                (open.ahead, open.amount) = (false, hold.amount);
                return AheadClaim::Taken { amount, surplus: amount - hold.amount.0 };
            }
        }
        let refused = shard.refused.get(&hold.id).is_some_and(|of| hold.limits.iter().any(|limit| of.contains(&limit.subject)));
        if refused { AheadClaim::Refused } else { AheadClaim::None }
    }

    /// There will be no further attempt: what was set aside for one.
    pub(super) fn without_ahead(&self, id: RequestId) -> Vec<OpenReservation> {
        let mut shard = self.shard(id);
        let Some(opens) = shard.open.get_mut(&id) else { return Vec::new() };
        opens.extract_if(.., |open| open.ahead).collect()
    }

    /// What was taken without asking. Always `true`: its request is there, since it asks.
    pub(super) fn add(&self, id: RequestId, opens: &[OpenReservation]) -> bool {
        if !opens.is_empty() {
            self.shard(id).open.entry(id).or_default().extend_from_slice(opens);
        }
        true
    }

    /// A request has ended: its holds.
    pub(super) fn remove(&self, id: RequestId) -> Vec<OpenReservation> {
        let mut shard = self.shard(id);
        if let Some((_, ended)) = shard.asked.get_mut(&id) {
            *ended = true;
        }
        shard.refused.remove(&id);
        shard.open.remove(&id).unwrap_or_default()
    }

    pub(super) fn renew(&self, id: RequestId, now: Instant) {
        for open in self.shard(id).open.get_mut(&id).into_iter().flatten() {
            open.until = now + self.life;
        }
    }

    /// Takes out what has lived for too long.
    pub(super) fn over(&self, now: Instant) -> Vec<OpenReservation> {
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
    pub(super) fn snapshot(&self) -> CounterDeltas {
        let mut deltas = CounterDeltas::new();
        for shard in &self.shards {
            for open in locked(shard).open.values().flatten() {
                hold(&mut deltas, open, 1);
            }
        }
        deltas
    }

    /// What this node has running of a subject.
    pub(super) fn running(&self, subject: Subject) -> u64 {
        let of = |open: &OpenReservation| {
            open.limits.iter().filter(|limit| limit.subject == subject && matches!(limit.rule, LimitRule::Concurrency(_))).count()
        };
        self.shards.iter().map(|shard| locked(shard).open.values().flatten().map(of).sum::<usize>() as u64).sum()
    }
}

/// Adds a hold to what is told, or takes it away (`sign` −1).
pub(super) fn hold(deltas: &mut CounterDeltas, open: &OpenReservation, sign: i64) {
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
pub(super) fn correct(deltas: &mut CounterDeltas, open: &OpenReservation, tokens: u64) {
    let Some(minute) = open.minute else { return };
    for limit in &open.limits {
        if let LimitRule::Tokens(most) = limit.rule {
            deltas.entry(limit.subject).or_default().tokens.push((minute, open.tokens.min(most), tokens));
        }
    }
}

/// Has the budgets looked at that alert on a request.
pub(super) fn watch(deltas: &mut CounterDeltas, held: &[OpenReservation], spends: &[(Subject, NanoUsd)], record: &UsageRecord) {
    for (subject, budget) in alerts(held.iter().flat_map(|open| &open.limits)) {
        let amount = spends.iter().filter(|(of, _)| *of == subject).map(|(_, amount)| amount.0).sum::<i64>();
        let watches = &mut deltas.entry(subject).or_default().watches;
        let same = |it: &BudgetWatch| it.budget == budget && it.at.day() == record.at.day();
        let place = watches.iter().position(same).unwrap_or_else(|| {
            watches.push(BudgetWatch { budget, at: record.at, spenders: Vec::new() });
            watches.len() - 1
        });
        let spenders = &mut watches[place].spenders;
        let full = spenders.len() >= MOST_SPENDERS;
        let spender = Spender { request: record.id, key: record.key_name.clone() };
        let rest = spenders.pop_if(|_| full).map_or(0, |(_, rest)| rest);
        spenders.push((spender, amount.saturating_add(rest)));
    }
}

/// Counts what a request came to.
pub(super) fn spend(deltas: &mut CounterDeltas, record: &UsageRecord) -> Vec<(Subject, NanoUsd)> {
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
