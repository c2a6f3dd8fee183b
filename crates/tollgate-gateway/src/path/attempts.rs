//! The attempt loop: one account after another, until one answers or nothing is left to try. Three are asked at most; where
//! nothing could be sent, nobody was. Before each attempt but the first the request chooses again, with what it knows by
//! then.

use std::{mem, sync::Arc};

use bytes::Bytes;
use tokio::time::Instant;
use tollgate_core::{
    AttemptHistory, AttemptResult, Exclusion, MAX_ATTEMPTS, MAX_TRIES, NoRouteCause, Observation, Outcome, PlannedAttempt,
};
use tollgate_protocol::ReplySummary;

use super::{
    attempt::{Attempt, AttemptAnswer},
    hedge::{Hedge, race},
    judge::{Failure, Next, ReportedFailure, Verdict, verdict},
};
use crate::upstream::retry_after::seconds_until;
use crate::{
    path::{
        Core,
        admit::admit_attempt,
        select::{RouteContext, Selection, SelectionError, WaitBudget},
        types::{
            request_bodies::{Preparation, Prepared},
            usage_guard::{AttemptProgress, JournalFailurePolicy, UsageGuard},
        },
    },
    refusal::{Refusal, UpstreamFailure},
    request::Head,
};

/// What a request has behind it, on whatever terms.
#[derive(Default)]
pub(crate) struct RetryState {
    past: AttemptHistory,
    /// What it still waits for.
    pub(crate) wait_budget: WaitBudget,
    /// The attempt that failed last.
    last: Option<LastAttempt>,
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
    asked: &RouteContext<'_>,
    retry_state: &mut RetryState,
    unwritten: JournalFailurePolicy,
    guard: &mut UsageGuard,
) -> Result<AttemptAnswer, SelectionError> {
    let RouteContext { core, head, summary, bodies, .. } = *asked;
    let context = AttemptContext { asked, unwritten, deadline: asked.deadline() };
    let mut chosen = match asked.select_account(&retry_state.past, &mut retry_state.wait_budget, guard).await {
        Ok(chosen) => chosen,
        Err(none) => return Err(context.on_exhausted(retry_state, none)),
    };
    if !mem::replace(&mut retry_state.counted, true) {
        core.shared.retries.request(core.shared.clock.instant());
    }
    let mut hedge = if retry_state.last.is_none() { Hedge::of(asked) } else { None };
    loop {
        let charged = retry_state.last.as_ref().is_some_and(LastAttempt::is_charged);
        match context.begin(chosen, charged, &mut retry_state.past, guard).await? {
            AttemptSetup::OwnCount(body) => return Ok(own_count(body)),
            AttemptSetup::OutOfBudget => return Err(context.last_refusal(retry_state).unwrap_or(Refusal::Overloaded).into()),
            AttemptSetup::PassedOver(planned, why) => {
                if !retry_state.past.skip_channel(&planned, why.clone()) {
                    return Err(context.last_refusal(retry_state).unwrap_or_else(|| context.passed_over(&why)).into());
                }
            }
            AttemptSetup::Attempt(begun) => {
                let ended = match hedge.take() {
                    None => begun.run().await,
                    Some(hedge) => Box::pin(race(&context, begun, &hedge, &mut retry_state.past, guard)).await,
                };
                let (failure, planned) = match ended {
                    Ok((answered, planned)) => {
                        let learned_parameters = &core.shared.traffic.learned_parameters;
                        learned_parameters.answered(&planned, head.from, &summary.fields, core.shared.clock.now());
                        return Ok(answered);
                    }
                    Err(failed) => failed,
                };
                if let Some(body) = bodies.count_instead(&failure) {
                    guard.end_attempt(AttemptResult::Refused, Some("E52"), Some(Observation::RequestRefused));
                    return Ok(own_count(body));
                }
                let verdict = context.judge(&failure, &planned, &mut retry_state.past);
                guard.end_attempt(verdict.result, Some(verdict.id()), verdict.observation);
                if !context.may_retry(retry_state.failed(core, verdict, planned), guard) {
                    return Err(context.last_refusal(retry_state).unwrap_or(Refusal::Overloaded).into());
                }
            }
        }
        chosen = match Box::pin(asked.select_account(&retry_state.past, &mut retry_state.wait_budget, guard)).await {
            Ok(chosen) => chosen,
            Err(none) => return Err(context.on_exhausted(retry_state, none)),
        };
    }
}

impl RetryState {
    /// An attempt failed.
    fn failed(&mut self, core: &Core, verdict: Verdict, planned: Arc<PlannedAttempt>) -> &LastAttempt {
        let wait = verdict.told.wait(core.shared.clock.now());
        self.least_wait = [self.least_wait, wait].into_iter().flatten().min();
        self.last.insert(LastAttempt { verdict, planned })
    }
}

