//! Account health: how failures affect an account, and when it may be used again.
//!
//! Pure functions: the gateway keeps one [`AccountHealth`] per account and passes every observation to [`observe`].

mod foreign;
mod history;
mod quota;
mod rules;
mod snapshot;

use serde::{Deserialize, Serialize};

pub use history::{
    HealthCondition, HealthHistory, HealthReason, HealthTransition, ImpairedState, Impairment, TransitionCause, UptimeCell,
    account_condition, uptime_cells,
};
pub use quota::quota_end;

use crate::{ChannelSpec, Timestamp};

pub use snapshot::HealthSnapshot;

/// Health of an account. Small and `Copy`: routing copies it for each candidate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct AccountHealth {
    pub state: HealthState,
    /// Consecutive failures that count towards cooling (5xx, timeouts, unreadable answers).
    pub failures: u32,
    /// How often it has cooled since the last success; each time doubles the wait.
    pub coolings: u32,
    /// Kind of the consecutive failures.
    pub streak: Option<CoolingReason>,
    /// Outcomes of the last 30 s in three buckets of 10 s, the current one first.
    pub recent: [OutcomeBucket; 3],
    /// Number of the first bucket: seconds since the epoch divided by 10.
    pub recent_at: i64,
    /// Moving average of the failure rate, in millionths.
    pub error_average: u32,
    /// Moving average of the time to the first content, in microseconds; 0: unknown.
    pub first_token_average_us: u64,
    /// Moving average of the time to a complete non-streamed answer, in microseconds; 0: unknown.
    pub whole_answer_average_us: u64,
    /// Fingerprint of the refused credential while the account rests because of it.
    #[serde(rename = "refused")]
    pub refused_credential: Option<CredentialFingerprint>,
    /// Whether the state concerns some callers only. Set where health is shown or saved.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub concerns_some: bool,
}

/// Distinguishes successive credentials of an account without revealing them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct CredentialFingerprint(pub u32);

/// Outcomes of 10 seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct OutcomeBucket {
    /// Answers and failures together.
    pub seen: u32,
    pub failed: u32,
}

/// Whether an account may be used, and if not, until when and why.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HealthState {
    #[default]
    Usable,
    /// Not usable before `until`; the first request after that is the probe.
    Cooling { until: Timestamp, why: CoolingReason, since: Timestamp },
    /// Not usable before `until`, or before a test passes.
    Resting {
        why: RestingReason,
        since: Timestamp,
        /// End of the rest; `None`: a test must pass.
        until: Option<Timestamp>,
    },
    /// One request probes the account; all others avoid it.
    Probing {
        since: Timestamp,
        /// Why it had cooled down; `None`: it had rested.
        why: Option<CoolingReason>,
    },
}

/// The failure after which an account cools. A cooling always has an end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CoolingReason {
    ConnectFailure,
    /// 5xx response.
    ServerError,
    /// No first byte, or no further byte, in time.
    Timeout,
    /// Empty or malformed 200 response.
    BadAnswer,
    /// 429 response.
    RateLimited,
    /// A status for which the channel pauses its accounts.
    PausingStatus,
}

/// The answer after which an account rests, until the named time or until a test passes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RestingReason {
    /// Credit or quota is exhausted.
    QuotaSpent,
    /// 401, 402 or 403: the credential is rejected.
    Refused,
}

/// Evidence of an attempt about its account.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Observation {
    Success {
        latency: Option<LatencySample>,
    },
    /// The connection failed; nothing was sent.
    ConnectFailure,
    /// 5xx response.
    ServerError,
    /// 503 or 529 response with a retry time.
    Overloaded {
        until: Timestamp,
    },
    /// No first byte in time, or a stall within the answer.
    Timeout,
    /// Empty or malformed 200 response, or a broken stream.
    BadAnswer,
    /// A response with a status for which the channel pauses its accounts.
    PausingStatus {
        /// Earliest retry, as the response says.
        until: Option<Timestamp>,
    },
    /// 429 response.
    RateLimited {
        /// Earliest retry, as the response says.
        until: Option<Timestamp>,
    },
    /// Credit or quota is exhausted.
    QuotaSpent {
        /// End of the quota window, if known.
        until: Option<Timestamp>,
    },
    /// The text of a response says that credit or quota is exhausted. The text, including the end that it names, may repeat what the
    /// caller sent.
    QuotaMentioned {
        until: Option<Timestamp>,
    },
    /// 401, 402 or 403 response.
    Refused,
    /// The request was at fault (E52): does not count against the account, and completes a probe.
    RequestRefused,
    /// The attempt was cancelled before it showed anything (the caller left): a probe is repeated.
    Abandoned,
    /// A test of the account passed (`channel test`, console, model list probe).
    TestPassed,
}

