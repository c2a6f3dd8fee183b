//! The attempt loop: select, prepare, attempt, judge, until an account answers or nothing is left to try.
//!
//! At most three attempts. An attempt whose connection failed before any byte was sent does not count. Each attempt is selected
//! after the one before it has failed.

mod hedge;

use std::{mem, sync::Arc};

use bytes::Bytes;
use tollgate_core::{AttemptResult, Exclusion, MAX_ATTEMPTS, MAX_TRIES, NoRouteCause, Observation};
use tollgate_protocol::ReplySummary;

use self::hedge::{HedgePlan, race};
use super::{
    attempt::attempt,
    judge::judge,
    prepare::{Preparation, RetryCharge, prepare},
    select::{select, try_acquire},
    types::{
        attempt::AttemptAnswer,
        context::{LastAttempt, RetryState, RouteContext, Selection, SelectionError},
        failure::{NextStep, ReportedFailure},
        usage_guard::UsageGuard,
    },
};
use crate::refusal::{Refusal, UpstreamFailure, seconds_until};

/// Tries accounts until one answers.
///
/// # Errors
/// The last attempt's failure, or why there was no attempt; or that this catalog snapshot is exhausted and there is a newer one.
pub(super) async fn run(
    context: &RouteContext<'_>,
    retry: &mut RetryState,
    guard: &mut UsageGuard,
) -> Result<AttemptAnswer, SelectionError> {
    let worker = context.worker;
    if retry.without_seals {
        context.bodies.leave_out_seals();
    }
    let mut selection = match select(context, &retry.history, &mut retry.wait_budget, guard).await {
        Ok(selection) => selection,
        Err(error) => return Err(retry.prefer_last_failure(context, error)),
    };
    if !mem::replace(&mut retry.counted, true) {
        let period = worker.shared.retries.request(worker.shared.clock.instant());
        if let Some(share) = context.share() {
            share.count_request(period);
        }
    }
    let mut hedge = if retry.last.is_none() { HedgePlan::for_request(context) } else { None };
    loop {
        match prepare(context, selection, retry.charge(), &mut retry.history, guard).await? {
            Preparation::OwnCount(body) => return Ok(own_count(body)),
            Preparation::RetryBudgetSpent => {
                return Err(retry.last_refusal(context).unwrap_or(Refusal::Overloaded).into());
            }
            Preparation::ChannelSkipped(planned, exclusion) => {
                if !retry.history.skip_channel(&planned, exclusion.clone()) {
                    return Err(retry.last_refusal(context).unwrap_or_else(|| all_skipped(context, &exclusion)).into());
                }
            }
            Preparation::Started(started) => {
                let outcome = match hedge.take() {
                    None => attempt(started).await,
                    Some(hedge) => Box::pin(race(context, started, &hedge, &mut retry.history, guard)).await,
                };
                let (failure, planned) = match outcome {
                    Ok((answer, planned)) => {
                        let learned = &worker.shared.traffic.learned_parameters;
                        learned.answered(&planned, context.head.from, &context.summary.fields, || worker.shared.clock.now());
                        return Ok(answer);
                    }
                    Err(failed) => failed,
                };
                if let Some(body) = context.bodies.count_instead(&failure) {
                    guard.end_attempt(AttemptResult::Refused, Some("E52"), Some(Observation::RequestRefused));
                    return Ok(own_count(body));
                }
                let verdict = judge(context, &failure, &planned, &mut retry.history);
                guard.fail_attempt(&failure, &verdict);
                let wait = verdict.reported.wait(worker.shared.clock.now());
                retry.shortest_wait = [retry.shortest_wait, wait].into_iter().flatten().min();
                let last = retry.last.insert(LastAttempt { verdict, planned });
                if !may_retry(context, last, retry.without_seals, guard) {
                    return Err(retry.last_refusal(context).unwrap_or(Refusal::Overloaded).into());
                }
            }
        }
        if let Some(again) = without_seals(context, retry) {
            selection = again;
            continue;
        }
        selection = match Box::pin(select(context, &retry.history, &mut retry.wait_budget, guard)).await {
            Ok(selection) => selection,
            Err(error) => return Err(retry.prefer_last_failure(context, error)),
        };
    }
}

