//! What a failed attempt means: for the request (another attempt or not), for the account's health, and for the
//! caller when no attempt is left (error reference, B7). One table, exhaustive.

use tollgate_core::{AttemptResult, Observation, Timestamp, quota_end};
use tollgate_protocol::{Protocol, UpstreamProblem};

use crate::refusal::{Rejection, UpstreamFailure};
use crate::upstream::{
    call::{ConnectFault, UpstreamError},
    retry_after::seconds_until,
};

/// How an attempt failed before anything reached the caller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// No head of an answer came.
    NoAnswer(UpstreamError),
    /// Nothing for this many milliseconds: before the head, or silence before the first content.
    TimedOut {
        /// The limit that was reached.
        limit_ms: u64,
    },
    /// The request's own time was up while the account was within its limits.
    OutOfTime {
        /// The limit of the whole request, in milliseconds.
        limit_ms: u64,
        /// Whether anything had been sent.
        sent: bool,
    },
    /// An error answer, or an error inside a 200.
    Problem(Box<ProblemAnswer>),
    /// A 2xx that is no answer, or a body that broke off; the text is for the log.
    BadAnswer(&'static str),
    /// A 3xx, or a 1xx at the end: nothing we asked for.
    Unexpected {
        /// Its status.
        status: u16,
    },
}

impl Failure {
    /// Whether nobody can be reached there, with whatever account.
    pub(crate) const fn is_of_the_address(&self) -> bool {
        match self {
            Self::NoAnswer(UpstreamError::NotSent(fault)) => match fault {
                ConnectFault::BadUrl
                | ConnectFault::Resolve
                | ConnectFault::Denied
                | ConnectFault::Refused
                | ConnectFault::Tls
                | ConnectFault::CaFile
                | ConnectFault::Proxy
                | ConnectFault::TimedOut => true,
                ConnectFault::BadHeader | ConnectFault::Closed => false,
            },
            Self::NoAnswer(UpstreamError::Lost | UpstreamError::Unreadable(_))
            | Self::TimedOut { .. }
            | Self::OutOfTime { .. }
            | Self::Problem(_)
            | Self::BadAnswer(_)
            | Self::Unexpected { .. } => false,
        }
    }
}

/// An error answer and when it wants to be asked again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ProblemAnswer {
    /// The upstream's protocol.
    pub protocol: Protocol,
    /// What it says.
    pub problem: UpstreamProblem,
    /// When it may be asked again.
    pub until: Option<Timestamp>,
}

/// Whether the request goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// The request itself is at fault; every account would say the same.
    Stop,
    /// Another account may do better, and nothing left us.
    FreeAttempt,
    /// Another account may do better.
    Attempt,
    /// It was sent and no usable answer came, or one that says that nobody knows (408, 504, 524): it may have been done
    /// and charged. Another attempt unless the channel says no. Any other error answer is certain: it was not done.
    UncertainAttempt,
}

/// What the caller is told when it was the last attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ReportedFailure {
    /// E50 to E58.
    Failure(UpstreamFailure),
    /// E40 with cause `upstream_quota`: our account's money is gone, which is nothing the caller can be told of.
    QuotaSpent {
        /// When it is back, if known.
        until: Option<Timestamp>,
    },
}

impl ReportedFailure {
    /// Seconds until the upstream is to be asked again, where it said so.
    pub(crate) fn wait(&self, now: Timestamp) -> Option<u32> {
        match self {
            Self::Failure(UpstreamFailure::RateLimited { retry_after } | UpstreamFailure::Overloaded { retry_after }) => {
                *retry_after
            }
            Self::QuotaSpent { until } => until.map(|until| seconds_until(until, now)),
            Self::Failure(_) => None,
        }
    }
}

/// A failure's meaning.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Verdict {
    pub next: Next,
    pub observation: Option<Observation>,
    pub told: ReportedFailure,
    pub result: AttemptResult,
}

impl Verdict {
    /// The row of the error reference.
    pub(crate) fn id(&self) -> &'static str {
        match &self.told {
            ReportedFailure::Failure(failure) => failure.id(),
            ReportedFailure::QuotaSpent { .. } => "E40",
        }
    }
}

