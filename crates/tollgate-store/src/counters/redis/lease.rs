//! The arithmetic of leases, without clock and network: what one node may give of one subject without asking.
//!
//! Money that is on lease counts as held in Redis, so that bound ≥ spent + held there whatever a node does with it: a request
//! served from a lease moves money from the lease to its own hold and back, and what it came to leaves the lease in the same
//! message that adds it to what was spent. Requests and tokens of a minute are counted in Redis when they are leased and
//! serve until that minute ends; places are the node's as money is.
//!
//! A lease is used only for requests of the day it was given for, by the rules it was given under, and while the node's seat
//! is sure to be its own: whoever owns [`LeasePool`]s sees to the last.

use tokio::time::{Duration, Instant};
use tollgate_core::{LimitRule, Reservation, Subject};

/// For how many requests a lease is asked at first, and at most.
const FIRST_BATCH: u32 = 16;
const LARGEST_BATCH: u32 = 1_024;
/// A lease that lasts less asks for twice as much the next time.
const SHORT: Duration = Duration::from_secs(1);
/// A lease that nobody uses for so long goes back.
const IDLE: Duration = Duration::from_secs(2);
/// A lease larger than this part of what is left in all goes back too: others may need it.
const LARGEST_PART: i64 = 4;

/// What one node has on lease of one subject.
#[derive(Clone, Debug)]
pub(super) struct LeasePool {
    /// Not in use by a request.
    money: i64,
    /// Bounds of money it was given under.
    rules: Vec<LimitRule>,
    /// The day it was given for.
    day: i64,
    requests: PrepaidAllowance,
    tokens: PrepaidAllowance,
    places: u64,
    places_of: u64,
    /// Set aside for attempts that have not begun. No lease: it is known here so that it is not taken for spent.
    pub(super) ahead: i64,
    used: Instant,
    given: Option<Instant>,
    batch: u32,
    /// Somebody asks for more.
    asking: bool,
}

/// Counted in a minute, and not used yet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct PrepaidAllowance {
    pub(super) left: u64,
    pub(super) minute: u64,
    most: u64,
    until: Option<Instant>,
}

/// What is wanted on lease of one subject; zero: there is enough.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct LeaseRequest {
    pub(super) money: i64,
    pub(super) money_each: i64,
    pub(super) requests: u64,
    pub(super) tokens: u64,
    pub(super) tokens_each: u64,
    pub(super) places: u64,
}

/// What was given on lease of one subject.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct LeaseGrant {
    pub(super) money: i64,
    pub(super) requests: u64,
    pub(super) tokens: u64,
    pub(super) places: u64,
}

/// When it was given.
#[derive(Clone, Copy, Debug)]
pub(super) struct GrantTime {
    pub(super) now: Instant,
    /// Minute of Redis' clock, and until when it surely lasts.
    pub(super) minute: u64,
    pub(super) until: Instant,
}

/// What goes back to Redis.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct LeaseReturn {
    pub(super) money: i64,
    pub(super) places: u64,
    /// Minute and how many.
    pub(super) requests: Option<(u64, u64)>,
    pub(super) tokens: Option<(u64, u64)>,
}

impl LeasePool {
    pub(super) const fn new(now: Instant) -> Self {
        let none = PrepaidAllowance { left: 0, minute: 0, most: 0, until: None };
        Self {
            money: 0,
            rules: Vec::new(),
            day: i64::MIN,
            requests: none,
            tokens: none,
            places: 0,
            places_of: 0,
            ahead: 0,
            used: now,
            given: None,
            batch: FIRST_BATCH,
            asking: false,
        }
    }

    /// Whether all that a hold takes of this subject is here.
    pub(super) fn suffices(&self, hold: &Reservation, of: Subject, now: Instant) -> bool {
        let takes_money = hold.amount.0 > 0 && rules(hold, of).next().is_some();
        if takes_money && !(self.is_for(hold, of) && self.money >= hold.amount.0) {
            return false;
        }
        hold.limits.iter().filter(|limit| limit.subject == of).all(|limit| match limit.rule {
            LimitRule::Requests(most) => self.requests.suffices(1, most, now),
            LimitRule::Tokens(most) => self.tokens.suffices(hold.tokens.min(most), most, now),
            LimitRule::Concurrency(most) => self.places >= 1 && self.places_of == most,
            LimitRule::Budget(_) | LimitRule::Balance => true,
        })
    }

