//! The open reservations of this node, and the changes they make to counters.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard},
};

use tokio::time::Instant;
use tollgate_core::{Limit, LimitRule, NanoUsd, RequestId, Reservation, Subject, UsageRecord};

use super::{
    super::{
        reservation_ttl::ReservationTtl,
        subjects::{SHARDS, alerting_budgets, lock, money_subjects, shard_of_request},
        traits::Spender,
    },
    deltas::{BudgetWatch, CounterDeltas},
};

#[derive(Clone, Debug)]
pub(super) struct OpenReservation {
    pub(super) limits: Vec<Limit>,
    tokens: u64,
    pub(super) amount: NanoUsd,
    /// The minute its tokens were counted in; `None` if they were not.
    minute: Option<u64>,
    expires: Instant,
    pub(super) source: ReservationSource,
    /// Prepared for an attempt that has not begun.
    pub(super) is_prepared: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReservationSource {
    /// In Redis, or not at all because no limit applies.
    Redis,
    /// From the leases of the connection epoch with this number.
    Lease(u64),
    /// From this node's share during an outage of Redis.
    OutageShare,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum PreparedClaim {
    None,
    Refused,
    /// Claimed. `amount` was prepared, of which `surplus` is not needed.
    Claimed {
        amount: i64,
        surplus: i64,
    },
}

impl OpenReservation {
    pub(super) fn new(reservation: &Reservation, source: ReservationSource, minute: Option<u64>, expires: Instant) -> Self {
        Self {
            limits: reservation.limits.clone(),
            tokens: reservation.tokens,
            amount: reservation.amount,
            minute,
            expires,
            source,
            is_prepared: false,
        }
    }

    /// A reservation in Redis for a later attempt.
    pub(super) fn prepared(reservation: &Reservation, expires: Instant) -> Self {
        Self { is_prepared: true, ..Self::new(reservation, ReservationSource::Redis, None, expires) }
    }

    /// The money and concurrency permits it takes: subject, money, permits.
    pub(super) fn leased_amounts(&self) -> impl Iterator<Item = (Subject, i64, u64)> {
        let money = money_subjects(&self.limits).into_iter().map(|subject| (subject, self.amount.0, 0));
        let concurrent = self.limits.iter().filter(|limit| matches!(limit.rule, LimitRule::Concurrency(_)));
        money.chain(concurrent.map(|limit| (limit.subject, 0, 1)))
    }

    pub(super) fn add_to(&self, deltas: &mut CounterDeltas) {
        self.apply(deltas, 1);
    }

    pub(super) fn subtract_from(&self, deltas: &mut CounterDeltas) {
        self.apply(deltas, -1);
    }

    fn apply(&self, deltas: &mut CounterDeltas, sign: i64) {
        for limit in &self.limits {
            if matches!(limit.rule, LimitRule::Concurrency(_)) {
                deltas.entry(limit.subject).or_default().running += sign;
            }
        }
        for subject in money_subjects(&self.limits) {
            let reserved = &mut deltas.entry(subject).or_default().reserved;
            *reserved = reserved.saturating_add(self.amount.0.saturating_mul(sign));
        }
    }

    /// Corrects the estimated tokens to those that the request used.
    pub(super) fn correct_tokens(&self, deltas: &mut CounterDeltas, tokens: u64) {
        let Some(minute) = self.minute else { return };
        for limit in &self.limits {
            if let LimitRule::Tokens(limit_tokens) = limit.rule {
                deltas.entry(limit.subject).or_default().tokens.push((minute, self.tokens.min(limit_tokens), tokens));
            }
        }
    }
}

/// Adds watches for the alerting budgets of a request's reservations.
pub(super) fn watch_budgets(
    deltas: &mut CounterDeltas,
    released: &[OpenReservation],
    charges: &[(Subject, NanoUsd)],
    record: &UsageRecord,
) {
    for (subject, budget) in alerting_budgets(released.iter().flat_map(|open| &open.limits)) {
        let amount = charges.iter().filter(|(charged, _)| *charged == subject).map(|(_, amount)| amount.0).sum::<i64>();
        let watches = &mut deltas.entry(subject).or_default().watches;
        let at = watches.iter().position(|watch| watch.covers(&budget, record.at)).unwrap_or_else(|| {
            watches.push(BudgetWatch::new(budget, record.at));
            watches.len() - 1
        });
        watches[at].add_spender(Spender { request: record.id, key: record.key_name.to_string() }, amount);
    }
}

/// The open reservations of this node, and its requests to Redis in flight.
#[derive(Debug)]
pub(super) struct ReservationTable {
    shards: [Mutex<ReservationShard>; SHARDS],
    ttl: Arc<ReservationTtl>,
}

#[derive(Debug, Default)]
struct ReservationShard {
    open: HashMap<RequestId, Vec<OpenReservation>>,
    in_flight: HashMap<RequestId, InFlight>,
    /// Subjects for which Redis refused to prepare a reservation.
    refused: HashMap<RequestId, Vec<Subject>>,
}

/// Reservations of one request that Redis has not answered.
#[derive(Debug, Default)]
struct InFlight {
    count: u32,
    /// The request has ended in the meantime.
    ended: bool,
}

impl ReservationTable {
    pub(super) fn new(ttl: Arc<ReservationTtl>) -> Self {
        Self { shards: std::array::from_fn(|_| Mutex::default()), ttl }
    }

    fn shard(&self, id: RequestId) -> MutexGuard<'_, ReservationShard> {
        lock(&self.shards[shard_of_request(id)])
    }

    /// Expiry of a reservation made or renewed now.
    pub(super) fn expiry(&self, now: Instant) -> Instant {
        self.ttl.expiry(now)
    }

    /// Records that a reservation of this request was sent to Redis.
    pub(super) fn begin_request(&self, id: RequestId) {
        self.shard(id).in_flight.entry(id).or_default().count += 1;
    }

    /// Completes [`begin_request`](Self::begin_request) with the reservations made and the subjects for which none could be
    /// prepared. False if the request has ended: the reservations are not kept and have to be released.
    pub(super) fn complete_request(&self, id: RequestId, made: &[OpenReservation], refused: Vec<Subject>) -> bool {
        let mut shard = self.shard(id);
        let mut ended = false;
        if let Some(in_flight) = shard.in_flight.get_mut(&id) {
            in_flight.count -= 1;
            ended = in_flight.ended;
            if in_flight.count == 0 {
                shard.in_flight.remove(&id);
            }
        }
        if ended {
            return false;
        }
        if !made.is_empty() {
            shard.open.entry(id).or_default().extend_from_slice(made);
        }
        if !refused.is_empty() {
            shard.refused.entry(id).or_default().extend(refused);
        }
        true
    }

    /// Turns a prepared reservation with the same limits into the reservation of the attempt.
    pub(super) fn claim_prepared(&self, reservation: &Reservation) -> PreparedClaim {
        let mut shard = self.shard(reservation.id);
        for open in shard.open.get_mut(&reservation.id).into_iter().flatten() {
            if open.is_prepared && open.limits == reservation.limits && open.amount >= reservation.amount {
                let amount = open.amount.0;
                (open.is_prepared, open.amount) = (false, reservation.amount);
                return PreparedClaim::Claimed { amount, surplus: amount - reservation.amount.0 };
            }
        }
        let is_refused = |subjects: &Vec<Subject>| reservation.limits.iter().any(|limit| subjects.contains(&limit.subject));
        if shard.refused.get(&reservation.id).is_some_and(is_refused) { PreparedClaim::Refused } else { PreparedClaim::None }
    }

    pub(super) fn remove_prepared(&self, id: RequestId) -> Vec<OpenReservation> {
        let mut shard = self.shard(id);
        let Some(open) = shard.open.get_mut(&id) else { return Vec::new() };
        open.extract_if(.., |open| open.is_prepared).collect()
    }

    /// Adds a reservation that was made without Redis.
    pub(super) fn add(&self, id: RequestId, open: OpenReservation) {
        self.shard(id).open.entry(id).or_default().push(open);
    }

    /// Removes the reservations of a request that has ended.
    pub(super) fn remove(&self, id: RequestId) -> Vec<OpenReservation> {
        let mut shard = self.shard(id);
        if let Some(in_flight) = shard.in_flight.get_mut(&id) {
            in_flight.ended = true;
        }
        shard.refused.remove(&id);
        shard.open.remove(&id).unwrap_or_default()
    }

    pub(super) fn renew(&self, id: RequestId, now: Instant) {
        for open in self.shard(id).open.get_mut(&id).into_iter().flatten() {
            open.expires = self.ttl.expiry(now);
        }
    }

    pub(super) fn remove_expired(&self, now: Instant) -> Vec<OpenReservation> {
        let mut expired = Vec::new();
        for shard in &self.shards {
            let mut shard = lock(shard);
            for reservations in shard.open.values_mut() {
                expired.extend(reservations.extract_if(.., |open| open.expires <= now));
            }
            shard.open.retain(|_, reservations| !reservations.is_empty());
        }
        expired
    }

    pub(super) fn len(&self) -> usize {
        self.shards.iter().map(|shard| lock(shard).open.values().map(Vec::len).sum::<usize>()).sum()
    }

    /// All open reservations as deltas, for a Redis without them.
    pub(super) fn as_deltas(&self) -> CounterDeltas {
        let mut deltas = CounterDeltas::new();
        for shard in &self.shards {
            for open in lock(shard).open.values().flatten() {
                open.add_to(&mut deltas);
            }
        }
        deltas
    }

    /// Number of requests of a subject that run on this node.
    pub(super) fn running(&self, subject: Subject) -> u64 {
        let is_concurrency = |limit: &&Limit| limit.subject == subject && matches!(limit.rule, LimitRule::Concurrency(_));
        let running = |open: &OpenReservation| open.limits.iter().filter(is_concurrency).count();
        self.shards.iter().map(|shard| lock(shard).open.values().flatten().map(running).sum::<usize>() as u64).sum()
    }
}
