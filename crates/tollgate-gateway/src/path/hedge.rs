//! A second attempt beside the first, on another account, where the first token of a stream is later than 95 in 100 of
//! the model's are. Who answers first answers the caller; the other is given up. Both are recorded.

use std::{sync::Arc, time::Duration};

use tokio::{select, time::timeout};
use tollgate_core::{
    AttemptHistory, AttemptResult, Group, GroupId, Hedge as Policy, Observation, PlannedAttempt, max_attempt_cost,
};

use super::attempts::{AttemptContext, AttemptOutcome, RunningAttempt};
use crate::{
    path::{select::RouteContext, types::usage_guard::UsageGuard},
    state::hedge_budget::HedgeReservation,
};

/// When a request may have a second attempt beside its first.
pub(super) struct Hedge {
    after: Duration,
    group: GroupId,
    policy: Policy,
}

impl Hedge {
    /// Whether and when; `None` where the group does not hedge, nothing streams, or too little is known of the model.
    pub(super) fn of(asked: &RouteContext<'_>) -> Option<Self> {
        let group: &Group = &asked.offer.group;
        let policy = group.hedge.filter(|_| asked.summary.stream)?;
        let shared = &asked.core.shared;
        let after = shared.traffic.latency.p95(&asked.offer.model.name, shared.clock.instant())?;
        Some(Self { after, group: group.id, policy })
    }

    /// Sets aside the most that the one of two attempts can cost that will lose. `None`: that is not known, or more than
    /// is left.
    fn afford(&self, asked: &RouteContext<'_>, first: &PlannedAttempt, second: &PlannedAttempt) -> Option<HedgeReservation> {
        let most = |planned| max_attempt_cost(planned, asked.summary, asked.offer);
        let (shared, cost) = (&asked.core.shared, most(first)?.max(most(second)?));
        shared.traffic.hedges.take(self.group, self.policy.cost_cap, cost, shared.clock.now().day())
    }
}

/// Runs an attempt, and another one beside it where the first is late.
pub(super) async fn race<'a>(
    context: &'a AttemptContext<'a>,
    first: RunningAttempt<'a>,
    hedge: &Hedge,
    past: &mut AttemptHistory,
    guard: &mut UsageGuard,
) -> AttemptOutcome {
    let (lead, dropped) = (Arc::clone(&first.planned), first.dropped());
    let mut one = Box::pin(first.run());
    if let Ok(ended) = timeout(hedge.after, &mut one).await {
        return ended;
    }
    // Looking for a second one may take a while, fetching media for it: the first one goes on meanwhile.
    let second = select! {
        biased;
        ended = &mut one => return ended,
        second = second(context, hedge, &lead, past, guard) => second,
    };
    let Some(second) = second else { return one.await };
    let (hedge_attempt, rivals_dropped) = (Arc::clone(&second.planned), second.dropped());
    let mut two = Box::pin(second.run());
    let (ended, rival_first) = select! {
        biased;
        ended = &mut one => (ended, false),
        ended = &mut two => (ended, true),
    };
    let given_up = (AttemptResult::Cancelled, None, Some(Observation::Abandoned));
    match ended {
        Ok(answered) => {
            // Given up before it is written down, so that its connection is closed at once.
            drop((one, two));
            if rival_first {
                // It took at least so long. Were late ones not counted, 95 in 100 would come ever sooner.
                guard.first_content_us().into_iter().for_each(|us| guard.record_first_token(us));
                guard.promote_hedge();
            }
            guard.dropped(if rival_first { rivals_dropped } else { dropped });
            guard.end_hedge(given_up.0, given_up.1, given_up.2);
            Ok(answered)
        }
        Err((failure, failed)) if context.is_final(&failure, &failed) => {
            drop((one, two));
            if rival_first {
                guard.promote_hedge();
            }
            guard.end_hedge(given_up.0, given_up.1, given_up.2);
            Err((failure, failed))
        }
        Err((failure, failed)) => {
            // The other one goes on alone.
            debug_assert!(Arc::ptr_eq(&failed, if rival_first { &hedge_attempt } else { &lead }), "who failed is who ended");
            let verdict = context.judge(&failure, &failed, past);
            if !rival_first {
                guard.promote_hedge();
                guard.dropped(rivals_dropped);
            }
            guard.end_hedge(verdict.result, Some(verdict.id()), verdict.observation);
            if rival_first { one.await } else { two.await }
        }
    }
}

/// Begins the second attempt, if both channels let a request be sent twice (`retry_uncertain`), an account has room that is known to be cheap enough, the request can be sent there, its
/// channel's budgets suffice, and the budget of further attempts has one left. Otherwise the account is still to be had:
/// should the first attempt fail, it is chosen then. Dropped in the middle, nothing of it is left.
async fn second<'a>(
    context: &'a AttemptContext<'a>,
    hedge: &Hedge,
    first: &PlannedAttempt,
    past: &mut AttemptHistory,
    guard: &mut UsageGuard,
) -> Option<RunningAttempt<'a>> {
    if !first.channel.retry_uncertain {
        return None;
    }
    loop {
        let chosen = context.asked.select_hedge(past)?;
        if !chosen.planned.channel.retry_uncertain {
            return None;
        }
        let hold = hedge.afford(context.asked, first, &chosen.planned)?;
        if !context.asked.fetch_media(&chosen.planned).await {
            // Its media cannot be had; from now on routing knows.
            continue;
        }
        if !matches!(context.unaffordable(&chosen.planned, guard).await, Ok(None)) {
            return None;
        }
        let begun = context.begin_hedged(chosen, past, guard)?;
        guard.hold_hedge_budget(hold);
        return Some(begun);
    }
}
