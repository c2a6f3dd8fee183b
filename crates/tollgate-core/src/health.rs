//! Account health: what failures do to an account, and when it may be used again.
//!
//! A value in, a value out: the gateway keeps one [`AccountHealth`] an account and hands every observation to
//! [`observe`].

use serde::{Deserialize, Serialize};

use crate::Timestamp;

/// What is known of an account. Small and `Copy`: routing takes one copy a candidate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct AccountHealth {
    /// Whether it may be used.
    pub state: HealthState,
    /// Failures in a row that count towards cooling (5xx, timeouts, unreadable answers).
    pub failures: u32,
    /// How often it cooled since the last success; each time doubles the wait.
    pub coolings: u32,
    /// What the failures in a row were.
    pub streak: Option<CoolingReason>,
    /// The last 30 s, in three buckets of 10 s; the first one is the current.
    pub recent: [Bucket; 3],
    /// Which 10 s of time the first bucket stands for (seconds since the epoch ÷ 10).
    pub recent_at: i64,
    /// Moving average of failures, in millionths.
    pub error_average: u32,
    /// Moving average of the time to the first content, in microseconds; 0 when not known.
    pub first_token_average_us: u64,
}

/// Answers and failures of 10 seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Bucket {
    /// All that count.
    pub seen: u32,
    /// Of those, failures.
    pub failed: u32,
}

/// Whether an account may be used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HealthState {
    /// Yes.
    #[default]
    Usable,
    /// Not before `until`; the first request after it is the probe.
    Cooling {
        /// End.
        until: Timestamp,
        /// Cause.
        why: CoolingReason,
        /// Beginning.
        since: Timestamp,
    },
    /// Not before `until`, or not before a test passed.
    Resting {
        /// Cause.
        why: RestingReason,
        /// Beginning.
        since: Timestamp,
        /// End; `None`: a test must pass.
        until: Option<Timestamp>,
    },
    /// One request is finding out; the others keep away.
    Probing {
        /// When the probe went out.
        since: Timestamp,
        /// What it had been cooling for; `None`: it rested.
        why: Option<CoolingReason>,
    },
}

/// Why an account cools.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CoolingReason {
    /// No connection.
    ConnectFailure,
    /// 5xx.
    ServerError,
    /// No first byte, or silence, for too long.
    Timeout,
    /// An empty or malformed 200.
    BadAnswer,
    /// 429.
    RateLimited,
}

/// Why an account rests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RestingReason {
    /// Its money or quota is spent.
    QuotaSpent,
    /// 401, 402, 403: the credential does not work.
    Refused,
}

/// What an attempt showed of its account.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Observation {
    /// A usable answer.
    Success {
        /// Microseconds to the first content, where it was measured.
        first_token_us: Option<u64>,
    },
    /// No connection; nothing was sent.
    ConnectFailure,
    /// 5xx.
    ServerError,
    /// No first byte in time, or silence in the middle.
    Timeout,
    /// An empty or malformed 200, or a stream that broke.
    BadAnswer,
    /// 429.
    RateLimited {
        /// When it may be asked again, as the answer says.
        until: Option<Timestamp>,
    },
    /// Its money or quota is spent.
    QuotaSpent {
        /// End of the window, where it is known.
        until: Option<Timestamp>,
    },
    /// 401, 402, 403.
    Refused,
    /// The request was at fault (E52): says nothing against the account, and ends a probe well.
    RequestRefused,
    /// The attempt was given up before it showed anything (the caller left): a probe is to be repeated.
    Abandoned,
    /// A test of the account (`channel test`, console, model-list probe) went well.
    TestPassed,
}

/// Whether an account may be used now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// Yes.
    Usable,
    /// Yes, and the request is the probe: call [`start_probe`] with the attempt.
    ProbeDue,
    /// Not before `until`.
    Cooling {
        /// End.
        until: Timestamp,
        /// Cause.
        why: CoolingReason,
    },
    /// Not before `until`, or not before a test passed.
    Resting {
        /// Cause.
        why: RestingReason,
        /// End; `None`: a test must pass.
        until: Option<Timestamp>,
    },
}

