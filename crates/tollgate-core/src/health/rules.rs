//! Thresholds, and the effect of each observation.

use super::{
    AccountHealth, Availability, CoolingReason, CoolingRules, HealthState, HealthStatus, LatencySample, OutcomeBucket,
    RestingReason,
    quota::{DEFAULT_REST_MS, MAX_REST_MS},
};
use crate::Timestamp;

/// Upper bound of doubled waits.
pub(super) const MAX_BACKOFF_MS: i64 = 300_000;
/// Longest wait that a 429 or 503 response may request.
pub(super) const MAX_RETRY_AFTER_MS: i64 = 3_600_000;
/// Wait after a 429 whose retry time has already passed.
const MIN_RETRY_AFTER_MS: i64 = 1_000;
/// A probe without an outcome after this time is considered lost, and another one may be sent.
const PROBE_TIMEOUT_MS: i64 = 60_000;
/// Outcomes within 30 s required before a failure rate of one half starts cooling.
const MIN_RECENT: u32 = 10;
/// Wait reported to callers while a probe is out.
const PROBE_WAIT_MS: i64 = 1_000;
/// 1.0 in the averages.
const MILLION: u32 = 1_000_000;

impl HealthState {
    pub fn availability(&self, now: Timestamp) -> Availability {
        match *self {
            Self::Usable => Availability::Usable,
            Self::Cooling { until, why, .. } if until > now => Availability::Cooling { until, why },
            Self::Resting { until: None, why, .. } => Availability::Resting { until: None, why },
            Self::Resting { until: Some(until), why, .. } if until > now => Availability::Resting { until: Some(until), why },
            Self::Probing { since, why } if now.ms_since(since) < PROBE_TIMEOUT_MS => {
                let until = now.plus_ms(PROBE_WAIT_MS);
                why.map_or(Availability::Resting { until: Some(until), why: RestingReason::QuotaSpent }, |why| {
                    Availability::Cooling { until, why }
                })
            }
            Self::Cooling { .. } | Self::Resting { .. } | Self::Probing { .. } => Availability::ProbeDue,
        }
    }
}

impl AccountHealth {
    /// True when it rests because its credential was refused.
    pub const fn is_refused(&self) -> bool {
        matches!(self.state, HealthState::Resting { why: RestingReason::Refused, .. })
    }

    pub fn availability(&self, now: Timestamp) -> Availability {
        self.state.availability(now)
    }

    /// Share of its weight the account keeps, in thousandths: 1,000 when nothing fails, at least 50, so that a failing account
    /// still gets traffic that can show its recovery.
    pub fn share(&self) -> u32 {
        (1_000 - self.error_average.min(MILLION) / 1_000).max(50)
    }

    /// The part of it that routing reads.
    pub fn status(&self, now: Timestamp) -> HealthStatus {
        HealthStatus {
            availability: self.availability(now),
            share: self.share(),
            first_token_us: self.first_token_average_us,
            whole_answer_us: self.whole_answer_average_us,
        }
    }

    fn unavailable_until(&self) -> Timestamp {
        match self.state {
            HealthState::Usable => Timestamp(i64::MIN),
            HealthState::Probing { since, .. } => since,
            HealthState::Cooling { until, .. } => until,
            HealthState::Resting { until, .. } => until.unwrap_or(Timestamp(i64::MAX)),
        }
    }

    /// True when it must not be used; a pending probe does not count.
    fn unavailable(&self, now: Timestamp) -> bool {
        !matches!(self.state, HealthState::Usable | HealthState::Probing { .. }) && self.unavailable_until() > now
    }

    pub(super) fn succeed(&mut self, latency: Option<LatencySample>, now: Timestamp) {
        self.count(ObservedResult::Success, now);
        let average = |old: u64, us: u64| if old == 0 { us } else { old - old / 8 + us / 8 };
        match latency {
            Some(LatencySample::FirstToken(us)) => self.first_token_average_us = average(self.first_token_average_us, us),
            Some(LatencySample::WholeAnswer(us)) => self.whole_answer_average_us = average(self.whole_answer_average_us, us),
            None => {}
        }
        (self.failures, self.streak) = (0, None);
        // Answers to requests sent earlier do not lift a rate limit or a refusal that was observed since.
        let keeps_state = match self.state {
            HealthState::Cooling { why, .. } => why == CoolingReason::RateLimited && self.unavailable(now),
            HealthState::Resting { .. } => self.unavailable(now),
            HealthState::Usable | HealthState::Probing { .. } => false,
        };
        if !keeps_state {
            self.state = HealthState::Usable;
            self.coolings = 0;
        }
    }