    /// Takes what a hold needs; it [`suffices`](Self::suffices). The minute its tokens were counted in.
    pub(super) fn reserve(&mut self, hold: &Reservation, of: Subject, now: Instant) -> Option<u64> {
        self.used = now;
        if rules(hold, of).next().is_some() {
            self.money -= hold.amount.0;
        }
        let mut minute = None;
        for limit in hold.limits.iter().filter(|limit| limit.subject == of) {
            match limit.rule {
                LimitRule::Requests(_) => self.requests.left -= 1,
                LimitRule::Tokens(most) => {
                    self.tokens.left -= hold.tokens.min(most);
                    minute = Some(self.tokens.minute);
                }
                LimitRule::Concurrency(_) => self.places -= 1,
                LimitRule::Budget(_) | LimitRule::Balance => {}
            }
        }
        minute
    }

    /// A request that took `amount` has ended and came to `spent`. How much of the lease that uses up: never more than there
    /// is, so that what other requests took of it stays theirs.
    pub(super) const fn end(&mut self, amount: i64, spent: i64) -> i64 {
        let here = self.money.saturating_add(amount);
        let used_up = if spent < here { spent } else { here };
        self.money = here - used_up;
        used_up
    }

    /// A place is free again.
    pub(super) const fn free_place(&mut self) {
        self.places += 1;
    }

    /// Whether somebody may ask for more: nobody else does, and the hold is not of a day that is over.
    pub(super) const fn may_ask(&self, hold: &Reservation) -> bool {
        !self.asking && hold.at.day() >= self.day
    }

    /// What is wanted so that requests like this one need not ask for a while. What is here goes back with the question, so
    /// that what is not enough for a request is not in its way either.
    pub(super) fn ask(&mut self, hold: &Reservation, of: Subject, now: Instant) -> (LeaseRequest, LeaseReturn) {
        self.asking = true;
        self.used = now;
        self.batch = match self.given {
            Some(given) if now < given + SHORT => (self.batch * 2).min(LARGEST_BATCH),
            Some(given) if now < given + 5 * SHORT => self.batch,
            Some(_) | None => FIRST_BATCH,
        };
        let batch = u64::from(self.batch);
        let mut want = LeaseRequest::default();
        if hold.amount.0 > 0 && rules(hold, of).next().is_some() {
            want.money = hold.amount.0.saturating_mul(i64::from(self.batch));
            want.money_each = hold.amount.0;
        }
        for limit in hold.limits.iter().filter(|limit| limit.subject == of) {
            match limit.rule {
                LimitRule::Requests(_) => want.requests = batch,
                LimitRule::Tokens(most) => {
                    want.tokens_each = hold.tokens.min(most);
                    want.tokens = want.tokens_each.saturating_mul(batch);
                }
                LimitRule::Concurrency(_) => want.places = batch,
                LimitRule::Budget(_) | LimitRule::Balance => {}
            }
        }
        (want, self.give_all_back())
    }

    /// What was wanted was not given.
    pub(super) const fn not_given(&mut self) {
        self.asking = false;
    }

    /// What was given in answer to a hold. All that is here was checked against that hold's rules and day with it.
    pub(super) fn give(&mut self, given: LeaseGrant, hold: &Reservation, of: Subject, at: GrantTime) -> LeaseReturn {
        self.asking = false;
        let mut back = LeaseReturn::default();
        if given == LeaseGrant::default() {
            return back;
        }
        (self.used, self.given) = (at.now, Some(at.now));
        if given.money > 0 {
            self.money = self.money.saturating_add(given.money);
            self.day = self.day.max(hold.at.day());
            self.rules = rules(hold, of).collect();
        }
        for limit in hold.limits.iter().filter(|limit| limit.subject == of) {
            match limit.rule {
                LimitRule::Requests(most) => back.requests = self.requests.add(given.requests, most, at),
                LimitRule::Tokens(most) => back.tokens = self.tokens.add(given.tokens, most, at),
                LimitRule::Concurrency(most) => {
                    self.places += given.places;
                    self.places_of = most;
                }
                LimitRule::Budget(_) | LimitRule::Balance => {}
            }
        }
        back
    }

