//! Counters in memory, for a single node: a meter per subject, in shards.
//!
//! A reservation locks the shards of all its subjects in order, checks all limits, and only then changes meters. A subject
//! used since the start has a full meter; one known only from the database takes 64 bytes, so that a budget added to it later
//! still counts its spending.

mod hand_over;

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, OnceLock},
    time::Duration,
};

use async_trait::async_trait;
use tokio::time::Instant;
use tollgate_core::{
    Budget, BudgetAlert, IdHash, Limit, LimitExceeded, LimitRule, MemberId, Meter, NanoUsd, PackedSpendTotals, RateStatuses,
    RequestId, Reservation, ReservationReceipt, Subject, Timestamp, UsageRecord, Window, rate_statuses,
};

use super::{
    reservation_ttl::ReservationTtl,
    subjects::{SHARDS, alerting_budgets, charges_of, lock, lock_order, money_subjects, shard_of, shard_of_request},
    traits::{CounterSnapshot, Counters},
};
use crate::{Spending, StoreError};

pub use hand_over::CounterHandOver;

/// How often a shard of reservations is searched for expired ones.
const SWEEP_INTERVAL: Duration = Duration::from_secs(10);

#[derive(Debug)]
pub(crate) struct MemoryCounters {
    meters: [Mutex<MeterShard>; SHARDS],
    reservations: [Mutex<ReservationShard>; SHARDS],
    reservation_ttl: Arc<ReservationTtl>,
    /// Origin of monotonic time: the first time seen.
    epoch: OnceLock<Instant>,
}

#[derive(Debug, Default)]
struct MeterShard {
    live: HashMap<Subject, TrackedMeter, IdHash>,
    /// Spending from before the start, sorted by subject. A subject in `live` overrides its entry here.
    initial: Vec<(Subject, InitialSpending)>,
    /// The subjects whose meters are flagged as active.
    active: Vec<Subject>,
}

#[derive(Clone, Copy, Debug, Default)]
struct TrackedMeter {
    meter: Meter,
    is_active: bool,
}

/// Spending and balance of a subject at the start.
#[derive(Clone, Copy, Debug)]
struct InitialSpending {
    spent: PackedSpendTotals,
    balance: i64,
}

impl MeterShard {
    fn meter(&mut self, subject: Subject) -> &mut Meter {
        let initial = &self.initial;
        let new = || TrackedMeter { meter: initial_meter(initial, subject).unwrap_or_default(), is_active: false };
        let tracked = self.live.entry(subject).or_insert_with(new);
        if !tracked.is_active {
            tracked.is_active = true;
            self.active.push(subject);
        }
        &mut tracked.meter
    }

    fn spend(&mut self, subject: Subject, amount: NanoUsd, at: Timestamp) {
        let meter = self.meter(subject);
        meter.spent.add(amount, at);
        if matches!(subject, Subject::Member(_)) {
            meter.balance = meter.balance.saturating_sub(amount.0);
        }
    }

    fn get(&self, subject: Subject) -> Option<Meter> {
        self.live.get(&subject).map(|tracked| tracked.meter).or_else(|| initial_meter(&self.initial, subject))
    }

    /// Calls a function for each active subject, and drops subjects that are no longer active from the list.
    fn visit_active(&mut self, micros: u64, mut visit: impl FnMut(Subject, Meter)) {
        let live = &mut self.live;
        self.active.retain(|subject| {
            let Some(tracked) = live.get_mut(subject) else { return false };
            tracked.is_active = tracked.meter.in_use(micros);
            if tracked.is_active {
                visit(*subject, tracked.meter);
            }
            tracked.is_active
        });
    }

    fn set_initial_balance(&mut self, subject: Subject, balance: i64) {
        match self.initial.binary_search_by_key(&subject, |(subject, _)| *subject) {
            Ok(at) => self.initial[at].1.balance = balance,
            Err(_) => self.meter(subject).balance = balance,
        }
    }
}

fn initial_meter(initial: &[(Subject, InitialSpending)], subject: Subject) -> Option<Meter> {
    let at = initial.binary_search_by_key(&subject, |(subject, _)| *subject).ok()?;
    let InitialSpending { spent, balance } = initial[at].1;
    Some(Meter { spent: spent.unpacked(), balance, ..Meter::default() })
}

