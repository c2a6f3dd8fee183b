//! A second attempt beside the first, on another account, where the first token of a stream is later than 95 in 100 of
//! the model's are. Who answers first answers the caller; the other is given up. Both are recorded.

use std::{sync::Arc, time::Duration};

use tokio::{select, time::timeout};
use tollgate_core::{
    AttemptResult, Group, GroupId, Hedge as Policy, NanoUsd, Observation, Past, PlannedAttempt, TokenSource, Tokens, amount,
    count_input,
};

use super::attempts::{Begun, Ended, Road};
use crate::{route::Asked, ticket::Ticket};

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

    /// Sets aside what a second attempt costs at least: its input. `None`: that is not known, or more than is left.
    fn afford(&self, asked: &Asked<'_>, planned: &PlannedAttempt, day: i64) -> Option<NanoUsd> {
        let input = count_input(asked.outline).tokens;
        let tokens = Tokens { input, source: TokenSource::Estimated, ..Tokens::default() };
        let cost = amount(&tokens, planned.cost.as_ref()?, planned.account.cost_multiplier)?;
        asked.core.shared.traffic.hedges.take(self.group, self.policy.cost_cap, cost, day).then_some(cost)
    }
}

/// Runs an attempt, and another one beside it where the first is late.
pub(super) async fn race<'a>(road: &'a Road<'a>, first: Begun<'a>, hedge: &Hedge, past: &mut Past, ticket: &mut Ticket) -> Ended {
    let (lead, dropped) = (Arc::clone(&first.planned), first.dropped());
    let mut one = Box::pin(first.run());
    if let Ok(ended) = timeout(hedge.after, &mut one).await {
        return ended;
    }
    let day = day(road.asked);
    let Some((second, taken)) = second(road, hedge, past, day, ticket).await else { return one.await };
    let (rival, rivals_dropped) = (Arc::clone(&second.planned), second.dropped());
    let mut two = Box::pin(second.run());
    let (ended, rival_first) = select! {
        biased;
        ended = &mut one => (ended, false),
        ended = &mut two => (ended, true),
    };
    let given_up = (AttemptResult::Cancelled, None, Some(Observation::Abandoned));
    let correct = |cost: Option<NanoUsd>| {
        road.asked.core.shared.traffic.hedges.correct(hedge.group, taken, cost.unwrap_or(NanoUsd::ZERO), day);
    };
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
            correct(ticket.end_rival(given_up.0, given_up.1, given_up.2));
            Ok(answered)
        }
        Err((failure, failed)) if road.is_final(&failure, &failed) => {
            drop((one, two));
            if rival_first {
                ticket.rival_leads();
            }
            correct(ticket.end_rival(given_up.0, given_up.1, given_up.2));
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
            correct(ticket.end_rival(verdict.result, Some(verdict.id()), verdict.observation));
            if rival_first { one.await } else { two.await }
        }
    }
}

/// Begins the second attempt, if an account has room that is known to be cheap enough, its channel's budgets suffice, and
/// the budget of further attempts has one left.
async fn second<'a>(
    road: &'a Road<'a>,
    hedge: &Hedge,
    past: &mut Past,
    day: i64,
    ticket: &mut Ticket,
) -> Option<(Begun<'a>, NanoUsd)> {
    let chosen = road.asked.choose_beside(past)?;
    let taken = hedge.afford(road.asked, &chosen.planned, day)?;
    let affords = matches!(road.unaffordable(&chosen.planned, ticket).await, Ok(None));
    // Where it cannot begin the account is still to be had: should the first attempt fail, it is chosen then.
    let begun = if affords { road.begin_beside(chosen, past, ticket) } else { None };
    if begun.is_none() {
        road.asked.core.shared.traffic.hedges.correct(hedge.group, taken, NanoUsd::ZERO, day);
    }
    Some((begun?, taken))
}

fn day(asked: &Asked<'_>) -> i64 {
    asked.core.shared.clock.now().day()
}