    /// What goes back: minutes that are over, and everything where nobody uses it or others may need it. `left`: what is
    /// left of the money in all, where that is known.
    pub(super) fn sweep(&mut self, now: Instant, left: Option<i64>) -> LeaseReturn {
        let idle = now >= self.used + IDLE;
        let near = left.is_some_and(|left| self.money > left.max(0) / LARGEST_PART);
        if idle || near {
            return self.give_all_back();
        }
        LeaseReturn { requests: self.requests.lapse(now), tokens: self.tokens.lapse(now), ..LeaseReturn::default() }
    }

    /// Everything goes back.
    pub(super) fn give_all_back(&mut self) -> LeaseReturn {
        LeaseReturn {
            money: std::mem::take(&mut self.money),
            places: std::mem::take(&mut self.places),
            requests: self.requests.all(),
            tokens: self.tokens.all(),
        }
    }

    /// Nothing is here, nobody asks, and nobody did lately.
    pub(super) fn is_over(&self, now: Instant) -> bool {
        now >= self.used + IDLE
            && self.money == 0
            && self.places == 0
            && self.requests.left == 0
            && self.tokens.left == 0
            && self.ahead == 0
            && !self.asking
    }

    /// Money that is here and in nobody's use.
    pub(super) const fn money(&self) -> i64 {
        self.money
    }

    /// Places likewise.
    pub(super) const fn places(&self) -> u64 {
        self.places
    }

    /// Requests and tokens that are counted and not used.
    pub(super) const fn prepaid(&self) -> (PrepaidAllowance, PrepaidAllowance) {
        (self.requests, self.tokens)
    }

    /// The bounds its money was given under.
    pub(super) fn rules(&self) -> &[LimitRule] {
        &self.rules
    }

    fn is_for(&self, hold: &Reservation, of: Subject) -> bool {
        self.day == hold.at.day() && self.rules.iter().copied().eq(rules(hold, of))
    }
}

/// What bounds a subject's money.
fn rules(hold: &Reservation, of: Subject) -> impl Iterator<Item = LimitRule> {
    hold.limits.iter().filter(move |limit| limit.subject == of && limit.bounds_money()).map(|limit| limit.rule)
}

// === impl PrepaidAllowance ===

impl PrepaidAllowance {
    fn usable(&self, most: u64, now: Instant) -> u64 {
        if self.most == most && self.until.is_some_and(|until| now < until) { self.left } else { 0 }
    }

    fn suffices(&self, wanted: u64, most: u64, now: Instant) -> bool {
        self.left > 0 && self.usable(most, now) >= wanted
    }

    /// Adds what was counted in a minute; gives back what is of an older one.
    fn add(&mut self, given: u64, most: u64, at: GrantTime) -> Option<(u64, u64)> {
        if given == 0 {
            return None;
        }
        if at.minute < self.minute {
            // Its minute is over already.
            return Some((at.minute, given));
        }
        let back = if at.minute > self.minute { self.all() } else { None };
        let until = self.until.map_or(at.until, |until| if at.minute == self.minute { until.max(at.until) } else { at.until });
        *self = Self { left: self.left + given, minute: at.minute, most, until: Some(until) };
        back
    }

    fn lapse(&mut self, now: Instant) -> Option<(u64, u64)> {
        if self.until.is_some_and(|until| now >= until) { self.all() } else { None }
    }

    fn all(&mut self) -> Option<(u64, u64)> {
        let left = std::mem::take(&mut self.left);
        (left > 0).then_some((self.minute, left))
    }
}

#[cfg(test)]
mod tests;