#[derive(Debug, Default)]
struct ReservationShard {
    open: HashMap<RequestId, Vec<MemoryReservation>, IdHash>,
    swept: Option<Instant>,
}

#[derive(Debug)]
struct MemoryReservation {
    limits: Vec<Limit>,
    tokens: u64,
    amount: NanoUsd,
    /// The buckets its tokens were counted in, in the order of the limits on tokens.
    buckets: Vec<u64>,
    expires: Instant,
    /// True if the request runs in another process.
    is_elsewhere: bool,
}

impl MemoryCounters {
    /// Counters that start with `spending`. A reservation expires `reservation_ttl` after its last renewal.
    pub(crate) fn new(spending: &Spending, reservation_ttl: Duration) -> Self {
        Self::with_ttl(spending, Arc::new(ReservationTtl::new(reservation_ttl)))
    }

    /// Like [`Self::new`], with a lifetime that several counters share.
    pub(super) fn with_ttl(spending: &Spending, reservation_ttl: Arc<ReservationTtl>) -> Self {
        let counters = Self {
            meters: std::array::from_fn(|_| Mutex::default()),
            reservations: std::array::from_fn(|_| Mutex::default()),
            reservation_ttl,
            epoch: OnceLock::new(),
        };
        for (subject, spent) in &spending.spent {
            let mut shard = counters.shard(*subject);
            match spent.packed() {
                Some(spent) => shard.initial.push((*subject, InitialSpending { spent, balance: 0 })),
                None => shard.meter(*subject).spent = *spent,
            }
        }
        for shard in &counters.meters {
            let mut shard = lock(shard);
            shard.initial.sort_unstable_by_key(|(subject, _)| *subject);
            shard.initial.shrink_to_fit();
        }
        for (member, balance) in &spending.balances {
            let subject = Subject::Member(*member);
            counters.shard(subject).set_initial_balance(subject, balance.0);
        }
        counters
    }

    fn shard(&self, subject: Subject) -> MutexGuard<'_, MeterShard> {
        lock(&self.meters[shard_of(subject)])
    }

    fn reservations(&self, id: RequestId) -> MutexGuard<'_, ReservationShard> {
        lock(&self.reservations[shard_of_request(id)])
    }

    /// Counts a reservation as running and its money as reserved. Its rates are counted already.
    fn hold(&self, open: &MemoryReservation) {
        let mut meters = LockedMeters::of(self, open.subjects());
        for limit in open.limits.iter().filter(|limit| matches!(limit.rule, LimitRule::Concurrency(_))) {
            meters.meter(limit.subject).running += 1;
        }
        for subject in money_subjects(&open.limits) {
            let meter = meters.meter(subject);
            meter.reserved = meter.reserved.saturating_add(open.amount.0);
        }
    }

    fn micros(&self, now: Instant) -> u64 {
        let epoch = self.epoch.get_or_init(|| now);
        u64::try_from(now.saturating_duration_since(*epoch).as_micros()).unwrap_or(u64::MAX)
    }

    /// Counts requests and tokens that were used before.
    pub(super) fn count_rates(&self, subject: Subject, requests: u64, tokens: u64, now: Instant) {
        let micros = self.micros(now);
        let mut shard = self.shard(subject);
        let meter = shard.meter(subject);
        meter.requests.add(requests, micros);
        meter.tokens.add(tokens, micros);
    }

    /// Releases the reservations of a request that used nothing.
    pub(super) fn release(&self, id: RequestId, now: Instant) {
        let micros = self.micros(now);
        for open in self.reservations(id).open.remove(&id).unwrap_or_default() {
            LockedMeters::of(self, open.subjects()).release(&open, 0, micros);
        }
    }

    /// Makes a reservation, lowered to the available money where permitted. Returns the reservation that was made.
    pub(super) fn try_reserve(
        &self,
        reservation: &Reservation,
        now: Instant,
    ) -> Result<(ReservationReceipt, Reservation), LimitExceeded> {
        let micros = self.micros(now);
        let mut meters = LockedMeters::of(self, reservation.limits.iter().map(|limit| limit.subject));
        let reservation = reservation.fit_to_limits(micros, |subject| *meters.meter(subject))?;
        let buckets = meters.add(&reservation, micros);
        let rate_statuses = meters.rate_statuses(&reservation.limits, micros);
        drop(meters);
        let open = MemoryReservation {
            limits: reservation.limits.clone(),
            tokens: reservation.tokens,
            amount: reservation.amount,
            buckets,
            expires: self.reservation_ttl.expiry(now),
            is_elsewhere: false,
        };
        let mut shard = self.reservations(reservation.id);
        shard.open.entry(reservation.id).or_default().push(open);
        let expired = shard.remove_expired(now);
        drop(shard);
        for open in expired {
            LockedMeters::of(self, open.subjects()).release(&open, open.tokens, micros);
        }
        Ok((ReservationReceipt { rate_statuses, output: reservation.output }, reservation))
    }
}

