//! The figures, and what each observation does.

use super::{
    AccountHealth, Availability, CoolingReason, HealthState, HealthStatus, LatencySample, OutcomeBucket, RestingReason,
    quota::{LONGEST_MS, UNKNOWN_MS},
};
use crate::Timestamp;

/// First wait after a connect failure.
const CONNECT_MS: i64 = 5_000;
/// First wait after failures in a row, and after a 429 that names no time.
const FAILURE_MS: i64 = 10_000;
/// Doubling stops here.
const LONGEST_DOUBLED_MS: i64 = 300_000;
/// What a 429 or a 503 may ask for at most.
pub(super) const LONGEST_ASKED_MS: i64 = 3_600_000;
/// Wait after a 429 whose time is past already.
const SHORTEST_ASKED_MS: i64 = 1_000;
/// A probe that says nothing for so long is lost; another one may go out.
const PROBE_MS: i64 = 60_000;
/// Failures in a row that cool.
const FAILURES_IN_A_ROW: u32 = 3;
/// Answers in 30 s from which on half of them failing cools.
const ENOUGH_RECENT: u32 = 10;
/// What a waiting caller is told while a probe is out.
const WHILE_PROBING_MS: i64 = 1_000;
/// 1 in averages.
const MILLION: u32 = 1_000_000;

impl HealthState {
    /// Whether an account in this state may be used now.
    #[must_use]
    pub fn availability(&self, now: Timestamp) -> Availability {
        match *self {
            Self::Usable => Availability::Usable,
            Self::Cooling { until, why, .. } if until > now => Availability::Cooling { until, why },
            Self::Resting { until: None, why, .. } => Availability::Resting { until: None, why },
            Self::Resting { until: Some(until), why, .. } if until > now => Availability::Resting { until: Some(until), why },
            Self::Probing { since, why } if now.ms_since(since) < PROBE_MS => {
                let until = now.plus_ms(WHILE_PROBING_MS);
                why.map_or(Availability::Resting { until: Some(until), why: RestingReason::QuotaSpent }, |why| {
                    Availability::Cooling { until, why }
                })
            }
            Self::Cooling { .. } | Self::Resting { .. } | Self::Probing { .. } => Availability::ProbeDue,
        }
    }
}

impl AccountHealth {
    /// Whether it rests because its credential was refused.
    #[must_use]
    pub const fn is_refused(&self) -> bool {
        matches!(self.state, HealthState::Resting { why: RestingReason::Refused, .. })
    }

    /// Whether the account may be used now.
    #[must_use]
    pub fn availability(&self, now: Timestamp) -> Availability {
        self.state.availability(now)
    }

    /// Share of its weight an account keeps, in thousandths: 1,000 when nothing fails, never below 50, so that a bad
    /// one still gets the traffic that can show it is well again.
    #[must_use]
    pub fn share(&self) -> u32 {
        (1_000 - self.error_average.min(MILLION) / 1_000).max(50)
    }

    /// What choosing looks at of it.
    #[must_use]
    pub fn status(&self, now: Timestamp) -> HealthStatus {
        HealthStatus {
            availability: self.availability(now),
            share: self.share(),
            first_token_us: self.first_token_average_us,
            whole_answer_us: self.whole_answer_average_us,
        }
    }

    /// Of two nodes' views of one account the one that keeps away longer.
    #[must_use]
    pub fn later(self, other: Self) -> Self {
        if other.away_until() > self.away_until() { other } else { self }
    }

    fn away_until(&self) -> Timestamp {
        match self.state {
            HealthState::Usable => Timestamp(i64::MIN),
            HealthState::Probing { since, .. } => since,
            HealthState::Cooling { until, .. } => until,
            HealthState::Resting { until, .. } => until.unwrap_or(Timestamp(i64::MAX)),
        }
    }

    /// Whether it must not be used, whoever asks; a probe that is out does not count.
    fn held(&self, now: Timestamp) -> bool {
        !matches!(self.state, HealthState::Usable | HealthState::Probing { .. }) && self.away_until() > now
    }

    pub(super) fn succeed(&mut self, latency: Option<LatencySample>, now: Timestamp) {
        self.count(ObservedResult::Success, now);
        let moved = |old: u64, us: u64| if old == 0 { us } else { old - old / 8 + us / 8 };
        match latency {
            Some(LatencySample::FirstToken(us)) => self.first_token_average_us = moved(self.first_token_average_us, us),
            Some(LatencySample::WholeAnswer(us)) => self.whole_answer_average_us = moved(self.whole_answer_average_us, us),
            None => {}
        }
        (self.failures, self.streak) = (0, None);
        // An answer to a request that was sent before says nothing about a limit or a credential that was refused since.
        let stays = match self.state {
            HealthState::Cooling { why, .. } => why == CoolingReason::RateLimited && self.held(now),
            HealthState::Resting { .. } => self.held(now),
            HealthState::Usable | HealthState::Probing { .. } => false,
        };
        if !stays {
            self.state = HealthState::Usable;
            self.coolings = 0;
        }
    }

