//! The attempt loop: the plan's accounts in order, at most three, until one answers or nothing is left to try.

use std::sync::Arc;

use bytes::Bytes;
use tokio::time::Instant;
use tollgate_core::{
    AttemptResult, Cause, CoolingReason, HealthView as _, MAX_ATTEMPTS, Observation, Outcome, PlannedAttempt, Standing, Timestamp,
};
use tollgate_protocol::Reading;

use super::{
    answer::{Answered, Attempt},
    hedge::{Hedge, race},
    retry_after::seconds_until,
    verdict::{Failure, Next, Told, Verdict, verdict},
};
use crate::{
    Head, Refusal, UpstreamFailure,
    account_room::Slot,
    admit::admit_attempt,
    route::{Asked, Chosen},
    ticket::{Notes, Ticket, Unwritten},
    translate::{Preparation, Prepared},
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
    let road = Road { asked, unwritten, tokens: asked.tokens(), deadline: head.started + core.shared.settings.upstream.total };
    core.retries.request(core.shared.clock.instant());
    let mut room = Some(slot);
    let mut hedge = Hedge::of(asked);
    let mut rest = plan.attempts().peekable();
    let mut last: Option<(Verdict, &PlannedAttempt)> = None;
    while let Some(planned) = rest.next() {
        if let Some((verdict, before)) = &last
            && (ticket.attempts() >= MAX_ATTEMPTS || !road.goes_on(verdict, before))
        {
            break;
        }
        // Whether a later attempt's protocol can express the request is known only now, and room that was there when it
        // was planned may be gone.
        if room.is_none() && !asked.bring(planned).await {
            continue;
        }
        let Some(slot) = room.take().or_else(|| road.room(planned)) else { continue };
        if !road.affords(planned, ticket).await? {
            continue;
        }
        let begun = match road.begin(planned, slot, ticket)? {
            Beginning::Attempt(begun) => begun,
            Beginning::OwnCount(body) => return Ok(own_count(body)),
            Beginning::Impossible => continue,
        };
        let ended = match hedge.take() {
            None => begun.run().await,
            Some(hedge) => Box::pin(race(&road, begun, &hedge, &mut rest, ticket)).await,
        };
        match ended {
            Ok((answered, planned)) => {
                let lessons = &core.shared.traffic.lessons;
                lessons.answered(planned, head.from, &outline.fields, core.shared.clock.now());
                return Ok(answered);
            }
            Err((failure, planned)) => {
                if let Some(body) = bodies.count_instead(&failure) {
                    ticket.end_attempt(AttemptResult::Refused, Some("E52"), Some(Observation::RequestRefused));
                    return Ok(own_count(body));
                }
                let verdict = road.judge(&failure, planned);
                ticket.end_attempt(verdict.result, Some(verdict.id()), verdict.observation);
                last = Some((verdict, planned));
            }
        }
    }
    match last {
        Some((verdict, _)) => Err(told(verdict.told, bodies.model(), core.shared.clock.now())),
        // Every channel of the plan has a budget, and others have just taken what was left of it.
        None => Err(told(Told::QuotaSpent { until: None }, bodies.model(), core.shared.clock.now())),
    }
}

/// Our own count of tokens as the answer.
fn own_count(body: Bytes) -> Answered {
    Answered::Whole { body, reading: Reading::default(), events: false }
}

/// How one request is tried.
pub(super) struct Road<'a> {
    pub(super) asked: &'a Asked<'a>,
    unwritten: Unwritten,
    /// What it is estimated at.
    tokens: u64,
    /// When it must have an answer.
    deadline: Instant,
}

/// What begins.
enum Beginning<'p> {
    Attempt(Begun<'p>),
    /// Nothing: the upstream cannot count tokens, and this is our own count.
    OwnCount(Bytes),
    /// Nothing: the upstream's protocol cannot express the request.
    Impossible,
}

/// An attempt that has begun: it is in the journal and may be sent.
pub(super) struct Begun<'p> {
    pub(super) planned: &'p PlannedAttempt,
    attempt: Attempt<'p>,
    prepared: Box<Prepared>,
    notes: Arc<Notes>,
}

/// How an attempt ended, and which one it was.
pub(super) type Ended<'p> = Result<(Answered, &'p PlannedAttempt), (Failure, &'p PlannedAttempt)>;

impl<'p> Begun<'p> {
    /// Entries of `x-tollgate-dropped`.
    pub(super) fn dropped(&self) -> Vec<String> {
        self.prepared.dropped.clone()
    }

    pub(super) async fn run(self) -> Ended<'p> {
        let Self { planned, attempt, prepared, notes } = self;
        match attempt.run(*prepared, &notes).await {
            Ok(answered) => Ok((answered, planned)),
            Err(failure) => Err((failure, planned)),
        }
    }
}

impl<'a> Road<'a> {
    /// Room on an account.
    pub(super) fn room(&self, planned: &PlannedAttempt) -> Option<Slot> {
        self.stands(planned).then(|| self.asked.core.shared.traffic.rooms.take(&planned.account, self.tokens)).flatten()
    }