#[async_trait]
impl Counters for MemoryCounters {
    async fn reserve(
        &self,
        reservation: &Reservation,
        _: &[Reservation],
        now: Instant,
    ) -> Result<Result<ReservationReceipt, LimitExceeded>, StoreError> {
        Ok(self.try_reserve(reservation, now).map(|(receipt, _)| receipt))
    }

    fn set_reservation_ttl(&self, ttl: Duration) {
        self.reservation_ttl.set(ttl);
    }

    fn renew(&self, id: RequestId, now: Instant) {
        for open in self.reservations(id).open.get_mut(&id).into_iter().flatten() {
            open.expires = self.reservation_ttl.expiry(now);
        }
    }

    fn settle(&self, record: &UsageRecord, now: Instant) -> Vec<BudgetAlert> {
        let released = self.reservations(record.id).open.remove(&record.id).unwrap_or_default();
        let charges = charges_of(record);
        if released.is_empty() {
            for (subject, amount) in charges {
                self.shard(subject).spend(subject, amount, record.at);
            }
            return Vec::new();
        }
        let subjects = released.iter().flat_map(MemoryReservation::subjects).chain(charges.clone().map(|(subject, _)| subject));
        let (micros, tokens) = (self.micros(now), record.tokens.prompt().saturating_add(record.tokens.completion()));
        // Under one lock: no reader sees money that is neither reserved nor spent, or both.
        let mut meters = LockedMeters::of(self, subjects);
        for open in &released {
            meters.release(open, tokens, micros);
        }
        let watched: Vec<(Subject, Budget, NanoUsd)> = alerting_budgets(released.iter().flat_map(|open| &open.limits))
            .into_iter()
            .map(|(subject, budget)| (subject, budget, meters.spent(subject, budget.window, record.at)))
            .collect();
        for (subject, amount) in charges {
            meters.spend(subject, amount, record.at);
        }
        watched
            .into_iter()
            .map(|(subject, budget, before)| {
                (before, BudgetAlert { subject, budget, spent: meters.spent(subject, budget.window, record.at) })
            })
            .filter(|(before, alert)| *before < alert.budget.amount && alert.spent >= alert.budget.amount)
            .map(|(_, alert)| alert)
            .collect()
    }

    fn spent(&self, subject: Subject, window: Window, at: Timestamp) -> NanoUsd {
        let shard = self.shard(subject);
        let Some(meter) = shard.get(subject) else { return NanoUsd::ZERO };
        NanoUsd(meter.spent.within(window, at).0.saturating_add(meter.reserved))
    }

    fn snapshot(&self, subjects: &[Subject], now: Instant) -> CounterSnapshot {
        let meters = subjects.iter().map(|subject| (*subject, self.shard(*subject).get(*subject).unwrap_or_default()));
        CounterSnapshot { micros: self.micros(now), meters: meters.collect(), is_complete: true }
    }

    fn active_subjects(&self, limit: usize, now: Instant) -> CounterSnapshot {
        let mut snapshot = CounterSnapshot { micros: self.micros(now), meters: Vec::new(), is_complete: true };
        for shard in &self.meters {
            lock(shard).visit_active(snapshot.micros, |subject, meter| snapshot.meters.push((subject, meter)));
        }
        snapshot.truncated(limit)
    }

    fn record_posting(&self, member: MemberId, amount: NanoUsd) {
        let subject = Subject::Member(member);
        let mut shard = self.shard(subject);
        let meter = shard.meter(subject);
        meter.balance = meter.balance.saturating_add(amount.0);
    }

    fn has_reservation(&self, id: RequestId) -> bool {
        self.reservations(id).open.contains_key(&id)
    }