/// First wait after a connect failure.
const CONNECT_MS: i64 = 5_000;
/// First wait after failures in a row, and after a 429 that names no time.
const FAILURE_MS: i64 = 10_000;
/// Doubling stops here.
const LONGEST_DOUBLED_MS: i64 = 300_000;
/// What a 429 may ask for at most.
const LONGEST_ASKED_MS: i64 = 3_600_000;
/// Wait after a 429 whose time is past already.
const SHORTEST_ASKED_MS: i64 = 1_000;
/// Rest after spent quota whose window is not known.
const QUOTA_MS: i64 = 3_600_000;
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

/// The health after an observation. `cooling_on` is [`crate::Channel::cooling`]: when it is `false` nothing ever
/// cools or rests, and only the averages move.
#[must_use]
pub fn observe(health: &AccountHealth, what: &Observation, cooling_on: bool, now: Timestamp) -> AccountHealth {
    let mut next = *health;
    match *what {
        Observation::Success { first_token_us } => next.succeed(first_token_us, now),
        Observation::ConnectFailure => next.fail(CoolingReason::ConnectFailure, now),
        Observation::ServerError => next.fail(CoolingReason::ServerError, now),
        Observation::Timeout => next.fail(CoolingReason::Timeout, now),
        Observation::BadAnswer => next.fail(CoolingReason::BadAnswer, now),
        Observation::RateLimited { until } => next.rate_limit(until, now),
        Observation::QuotaSpent { until } => next.spend_quota(until, now),
        Observation::Refused => next.refuse(now),
        Observation::RequestRefused => next.end_probe(HealthState::Usable),
        Observation::Abandoned => next.repeat_probe(now),
        Observation::TestPassed => {
            next = AccountHealth { first_token_average_us: next.first_token_average_us, ..AccountHealth::default() }
        }
    }
    if !cooling_on {
        next = AccountHealth { state: HealthState::Usable, failures: 0, coolings: 0, streak: None, ..next };
    }
    next
}

/// The health once a probe went out: `None` when no probe is due, so that of several requests that saw
/// [`Standing::ProbeDue`] the one that stores this first is the probe.
#[must_use]
pub fn start_probe(health: &AccountHealth, now: Timestamp) -> Option<AccountHealth> {
    if health.standing(now) != Standing::ProbeDue {
        return None;
    }
    let why = match health.state {
        HealthState::Cooling { why, .. } => Some(why),
        HealthState::Probing { why, .. } => why,
        HealthState::Usable | HealthState::Resting { .. } => None,
    };
    Some(AccountHealth { state: HealthState::Probing { since: now, why }, ..*health })
}

// === impl AccountHealth ===

impl AccountHealth {
    /// Whether the account may be used now.
    #[must_use]
    pub fn standing(&self, now: Timestamp) -> Standing {
        match self.state {
            HealthState::Usable => Standing::Usable,
            HealthState::Cooling { until, why, .. } if until > now => Standing::Cooling { until, why },
            HealthState::Resting { until: None, why, .. } => Standing::Resting { until: None, why },
            HealthState::Resting { until: Some(until), why, .. } if until > now => Standing::Resting { until: Some(until), why },
            HealthState::Probing { since, why } if now.ms_since(since) < PROBE_MS => {
                let until = now.plus_ms(WHILE_PROBING_MS);
                why.map_or(Standing::Resting { until: Some(until), why: RestingReason::QuotaSpent }, |why| Standing::Cooling {
                    until,
                    why,
                })
            }
            HealthState::Cooling { .. } | HealthState::Resting { .. } | HealthState::Probing { .. } => Standing::ProbeDue,
        }
    }

    /// Of two nodes' views of one account the one that keeps away longer.
    #[must_use]
    pub fn later(self, other: Self) -> Self {
        if other.away_until() > self.away_until() { other } else { self }
    }

