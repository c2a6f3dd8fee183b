//! The attempt loop: one account after another, until one answers or nothing is left to try. Three are asked at most; where
//! nothing could be sent, nobody was. Before each attempt but the first the request chooses again, with what it knows by
//! then.

use std::{mem, sync::Arc};

use bytes::Bytes;
use tokio::time::Instant;
use tollgate_core::{AttemptResult, Cause, Exclusion, MAX_ATTEMPTS, MAX_TRIES, Observation, Outcome, Past, PlannedAttempt};
use tollgate_protocol::Reading;

use super::{
    answer::{Answered, Attempt},
    hedge::{Hedge, race},
    retry_after::seconds_until,
    verdict::{Failure, Next, Told, Verdict, verdict},
};
use crate::{
    Core, Head, Refusal, UpstreamFailure,
    admit::admit_attempt,
    route::{Asked, Chosen, NotChosen, Patience},
    ticket::{Notes, Ticket, Unwritten},
    translate::{Preparation, Prepared},
};

/// What a request has behind it, on whatever terms.
#[derive(Default)]
pub(crate) struct Journey {
    past: Past,
    /// What it still waits for.
    pub(crate) patience: Patience,
    /// The attempt that failed last.
    last: Option<Last>,
    /// The least that an upstream asked it to wait, in seconds.
    least_wait: Option<u32>,
    /// Whether it was counted as a request.
    counted: bool,
}

/// Tries accounts until one answers.
///
/// # Errors
/// What the caller is told when none did: the last attempt's failure, or why there was none. Or that nobody is left on
/// these terms, and there are newer ones.
pub(crate) async fn forward(
    asked: &Asked<'_>,
    journey: &mut Journey,
    unwritten: Unwritten,
    ticket: &mut Ticket,
) -> Result<Answered, NotChosen> {
    let Asked { core, head, outline, bodies, .. } = *asked;
    let road = Road { asked, unwritten, deadline: asked.deadline() };
    let mut chosen = match asked.choose(&journey.past, &mut journey.patience, ticket).await {
        Ok(chosen) => chosen,
        Err(none) => return Err(road.none_left(journey, none)),
    };
    if !mem::replace(&mut journey.counted, true) {
        core.shared.retries.request(core.shared.clock.instant());
    }
    let mut hedge = if journey.last.is_none() { Hedge::of(asked) } else { None };
    loop {
        let charged = journey.last.as_ref().is_some_and(Last::is_charged);
        match road.begin(chosen, charged, &mut journey.past, ticket).await? {
            Beginning::OwnCount(body) => return Ok(own_count(body)),
            Beginning::OutOfBudget => return Err(road.told(journey).unwrap_or(Refusal::Overloaded).into()),
            Beginning::PassedOver(planned, why) => {
                if !journey.past.pass_over(&planned, why.clone()) {
                    return Err(road.told(journey).unwrap_or_else(|| road.passed_over(&why)).into());
                }
            }
            Beginning::Attempt(begun) => {
                let ended = match hedge.take() {
                    None => begun.run().await,
                    Some(hedge) => Box::pin(race(&road, begun, &hedge, &mut journey.past, ticket)).await,
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
                let verdict = road.judge(&failure, &planned, &mut journey.past);
                ticket.end_attempt(verdict.result, Some(verdict.id()), verdict.observation);
                if !road.goes_on(journey.failed(core, verdict, planned), ticket) {
                    return Err(road.told(journey).unwrap_or(Refusal::Overloaded).into());
                }
            }
        }
        chosen = match Box::pin(asked.choose(&journey.past, &mut journey.patience, ticket)).await {
            Ok(chosen) => chosen,
            Err(none) => return Err(road.none_left(journey, none)),
        };
    }
}

impl Journey {
    /// An attempt failed.
    fn failed(&mut self, core: &Core, verdict: Verdict, planned: Arc<PlannedAttempt>) -> &Last {
        let wait = verdict.told.wait(core.shared.clock.now());
        self.least_wait = [self.least_wait, wait].into_iter().flatten().min();
        self.last.insert(Last { verdict, planned })
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
        if verdict.result == AttemptResult::NotSent {
            past.not_sent();
        }
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

    /// Whether another attempt may follow: the request is not at fault, attempts and time are left, what the first upstream
    /// did is no secret or does not matter, and the budget of further attempts has one.
    fn goes_on(&self, last: &Last, ticket: &Ticket) -> bool {
        let core = self.asked.core;
        let now = core.shared.clock.instant();
        let may = match last.verdict.next {
            Next::Stop => false,
            Next::FreeAttempt => true,
            Next::Attempt => core.shared.retries.has(now),
            Next::UncertainAttempt => last.planned.channel.retry_uncertain && core.shared.retries.has(now),
        };
        may && ticket.sent_attempts() < MAX_ATTEMPTS && ticket.attempts() < MAX_TRIES && now < self.deadline
    }

    /// Takes one of the further attempts that the core may make, if one is left.
    fn take_repeat(&self) -> bool {
        let core = self.asked.core;
        core.shared.retries.take(core.shared.clock.instant())
    }

    fn give_repeat_back(&self) {
        let core = self.asked.core;
        core.shared.retries.give_back(core.shared.clock.instant());
    }

    /// What the caller is told of the attempt that failed last, if there was one.
    fn told(&self, journey: &mut Journey) -> Option<Refusal> {
        let Last { verdict, .. } = journey.last.take()?;
        Some(refusal(verdict.told, self.asked.bodies.model(), journey.least_wait))
    }

    /// What it means that no account is left.
    fn none_left(&self, journey: &mut Journey, none: NotChosen) -> NotChosen {
        match none {
            NotChosen::Refused(refusal) => self.told(journey).unwrap_or(refusal).into(),
            NotChosen::Outdated => NotChosen::Outdated,
        }
    }

    /// What the caller is told when channels were passed over time and again.
    fn passed_over(&self, why: &Exclusion) -> Refusal {
        let retry_after = why.until().map(|until| seconds_until(until, self.asked.core.shared.clock.now()).clamp(1, 60));
        let cause = why.cause().unwrap_or(Cause::NoneConfigured);
        Refusal::NoRoute { model: self.asked.bodies.model().to_owned(), cause, too_dear: false, retry_after, price: None }
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

/// `least_wait`: of all upstreams that were asked, seconds until the first one is to be asked again.
fn refusal(told: Told, model: &str, least_wait: Option<u32>) -> Refusal {
    let model = model.to_owned();
    match told {
        Told::Failure(UpstreamFailure::RateLimited { retry_after: Some(_) }) => {
            Refusal::Upstream { model, failure: UpstreamFailure::RateLimited { retry_after: least_wait } }
        }
        Told::Failure(UpstreamFailure::Overloaded { retry_after: Some(_) }) => {
            Refusal::Upstream { model, failure: UpstreamFailure::Overloaded { retry_after: least_wait } }
        }
        Told::Failure(failure) => Refusal::Upstream { model, failure },
        Told::QuotaSpent { until } => {
            let retry_after = until.and(least_wait).map(|wait| wait.clamp(1, 60));
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
