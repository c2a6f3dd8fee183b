//! Composition root: builds the store, journal, counters and shared gateway state from settings.

use std::{future::Future, path::Path, sync::Arc, time::Duration};

use arc_swap::ArcSwap;
use tokio::runtime::{Builder, Handle, Runtime};
use tokio_util::task::TaskTracker;
use tollgate_core::{Catalog, GroupId, NanoUsd, Secret, Timestamp};
use tollgate_gateway::{
    clock::{Clock as _, SystemClock},
    serving_state::ServingState,
    state::{
        address_rate::AddressRate, alert_queue::AlertQueue, authenticator::Authenticator, content_queue::ContentQueue,
        metrics::Metrics, request_log::RequestLog, retry_budget::RetryBudget, shared::Shared, trace_queue::TraceQueue,
        traffic::Traffic,
    },
    upstream::client::Trust,
};
use tollgate_store::{
    AccessMode, Actor, BackupFolder, ChangeOrigin, Counters, DataFolderLock, ErrorClass, Journal, JournalError, JournalFolder,
    JournalOptions, JournalSync, LedgerPosition, MasterKeySource, OpenOptions, RandomSource, RecoveryReport, RedisAddress,
    RedisOptions, RedisWorker, SharedAccessReports, SharedHealth, Store, StoreUrl, counters_in_redis,
};
use uuid::Uuid;

use crate::{
    cli::Common,
    config::{self, Config, ConfigOverrides},
    failure::Failure,
    gateway_settings,
};

