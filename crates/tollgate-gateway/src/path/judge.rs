//! Stage 9 of 11: judge. In: a failed attempt; out: a [`Verdict`]: whether another attempt may follow, what it means for the
//! account's health, and the caller's error if it was the last attempt (docs/errors.md, E50 to E58).

use tollgate_core::{AttemptHistory, AttemptResult, Exclusion, Observation, PlannedAttempt, Timestamp, quota_end};
use tollgate_protocol::{ErrorStyle, UpstreamProblem};

use super::types::{
    context::RouteContext,
    failure::{Failure, NextStep, ProblemAnswer, ReportedFailure, Verdict},
};
use crate::{
    refusal::{Rejection, UpstreamFailure, seconds_until},
    request::Head,
    upstream::call::{ConnectFault, UpstreamError},
};

/// Judges a failed attempt, logs it, and records unsupported fields and unreachable addresses of the channel.
pub(super) fn judge(
    context: &RouteContext<'_>,
    failure: &Failure,
    planned: &PlannedAttempt,
    history: &mut AttemptHistory,
) -> Verdict {
    record_unsupported(context, planned, failure);
    if failure.is_of_the_address() {
        history.record_unreachable(planned);
    }
    if matches!(failure, Failure::NoAnswer(UpstreamError::NotSent(ConnectFault::AllTaken))) {
        // The channel's other accounts use the same connections.
        let _ = history.skip_channel(planned, Exclusion::Concurrency);
    }
    let verdict = paused(verdict_of(context, failure), failure, planned);
    if verdict.result == AttemptResult::NotSent {
        history.record_unsent();
    }
    warn(context.head, planned, failure, verdict.id());
    verdict
}

/// True if another account would fail in the same way.
pub(super) fn is_final(context: &RouteContext<'_>, failure: &Failure) -> bool {
    verdict_of(context, failure).next == NextStep::Stop
}

fn verdict_of(context: &RouteContext<'_>, failure: &Failure) -> Verdict {
    verdict(failure, context.worker.shared.clock.now())
}

/// The verdict, with a pause of the account if the channel has one for this status. A spent quota rests the account for longer.
fn paused(verdict: Verdict, failure: &Failure, planned: &PlannedAttempt) -> Verdict {
    if let Failure::Problem(answer) = failure
        && planned.channel.spec.pausing_statuses.contains(&answer.problem.status)
        && !answer.problem.quota_exhausted
    {
        return Verdict { observation: Some(Observation::PausingStatus { until: answer.until }), ..verdict };
    }
    verdict
}

/// Records the request fields that the upstream rejected as unsupported. Clients of the Messages API repair their requests by the
/// words of an upstream of that protocol, which a refusal by the gateway would hide.
fn record_unsupported(context: &RouteContext<'_>, planned: &PlannedAttempt, failure: &Failure) {
    if let Failure::Problem(answer) = failure {
        let RouteContext { worker, head, summary, caller, .. } = *context;
        if planned.protocol == head.from && head.from.spec().error_style == ErrorStyle::Anthropic {
            return;
        }
        let names = &answer.problem.unsupported;
        let (learned, now) = (&worker.shared.traffic.learned_parameters, worker.shared.clock.now());
        learned.refused(planned, names, head.from, &summary.fields, caller.key.requester(), now);
    }
}

/// Logs one line per failed attempt, with the class of the failure and never the upstream's text.
fn warn(head: &Head, planned: &PlannedAttempt, failure: &Failure, id: &'static str) {
    let status = match failure {
        Failure::Unexpected { status } => Some(*status),
        Failure::Problem(answer) => Some(answer.problem.status),
        Failure::NoAnswer(_) | Failure::TimedOut { .. } | Failure::OutOfTime { .. } | Failure::BadAnswer(_) | Failure::NoMemory => {
            None
        }
    };
    tracing::warn!(
        request.id = %head.request_id,
        error.id = id,
        upstream.status = status,
        channel.id = %planned.channel.id,
        channel.name = planned.channel.spec.name,
        account.id = %planned.account.id,
        class = failure.class(),
        "an attempt failed"
    );
}

