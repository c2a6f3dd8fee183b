//! Making reservations: from prepared ones, from leases, in Redis, or from the outage share.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use redis::aio::MultiplexedConnection;
use tokio::time::{Instant, timeout};
use tollgate_core::{
    FundsStatus, LimitExceeded, LimitRule, Meter, NanoUsd, RateExceeded, RateKind, RateStatuses, Reservation, ReservationReceipt,
    Subject, rate_statuses,
};

use super::{
    super::subjects::{binding_limits, binding_subjects, money_subjects},
    deltas::CounterDeltas,
    lease::GrantTime,
    leases::RetainedLeases,
    outage_share::{OutageShare, ShareBase},
    own_rates::{RateWindows, counted_by_lease, counted_for},
    reservations::{OpenReservation, PreparedClaim, ReservationSource},
    script::{Disconnect, NodeRegistration, ReservationGrant, ReservationRequest},
    state::{ConnectionState, Epoch, MINUTE, RedisState},
};

/// Longest wait for a reservation in Redis; after it the outage share applies.
const RESERVE_TIMEOUT: Duration = Duration::from_secs(1);

type Outcome = Result<ReservationReceipt, LimitExceeded>;

/// Makes a reservation from the nearest source that can: prepared, leases, Redis, outage share.
pub(super) async fn reserve(state: &Arc<RedisState>, reservation: &Reservation, attempts: &[Reservation], now: Instant) -> Outcome {
    if let Some(outcome) = state.claim_prepared(reservation, now) {
        return outcome;
    }
    if binding_limits(reservation).next().is_none() {
        let expiry = state.reservations.expiry(now);
        state.reservations.add(reservation.id, OpenReservation::new(reservation, ReservationSource::Redis, None, expiry));
        return Ok(ReservationReceipt { rate_statuses: RateStatuses::default(), output: reservation.output });
    }
    if let Some(receipt) = state.reserve_from_lease(reservation, now) {
        return Ok(receipt);
    }
    let up = state.connection().await;
    let Some((epoch, connection, node)) = up else { return state.reserve_from_share(reservation, now, false) };
    state.reservations.begin_request(reservation.id);
    let attempts = attempts.iter().filter(|attempt| attempt.amount > NanoUsd::ZERO).cloned().collect();
    let (shared, owned) = (Arc::clone(state), reservation.clone());
    // A task, so that the reply is recorded even if the request is dropped.
    let task = state.tracker.spawn(async move { shared.reserve_remotely(owned, attempts, now, epoch, connection, node).await });
    // The task fails only if it panics or its runtime shuts down.
    task.await.unwrap_or_else(|_| state.reserve_from_share(reservation, now, true))
}

impl RedisState {
    /// Claims the reservation that was prepared for an attempt when its request was admitted.
    fn claim_prepared(&self, reservation: &Reservation, now: Instant) -> Option<Outcome> {
        // Held until the deltas are updated, so that no new epoch begins in between.
        let epoch = self.epoch();
        match self.reservations.claim_prepared(reservation) {
            PreparedClaim::None => None,
            PreparedClaim::Claimed { amount, surplus } => {
                for subject in money_subjects(&reservation.limits) {
                    self.leases.add_prepared(subject, -amount, now);
                    if surplus > 0 && !epoch.is_down() {
                        self.update_pending(|deltas| deltas.entry(subject).or_default().reserved -= surplus);
                    }
                }
                Some(Ok(ReservationReceipt { rate_statuses: RateStatuses::default(), output: reservation.output }))
            }
            PreparedClaim::Refused => Some(Err(self.insufficient_funds(reservation))),
        }
    }

    /// The error for a reservation that Redis refused to prepare, from the meters it reported with the refusal.
    fn insufficient_funds(&self, reservation: &Reservation) -> LimitExceeded {
        if let Err(exceeded) = reservation.fit_to_limits(0, |subject| self.meters.get(subject)) {
            return exceeded;
        }
        let limit = reservation.limits.iter().find(|limit| limit.bounds_money());
        let budget = limit.and_then(|limit| if let LimitRule::Budget(budget) = limit.rule { Some(budget) } else { None });
        let subject = limit.map_or(Subject::Gateway, |limit| limit.subject);
        LimitExceeded::Money(FundsStatus { subject, budget, spent: NanoUsd::ZERO, left: NanoUsd::ZERO })
    }

    /// Reserves from leases; `None` if they do not cover the reservation or the registration may have expired.
    fn reserve_from_lease(&self, reservation: &Reservation, now: Instant) -> Option<ReservationReceipt> {
        let epoch = self.epoch();
        let ConnectionState::Up { .. } = epoch.connection else { return None };
        let clock = *self.lease_clock();
        if clock.registered_until.is_none_or(|until| now >= until) {
            return None;
        }
        let minute = self.leases.reserve(reservation, now)?.minute;
        let (source, expiry) = (ReservationSource::Lease(epoch.number), self.reservations.expiry(now));
        self.reservations.add(reservation.id, OpenReservation::new(reservation, source, minute, expiry));
        drop(epoch);
        let micros = clock.micros_at(now);
        Some(ReservationReceipt {
            rate_statuses: rate_statuses(&reservation.limits, micros, |subject| self.meter(subject, micros)),
            output: reservation.output,
        })
    }