/// Our own count of tokens as the answer.
fn own_count(body: Bytes) -> AttemptAnswer {
    AttemptAnswer::Whole { body, reading: ReplySummary::default(), events: false }
}

/// The attempt that failed last.
struct LastAttempt {
    verdict: Verdict,
    planned: Arc<PlannedAttempt>,
}

impl LastAttempt {
    /// Whether an attempt after it is paid for out of the budget of further attempts: not where nothing had been sent.
    fn is_charged(&self) -> bool {
        self.verdict.next != Next::FreeAttempt
    }
}

/// How one request is tried.
pub(super) struct AttemptContext<'a> {
    pub(super) asked: &'a RouteContext<'a>,
    unwritten: JournalFailurePolicy,
    /// When it must have an answer.
    deadline: Instant,
}

/// What begins.
enum AttemptSetup<'a> {
    Attempt(RunningAttempt<'a>),
    /// Nothing: the upstream cannot count tokens, and this is our own count.
    OwnCount(Bytes),
    /// Nothing: the channel does not serve this request, for this reason.
    PassedOver(Arc<PlannedAttempt>, Exclusion),
    /// Nothing: others have just taken what was left of the budget of further attempts.
    OutOfBudget,
}

/// An attempt that has begun: it is in the journal and may be sent.
pub(super) struct RunningAttempt<'a> {
    context: &'a AttemptContext<'a>,
    pub(super) planned: Arc<PlannedAttempt>,
    prepared: Box<Prepared>,
    notes: Arc<AttemptProgress>,
}

/// How an attempt ended, and which one it was.
pub(super) type AttemptOutcome = Result<(AttemptAnswer, Arc<PlannedAttempt>), (Failure, Arc<PlannedAttempt>)>;

impl RunningAttempt<'_> {
    /// Entries of `x-tollgate-dropped`.
    pub(super) fn dropped(&self) -> Vec<String> {
        self.prepared.dropped.clone()
    }

    pub(super) async fn run(self) -> AttemptOutcome {
        let Self { context, planned, prepared, notes } = self;
        let RouteContext { core, head, bodies, .. } = *context.asked;
        let attempt = Attempt {
            upstream: &*core.upstream,
            planned: &planned,
            request_id: head.request_id,
            events: bodies.answers_in_events(),
            deadline: context.deadline,
            total: core.shared.settings.upstream.total,
        };
        match attempt.run(*prepared, &notes).await {
            Ok(answered) => Ok((answered, planned)),
            Err(failure) => Err((failure, planned)),
        }
    }
}

impl<'a> AttemptContext<'a> {
    /// Sets the cost of an attempt aside on its channel's budgets; why it is passed over where they do not suffice.
    pub(super) async fn unaffordable(
        &self,
        planned: &PlannedAttempt,
        guard: &mut UsageGuard,
    ) -> Result<Option<Exclusion>, Refusal> {
        admit_attempt(self.asked, planned, guard).await
    }

