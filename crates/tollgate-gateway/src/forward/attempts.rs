//! The attempt loop: one account after another, three at most, until one answers or nothing is left to try. Before each
//! attempt but the first the request chooses again, with what it knows by then.

use std::sync::Arc;

use bytes::Bytes;
use tokio::time::Instant;
use tollgate_core::{AttemptResult, Cause, Exclusion, MAX_ATTEMPTS, Observation, Outcome, Past, PlannedAttempt, Timestamp};
use tollgate_protocol::Reading;

use super::{
    answer::{Answered, Attempt},
    hedge::{Hedge, race},
    retry_after::seconds_until,
    verdict::{Failure, Next, Told, Verdict, verdict},
};
use crate::{
    Head, Refusal, UpstreamFailure,
    admit::admit_attempt,
    route::{Asked, Chosen},
    ticket::{Notes, Ticket, Unwritten},
    translate::{Preparation, Prepared},
};

/// Tries accounts until one answers.
///
/// # Errors
/// What the caller is told when none did: the last attempt's failure, or why there was none.
pub(crate) async fn forward(
    asked: &Asked<'_>,
    mut chosen: Chosen,
    unwritten: Unwritten,
    ticket: &mut Ticket,
) -> Result<Answered, Refusal> {
    let Asked { core, head, outline, bodies, .. } = *asked;
    let road = Road { asked, unwritten, deadline: asked.deadline() };
    core.retries.request(core.shared.clock.instant());
    let mut hedge = Hedge::of(asked);
    let mut past = Past::default();
    let mut last: Option<Last> = None;
    loop {
        let charged = last.as_ref().is_some_and(Last::is_charged);
        match road.begin(chosen, charged, &mut past, ticket).await? {
            Beginning::OwnCount(body) => return Ok(own_count(body)),
            Beginning::OutOfBudget => return Err(road.told(last).unwrap_or(Refusal::Overloaded)),
            Beginning::PassedOver(planned, why) => {
                if !past.pass_over(&planned, why.clone()) {
                    return Err(road.told(last).unwrap_or_else(|| road.passed_over(&why)));
                }
            }
            Beginning::Attempt(begun) => {
                let ended = match hedge.take() {
                    None => begun.run().await,
                    Some(hedge) => Box::pin(race(&road, begun, &hedge, &mut past, ticket)).await,
                };
                let (failure, planned) = match ended {
                    Ok((answered, planned)) => {
                        let lessons = &core.shared.traffic.lessons;
                        lessons.answered(&planned, head.from, &outline.fields, core.shared.clock.now());
                        return Ok(answered);
                    }
                    Err(failed) => failed,
                };
                if let Some(body) = bodies.count_instead(&failure) {
                    ticket.end_attempt(AttemptResult::Refused, Some("E52"), Some(Observation::RequestRefused));
                    return Ok(own_count(body));
                }
                let verdict = road.judge(&failure, &planned, &mut past);
                ticket.end_attempt(verdict.result, Some(verdict.id()), verdict.observation);
                let failed = Last { verdict, planned };
                if ticket.attempts() >= MAX_ATTEMPTS || !road.goes_on(&failed) {
                    return Err(road.refusal(failed.verdict.told));
                }
                last = Some(failed);
            }
        }
        chosen = match Box::pin(asked.choose(&past, ticket)).await {
            Ok(chosen) => chosen,
            Err(refusal) => return Err(road.told(last).unwrap_or(refusal)),
        };
    }
}

/// Our own count of tokens as the answer.
fn own_count(body: Bytes) -> Answered {
    Answered::Whole { body, reading: Reading::default(), events: false }
}

/// The attempt that failed last.
struct Last {
    verdict: Verdict,
    planned: Arc<PlannedAttempt>,
}

impl Last {
    /// Whether an attempt after it is paid for out of the budget of further attempts: not where nothing had been sent.
    fn is_charged(&self) -> bool {
        self.verdict.next != Next::FreeAttempt
    }
}

/// How one request is tried.
pub(super) struct Road<'a> {
    pub(super) asked: &'a Asked<'a>,
    unwritten: Unwritten,
    /// When it must have an answer.
    deadline: Instant,
}

/// What begins.
enum Beginning<'a> {
    Attempt(Begun<'a>),
    /// Nothing: the upstream cannot count tokens, and this is our own count.
    OwnCount(Bytes),
    /// Nothing: the channel does not serve this request, for this reason.
    PassedOver(Arc<PlannedAttempt>, Exclusion),
    /// Nothing: others have just taken what was left of the budget of further attempts.
    OutOfBudget,
}

/// An attempt that has begun: it is in the journal and may be sent.
pub(super) struct Begun<'a> {
    road: &'a Road<'a>,
    pub(super) planned: Arc<PlannedAttempt>,
    prepared: Box<Prepared>,
    notes: Arc<Notes>,
}

/// How an attempt ended, and which one it was.
pub(super) type Ended = Result<(Answered, Arc<PlannedAttempt>), (Failure, Arc<PlannedAttempt>)>;

impl Begun<'_> {
    /// Entries of `x-tollgate-dropped`.
    pub(super) fn dropped(&self) -> Vec<String> {
        self.prepared.dropped.clone()
    }

    pub(super) async fn run(self) -> Ended {
        let Self { road, planned, prepared, notes } = self;
        let Asked { core, head, bodies, .. } = *road.asked;
        let attempt = Attempt {
            upstream: &*core.upstream,
            planned: &planned,
            request_id: head.request_id,
            events: bodies.answers_in_events(),
            deadline: road.deadline,
            total: core.shared.settings.upstream.total,
        };
        match attempt.run(*prepared, &notes).await {
            Ok(answered) => Ok((answered, planned)),
            Err(failure) => Err((failure, planned)),
        }
    }
}