/// Whether another attempt may follow: the request is not at fault, attempts and time are left, a repeated request does no
/// harm, and the retry budget is not spent.
fn may_retry(context: &RouteContext<'_>, last: &LastAttempt, without_seals: bool, guard: &UsageGuard) -> bool {
    let shared = &context.worker.shared;
    let now = shared.clock.instant();
    let allowed = match last.verdict.next {
        NextStep::Stop => false,
        NextStep::WithoutSeals => !without_seals && context.bodies.has_seals(&last.planned) && shared.retries.has_capacity(now),
        NextStep::FreeAttempt => true,
        NextStep::Attempt => shared.retries.has_capacity(now),
        NextStep::UncertainAttempt => last.planned.channel.spec.retry_uncertain && shared.retries.has_capacity(now),
    };
    allowed && guard.sent_attempts() < MAX_ATTEMPTS && guard.attempts() < MAX_TRIES && now < context.deadline()
}

/// Selects the account that refused the sealed thoughts of the history again, for the request without them. `None` if another request has
/// taken its capacity: the next account is then selected as usual.
fn without_seals(context: &RouteContext<'_>, retry: &mut RetryState) -> Option<Selection> {
    let last = retry.last.as_ref().filter(|last| last.verdict.next == NextStep::WithoutSeals)?;
    retry.without_seals = true;
    context.bodies.leave_out_seals();
    let permit = try_acquire(context, &last.planned)?;
    Some(Selection { planned: Arc::clone(&last.planned), permit })
}

/// The gateway's own count of tokens as the answer.
fn own_count(body: Bytes) -> AttemptAnswer {
    AttemptAnswer::Whole { body, summary: ReplySummary::default(), events: false }
}

/// The refusal when every channel was skipped.
fn all_skipped(context: &RouteContext<'_>, exclusion: &Exclusion) -> Refusal {
    let now = context.worker.shared.clock.now();
    let retry_after = exclusion.until().map(|until| seconds_until(until, now).clamp(1, 60));
    let cause = exclusion.cause().unwrap_or(NoRouteCause::NoneConfigured);
    Refusal::NoRoute { model: context.bodies.model().to_owned(), cause, retry_after, price: None, missing_price: None }
}

impl RetryState {
    /// Whether the next attempt counts against the retry budget. It does not if the last attempt failed before anything was sent.
    fn charge(&self) -> RetryCharge {
        match &self.last {
            Some(last) if last.verdict.next != NextStep::FreeAttempt => RetryCharge::Charged,
            Some(_) | None => RetryCharge::Free,
        }
    }

    /// The refusal for the attempt that failed last, if there was one.
    fn last_refusal(&mut self, context: &RouteContext<'_>) -> Option<Refusal> {
        let LastAttempt { verdict, .. } = self.last.take()?;
        Some(refusal_for(verdict.reported, context.bodies.model(), self.shortest_wait))
    }

    /// The error when no account is left: the last attempt's failure, if there was one, because it says more.
    fn prefer_last_failure(&mut self, context: &RouteContext<'_>, error: SelectionError) -> SelectionError {
        match error {
            SelectionError::Refused(refusal) => self.last_refusal(context).unwrap_or(refusal).into(),
            SelectionError::StaleCatalog => SelectionError::StaleCatalog,
        }
    }
}

/// `shortest_wait`: seconds until the first of the attempted upstreams accepts requests again.
fn refusal_for(failure: ReportedFailure, model: &str, shortest_wait: Option<u32>) -> Refusal {
    let model = model.to_owned();
    match failure {
        ReportedFailure::Failure(UpstreamFailure::RateLimited { retry_after: Some(_) }) => {
            Refusal::Upstream { model, failure: UpstreamFailure::RateLimited { retry_after: shortest_wait } }
        }
        ReportedFailure::Failure(UpstreamFailure::Overloaded { retry_after: Some(_) }) => {
            Refusal::Upstream { model, failure: UpstreamFailure::Overloaded { retry_after: shortest_wait } }
        }
        ReportedFailure::Failure(failure) => Refusal::Upstream { model, failure },
        ReportedFailure::OwnLimit => Refusal::Overloaded,
        ReportedFailure::QuotaSpent { until } => {
            let retry_after = until.and(shortest_wait).map(|wait| wait.clamp(1, 60));
            Refusal::NoRoute { model, cause: NoRouteCause::UpstreamQuota, retry_after, price: None, missing_price: None }
        }
    }
}