/// Judges a failure. `first_byte_ms` is the channel's own limit, which callers are told of (E51, E57).
pub(crate) fn verdict(failure: &Failure, first_byte_ms: u64, now: Timestamp) -> Verdict {
    match failure {
        Failure::NoAnswer(UpstreamError::NotSent(_)) => Verdict {
            next: Next::FreeAttempt,
            observation: Some(Observation::ConnectFailure),
            told: ReportedFailure::Failure(UpstreamFailure::Unreachable),
            result: AttemptResult::NotSent,
        },
        Failure::NoAnswer(UpstreamError::Lost) => {
            failed(Next::UncertainAttempt, Observation::ServerError, UpstreamFailure::Unreachable)
        }
        Failure::TimedOut { limit_ms } => {
            failed(Next::UncertainAttempt, Observation::Timeout, UpstreamFailure::TimedOut { limit_ms: *limit_ms })
        }
        // It says nothing against the account; a probe is to be repeated.
        Failure::OutOfTime { limit_ms, sent } => Verdict {
            next: Next::Stop,
            observation: Some(Observation::Abandoned),
            told: ReportedFailure::Failure(UpstreamFailure::TimedOut { limit_ms: *limit_ms }),
            result: if *sent { AttemptResult::Failed } else { AttemptResult::NotSent },
        },
        Failure::NoAnswer(UpstreamError::Unreadable(_)) | Failure::BadAnswer(_) => {
            failed(Next::UncertainAttempt, Observation::BadAnswer, UpstreamFailure::BadResponse)
        }
        Failure::Unexpected { .. } => failed(Next::Attempt, Observation::BadAnswer, UpstreamFailure::BadResponse),
        Failure::Problem(answer) => judge(answer, first_byte_ms, now),
    }
}

fn failed(next: Next, observation: Observation, told: UpstreamFailure) -> Verdict {
    Verdict { next, observation: Some(observation), told: ReportedFailure::Failure(told), result: AttemptResult::Failed }
}

fn judge(answer: &ProblemAnswer, first_byte_ms: u64, now: Timestamp) -> Verdict {
    let ProblemAnswer { protocol, problem, until } = answer;
    let refused = |next, observation, told| Verdict { next, observation, told, result: AttemptResult::Refused };
    // Whose fault it is can stand in the text alone (translation reference, section 2.7): never E52 then.
    if problem.quota_exhausted {
        let until = quota_end(problem.window, *until, now);
        return refused(Next::Attempt, Some(Observation::QuotaSpent { until }), ReportedFailure::QuotaSpent { until });
    }
    if problem.account_refused {
        return refused(Next::Attempt, Some(Observation::Refused), ReportedFailure::Failure(UpstreamFailure::AccountRefused));
    }
    if problem.from_intermediary {
        return foreign(answer);
    }
    let wait = until.map(|until| seconds_until(until, now));
    let (next, observation, failure) = match problem.status {
        400 | 404 | 409 | 413 | 415 | 422 => {
            let rejection = Rejection { protocol: *protocol, problem: problem.clone() };
            (Next::Stop, Some(Observation::RequestRefused), UpstreamFailure::Rejected(Box::new(rejection)))
        }
        401..=403 => (Next::Attempt, Some(Observation::Refused), UpstreamFailure::AccountRefused),
        429 => {
            let observation = Observation::RateLimited { until: *until };
            (Next::Attempt, Some(observation), UpstreamFailure::RateLimited { retry_after: wait })
        }
        503 | 529 => {
            let observation = until.map_or(Observation::ServerError, |until| Observation::Overloaded { until });
            (Next::Attempt, Some(observation), UpstreamFailure::Overloaded { retry_after: wait })
        }
        408 | 504 | 524 => {
            let limit_ms = first_byte_ms;
            (Next::UncertainAttempt, Some(Observation::Timeout), UpstreamFailure::GatewayTimedOut { limit_ms })
        }
        500.. => (Next::Attempt, Some(Observation::ServerError), UpstreamFailure::Failed { status: problem.status }),
        // Any other 4xx tells of the way to the upstream (405, 421, 431 …), not of the account.
        status => (Next::Attempt, None, UpstreamFailure::Failed { status }),
    };
    refused(next, observation, ReportedFailure::Failure(failure))
}