/// The verdict on a failure.
pub(crate) fn verdict(failure: &Failure, now: Timestamp) -> Verdict {
    match failure {
        // This failure is not evidence about the account, and no other account could be reached either.
        Failure::NoAnswer(UpstreamError::NotSent(ConnectFault::OwnLimit)) => Verdict {
            next: NextStep::Stop,
            observation: Some(Observation::Abandoned),
            reported: ReportedFailure::OwnLimit,
            result: AttemptResult::NotSent,
        },
        // Another channel has connections of its own.
        Failure::NoAnswer(UpstreamError::NotSent(ConnectFault::AllTaken)) => Verdict {
            next: NextStep::FreeAttempt,
            observation: Some(Observation::Abandoned),
            reported: ReportedFailure::OwnLimit,
            result: AttemptResult::NotSent,
        },
        Failure::NoAnswer(UpstreamError::NotSent(_)) => Verdict {
            next: NextStep::FreeAttempt,
            observation: Some(Observation::ConnectFailure),
            reported: ReportedFailure::Failure(UpstreamFailure::Unreachable),
            result: AttemptResult::NotSent,
        },
        Failure::NoAnswer(UpstreamError::Lost) => {
            failed(NextStep::UncertainAttempt, Observation::ServerError, UpstreamFailure::Unreachable)
        }
        Failure::TimedOut { limit_ms } => {
            failed(NextStep::UncertainAttempt, Observation::Timeout, UpstreamFailure::TimedOut { limit_ms: *limit_ms })
        }
        // The account was within its limits; a probe has to be repeated.
        Failure::OutOfTime { limit_ms, sent } => Verdict {
            next: NextStep::Stop,
            observation: Some(Observation::Abandoned),
            reported: ReportedFailure::Failure(UpstreamFailure::TimedOut { limit_ms: *limit_ms }),
            result: if *sent { AttemptResult::Failed } else { AttemptResult::NotSent },
        },
        Failure::NoAnswer(UpstreamError::Unreadable(_)) | Failure::BadAnswer(_) => {
            failed(NextStep::UncertainAttempt, Observation::BadAnswer, UpstreamFailure::BadResponse)
        }
        Failure::NoMemory => Verdict {
            next: NextStep::Stop,
            observation: Some(Observation::Abandoned),
            reported: ReportedFailure::OwnLimit,
            result: AttemptResult::Failed,
        },
        Failure::Unexpected { .. } => failed(NextStep::Attempt, Observation::BadAnswer, UpstreamFailure::BadResponse),
        Failure::Problem(answer) => judge_answer(answer, now),
    }
}

fn failed(next: NextStep, observation: Observation, failure: UpstreamFailure) -> Verdict {
    Verdict { next, observation: Some(observation), reported: ReportedFailure::Failure(failure), result: AttemptResult::Failed }
}

fn judge_answer(answer: &ProblemAnswer, now: Timestamp) -> Verdict {
    let ProblemAnswer { protocol, problem, until } = answer;
    let refused = |next, observation, reported| Verdict { next, observation, reported, result: AttemptResult::Refused };
    // The cause can be in the text alone, whatever the status. A spent quota is never the request's fault (E52).
    if problem.quota_exhausted {
        let until = quota_end(problem.window, *until, now);
        let observation =
            if problem.quota_in_text { Observation::QuotaMentioned { until } } else { Observation::QuotaSpent { until } };
        return refused(NextStep::Attempt, Some(observation), ReportedFailure::QuotaSpent { until });
    }
    if problem.account_refused {
        return refused(NextStep::Attempt, Some(Observation::Refused), ReportedFailure::Failure(UpstreamFailure::AccountRefused));
    }
    if problem.from_intermediary {
        return not_from_model_server(answer);
    }
    let wait = until.map(|until| seconds_until(until, now));
    let (next, observation, failure) = match problem.status {
        400 | 404 | 409 | 413 | 415 | 422 => {
            let rejection = Rejection { protocol: *protocol, problem: problem.clone() };
            let next = match problem {
                UpstreamProblem { seals_refused: true, .. } => NextStep::WithoutSeals,
                UpstreamProblem { kept_elsewhere: true, .. } => NextStep::Attempt,
                _ => NextStep::Stop,
            };
            (next, Some(Observation::RequestRefused), UpstreamFailure::Rejected(Box::new(rejection)))
        }
        401..=403 => (NextStep::Attempt, Some(Observation::Refused), UpstreamFailure::AccountRefused),
        429 => {
            // An account with a higher limit may serve it; this one serves smaller requests.
            let is_of_request = problem.over_minute_limit;
            let observation = if is_of_request { Observation::RequestRefused } else { Observation::RateLimited { until: *until } };
            (NextStep::Attempt, Some(observation), UpstreamFailure::RateLimited { retry_after: wait })
        }
        503 | 529 => {
            let observation = until.map_or(Observation::ServerError, |until| Observation::Overloaded { until });
            (NextStep::Attempt, Some(observation), UpstreamFailure::Overloaded { retry_after: wait })
        }
        status @ (408 | 504 | 524) => {
            (NextStep::UncertainAttempt, Some(Observation::Timeout), UpstreamFailure::GatewayTimedOut { status })
        }
        500.. => (NextStep::Attempt, Some(Observation::ServerError), UpstreamFailure::Failed { status: problem.status }),
        // Any other 4xx (405, 421, 431, ...) concerns the connection to the upstream, not the account.
        status => (NextStep::Attempt, None, UpstreamFailure::Failed { status }),
    };
    refused(next, observation, ReportedFailure::Failure(failure))
}