    fn hand_over(&self, now: Instant) -> CounterHandOver {
        self.export(now)
    }

    fn take_over(&self, handed: CounterHandOver, now: Instant) {
        self.import(handed, now);
    }

    fn own_reservations(&self) -> usize {
        let own = |open: &Vec<MemoryReservation>| open.iter().filter(|open| !open.is_elsewhere).count();
        self.reservations.iter().map(|shard| lock(shard).open.values().map(own).sum::<usize>()).sum()
    }

    fn open_reservations(&self) -> usize {
        self.reservations.iter().map(|shard| lock(shard).open.values().map(Vec::len).sum::<usize>()).sum()
    }
}

impl MemoryReservation {
    fn subjects(&self) -> impl Iterator<Item = Subject> {
        self.limits.iter().map(|limit| limit.subject)
    }
}

impl ReservationShard {
    /// Removes the expired reservations, at most once per [`SWEEP_INTERVAL`].
    fn remove_expired(&mut self, now: Instant) -> Vec<MemoryReservation> {
        if self.swept.is_some_and(|swept| now < swept + SWEEP_INTERVAL) {
            return Vec::new();
        }
        self.swept = Some(now);
        let mut expired = Vec::new();
        for reservations in self.open.values_mut() {
            expired.extend(reservations.extract_if(.., |open| open.expires <= now));
        }
        self.open.retain(|_, reservations| !reservations.is_empty());
        expired
    }
}

struct LockedMeters<'a> {
    shards: Vec<(usize, MutexGuard<'a, MeterShard>)>,
}

impl<'a> LockedMeters<'a> {
    fn of(counters: &'a MemoryCounters, subjects: impl Iterator<Item = Subject>) -> Self {
        Self { shards: lock_order(subjects).into_iter().map(|shard| (shard, lock(&counters.meters[shard]))).collect() }
    }

    fn meter(&mut self, subject: Subject) -> &mut Meter {
        let wanted = shard_of(subject);
        let shard = self.shards.iter_mut().find(|(shard, _)| *shard == wanted);
        shard.expect("the shard of every subject is locked").1.meter(subject)
    }

    /// Adds a reservation to the meters. Returns the buckets its tokens were counted in.
    fn add(&mut self, reservation: &Reservation, micros: u64) -> Vec<u64> {
        let mut buckets = Vec::new();
        for limit in &reservation.limits {
            let meter = self.meter(limit.subject);
            match limit.rule {
                LimitRule::Requests(_) => drop(meter.requests.add(1, micros)),
                LimitRule::Tokens(limit) => buckets.push(meter.tokens.add(reservation.tokens.min(limit), micros)),
                LimitRule::Concurrency(_) => meter.running += 1,
                LimitRule::Budget(_) | LimitRule::Balance => {}
            }
        }
        for subject in money_subjects(&reservation.limits) {
            let meter = self.meter(subject);
            meter.reserved = meter.reserved.saturating_add(reservation.amount.0);
        }
        buckets
    }

    /// Removes a reservation from the meters; `tokens` is what its request used.
    fn release(&mut self, open: &MemoryReservation, tokens: u64, micros: u64) {
        let mut buckets = open.buckets.iter();
        for limit in &open.limits {
            let meter = self.meter(limit.subject);
            match limit.rule {
                LimitRule::Concurrency(_) => meter.running = meter.running.saturating_sub(1),
                LimitRule::Tokens(limit) => {
                    if let Some(bucket) = buckets.next() {
                        meter.tokens.adjust(*bucket, open.tokens.min(limit), tokens, micros);
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

    fn spend(&mut self, subject: Subject, amount: NanoUsd, at: Timestamp) {
        let wanted = shard_of(subject);
        let shard = self.shards.iter_mut().find(|(shard, _)| *shard == wanted);
        shard.expect("the shard of every subject is locked").1.spend(subject, amount, at);
    }

    /// Money spent, without reservations.
    fn spent(&mut self, subject: Subject, window: Window, at: Timestamp) -> NanoUsd {
        self.meter(subject).spent.within(window, at)
    }

    fn rate_statuses(&mut self, limits: &[Limit], micros: u64) -> RateStatuses {
        rate_statuses(limits, micros, |subject| *self.meter(subject))
    }
}

#[cfg(test)]
mod tests;
