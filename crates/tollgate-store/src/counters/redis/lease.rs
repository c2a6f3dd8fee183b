//! The arithmetic of leases, without clock or network: the amount that one node may use of one subject without calling Redis.
//!
//! Leased money counts as reserved in Redis, so that limit ≥ spent + reserved always holds there. A request served from a
//! lease moves money from the lease to its own reservation and back. The used amount leaves the lease in the same message that
//! adds it to the spending. Requests and tokens per minute are counted in Redis when they are leased and can be used until
//! that minute ends. Concurrency permits belong to the node as leased money does.
//!
//! A lease serves only requests of the day and under the limits it was granted for, and only while the registration of the
//! node is certain to be valid; the owner of the [`LeasePool`]s checks the latter.

use tokio::time::{Duration, Instant};
use tollgate_core::{LimitRule, Reservation, Subject};

/// Number of requests that the first lease and the largest one are sized for.
const FIRST_BATCH: u32 = 16;
const MAX_BATCH: u32 = 1_024;
/// A lease used up within this time doubles the next batch.
const SHORT: Duration = Duration::from_secs(1);
/// A lease is returned after this time without use.
const IDLE: Duration = Duration::from_secs(2);
/// A lease is returned when it exceeds the total remaining money divided by this, because other nodes may need it.
const MAX_LEASE_DIVISOR: i64 = 4;

#[derive(Clone, Debug)]
pub(super) struct LeasePool {
    /// Leased money that no request uses.
    pub(super) money: i64,
    /// The limits on money it was granted under.
    pub(super) rules: Vec<LimitRule>,
    day: i64,
    pub(super) requests: PrepaidAllowance,
    pub(super) tokens: PrepaidAllowance,
    /// Leased concurrency permits that no request uses.
    pub(super) permits: u64,
    /// The concurrency limit they were granted under.
    permit_limit: u64,
    /// Money of prepared reservations. Not leased; tracked here so that it can be subtracted from what Redis reports as
    /// reserved.
    pub(super) prepared: i64,
    last_used: Instant,
    last_granted: Option<Instant>,
    batch: u32,
    is_requesting: bool,
}

/// Requests or tokens counted for a minute in advance.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct PrepaidAllowance {
    pub(super) left: u64,
    pub(super) minute: u64,
    /// The limit it was granted under.
    limit: u64,
    expires: Option<Instant>,
}