    /// Reserves from this node's share of the limits. `is_in_flight` if a request to Redis was begun and has failed.
    fn reserve_from_share(&self, reservation: &Reservation, now: Instant, is_in_flight: bool) -> Outcome {
        let epoch = self.epoch();
        let share = match epoch.outage_share() {
            Some(share) => Arc::clone(share),
            // The connection was restored meanwhile. Reserving from a share of the remaining amount is still safe.
            None => Arc::new(OutageShare::new(self.node_count(), Arc::clone(&self.reservation_ttl), RetainedLeases::new())),
        };
        let micros = self.redis_micros(now);
        let outcome = share.reserve(reservation, now, |subject| {
            ShareBase::of(&self.meters.get(subject), self.reservations.running(subject), micros)
        });
        let open = outcome
            .as_ref()
            .ok()
            .map(|(_, made)| (made, Some(micros / MINUTE), self.reservations.expiry(now)))
            .map(|(made, minute, expiry)| OpenReservation::new(made, ReservationSource::OutageShare, minute, expiry));
        let is_kept = if is_in_flight {
            self.reservations.complete_request(reservation.id, open.as_slice(), Vec::new())
        } else {
            if let Some(open) = &open {
                self.reservations.add(reservation.id, open.clone());
            }
            true
        };
        match &open {
            Some(_) if !is_kept => share.release(reservation, now),
            Some(open) if !epoch.is_down() => self.update_pending(|deltas| open.add_to(deltas)),
            Some(_) | None => {}
        }
        if let (Ok((_, made)), true) = (&outcome, is_kept) {
            self.count_in_share(made, micros, epoch.is_down());
        }
        outcome.map(|(receipt, _)| receipt)
    }

    /// Counts requests and tokens, which are sent to Redis when it is reachable again.
    fn count_in_share(&self, made: &Reservation, micros: u64, is_down: bool) {
        for subject in binding_subjects(made) {
            let counted = counted_for(&made.limits, made.tokens, subject);
            self.own_rates.count(subject, counted, micros, !is_down);
            if !is_down && counted != (0, 0) {
                let mut windows = RateWindows::default();
                windows.add(counted, micros);
                self.update_pending(|deltas| deltas.entry(subject).or_default().counted.push(windows));
            }
        }
    }

    /// Reserves in Redis, and falls back to the outage share if it does not answer.
    async fn reserve_remotely(
        &self,
        reservation: Reservation,
        attempts: Vec<Reservation>,
        now: Instant,
        epoch: u64,
        mut connection: MultiplexedConnection,
        node: NodeRegistration,
    ) -> Outcome {
        self.remote_reservations.fetch_add(1, Ordering::Relaxed);
        let reservations: Vec<&Reservation> = std::iter::once(&reservation).chain(&attempts).collect();
        let leases = self.leases.request(&reservations, now);
        let request = ReservationRequest { reservation, attempts, leases };
        self.correct_for_returned(&request, now);
        let why = match timeout(RESERVE_TIMEOUT, self.scripts.reserve(&mut connection, &node, &request)).await {
            Ok(Ok(grant)) if grant.reply.is_granted => return Ok(self.record_grant(&request, now, epoch, &grant)),
            Ok(Ok(grant)) => return Err(self.record_refusal(&request, &grant)),
            Ok(Err(error)) => {
                if matches!(error, Disconnect::RegistrationLost) {
                    self.registration_lost();
                }
                error.to_string()
            }
            Err(_) => Disconnect::Timeout.to_string(),
        };
        self.leases.request_failed(request.leases.keys().copied());
        self.connection_lost(epoch, &why);
        self.reserve_from_share(&request.reservation, now, true)
    }

    /// Leases that are returned with a request count as unused, whether or not the request is admitted.
    fn correct_for_returned(&self, request: &ReservationRequest, now: Instant) {
        let (mut returned, micros) = (CounterDeltas::new(), self.redis_micros(now));
        for (subject, (_, lease)) in &request.leases {
            lease.add_to(&mut returned, *subject);
        }
        for (subject, delta) in returned {
            self.own_rates.correct(subject, &delta, micros);
        }
    }

    fn record_meters(&self, grant: &ReservationGrant) {
        self.meters.store(&grant.reply.meters);
        self.meters.mark_used(&grant.reply.meters);
        self.set_node_count(grant.reply.nodes);
    }

