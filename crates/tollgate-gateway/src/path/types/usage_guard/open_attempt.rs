//! A running attempt: its plan, its permit and its progress.

use std::{
    borrow::Cow,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio::time::Instant;
use tollgate_core::{
    AccountId, AttemptFacts, AttemptResult, AttemptStart, PlannedAttempt, RequestFacts, ShortText, StartedAttempt, Timestamp,
    settle_attempt,
};
use tollgate_protocol::ReplySummary;

use crate::{clock::Clock, state::capacity_limiter::Permit, upstream::call::SentMark};

/// Progress of a running attempt. Two may run at once.
#[derive(Debug)]
pub(crate) struct AttemptProgress {
    clock: Arc<dyn Clock>,
    began: Instant,
    sent: SentMark,
    state: Mutex<ProgressState>,
}

#[derive(Clone, Debug, Default)]
struct ProgressState {
    status: Option<u16>,
    first_byte_us: Option<u64>,
    upstream_request_id: Option<ShortText>,
    reply: Option<ReplySummary>,
    message: Option<String>,
}

impl AttemptProgress {
    /// Records the head of the answer.
    pub(crate) fn answer_head(&self, status: u16, upstream_request_id: Option<ShortText>) {
        let first_byte_us = Some(micros_between(self.began, self.clock.instant()));
        let mut state = self.state();
        *state = ProgressState { status: Some(status), first_byte_us, upstream_request_id, reply: state.reply, message: None };
    }

    /// Records the part of the answer that has been read.
    pub(crate) fn record_reply(&self, summary: ReplySummary) {
        self.state().reply = Some(summary);
    }

    /// Records what went wrong.
    fn record_message(&self, message: String) {
        self.state().message = Some(message);
    }

    /// Set when its first byte is sent.
    pub(crate) const fn sent(&self) -> &SentMark {
        &self.sent
    }

    pub(crate) const fn began(&self) -> Instant {
        self.began
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    fn facts(
        &self,
        (planned, at): (Arc<PlannedAttempt>, Timestamp),
        result: AttemptResult,
        error: Option<&str>,
        now: Instant,
    ) -> AttemptFacts {
        let ProgressState { status, first_byte_us, upstream_request_id, reply, message } = self.state().clone();
        let (error, duration_us) = (error.map(str::to_owned), micros_between(self.began, now));
        AttemptFacts {
            planned,
            at,
            status,
            result,
            error,
            reply_summary: reply,
            first_byte_us,
            duration_us,
            upstream_request_id,
            hedged: false,
            message,
            sent_us: self.sent.at().map(|at| micros_between(self.began, at)),
        }
    }

    fn state(&self) -> MutexGuard<'_, ProgressState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The attempt as the usage guard holds it.
#[derive(Debug)]
pub(super) struct OpenAttempt {
    planned: Arc<PlannedAttempt>,
    at: Timestamp,
    permit: Permit,
    progress: Arc<AttemptProgress>,
}

impl OpenAttempt {
    pub(super) fn begin(
        planned: Arc<PlannedAttempt>,
        mut permit: Permit,
        clock: &Arc<dyn Clock>,
        (began, at): (Instant, Timestamp),
    ) -> Self {
        permit.begin();
        let progress = AttemptProgress { clock: Arc::clone(clock), began, sent: SentMark::default(), state: Mutex::default() };
        Self { planned, at, permit, progress: Arc::new(progress) }
    }

    pub(super) fn account(&self) -> AccountId {
        self.planned.account.id
    }

    pub(super) fn is_on(&self, account: AccountId) -> bool {
        self.account() == account
    }

    pub(super) const fn progress(&self) -> &Arc<AttemptProgress> {
        &self.progress
    }

    pub(super) fn reply(&self) -> Option<ReplySummary> {
        self.progress.state().reply
    }

    pub(super) fn elapsed_us(&self, now: Instant) -> u64 {
        micros_between(self.progress.began, now)
    }

    /// The facts as of now, as if the attempt were cancelled for the concurrent one.
    pub(super) fn facts(&self) -> AttemptFacts {
        let (planned, now) = (Arc::clone(&self.planned), self.progress.clock.instant());
        let facts = self.progress.facts((planned, self.at), AttemptResult::Cancelled, None, now);
        AttemptFacts { hedged: true, ..facts }
    }

    pub(super) fn record_message(&self, message: String) {
        self.progress.record_message(message);
    }

    /// Ends the attempt. The permit is still held.
    pub(super) fn close(self, result: AttemptResult, error: Option<&str>, now: Instant) -> (AttemptFacts, Permit) {
        (self.progress.facts((self.planned, self.at), result, error, now), self.permit)
    }
}

/// The journal entry for the start of an attempt, from which recovery settles the request after a kill. `concurrent` are attempts
/// that run at the same time.
pub(super) fn start_entry<'a>(
    facts: &'a RequestFacts,
    attempt: &'a OpenAttempt,
    concurrent: &[AttemptFacts],
) -> Option<AttemptStart<'a>> {
    let group = facts.group.as_ref()?;
    let planned = &attempt.planned;
    Some(AttemptStart {
        id: facts.id,
        at: facts.at,
        key: facts.key.id,
        key_name: (&facts.key.name).into(),
        member: facts.key.member.id,
        group: group.id,
        group_name: (&group.name).into(),
        protocol_in: facts.protocol_in,
        method: facts.method,
        model: facts.model.as_deref().unwrap_or_default().into(),
        stream: facts.stream,
        address: facts.address.as_deref().map(Into::into),
        client_request_id: facts.client_request_id.as_deref().map(Into::into),
        dropped: facts.dropped.as_slice().into(),
        price_version: facts.price_version,
        sale: facts.sale.as_deref().map(Cow::Borrowed),
        sale_multiplier: facts.sale_multiplier,
        policy: group.stream_break,
        input: facts.input,
        bounds: facts.bounds,
        earlier: facts.attempts.iter().chain(concurrent).map(|earlier| settle_attempt(earlier, &facts.size())).collect(),
        attempt: StartedAttempt {
            channel: planned.channel.id,
            channel_name: (&planned.channel.spec.name).into(),
            account: planned.account.id,
            account_name: (&planned.account.spec.name).into(),
            protocol: planned.protocol,
            upstream_model: (&planned.mapping().upstream).into(),
            at: attempt.at,
            cost: planned.cost.as_deref().map(Cow::Borrowed),
            cost_multiplier: planned.account.spec.cost_multiplier,
        },
        tags: Cow::Borrowed(&facts.tags),
    })
}

pub(super) fn micros_between(from: Instant, to: Instant) -> u64 {
    u64::try_from(to.saturating_duration_since(from).as_micros()).unwrap_or(u64::MAX)
}