/// A 4xx that no model server wrote: something else answers at this address, or stands in front of it. It says nothing of
/// the request, so that others may serve it; that an answer is not what it should be counts, unless the request's size may
/// be what stopped it.
fn foreign(answer: &ProblemAnswer) -> Verdict {
    let ProblemAnswer { protocol, problem, .. } = answer;
    let told = if problem.status == 413 {
        UpstreamFailure::Rejected(Box::new(Rejection { protocol: *protocol, problem: problem.clone() }))
    } else {
        UpstreamFailure::Failed { status: problem.status }
    };
    let observation = (!matches!(problem.status, 413 | 414 | 431 | 451)).then_some(Observation::BadAnswer);
    Verdict { next: Next::Attempt, observation, told: ReportedFailure::Failure(told), result: AttemptResult::Refused }
}

#[cfg(test)]
mod tests {
    use tollgate_protocol::QuotaWindow;

    use super::*;

    const NOW: Timestamp = Timestamp(1_795_262_400_000_000);

    fn status(status: u16) -> Failure {
        problem(UpstreamProblem { status, ..UpstreamProblem::default() }, None)
    }

    fn problem(problem: UpstreamProblem, until: Option<Timestamp>) -> Failure {
        Failure::Problem(Box::new(ProblemAnswer { protocol: Protocol::OpenAi, problem, until }))
    }

    fn check(failure: &Failure, id: &str, next: Next, observation: Option<Observation>, result: AttemptResult) {
        let verdict = verdict(failure, 120_000, NOW);
        assert_eq!(
            (verdict.id(), verdict.next, verdict.observation, verdict.result),
            (id, next, observation, result),
            "{failure:?}"
        );
    }

    #[test]
    fn nothing_sent_is_free_and_everything_unanswered_is_uncertain() {
        let closed = Failure::NoAnswer(UpstreamError::NotSent(ConnectFault::Refused));
        check(&closed, "E50", Next::FreeAttempt, Some(Observation::ConnectFailure), AttemptResult::NotSent);
        let lost = Failure::NoAnswer(UpstreamError::Lost);
        check(&lost, "E50", Next::UncertainAttempt, Some(Observation::ServerError), AttemptResult::Failed);
        let late = Failure::TimedOut { limit_ms: 120_000 };
        check(&late, "E51", Next::UncertainAttempt, Some(Observation::Timeout), AttemptResult::Failed);
        assert_eq!(verdict(&late, 120_000, NOW).told, ReportedFailure::Failure(UpstreamFailure::TimedOut { limit_ms: 120_000 }));
    }

    #[test]
    fn when_the_requests_own_time_is_up_nothing_follows_and_nobody_is_blamed() {
        for (sent, result) in [(true, AttemptResult::Failed), (false, AttemptResult::NotSent)] {
            let over = Failure::OutOfTime { limit_ms: 600_000, sent };
            check(&over, "E51", Next::Stop, Some(Observation::Abandoned), result);
            assert_eq!(
                verdict(&over, 120_000, NOW).told,
                ReportedFailure::Failure(UpstreamFailure::TimedOut { limit_ms: 600_000 })
            );
        }
    }

    #[test]
    fn an_answer_that_is_none_is_e58() {
        for (failure, next) in [
            (Failure::NoAnswer(UpstreamError::Unreadable("garbage")), Next::UncertainAttempt),
            (Failure::BadAnswer("HTML"), Next::UncertainAttempt),
            (Failure::Unexpected { status: 302 }, Next::Attempt),
            (Failure::Unexpected { status: 101 }, Next::Attempt),
        ] {
            check(&failure, "E58", next, Some(Observation::BadAnswer), AttemptResult::Failed);
        }
    }