/// Latency of an answer, in microseconds. The two kinds measure different things and are never compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LatencySample {
    /// Time to the first content of a stream.
    FirstToken(u64),
    /// Time to the end of an answer that was not streamed.
    WholeAnswer(u64),
}

/// Whether an account may serve a request at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Availability {
    Usable,
    /// Usable, and the request is the probe: call [`start_probe`] for the attempt.
    ProbeDue,
    Cooling {
        until: Timestamp,
        why: CoolingReason,
    },
    /// Not usable before `until`, or before a test passes.
    Resting {
        why: RestingReason,
        /// End of the rest; `None`: a test must pass.
        until: Option<Timestamp>,
    },
}

/// The part of an account's health that routing reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HealthStatus {
    pub availability: Availability,
    /// Share of its weight it keeps, in thousandths ([`AccountHealth::share`]).
    pub share: u32,
    /// Average time to the first content, in microseconds; 0: unknown.
    pub first_token_us: u64,
    /// Average time to a complete answer, in microseconds; 0: unknown.
    pub whole_answer_us: u64,
}

impl HealthStatus {
    /// Status of an account without recorded health.
    pub const HEALTHY: Self = Self { availability: Availability::Usable, share: 1_000, first_token_us: 0, whole_answer_us: 0 };
}

/// A channel's settings about the cooling of its accounts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CoolingRules {
    /// `false`: accounts never cool or rest.
    pub on: bool,
    /// Consecutive failures that start cooling.
    pub failures: u32,
    /// First wait after failures, and after a 429 without a retry time. After a connection failure it is half of that.
    pub first_wait_ms: i64,
}

impl Default for CoolingRules {
    fn default() -> Self {
        ChannelSpec::default().cooling_rules()
    }
}

impl ChannelSpec {
    pub fn cooling_rules(&self) -> CoolingRules {
        CoolingRules {
            on: self.cooling,
            failures: self.failures_to_cool.max(1),
            first_wait_ms: i64::from(self.cool_down_s.max(1)) * 1_000,
        }
    }
}

/// The health after an observation. Without cooling only the averages change.
pub fn observe(health: &AccountHealth, what: &Observation, rules: CoolingRules, now: Timestamp) -> AccountHealth {
    let mut next = *health;
    match *what {
        Observation::Success { latency } => next.succeed(latency, now),
        Observation::ConnectFailure => next.fail(CoolingReason::ConnectFailure, rules, now),
        Observation::ServerError => next.fail(CoolingReason::ServerError, rules, now),
        Observation::Overloaded { until } => next.overload(until, rules, now),
        Observation::Timeout => next.fail(CoolingReason::Timeout, rules, now),
        Observation::BadAnswer => next.fail(CoolingReason::BadAnswer, rules, now),
        Observation::PausingStatus { until } => next.pause(until, rules, now),
        Observation::RateLimited { until } => next.rate_limit(until, rules, now),
        Observation::QuotaSpent { until } | Observation::QuotaMentioned { until } => next.spend_quota(until, now),
        Observation::Refused => next.refuse(now),
        Observation::RequestRefused => next.end_probe(HealthState::Usable),
        Observation::Abandoned => next.repeat_probe(now),
        Observation::TestPassed => {
            let AccountHealth { first_token_average_us, whole_answer_average_us, .. } = next;
            next = AccountHealth { first_token_average_us, whole_answer_average_us, ..AccountHealth::default() };
        }
    }
    if !rules.on {
        next = AccountHealth { state: HealthState::Usable, failures: 0, coolings: 0, streak: None, ..next };
    }
    if !next.is_refused() {
        next.refused_credential = None;
    }
    next
}

/// The health after a probe was sent; `None` when no probe is due. Of several requests that saw [`Availability::ProbeDue`], the
/// one that stores this first is the probe.
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
    /// Whether a model's last remaining account is still tried. An account whose rate is limited would only refuse again.
    pub(crate) const fn is_tried_as_last(self) -> bool {
        !matches!(self, Self::RateLimited)
    }

    /// True for failures that may be part of a short outage.
    pub(crate) const fn is_transient(self) -> bool {
        matches!(self, Self::ConnectFailure | Self::ServerError | Self::Timeout)
    }

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::ConnectFailure => "connect_failure",
            Self::ServerError => "server_error",
            Self::Timeout => "timeout",
            Self::BadAnswer => "bad_answer",
            Self::RateLimited => "rate_limited",
            Self::PausingStatus => "pausing_status",
        }
    }
}

impl RestingReason {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::QuotaSpent => "quota_spent",
            Self::Refused => "refused",
        }
    }
}

#[cfg(test)]
mod tests;