/// Judges a 4xx that was not written by a model server, but by an intermediary or by another server at the address. It
/// says nothing about the request, so another account may serve it. It counts against the account's health, unless the size of
/// the request may have caused it.
fn not_from_model_server(answer: &ProblemAnswer) -> Verdict {
    let ProblemAnswer { protocol, problem, .. } = answer;
    let failure = if problem.status == 413 {
        UpstreamFailure::Rejected(Box::new(Rejection { protocol: *protocol, problem: problem.clone() }))
    } else {
        UpstreamFailure::Failed { status: problem.status }
    };
    let observation = (!matches!(problem.status, 413 | 414 | 431 | 451)).then_some(Observation::BadAnswer);
    Verdict { next: NextStep::Attempt, observation, reported: ReportedFailure::Failure(failure), result: AttemptResult::Refused }
}

#[cfg(test)]
mod tests {
    use tollgate_protocol::{Protocol, QuotaWindow};

    use super::*;
    use crate::upstream::call::ConnectFault;

    const NOW: Timestamp = Timestamp(1_795_262_400_000_000);

    fn status(status: u16) -> Failure {
        problem(UpstreamProblem { status, ..UpstreamProblem::default() }, None)
    }

    fn problem(problem: UpstreamProblem, until: Option<Timestamp>) -> Failure {
        Failure::Problem(Box::new(ProblemAnswer { protocol: Protocol::OpenAi, problem, until }))
    }

    fn check(failure: &Failure, id: &str, next: NextStep, observation: Option<Observation>, result: AttemptResult) {
        let verdict = verdict(failure, NOW);
        assert_eq!(
            (verdict.id(), verdict.next, verdict.observation, verdict.result),
            (id, next, observation, result),
            "{failure:?}"
        );
    }

    #[test]
    fn unsent_attempt_is_free_and_unanswered_attempt_is_uncertain() {
        let closed = Failure::NoAnswer(UpstreamError::NotSent(ConnectFault::Refused));
        check(&closed, "E50", NextStep::FreeAttempt, Some(Observation::ConnectFailure), AttemptResult::NotSent);
        let lost = Failure::NoAnswer(UpstreamError::Lost);
        check(&lost, "E50", NextStep::UncertainAttempt, Some(Observation::ServerError), AttemptResult::Failed);
        let late = Failure::TimedOut { limit_ms: 120_000 };
        check(&late, "E51", NextStep::UncertainAttempt, Some(Observation::Timeout), AttemptResult::Failed);
        assert_eq!(verdict(&late, NOW).reported, ReportedFailure::Failure(UpstreamFailure::TimedOut { limit_ms: 120_000 }));
    }

    #[test]
    fn limits_of_the_gateway_are_not_blamed_on_the_account() {
        let not_sent = |fault| Failure::NoAnswer(UpstreamError::NotSent(fault));
        let abandoned = Some(Observation::Abandoned);
        check(&not_sent(ConnectFault::OwnLimit), "E63", NextStep::Stop, abandoned, AttemptResult::NotSent);
        check(&not_sent(ConnectFault::AllTaken), "E63", NextStep::FreeAttempt, abandoned, AttemptResult::NotSent);
    }

    #[test]
    fn expired_request_is_not_retried_and_not_blamed_on_the_account() {
        for (sent, result) in [(true, AttemptResult::Failed), (false, AttemptResult::NotSent)] {
            let over = Failure::OutOfTime { limit_ms: 600_000, sent };
            check(&over, "E51", NextStep::Stop, Some(Observation::Abandoned), result);
            assert_eq!(verdict(&over, NOW).reported, ReportedFailure::Failure(UpstreamFailure::TimedOut { limit_ms: 600_000 }));
        }
    }

    #[test]
    fn invalid_answers_are_reported_as_e58() {
        for (failure, next) in [
            (Failure::NoAnswer(UpstreamError::Unreadable("garbage")), NextStep::UncertainAttempt),
            (Failure::BadAnswer("HTML"), NextStep::UncertainAttempt),
            (Failure::Unexpected { status: 302 }, NextStep::Attempt),
            (Failure::Unexpected { status: 101 }, NextStep::Attempt),
        ] {
            check(&failure, "E58", next, Some(Observation::BadAnswer), AttemptResult::Failed);
        }
    }

