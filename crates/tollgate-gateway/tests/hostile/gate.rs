//! The gateway under test: the whole model path in process, with the echo channel.

use std::{net::SocketAddr, sync::Arc};

use arc_swap::ArcSwap;
use async_trait::async_trait;
use tempfile::TempDir;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    runtime::Handle,
};
use tokio_util::{
    sync::{CancellationToken, DropGuard},
    task::TaskTracker,
};
use tollgate_core::{
    Account, AccountHealth, AccountId, AccountSpec, Catalog, Channel, ChannelId, ChannelSpec, Group, GroupId, Key, KeyId, Member,
    MemberId, ModelMapping, Owner, Provider, RequestId, Revision, Timestamp, UsageRecord,
};
use tollgate_gateway::{
    background::usage_writer::UsageWriter,
    clock::{Clock, SystemClock},
    fallback::NotFound,
    path::Worker,
    server::{listen, run},
    settings::Settings,
    state::{
        authenticator::Authenticator, health_registry::HealthRegistry, metrics::Metrics, shared::Shared,
        usage_recorder::UsageRecorder,
    },
    upstream::{
        client::{Client, Trust},
        echo::UpstreamDispatch,
    },
};
use tollgate_store::{
    AttemptFilter, AttemptsBy, AttemptsRow, BATCH_SIZE, BookedRecords, Grouping, HealthStore, Journal, JournalOptions, KeyHash,
    KeyHasher, KeyStore, KeyUse, KeyUseFilter, LastUse, LogPosition, Page, StoreError, Summary, UsageFilter, UsageStore,
};

use crate::corpus::Names;

const SECRET: &str = "tg-a-key-of-the-tests-0123456789";

/// A running gateway and an address it must not connect to.
#[derive(Debug)]
pub(crate) struct Gate {
    pub(crate) address: SocketAddr,
    pub(crate) names: Names,
    pub(crate) tracker: TaskTracker,
    canary: std::net::TcpListener,
    _stop: DropGuard,
    _dir: TempDir,
}

/// A store with one key; all writes are discarded.
#[derive(Debug)]
struct Memory {
    hash: [u8; 32],
    key: Key,
}

#[async_trait]
impl KeyStore for Memory {
    async fn find(&self, hash: &KeyHash) -> Result<Option<Key>, StoreError> {
        Ok((hash.0 == self.hash).then(|| self.key.clone()))
    }

    async fn list(&self) -> Result<Vec<Key>, StoreError> {
        Ok(vec![self.key.clone()])
    }
}

#[async_trait]
impl UsageStore for Memory {
    async fn append(&self, records: &[UsageRecord]) -> Result<u64, StoreError> {
        Ok(records.len() as u64)
    }

    fn batch_size(&self) -> usize {
        BATCH_SIZE
    }

    async fn create_partitions(&self, _now: Timestamp, _keep_days: u64) -> Result<u64, StoreError> {
        Ok(0)
    }

    async fn prune(&self, _before: Timestamp) -> Result<Option<u64>, StoreError> {
        Ok(None)
    }

    async fn log_time(&self) -> Result<Option<Timestamp>, StoreError> {
        Ok(None)
    }

    async fn set_log_time(&self, _known: Option<Timestamp>, _time: Timestamp) -> Result<bool, StoreError> {
        Ok(false)
    }

    async fn page(&self, _filter: &UsageFilter) -> Result<Page<UsageRecord>, StoreError> {
        Ok(Page { items: Vec::new(), next: None, searched_until: None })
    }

    async fn find(&self, _id: RequestId) -> Result<Option<UsageRecord>, StoreError> {
        Ok(None)
    }

    async fn booked_after(&self, _after: Option<LogPosition>, _limit: usize) -> Result<BookedRecords, StoreError> {
        Ok(BookedRecords::default())
    }

    async fn known(&self, _ids: &[RequestId]) -> Result<std::collections::HashSet<RequestId>, StoreError> {
        Ok(std::collections::HashSet::new())
    }