    fn record_refusal(&self, request: &ReservationRequest, grant: &ReservationGrant) -> LimitExceeded {
        self.record_meters(grant);
        self.leases.request_failed(request.leases.keys().copied());
        let (reservation, micros) = (&request.reservation, grant.reply.micros);
        self.reservations.complete_request(reservation.id, &[], Vec::new());
        if let Err(exceeded) = reservation.fit_to_limits(micros, |subject| meter_of(grant, subject)) {
            return exceeded;
        }
        // The script rounds differently, so the limit is exceeded by a fraction only.
        LimitExceeded::Rate(RateExceeded {
            subject: reservation.limits[0].subject,
            kind: RateKind::Requests,
            limit: 0,
            used: 0,
            wait_ms: 1_000,
            rate_statuses: rate_statuses(&reservation.limits, micros, |subject| meter_of(grant, subject)),
        })
    }

    fn record_grant(
        &self,
        request: &ReservationRequest,
        now: Instant,
        number: u64,
        grant: &ReservationGrant,
    ) -> ReservationReceipt {
        self.record_meters(grant);
        let ReservationGrant { reply, amount, .. } = grant;
        let is_lowered = *amount < request.reservation.amount.0;
        let lowered = if is_lowered { request.reservation.lowered_to(NanoUsd(*amount)) } else { None };
        let reservation = lowered.as_ref().unwrap_or(&request.reservation);
        let expiry = self.reservations.expiry(now);
        let mut made = vec![OpenReservation::new(reservation, ReservationSource::Redis, Some(reply.micros / MINUTE), expiry)];
        let prepared = request.attempts.iter().zip(&grant.prepared).filter(|(_, prepared)| **prepared);
        made.extend(prepared.map(|(attempt, _)| OpenReservation::prepared(attempt, expiry)));
        let epoch = self.epoch();
        let is_kept = self.reservations.complete_request(reservation.id, &made, refused_subjects(request, grant));
        if is_kept {
            for open in made.iter().filter(|open| open.is_prepared) {
                open.leased_amounts().for_each(|(subject, money, _)| self.leases.add_prepared(subject, money, now));
            }
        }
        for subject in binding_subjects(reservation) {
            self.own_rates.count(subject, counted_for(&reservation.limits, reservation.tokens, subject), reply.micros, true);
        }
        for (subject, lease) in &grant.leases {
            self.own_rates.count(*subject, counted_by_lease(lease), reply.micros, true);
        }
        let surplus = amount - reservation.amount.0;
        self.update_pending(|deltas| {
            record_in_epoch(&epoch, number, is_kept, &made, deltas);
            if epoch.number == number && !epoch.is_down() {
                // The script reserves all that is left, which may end in a fraction of a token.
                for subject in money_subjects(&reservation.limits).into_iter().filter(|_| surplus > 0) {
                    deltas.entry(subject).or_default().reserved -= surplus;
                }
                self.record_leases(request, grant, now, deltas);
            }
        });
        drop(epoch);
        let meter = |subject: Subject| self.leases.exclude_unused(subject, meter_of(grant, subject), reply.micros);
        ReservationReceipt { rate_statuses: rate_statuses(&reservation.limits, reply.micros, meter), output: reservation.output }
    }

    fn record_leases(&self, request: &ReservationRequest, grant: &ReservationGrant, now: Instant, deltas: &mut CounterDeltas) {
        let micros = grant.reply.micros;
        // The reply is from a time after `now`, so the minute lasts at least until then.
        let expires = now + Duration::from_micros(MINUTE - micros % MINUTE);
        let at = GrantTime { now, minute: micros / MINUTE, expires };
        self.record_redis_time(now, micros);
        for (subject, granted) in &grant.leases {
            let mut reservations = std::iter::once(&request.reservation).chain(&request.attempts);
            let Some(reservation) = reservations.find(|it| binding_subjects(it).contains(subject)) else { continue };
            self.leases.grant(*granted, reservation, *subject, at).add_to(deltas, *subject);
        }
    }
}

/// Reconciles reservations made in epoch `number` with the current epoch.
fn record_in_epoch(epoch: &Epoch, number: u64, is_kept: bool, made: &[OpenReservation], deltas: &mut CounterDeltas) {
    if epoch.is_down() {
        return;
    }
    for open in made {
        match (epoch.number == number, is_kept) {
            (true, false) => open.subtract_from(deltas),
            // Made under a registration that has ended; the new one does not have it.
            (false, true) => open.add_to(deltas),
            (true, true) | (false, false) => {}
        }
    }
}

/// The subjects for which a first reservation could not be prepared. A repeated one is prepared only where much is left, and
/// may be requested again.
fn refused_subjects(request: &ReservationRequest, grant: &ReservationGrant) -> Vec<Subject> {
    let is_repeated =
        |at: usize, attempt: &Reservation| request.attempts[..at].iter().any(|earlier| earlier.limits == attempt.limits);
    let attempts = request.attempts.iter().zip(&grant.prepared).enumerate();
    let refused = attempts.filter(|(at, (attempt, prepared))| !**prepared && !is_repeated(*at, attempt));
    refused.flat_map(|(_, (attempt, _))| binding_subjects(attempt)).collect()
}

fn meter_of(grant: &ReservationGrant, subject: Subject) -> Meter {
    grant.reply.meters.iter().find(|(known, _)| *known == subject).map(|(_, meter)| *meter).unwrap_or_default()
}
