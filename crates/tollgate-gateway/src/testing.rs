//! Fixtures shared by the tests of this crate.

pub(crate) mod after_journal;
pub(crate) mod memory_store;
pub(crate) mod raw_upstream;
pub(crate) mod scripted;

use std::{
    collections::HashMap,
    net::{IpAddr, Ipv4Addr},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicI64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use arc_swap::ArcSwap;
use async_trait::async_trait;
use bytes::Bytes;
use tokio::runtime::Handle;
use tokio_util::task::TaskTracker;
use tollgate_core::{
    Account, AccountId, AccountSpec, AttemptRecord, AttemptResult, Catalog, Channel, ChannelId, ChannelSpec, GroupId, Key, KeyId,
    Member, MemberId, ModelMapping, Multiplier, NanoUsd, Outcome, Owner, RequestId, Revision, Secret, Tags, Timestamp, TokenSource,
    Tokens, UsageRecord,
};
use tollgate_protocol::{Method, Protocol};
use tollgate_store::{KeyHash, KeyHasher, KeyStore, StoreError};

use crate::{
    clock::{Clock, SystemClock},
    header_fields::HeaderFields,
    request::Head,
    settings::{RequestSettings, Settings},
    state::{
        address_rate::AddressRate, alert_queue::AlertQueue, authenticator::Authenticator, metrics::Metrics,
        retry_budget::RetryBudget, shared::Shared, traffic::Traffic,
    },
    upstream::{
        call::{SentMark, UpstreamCall},
        client::Trust,
    },
};

/// The secret of [`key`].
pub(crate) const SECRET: &str = "tg-a-key-of-the-tests-0123456789";

/// The head of a POST without headers; native for native paths.
pub(crate) fn head(path: &str) -> Head {
    Head {
        settings: RequestSettings::default(),
        from: match path {
            path if path.starts_with("/v1beta") => Protocol::Gemini,
            path if path.starts_with("/v1/messages") => Protocol::Anthropic,
            path if path.starts_with("/v1/responses") => Protocol::Responses,
            _ => Protocol::OpenAi,
        },
        request_id: RequestId::from_parts(Timestamp(1_795_000_000_000_000), [7; 10]),
        arrived: Timestamp(1_795_000_000_000_000),
        started: tokio::time::Instant::now(),
        peer: Some(IpAddr::V4(Ipv4Addr::new(203, 0, 113, 7))),
        presented_key: None,
        other_key: None,
        recent_key: None,
        http_method: http::Method::POST,
        path: path.to_owned(),
        headers: HeaderFields::default(),
        client_request_id: None,
    }
}

/// A key without restrictions.
pub(crate) fn key() -> Key {
    let id = [1; 10];
    let member = Member::new(MemberId::from_parts(Timestamp(0), id), "owner");
    Key {
        prefix: "tg-a-key-o".to_owned(),
        suffix: "6789".to_owned(),
        ..Key::new(KeyId::from_parts(Timestamp(0), id), "first", member, Timestamp(0))
    }
}

/// A completed request of two seconds, 1.5 of them waiting for the upstream.
pub(crate) fn usage_record(model: &str) -> UsageRecord {
    let tokens = Tokens { input: 10, output: 20, source: TokenSource::Provider, ..Tokens::default() };
    UsageRecord {
        id: RequestId::from_parts(Timestamp(0), [3; 10]),
        at: Timestamp(0),
        key: key().id,
        key_name: "first".into(),
        member: key().member.id,
        group: Some(GroupId::from_parts(Timestamp(0), [6; 10])),
        group_name: Some("default".into()),
        protocol_in: Protocol::OpenAi,
        protocol_out: Some(Protocol::OpenAi),
        method: Method::Chat,
        model: Some(model.into()),
        stream: false,
        status: 200,
        outcome: Outcome::Completed,
        reason: None,
        detail: None,
        tokens,
        cost: Some(NanoUsd(250_000_000)),
        sale: Some(NanoUsd(500_000_000)),
        price_version: Revision(1),
        ttft_us: Some(1_000_000),
        duration_us: 2_000_000,
        address: None,
        client_request_id: None,
        dropped: Vec::new(),
        trace: Vec::new(),
        tags: Tags::default(),
        sale_multiplier: Multiplier::ONE,
        finish: None,
        client: None,
        request_bytes: 500,
        attempts: vec![AttemptRecord {
            channel: ChannelId::from_parts(Timestamp(0), [4; 10]),
            channel_name: "main".into(),
            account: AccountId::from_parts(Timestamp(0), [5; 10]),
            account_name: "a".into(),
            protocol: Protocol::OpenAi,
            upstream_model: "upstream".into(),
            at: Timestamp(0),
            status: Some(200),
            result: AttemptResult::Answered,
            error: None,
            tokens,
            cost: Some(NanoUsd(250_000_000)),
            first_byte_us: Some(900_000),
            duration_us: 1_500_000,
            upstream_request_id: None,
            hedged: false,
            cost_multiplier: Multiplier::ONE,
            message: None,
            sent_us: None,
        }],
    }
}

/// A channel that speaks chat completions at `base_url`, may reach loopback, and serves `m` as `up-m`.
pub(crate) fn channel(base_url: &str) -> Channel {
    Channel {
        id: ChannelId::from_parts(Timestamp(1), [1; 10]),
        owner: Owner::Database,
        spec: ChannelSpec {
            name: "one".to_owned(),
            base_url: base_url.to_owned(),
            learn_unsupported: false,
            private_network: true,
            serves: vec![ModelMapping { model: "m".to_owned(), upstream: "up-m".to_owned(), ..ModelMapping::default() }],
            ..ChannelSpec::default()
        },
        needs_private_network: false,
        proxy: None,
        client_key: None,
        accounts: vec![Arc::new(account(1))],
    }
}

/// An account whose credential must not appear in any output.
pub(crate) fn account(number: u8) -> Account {
    Account {
        id: AccountId::from_parts(Timestamp(1), [number; 10]),
        spec: AccountSpec { name: format!("account-{number}"), ..AccountSpec::default() },
        credential: Some(Secret::new("sk-upstream-secret".to_owned())),
    }
}

/// A non-streaming chat call to `base_url`.
pub(crate) fn call(base_url: &str) -> UpstreamCall {
    UpstreamCall {
        request_id: RequestId::from_parts(Timestamp(1), [9; 10]),
        by: None,
        channel: Arc::new(channel(base_url)),
        account: Arc::new(account(1)),
        protocol: Protocol::OpenAi,
        method: Method::Chat,
        upstream_model: "up-m".to_owned(),
        stream: None,
        path: "/chat/completions".to_owned(),
        forwarded: Vec::new(),
        body: Bytes::from_static(br#"{"model":"up-m","messages":[]}"#),
        sent: SentMark::default(),
    }
}

/// A clock for tests with paused time: wall-clock time advances with tokio's.
#[derive(Debug)]
pub(crate) struct PausedClock {
    started: tokio::time::Instant,
    /// Wall-clock time at the start, in microseconds.
    epoch: AtomicI64,
}

impl PausedClock {
    /// Starts in November 2026.
    pub(crate) fn start() -> Self {
        Self { started: tokio::time::Instant::now(), epoch: AtomicI64::new(1_795_000_000_000_000) }
    }

    /// Sets the wall clock forward, as an operator or a time service does.
    pub(crate) fn set_forward(&self, by: Duration) {
        self.epoch.fetch_add(i64::try_from(by.as_micros()).unwrap_or(i64::MAX), Ordering::SeqCst);
    }
}

impl Clock for PausedClock {
    fn now(&self) -> Timestamp {
        let micros = i64::try_from(self.started.elapsed().as_micros()).unwrap_or(i64::MAX);
        Timestamp(self.epoch.load(Ordering::SeqCst) + micros)
    }

    fn instant(&self) -> tokio::time::Instant {
        tokio::time::Instant::now()
    }
}

/// An in-memory key store that counts look-ups and can be made unreachable.
#[derive(Debug, Default)]
pub(crate) struct MemoryKeys {
    pub(crate) rows: Mutex<HashMap<[u8; 32], Key>>,
    pub(crate) asked: AtomicUsize,
    pub(crate) unreachable: AtomicBool,
    pub(crate) slow: AtomicBool,
}

#[async_trait]
impl KeyStore for MemoryKeys {
    async fn find(&self, hash: &KeyHash) -> Result<Option<Key>, StoreError> {
        self.asked.fetch_add(1, Ordering::SeqCst);
        if self.slow.load(Ordering::SeqCst) {
            std::future::pending::<()>().await;
        }
        if self.unreachable.load(Ordering::SeqCst) {
            return Err(StoreError::Unreachable { database: "test".to_owned(), detail: "gone".to_owned() });
        }
        Ok(self.rows.lock().unwrap().get(&hash.0).cloned())
    }

    async fn list(&self) -> Result<Vec<Key>, StoreError> {
        Ok(Vec::new())
    }
}

/// Shared state with one key ([`SECRET`]) and the system clock.
pub(crate) fn shared(settings: Settings, catalog: Catalog) -> Arc<Shared> {
    let store = MemoryKeys::default();
    store.rows.lock().unwrap().insert(hasher().hash(SECRET).0, key());
    shared_with(Arc::new(store), settings, catalog, Arc::new(SystemClock))
}

fn hasher() -> KeyHasher {
    KeyHasher::new(&[7; 32])
}

/// Shared state in front of a key store.
pub(crate) fn shared_with(store: Arc<dyn KeyStore>, settings: Settings, catalog: Catalog, clock: Arc<dyn Clock>) -> Arc<Shared> {
    let (tracker, trust) = (TaskTracker::new(), Arc::new(Trust::within(settings.addresses.clone())));
    Arc::new(Shared {
        catalog: ArcSwap::from_pointee(catalog),
        keys: Authenticator::new(store, hasher(), &settings, clock.clone(), Handle::current(), tracker.clone()),
        metrics: Metrics::new("0.0.0"),
        request_log: crate::state::request_log::RequestLog::off(),
        counters: tollgate_store::counters_in_memory(&tollgate_store::Spending::default(), Duration::from_mins(11)),
        alerts: AlertQueue::default(),
        traces: crate::state::trace_queue::TraceQueue::default(),
        contents: crate::state::content_queue::ContentQueue::default(),
        traffic: Traffic::new(clock.clone(), Arc::clone(&trust)),
        square_requests: AddressRate::for_square(settings.square_requests_per_minute, clock.instant()),
        retries: RetryBudget::new(clock.instant()),
        clock,
        trust,
        settings: ArcSwap::from_pointee(settings),
        serving: Arc::default(),
        tracker,
    })
}
