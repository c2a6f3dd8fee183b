//! Stage 9 of 9: what happened to a request, handed in exactly once. In: what every other stage learnt; out: a usage
//! record in the journal and on its way to the database, a log event, metrics.
//!
//! A ticket is drawn before anything else. Once the key is known it leaves a record however it ends: handed in with
//! an ending, or dropped because nobody waits for the answer any more.

mod log;
mod open;

use std::sync::Arc;

use http::HeaderValue;
use tokio::time::Instant;
use tollgate_core::{
    AttemptResult, Delivered, Facts, InputCount, Key, NanoUsd, Observation, Offer, Outcome, Pace, PlannedAttempt, Progress,
    Provider, Revision, TraceEntry, UsageRecord, count_input, settle, settle_attempt,
};
use tollgate_protocol::{Method, Outline, Reading};
use tollgate_store::{Journal, JournalError, JournalWriter, SyncTicket};

pub(crate) use open::Notes;
use open::{Open, begin_of, micros_between};

use crate::{
    Head, HealthBoard, RateFigures, Shared,
    account_room::Slot,
    dropped::listed,
    hedge_spending::HedgeHold,
    till::{Place, TillQueue},
    trace::{ended, summary},
};

/// Where tickets are drawn and handed in: one a core.
#[derive(Debug)]
pub struct Desk {
    /// What the cores share.
    pub shared: Arc<Shared>,
    /// The core's part of the journal.
    pub journal: JournalWriter,
    /// The way to the database.
    pub till: TillQueue,
    /// Health of accounts.
    pub health: Arc<HealthBoard>,
}

impl Desk {
    /// The desk of one core.
    ///
    /// # Errors
    /// When the core has one already.
    pub fn open(
        shared: Arc<Shared>,
        journal: &Journal,
        core: u16,
        till: TillQueue,
        health: Arc<HealthBoard>,
    ) -> Result<Self, JournalError> {
        Ok(Self { shared, journal: journal.writer(core)?, till, health })
    }

    /// Counts what a request came to, and gives back what was set aside for it.
    fn give_back(&self, record: &UsageRecord) {
        for crossed in self.shared.counters.give_back(record, self.shared.clock.instant()) {
            self.shared.alerts.tell(&self.shared, record.id, &record.key_name, &crossed);
        }
    }

    /// Puts a record where it cannot get lost: the journal, then the queue to the database.
    fn book(&self, record: UsageRecord, place: Option<Place>) -> Option<SyncTicket> {
        let id = record.id;
        let written = self.journal.end(&record);
        let kept = written.is_ok();
        let queued = self.till.put(record, place, kept);
        match written {
            Ok(ticket) => Some(ticket),
            Err(fault) => {
                if !queued {
                    self.shared.metrics.unrecorded();
                    self.journal.abandon(id);
                }
                tracing::error!(request.id = %id, queued, %fault, "the journal did not take a record");
                None
            }
        }
    }
}

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
pub(crate) enum Unwritten {
    /// Its money is bounded: what cannot be recorded cannot be held to a bound.
    Refuse,
    /// It goes on, counted and logged.
    GoOn,
}

/// What is known of a request so far.
#[derive(Debug)]
pub(crate) struct Ticket {
    desk: Arc<Desk>,
    started: Instant,
    /// Everything but attempts under way; `None` before the door and after handing in.
    facts: Option<Box<Facts>>,
    place: Option<Place>,
    open: Option<Box<Open>>,
    /// A second attempt beside it, where the first one is late.
    rival: Option<Box<Open>>,
    /// What the one of the two that loses may cost.
    hedge: Option<HedgeHold>,
    /// Whether the caller was sent a status.
    answered: bool,
    /// Whether room was set aside for it, perhaps.
    holds: bool,
    /// How much of its rates is used, where there are any.
    rates: RateFigures,
}

impl Ticket {
    /// A ticket for a stranger: nothing is recorded yet.
    pub(crate) fn draw(desk: &Arc<Desk>, head: &Head) -> Self {
        Self {
            desk: Arc::clone(desk),
            started: head.started,
            facts: None,
            place: None,
            open: None,
            rival: None,
            hedge: None,
            answered: false,
            holds: false,
            rates: RateFigures::default(),
        }
    }