/// Reads the settings; `flags` override all other sources.
pub(crate) fn settings(common: &Common, flags: &[(&'static str, String)]) -> Result<Config, Failure> {
    let mut flags = flags.to_vec();
    if let Some(data) = &common.data {
        flags.push(("server.data", data.display().to_string()));
    }
    config::load(&ConfigOverrides { file: common.config.clone(), flags }).map_err(Failure::Invalid)
}

pub(crate) fn now() -> Timestamp {
    SystemClock.now()
}

/// Current time of the monotonic clock.
pub(crate) fn instant() -> tokio::time::Instant {
    SystemClock.instant()
}

/// Actor recorded for changes from the command line.
pub(crate) fn actor() -> Actor {
    Actor::local(ChangeOrigin::Cli, "command line")
}

pub(crate) fn runtime() -> Result<Runtime, Failure> {
    Builder::new_multi_thread()
        .worker_threads(2)
        .thread_name("background")
        .enable_all()
        .build()
        .map_err(|error| Failure::Machine(format!("cannot start threads: {error}")))
}

/// Runs a future to completion on a new runtime.
pub(crate) fn block_on<T>(future: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    runtime()?.block_on(future)
}

/// Opens the store for one command; a gateway may be running on it. There must be a database: a misspelled `--data` must not
/// create one.
pub(crate) async fn open(common: &Common) -> Result<Store, Failure> {
    open_required(&settings(common, &[])?).await
}

/// Opens the store of these settings for one command. There must be a database.
pub(crate) async fn open_required(config: &Config) -> Result<Store, Failure> {
    open_existing(config).await?.ok_or_else(|| {
        Failure::Machine(format!(
            "there is no database in {}; name the gateway's folder with --data, or start one there with `tollgate serve`",
            config.data.display()
        ))
    })
}

/// Opens the database of these settings for one command, if there is one.
pub(crate) async fn open_existing(config: &Config) -> Result<Option<Store>, Failure> {
    if config.database_url.is_none() && !database_file(&config.data).exists() {
        return Ok(None);
    }
    open_as(config, AccessMode::Command).await.map(Some)
}

/// A new database in memory.
pub(crate) async fn open_in_memory() -> Result<Store, Failure> {
    let options = OpenOptions {
        url: StoreUrl::Memory,
        data: std::path::PathBuf::new(),
        master: MasterKeySource::DataFolder,
        access: AccessMode::Command,
        random: RandomSource::system(),
        now: now(),
        without_database: None,
    };
    Ok(tollgate_store::open(options).await?)
}

fn database_file(data: &Path) -> std::path::PathBuf {
    data.join("tollgate.db")
}

/// Access mode for serving: alone, or as one of several nodes.
pub(crate) fn access(config: &Config) -> AccessMode {
    if config.redis_url.is_some() { AccessMode::Node } else { AccessMode::Serve }
}

/// Background work for counters in Redis.
pub(crate) struct RedisTasks {
    pub(crate) work: RedisWorker,
    /// Cooldowns shared between nodes.
    pub(crate) health: SharedHealth,
    /// Revoked and disabled keys and suspended members, shared between nodes.
    pub(crate) access: SharedAccessReports,
}

/// Counters initialised with current spending, in this process or shared in Redis. `beside` names this process if another one of
/// its node still runs.
pub(crate) async fn counters(
    config: &Config,
    store: &Store,
    beside: Option<String>,
) -> Result<(Arc<dyn Counters>, LedgerPosition, Option<RedisTasks>), Failure> {
    let ttl = reservation_ttl(config);
    let Some(address) = redis_address(config)? else {
        let (counters, ledger) = store.counters(now(), ttl).await?;
        return Ok((counters, ledger, None));
    };
    let spending = store.ledger.spending(now()).await?;
    let identity = tollgate_store::node_identity(&config.data)?;
    let options = RedisOptions {
        address: address.clone(),
        namespace: store.namespace(),
        identity,
        beside,
        reservation_ttl: ttl,
        nodes: config.number("redis.nodes"),
        random: RandomSource::system(),
        clock: now,
        instant,
    };
    let health = SharedHealth::new(&address, &options.namespace)?;
    let access = SharedAccessReports::new(&address, &options.namespace, access_reports_kept(config))?;
    let (counters, work) = counters_in_redis(options, &spending, Arc::clone(&store.ledger)).await?;
    Ok((counters, spending.ledger, Some(RedisTasks { work, health, access })))
}

/// How long revoked and disabled keys and suspended members are shared: as long as a node may serve without the database, and at
/// least a week.
fn access_reports_kept(config: &Config) -> Duration {
    Duration::from_secs(config.number("degraded.max_age_s")).max(Duration::from_hours(7 * 24))
}

pub(crate) fn redis_address(config: &Config) -> Result<Option<RedisAddress>, Failure> {
    let Some(url) = config.redis_url.clone() else { return Ok(None) };
    let ca = match config.text("redis.ca") {
        "" => None,
        path => Some(std::fs::read(path).map_err(|error| Failure::invalid(format!("redis.ca: {path} cannot be read: {error}")))?),
    };
    Ok(Some(RedisAddress { url, ca }))
}

pub(crate) fn store_url(config: &Config) -> Result<StoreUrl, Failure> {
    match &config.database_url {
        Some(url) => Ok(StoreUrl::parse(url)?),
        None => Ok(StoreUrl::Sqlite(database_file(&config.data))),
    }
}

pub(crate) async fn open_as(config: &Config, access: AccessMode) -> Result<Store, Failure> {
    open_locked(config, access, None).await
}

/// Opens the store with a lock of the data folder that was handed over.
pub(crate) async fn open_locked(config: &Config, access: AccessMode, lock: Option<DataFolderLock>) -> Result<Store, Failure> {
    let url = store_url(config)?;
    let master = master_key(config)?;
    let cache_max_age = match (access, config.number("degraded.max_age_s")) {
        (AccessMode::Command, _) | (_, 0) => None,
        (AccessMode::Serve | AccessMode::Node, seconds) => Some(Duration::from_secs(seconds)),
    };
    let (data, random, now) = (config.data.clone(), RandomSource::system(), now());
    let options = OpenOptions { url, data, master, access, random, now, without_database: cache_max_age };
    Ok(tollgate_store::open_locked(options, lock).await?)
}

/// Source of the master key.
pub(crate) fn master_key(config: &Config) -> Result<MasterKeySource, Failure> {
    match config.master_key.as_deref() {
        None => Ok(MasterKeySource::DataFolder),
        Some(text) => match text.strip_prefix("file:") {
            Some(path) => Ok(MasterKeySource::File(path.into())),
            None => config::reference(text)
                .map(|text| MasterKeySource::Text(Secret::new(text)))
                .map_err(|fault| Failure::invalid(format!("database.master_key: {fault}"))),
        },
    }
}

/// The folder of the backups that a running gateway makes.
pub(crate) fn backup_folder(config: &Config) -> BackupFolder {
    match config.text("backup.folder") {
        "" => BackupFolder::of(&config.data),
        path => BackupFolder::at(path.into()),
    }
}

pub(crate) fn journal_folder(data: &Path) -> std::path::PathBuf {
    tollgate_store::journal_folder(data)
}

/// Opens and recovers the journal, in a folder that no other process writes.
pub(crate) fn journal(config: &Config) -> Result<(Journal, RecoveryReport, JournalFolder), Failure> {
    let folder = JournalFolder::claim(&journal_folder(&config.data)).map_err(|error| journal_failure(&error))?;
    let options = JournalOptions {
        max_bytes: config.number("journal.max_bytes"),
        sync: if config.journal_group_sync { JournalSync::Group } else { JournalSync::Background },
        ..JournalOptions::new(folder.path().to_owned(), Uuid::nil())
    };
    let (journal, recovery) = Journal::open(options).map_err(|error| journal_failure(&error))?;
    Ok((journal, recovery, folder))
}

pub(crate) fn journal_failure(error: &JournalError) -> Failure {
    match error.class() {
        ErrorClass::Operator => Failure::invalid(error.to_string()),
        ErrorClass::Unreachable => Failure::Unreachable(error.to_string()),
        ErrorClass::Data => Failure::Machine(error.to_string()),
    }
}

/// Lifetime of a reservation whose request was lost.
pub(crate) fn reservation_ttl(config: &Config) -> Duration {
    gateway_settings::configured(config).reservation_ttl()
}

/// The state of a gateway that can open neither its database nor its journal yet: it knows no keys and no catalog.
pub(crate) async fn closed(config: &Config) -> Result<Arc<Shared>, Failure> {
    let store = open_in_memory().await?;
    let (counters, _) = store.counters(now(), reservation_ttl(config)).await?;
    let shared = shared(config, &store, Catalog::default(), counters, Outlets::none(), Vec::new());
    shared.serving.set_without_catalog(true);
    shared.serving.set_disk_full(true);
    Ok(shared)
}

/// Destinations of reports about requests, besides usage records.
pub(crate) struct Outlets {
    pub(crate) alerts: AlertQueue,
    pub(crate) request_log: RequestLog,
    pub(crate) traces: TraceQueue,
    pub(crate) contents: ContentQueue,
}

impl Outlets {
    /// Outlets that discard everything.
    fn none() -> Self {
        let (traces, contents) = (TraceQueue::default(), ContentQueue::default());
        Self { alerts: AlertQueue::default(), request_log: RequestLog::off(), traces, contents }
    }
}

pub(crate) fn shared(
    config: &Config,
    store: &Store,
    catalog: Catalog,
    counters: Arc<dyn Counters>,
    outlets: Outlets,
    hedged: Vec<(GroupId, NanoUsd)>,
) -> Arc<Shared> {
    let settings = gateway_settings::fitted(config);
    let clock = Arc::new(SystemClock);
    let tracker = TaskTracker::new();
    let keys = Authenticator::new(
        Arc::clone(&store.keys),
        store.hasher.clone(),
        &settings,
        Arc::clone(&clock) as _,
        Handle::current(),
        tracker.clone(),
    );
    let trust = Arc::new(Trust::within(settings.addresses.clone()));
    let square_requests = AddressRate::for_square(settings.square_requests_per_minute, clock.instant());
    let traffic = Traffic::new(Arc::clone(&clock) as _, Arc::clone(&trust));
    traffic.hedged_before(hedged, now().day());
    let Outlets { alerts, request_log, traces, contents } = outlets;
    let metrics = Metrics::new(env!("CARGO_PKG_VERSION"));
    Arc::new(Shared {
        catalog: ArcSwap::from_pointee(catalog),
        keys,
        metrics: if config.otlp_endpoint.is_some() { metrics.with_gen_ai() } else { metrics },
        request_log,
        counters,
        alerts,
        traces,
        contents,
        traffic,
        retries: RetryBudget::new(clock.instant()),
        square_requests,
        clock,
        trust,
        settings: ArcSwap::from_pointee(settings),
        serving: Arc::new(ServingState::default()),
        tracker,
    })
}
