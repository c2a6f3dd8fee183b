//! Stage 7 of 11: prepare. In: a selected account; out: an attempt that may be sent: its cost is reserved on the channel's
//! budgets, its body is written in the upstream's protocol, and its beginning is in the journal.

use std::sync::Arc;

use bytes::Bytes;
use tollgate_core::{
    AdmitInput, AttemptHistory, AttemptResult, Exclusion, LimitExceeded, Observation, PlannedAttempt, attempt_reservations,
    reservation_for_attempt,
};

use super::types::{
    attempt::StartedAttempt,
    context::{RouteContext, Selection},
    request_bodies::BodyFor,
    reserve::reserve,
    usage_guard::UsageGuard,
    worker::Worker,
};
use crate::refusal::Refusal;

/// Result of [`prepare`].
pub(super) enum Preparation<'a> {
    Started(StartedAttempt<'a>),
    /// The upstream cannot count tokens; this is the gateway's own count.
    OwnCount(Bytes),
    /// The channel cannot serve this request.
    ChannelSkipped(Arc<PlannedAttempt>, Exclusion),
    /// Concurrent requests exhausted the retry budget.
    RetryBudgetSpent,
}

/// Whether an attempt counts against the retry budget of the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RetryCharge {
    /// The first attempt, or one after an attempt of which nothing was sent.
    Free,
    Charged,
}

/// Reserves the attempt's cost, writes its body and journals its beginning.
///
/// # Errors
/// E63 when the counters do not answer, when the journal cannot be written and must be, or without memory for a copy of the request.
pub(super) async fn prepare<'a>(
    context: &'a RouteContext<'a>,
    selection: Selection,
    charge: RetryCharge,
    history: &mut AttemptHistory,
    guard: &mut UsageGuard,
) -> Result<Preparation<'a>, Refusal> {
    let Selection { planned, permit } = selection;
    if let Some(exclusion) = reserve_on_channel(context, &planned, guard).await? {
        return Ok(Preparation::ChannelSkipped(planned, exclusion));
    }
    let request = match context.bodies.body_for(&planned) {
        BodyFor::Upstream(request) => request,
        BodyFor::OwnCount { body, dropped } => {
            guard.set_dropped(dropped);
            return Ok(Preparation::OwnCount(body));
        }
        BodyFor::NoMemory => return Err(Refusal::Overloaded),
        BodyFor::Impossible => {
            let fields = context.bodies.untranslatable(&planned.channel, planned.mapping());
            return Ok(Preparation::ChannelSkipped(planned, Exclusion::CannotTranslate(fields)));
        }
    };
    if charge == RetryCharge::Charged && !take_retry(context) {
        return Ok(Preparation::RetryBudgetSpent);
    }
    guard.set_dropped(request.dropped.clone());
    history.record_attempt(&planned);
    let Some(progress) = guard.begin_attempt(&planned, permit, context.journal_failure_policy()) else {
        guard.end_attempt(AttemptResult::NotSent, Some("E63"), Some(Observation::Abandoned));
        if charge == RetryCharge::Charged {
            return_retry(context.worker);
        }
        return Err(Refusal::Overloaded);
    };
    let answer_after = context.head.settings.upstream.answer_after();
    Ok(Preparation::Started(StartedAttempt { context, planned, request, progress, answer_after }))
}

/// Prepares a concurrent hedged attempt. `None` when it cannot be sent.
pub(super) fn prepare_hedge<'a>(
    context: &'a RouteContext<'a>,
    selection: Selection,
    history: &mut AttemptHistory,
    guard: &mut UsageGuard,
) -> Option<StartedAttempt<'a>> {
    let Selection { planned, permit } = selection;
    let BodyFor::Upstream(request) = context.bodies.body_for(&planned) else { return None };
    if !take_retry(context) {
        return None;
    }
    history.record_attempt(&planned);
    let Some(progress) = guard.begin_hedge(&planned, permit, context.journal_failure_policy()) else {
        guard.end_hedge(AttemptResult::NotSent, Some("E63"), Some(Observation::Abandoned));
        return_retry(context.worker);
        return None;
    };
    let answer_after = context.head.settings.upstream.answer_after();
    Some(StartedAttempt { context, planned, request, progress, answer_after })
}

/// Reserves the cost of an attempt on its channel's budgets. Returns what excludes the channel when they do not suffice.
pub(super) async fn reserve_on_channel(
    context: &RouteContext<'_>,
    planned: &PlannedAttempt,
    guard: &mut UsageGuard,
) -> Result<Option<Exclusion>, Refusal> {
    let RouteContext { worker, head, catalog, caller, summary, offer, .. } = *context;
    let Some(reservation) = reservation_for_attempt(head.request_id, head.arrived, planned, (head.from, summary), offer) else {
        return Ok(None);
    };
    // One call to a shared counter also reserves on the channels of further attempts.
    let input = AdmitInput { id: head.request_id, at: head.arrived, caller, offer, summary, from: head.from, gateway: &[] };
    let mut ahead = attempt_reservations(&input, catalog);
    if let Some(this) = ahead.iter().position(|other| other.limits == reservation.limits) {
        ahead.remove(this);
    }
    Ok(match reserve(worker, &reservation, &ahead, guard).await? {
        Ok(_) => None,
        Err(LimitExceeded::Money(funds)) => {
            Some(Exclusion::Budget { until: funds.budget.and_then(|budget| budget.window.ends(head.arrived)) })
        }
        // Not reserved here: rates of channels are limits of attempts, which have a permit by now.
        Err(LimitExceeded::Rate(_)) => Some(Exclusion::Concurrency),
    })
}

/// Takes a retry of the process, within the share of the request's key.
fn take_retry(context: &RouteContext<'_>) -> bool {
    let (retries, now) = (&context.worker.shared.retries, context.worker.shared.clock.instant());
    context.share().is_none_or(|share| share.try_retry(retries.retries_left(now))) && retries.try_acquire(now)
}

fn return_retry(worker: &Worker) {
    worker.shared.retries.release(worker.shared.clock.instant());
}
