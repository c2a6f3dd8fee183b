//! Hedging: a second attempt on another account when the first token of a stream is later than the model's 95th percentile. The
//! first answer goes to the caller, the other attempt is cancelled; both are recorded.

use std::{sync::Arc, time::Duration};

use tokio::{select, time::timeout};
use tollgate_core::{AttemptHistory, AttemptResult, Group, GroupId, Hedge, Observation, PlannedAttempt, max_attempt_cost};

use crate::{
    path::{
        attempt::attempt,
        judge::{is_final, judge},
        prepare::{prepare_hedge, reserve_on_channel},
        select::select_hedge,
        types::{
            attempt::{AttemptOutcome, StartedAttempt},
            context::RouteContext,
            usage_guard::UsageGuard,
        },
    },
    state::hedge_budget::HedgeReservation,
};

/// When a request is hedged, and at which cost.
pub(super) struct HedgePlan {
    after: Duration,
    group: GroupId,
    policy: Hedge,
}

impl HedgePlan {
    /// `None` when the group does not hedge, the request does not stream, or the model's latency is not known well enough.
    pub(super) fn for_request(context: &RouteContext<'_>) -> Option<Self> {
        let group: &Group = &context.offer.group;
        let policy = group.hedge.filter(|_| context.summary.stream)?;
        let shared = &context.worker.shared;
        let after = shared.traffic.latency.p95(&context.offer.model.spec.name, shared.clock.instant())?;
        Some(Self { after, group: group.id, policy })
    }

    /// Reserves the most that the losing attempt can cost. `None` when that is not known, or more than the group's cap for the
    /// day leaves.
    fn reserve_cost(
        &self,
        context: &RouteContext<'_>,
        first: &PlannedAttempt,
        second: &PlannedAttempt,
    ) -> Option<HedgeReservation> {
        let max_cost = |planned| max_attempt_cost(planned, (context.head.from, context.summary), context.offer);
        let cost = max_cost(first)?.max(max_cost(second)?);
        let shared = &context.worker.shared;
        shared.traffic.hedges.reserve(self.group, self.policy.cost_cap, cost, shared.clock.now().day())
    }
}

/// Runs an attempt, and concurrently a second one when the first is late.
pub(super) async fn race<'a>(
    context: &'a RouteContext<'a>,
    mut first: StartedAttempt<'a>,
    hedge: &HedgePlan,
    history: &mut AttemptHistory,
    guard: &mut UsageGuard,
) -> AttemptOutcome {
    // Extended by the delay of the second attempt, which gets the same time before a thinking first attempt wins the race.
    first.answer_after = first.answer_after.map(|after| after + hedge.after);
    let (first_planned, first_dropped) = (Arc::clone(&first.planned), first.request.dropped.clone());
    let mut first_attempt = Box::pin(attempt(first));
    if let Ok(outcome) = timeout(hedge.after, &mut first_attempt).await {
        return outcome;
    }
    // Starting the second attempt may take a while (it may fetch media); the first one continues in the meantime.
    let second = select! {
        biased;
        outcome = &mut first_attempt => return outcome,
        second = start_second(context, hedge, &first_planned, history, guard) => second,
    };
    let Some(second) = second else { return first_attempt.await };
    let (second_planned, second_dropped) = (Arc::clone(&second.planned), second.request.dropped.clone());
    let mut second_attempt = Box::pin(attempt(second));
    let (outcome, second_ended) = select! {
        biased;
        outcome = &mut first_attempt => (outcome, false),
        outcome = &mut second_attempt => (outcome, true),
    };
    match outcome {
        Ok(answer) => {
            // Cancel the loser before recording, so that its connection closes at once.
            drop((first_attempt, second_attempt));
            if second_ended {
                // The first attempt took at least this long. Without late samples the percentile would drift downwards.
                guard.first_content_us().into_iter().for_each(|us| guard.record_first_token(us));
                guard.promote_hedge();
            }
            guard.set_dropped(if second_ended { second_dropped } else { first_dropped });
            guard.end_hedge(AttemptResult::Cancelled, None, Some(Observation::Abandoned));
            Ok(answer)
        }
        Err((failure, planned)) if is_final(context, &failure) => {
            drop((first_attempt, second_attempt));
            if second_ended {
                guard.promote_hedge();
            }
            guard.end_hedge(AttemptResult::Cancelled, None, Some(Observation::Abandoned));
            Err((failure, planned))
        }
        Err((failure, planned)) => {
            // The other attempt continues alone.
            debug_assert!(
                Arc::ptr_eq(&planned, if second_ended { &second_planned } else { &first_planned }),
                "wrong attempt judged"
            );
            let verdict = judge(context, &failure, &planned, history);
            if !second_ended {
                guard.promote_hedge();
                guard.set_dropped(second_dropped);
            }
            guard.fail_hedge(&failure, &verdict);
            if second_ended { first_attempt.await } else { second_attempt.await }
        }
    }
}

/// Starts the second attempt. Both channels must allow a request to be sent twice (`retry_uncertain`), an account must be free
/// and affordable, the request must be expressible there, and the retry budget must have an attempt left. Otherwise nothing is
/// taken: the account can still be selected if the first attempt fails. Cancel-safe.
async fn start_second<'a>(
    context: &'a RouteContext<'a>,
    hedge: &HedgePlan,
    first: &PlannedAttempt,
    history: &mut AttemptHistory,
    guard: &mut UsageGuard,
) -> Option<StartedAttempt<'a>> {
    if !first.channel.spec.retry_uncertain {
        return None;
    }
    loop {
        let selection = select_hedge(context, history)?;
        if !selection.planned.channel.spec.retry_uncertain {
            return None;
        }
        let reservation = hedge.reserve_cost(context, first, &selection.planned)?;
        if !context.fetch_media(&selection.planned).await {
            // Its media cannot be fetched. The failure is recorded, so the next selection excludes the channel.
            continue;
        }
        if !matches!(reserve_on_channel(context, &selection.planned, guard).await, Ok(None)) {
            return None;
        }
        let started = prepare_hedge(context, selection, history, guard)?;
        guard.hedge_reservation = Some(reservation);
        return Some(started);
    }
}