    #[test]
    fn every_status_has_its_row() {
        use Next::{Attempt, Stop, UncertainAttempt};
        let (error, timeout) = (Some(Observation::ServerError), Some(Observation::Timeout));
        let (refused, fine) = (Some(Observation::Refused), Some(Observation::RequestRefused));
        let limited = Some(Observation::RateLimited { until: None });
        let table = [
            (&[400, 404, 409, 413, 415, 422][..], "E52", Stop, fine),
            (&[401, 402, 403][..], "E53", Attempt, refused),
            (&[429][..], "E54", Attempt, limited),
            (&[500, 501, 502, 505, 507, 520, 521, 522, 523, 530, 599][..], "E55", Attempt, error),
            (&[405, 406, 410, 411, 412, 414, 417, 418, 421, 423, 425, 426, 428, 431, 451][..], "E55", Attempt, None),
            (&[503, 529][..], "E56", Attempt, error),
            (&[408, 504, 524][..], "E57", UncertainAttempt, timeout),
        ];
        for (statuses, id, next, observation) in table {
            for code in statuses {
                check(&status(*code), id, next, observation, AttemptResult::Refused);
            }
        }
    }

    #[test]
    fn spent_money_is_never_the_callers_fault_whatever_the_status() {
        let said = Some(NOW.plus_ms(9_000_000));
        for code in [400, 402, 403, 429] {
            let spent = UpstreamProblem { status: code, quota_exhausted: true, ..UpstreamProblem::default() };
            let failure = problem(spent, said);
            check(&failure, "E40", Next::Attempt, Some(Observation::QuotaSpent { until: said }), AttemptResult::Refused);
            assert_eq!(verdict(&failure, 120_000, NOW).told, ReportedFailure::QuotaSpent { until: said });
        }
        let day =
            UpstreamProblem { status: 429, quota_exhausted: true, window: Some(QuotaWindow::Day), ..UpstreamProblem::default() };
        let midnight = Some(NOW.plus_ms(20 * 3_600_000));
        let failure = problem(day, Some(NOW.plus_ms(34_000)));
        check(&failure, "E40", Next::Attempt, Some(Observation::QuotaSpent { until: midnight }), AttemptResult::Refused);
        let held = UpstreamProblem { status: 400, account_refused: true, ..UpstreamProblem::default() };
        check(&problem(held, None), "E53", Next::Attempt, Some(Observation::Refused), AttemptResult::Refused);
    }

    #[test]
    fn the_upstreams_wait_is_handed_on() {
        let until = Some(NOW.plus_ms(7_500));
        let busy = problem(UpstreamProblem { status: 429, ..UpstreamProblem::default() }, until);
        assert_eq!(
            verdict(&busy, 120_000, NOW).told,
            ReportedFailure::Failure(UpstreamFailure::RateLimited { retry_after: Some(8) })
        );
        assert_eq!(verdict(&busy, 120_000, NOW).observation, Some(Observation::RateLimited { until }));
        let full = problem(UpstreamProblem { status: 503, ..UpstreamProblem::default() }, until);
        assert_eq!(
            verdict(&full, 120_000, NOW).told,
            ReportedFailure::Failure(UpstreamFailure::Overloaded { retry_after: Some(8) })
        );
        let until = NOW.plus_ms(7_500);
        assert_eq!(verdict(&full, 120_000, NOW).observation, Some(Observation::Overloaded { until }));
    }

    #[test]
    fn what_no_model_server_wrote_is_the_addresss_fault_and_not_the_requests() {
        let page = |status| problem(UpstreamProblem { status, from_intermediary: true, ..UpstreamProblem::default() }, None);
        let (bad, refused) = (Some(Observation::BadAnswer), AttemptResult::Refused);
        for code in [400, 403, 404, 405, 409, 410, 415, 421, 422, 426] {
            check(&page(code), "E55", Next::Attempt, bad, refused);
        }
        // A proxy's limits are no sign that the address is wrong.
        check(&page(413), "E52", Next::Attempt, None, refused);
        for code in [414, 431, 451] {
            check(&page(code), "E55", Next::Attempt, None, refused);
        }
    }
}
