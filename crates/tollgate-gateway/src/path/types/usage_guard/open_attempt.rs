//! An attempt under way: what was planned, the room it holds, and what it writes down itself while the guard lies with
//! the request.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::time::Instant;
use tollgate_core::{
    AccountId, AttemptFacts, AttemptResult, AttemptStart, PlannedAttempt, RequestFacts, StartedAttempt, Timestamp, settle_attempt,
};
use tollgate_protocol::ReplySummary;

use crate::{clock::Clock, state::account_limiter::Permit};

/// What an attempt writes down while it runs. Two may run side by side.
#[derive(Debug)]
pub(crate) struct AttemptProgress {
    clock: Arc<dyn Clock>,
    began: Instant,
    noted: Mutex<Noted>,
}

#[derive(Clone, Debug, Default)]
struct Noted {
    status: Option<u16>,
    first_byte_us: Option<u64>,
    upstream_request_id: Option<String>,
    reading: Option<ReplySummary>,
}

impl AttemptProgress {
    /// The head of the answer is here.
    pub(crate) fn answer_head(&self, status: u16, upstream_request_id: Option<String>) {
        let first_byte_us = Some(self.elapsed_us());
        let mut noted = self.noted();
        *noted = Noted { status: Some(status), first_byte_us, upstream_request_id, reading: noted.reading };
    }

    /// What has been read of the answer.
    pub(crate) fn read(&self, reading: ReplySummary) {
        self.noted().reading = Some(reading);
    }

    /// The time it is.
    pub(crate) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    fn elapsed_us(&self) -> u64 {
        micros_between(self.began, self.clock.instant())
    }

    fn facts(&self, planned: PlannedAttempt, at: Timestamp, result: AttemptResult, error: Option<&str>) -> AttemptFacts {
        let Noted { status, first_byte_us, upstream_request_id, reading } = self.noted().clone();
        let (error, duration_us) = (error.map(str::to_owned), self.elapsed_us());
        let beside = false;
        AttemptFacts {
            planned,
            at,
            status,
            result,
            error,
            reply_summary: reading,
            first_byte_us,
            duration_us,
            upstream_request_id,
            hedged: beside,
        }
    }

    fn noted(&self) -> MutexGuard<'_, Noted> {
        self.noted.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The attempt as the guard holds it.
#[derive(Debug)]
pub(super) struct OpenAttempt {
    planned: PlannedAttempt,
    at: Timestamp,
    permit: Permit,
    notes: Arc<AttemptProgress>,
}

impl OpenAttempt {
    pub(super) fn begin(planned: &PlannedAttempt, mut permit: Permit, clock: &Arc<dyn Clock>) -> Self {
        permit.begin();
        let notes = AttemptProgress { clock: Arc::clone(clock), began: clock.instant(), noted: Mutex::default() };
        Self { planned: planned.clone(), at: clock.now(), permit, notes: Arc::new(notes) }
    }

    /// Whose credential it uses.
    pub(super) fn account(&self) -> AccountId {
        self.planned.account.id
    }

    pub(super) fn is_on(&self, account: AccountId) -> bool {
        self.account() == account
    }

    pub(super) const fn notes(&self) -> &Arc<AttemptProgress> {
        &self.notes
    }

    pub(super) fn reading(&self) -> Option<ReplySummary> {
        self.notes.noted().reading
    }

    pub(super) fn elapsed_us(&self) -> u64 {
        self.notes.elapsed_us()
    }

    /// What is known of it, as if it were given up now for the one beside it.
    pub(super) fn facts(&self) -> AttemptFacts {
        let facts = self.notes.facts(self.planned.clone(), self.at, AttemptResult::Cancelled, None);
        AttemptFacts { hedged: true, ..facts }
    }

    /// It ended; its room is still held.
    pub(super) fn close(self, result: AttemptResult, error: Option<&str>) -> (AttemptFacts, Permit) {
        (self.notes.facts(self.planned, self.at, result, error), self.permit)
    }
}

/// What the journal keeps when an attempt begins, so that a kill can be settled. `beside` are attempts that run at the same time.
pub(super) fn begin_of(facts: &RequestFacts, attempt: &OpenAttempt, beside: &[AttemptFacts]) -> Option<AttemptStart> {
    let group = facts.group.as_ref()?;
    let planned = &attempt.planned;
    Some(AttemptStart {
        id: facts.id,
        at: facts.at,
        key: facts.key.id,
        key_name: facts.key.name.clone(),
        member: facts.key.member.id,
        group: group.id,
        group_name: group.name.clone(),
        protocol_in: facts.protocol_in,
        method: facts.method,
        model: facts.model.clone().unwrap_or_default(),
        stream: facts.stream,
        address: facts.address.clone(),
        client_request_id: facts.client_request_id.clone(),
        dropped: facts.dropped.clone(),
        price_version: facts.price_version,
        sale: facts.sale.clone(),
        sale_multiplier: group.sale_multiplier,
        policy: group.stream_break,
        input: facts.input,
        earlier: facts.attempts.iter().chain(beside).map(|earlier| settle_attempt(earlier, facts.method, facts.input)).collect(),
        attempt: StartedAttempt {
            channel: planned.channel.id,
            channel_name: planned.channel.name.clone(),
            account: planned.account.id,
            account_name: planned.account.name.clone(),
            protocol: planned.protocol,
            upstream_model: planned.mapping().upstream.clone(),
            at: attempt.at,
            cost: planned.cost.clone(),
            cost_multiplier: planned.account.cost_multiplier,
        },
    })
}

pub(super) fn micros_between(from: Instant, to: Instant) -> u64 {
    u64::try_from(to.saturating_duration_since(from).as_micros()).unwrap_or(u64::MAX)
}