/// The leases wanted on one subject; zero where there is enough.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct LeaseRequest {
    pub(super) money: i64,
    pub(super) money_each: i64,
    pub(super) requests: u64,
    pub(super) tokens: u64,
    pub(super) tokens_each: u64,
    pub(super) permits: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct LeaseGrant {
    pub(super) money: i64,
    pub(super) requests: u64,
    pub(super) tokens: u64,
    pub(super) permits: u64,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct GrantTime {
    pub(super) now: Instant,
    /// Minute of Redis' clock, and a time before which it does not end.
    pub(super) minute: u64,
    pub(super) expires: Instant,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct LeaseReturn {
    pub(super) money: i64,
    pub(super) permits: u64,
    /// Minute and count.
    pub(super) requests: Option<(u64, u64)>,
    /// Minute and count.
    pub(super) tokens: Option<(u64, u64)>,
}

impl LeasePool {
    pub(super) const fn new(now: Instant) -> Self {
        let none = PrepaidAllowance { left: 0, minute: 0, limit: 0, expires: None };
        Self {
            money: 0,
            rules: Vec::new(),
            day: i64::MIN,
            requests: none,
            tokens: none,
            permits: 0,
            permit_limit: 0,
            prepared: 0,
            last_used: now,
            last_granted: None,
            batch: FIRST_BATCH,
            is_requesting: false,
        }
    }

    /// True if the pool covers all that a reservation takes of this subject.
    pub(super) fn covers(&self, reservation: &Reservation, subject: Subject, now: Instant) -> bool {
        let takes_money = reservation.amount.0 > 0 && rules(reservation, subject).next().is_some();
        if takes_money && !(self.is_granted_for(reservation, subject) && self.money >= reservation.amount.0) {
            return false;
        }
        limits_of(reservation, subject).all(|rule| match rule {
            LimitRule::Requests(limit) => self.requests.covers(1, limit, now),
            LimitRule::Tokens(limit) => self.tokens.covers(reservation.tokens.min(limit), limit, now),
            LimitRule::Concurrency(limit) => self.permits >= 1 && self.permit_limit == limit,
            LimitRule::Budget(_) | LimitRule::Balance => true,
        })
    }

    /// Takes a reservation that the pool [`covers`](Self::covers). Returns the minute its tokens were counted in.
    pub(super) fn reserve(&mut self, reservation: &Reservation, subject: Subject, now: Instant) -> Option<u64> {
        self.last_used = now;
        if rules(reservation, subject).next().is_some() {
            self.money -= reservation.amount.0;
        }
        let mut minute = None;
        for rule in limits_of(reservation, subject) {
            match rule {
                LimitRule::Requests(_) => self.requests.left -= 1,
                LimitRule::Tokens(limit) => {
                    self.tokens.left -= reservation.tokens.min(limit);
                    minute = Some(self.tokens.minute);
                }
                LimitRule::Concurrency(_) => self.permits -= 1,
                LimitRule::Budget(_) | LimitRule::Balance => {}
            }
        }
        minute
    }

    /// Settles a request that took `amount` and spent `spent`. Returns the used part of the lease: at most the amount in
    /// the pool, so that the reservations of other requests are not touched.
    pub(super) const fn settle(&mut self, amount: i64, spent: i64) -> i64 {
        let available = self.money.saturating_add(amount);
        let used_up = if spent < available { spent } else { available };
        self.money = available - used_up;
        used_up
    }

    pub(super) const fn release_permit(&mut self) {
        self.permits += 1;
    }

    /// True if this reservation may request more: no request is in flight, and the reservation is not of a past day.
    pub(super) const fn may_request(&self, reservation: &Reservation) -> bool {
        !self.is_requesting && reservation.at.day() >= self.day
    }

    /// Begins a request for leases that cover a batch of reservations like this one. The present contents are returned
    /// with it: they are too little for one request.
    pub(super) fn request(&mut self, reservation: &Reservation, subject: Subject, now: Instant) -> (LeaseRequest, LeaseReturn) {
        self.is_requesting = true;
        self.last_used = now;
        self.batch = match self.last_granted {
            Some(granted) if now < granted + SHORT => (self.batch * 2).min(MAX_BATCH),
            Some(granted) if now < granted + 5 * SHORT => self.batch,
            Some(_) | None => FIRST_BATCH,
        };
        let batch = u64::from(self.batch);
        let mut wanted = LeaseRequest::default();
        if reservation.amount.0 > 0 && rules(reservation, subject).next().is_some() {
            wanted.money = reservation.amount.0.saturating_mul(i64::from(self.batch));
            wanted.money_each = reservation.amount.0;
        }
        for rule in limits_of(reservation, subject) {
            match rule {
                LimitRule::Requests(_) => wanted.requests = batch,
                LimitRule::Tokens(limit) => {
                    wanted.tokens_each = reservation.tokens.min(limit);
                    wanted.tokens = wanted.tokens_each.saturating_mul(batch);
                }
                LimitRule::Concurrency(_) => wanted.permits = batch,
                LimitRule::Budget(_) | LimitRule::Balance => {}
            }
        }
        (wanted, self.return_all())
    }

    pub(super) const fn request_failed(&mut self) {
        self.is_requesting = false;
    }

    /// Ends a request with a grant. Redis has checked all leased money against the limits and the day of `reservation`.
    /// Returns allowances of a past minute.
    pub(super) fn grant(&mut self, granted: LeaseGrant, reservation: &Reservation, subject: Subject, at: GrantTime) -> LeaseReturn {
        self.is_requesting = false;
        let mut returned = LeaseReturn::default();
        if granted == LeaseGrant::default() {
            return returned;
        }
        (self.last_used, self.last_granted) = (at.now, Some(at.now));
        if granted.money > 0 {
            self.money = self.money.saturating_add(granted.money);
            self.day = self.day.max(reservation.at.day());
            self.rules = rules(reservation, subject).collect();
        }
        for rule in limits_of(reservation, subject) {
            match rule {
                LimitRule::Requests(limit) => returned.requests = self.requests.add(granted.requests, limit, at),
                LimitRule::Tokens(limit) => returned.tokens = self.tokens.add(granted.tokens, limit, at),
                LimitRule::Concurrency(limit) => {
                    self.permits += granted.permits;
                    self.permit_limit = limit;
                }
                LimitRule::Budget(_) | LimitRule::Balance => {}
            }
        }
        returned
    }

    /// Returns expired allowances, and everything if the pool is idle or holds too much of `left`, the total remaining
    /// money (`None` if unknown).
    pub(super) fn sweep(&mut self, now: Instant, left: Option<i64>) -> LeaseReturn {
        let is_idle = now >= self.last_used + IDLE;
        let is_too_large = left.is_some_and(|left| self.money > left.max(0) / MAX_LEASE_DIVISOR);
        if is_idle || is_too_large {
            return self.return_all();
        }
        LeaseReturn { requests: self.requests.take_expired(now), tokens: self.tokens.take_expired(now), ..LeaseReturn::default() }
    }

    pub(super) fn return_all(&mut self) -> LeaseReturn {
        LeaseReturn {
            money: std::mem::take(&mut self.money),
            permits: std::mem::take(&mut self.permits),
            requests: self.requests.take(),
            tokens: self.tokens.take(),
        }
    }

    /// True if the pool is empty and idle, so that it can be dropped.
    pub(super) fn is_disused(&self, now: Instant) -> bool {
        now >= self.last_used + IDLE
            && self.money == 0
            && self.permits == 0
            && self.requests.left == 0
            && self.tokens.left == 0
            && self.prepared == 0
            && !self.is_requesting
    }

    fn is_granted_for(&self, reservation: &Reservation, subject: Subject) -> bool {
        self.day == reservation.at.day() && self.rules.iter().copied().eq(rules(reservation, subject))
    }
}

fn limits_of(reservation: &Reservation, subject: Subject) -> impl Iterator<Item = LimitRule> {
    reservation.limits.iter().filter(move |limit| limit.subject == subject).map(|limit| limit.rule)
}

fn rules(reservation: &Reservation, subject: Subject) -> impl Iterator<Item = LimitRule> {
    reservation.limits.iter().filter(move |limit| limit.subject == subject && limit.bounds_money()).map(|limit| limit.rule)
}

impl PrepaidAllowance {
    fn usable(&self, limit: u64, now: Instant) -> u64 {
        if self.limit == limit && self.expires.is_some_and(|expires| now < expires) { self.left } else { 0 }
    }

    fn covers(&self, wanted: u64, limit: u64, now: Instant) -> bool {
        self.left > 0 && self.usable(limit, now) >= wanted
    }

    /// Adds a grant; returns what belongs to an older minute.
    fn add(&mut self, granted: u64, limit: u64, at: GrantTime) -> Option<(u64, u64)> {
        if granted == 0 {
            return None;
        }
        if at.minute < self.minute {
            return Some((at.minute, granted));
        }
        let returned = if at.minute > self.minute { self.take() } else { None };
        let expires = match self.expires {
            Some(expires) if at.minute == self.minute => expires.max(at.expires),
            Some(_) | None => at.expires,
        };
        *self = Self { left: self.left + granted, minute: at.minute, limit, expires: Some(expires) };
        returned
    }

    fn take_expired(&mut self, now: Instant) -> Option<(u64, u64)> {
        if self.expires.is_some_and(|expires| now >= expires) { self.take() } else { None }
    }

    pub(super) fn take(&mut self) -> Option<(u64, u64)> {
        let left = std::mem::take(&mut self.left);
        (left > 0).then_some((self.minute, left))
    }
}

#[cfg(test)]
mod tests;