    /// Begins an attempt, if its channel's budgets suffice and its protocol expresses the request. Only then is it taken
    /// out of the budget of further attempts, where it is `charged`.
    async fn begin(
        &'a self,
        chosen: Selection,
        charged: bool,
        past: &mut AttemptHistory,
        guard: &mut UsageGuard,
    ) -> Result<AttemptSetup<'a>, Refusal> {
        let Selection { planned, permit } = chosen;
        if let Some(why) = self.unaffordable(&planned, guard).await? {
            return Ok(AttemptSetup::PassedOver(planned, why));
        }
        let prepared = match self.asked.bodies.prepare(&planned) {
            Preparation::Ready(prepared) => prepared,
            Preparation::OwnCount { body, dropped } => {
                guard.dropped(dropped);
                return Ok(AttemptSetup::OwnCount(body));
            }
            Preparation::Impossible => {
                let fields = self.asked.bodies.untranslatable(&planned.channel, planned.mapping());
                return Ok(AttemptSetup::PassedOver(planned, Exclusion::CannotTranslate(fields)));
            }
        };
        if charged && !self.take_retry() {
            return Ok(AttemptSetup::OutOfBudget);
        }
        guard.dropped(prepared.dropped.clone());
        past.record_attempt(&planned);
        let Some(notes) = guard.begin_attempt(&planned, permit, self.unwritten) else {
            guard.end_attempt(AttemptResult::NotSent, Some("E63"), Some(Observation::Abandoned));
            if charged {
                self.return_retry();
            }
            return Err(Refusal::Overloaded);
        };
        Ok(AttemptSetup::Attempt(RunningAttempt { context: self, planned, prepared, notes }))
    }

    /// Begins an attempt beside the one under way; `None`: it cannot be.
    pub(super) fn begin_hedged(
        &'a self,
        chosen: Selection,
        past: &mut AttemptHistory,
        guard: &mut UsageGuard,
    ) -> Option<RunningAttempt<'a>> {
        let Selection { planned, permit } = chosen;
        let Preparation::Ready(prepared) = self.asked.bodies.prepare(&planned) else { return None };
        if !self.take_retry() {
            return None;
        }
        past.record_attempt(&planned);
        let Some(notes) = guard.begin_hedge(&planned, permit, self.unwritten) else {
            guard.end_hedge(AttemptResult::NotSent, Some("E63"), Some(Observation::Abandoned));
            self.return_retry();
            return None;
        };
        Some(RunningAttempt { context: self, planned, prepared, notes })
    }

    /// What a failure means; it is logged, and what it teaches is remembered.
    pub(super) fn judge(&self, failure: &Failure, planned: &PlannedAttempt, past: &mut AttemptHistory) -> Verdict {
        learn(self.asked, planned, failure);
        if failure.is_of_the_address() {
            past.record_unreachable(planned);
        }
        let verdict = self.verdict(failure, planned);
        if verdict.result == AttemptResult::NotSent {
            past.record_unsent();
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
    fn may_retry(&self, last: &LastAttempt, guard: &UsageGuard) -> bool {
        let core = self.asked.core;
        let now = core.shared.clock.instant();
        let may = match last.verdict.next {
            Next::Stop => false,
            Next::FreeAttempt => true,
            Next::Attempt => core.shared.retries.has(now),
            Next::UncertainAttempt => last.planned.channel.retry_uncertain && core.shared.retries.has(now),
        };
        may && guard.sent_attempts() < MAX_ATTEMPTS && guard.attempts() < MAX_TRIES && now < self.deadline
    }

    /// Takes one of the further attempts that the core may make, if one is left.
    fn take_retry(&self) -> bool {
        let core = self.asked.core;
        core.shared.retries.take(core.shared.clock.instant())
    }

    fn return_retry(&self) {
        let core = self.asked.core;
        core.shared.retries.give_back(core.shared.clock.instant());
    }

    /// What the caller is told of the attempt that failed last, if there was one.
    fn last_refusal(&self, retry_state: &mut RetryState) -> Option<Refusal> {
        let LastAttempt { verdict, .. } = retry_state.last.take()?;
        Some(refusal(verdict.told, self.asked.bodies.model(), retry_state.least_wait))
    }

    /// What it means that no account is left.
    fn on_exhausted(&self, retry_state: &mut RetryState, none: SelectionError) -> SelectionError {
        match none {
            SelectionError::Refused(refusal) => self.last_refusal(retry_state).unwrap_or(refusal).into(),
            SelectionError::Outdated => SelectionError::Outdated,
        }
    }

    /// What the caller is told when channels were passed over time and again.
    fn passed_over(&self, why: &Exclusion) -> Refusal {
        let retry_after = why.until().map(|until| seconds_until(until, self.asked.core.shared.clock.now()).clamp(1, 60));
        let cause = why.cause().unwrap_or(NoRouteCause::NoneConfigured);
        Refusal::NoRoute { model: self.asked.bodies.model().to_owned(), cause, too_dear: false, retry_after, price: None }
    }
}

/// Remembers fields that the upstream calls unsupported.
fn learn(asked: &RouteContext<'_>, planned: &PlannedAttempt, failure: &Failure) {
    if let Failure::Problem(answer) = failure {
        let RouteContext { core, head, summary, .. } = *asked;
        let names = &answer.problem.unsupported;
        core.shared.traffic.learned_parameters.refused(planned, names, head.from, &summary.fields, core.shared.clock.now());
    }
}

/// `least_wait`: of all upstreams that were asked, seconds until the first one is to be asked again.
fn refusal(told: ReportedFailure, model: &str, least_wait: Option<u32>) -> Refusal {
    let model = model.to_owned();
    match told {
        ReportedFailure::Failure(UpstreamFailure::RateLimited { retry_after: Some(_) }) => {
            Refusal::Upstream { model, failure: UpstreamFailure::RateLimited { retry_after: least_wait } }
        }
        ReportedFailure::Failure(UpstreamFailure::Overloaded { retry_after: Some(_) }) => {
            Refusal::Upstream { model, failure: UpstreamFailure::Overloaded { retry_after: least_wait } }
        }
        ReportedFailure::Failure(failure) => Refusal::Upstream { model, failure },
        ReportedFailure::QuotaSpent { until } => {
            let retry_after = until.and(least_wait).map(|wait| wait.clamp(1, 60));
            Refusal::NoRoute { model, cause: NoRouteCause::UpstreamQuota, too_dear: false, retry_after, price: None }
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
