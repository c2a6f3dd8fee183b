//! Account health: what failures do to an account, and when it may be used again.
//!
//! A value in, a value out: the gateway keeps one [`AccountHealth`] an account and hands every observation to
//! [`observe`].

mod quota;
mod rules;
mod snapshot;

use serde::{Deserialize, Serialize};

pub use quota::quota_end;

use crate::Timestamp;

pub use snapshot::HealthSnapshot;

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
    pub recent: [OutcomeBucket; 3],
    /// Which 10 s of time the first bucket stands for (seconds since the epoch ÷ 10).
    pub recent_at: i64,
    /// Moving average of failures, in millionths.
    pub error_average: u32,
    /// Moving average of the time to the first content, in microseconds; 0 when not known.
    pub first_token_average_us: u64,
    /// Moving average of the time to a whole answer that was not streamed, in microseconds; 0 when not known.
    pub whole_answer_average_us: u64,
    /// The credential that was refused, while the account rests for that.
    #[serde(rename = "refused")]
    pub refused_credential: Option<CredentialFingerprint>,
}

/// What tells an account's credential from the ones before and after it. It says nothing else of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct CredentialFingerprint(pub u32);

/// Answers and failures of 10 seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct OutcomeBucket {
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
        /// How long it took, where that was measured.
        latency: Option<LatencySample>,
    },
    /// No connection; nothing was sent.
    ConnectFailure,
    /// 5xx.
    ServerError,
    /// 503 or 529 with a time before which it does not want to be asked again.
    Overloaded {
        /// That time.
        until: Timestamp,
    },
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

/// How long an answer took, in microseconds. The two kinds say different things and are never compared with each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LatencySample {
    /// To the first content of a stream.
    FirstToken(u64),
    /// To the end of an answer that came whole.
    WholeAnswer(u64),
}

/// Whether an account may be used now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Availability {
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

/// What choosing looks at of an account's health.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HealthStatus {
    /// Whether it may be used now.
    pub availability: Availability,
    /// What is left of its weight, thousandths ([`AccountHealth::share`]).
    pub share: u32,
    /// Average time to the first content, in microseconds; 0: not known.
    pub first_token_us: u64,
    /// Average time to a whole answer, in microseconds; 0: not known.
    pub whole_answer_us: u64,
}

impl HealthStatus {
    /// Of an account nothing is known of.
    pub const HEALTHY: Self = Self { availability: Availability::Usable, share: 1_000, first_token_us: 0, whole_answer_us: 0 };
}

/// The health after an observation. `cooling_on` is [`crate::Channel::cooling`]: when it is `false` nothing ever
/// cools or rests, and only the averages move.
#[must_use]
pub fn observe(health: &AccountHealth, what: &Observation, cooling_on: bool, now: Timestamp) -> AccountHealth {
    let mut next = *health;
    match *what {
        Observation::Success { latency } => next.succeed(latency, now),
        Observation::ConnectFailure => next.fail(CoolingReason::ConnectFailure, now),
        Observation::ServerError => next.fail(CoolingReason::ServerError, now),
        Observation::Overloaded { until } => next.overload(until, now),
        Observation::Timeout => next.fail(CoolingReason::Timeout, now),
        Observation::BadAnswer => next.fail(CoolingReason::BadAnswer, now),
        Observation::RateLimited { until } => next.rate_limit(until, now),
        Observation::QuotaSpent { until } => next.spend_quota(until, now),
        Observation::Refused => next.refuse(now),
        Observation::RequestRefused => next.end_probe(HealthState::Usable),
        Observation::Abandoned => next.repeat_probe(now),
        Observation::TestPassed => {
            let AccountHealth { first_token_average_us, whole_answer_average_us, .. } = next;
            next = AccountHealth { first_token_average_us, whole_answer_average_us, ..AccountHealth::default() };
        }
    }
    if !cooling_on {
        next = AccountHealth { state: HealthState::Usable, failures: 0, coolings: 0, streak: None, ..next };
    }
    if !next.is_refused() {
        next.refused_credential = None;
    }
    next
}

/// The health once a probe went out: `None` when no probe is due, so that of several requests that saw
/// [`Availability::ProbeDue`] the one that stores this first is the probe.
#[must_use]
pub fn start_probe(health: &AccountHealth, now: Timestamp) -> Option<AccountHealth> {
    if health.availability(now) != Availability::ProbeDue {
        return None;
    }
    let why = match health.state {
        HealthState::Cooling { why, .. } => Some(why),
        HealthState::Probing { why, .. } => why,
        HealthState::Usable | HealthState::Resting { .. } => None,
    };
    Some(AccountHealth { state: HealthState::Probing { since: now, why }, ..*health })
}

impl CoolingReason {
    /// Whether a model's last account is tried all the same while it cools for this.
    #[must_use]
    pub const fn is_transient(self) -> bool {
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
