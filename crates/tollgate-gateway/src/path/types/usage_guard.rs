//! Stage 9 of 9: what happened to a request, handed in exactly once. In: what every other stage learnt; out: a usage
//! record in the journal and on its way to the database, a log event, metrics.
//!
//! A guard is drawn before anything else. Once the key is known it leaves a record however it ends: handed in with
//! an ending, or dropped because nobody waits for the answer any more.

mod open_attempt;
mod request_log;

use std::sync::Arc;

use http::HeaderValue;
use tokio::time::Instant;
use tollgate_core::{
    AttemptResult, DeliveredContent, InputCount, Key, LatencySample, NanoUsd, Observation, Offer, Outcome, PlannedAttempt,
    Provider, RequestFacts, Revision, StreamProgress, TraceEntry, count_input, settle, settle_attempt,
};
use tollgate_protocol::{Method, ReplySummary, RequestSummary};
use tollgate_store::SyncWaiter;

pub(crate) use open_attempt::AttemptProgress;
use open_attempt::{OpenAttempt, begin_of, micros_between};

use crate::{
    path::types::{
        dropped::listed,
        trace::{ended, summary},
    },
    refusal::RateFigures,
    request::Head,
    state::{account_limiter::Permit, hedge_budget::HedgeReservation, usage_queue::QueuePermit, usage_recorder::UsageRecorder},
};

/// How a request ended.
#[derive(Clone, Debug)]
pub(crate) struct Ending {
    /// HTTP status the caller got; 499 when he left before one was sent.
    pub status: u16,
    /// How.
    pub outcome: Outcome,
    /// Error id or other word.
    pub reason: Option<String>,
    /// The message the caller saw.
    pub detail: Option<String>,
}

impl Ending {
    /// A whole answer.
    pub(crate) const fn completed() -> Self {
        Self { status: 200, outcome: Outcome::Completed, reason: None, detail: None }
    }
}

/// Whether a request may go on when nothing can be written down about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum JournalFailurePolicy {
    /// Its money is bounded: what cannot be recorded cannot be held to a bound.
    Refuse,
    /// It goes on, counted and logged.
    GoOn,
}

/// What is known of a request so far.
#[derive(Debug)]
pub(crate) struct UsageGuard {
    recorder: Arc<UsageRecorder>,
    started: Instant,
    /// Everything but attempts under way; `None` before the door and after handing in.
    facts: Option<Box<RequestFacts>>,
    place: Option<QueuePermit>,
    open: Option<Box<OpenAttempt>>,
    /// A second attempt beside it, where the first one is late.
    hedge_attempt: Option<Box<OpenAttempt>>,
    /// What the one of the two that loses may cost.
    hedge: Option<HedgeReservation>,
    /// Whether the caller was sent a status.
    answered: bool,
    /// Whether room was set aside for it, perhaps.
    has_reservation: bool,
    /// How much of its rates is used, where there are any.
    rates: RateFigures,
}

impl UsageGuard {
    /// A guard for a stranger: nothing is recorded yet.
    pub(crate) fn begin(recorder: &Arc<UsageRecorder>, head: &Head) -> Self {
        Self {
            recorder: Arc::clone(recorder),
            started: head.started,
            facts: None,
            place: None,
            open: None,
            hedge_attempt: None,
            hedge: None,
            answered: false,
            has_reservation: false,
            rates: RateFigures::default(),
        }
    }

    /// The door: from now on a record is left.
    pub(crate) fn authenticated(&mut self, key: &Arc<Key>, head: &Head, method: Method) {
        self.place = self.recorder.queue.reserve();
        self.facts = Some(Box::new(RequestFacts {
            id: head.request_id,
            at: head.arrived,
            key: Arc::clone(key),
            group: None,
            protocol_in: head.from,
            method,
            model: None,
            stream: false,
            status: 499,
            outcome: Outcome::CallerLeft,
            reason: None,
            detail: None,
            sale: None,
            price_version: Revision::default(),
            input: InputCount::default(),
            delivered: DeliveredContent::default(),
            attempts: Vec::new(),
            ttft_us: None,
            duration_us: 0,
            address: Some(head.peer.to_string()),
            client_request_id: head.client_request_id.clone(),
            dropped: Vec::new(),
            trace: Vec::new(),
        }));
    }

    /// Whether the key is known.
    pub(crate) const fn is_known(&self) -> bool {
        self.facts.is_some()
    }

