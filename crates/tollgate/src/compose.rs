//! Composition root: builds the store, journal, counters and shared gateway state from settings.

use std::{
    future::Future,
    net::{Ipv4Addr, SocketAddr},
    path::Path,
    sync::Arc,
    time::Duration,
};

use arc_swap::ArcSwap;
use http::HeaderValue;
use tokio::runtime::{Builder, Handle, Runtime};
use tokio_util::task::TaskTracker;
use tollgate_console::{Appearance, DisplayCurrency, IdentitySettings, OidcSettings, Registration, SessionTimes};
use tollgate_core::{AddressLists, Catalog, GroupId, NanoUsd, Redaction, Secret, Timestamp};
use tollgate_gateway::{
    clock::{Clock as _, SystemClock},
    serving_state::ServingState,
    settings::{Bounds, ContentSettings, CorsOrigins, HttpLimits, MetricsAccess, Settings, TlsFiles, UpstreamLimits},
    state::address_rate::AddressRate,
    state::alert_queue::AlertQueue,
    state::authenticator::Authenticator,
    state::content_queue::ContentQueue,
    state::request_log::RequestLog,
    state::trace_queue::TraceQueue,
    state::{metrics::Metrics, retry_budget::RetryBudget, shared::Shared, traffic::Traffic},
    upstream::client::Trust,
};
use tollgate_store::{
    AccessMode, Actor, BackupFolder, ChangeOrigin, Counters, DataFolderLock, ErrorClass, Journal, JournalError, JournalFolder,
    JournalOptions, JournalSync, LedgerPosition, MasterKeySource, OpenOptions, RandomSource, RecoveryReport, RedisAddress,
    RedisOptions, RedisWorker, SharedAccessReports, SharedHealth, Store, StoreUrl, counters_in_redis,
};
use url::Url;
use uuid::Uuid;

use crate::{
    cli::Common,
    config::{self, Config, ConfigOverrides},
    descriptors,
    failure::Failure,
    logging,
};

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
    configured(config).reservation_ttl()
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
    let settings = gateway_settings(config);
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

/// Settings of the members' sign-in. `address` is the listening address of the console.
pub(crate) fn identity(config: &Config, address: SocketAddr) -> Result<IdentitySettings, Failure> {
    Ok(IdentitySettings { oidc: oidc(config)?, url: console_url(config, address) })
}

/// How long members stay signed in.
pub(crate) fn session_times(config: &Config) -> SessionTimes {
    let ms = |path: &str, unit: i64| i64::try_from(config.number(path)).unwrap_or(i64::MAX).saturating_mul(unit);
    SessionTimes {
        idle_ms: ms("console.session_idle_minutes", 60_000),
        max_ms: ms("console.session_max_hours", 3_600_000),
        can_remember: config.flag("console.remember_me"),
    }
}

/// How people become members.
pub(crate) fn registration(config: &Config) -> Registration {
    let per_hour = u32::try_from(config.number("access.registrations_per_hour")).unwrap_or(u32::MAX);
    let (group, billing) = (config.text("access.registration_group"), config.text("access.registration_billing"));
    Registration::of(config.text("access.registration"), group, billing, per_hour)
}

/// The currency in which pages show amounts.
pub(crate) fn currency(config: &Config) -> DisplayCurrency {
    DisplayCurrency::of(config.text("console.currency"), config.text("console.currency_per_usd"))
}

/// How pages look.
pub(crate) fn appearance(config: &Config) -> Appearance {
    let announcement = (config.text("console.announcement"), config.text("console.announcement_level"));
    let names = (config.text("console.display_name"), config.text("console.logo"));
    let (language, time_zone) = (config.text("console.language"), config.text("console.time_zone"));
    Appearance::of(names, announcement, config.text("console.home_text"), language, time_zone)
}

/// The OpenID provider of the settings.
fn oidc(config: &Config) -> Result<Option<OidcSettings>, Failure> {
    if config.text("oidc.issuer").is_empty() {
        return Ok(None);
    }
    let text = |path: &str| Some(config.text(path).to_owned()).filter(|text| !text.is_empty());
    let list = |path: &str| -> Vec<String> {
        config.text(path).split(',').map(|item| item.trim().to_owned()).filter(|item| !item.is_empty()).collect()
    };
    let secret = text("oidc.client_secret").map(|text| config::reference(&text)).transpose();
    let secret = secret.map_err(|fault| Failure::invalid(format!("oidc.client_secret: {fault}")))?;
    let pair = |item: String| item.split_once('=').map(|(value, group)| (value.trim().to_owned(), group.trim().to_owned()));
    Ok(Some(OidcSettings {
        name: config.text("oidc.display_name").to_owned(),
        issuer: config.text("oidc.issuer").to_owned(),
        client_id: config.text("oidc.client_id").to_owned(),
        client_secret: secret.map(Secret::new),
        scopes: config.text("oidc.scopes").to_owned(),
        role_claim: text("oidc.role_claim"),
        admins: list("oidc.admins"),
        operators: list("oidc.operators"),
        members: list("oidc.members"),
        group_claim: text("oidc.group_claim"),
        groups: list("oidc.groups").into_iter().filter_map(pair).collect(),
        domains: list("oidc.domains"),
        create_members: config.flag("oidc.create_members"),
    }))
}

