//! Counting in memory, for one node: a meter for every subject, in shards that are locked for one step each.
//!
//! A hold locks the shards of all its subjects, in order, checks everything, and only then changes anything. A subject
//! that was used since the start keeps its meter, one that was used before the start 64 bytes, so that a budget that is given to
//! it later knows what was spent.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, OnceLock, PoisonError},
    time::Duration,
};

use async_trait::async_trait;
use tokio::time::Instant;
use tollgate_core::{
    Budget, BudgetAction, BudgetAlert, Limit, LimitExceeded, LimitRule, MemberId, Meter, NanoUsd, PackedSpendTotals, RateStatuses,
    RequestId, Reservation, ReservationReceipt, Subject, Timestamp, UsageRecord, Window, rate_statuses,
};

use super::{CounterSnapshot, Counters, Spending};
use crate::StoreError;

pub(super) const SHARDS: usize = 64;
/// How often a shard of holds looks for those that are over.
const SWEEP_EVERY: Duration = Duration::from_secs(10);

/// The counters of one node.
#[derive(Debug)]
pub(crate) struct MemoryCounters {
    meters: [Mutex<MeterShard>; SHARDS],
    holds: [Mutex<ReservationShard>; SHARDS],
    /// How long a hold lives without a sign of life.
    life: Duration,
    /// What monotonic time is counted from.
    epoch: OnceLock<Instant>,
}

/// The meters of a shard.
#[derive(Debug, Default)]
struct MeterShard {
    live: HashMap<Subject, TrackedMeter>,
    /// Who was known at the start, in order, in little room; whoever is asked for gets a meter.
    before: Vec<(Subject, InitialSpending)>,
    /// Whose meters are marked as used lately.
    lately: Vec<Subject>,
}

/// A meter of a subject.
#[derive(Clone, Copy, Debug, Default)]
struct TrackedMeter {
    meter: Meter,
    /// Whether it is among those used lately.
    lately: bool,
}

/// What was known of a subject at the start.
#[derive(Clone, Copy, Debug)]
struct InitialSpending {
    spent: PackedSpendTotals,
    balance: i64,
}

impl MeterShard {
    fn meter(&mut self, subject: Subject) -> &mut Meter {
        let before = &self.before;
        let new = || TrackedMeter { meter: known_before(before, subject).unwrap_or_default(), lately: false };
        let kept = self.live.entry(subject).or_insert_with(new);
        if !kept.lately {
            kept.lately = true;
            self.lately.push(subject);
        }
        &mut kept.meter
    }

    fn get(&self, subject: Subject) -> Option<Meter> {
        self.live.get(&subject).map(|kept| kept.meter).or_else(|| known_before(&self.before, subject))
    }

    /// Who is in use; whoever no longer is, is no longer looked at.
    fn in_use(&mut self, micros: u64, mut each: impl FnMut(Subject, Meter)) {
        let live = &mut self.live;
        self.lately.retain(|subject| {
            let Some(kept) = live.get_mut(subject) else { return false };
            kept.lately = kept.meter.in_use(micros);
            if kept.lately {
                each(*subject, kept.meter);
            }
            kept.lately
        });
    }

    /// Begins with the balance of a subject.
    fn begin_with(&mut self, subject: Subject, balance: i64) {
        match self.before.binary_search_by_key(&subject, |(of, _)| *of) {
            Ok(at) => self.before[at].1.balance = balance,
            Err(_) => self.meter(subject).balance = balance,
        }
    }
}

/// The meter of somebody who was known at the start.
fn known_before(before: &[(Subject, InitialSpending)], subject: Subject) -> Option<Meter> {
    let at = before.binary_search_by_key(&subject, |(of, _)| *of).ok()?;
    let InitialSpending { spent, balance } = before[at].1;
    Some(Meter { spent: spent.unpacked(), balance, ..Meter::default() })
}

#[derive(Debug, Default)]
struct ReservationShard {
    open: HashMap<RequestId, Vec<MemoryReservation>>,
    swept: Option<Instant>,
}

/// A hold that was taken.
#[derive(Debug)]
struct MemoryReservation {
    limits: Vec<Limit>,
    tokens: u64,
    amount: NanoUsd,
    /// The buckets its tokens went into, in the order of the limits on tokens.
    buckets: Vec<u64>,
    until: Instant,
}