    pub(super) fn fail(&mut self, why: CoolingReason, now: Timestamp) {
        self.count(ObservedResult::Failure, now);
        self.failures = self.failures.saturating_add(1);
        let streak = match (self.streak, why) {
            // One silence or one unreadable answer in a row of refusals makes the whole row more than a hiccup.
            (Some(old @ (CoolingReason::Timeout | CoolingReason::BadAnswer)), new) if new.is_transient() => old,
            (_, new) => new,
        };
        self.streak = Some(streak);
        let (seen, failed) = self.recent.iter().fold((0u32, 0u32), |sum, it| (sum.0 + it.seen, sum.1 + it.failed));
        let trips = why == CoolingReason::ConnectFailure
            || self.state != HealthState::Usable
            || self.failures >= FAILURES_IN_A_ROW
            || (seen >= ENOUGH_RECENT && failed.saturating_mul(2) >= seen);
        // Requests that were under way when it began to cool do not make it cool longer.
        if trips && !self.held(now) {
            let first = if why == CoolingReason::ConnectFailure { CONNECT_MS } else { FAILURE_MS };
            let until = now.plus_ms(self.doubled(first));
            self.cool(until, streak, now);
        }
    }

    /// A failure like any other, and a time to be kept.
    pub(super) fn overload(&mut self, until: Timestamp, now: Timestamp) {
        self.fail(CoolingReason::ServerError, now);
        let until = until.min(now.plus_ms(LONGEST_ASKED_MS));
        let rests = matches!(self.state, HealthState::Resting { .. });
        if until > now && !rests && until > self.away_until() {
            self.cool(until, self.streak.unwrap_or(CoolingReason::ServerError), now);
        }
    }

    pub(super) fn rate_limit(&mut self, until: Option<Timestamp>, now: Timestamp) {
        let until = match until {
            Some(asked) if asked <= now => now.plus_ms(SHORTEST_ASKED_MS),
            Some(asked) => asked.min(now.plus_ms(LONGEST_ASKED_MS)),
            None if self.held(now) => now.plus_ms(FAILURE_MS),
            None => now.plus_ms(self.doubled(FAILURE_MS)),
        };
        if !self.held(now) || (matches!(self.state, HealthState::Cooling { .. }) && until > self.away_until()) {
            self.cool(until, CoolingReason::RateLimited, now);
        }
    }

    pub(super) fn spend_quota(&mut self, until: Option<Timestamp>, now: Timestamp) {
        let until = until.filter(|it| *it > now).map_or(now.plus_ms(UNKNOWN_MS), |it| it.min(now.plus_ms(LONGEST_MS)));
        let longer = matches!(self.state, HealthState::Resting { .. }) && self.away_until() >= until;
        if !(longer && self.held(now)) {
            self.state = HealthState::Resting { why: RestingReason::QuotaSpent, since: now, until: Some(until) };
        }
    }

    pub(super) fn refuse(&mut self, now: Timestamp) {
        if !matches!(self.state, HealthState::Resting { why: RestingReason::Refused, .. }) {
            self.state = HealthState::Resting { why: RestingReason::Refused, since: now, until: None };
        }
    }

    pub(super) fn end_probe(&mut self, state: HealthState) {
        if matches!(self.state, HealthState::Probing { .. }) {
            self.state = state;
        }
    }

    pub(super) fn repeat_probe(&mut self, now: Timestamp) {
        if let HealthState::Probing { since, why } = self.state {
            self.end_probe(match why {
                Some(why) => HealthState::Cooling { until: now, why, since },
                None => HealthState::Resting { until: Some(now), why: RestingReason::QuotaSpent, since },
            });
        }
    }

    fn cool(&mut self, until: Timestamp, why: CoolingReason, now: Timestamp) {
        self.state = HealthState::Cooling { until, why, since: now };
        // What was counted has had its consequence; it must not trip again right after the probe.
        self.recent = [OutcomeBucket::default(); 3];
    }

    /// The next wait of a doubling row.
    fn doubled(&mut self, first_ms: i64) -> i64 {
        let wait = first_ms.saturating_mul(1 << self.coolings.min(20)).min(LONGEST_DOUBLED_MS);
        self.coolings = self.coolings.saturating_add(1);
        wait
    }

    fn count(&mut self, ended: ObservedResult, now: Timestamp) {
        let slot = now.seconds().div_euclid(10);
        match slot.saturating_sub(self.recent_at) {
            i64::MIN..=0 => {}
            1 => self.recent = [OutcomeBucket::default(), self.recent[0], self.recent[1]],
            2 => self.recent = [OutcomeBucket::default(), OutcomeBucket::default(), self.recent[0]],
            3.. => self.recent = [OutcomeBucket::default(); 3],
        }
        self.recent_at = self.recent_at.max(slot);
        let failed = u32::from(ended == ObservedResult::Failure);
        self.recent[0].seen = self.recent[0].seen.saturating_add(1);
        self.recent[0].failed = self.recent[0].failed.saturating_add(failed);
        let old = self.error_average.min(MILLION);
        self.error_average = old - old / 8 + failed * (MILLION / 8);
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum ObservedResult {
    Success,
    Failure,
}