    pub(super) fn fail(&mut self, why: CoolingReason, rules: CoolingRules, now: Timestamp) {
        self.count(ObservedResult::Failure, now);
        self.failures = self.failures.saturating_add(1);
        let streak = match (self.streak, why) {
            // One timeout or unreadable answer among server errors names the whole series.
            (Some(old @ (CoolingReason::Timeout | CoolingReason::BadAnswer)), new) if new.is_transient() => old,
            (_, new) => new,
        };
        self.streak = Some(streak);
        let (seen, failed) = self.recent.iter().fold((0u32, 0u32), |sum, it| (sum.0 + it.seen, sum.1 + it.failed));
        let starts_cooling = matches!(why, CoolingReason::ConnectFailure | CoolingReason::PausingStatus)
            || self.state != HealthState::Usable
            || self.failures >= rules.failures
            || (seen >= MIN_RECENT && failed.saturating_mul(2) >= seen);
        // Failures of requests already in flight when the cooling began do not extend it.
        if starts_cooling && !self.unavailable(now) {
            let first = if why == CoolingReason::ConnectFailure { rules.first_wait_ms / 2 } else { rules.first_wait_ms };
            let until = now.plus_ms(self.next_backoff(first));
            self.cool(until, streak, now);
        }
    }

    /// Counts as a failure, and cools until the requested time.
    pub(super) fn overload(&mut self, until: Timestamp, rules: CoolingRules, now: Timestamp) {
        self.fail(CoolingReason::ServerError, rules, now);
        self.cool_until(until, self.streak.unwrap_or(CoolingReason::ServerError), now);
    }

    /// Counts as a failure, and cools at once: until the requested time if there is one.
    pub(super) fn pause(&mut self, until: Option<Timestamp>, rules: CoolingRules, now: Timestamp) {
        self.fail(CoolingReason::PausingStatus, rules, now);
        if let Some(until) = until {
            self.cool_until(until, CoolingReason::PausingStatus, now);
        }
    }

    /// Cools until a time that the upstream requested, unless it is unavailable for longer.
    fn cool_until(&mut self, until: Timestamp, why: CoolingReason, now: Timestamp) {
        let until = until.min(now.plus_ms(MAX_RETRY_AFTER_MS));
        let rests = matches!(self.state, HealthState::Resting { .. });
        if until > now && !rests && until > self.unavailable_until() {
            self.cool(until, why, now);
        }
    }

    pub(super) fn rate_limit(&mut self, until: Option<Timestamp>, rules: CoolingRules, now: Timestamp) {
        let until = match until {
            Some(requested) if requested <= now => now.plus_ms(MIN_RETRY_AFTER_MS),
            Some(requested) => requested.min(now.plus_ms(MAX_RETRY_AFTER_MS)),
            None if self.unavailable(now) => now.plus_ms(rules.first_wait_ms),
            None => now.plus_ms(self.next_backoff(rules.first_wait_ms)),
        };
        if !self.unavailable(now) || (matches!(self.state, HealthState::Cooling { .. }) && until > self.unavailable_until()) {
            self.cool(until, CoolingReason::RateLimited, now);
        }
    }

    pub(super) fn spend_quota(&mut self, until: Option<Timestamp>, now: Timestamp) {
        let until = until.filter(|it| *it > now).map_or(now.plus_ms(DEFAULT_REST_MS), |it| it.min(now.plus_ms(MAX_REST_MS)));
        let longer = matches!(self.state, HealthState::Resting { .. }) && self.unavailable_until() >= until;
        if !(longer && self.unavailable(now)) {
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
        // Counted failures must not trigger again right after the probe.
        self.recent = [OutcomeBucket::default(); 3];
    }

    /// The next wait of the doubling series.
    fn next_backoff(&mut self, first_ms: i64) -> i64 {
        let wait = first_ms.saturating_mul(1 << self.coolings.min(20)).min(MAX_BACKOFF_MS);
        self.coolings = self.coolings.saturating_add(1);
        wait
    }

    fn count(&mut self, result: ObservedResult, now: Timestamp) {
        let bucket = now.seconds().div_euclid(10);
        match bucket.saturating_sub(self.recent_at) {
            i64::MIN..=0 => {}
            1 => self.recent = [OutcomeBucket::default(), self.recent[0], self.recent[1]],
            2 => self.recent = [OutcomeBucket::default(), OutcomeBucket::default(), self.recent[0]],
            3.. => self.recent = [OutcomeBucket::default(); 3],
        }
        self.recent_at = self.recent_at.max(bucket);
        let failed = u32::from(result == ObservedResult::Failure);
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