impl MemoryCounters {
    /// Counters that begin with what was spent. A hold without a sign of life ends after `life`.
    pub(crate) fn new(spending: &Spending, life: Duration) -> Self {
        let counters = Self {
            meters: std::array::from_fn(|_| Mutex::default()),
            holds: std::array::from_fn(|_| Mutex::default()),
            life,
            epoch: OnceLock::new(),
        };
        for (subject, spent) in &spending.spent {
            let mut shard = counters.shard(*subject);
            match spent.packed() {
                Some(spent) => shard.before.push((*subject, InitialSpending { spent, balance: 0 })),
                None => shard.meter(*subject).spent = *spent,
            }
        }
        for shard in &counters.meters {
            let mut shard = locked(shard);
            shard.before.sort_unstable_by_key(|(of, _)| *of);
            shard.before.shrink_to_fit();
        }
        for (member, balance) in &spending.balances {
            let subject = Subject::Member(*member);
            counters.shard(subject).begin_with(subject, balance.0);
        }
        counters
    }

    fn shard(&self, subject: Subject) -> MutexGuard<'_, MeterShard> {
        locked(&self.meters[place_of(subject)])
    }

    fn holds(&self, id: RequestId) -> MutexGuard<'_, ReservationShard> {
        // The last bytes of a version 7 uuid are random.
        locked(&self.holds[usize::from(id.uuid().as_bytes()[15]) % SHARDS])
    }

    /// Monotonic microseconds.
    fn micros(&self, now: Instant) -> u64 {
        let epoch = self.epoch.get_or_init(|| now);
        u64::try_from(now.saturating_duration_since(*epoch).as_micros()).unwrap_or(u64::MAX)
    }

    /// A hold goes back, and nothing came of its request.
    pub(super) fn let_go(&self, id: RequestId, now: Instant) {
        let micros = self.micros(now);
        for open in self.holds(id).open.remove(&id).unwrap_or_default() {
            LockedMeters::all(self, open.subjects()).release(&open, 0, micros);
        }
    }

    pub(super) fn take_now(&self, hold: &Reservation, now: Instant) -> Result<ReservationReceipt, LimitExceeded> {
        self.take_as(hold, now).map(|(taken, _)| taken)
    }

    /// Takes a hold, lowered where that has to be: the hold as it was taken.
    pub(super) fn take_as(&self, hold: &Reservation, now: Instant) -> Result<(ReservationReceipt, Reservation), LimitExceeded> {
        let micros = self.micros(now);
        let mut locks = LockedMeters::all(self, hold.limits.iter().map(|limit| limit.subject));
        let hold = hold.fit_to_limits(micros, |subject| *locks.meter(subject))?;
        let buckets = locks.commit(&hold, micros);
        let rate_statuses = locks.rate_statuses(&hold.limits, micros);
        drop(locks);
        let open = MemoryReservation {
            limits: hold.limits.clone(),
            tokens: hold.tokens,
            amount: hold.amount,
            buckets,
            until: now + self.life,
        };
        let mut holds = self.holds(hold.id);
        holds.open.entry(hold.id).or_default().push(open);
        let over = holds.over(now);
        drop(holds);
        for open in over {
            LockedMeters::all(self, open.subjects()).release(&open, open.tokens, micros);
        }
        Ok((ReservationReceipt { rate_statuses, output: hold.output }, hold))
    }
}

#[async_trait]
impl Counters for MemoryCounters {
    async fn reserve(
        &self,
        hold: &Reservation,
        _: &[Reservation],
        now: Instant,
    ) -> Result<Result<ReservationReceipt, LimitExceeded>, StoreError> {
        Ok(self.take_now(hold, now))
    }

    fn renew(&self, id: RequestId, now: Instant) {
        for open in self.holds(id).open.get_mut(&id).into_iter().flatten() {
            open.until = now + self.life;
        }
    }