    #[test]
    fn every_upstream_status_has_a_verdict() {
        use NextStep::{Attempt, Stop, UncertainAttempt};
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
    fn refused_encrypted_reasoning_is_retried_without_it() {
        let sealed = |status| UpstreamProblem { status, seals_refused: true, ..UpstreamProblem::default() };
        let fine = Some(Observation::RequestRefused);
        check(&problem(sealed(400), None), "E52", NextStep::WithoutSeals, fine, AttemptResult::Refused);
        let error = Some(Observation::ServerError);
        check(&problem(sealed(500), None), "E55", NextStep::Attempt, error, AttemptResult::Refused);
    }

    #[test]
    fn missing_stored_response_is_looked_for_at_another_account() {
        let missing = UpstreamProblem { status: 400, kept_elsewhere: true, ..UpstreamProblem::default() };
        let fine = Some(Observation::RequestRefused);
        check(&problem(missing, None), "E52", NextStep::Attempt, fine, AttemptResult::Refused);
    }

    #[test]
    fn exhausted_quota_is_e40_for_every_status() {
        let said = Some(NOW.plus_ms(9_000_000));
        for code in [400, 402, 403, 429] {
            let spent = UpstreamProblem { status: code, quota_exhausted: true, ..UpstreamProblem::default() };
            let failure = problem(spent, said);
            check(&failure, "E40", NextStep::Attempt, Some(Observation::QuotaSpent { until: said }), AttemptResult::Refused);
            assert_eq!(verdict(&failure, NOW).reported, ReportedFailure::QuotaSpent { until: said });
        }
        let day =
            UpstreamProblem { status: 429, quota_exhausted: true, window: Some(QuotaWindow::Day), ..UpstreamProblem::default() };
        let midnight = Some(NOW.plus_ms(20 * 3_600_000));
        let failure = problem(day, Some(NOW.plus_ms(34_000)));
        check(&failure, "E40", NextStep::Attempt, Some(Observation::QuotaSpent { until: midnight }), AttemptResult::Refused);
        let mentioned = UpstreamProblem { status: 400, quota_exhausted: true, quota_in_text: true, ..UpstreamProblem::default() };
        let until = Some(NOW.plus_ms(600_000));
        let observed = Some(Observation::QuotaMentioned { until });
        check(&problem(mentioned, until), "E40", NextStep::Attempt, observed, AttemptResult::Refused);
        let held = UpstreamProblem { status: 400, account_refused: true, ..UpstreamProblem::default() };
        check(&problem(held, None), "E53", NextStep::Attempt, Some(Observation::Refused), AttemptResult::Refused);
    }

    #[test]
    fn upstream_retry_after_is_passed_on() {
        let until = Some(NOW.plus_ms(7_500));
        let busy = problem(UpstreamProblem { status: 429, ..UpstreamProblem::default() }, until);
        assert_eq!(verdict(&busy, NOW).reported, ReportedFailure::Failure(UpstreamFailure::RateLimited { retry_after: Some(8) }));
        assert_eq!(verdict(&busy, NOW).observation, Some(Observation::RateLimited { until }));
        let large = UpstreamProblem { status: 429, over_minute_limit: true, ..UpstreamProblem::default() };
        check(&problem(large, until), "E54", NextStep::Attempt, Some(Observation::RequestRefused), AttemptResult::Refused);
        let full = problem(UpstreamProblem { status: 503, ..UpstreamProblem::default() }, until);
        assert_eq!(verdict(&full, NOW).reported, ReportedFailure::Failure(UpstreamFailure::Overloaded { retry_after: Some(8) }));
        let until = NOW.plus_ms(7_500);
        assert_eq!(verdict(&full, NOW).observation, Some(Observation::Overloaded { until }));
    }

    #[test]
    fn error_page_of_an_intermediary_counts_as_a_bad_answer() {
        let page = |status| problem(UpstreamProblem { status, from_intermediary: true, ..UpstreamProblem::default() }, None);
        let (bad, refused) = (Some(Observation::BadAnswer), AttemptResult::Refused);
        for code in [400, 403, 404, 405, 409, 410, 415, 421, 422, 426] {
            check(&page(code), "E55", NextStep::Attempt, bad, refused);
        }
        // A proxy's limits do not mean that the address is wrong.
        check(&page(413), "E52", NextStep::Attempt, None, refused);
        for code in [414, 431, 451] {
            check(&page(code), "E55", NextStep::Attempt, None, refused);
        }
    }
}
