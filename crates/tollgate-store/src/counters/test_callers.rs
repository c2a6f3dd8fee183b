//! Callers, reservations and usage records for tests of counters.

use std::{sync::Arc, time::Duration};

use tokio::time::Instant;
use tollgate_core::{
    AdmitInput, Budget, BudgetAction, Caller, FundsStatus, Group, GroupId, Key, KeyId, LimitExceeded, Member, MemberId, Model,
    ModelSpec, Multiplier, NanoUsd, Offer, Price, RateExceeded, Reservation, Revision, Timestamp, UsageRecord, Window,
    reservation_for,
};
use tollgate_protocol::{Method, Protocol, RequestSummary};

use crate::samples::{MIDNIGHT, record};

pub(super) const RESERVATION_TTL: Duration = Duration::from_mins(11);

pub(super) fn now() -> Instant {
    Instant::now()
}

/// A caller of a model that costs 1 nano-USD per output token.
#[derive(Clone)]
pub(super) struct TestCaller {
    pub(super) key: Key,
    pub(super) group: Group,
}

impl TestCaller {
    pub(super) fn new(change: impl FnOnce(&mut Self)) -> Self {
        let mut caller = Self { key: key(), group: group() };
        change(&mut caller);
        caller
    }

    /// A reservation of this many output tokens, which are as many nano-USD.
    pub(super) fn reservation(&self, number: u64, output: u64) -> Reservation {
        // An output limit of 0 means no limit; embeddings have no output and cost nothing.
        let method = if output == 0 { Method::Embeddings } else { Method::Chat };
        let summary = RequestSummary { max_output: Some(output), method, ..summary() };
        self.reservation_for(number, &summary).expect("the caller has a limit")
    }

    /// A [`reservation`](Self::reservation) of a request that arrived at another time.
    pub(super) fn reservation_at(&self, at: Timestamp, number: u64, output: u64) -> Reservation {
        let mut reservation = self.reservation(number, output);
        reservation.at = at;
        reservation
    }

    /// A reservation of a request without an output limit, so that it may be lowered.
    pub(super) fn flexible_reservation(&self, number: u64) -> Reservation {
        self.reservation_for(number, &summary()).expect("the caller has a limit")
    }

    pub(super) fn reservation_for(&self, number: u64, summary: &RequestSummary) -> Option<Reservation> {
        let price = Price { input: Some(0), output: Some(1_000_000), ..Price::default() };
        let group = Arc::new(self.group.clone());
        let caller = Caller { key: Arc::new(self.key.clone()), groups: [Arc::clone(&group)].into() };
        let offer = Offer {
            model: Arc::new(Model { spec: ModelSpec { name: "m".to_owned(), ..ModelSpec::default() }, ..Model::default() }),
            group,
            sale: Some(price.into()),
            sale_multiplier: Multiplier::ONE,
            candidates: Vec::new(),
            drop_fields: Vec::new(),
            revision: Revision(1),
        };
        let id = record(number).id;
        reservation_for(&AdmitInput {
            id,
            at: MIDNIGHT,
            caller: &caller,
            offer: &offer,
            summary,
            from: Protocol::OpenAi,
            gateway: &[],
        })
    }

    /// The record of a request that used this many output tokens.
    pub(super) fn usage(&self, number: u64, output: u64) -> UsageRecord {
        let mut record = record(number);
        record.at = MIDNIGHT;
        (record.key, record.member, record.group) = (self.key.id, self.key.member.id, Some(self.group.id));
        record.sale = Some(NanoUsd(i64::try_from(output).unwrap()));
        record.tokens = tollgate_core::Tokens { output, ..tollgate_core::Tokens::default() };
        record.attempts.clear();
        record
    }
}

fn key() -> Key {
    let member = Member::new(MemberId::from_parts(MIDNIGHT, [2; 10]), "ada");
    Key::new(KeyId::from_parts(MIDNIGHT, [1; 10]), "ci", member, MIDNIGHT)
}

fn group() -> Group {
    Group::new(GroupId::from_parts(MIDNIGHT, [3; 10]), "default", Vec::new())
}

fn summary() -> RequestSummary {
    RequestSummary::minimal("m", Method::Chat)
}

pub(super) fn budget(amount: i64, action: BudgetAction) -> Vec<Budget> {
    vec![Budget { amount: NanoUsd(amount), window: Window::Month, action }]
}

/// The funds that a reservation exceeds.
pub(super) fn exceeded_funds<T: std::fmt::Debug>(result: Result<T, LimitExceeded>) -> FundsStatus {
    match result {
        Err(LimitExceeded::Money(funds)) => funds,
        other => panic!("{other:?}"),
    }
}

/// The rate that a reservation exceeds.
pub(super) fn exceeded_rate<T: std::fmt::Debug>(result: Result<T, LimitExceeded>) -> RateExceeded {
    match result {
        Err(LimitExceeded::Rate(rate)) => rate,
        other => panic!("{other:?}"),
    }
}
