//! `serve`: starts the gateway and stops it on SIGTERM or SIGINT.

mod announcement;
mod ending;

use std::sync::Arc;

use tokio::{
    signal::unix::{SignalKind, signal},
    sync::mpsc,
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tollgate_core::{Catalog, Timestamp, catalog_warnings};
use tollgate_gateway::{
    background::{
        health_recorder::HealthRecorder,
        probes::Probes,
        telemetry::Telemetry,
        usage_writer::{UsageBacklog, UsageWriter, replay},
    },
    path::Worker,
    server::{Listening, run as run_cores},
    state::{
        alert_queue::AlertQueue, health_records::HealthRecords, health_registry::HealthRegistry, request_log::LogThread,
        shared::Shared, usage_recorder::UsageQueue, usage_recorder::UsageRecorder,
    },
    upstream::{
        client::{Client, Trust},
        echo::UpstreamDispatch,
    },
};
use tollgate_store::{
    AccessReport, Actor, Change, ChangeOrigin, Counters, DiskReserve, Journal, JournalFolder, LedgerPosition, Store, StoreError,
    UnbookedRecords,
};

use announcement::announce;
pub(crate) use ending::cannot_run;
use ending::{exit_status, leave_database, report_open_reservations};

use crate::{
    access_share,
    alerting::{self, Alerting, Sources},
    catalog_watch,
    cli::{Common, Serve},
    compose::{self, Outlets, RedisTasks},
    config::Config,
    console, database_watch, disk_watch,
    failure::Failure,
    first_start, full_disk, health_share, key_watch, ledger_watch,
    live_settings::{self, LiveSettings},
    logging, retention, runtime_socket, telemetry, traffic_snapshot,
    upgrade::{
        self,
        leaving::Leaving,
        sockets::{self, Sockets},
        taking_over::TakeOver,
    },
};

/// Warnings about the catalog that are logged at the start; `check --catalog` has all of them.
const MAX_WARNINGS: usize = 10;

pub(crate) fn run(common: &Common, arguments: &Serve) -> Result<(), Failure> {
    let mut flags = Vec::new();
    if let Some(listen) = &arguments.listen {
        flags.push(("server.listen", listen.clone()));
    }
    if let Some(catalog) = &arguments.catalog {
        flags.push(("catalog.file", catalog.display().to_string()));
    }
    let config = compose::settings(common, &flags)?;
    logging::start(&config);
    let runtime = compose::runtime()?;
    let taken = arguments.upgrade.then(|| TakeOver::request(&config)).transpose()?;
    runtime.block_on(serve(common, &config, taken))
}

/// Components of a gateway, before it listens.
struct ServeComponents {
    store: Store,
    shared: Arc<Shared>,
    journal: Arc<Journal>,
    folder: Arc<JournalFolder>,
    settings: Arc<LiveSettings>,
    recovered: UnbookedRecords,
    registry: Arc<HealthRegistry>,
    /// What is recorded of the health of accounts in time.
    records: Arc<HealthRecords>,
    /// Name of this node.
    node: String,
    senders: Senders,
    /// Ledger position included in the counters.
    ledger: LedgerPosition,
    /// Background work for counters in Redis.
    redis: Option<RedisTasks>,
}

/// What sends or writes what requests leave besides their records.
struct Senders {
    alerting: Alerting,
    /// If there is a collector.
    telemetry: Option<Telemetry>,
    /// Writes the lines of requests until it is dropped.
    log: LogThread,
}

async fn serve(common: &Common, config: &Config, mut taken: Option<TakeOver>) -> Result<(), Failure> {
    let (reserve, is_upgrade) = (free_disk(config), taken.is_some());
    let Some((components, waiting)) = open(config, &reserve, &mut taken).await? else { return Ok(()) };
    let Sockets { listening, console: console_socket, predecessors, asking } =
        sockets::open(&config.data, &components.shared, &components.store, waiting, taken)?;
    let (stop_cores, stop_background) = (CancellationToken::new(), CancellationToken::new());
    // Tasks below that change the state a new process takes over end when that process serves.
    let left = stop_background.child_token();
    let background = TaskTracker::new();
    let reports = spawn_background(&background, config, &components, &left);
    #[cfg(debug_assertions)]
    background.spawn(crate::test_clock::follow(stop_background.clone()));
    let ServeComponents { store, shared, journal, folder, settings, recovered, registry, records, redis, senders, .. } = components;
    let _log = spawn_senders(&background, senders, &shared, &left, &stop_background);
    let watched = (Arc::clone(&shared), Arc::clone(&settings));
    let watching = background.spawn(database_watch::watch(store.clone(), watched.clone(), left.clone(), stop_cores.clone()));
    if let Some(tasks) = redis {
        spawn_redis(&background, tasks, reports, &store, &shared, &registry, &stop_background);
    }
    background.spawn(disk_watch::watch(reserve, Arc::clone(&journal), watched, left.clone()));
    background.spawn(end_on_signal(stop_cores.clone(), Arc::clone(&shared), stop_background.clone()));
    let stop_writer = CancellationToken::new();
    let (queue, writer) = usage_writer(&store, &journal, &registry, &shared);
    let writing = background.spawn(writer.run(recovered, stop_writer.clone()));

    let stop_jobs = stop_cores.child_token();
    background.spawn(cancel_with(left.clone(), stop_jobs.clone()));
    let known = (&shared, &registry, &records);
    let console = console::start(&settings, &store, known, listening.address(), console_socket, stop_jobs)?;
    let addresses = (listening.address(), compose::console_url(config, console.address().unwrap_or(listening.address())));
    background.spawn(runtime_socket::serve(Arc::clone(&shared), addresses, config.data.clone(), left.clone()));
    // The first process of an upgrade has shown what is shown once.
    let first_start = if is_upgrade { None } else { Some(&store) };
    announce(common, config, listening.address(), console.address(), first_start).await?;
    let leaving = Leaving {
        shared: Arc::clone(&shared),
        store: store.clone(),
        journal: Arc::clone(&journal),
        data: config.data.clone(),
        sockets: sockets::duplicates(&listening)?,
        address: listening.address(),
        console: console.own.clone(),
        console_address: config.console,
        predecessors,
        asking,
        left,
    };
    background.spawn(leaving.serve(stop_cores.clone()));
    let factory = core_factory(Arc::clone(&shared), Arc::clone(&journal), queue, Arc::clone(&registry));
    let drained = run_cores(Arc::clone(&shared), listening, factory, Arc::clone(&console.fallback), stop_cores.clone()).await;
    let is_ending_now = shared.condition.is_ending_now();
    // The cores have ended, so every record is queued: write what is left, then stop everything else.
    shared.condition.hand_over.end_moves();
    stop_cores.cancel();
    stop_writer.cancel();
    // After a panic of the writer, nothing was finished.
    let left = writing.await.unwrap_or_else(|_| UsageBacklog { waiting: journal.unbooked(), lost: journal.finish(&[]) });
    report_open_reservations(&shared);
    console.stop().await;
    stop_background.cancel();
    background.close();
    background.wait().await;
    leave_database(config, &store, (&journal, &folder), left).await;
    console.shut_down();
    // Until here the journal was written.
    drop((journal, folder));
    if let Ok(Err(failure)) = watching.await {
        return Err(failure);
    }
    exit_status(&settings.current(), drained, left, is_ending_now)
}

/// Opens everything; on a full disk as soon as there is space. Then the sockets are those on which requests were refused until
/// now. `None` if the gateway is stopped before.
async fn open(
    config: &Config,
    reserve: &DiskReserve,
    taken: &mut Option<TakeOver>,
) -> Result<Option<(ServeComponents, Option<Listening>)>, Failure> {
    let is_upgrade = taken.is_some();
    match build_components_or_give_up(config, taken).await {
        Err(failure) if !is_upgrade && full_disk::prevents(reserve, &failure) => {
            let opened = full_disk::wait(config, reserve, failure, || build_components(config, None)).await?;
            Ok(opened.map(|(components, listening)| (components, Some(listening))))
        }
        built => Ok(Some((built?, None))),
    }
}

/// Cancels the jobs of a process that has handed over: their results could not be read any more.
async fn cancel_with(left: CancellationToken, jobs: CancellationToken) {
    left.cancelled().await;
    jobs.cancel();
}

fn usage_writer(
    store: &Store,
    journal: &Arc<Journal>,
    registry: &Arc<HealthRegistry>,
    shared: &Arc<Shared>,
) -> (UsageQueue, UsageWriter) {
    UsageWriter::new(
        Arc::clone(&store.usage),
        Arc::clone(&store.health),
        Arc::clone(journal),
        Arc::clone(registry),
        Arc::clone(shared),
    )
}

/// The disk space in reserve; freed if the disk is full.
fn free_disk(config: &Config) -> DiskReserve {
    let reserve = disk_watch::reserve(config);
    if reserve.free_for_start() {
        tracing::error!(data = %config.data.display(), "the disk of the data folder is full; records wait in memory until there is space");
    }
    reserve
}

/// Starts what sends alerts and telemetry, until the last request has ended. Returns what writes the log until it is dropped.
fn spawn_senders(
    background: &TaskTracker,
    senders: Senders,
    shared: &Arc<Shared>,
    left: &CancellationToken,
    stop: &CancellationToken,
) -> LogThread {
    background.spawn(senders.alerting.run(left.clone(), stop.clone()));
    if let Some(telemetry) = senders.telemetry {
        background.spawn(telemetry.run(Arc::clone(shared), stop.clone()));
    }
    senders.log
}

/// Starts what counts in Redis and shares health and access through it; until the last request has ended.
fn spawn_redis(
    background: &TaskTracker,
    RedisTasks { work, health, access }: RedisTasks,
    reports: mpsc::Receiver<Vec<AccessReport>>,
    store: &Store,
    shared: &Arc<Shared>,
    registry: &Arc<HealthRegistry>,
    stop: &CancellationToken,
) {
    background.spawn(work.run(stop.clone()));
    background.spawn(access_share::watch(access, reports, Arc::clone(&store.catalog), Arc::clone(shared), stop.clone()));
    background.spawn(health_share::watch(health, Arc::clone(registry), Arc::clone(shared), stop.clone()));
}

/// Starts background tasks: catalog, probes, ledger, retention, traffic snapshot. Returns which keys and members
/// may be used, as it is read from the database.
fn spawn_background(
    background: &TaskTracker,
    config: &Config,
    components: &ServeComponents,
    stop: &CancellationToken,
) -> mpsc::Receiver<Vec<AccessReport>> {
    let (reports, queued) = mpsc::channel(access_share::QUEUE_CAPACITY);
    if let Some(file) = &config.catalog_file {
        background.spawn(catalog_watch::watch_file(components.store.clone(), file.clone(), stop.clone()));
    }
    background.spawn(catalog_watch::watch_database(
        components.store.clone(),
        Arc::clone(&components.shared),
        Arc::clone(&components.registry),
        Arc::clone(&components.settings),
        reports,
        stop.clone(),
    ));
    background.spawn(
        Probes {
            shared: Arc::clone(&components.shared),
            registry: Arc::clone(&components.registry),
            saved: Arc::clone(&components.store.health),
            upstream: Arc::new(Client::new(Arc::new(Trust::default()), Arc::clone(&components.shared.clock))),
        }
        .run(stop.clone()),
    );
    background.spawn(ledger_watch::watch(
        components.store.clone(),
        Arc::clone(&components.shared),
        components.ledger,
        stop.clone(),
    ));
    background.spawn(key_watch::run(components.store.clone(), stop.clone()));
    background.spawn(retention::run(components.store.clone(), Arc::clone(&components.settings), stop.clone()));
    background.spawn(
        HealthRecorder {
            shared: Arc::clone(&components.shared),
            registry: Arc::clone(&components.registry),
            store: Arc::clone(&components.store.health_history),
            records: Arc::clone(&components.records),
            node: components.node.clone(),
        }
        .run(stop.clone()),
    );
    background.spawn(traffic_snapshot::run(Arc::clone(&components.shared), config.data.clone(), stop.clone()));
    background.spawn(upgrade::adopt::watch(
        Arc::clone(&components.folder),
        compose::journal_folder(&config.data),
        components.store.clone(),
        Arc::clone(&components.shared),
        stop.clone(),
    ));
    queued
}

/// As [`build_components`]; a failure is told to the process that would have been replaced, which goes on.
async fn build_components_or_give_up(config: &Config, taken: &mut Option<TakeOver>) -> Result<ServeComponents, Failure> {
    let built = build_components(config, taken.as_mut()).await;
    if let (Err(failure), Some(taken)) = (&built, taken) {
        taken.give_up(failure);
    }
    built
}

/// Opens store and journal and loads the catalog, in the order in which failures must be detected.
async fn build_components(config: &Config, mut taken: Option<&mut TakeOver>) -> Result<ServeComponents, Failure> {
    let store = match taken.as_deref_mut() {
        None => database_watch::open(config, compose::access(config)).await?,
        Some(taken) => compose::open_locked(config, compose::access(config), taken.lock.take()).await?,
    };
    let known_at = store.spending_known_at();
    if taken.is_some() && known_at.is_some() {
        return Err(Failure::Unreachable("the database is unreachable: the running gateway goes on".to_owned()));
    }
    // Before anything is opened with the keys: from now on a rotation waits for this gateway.
    key_watch::announce(&store).await?;
    let (journal, recovery, folder) = compose::journal(config)?;
    for cut in &recovery.truncated {
        tracing::warn!(?cut, "the journal ends with a partial entry, as left by a kill");
    }
    if !recovery.stopped.is_empty() {
        tracing::warn!(
            requests = recovery.stopped.len(),
            "requests interrupted by the end of the last process are recorded as stopped"
        );
    }
    // Without the database, writes are deferred.
    if known_at.is_none() {
        write_catalog_at_start(config, &store).await?;
    }
    // Usage of the last process must be counted before new requests are admitted.
    let is_written = match known_at {
        None => unless_unavailable(replay(&*store.usage, &journal, recovery.records).await.map(drop))?,
        Some(_) => true,
    };
    let backlog = || journal.backlog().map_err(|error| compose::journal_failure(&error));
    let recovered = backlog()?;
    let beside = taken.is_some().then(|| std::process::id().to_string());
    let (counters, ledger, redis) = compose::counters(config, &store, beside).await?;
    if let Some(handed) = taken.and_then(|taken| taken.counters.take()) {
        counters.take_over(handed, compose::instant());
    }
    if let (Some(known_at), None) = (known_at, &redis) {
        count_unbooked(&*counters, backlog()?, known_at);
    } else if !is_written && redis.is_none() {
        count_unbooked(&*counters, backlog()?, Timestamp(0));
    }
    let (journal, folder) = (Arc::new(journal), Arc::new(folder));
    assemble(config, store, OpenState { journal, folder, recovered, counters, ledger, redis }).await
}

/// The catalog file, the first rows, or that no row is owned by a file.
async fn write_catalog_at_start(config: &Config, store: &Store) -> Result<(), Failure> {
    if let Some(file) = &config.catalog_file {
        catalog_watch::serve_file_at_start(store, file).await?;
    } else if first_start::is_due(store).await? {
        first_start::create_echo(store).await?;
    } else {
        let actor = Actor { origin: ChangeOrigin::Gateway, name: "start without a catalog file".to_owned() };
        let released = store.catalog.apply(&[Change::ReleaseFile], &actor, compose::now()).await.map(drop);
        unless_unavailable(released)?;
    }
    Ok(())
}

/// What counts and records requests, with what the last process has left.
struct OpenState {
    journal: Arc<Journal>,
    folder: Arc<JournalFolder>,
    recovered: UnbookedRecords,
    counters: Arc<dyn Counters>,
    ledger: LedgerPosition,
    redis: Option<RedisTasks>,
}

/// Loads catalog, health and settings, and puts the parts together.
async fn assemble(config: &Config, store: Store, open: OpenState) -> Result<ServeComponents, Failure> {
    let OpenState { journal, folder, recovered, counters, ledger, redis } = open;
    let registry = Arc::new(HealthRegistry::from_saved(store.health.load_health().await?, compose::now()));
    let catalog = store.catalog.load().await?;
    warn_of(&catalog, config);
    registry.configure(catalog.accounts().map(|account| &**account));
    let configured = alerting::configured_destination(config)?;
    let (queue, observed) = AlertQueue::new();
    let hedged = store.ledger.hedge_costs(compose::now()).await.unwrap_or_else(|fault| {
        tracing::warn!(%fault, "the cost of hedged attempts today is unknown; their caps start from zero");
        Vec::new()
    });
    let in_force = live_settings::with_stored(config, &catalog.stored_settings);
    logging::set_level(&in_force);
    let (request_log, log) = logging::requests(&in_force)?;
    let node = tollgate_store::node_identity(&config.data)?;
    let (traces, telemetry) = telemetry::of(&in_force, &node)?;
    let shared = compose::shared(&in_force, &store, catalog, counters, Outlets { alerts: queue, request_log, traces }, hedged);
    shared.counters.set_reservation_ttl(compose::reservation_ttl(&in_force));
    let catalog = shared.catalog.load_full();
    shared.traffic.configure(catalog.accounts().map(|account| &**account));
    let settings = LiveSettings::new(config.clone(), in_force, &catalog, Arc::clone(&shared), Arc::clone(&journal));
    let settings = Arc::new(settings);
    let sources = Sources {
        store: store.clone(),
        shared: Arc::clone(&shared),
        registry: Arc::clone(&registry),
        journal: Arc::clone(&journal),
        node: node.clone(),
        position: ledger,
    };
    let alerting = Alerting { settings: Arc::clone(&settings), sources, observed, configured };
    let (records, senders) = (Arc::default(), Senders { alerting, telemetry, log });
    Ok(ServeComponents { store, shared, journal, folder, settings, recovered, registry, records, node, senders, ledger, redis })
}

/// Logs the warnings about the catalog and the environment.
fn warn_of(catalog: &Catalog, config: &Config) {
    for warning in catalog_warnings(catalog, &[], compose::now()).iter().take(MAX_WARNINGS) {
        tracing::warn!("catalog: {warning}");
    }
    for name in &config.unread {
        tracing::warn!("the environment variable {name} is no setting; nothing reads it");
    }
}

/// Whether a write succeeded. A database that is readable but takes no writes at the moment (full, or read-only) does not prevent a
/// start: writes are deferred, as while serving.
fn unless_unavailable(written: Result<(), StoreError>) -> Result<bool, StoreError> {
    match written {
        Err(fault) if fault.is_unreachable() => {
            tracing::warn!("the database takes no writes; they are deferred: {fault}");
            Ok(false)
        }
        other => other.map(|()| true),
    }
}

/// Counts records that ended after spending was last known and that are not in the database. Records that ended just before may be
/// counted twice, which is conservative until the next start.
fn count_unbooked(counters: &dyn Counters, records: UnbookedRecords, known_at: Timestamp) {
    /// Largest delay of the usage writer while the database is reachable.
    const WRITER_DELAY_MS: i64 = 2_000;
    for record in records.flatten() {
        let ended = record.at.plus_ms(i64::try_from(record.duration_us / 1_000).unwrap_or(i64::MAX));
        if ended.plus_ms(WRITER_DELAY_MS) > known_at {
            let _ = counters.settle(&record, compose::instant());
        }
    }
}

/// Factory of the request path of a core; called on the core's thread.
fn core_factory(
    shared: Arc<Shared>,
    journal: Arc<Journal>,
    queue: UsageQueue,
    registry: Arc<HealthRegistry>,
) -> impl Fn(u16) -> Result<Worker, Box<dyn std::error::Error + Send + Sync>> + Send + Sync + 'static {
    let trust = Arc::new(Trust::default());
    move |core| {
        let recorder = UsageRecorder::open(Arc::clone(&shared), &journal, core, queue.clone(), Arc::clone(&registry))?;
        let client = Client::new(Arc::clone(&trust), Arc::clone(&shared.clock)).with_journal(&recorder.journal);
        let upstream = UpstreamDispatch::new(client, Arc::clone(&shared.clock));
        Ok(Worker::new(recorder, Arc::new(upstream))?)
    }
}

/// Cancels `stop` on SIGTERM or SIGINT; a second signal ends running requests, a third the process. Handlers are installed by the
/// call, not when the task runs: the process may be signalled as soon as its address is printed.
pub(crate) fn end_on_signal(stop: CancellationToken, shared: Arc<Shared>, stopped: CancellationToken) -> impl Future<Output = ()> {
    let signals = (signal(SignalKind::terminate()), signal(SignalKind::interrupt()));
    async move {
        let (Ok(mut terminate), Ok(mut interrupt)) = signals else { return };
        for received in 1.. {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
                () = stop.cancelled(), if received == 1 => return,
                () = stopped.cancelled() => return,
            }
            match received {
                1 => {
                    tracing::info!("stopping: running responses continue, new requests are refused; a second signal ends them");
                    stop.cancel();
                }
                2 => {
                    tracing::warn!("second signal: running responses are cut off");
                    shared.condition.end_now();
                }
                _ => std::process::exit(1),
            }
        }
    }
}