    fn settle(&self, record: &UsageRecord, now: Instant) -> Vec<BudgetAlert> {
        let held = self.holds(record.id).open.remove(&record.id).unwrap_or_default();
        let spends = spends_of(record);
        let subjects = held.iter().flat_map(MemoryReservation::subjects).chain(spends.iter().map(|(subject, _)| *subject));
        let (micros, tokens) = (self.micros(now), record.tokens.prompt().saturating_add(record.tokens.completion()));
        // One step: nobody sees money that is neither held nor spent, or both.
        let mut locks = LockedMeters::all(self, subjects);
        for open in &held {
            locks.release(open, tokens, micros);
        }
        let watched: Vec<(Subject, Budget, NanoUsd)> = alerts(held.iter().flat_map(|open| &open.limits))
            .into_iter()
            .map(|(subject, budget)| (subject, budget, locks.settled(subject, budget.window, record.at)))
            .collect();
        for (subject, amount) in &spends {
            locks.spend(*subject, *amount, record.at);
        }
        watched
            .into_iter()
            .map(|(subject, budget, before)| {
                (before, BudgetAlert { subject, budget, spent: locks.settled(subject, budget.window, record.at) })
            })
            .filter(|(before, crossed)| *before < crossed.budget.amount && crossed.spent >= crossed.budget.amount)
            .map(|(_, crossed)| crossed)
            .collect()
    }

    fn spent(&self, subject: Subject, window: Window, at: Timestamp) -> NanoUsd {
        let shard = self.shard(subject);
        let Some(meter) = shard.get(subject) else { return NanoUsd::ZERO };
        NanoUsd(meter.spent.within(window, at).0.saturating_add(meter.reserved))
    }

    fn look(&self, subjects: &[Subject], now: Instant) -> CounterSnapshot {
        let meters = subjects.iter().map(|subject| (*subject, self.shard(*subject).get(*subject).unwrap_or_default()));
        CounterSnapshot { micros: self.micros(now), meters: meters.collect(), is_all: true }
    }

    fn in_use(&self, most: usize, now: Instant) -> CounterSnapshot {
        let mut look = CounterSnapshot { micros: self.micros(now), meters: Vec::new(), is_all: true };
        for shard in &self.meters {
            locked(shard).in_use(look.micros, |subject, meter| look.meters.push((subject, meter)));
        }
        look.at_most(most)
    }

    fn posted(&self, member: MemberId, amount: NanoUsd) {
        let subject = Subject::Member(member);
        let mut shard = self.shard(subject);
        let meter = shard.meter(subject);
        meter.balance = meter.balance.saturating_add(amount.0);
    }

    fn open(&self) -> usize {
        self.holds.iter().map(|holds| locked(holds).open.values().map(Vec::len).sum::<usize>()).sum()
    }
}

// === impl MemoryReservation ===

impl MemoryReservation {
    fn subjects(&self) -> impl Iterator<Item = Subject> {
        self.limits.iter().map(|limit| limit.subject)
    }
}

// === impl ReservationShard ===

impl ReservationShard {
    /// Takes out what has lived for too long: nobody will give it back any more.
    fn over(&mut self, now: Instant) -> Vec<MemoryReservation> {
        if self.swept.is_some_and(|swept| now < swept + SWEEP_EVERY) {
            return Vec::new();
        }
        self.swept = Some(now);
        let mut over = Vec::new();
        for opens in self.open.values_mut() {
            over.extend(opens.extract_if(.., |open| open.until <= now));
        }
        self.open.retain(|_, opens| !opens.is_empty());
        over
    }
}

// === several shards at once ===

/// The shards of some limits, locked in order so that nobody waits for each other.
struct LockedMeters<'a> {
    shards: Vec<(usize, MutexGuard<'a, MeterShard>)>,
}

impl<'a> LockedMeters<'a> {
    fn all(counters: &'a MemoryCounters, subjects: impl Iterator<Item = Subject>) -> Self {
        let mut places: Vec<usize> = subjects.map(place_of).collect();
        places.sort_unstable();
        places.dedup();
        Self { shards: places.into_iter().map(|place| (place, locked(&counters.meters[place]))).collect() }
    }

    fn meter(&mut self, subject: Subject) -> &mut Meter {
        let place = place_of(subject);
        let shard = self.shards.iter_mut().find(|(at, _)| *at == place);
        shard.expect("the shard of every subject of these limits is locked").1.meter(subject)
    }