    /// What the body says.
    pub(crate) fn record_summary(&mut self, summary: &RequestSummary) {
        if let Some(facts) = &mut self.facts {
            facts.model = Some(summary.model.clone());
            facts.stream = summary.stream;
            facts.input = count_input(summary);
        }
    }

    /// Group and prices, frozen.
    pub(crate) fn set_offer(&mut self, offer: &Offer) {
        if let Some(facts) = &mut self.facts {
            facts.group = Some(Arc::clone(&offer.group));
            facts.sale.clone_from(&offer.sale);
            facts.price_version = offer.revision;
        }
    }

    /// Room is being set aside: it goes back when the guard is handed in.
    pub(crate) const fn mark_reserved(&mut self) {
        self.has_reservation = true;
    }

    /// The request may go on, with so much of its rates used.
    pub(crate) const fn admitted(&mut self, rates: RateFigures) {
        self.rates = rates;
    }

    /// How much of its rates is used.
    pub(crate) const fn rates(&self) -> RateFigures {
        self.rates
    }

    /// Who was considered, and who stands behind those that were tried already.
    pub(crate) fn set_trace(&mut self, trace: Vec<TraceEntry>) {
        if let Some(facts) = &mut self.facts {
            facts.trace = facts.attempts.iter().map(|attempt| attempt.planned.trace()).chain(trace).collect();
        }
    }

    /// Entries of `x-tollgate-dropped`, as far as the attempt to come is concerned.
    pub(crate) fn dropped(&mut self, dropped: Vec<String>) {
        if let Some(facts) = &mut self.facts {
            facts.dropped = listed(dropped);
        }
    }

    /// Those entries.
    pub(crate) fn dropped_entries(&self) -> &[String] {
        self.facts.as_ref().map_or(&[], |facts| &facts.dropped)
    }

    /// What the caller may see of how his accounts were chosen, where his group lets him.
    pub(crate) fn trace(&self) -> Option<HeaderValue> {
        let facts = self.facts.as_deref()?;
        facts.group.as_ref()?.trace.then(|| {
            let ended = facts.attempts.iter().map(ended);
            // The one under way has an answer, or nobody would be told anything.
            summary(&facts.trace, ended.chain(self.open.iter().map(|_| None)))
        })
    }

    /// Attempts that have begun.
    pub(crate) fn attempts(&self) -> usize {
        self.facts.as_ref().map_or(0, |facts| facts.attempts.len())
            + usize::from(self.open.is_some())
            + usize::from(self.hedge_attempt.is_some())
    }

    /// Attempts that reached an upstream, as far as is known: nothing was sent of the others.
    pub(crate) fn sent_attempts(&self) -> usize {
        let unsent =
            |facts: &RequestFacts| facts.attempts.iter().filter(|attempt| attempt.result == AttemptResult::NotSent).count();
        self.attempts() - self.facts.as_deref().map_or(0, unsent)
    }

    /// An attempt begins; its begin is in the journal when this returns. `None`: it could not be written, and must not go
    /// on.
    pub(crate) fn begin_attempt(
        &mut self,
        planned: &PlannedAttempt,
        permit: Permit,
        unwritten: JournalFailurePolicy,
    ) -> Option<Arc<AttemptProgress>> {
        self.open = Some(self.open_attempt(planned, permit));
        self.write_begin(self.open.as_deref()?, unwritten)
    }

    /// So much is set aside for the one of two attempts that loses.
    pub(crate) fn hold_hedge_budget(&mut self, hold: HedgeReservation) {
        self.hedge = Some(hold);
    }

    /// A second attempt begins beside the one under way.
    pub(crate) fn begin_hedge(
        &mut self,
        planned: &PlannedAttempt,
        permit: Permit,
        unwritten: JournalFailurePolicy,
    ) -> Option<Arc<AttemptProgress>> {
        self.hedge_attempt = Some(self.open_attempt(planned, permit));
        self.write_begin(self.hedge_attempt.as_deref()?, unwritten)
    }

    fn open_attempt(&self, planned: &PlannedAttempt, permit: Permit) -> Box<OpenAttempt> {
        let clock = &self.recorder.shared.clock;
        if planned.channel.provider != Provider::Echo {
            self.recorder.health.begin(planned.account.id, clock.now());
        }
        Box::new(OpenAttempt::begin(planned, permit, clock))
    }