    /// Share of its weight an account keeps, in thousandths: 1,000 when nothing fails, never below 50, so that a bad
    /// one still gets the traffic that can show it is well again.
    pub(crate) fn share(&self) -> u32 {
        (1_000 - self.error_average.min(MILLION) / 1_000).max(50)
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

    fn succeed(&mut self, first_token_us: Option<u64>, now: Timestamp) {
        self.count(Ended::Well, now);
        if let Some(us) = first_token_us {
            let old = self.first_token_average_us;
            self.first_token_average_us = if old == 0 { us } else { old - old / 8 + us / 8 };
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

    fn fail(&mut self, why: CoolingReason, now: Timestamp) {
        self.count(Ended::Badly, now);
        self.failures = self.failures.saturating_add(1);
        let streak = match (self.streak, why) {
            // One silence or one unreadable answer in a row of refusals makes the whole row more than a hiccup.
            (Some(old @ (CoolingReason::Timeout | CoolingReason::BadAnswer)), new) if new.is_hiccup() => old,
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

    fn rate_limit(&mut self, until: Option<Timestamp>, now: Timestamp) {
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

    fn spend_quota(&mut self, until: Option<Timestamp>, now: Timestamp) {
        let until = until.filter(|it| *it > now).unwrap_or_else(|| now.plus_ms(QUOTA_MS));
        let longer = matches!(self.state, HealthState::Resting { .. }) && self.away_until() >= until;
        if !(longer && self.held(now)) {
            self.state = HealthState::Resting { why: RestingReason::QuotaSpent, since: now, until: Some(until) };
        }
    }

    fn refuse(&mut self, now: Timestamp) {
        if !matches!(self.state, HealthState::Resting { why: RestingReason::Refused, .. }) {
            self.state = HealthState::Resting { why: RestingReason::Refused, since: now, until: None };
        }
    }

    fn end_probe(&mut self, state: HealthState) {
        if matches!(self.state, HealthState::Probing { .. }) {
            self.state = state;
        }
    }

    fn repeat_probe(&mut self, now: Timestamp) {
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
        self.recent = [Bucket::default(); 3];
    }

    /// The next wait of a doubling row.
    fn doubled(&mut self, first_ms: i64) -> i64 {
        let wait = first_ms.saturating_mul(1 << self.coolings.min(20)).min(LONGEST_DOUBLED_MS);
        self.coolings = self.coolings.saturating_add(1);
        wait
    }

    fn count(&mut self, ended: Ended, now: Timestamp) {
        let slot = now.seconds().div_euclid(10);
        match slot.saturating_sub(self.recent_at) {
            i64::MIN..=0 => {}
            1 => self.recent = [Bucket::default(), self.recent[0], self.recent[1]],
            2 => self.recent = [Bucket::default(), Bucket::default(), self.recent[0]],
            3.. => self.recent = [Bucket::default(); 3],
        }
        self.recent_at = self.recent_at.max(slot);
        let failed = u32::from(ended == Ended::Badly);
        self.recent[0].seen = self.recent[0].seen.saturating_add(1);
        self.recent[0].failed = self.recent[0].failed.saturating_add(failed);
        let old = self.error_average.min(MILLION);
        self.error_average = old - old / 8 + failed * (MILLION / 8);
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Ended {
    Well,
    Badly,
}

impl CoolingReason {
    /// Whether a model's last account is tried all the same while it cools for this.
    #[must_use]
    pub const fn is_hiccup(self) -> bool {
        matches!(self, Self::ConnectFailure | Self::ServerError)
    }

    /// The word in traces.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::ConnectFailure => "connect_failure",
            Self::ServerError => "server_error",
            Self::Timeout => "timeout",
            Self::BadAnswer => "bad_answer",
            Self::RateLimited => "rate_limited",
        }
    }
}

impl RestingReason {
    /// The word in traces.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::QuotaSpent => "quota_spent",
            Self::Refused => "refused",
        }
    }
}

#[cfg(test)]
mod tests;