    fn commit(&mut self, hold: &Reservation, micros: u64) -> Vec<u64> {
        let mut buckets = Vec::new();
        for limit in &hold.limits {
            let meter = self.meter(limit.subject);
            match limit.rule {
                LimitRule::Requests(_) => drop(meter.requests.add(1, micros)),
                LimitRule::Tokens(most) => buckets.push(meter.tokens.add(hold.tokens.min(most), micros)),
                LimitRule::Concurrency(_) => meter.running += 1,
                LimitRule::Budget(_) | LimitRule::Balance => {}
            }
        }
        for subject in money_subjects(&hold.limits) {
            let meter = self.meter(subject);
            meter.reserved = meter.reserved.saturating_add(hold.amount.0);
        }
        buckets
    }

    /// Gives back what a hold set aside; `tokens` is what its request came to.
    fn release(&mut self, open: &MemoryReservation, tokens: u64, micros: u64) {
        let mut buckets = open.buckets.iter();
        for limit in &open.limits {
            let meter = self.meter(limit.subject);
            match limit.rule {
                LimitRule::Concurrency(_) => meter.running = meter.running.saturating_sub(1),
                LimitRule::Tokens(most) => {
                    if let Some(bucket) = buckets.next() {
                        meter.tokens.adjust(*bucket, open.tokens.min(most), tokens, micros);
                    }
                }
                LimitRule::Requests(_) | LimitRule::Budget(_) | LimitRule::Balance => {}
            }
        }
        for subject in money_subjects(&open.limits) {
            let meter = self.meter(subject);
            meter.reserved = meter.reserved.saturating_sub(open.amount.0);
        }
    }

    /// Counts money that was spent.
    fn spend(&mut self, subject: Subject, amount: NanoUsd, at: Timestamp) {
        let meter = self.meter(subject);
        meter.spent.add(amount, at);
        if matches!(subject, Subject::Member(_)) {
            meter.balance = meter.balance.saturating_sub(amount.0);
        }
    }

    /// Money spent, without what is set aside.
    fn settled(&mut self, subject: Subject, window: Window, at: Timestamp) -> NanoUsd {
        self.meter(subject).spent.within(window, at)
    }

    fn rate_statuses(&mut self, limits: &[Limit], micros: u64) -> RateStatuses {
        rate_statuses(limits, micros, |subject| *self.meter(subject))
    }
}

/// Who spends how much with a request: the sale on key, member, group and gateway, the cost on each attempt's channel.
pub(super) fn spends_of(record: &UsageRecord) -> Vec<(Subject, NanoUsd)> {
    let sale = record.sale.unwrap_or_default();
    let payers = [Some(Subject::Key(record.key)), Some(Subject::Member(record.member)), record.group.map(Subject::Group)];
    let payers = payers.into_iter().flatten().chain([Subject::Gateway]).map(|subject| (subject, sale));
    let costs = record.attempts.iter().map(|attempt| (Subject::Channel(attempt.channel), attempt.cost.unwrap_or_default()));
    payers.chain(costs).filter(|(_, amount)| *amount != NanoUsd::ZERO).collect()
}

/// The budgets of some holds that only alert, each once.
pub(super) fn alerts<'a>(limits: impl Iterator<Item = &'a Limit>) -> Vec<(Subject, Budget)> {
    let mut alerts = Vec::new();
    for limit in limits {
        if let LimitRule::Budget(budget) = limit.rule
            && budget.action == BudgetAction::Alert
            && !alerts.contains(&(limit.subject, budget))
        {
            alerts.push((limit.subject, budget));
        }
    }
    alerts
}

/// Whose money is bounded, each once.
pub(super) fn money_subjects(limits: &[Limit]) -> Vec<Subject> {
    let mut subjects: Vec<Subject> = limits.iter().filter(|limit| limit.bounds_money()).map(|limit| limit.subject).collect();
    subjects.sort_unstable();
    subjects.dedup();
    subjects
}

pub(super) fn place_of(subject: Subject) -> usize {
    let uuid = match subject {
        Subject::Key(id) => id.uuid(),
        Subject::Member(id) => id.uuid(),
        Subject::Group(id) => id.uuid(),
        Subject::Channel(id) => id.uuid(),
        Subject::Gateway => return 0,
    };
    usize::from(uuid.as_bytes()[15]) % SHARDS
}

/// A panic of another thread in the middle of a step would have been a bug of ours; what it left is still counted with.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
