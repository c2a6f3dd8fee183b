//! Callers, reservations and usage records for tests of counters.

use std::{sync::Arc, time::Duration};

use tokio::time::Instant;
use tollgate_core::{
    AdmitInput, Billing, Budget, BudgetAction, Caller, FundsStatus, Glob, Group, GroupId, Key, KeyId, KeyStatus, LimitExceeded,
    Limits, Member, MemberId, MemberStatus, Model, ModelSpec, Multiplier, NanoUsd, Offer, Owner, Price, RateExceeded, Reservation,
    Revision, Role, StreamBreak, Timestamp, TranslationPolicy, UsageRecord, Visibility, Window, reservation_for,
};
use tollgate_protocol::{Method, Protocol, RequestSummary, SplicePoints};

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
        let caller = Caller { key: Arc::new(self.key.clone()), groups: vec![Arc::clone(&group)] };
        let offer = Offer {
            model: Arc::new(Model { spec: ModelSpec { name: "m".to_owned(), ..ModelSpec::default() }, ..Model::default() }),
            group,
            sale: Some(price),
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
    Key {
        id: KeyId::from_parts(MIDNIGHT, [1; 10]),
        name: "ci".to_owned(),
        owner: Owner::File,
        prefix: "sk-tg-abcd".to_owned(),
        suffix: "wxyz".to_owned(),
        status: KeyStatus::Active,
        expires_at: None,
        groups: Vec::new(),
        models: Vec::new(),
        ip_allow: Vec::new(),
        limits: Limits::default(),
        budgets: Vec::new(),
        price_limit: None,
        signatures_in_ids: None,
        created_at: MIDNIGHT,
        member: Member {
            id: MemberId::from_parts(MIDNIGHT, [2; 10]),
            name: "ada".to_owned(),
            role: Role::Member,
            status: MemberStatus::Active,
            granted: Vec::new(),
            default_group: None,
            billing: Billing::Postpaid,
            limits: Limits::default(),
            budgets: Vec::new(),
        },
    }
}

fn group() -> Group {
    Group {
        id: GroupId::from_parts(MIDNIGHT, [3; 10]),
        name: "default".to_owned(),
        owner: Owner::File,
        visibility: Visibility::Public,
        channels: Vec::new(),
        models: vec![Glob("*".to_owned())],
        sale_multiplier: Multiplier::ONE,
        translation: TranslationPolicy::Strict,
        signatures_in_ids: true,
        stream_break: StreamBreak::Delivered,
        price_limit: None,
        never_below_cost: false,
        limits: Limits::default(),
        budgets: Vec::new(),
        routing: tollgate_core::Routing::Weighted,
        hedge: None,
        trace: false,
    }
}

fn summary() -> RequestSummary {
    RequestSummary {
        model: "m".to_owned(),
        method: Method::Chat,
        stream: false,
        include_usage: false,
        max_output: None,
        candidates: 1,
        fields: Vec::new(),
        text_bytes: 0,
        turns: 0,
        images: 0,
        audio_bytes: 0,
        document_bytes: 0,
        tools: 0,
        extras: tollgate_protocol::RequestExtras::default(),
        affinity: None,
        splices: SplicePoints::default(),
    }
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