impl<'a> Road<'a> {
    /// Sets the cost of an attempt aside on its channel's budgets; why it is passed over where they do not suffice.
    pub(super) async fn unaffordable(&self, planned: &PlannedAttempt, ticket: &mut Ticket) -> Result<Option<Exclusion>, Refusal> {
        admit_attempt(self.asked, planned, ticket).await
    }

    /// Begins an attempt, if its channel's budgets suffice and its protocol expresses the request. Only then is it taken
    /// out of the budget of further attempts, where it is `charged`.
    async fn begin(
        &'a self,
        chosen: Chosen,
        charged: bool,
        past: &mut Past,
        ticket: &mut Ticket,
    ) -> Result<Beginning<'a>, Refusal> {
        let Chosen { planned, slot } = chosen;
        if let Some(why) = self.unaffordable(&planned, ticket).await? {
            return Ok(Beginning::PassedOver(planned, why));
        }
        let prepared = match self.asked.bodies.prepare(&planned) {
            Preparation::Ready(prepared) => prepared,
            Preparation::OwnCount { body, dropped } => {
                ticket.dropped(dropped);
                return Ok(Beginning::OwnCount(body));
            }
            Preparation::Impossible => {
                let fields = self.asked.bodies.untranslatable(&planned.channel, planned.serves());
                return Ok(Beginning::PassedOver(planned, Exclusion::CannotTranslate(fields)));
            }
        };
        if charged && !self.take_repeat() {
            return Ok(Beginning::OutOfBudget);
        }
        ticket.dropped(prepared.dropped.clone());
        past.tried(&planned);
        let Some(notes) = ticket.begin_attempt(&planned, slot, self.unwritten) else {
            ticket.end_attempt(AttemptResult::NotSent, Some("E63"), Some(Observation::Abandoned));
            if charged {
                self.give_repeat_back();
            }
            return Err(Refusal::Overloaded);
        };
        Ok(Beginning::Attempt(Begun { road: self, planned, prepared, notes }))
    }

    /// Begins an attempt beside the one under way; `None`: it cannot be.
    pub(super) fn begin_beside(&'a self, chosen: Chosen, past: &mut Past, ticket: &mut Ticket) -> Option<Begun<'a>> {
        let Chosen { planned, slot } = chosen;
        let Preparation::Ready(prepared) = self.asked.bodies.prepare(&planned) else { return None };
        if !self.take_repeat() {
            return None;
        }
        past.tried(&planned);
        let Some(notes) = ticket.begin_rival(&planned, slot, self.unwritten) else {
            ticket.end_rival(AttemptResult::NotSent, Some("E63"), Some(Observation::Abandoned));
            self.give_repeat_back();
            return None;
        };
        Some(Begun { road: self, planned, prepared, notes })
    }

    /// What a failure means; it is logged, and what it teaches is remembered.
    pub(super) fn judge(&self, failure: &Failure, planned: &PlannedAttempt, past: &mut Past) -> Verdict {
        learn(self.asked, planned, failure);
        if failure.is_of_the_address() {
            past.unreachable(planned);
        }
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
    fn goes_on(&self, last: &Last) -> bool {
        let core = self.asked.core;
        let now = core.shared.clock.instant();
        let may = match last.verdict.next {
            Next::Stop => false,
            Next::FreeAttempt => true,
            Next::Attempt => core.retries.has(now),
            Next::UncertainAttempt => last.planned.channel.retry_uncertain && core.retries.has(now),
        };
        may && now < self.deadline
    }

    /// Takes one of the further attempts that the core may make, if one is left.
    fn take_repeat(&self) -> bool {
        let core = self.asked.core;
        core.retries.take(core.shared.clock.instant())
    }

    fn give_repeat_back(&self) {
        let core = self.asked.core;
        core.retries.give_back(core.shared.clock.instant());
    }

    /// What the caller is told of the attempt that failed last, if there was one.
    fn told(&self, last: Option<Last>) -> Option<Refusal> {
        last.map(|last| self.refusal(last.verdict.told))
    }

    /// What the caller is told when channels were passed over time and again.
    fn passed_over(&self, why: &Exclusion) -> Refusal {
        let retry_after = why.until().map(|until| seconds_until(until, self.asked.core.shared.clock.now()).clamp(1, 60));
        let cause = why.cause().unwrap_or(Cause::NoneConfigured);
        Refusal::NoRoute { model: self.asked.bodies.model().to_owned(), cause, too_dear: false, retry_after, price: None }
    }

    fn refusal(&self, told: Told) -> Refusal {
        refusal(told, self.asked.bodies.model(), self.asked.core.shared.clock.now())
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

fn refusal(told: Told, model: &str, now: Timestamp) -> Refusal {
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
        Failure::NoAnswer(_) | Failure::TimedOut { .. } | Failure::OutOfTime { .. } | Failure::BadAnswer(_) => None,
    };
    let class = match failure {
        Failure::NoAnswer(fault) => fault.to_string(),
        Failure::TimedOut { .. } => "timed out".to_owned(),
        Failure::OutOfTime { .. } => "the request's time is up".to_owned(),
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
