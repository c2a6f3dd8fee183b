//! The attempt loop: the plan's accounts in order, at most three, until one answers or nothing is left to try.

use tollgate_core::{AttemptResult, Cause, Observation, Outcome, PlannedAttempt, Timestamp};

use tollgate_protocol::Reading;

use super::{
    answer::{Answered, Attempt},
    retry_after::seconds_until,
    verdict::{Failure, Next, Told, Verdict, verdict},
};
use crate::{
    Core, Head, Refusal, UpstreamFailure,
    route::{Asked, Chosen},
    ticket::{Ticket, Unwritten},
    translate::Preparation,
};

/// Tries accounts until one answers.
///
/// # Errors
/// What the caller is told when none did: the last attempt's failure.
pub(crate) async fn forward(
    asked: &Asked<'_>,
    chosen: Chosen,
    unwritten: Unwritten,
    ticket: &mut Ticket,
) -> Result<Answered, Refusal> {
    let Asked { core, head, outline, bodies, .. } = *asked;
    let Chosen { plan, slot } = chosen;
    let (mut first, tokens) = (Some(slot), asked.tokens());
    let deadline = head.started + core.shared.settings.upstream.total;
    core.retries.request(core.shared.clock.instant());
    let mut last: Option<(Verdict, &PlannedAttempt)> = None;
    for planned in plan.attempts() {
        if let Some((verdict, before)) = &last
            && !goes_on(core, verdict, before, deadline)
        {
            break;
        }
        let room = first.take().or_else(|| core.shared.traffic.rooms.take(&planned.account, tokens));
        // Room that was there when the request was planned may be gone by now.
        let Some(slot) = room else { continue };
        let prepared = match bodies.prepare(planned) {
            Preparation::Ready(prepared) => prepared,
            Preparation::OwnCount(body) => return Ok(Answered::Whole { body, reading: Reading::default(), events: false }),
        };
        ticket.dropped(prepared.dropped.clone());
        if !ticket.begin_attempt(planned, slot, unwritten) {
            ticket.end_attempt(AttemptResult::NotSent, Some("E63"), Some(Observation::Abandoned));
            return Err(Refusal::Overloaded);
        }
        let attempt = Attempt {
            upstream: &*core.upstream,
            planned,
            request_id: head.request_id,
            events: bodies.answers_in_events(),
            deadline,
        };
        match attempt.run(*prepared, ticket).await {
            Ok(answered) => {
                let lessons = &core.shared.traffic.lessons;
                lessons.answered(planned, head.from, &outline.fields, core.shared.clock.now());
                return Ok(answered);
            }
            Err(failure) => {
                if let Some(body) = bodies.count_instead(&failure) {
                    ticket.end_attempt(AttemptResult::Refused, Some("E52"), Some(Observation::RequestRefused));
                    return Ok(Answered::Whole { body, reading: Reading::default(), events: false });
                }
                learn(asked, planned, &failure);
                let verdict = verdict(&failure, planned.channel.timeouts.first_byte_ms, core.shared.clock.now());
                warn(head, planned, &failure, verdict.id());
                ticket.end_attempt(verdict.result, Some(verdict.id()), verdict.observation);
                last = Some((verdict, planned));
            }
        }
    }
    let (verdict, _) = last.expect("a plan has at least one attempt");
    Err(told(verdict.told, bodies.model(), core.shared.clock.now()))
}

/// Remembers fields that the upstream calls unsupported.
fn learn(asked: &Asked<'_>, planned: &PlannedAttempt, failure: &Failure) {
    if let Failure::Problem(answer) = failure {
        let Asked { core, head, outline, .. } = *asked;
        let names = &answer.problem.unsupported;
        core.shared.traffic.lessons.refused(planned, names, head.from, &outline.fields, core.shared.clock.now());
    }
}

/// Whether another attempt may follow: the request is not at fault, time is left, what the first upstream did is no
/// secret or does not matter, and the budget of further attempts has one.
fn goes_on(core: &Core, verdict: &Verdict, before: &PlannedAttempt, deadline: tokio::time::Instant) -> bool {
    let now = core.shared.clock.instant();
    let may = match verdict.next {
        Next::Stop => false,
        Next::FreeAttempt => true,
        Next::Attempt => core.retries.take(now),
        Next::UncertainAttempt => before.channel.retry_uncertain && core.retries.take(now),
    };
    may && now < deadline
}

fn told(told: Told, model: &str, now: Timestamp) -> Refusal {
    let model = model.to_owned();
    match told {
        Told::Failure(failure) => Refusal::Upstream { model, failure },
        Told::QuotaSpent { until } => {
            let retry_after = until.map(|until| seconds_until(until, now).clamp(1, 60));
            Refusal::NoRoute { model, cause: Cause::UpstreamQuota, too_dear: false, retry_after, price: None }
        }
    }
}

/// How a refused request is recorded: passing an upstream's no on is a refusal, an upstream that failed is one that
/// broke.
pub(crate) const fn outcome_of(refusal: &Refusal) -> Outcome {
    if matches!(refusal, Refusal::CallerLeft) {
        Outcome::CallerLeft
    } else if matches!(refusal, Refusal::Upstream { failure, .. } if !matches!(failure, UpstreamFailure::Rejected(_))) {
        Outcome::UpstreamBroke
    } else {
        Outcome::Refused
    }
}

/// One line an attempt, with the class of its failure and never the upstream's words.
fn warn(head: &Head, planned: &PlannedAttempt, failure: &Failure, id: &'static str) {
    let status = match failure {
        Failure::Problem(answer) => Some(answer.problem.status),
        Failure::Unexpected { status } => Some(*status),
        Failure::NoAnswer(_) | Failure::TimedOut { .. } | Failure::BadAnswer(_) => None,
    };
    let class = match failure {
        Failure::NoAnswer(fault) => fault.to_string(),
        Failure::TimedOut { .. } => "timed out".to_owned(),
        Failure::BadAnswer(what) => format!("bad answer: {what}"),
        Failure::Unexpected { .. } => "unexpected status".to_owned(),
        Failure::Problem(_) => "refused".to_owned(),
    };
    tracing::warn!(
        request.id = %head.request_id,
        error.id = id,
        upstream.status = status,
        channel.id = %planned.channel.id,
        channel.name = planned.channel.name,
        account.id = %planned.account.id,
        class,
        "an attempt failed"
    );
}