    async fn counted_summary(&self, _filter: &UsageFilter, _by: Grouping) -> Result<Summary, StoreError> {
        Ok(Summary::default())
    }

    async fn attempts(&self, _filter: &AttemptFilter, _by: (AttemptsBy, AttemptsBy)) -> Result<Vec<AttemptsRow>, StoreError> {
        Ok(Vec::new())
    }

    async fn key_use(&self, _filter: KeyUseFilter, _keys: Option<Vec<KeyId>>) -> Result<Vec<(KeyId, KeyUse)>, StoreError> {
        Ok(Vec::new())
    }

    async fn unused_keys(&self, _filter: KeyUseFilter, keys: Vec<KeyId>) -> Result<Vec<KeyId>, StoreError> {
        Ok(keys)
    }

    async fn last_use(&self, _keys: Vec<KeyId>) -> Result<Vec<(KeyId, LastUse)>, StoreError> {
        Ok(Vec::new())
    }

    async fn last_requests(&self, _keys: Vec<KeyId>, _most: usize) -> Result<Vec<(KeyId, Timestamp)>, StoreError> {
        Ok(Vec::new())
    }

    async fn last_use_of_members(&self, _members: Vec<MemberId>, _most: usize) -> Result<Vec<(MemberId, Timestamp)>, StoreError> {
        Ok(Vec::new())
    }
}

#[async_trait]
impl HealthStore for Memory {
    async fn load_health(&self) -> Result<Vec<(AccountId, AccountHealth)>, StoreError> {
        Ok(Vec::new())
    }

    async fn save_health(&self, _health: &[(AccountId, AccountHealth)], _now: Timestamp) -> Result<(), StoreError> {
        Ok(())
    }

    async fn save_test(&self, _account: AccountId, _now: Timestamp) -> Result<(), StoreError> {
        Ok(())
    }

    async fn load_tests(&self) -> Result<Vec<(AccountId, Timestamp)>, StoreError> {
        Ok(Vec::new())
    }
}

impl Gate {
    /// Starts one on a free port.
    pub(crate) async fn open() -> Self {
        let settings = Settings { listen: SocketAddr::from(([127, 0, 0, 1], 0)), cores: 1, ..Settings::default() };
        let listening = listen(&settings).unwrap();
        let address = listening.address();
        let hasher = KeyHasher::new(&[7; 32]);
        let channel = channel();
        let group = group(&channel);
        let store = Arc::new(Memory { hash: hasher.hash(SECRET).0, key: key(group.id) });
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        let tracker = TaskTracker::new();
        let keys = Authenticator::new(store.clone(), hasher, &settings, clock.clone(), Handle::current(), tracker.clone());
        let trust = Arc::new(Trust::default());
        let shared = Arc::new(Shared {
            catalog: ArcSwap::from_pointee(Catalog::from_parts(Revision(1), vec![channel], vec![group], Vec::new())),
            keys,
            metrics: Metrics::new("test"),
            request_log: tollgate_gateway::state::request_log::RequestLog::off(),
            counters: tollgate_store::counters_in_memory(&tollgate_store::Spending::default(), std::time::Duration::from_mins(11)),
            alerts: tollgate_gateway::state::alert_queue::AlertQueue::default(),
            traces: tollgate_gateway::state::trace_queue::TraceQueue::default(),
            contents: tollgate_gateway::state::content_queue::ContentQueue::default(),
            traffic: tollgate_gateway::state::traffic::Traffic::new(clock.clone(), Arc::clone(&trust)),
            square_requests: tollgate_gateway::state::address_rate::AddressRate::for_square(
                settings.square_requests_per_minute,
                clock.instant(),
            ),
            retries: tollgate_gateway::state::retry_budget::RetryBudget::new(clock.instant()),
            clock: clock.clone(),
            trust: Arc::clone(&trust),
            settings: ArcSwap::from_pointee(settings),
            serving: Arc::default(),
            tracker: tracker.clone(),
        });
        let dir = TempDir::new().unwrap();
        let (journal, recovered) = Journal::open(JournalOptions::new(dir.path().to_owned(), uuid::Uuid::nil())).unwrap();
        let (journal, registry) = (Arc::new(journal), Arc::new(HealthRegistry::default()));
        let (queue, writer) =
            UsageWriter::new(store.clone(), store, Arc::clone(&journal), Arc::clone(&registry), Arc::clone(&shared));
        let stop = CancellationToken::new();
        tracker.spawn(writer.run(recovered.records, stop.clone()));
        let for_path = Arc::clone(&shared);
        let path = move |core| {
            let recorder = UsageRecorder::open(Arc::clone(&for_path), &journal, core, queue.clone(), Arc::clone(&registry))?;
            let client = Client::new(Arc::clone(&trust), clock.clone()).with_journal(&recorder.journal);
            Ok(Worker::new(recorder, Arc::new(UpstreamDispatch::new(client, clock.clone()))).map_err(|fault| fault.to_string())?)
        };
        tracker.spawn(run(shared, listening, path, Arc::new(NotFound), stop.clone()));
        let canary = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        canary.set_nonblocking(true).unwrap();
        let names = Names { host: address.to_string(), key: SECRET, canary: canary.local_addr().unwrap().to_string() };
        let gate = Self { address, names, tracker, canary, _stop: stop.drop_guard(), _dir: dir };
        gate.health().await.expect("the gateway starts");
        gate
    }