/// Address of the console for browsers: the setting, else where it listens.
pub(crate) fn console_url(config: &Config, address: SocketAddr) -> Url {
    if let Some(url) = &config.console_url {
        return url.clone();
    }
    let has_tls = if config.console.is_some() { config.console_tls.is_some() } else { config.tls.is_some() };
    let scheme = if has_tls { "https" } else { "http" };
    let mut reachable = address;
    if address.ip().is_unspecified() {
        reachable.set_ip(Ipv4Addr::LOCALHOST.into());
    }
    Url::parse(&format!("{scheme}://{reachable}/")).expect("a scheme and a socket address are a URL")
}

/// Certificates and keys that the settings name.
pub(crate) fn tls_files(config: &Config) -> impl Iterator<Item = TlsFiles> {
    let files = [config.tls.clone(), config.console_tls.clone()];
    files.into_iter().flatten().map(|(certificate, key)| TlsFiles { certificate, key })
}

/// The addresses that outgoing connections may have.
pub(crate) fn addresses(config: &Config) -> AddressLists {
    AddressLists::new(config.networks("upstream.allowed_addresses"), config.networks("upstream.denied_addresses"))
}

/// Origins of pages that may call the model API.
fn cors_origins(config: &Config) -> CorsOrigins {
    let origins = config.origins("server.cors_origins");
    if origins == ["*"] {
        return CorsOrigins::Any;
    }
    // Checked when it was read.
    CorsOrigins::Of(origins.into_iter().filter_map(|origin| HeaderValue::from_str(origin).ok()).collect())
}

/// The settings of the gateway. Fitted to the limit of open files.
pub(crate) fn gateway_settings(config: &Config) -> Settings {
    let mut settings = configured(config);
    descriptors::apply(&mut settings.http);
    settings
}

/// The settings of the gateway, before they are adjusted to the limit of open files.
pub(crate) fn configured(config: &Config) -> Settings {
    let per_address = config.count("server.max_connections_per_address");
    let connections = config.count("server.max_connections");
    Settings {
        listen: config.listen,
        cores: config.cores,
        tls: config.tls.clone().map(|(certificate, key)| TlsFiles { certificate, key }),
        http: HttpLimits {
            connections,
            requests: config.count("limits.in_flight"),
            connections_per_address: if per_address == 0 { connections } else { per_address },
            header_timeout: config.millis("server.header_timeout_ms"),
            idle_timeout: config.millis("server.idle_timeout_ms"),
            header_bytes: config.count("server.header_bytes"),
            header_count: config.count("server.header_count"),
            target_bytes: config.count("server.target_bytes"),
            trusted_proxies: config.networks("server.trusted_proxies"),
            ..HttpLimits::default()
        },
        bounds: Bounds {
            body_bytes: config.count("limits.body_bytes"),
            body_timeout: config.millis("server.body_timeout_ms"),
            body_total_timeout: config.millis("server.body_total_timeout_ms"),
            min_rate: config.number("server.min_bytes_per_s"),
        },
        upstream: UpstreamLimits {
            total: config.millis("upstream.total_timeout_ms"),
            keep_alive: config.millis("upstream.keep_alive_ms"),
            answer_after: config.millis("upstream.answer_after_ms"),
            stall: config.millis("upstream.stall_timeout_ms"),
        },
        addresses: addresses(config),
        body_memory_bytes: config.count("limits.body_memory_bytes"),
        budgets: config.budgets.clone(),
        logged: logging::selection(config),
        wrong_keys_per_minute: u32::try_from(config.number("limits.wrong_keys_per_minute")).unwrap_or(u32::MAX),
        square_requests_per_minute: u32::try_from(config.number("square.requests_per_minute")).unwrap_or(u32::MAX),
        metrics: match config.console {
            Some(_) => MetricsAccess::OnConsoleAddress,
            None if config.flag("metrics.public") => MetricsAccess::Public,
            None => MetricsAccess::Guarded,
        },
        pages_origin: config
            .console
            .and_then(|address| HeaderValue::try_from(console_url(config, address).origin().ascii_serialization()).ok()),
        cors: cors_origins(config),
        base_path: config.base_path().to_owned(),
        drain: config.millis("server.drain_timeout_ms"),
        end_revoked_streams: config.text("limits.revoked_streams") == "end",
        contents: ContentSettings {
            store: config.flag("contents.store"),
            max_bytes: config.count("contents.max_bytes"),
            total_bytes: config.number("contents.total_bytes"),
            // Checked when it was read.
            redact: Some(config.text("contents.redact")).filter(|text| !text.is_empty()).and_then(|text| Redaction::new(text).ok()),
        },
        ..Settings::default()
    }
}
