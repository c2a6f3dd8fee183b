//! Failures of attempts, and their consequences.

use tollgate_core::{AttemptResult, Observation, Timestamp};
use tollgate_protocol::{Protocol, UpstreamProblem};

use crate::{
    refusal::{UpstreamFailure, redact, seconds_until},
    upstream::call::{ConnectFault, UpstreamError},
};

/// How an attempt failed before anything reached the caller. `limit_ms` is the limit that was reached, `sent` whether anything had
/// been sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// No head of an answer arrived.
    NoAnswer(UpstreamError),
    /// The upstream was silent before the head or before the first content.
    TimedOut { limit_ms: u64 },
    /// The request's time limit was reached while the account was within its own.
    OutOfTime { limit_ms: u64, sent: bool },
    /// An error answer, or an error inside a 200.
    Problem(Box<ProblemAnswer>),
    /// A 2xx that is not an answer, or a body that broke off. The text is for the log.
    BadAnswer(&'static str),
    /// A 1xx or 3xx status.
    Unexpected { status: u16 },
    /// There is no memory for the answer, or none within the key's share.
    NoMemory,
}

/// Most characters of an upstream's error text in a record.
const MESSAGE_CHARS: usize = 500;

impl Failure {
    /// The kind of failure, without text of the upstream.
    pub(crate) fn class(&self) -> String {
        match self {
            Self::NoAnswer(fault) => fault.to_string(),
            Self::TimedOut { limit_ms } => format!("timed out after {limit_ms} ms"),
            Self::OutOfTime { .. } => "the request's time is up".to_owned(),
            Self::BadAnswer(what) => format!("bad answer: {what}"),
            Self::Unexpected { .. } => "unexpected status".to_owned(),
            Self::NoMemory => "no memory for the answer".to_owned(),
            Self::Problem(_) => "refused".to_owned(),
        }
    }

    /// The message for operators in the record: the text of the upstream's error without keys and hosts, else the class.
    pub(crate) fn message(&self) -> String {
        let text = match self {
            Self::Problem(answer) => redact(answer.problem.message.trim()),
            Self::NoAnswer(_)
            | Self::TimedOut { .. }
            | Self::OutOfTime { .. }
            | Self::BadAnswer(_)
            | Self::Unexpected { .. }
            | Self::NoMemory => String::new(),
        };
        match text.char_indices().nth(MESSAGE_CHARS) {
            Some((end, _)) => format!("{}…", &text[..end]),
            None if text.is_empty() => self.class(),
            None => text,
        }
    }

    /// Whether the address is unreachable, for any account.
    pub(crate) const fn is_of_the_address(&self) -> bool {
        let Self::NoAnswer(UpstreamError::NotSent(fault)) = self else { return false };
        !matches!(fault, ConnectFault::BadHeader | ConnectFault::Closed | ConnectFault::OwnLimit | ConnectFault::AllTaken)
    }
}

/// An error answer of an upstream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ProblemAnswer {
    /// The upstream's protocol.
    pub protocol: Protocol,
    pub problem: UpstreamProblem,
    /// When the upstream accepts requests again, if it reported a time.
    pub until: Option<Timestamp>,
}

/// Whether another attempt may follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NextStep {
    /// The request is at fault: every account would refuse it.
    Stop,
    /// The request is at fault for sealed thoughts in its history: the same account may take it without them, once.
    WithoutSeals,
    /// Another account may do better, and nothing was sent.
    FreeAttempt,
    /// Another account may do better.
    Attempt,
    /// The request was sent and no usable answer arrived, or a timeout was reported (408, 504, 524): it may have been processed and
    /// charged. Another attempt follows unless the channel forbids it. Any other error answer means it was not processed.
    UncertainAttempt,
}

/// The failure that the caller sees if it was the last attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ReportedFailure {
    /// E63: this gateway is at a limit of its own.
    OwnLimit,
    /// E50 to E58.
    Failure(UpstreamFailure),
    /// E40 with cause `upstream_quota`: the account's money is spent, which is the operator's concern and not the caller's.
    /// `until` is when the quota renews, if known.
    QuotaSpent { until: Option<Timestamp> },
}

impl ReportedFailure {
    /// Seconds until the upstream accepts requests again, if it reported a time.
    pub(crate) fn wait(&self, now: Timestamp) -> Option<u32> {
        match self {
            Self::Failure(UpstreamFailure::RateLimited { retry_after } | UpstreamFailure::Overloaded { retry_after }) => {
                *retry_after
            }
            Self::QuotaSpent { until } => until.map(|until| seconds_until(until, now)),
            Self::Failure(_) | Self::OwnLimit => None,
        }
    }
}

/// Consequences of a failure for the request and the account.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Verdict {
    pub next: NextStep,
    pub observation: Option<Observation>,
    pub reported: ReportedFailure,
    pub result: AttemptResult,
}

impl Verdict {
    /// The error id, as in docs/errors.md.
    pub(crate) fn id(&self) -> &'static str {
        match &self.reported {
            ReportedFailure::Failure(failure) => failure.id(),
            ReportedFailure::QuotaSpent { .. } => "E40",
            ReportedFailure::OwnLimit => "E63",
        }
    }
}
