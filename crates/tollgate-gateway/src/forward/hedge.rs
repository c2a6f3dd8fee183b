//! A second attempt beside the first, on another account, where the first token of a stream is later than 95 in 100 of
//! the model's are. Who answers first answers the caller; the other is given up. Both are recorded.

use std::{sync::Arc, time::Duration};

use tokio::{select, time::timeout};
use tollgate_core::{AttemptResult, Group, GroupId, Hedge as Policy, Observation, Past, PlannedAttempt, most_of_attempt};

use super::attempts::{Begun, Ended, Road};
use crate::{hedge_spending::HedgeHold, route::Asked, ticket::Ticket};

/// When a request may have a second attempt beside its first.
pub(super) struct Hedge {
    after: Duration,
    group: GroupId,
    policy: Policy,
}

impl Hedge {
    /// Whether and when; `None` where the group does not hedge, nothing streams, or too little is known of the model.
    pub(super) fn of(asked: &Asked<'_>) -> Option<Self> {
        let group: &Group = &asked.offer.group;
        let policy = group.hedge.filter(|_| asked.outline.stream)?;
        let shared = &asked.core.shared;
        let after = shared.traffic.pace.p95(&asked.offer.model.name, shared.clock.instant())?;
        Some(Self { after, group: group.id, policy })
    }

    /// Sets aside the most that the one of two attempts can cost that will lose. `None`: that is not known, or more than
    /// is left.
    fn afford(&self, asked: &Asked<'_>, first: &PlannedAttempt, second: &PlannedAttempt) -> Option<HedgeHold> {
        let most = |planned| most_of_attempt(planned, asked.outline, asked.offer);
        let (shared, cost) = (&asked.core.shared, most(first)?.max(most(second)?));
        shared.traffic.hedges.take(self.group, self.policy.cost_cap, cost, shared.clock.now().day())
    }
}

/// Runs an attempt, and another one beside it where the first is late.
pub(super) async fn race<'a>(road: &'a Road<'a>, first: Begun<'a>, hedge: &Hedge, past: &mut Past, ticket: &mut Ticket) -> Ended {
    let (lead, dropped) = (Arc::clone(&first.planned), first.dropped());
    let mut one = Box::pin(first.run());
    if let Ok(ended) = timeout(hedge.after, &mut one).await {
        return ended;
    }
    // Looking for a second one may take a while, fetching media for it: the first one goes on meanwhile.
    let second = select! {
        biased;
        ended = &mut one => return ended,
        second = second(road, hedge, &lead, past, ticket) => second,
    };
    let Some(second) = second else { return one.await };
    let (rival, rivals_dropped) = (Arc::clone(&second.planned), second.dropped());
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
                ticket.first_content_us().into_iter().for_each(|us| ticket.pace(us));
                ticket.rival_leads();
            }
            ticket.dropped(if rival_first { rivals_dropped } else { dropped });
            ticket.end_rival(given_up.0, given_up.1, given_up.2);
            Ok(answered)
        }
        Err((failure, failed)) if road.is_final(&failure, &failed) => {
            drop((one, two));
            if rival_first {
                ticket.rival_leads();
            }
            ticket.end_rival(given_up.0, given_up.1, given_up.2);
            Err((failure, failed))
        }
        Err((failure, failed)) => {
            // The other one goes on alone.
            debug_assert!(Arc::ptr_eq(&failed, if rival_first { &rival } else { &lead }), "who failed is who ended");
            let verdict = road.judge(&failure, &failed, past);
            if !rival_first {
                ticket.rival_leads();
                ticket.dropped(rivals_dropped);
            }
            ticket.end_rival(verdict.result, Some(verdict.id()), verdict.observation);
            if rival_first { one.await } else { two.await }
        }
    }
}

/// Begins the second attempt, if both channels let a request be sent twice (`retry_uncertain`), an account has room that is known to be cheap enough, the request can be sent there, its
/// channel's budgets suffice, and the budget of further attempts has one left. Otherwise the account is still to be had:
/// should the first attempt fail, it is chosen then. Dropped in the middle, nothing of it is left.
async fn second<'a>(
    road: &'a Road<'a>,
    hedge: &Hedge,
    first: &PlannedAttempt,
    past: &mut Past,
    ticket: &mut Ticket,
) -> Option<Begun<'a>> {
    if !first.channel.retry_uncertain {
        return None;
    }
    loop {
        let chosen = road.asked.choose_beside(past)?;
        if !chosen.planned.channel.retry_uncertain {
            return None;
        }
        let hold = hedge.afford(road.asked, first, &chosen.planned)?;
        if !road.asked.bring(&chosen.planned).await {
            // Its media cannot be had; from now on routing knows.
            continue;
        }
        if !matches!(road.unaffordable(&chosen.planned, ticket).await, Ok(None)) {
            return None;
        }
        let begun = road.begin_beside(chosen, past, ticket)?;
        ticket.hedges(hold);
        return Some(begun);
    }
}