    /// The door: from now on a record is left.
    pub(crate) fn known(&mut self, key: &Arc<Key>, head: &Head, method: Method) {
        self.place = self.desk.till.reserve();
        self.facts = Some(Box::new(Facts {
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
            delivered: Delivered::default(),
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
    pub(crate) fn outlined(&mut self, outline: &Outline) {
        if let Some(facts) = &mut self.facts {
            facts.model = Some(outline.model.clone());
            facts.stream = outline.stream;
            facts.input = count_input(outline);
        }
    }

    /// Group and prices, frozen.
    pub(crate) fn offered(&mut self, offer: &Offer) {
        if let Some(facts) = &mut self.facts {
            facts.group = Some(Arc::clone(&offer.group));
            facts.sale.clone_from(&offer.sale);
            facts.price_version = offer.revision;
        }
    }

    /// Room is being set aside: it goes back when the ticket is handed in.
    pub(crate) const fn holds(&mut self) {
        self.holds = true;
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
    pub(crate) fn considered(&mut self, trace: Vec<TraceEntry>) {
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
            + usize::from(self.rival.is_some())
    }

    /// Attempts that reached an upstream, as far as is known: nothing was sent of the others.
    pub(crate) fn sent_attempts(&self) -> usize {
        let unsent = |facts: &Facts| facts.attempts.iter().filter(|attempt| attempt.result == AttemptResult::NotSent).count();
        self.attempts() - self.facts.as_deref().map_or(0, unsent)
    }

    /// An attempt begins; its begin is in the journal when this returns. `None`: it could not be written, and must not go
    /// on.
    pub(crate) fn begin_attempt(&mut self, planned: &PlannedAttempt, slot: Slot, unwritten: Unwritten) -> Option<Arc<Notes>> {
        self.open = Some(self.begin(planned, slot));
        self.write_begin(self.open.as_deref()?, unwritten)
    }

    /// So much is set aside for the one of two attempts that loses.
    pub(crate) fn hedges(&mut self, hold: HedgeHold) {
        self.hedge = Some(hold);
    }

    /// A second attempt begins beside the one under way.
    pub(crate) fn begin_rival(&mut self, planned: &PlannedAttempt, slot: Slot, unwritten: Unwritten) -> Option<Arc<Notes>> {
        self.rival = Some(self.begin(planned, slot));
        self.write_begin(self.rival.as_deref()?, unwritten)
    }

    fn begin(&self, planned: &PlannedAttempt, slot: Slot) -> Box<Open> {
        let clock = &self.desk.shared.clock;
        if planned.channel.provider != Provider::Echo {
            self.desk.health.begin(planned.account.id, clock.now());
        }
        Box::new(Open::begin(planned, slot, clock))
    }

    /// Its begin is in the journal when this returns its notes.
    fn write_begin(&self, attempt: &Open, unwritten: Unwritten) -> Option<Arc<Notes>> {
        let notes = Arc::clone(attempt.notes());
        let Some(facts) = self.facts.as_deref() else { return Some(notes) };
        // Of two side by side the one that is written last counts as the one under way, the other as given up.
        let others = [&self.open, &self.rival].into_iter().flatten().filter(|other| !other.is_on(attempt.account()));
        let beside = others.map(|other| other.facts()).collect::<Vec<_>>();
        let Some(begin) = begin_of(facts, attempt, &beside) else { return Some(notes) };
        if let Err(fault) = self.desk.journal.begin(&begin) {
            tracing::error!(request.id = %begin.id, %fault, "the journal did not take the beginning of an attempt");
            return (unwritten == Unwritten::GoOn).then_some(notes);
        }
        Some(notes)
    }

    /// The second attempt takes the first one's place, and the first one its.
    pub(crate) const fn rival_leads(&mut self) {
        std::mem::swap(&mut self.open, &mut self.rival);
    }

    /// The attempt beside the one under way ended: what it cost is what hedging cost.
    pub(crate) fn end_rival(&mut self, result: AttemptResult, error: Option<&str>, observation: Option<Observation>) {
        let Some(rival) = self.rival.take() else { return };
        let cost = self.close(rival, true, result, error, observation);
        if let Some(hold) = self.hedge.take() {
            hold.settle(cost);
        }
        if let Some(open) = &self.open {
            // So that a kill finds the right one under way. What is not written costs no more than the account's name.
            let _ = self.write_begin(open, Unwritten::GoOn);
        }
    }

    /// What has been read of the attempt's answer.
    pub(crate) fn read(&mut self, reading: Reading) {
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
        open: Box<Open>,
        beside: bool,
        result: AttemptResult,
        error: Option<&str>,
        observation: Option<Observation>,
    ) -> Option<NanoUsd> {
        let (mut facts, mut slot) = open.close(result, error);
        facts.beside = beside;
        if let Some(pieces) = facts.reading.map(|reading| reading.unknown).filter(|pieces| *pieces > 0) {
            self.desk.shared.metrics.unknown_content(&facts.planned.channel.name, pieces);
        }
        // An answer that says that its account is limited stays an answer, and is the account's last.
        let limited = facts.reading.is_some_and(|reading| reading.account_refused);
        let observation = observation
            .map(|seen| if limited && matches!(seen, Observation::Success { .. }) { Observation::Refused } else { seen });
        if let Some(observation) = observation
            && facts.planned.channel.provider != Provider::Echo
        {
            let (planned, now) = (&facts.planned, self.desk.shared.clock.now());
            self.desk.health.observe_sent(&planned.account, &observation, planned.channel.cooling, facts.at, now);
        }
        let all = self.facts.as_deref_mut()?;
        let cost = if result == AttemptResult::NotSent {
            slot.not_sent();
            Some(NanoUsd::ZERO)
        } else if slot.counts() || beside {
            let record = settle_attempt(&facts, all.method, all.input);
            slot.used_tokens(record.tokens.prompt().saturating_add(record.tokens.completion()));
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
        let now = self.desk.shared.clock.instant();
        if let Some(facts) = &mut self.facts {
            facts.ttft_us.get_or_insert(micros_between(self.started, now));
            if self.holds {
                self.desk.shared.counters.answering(facts.id);
            }
        }
    }

    /// So much has been handed to the caller.
    pub(crate) fn delivered(&mut self, reading: Reading) {
        if let Some(facts) = &mut self.facts {
            facts.delivered = reading.into();
        }
    }

    /// Writes down what a stream came to so far.
    pub(crate) fn progress(&self) {
        let Some(facts) = self.facts.as_deref() else { return };
        let usage = self.open.as_deref().and_then(Open::reading).and_then(|reading| reading.usage);
        let progress = Progress { id: facts.id, at: self.desk.shared.clock.now(), delivered: facts.delivered, usage };
        if let Err(fault) = self.desk.journal.progress(&progress) {
            tracing::debug!(request.id = %facts.id, %fault, "the journal did not take the progress of a stream");
        }
        if self.holds {
            self.desk.shared.counters.renew(facts.id, self.desk.shared.clock.instant());
        }
    }

    /// Time to the first content of the attempt under way, for the account's health.
    pub(crate) fn first_content_us(&self) -> Option<u64> {
        self.open.as_deref().map(Open::elapsed_us)
    }

    /// A stream's first token came after so long.
    pub(crate) fn pace(&self, first_content_us: u64) {
        let Some(facts) = self.facts.as_deref() else { return };
        if let (Some(model), Some(_)) = (&facts.model, facts.group.as_ref().and_then(|group| group.hedge)) {
            self.desk.shared.traffic.pace.note(model, first_content_us, self.desk.shared.clock.instant());
        }
    }

    /// The desk it was drawn at.
    pub(crate) const fn desk(&self) -> &Arc<Desk> {
        &self.desk
    }

    /// The attempt under way gave a complete answer.
    pub(crate) fn succeeded(&mut self) {
        // Counts and vectors take what they take, and a stream that came whole has no first token.
        let plain = self.facts.as_deref().is_some_and(|facts| !facts.stream && facts.method.generates());
        let took = if plain { self.open.as_deref().map(Open::elapsed_us) } else { None };
        let observation = Observation::Success { pace: took.map(Pace::WholeAnswer) };
        self.end_attempt(AttemptResult::Answered, None, Some(observation));
    }

    /// A stranger was refused: counted and logged, so that strangers cannot fill the database.
    pub(crate) fn refuse_stranger(&self, head: &Head, error: &'static str, status: u16) {
        self.desk.shared.metrics.refused(error);
        let duration_ms = micros_between(self.started, self.desk.shared.clock.instant()) / 1_000;
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

    /// Hands the ticket in. The answer's last bytes wait for the returned flush.
    pub(crate) fn hand_in(&mut self, ending: Ending) -> Option<SyncTicket> {
        self.end_rival(AttemptResult::Cancelled, None, Some(Observation::Abandoned));
        self.end_attempt(AttemptResult::Cancelled, None, Some(Observation::Abandoned));
        let mut facts = self.facts.take()?;
        facts.status = ending.status;
        facts.outcome = ending.outcome;
        facts.reason = ending.reason;
        facts.detail = ending.detail;
        facts.duration_us = micros_between(self.started, self.desk.shared.clock.instant());
        let record = settle(*facts);
        // Before the caller gets the last bytes: the next request finds the room.
        self.desk.give_back(&record);
        self.desk.shared.metrics.observe(&record, &self.desk.shared.catalog.load());
        log::log(&record);
        self.desk.book(record, self.place.take())
    }

    /// The caller left (or the task died): whatever is known is handed in.
    fn leave(&mut self) {
        self.end_rival(AttemptResult::Cancelled, None, Some(Observation::Abandoned));
        if self.open.is_some() {
            let content = self.open.as_deref().and_then(Open::reading).is_some_and(|reading| reading.content);
            // An account that was answering is well, whoever hung up.
            let seen = if content { Observation::Success { pace: None } } else { Observation::Abandoned };
            self.end_attempt(AttemptResult::Cancelled, None, Some(seen));
        }
        let (status, outcome, reason) = if std::thread::panicking() {
            (500, Outcome::Refused, "E62")
        } else if self.desk.shared.condition.is_cutting_off() {
            // As after a kill: nobody can tell what the caller saw.
            (if self.answered { 200 } else { 0 }, Outcome::GatewayStopped, "gateway_stopped")
        } else {
            (if self.answered { 200 } else { 499 }, Outcome::CallerLeft, "E64")
        };
        let ending = Ending { status, outcome, reason: Some(reason.to_owned()), detail: None };
        drop(self.hand_in(ending));
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        if self.facts.is_some() {
            self.leave();
        }
    }
}