    /// Its begin is in the journal when this returns its notes.
    fn write_begin(&self, attempt: &OpenAttempt, unwritten: JournalFailurePolicy) -> Option<Arc<AttemptProgress>> {
        let notes = Arc::clone(attempt.notes());
        let Some(facts) = self.facts.as_deref() else { return Some(notes) };
        // Of two side by side the one that is written last counts as the one under way, the other as given up.
        let others = [&self.open, &self.hedge_attempt].into_iter().flatten().filter(|other| !other.is_on(attempt.account()));
        let beside = others.map(|other| other.facts()).collect::<Vec<_>>();
        let Some(begin) = begin_of(facts, attempt, &beside) else { return Some(notes) };
        if let Err(fault) = self.recorder.journal.begin(&begin) {
            tracing::error!(request.id = %begin.id, %fault, "the journal did not take the beginning of an attempt");
            return (unwritten == JournalFailurePolicy::GoOn).then_some(notes);
        }
        Some(notes)
    }

    /// The second attempt takes the first one's place, and the first one its.
    pub(crate) const fn promote_hedge(&mut self) {
        std::mem::swap(&mut self.open, &mut self.hedge_attempt);
    }

    /// The attempt beside the one under way ended: what it cost is what hedging cost.
    pub(crate) fn end_hedge(&mut self, result: AttemptResult, error: Option<&str>, observation: Option<Observation>) {
        let Some(hedge_attempt) = self.hedge_attempt.take() else { return };
        let cost = self.close(hedge_attempt, true, result, error, observation);
        if let Some(hold) = self.hedge.take() {
            hold.settle(cost);
        }
        if let Some(open) = &self.open {
            // So that a kill finds the right one under way. What is not written costs no more than the account's name.
            let _ = self.write_begin(open, JournalFailurePolicy::GoOn);
        }
    }

    /// What has been read of the attempt's answer.
    pub(crate) fn read(&mut self, reading: ReplySummary) {
        if let Some(open) = &self.open {
            open.notes().read(reading);
        }
    }

    /// The attempt ended.
    pub(crate) fn end_attempt(&mut self, result: AttemptResult, error: Option<&str>, observation: Option<Observation>) {
        if let Some(open) = self.open.take() {
            self.close(open, false, result, error, observation);
        }
    }

    /// Returns what it cost, as far as known and asked for.
    fn close(
        &mut self,
        open: Box<OpenAttempt>,
        beside: bool,
        result: AttemptResult,
        error: Option<&str>,
        observation: Option<Observation>,
    ) -> Option<NanoUsd> {
        let (mut facts, mut permit) = open.close(result, error);
        facts.hedged = beside;
        if let Some(pieces) = facts.reply_summary.map(|reading| reading.unknown).filter(|pieces| *pieces > 0) {
            self.recorder.shared.metrics.unknown_content(&facts.planned.channel.name, pieces);
        }
        // An answer that says that its account is limited stays an answer, and is the account's last.
        let limited = facts.reply_summary.is_some_and(|reading| reading.account_refused);
        let observation = observation
            .map(|seen| if limited && matches!(seen, Observation::Success { .. }) { Observation::Refused } else { seen });
        if let Some(observation) = observation
            && facts.planned.channel.provider != Provider::Echo
        {
            let (planned, now) = (&facts.planned, self.recorder.shared.clock.now());
            self.recorder.health.observe_sent(&planned.account, &observation, planned.channel.cooling, facts.at, now);
        }
        let all = self.facts.as_deref_mut()?;
        let cost = if result == AttemptResult::NotSent {
            permit.not_sent();
            Some(NanoUsd::ZERO)
        } else if permit.counts() || beside {
            let record = settle_attempt(&facts, all.method, all.input);
            permit.used_tokens(record.tokens.prompt().saturating_add(record.tokens.completion()));
            record.cost
        } else {
            None
        };
        all.attempts.push(facts);
        cost
    }

    /// The 200 goes out; its content begins now.
    pub(crate) fn answering(&mut self) {
        self.answered = true;
        let now = self.recorder.shared.clock.instant();
        if let Some(facts) = &mut self.facts {
            facts.ttft_us.get_or_insert(micros_between(self.started, now));
            if self.has_reservation {
                self.recorder.shared.counters.attempt_answered(facts.id);
            }
        }
    }

    /// So much has been handed to the caller.
    pub(crate) fn delivered(&mut self, reading: ReplySummary) {
        if let Some(facts) = &mut self.facts {
            facts.delivered = reading.into();
        }
    }