    /// Whether an account may still be asked that was planned before another attempt, which may have taken minutes: not
    /// when it was switched off since, rests, or was told to wait. One that cools for a hiccup may, as when it was planned.
    fn stands(&self, planned: &PlannedAttempt) -> bool {
        let core = self.asked.core;
        let catalog = core.shared.catalog.load();
        let on = catalog.channels.get(&planned.channel.id).is_some_and(|channel| {
            channel.on && channel.accounts.iter().any(|account| account.id == planned.account.id && account.on)
        });
        on && match core.desk.health.of(planned.account.id).standing(core.shared.clock.now()) {
            Standing::Usable | Standing::ProbeDue => true,
            Standing::Cooling { why, .. } => why != CoolingReason::RateLimited,
            Standing::Resting { .. } => false,
        }
    }

    /// Sets the cost of an attempt aside on its channel's budgets; `false`: they do not suffice.
    pub(super) async fn affords(&self, planned: &PlannedAttempt, ticket: &mut Ticket) -> Result<bool, Refusal> {
        admit_attempt(self.asked, planned, ticket).await
    }

    fn begin<'p>(&self, planned: &'p PlannedAttempt, slot: Slot, ticket: &mut Ticket) -> Result<Beginning<'p>, Refusal>
    where
        'a: 'p,
    {
        let prepared = match self.asked.bodies.prepare(planned) {
            Preparation::Ready(prepared) => prepared,
            Preparation::OwnCount { body, dropped } => {
                ticket.dropped(dropped);
                return Ok(Beginning::OwnCount(body));
            }
            Preparation::Impossible => return Ok(Beginning::Impossible),
        };
        ticket.dropped(prepared.dropped.clone());
        let Some(notes) = ticket.begin_attempt(planned, slot, self.unwritten) else {
            ticket.end_attempt(AttemptResult::NotSent, Some("E63"), Some(Observation::Abandoned));
            return Err(Refusal::Overloaded);
        };
        Ok(Beginning::Attempt(Begun { planned, attempt: self.attempt(planned), prepared, notes }))
    }

    /// Begins an attempt beside the one under way; `None`: it cannot be.
    pub(super) fn begin_beside<'p>(&self, planned: &'p PlannedAttempt, slot: Slot, ticket: &mut Ticket) -> Option<Begun<'p>>
    where
        'a: 'p,
    {
        let Preparation::Ready(prepared) = self.asked.bodies.prepare(planned) else { return None };
        let Some(notes) = ticket.begin_rival(planned, slot, self.unwritten) else {
            ticket.end_rival(AttemptResult::NotSent, Some("E63"), Some(Observation::Abandoned));
            return None;
        };
        Some(Begun { planned, attempt: self.attempt(planned), prepared, notes })
    }

    fn attempt<'p>(&self, planned: &'p PlannedAttempt) -> Attempt<'p>
    where
        'a: 'p,
    {
        let Asked { core, head, bodies, .. } = *self.asked;
        let (request_id, events) = (head.request_id, bodies.answers_in_events());
        Attempt { upstream: &*core.upstream, planned, request_id, events, deadline: self.deadline }
    }

    /// What a failure means; it is logged, and what it teaches is remembered.
    pub(super) fn judge(&self, failure: &Failure, planned: &PlannedAttempt) -> Verdict {
        learn(self.asked, planned, failure);
        let verdict = self.verdict(failure, planned);
        warn(self.asked.head, planned, failure, verdict.id());
        verdict
    }

    /// Whether no other account could do better.
    pub(super) fn is_final(&self, failure: &Failure, planned: &PlannedAttempt) -> bool {
        self.verdict(failure, planned).next == Next::Stop
    }

    fn verdict(&self, failure: &Failure, planned: &PlannedAttempt) -> Verdict {
        verdict(failure, planned.channel.timeouts.first_byte_ms, self.asked.core.shared.clock.now())
    }

    /// Whether another attempt may follow: the request is not at fault, time is left, what the first upstream did is no
    /// secret or does not matter, and the budget of further attempts has one.
    fn goes_on(&self, verdict: &Verdict, before: &PlannedAttempt) -> bool {
        let may = match verdict.next {
            Next::Stop => false,
            Next::FreeAttempt => true,
            Next::Attempt => self.may_repeat(),
            Next::UncertainAttempt => before.channel.retry_uncertain && self.may_repeat(),
        };
        may && self.asked.core.shared.clock.instant() < self.deadline
    }

    /// Takes one of the further attempts that the core may make, if one is left.
    pub(super) fn may_repeat(&self) -> bool {
        let core = self.asked.core;
        core.retries.take(core.shared.clock.instant())
    }
}

/// Remembers fields that the upstream calls unsupported.
fn learn(asked: &Asked<'_>, planned: &PlannedAttempt, failure: &Failure) {
    if let Failure::Problem(answer) = failure {
        let Asked { core, head, outline, .. } = *asked;
        let names = &answer.problem.unsupported;
        core.shared.traffic.lessons.refused(planned, names, head.from, &outline.fields, core.shared.clock.now());
    }
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