    /// Whether `/healthz` answers on a new connection within 10 s. The error says what happened instead.
    pub(crate) async fn health(&self) -> Result<(), String> {
        let asked = async {
            let mut socket = TcpStream::connect(self.address).await?;
            socket.write_all(b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").await?;
            let mut answer = String::new();
            socket.read_to_string(&mut answer).await?;
            std::io::Result::Ok(answer)
        };
        match tokio::time::timeout(std::time::Duration::from_secs(10), asked).await {
            Ok(Ok(answer)) if answer.starts_with("HTTP/1.1 200 ") => Ok(()),
            Ok(Ok(answer)) => Err(format!("it answered {answer:?}")),
            Ok(Err(error)) => Err(error.to_string()),
            Err(_) => Err("it did not answer".to_owned()),
        }
    }

    /// Whether the gateway connected to the address in the inputs.
    pub(crate) fn called_out(&self) -> bool {
        self.canary.accept().is_ok()
    }
}

fn channel() -> Channel {
    let account = Account {
        id: AccountId::from_parts(Timestamp(1), [1; 10]),
        spec: AccountSpec { name: "echo".to_owned(), ..AccountSpec::default() },
        credential: None,
    };
    Channel {
        id: ChannelId::from_parts(Timestamp(1), [1; 10]),
        owner: Owner::Database,
        spec: ChannelSpec {
            name: "echo".to_owned(),
            provider: Provider::Echo,
            cooling: false,
            learn_unsupported: false,
            serves: vec![ModelMapping { model: "echo".to_owned(), upstream: "echo".to_owned(), ..ModelMapping::default() }],
            ..ChannelSpec::default()
        },
        needs_private_network: false,
        proxy: None,
        client_key: None,
        accounts: vec![Arc::new(account)],
    }
}

fn group(channel: &Channel) -> Group {
    Group::new(GroupId::from_parts(Timestamp(1), [1; 10]), "default", vec![channel.id])
}

fn key(group: GroupId) -> Key {
    let member = Member { granted: vec![group], ..Member::new(MemberId::from_parts(Timestamp(1), [1; 10]), "owner") };
    Key {
        prefix: "tg-a-key-o".to_owned(),
        suffix: "6789".to_owned(),
        ..Key::new(KeyId::from_parts(Timestamp(1), [1; 10]), "first", member, Timestamp(1))
    }
}