    /// Writes down what a stream came to so far.
    pub(crate) fn progress(&self) {
        let Some(facts) = self.facts.as_deref() else { return };
        let usage = self.open.as_deref().and_then(OpenAttempt::reading).and_then(|reading| reading.usage);
        let progress = StreamProgress { id: facts.id, at: self.recorder.shared.clock.now(), delivered: facts.delivered, usage };
        if let Err(fault) = self.recorder.journal.progress(&progress) {
            tracing::debug!(request.id = %facts.id, %fault, "the journal did not take the progress of a stream");
        }
        if self.has_reservation {
            self.recorder.shared.counters.renew(facts.id, self.recorder.shared.clock.instant());
        }
    }

    /// Time to the first content of the attempt under way, for the account's health.
    pub(crate) fn first_content_us(&self) -> Option<u64> {
        self.open.as_deref().map(OpenAttempt::elapsed_us)
    }

    /// A stream's first token came after so long.
    pub(crate) fn record_first_token(&self, first_content_us: u64) {
        let Some(facts) = self.facts.as_deref() else { return };
        if let (Some(model), Some(_)) = (&facts.model, facts.group.as_ref().and_then(|group| group.hedge)) {
            self.recorder.shared.traffic.latency.note(model, first_content_us, self.recorder.shared.clock.instant());
        }
    }

    /// The recorder it was drawn at.
    pub(crate) const fn recorder(&self) -> &Arc<UsageRecorder> {
        &self.recorder
    }

    /// The attempt under way gave a complete answer.
    pub(crate) fn succeeded(&mut self) {
        // Counts and vectors take what they take, and a stream that came whole has no first token.
        let plain = self.facts.as_deref().is_some_and(|facts| !facts.stream && facts.method.generates());
        let took = if plain { self.open.as_deref().map(OpenAttempt::elapsed_us) } else { None };
        let observation = Observation::Success { latency: took.map(LatencySample::WholeAnswer) };
        self.end_attempt(AttemptResult::Answered, None, Some(observation));
    }

    /// A stranger was refused: counted and logged, so that strangers cannot fill the database.
    pub(crate) fn refuse_unauthenticated(&self, head: &Head, error: &'static str, status: u16) {
        self.recorder.shared.metrics.refused(error);
        let duration_ms = micros_between(self.started, self.recorder.shared.clock.instant()) / 1_000;
        tracing::info!(
            request.id = %head.request_id,
            http.status = status,
            error.id = error,
            outcome = Outcome::Refused.as_str(),
            reason = error,
            protocol.in = head.from.as_str(),
            client.request_id = head.client_request_id.as_deref(),
            duration_ms,
            "request"
        );
    }

    /// Hands the guard in. The answer's last bytes wait for the returned flush.
    pub(crate) fn finish(&mut self, ending: Ending) -> Option<SyncWaiter> {
        self.end_hedge(AttemptResult::Cancelled, None, Some(Observation::Abandoned));
        self.end_attempt(AttemptResult::Cancelled, None, Some(Observation::Abandoned));
        let mut facts = self.facts.take()?;
        facts.status = ending.status;
        facts.outcome = ending.outcome;
        facts.reason = ending.reason;
        facts.detail = ending.detail;
        facts.duration_us = micros_between(self.started, self.recorder.shared.clock.instant());
        let record = settle(*facts);
        // Before the caller gets the last bytes: the next request finds the room.
        self.recorder.settle(&record);
        self.recorder.shared.metrics.observe(&record, &self.recorder.shared.catalog.load());
        request_log::log(&record);
        self.recorder.record(record, self.place.take())
    }

    /// The caller left (or the task died): whatever is known is handed in.
    fn leave(&mut self) {
        self.end_hedge(AttemptResult::Cancelled, None, Some(Observation::Abandoned));
        if self.open.is_some() {
            let content = self.open.as_deref().and_then(OpenAttempt::reading).is_some_and(|reading| reading.content);
            // An account that was answering is well, whoever hung up.
            let seen = if content { Observation::Success { latency: None } } else { Observation::Abandoned };
            self.end_attempt(AttemptResult::Cancelled, None, Some(seen));
        }
        let (status, outcome, reason) = if std::thread::panicking() {
            (500, Outcome::Refused, "E62")
        } else if self.recorder.shared.condition.is_cutting_off() {
            // As after a kill: nobody can tell what the caller saw.
            (if self.answered { 200 } else { 0 }, Outcome::GatewayStopped, "gateway_stopped")
        } else {
            (if self.answered { 200 } else { 499 }, Outcome::CallerLeft, "E64")
        };
        let ending = Ending { status, outcome, reason: Some(reason.to_owned()), detail: None };
        drop(self.finish(ending));
    }
}

impl Drop for UsageGuard {
    fn drop(&mut self) {
        if self.facts.is_some() {
            self.leave();
        }
    }
}
