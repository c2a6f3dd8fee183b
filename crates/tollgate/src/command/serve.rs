//! `serve`: starts the gateway and stops it on SIGTERM or SIGINT.

mod announcement;
mod build;
mod ending;

use std::sync::Arc;

use tokio::{
    signal::unix::{SignalKind, signal},
    sync::mpsc,
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tollgate_gateway::{
    background::{
        content_writer::ContentWriter,
        health_recorder::HealthRecorder,
        probes::Probes,
        telemetry::Telemetry,
        usage_writer::{UsageBacklog, UsageWriter},
    },
    path::Worker,
    server::{Listening, run as run_cores},
    state::{
        health_records::HealthRecords, health_registry::HealthRegistry, request_log::LogThread, shared::Shared,
        usage_recorder::UsageQueue, usage_recorder::UsageRecorder,
    },
    upstream::{client::Client, echo::UpstreamDispatch},
};
use tollgate_store::{AccessReport, DiskReserve, Journal, JournalFolder, LedgerPosition, Store, UnbookedRecords};

use announcement::announce;
use build::{build_components, build_components_or_give_up};
pub(crate) use ending::cannot_run;
use ending::{exit_status, leave_database, report_open_reservations};

use crate::{
    access_share,
    alerting::Alerting,
    catalog_watch,
    cli::{Common, Serve},
    compose::{self, RedisTasks},
    config::Config,
    console, console_settings, database_watch, disk_watch,
    failure::Failure,
    full_disk, health_share, key_watch, ledger_watch,
    live_settings::LiveSettings,
    logging, retention, runtime_socket, traffic_snapshot,
    upgrade::{
        self,
        leaving::Leaving,
        sockets::{self, Sockets},
        taking_over::TakeOver,
    },
};

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
    /// Recorder of the history of account health.
    records: Arc<HealthRecords>,
    /// Name of this node.
    node: String,
    senders: Senders,
    /// Ledger position included in the counters.
    ledger: LedgerPosition,
    /// Background work for counters in Redis.
    redis: Option<RedisTasks>,
}

/// Tasks that export or store data about requests other than their usage records.
struct Senders {
    alerting: Alerting,
    /// If there is a collector.
    telemetry: Option<Telemetry>,
    /// Stores contents of requests.
    contents: ContentWriter,
    /// Writes the lines of requests until it is dropped.
    log: LogThread,
}

async fn serve(common: &Common, config: &Config, mut taken: Option<TakeOver>) -> Result<(), Failure> {
    let (reserve, is_upgrade) = (free_disk(config), taken.is_some());
    let Some((components, waiting)) = open(config, &reserve, &mut taken).await? else { return Ok(()) };
    let Sockets { listening, console: console_socket, predecessors, asking } =
        sockets::open(&config.data, &components.shared, &components.store, waiting, taken)?;
    let (stop_cores, stop_background) = (CancellationToken::new(), CancellationToken::new());
    // The tasks below that change the state taken over by a new process end when that process serves.
    let left = stop_background.child_token();
    let background = TaskTracker::new();
    let reports = spawn_background(&background, config, &components, &left);
    #[cfg(debug_assertions)]
    background.spawn(crate::test_clock::follow(stop_background.clone()));
    let ServeComponents { store, shared, journal, folder, settings, recovered, registry, records, redis, senders, .. } = components;
    let scheduled_backups = senders.alerting.sources.backups.clone();
    let _log = spawn_senders(&background, senders, (&shared, &store), &left, &stop_background);
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
    let console = console::start(&settings, &store, known, listening.address(), console_socket, scheduled_backups, stop_jobs)?;
    let addresses = (listening.address(), console_settings::console_url(config, console.address().unwrap_or(listening.address())));
    background.spawn(runtime_socket::serve(Arc::clone(&shared), addresses, config.data.clone(), left.clone()));
    // The first process of an upgrade has already shown the messages that are shown once.
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
    let is_ending_now = shared.serving.is_ending_now();
    // The cores have ended, so every record is queued. Write the remaining records, then stop everything else.
    shared.serving.hand_over.end_moves();
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
    // The journal is written up to this point.
    drop((journal, folder));
    if let Ok(Err(failure)) = watching.await {
        return Err(failure);
    }
    exit_status(&settings.current(), drained, left, is_ending_now)
}

/// Opens everything; on a full disk, as soon as there is space, and with the sockets on which requests were refused until
/// then. `None` if the gateway is stopped first.
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

/// Cancels the jobs of a process that has handed over, because their results could no longer be read.
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

/// Starts the tasks that send alerts and telemetry and store contents; they run until the last request has ended. Returns the
/// thread of the request log, which writes until it is dropped.
fn spawn_senders(
    background: &TaskTracker,
    senders: Senders,
    (shared, store): (&Arc<Shared>, &Store),
    left: &CancellationToken,
    stop: &CancellationToken,
) -> LogThread {
    background.spawn(senders.alerting.run(left.clone(), stop.clone()));
    if let Some(telemetry) = senders.telemetry {
        background.spawn(telemetry.run(Arc::clone(shared), stop.clone()));
    }
    background.spawn(senders.contents.run(Arc::clone(&store.contents), Arc::clone(shared), stop.clone()));
    senders.log
}

/// Starts the worker of the counters in Redis and the tasks that share health and access through it; they run until the last
/// request has ended.
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

/// Starts background tasks: catalog, probes, ledger, retention, traffic snapshot. Returns a receiver for the access of
/// keys and members as read from the database.
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
            upstream: Arc::new(Client::new(Arc::clone(&components.shared.trust), Arc::clone(&components.shared.clock))),
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

/// Factory of the request path of a core; called on the core's thread.
fn core_factory(
    shared: Arc<Shared>,
    journal: Arc<Journal>,
    queue: UsageQueue,
    registry: Arc<HealthRegistry>,
) -> impl Fn(u16) -> Result<Worker, Box<dyn std::error::Error + Send + Sync>> + Send + Sync + 'static {
    move |core| {
        let recorder = UsageRecorder::open(Arc::clone(&shared), &journal, core, queue.clone(), Arc::clone(&registry))?;
        let client = Client::new(Arc::clone(&shared.trust), Arc::clone(&shared.clock)).with_journal(&recorder.journal);
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
                    shared.serving.end_now();
                }
                _ => std::process::exit(1),
            }
        }
    }
}
