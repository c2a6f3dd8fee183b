//! `serve`: starts the gateway and stops it on SIGTERM or SIGINT.

use std::{net::SocketAddr, sync::Arc};

use serde_json::json;
use tokio::{
    signal::unix::{SignalKind, signal},
    sync::mpsc,
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tollgate_core::{KeyId, Timestamp, catalog_warnings};
use tollgate_gateway::{
    background::{
        alerts::Alerts,
        probes::Probes,
        usage_writer::{UsageBacklog, UsageWriter, replay},
    },
    path::Worker,
    server::{Drained, ListenError, RunError, listen, run as run_cores},
    state::{health_registry::HealthRegistry, shared::Shared, usage_recorder::UsageQueue, usage_recorder::UsageRecorder},
    upstream::{
        client::{Client, Trust},
        echo::UpstreamDispatch,
    },
};
use tollgate_store::{Actor, Change, ChangeOrigin, Counters, Journal, LedgerPosition, Store, StoreError, UnbookedRecords};

use crate::{
    catalog_watch,
    cli::{Common, Serve},
    compose::{self, RedisTasks},
    config::Config,
    console, database_watch, disk_watch,
    failure::Failure,
    first_start, health_share, key_watch, ledger_watch, logging, output, retention, revocation_share, runtime_socket,
    traffic_snapshot,
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
    compose::runtime()?.block_on(serve(common, &config))
}

/// Components of a gateway, before it listens.
struct ServeComponents {
    store: Store,
    shared: Arc<Shared>,
    journal: Arc<Journal>,
    recovered: UnbookedRecords,
    registry: Arc<HealthRegistry>,
    /// Sender of alerts, if there is a webhook.
    alerts: Option<Alerts>,
    /// Ledger position included in the counters.
    ledger: LedgerPosition,
    /// Background work for counters in Redis.
    redis: Option<RedisTasks>,
}

async fn serve(common: &Common, config: &Config) -> Result<(), Failure> {
    let reserve = disk_watch::reserve(config);
    if reserve.free_for_start() {
        tracing::error!(data = %config.data.display(), "the disk of the data folder is full; records wait in memory until there is space");
    }
    let mut components = build_components(config).await?;
    let listening = listen(&components.shared.settings).map_err(|error| cannot_listen(&error))?;
    let (stop_cores, stop_background) = (CancellationToken::new(), CancellationToken::new());
    let background = TaskTracker::new();
    if let Some(alerts) = components.alerts.take() {
        background.spawn(alerts.run(Arc::clone(&components.shared), stop_background.clone()));
    }
    let revoked = spawn_background(&background, config, &components, &stop_background);
    #[cfg(debug_assertions)]
    background.spawn(crate::test_clock::follow(stop_background.clone()));
    let ServeComponents { store, shared, journal, recovered, registry, alerts: _, ledger: _, redis } = components;
    let watching = background.spawn(database_watch::watch(
        store.clone(),
        Arc::clone(&shared),
        database_watch::DegradedLimits::of(config),
        stop_background.clone(),
        stop_cores.clone(),
    ));
    if let Some(RedisTasks { work, health, revocations }) = redis {
        background.spawn(work.run(stop_background.clone()));
        background.spawn(revocation_share::watch(revocations, revoked, Arc::clone(&shared), stop_background.clone()));
        background.spawn(health_share::watch(health, Arc::clone(&registry), Arc::clone(&shared), stop_background.clone()));
    }
    background.spawn(disk_watch::watch(reserve, Arc::clone(&journal), stop_background.clone()));
    background.spawn(end_on_signal(stop_cores.clone(), Arc::clone(&shared), stop_background.clone()));
    let (queue, writer) = UsageWriter::new(
        Arc::clone(&store.usage),
        Arc::clone(&store.health),
        Arc::clone(&journal),
        Arc::clone(&registry),
        Arc::clone(&shared),
    );
    let stop_writer = CancellationToken::new();
    let writing = background.spawn(writer.run(recovered, stop_writer.clone()));

    let console = console::start(config, &store, &shared, &registry, listening.address(), stop_cores.clone())?;
    let new_key = first_key(config, &store).await?;
    announce(common, config, listening.address(), console.address, new_key.as_deref());
    let condition = Arc::clone(&shared.condition);
    let factory = core_factory(Arc::clone(&shared), Arc::clone(&journal), queue, Arc::clone(&registry));
    let drained = run_cores(Arc::clone(&shared), listening, factory, Arc::clone(&console.fallback), stop_cores.clone()).await;
    let is_ending_now = condition.is_ending_now();
    // The cores have ended, so every record is queued: write what is left, then stop everything else.
    stop_cores.cancel();
    stop_writer.cancel();
    // After a panic of the writer, nothing was finished.
    let left = writing.await.unwrap_or_else(|_| UsageBacklog { waiting: journal.unbooked(), lost: journal.finish(&[]) });
    let open = shared.counters.open_reservations();
    if open > 0 {
        tracing::error!(reservations = open, "reservations were not released by their requests");
    }
    console.stop().await;
    stop_background.cancel();
    background.close();
    background.wait().await;
    leave_database(&store, &journal, left).await;
    console.shut_down();
    if let Ok(Err(failure)) = watching.await {
        return Err(failure);
    }
    exit_status(config, drained, left, is_ending_now)
}

/// Marks the database as left in order, if all records are in it, and closes it.
async fn leave_database(store: &Store, journal: &Journal, left: UsageBacklog) {
    if left.waiting > left.lost {
        let records = left.waiting - left.lost;
        tracing::warn!(records, "the last records are not in the database; they are kept in the journal");
    }
    if let Err(fault) = store.stop_watching_keys().await {
        tracing::debug!(%fault, "a rotation of the master key will wait for this gateway's answer");
    }
    if left.waiting == 0
        && journal.unbooked() == 0
        && let Err(fault) = store.finish_journal().await
    {
        tracing::debug!(%fault, "the database was not marked as left in order");
    }
    store.close().await;
}

/// The key of a first start without a catalog file, if no start has shown one yet. Every address is bound by now.
async fn first_key(config: &Config, store: &Store) -> Result<Option<String>, Failure> {
    if config.catalog_file.is_some() || store.spending_known_at().is_some() {
        return Ok(None);
    }
    match first_start::create_key(store).await {
        // The next start shows it.
        Err(Failure::Unreachable(why)) => {
            tracing::warn!("the first key was not created: {why}");
            Ok(None)
        }
        created => created,
    }
}

/// Starts background tasks: catalog, probes, ledger, retention, traffic snapshot. Returns the keys that are found to be revoked.
fn spawn_background(
    background: &TaskTracker,
    config: &Config,
    components: &ServeComponents,
    stop: &CancellationToken,
) -> mpsc::Receiver<KeyId> {
    let (revoked, revocations) = mpsc::channel(revocation_share::QUEUE_CAPACITY);
    if let Some(file) = &config.catalog_file {
        background.spawn(catalog_watch::watch_file(components.store.clone(), file.clone(), stop.clone()));
    }
    background.spawn(catalog_watch::watch_database(
        components.store.clone(),
        Arc::clone(&components.shared),
        Arc::clone(&components.registry),
        revoked,
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
    background.spawn(retention::run(components.store.clone(), config.number("usage.retention_days"), stop.clone()));
    background.spawn(traffic_snapshot::run(Arc::clone(&components.shared), config.data.clone(), stop.clone()));
    background.spawn(runtime_socket::serve(Arc::clone(&components.shared), config.data.clone(), stop.clone()));
    revocations
}

fn exit_status(
    config: &Config,
    drained: Result<Drained, RunError>,
    left: UsageBacklog,
    is_ending_now: bool,
) -> Result<(), Failure> {
    match drained {
        _ if left.lost > 0 => Err(Failure::Machine(format!(
            "{} requests are lost: neither the database nor the journal in {} took their records; free space on its disk",
            left.lost,
            compose::journal_folder(&config.data).display()
        ))),
        Ok(Drained::Complete) => Ok(()),
        Ok(Drained::CutOff(count)) if is_ending_now => {
            Err(Failure::Machine(format!("{count} responses were cut off by a second signal")))
        }
        Ok(Drained::CutOff(count)) => {
            let limit = config.number("server.drain_timeout_ms");
            Err(Failure::Machine(format!("{count} responses were cut off after {limit} ms (server.drain_timeout_ms)")))
        }
        Err(error) => Err(cannot_run(&error)),
    }
}

/// Opens store and journal and loads the catalog, in the order in which failures must be detected.
async fn build_components(config: &Config) -> Result<ServeComponents, Failure> {
    let store = database_watch::open(config, compose::access(config)).await?;
    let known_at = store.spending_known_at();
    // Before anything is opened with the keys: from now on a rotation waits for this gateway.
    key_watch::announce(&store).await?;
    let (journal, recovery) = compose::journal(config)?;
    for cut in &recovery.truncated {
        tracing::warn!(?cut, "the journal ends with a partial entry, as left by a kill");
    }
    if !recovery.stopped.is_empty() {
        tracing::warn!(
            requests = recovery.stopped.len(),
            "requests interrupted by the end of the last process are recorded as stopped"
        );
    }
    match &config.catalog_file {
        // Without the database, writes are deferred.
        _ if known_at.is_some() => {}
        Some(file) => {
            catalog_watch::serve_file_at_start(&store, file).await?;
        }
        None if store.first_start => first_start::create_echo(&store).await?,
        // Without a catalog file, no row is owned by one.
        None => {
            let actor = Actor { origin: ChangeOrigin::Gateway, name: "start without a catalog file".to_owned() };
            let released = store.catalog.apply(&[Change::ReleaseFile], &actor, compose::now()).await.map(drop);
            unless_unavailable(released)?;
        }
    }
    // Usage of the last process must be counted before new requests are admitted.
    let is_written = match known_at {
        None => unless_unavailable(replay(&*store.usage, &journal, recovery.records).await.map(drop))?,
        Some(_) => true,
    };
    let backlog = || journal.backlog().map_err(|error| compose::journal_failure(&error));
    let recovered = backlog()?;
    let (counters, ledger, redis) = compose::counters(config, &store).await?;
    if let (Some(known_at), None) = (known_at, &redis) {
        count_unbooked(&*counters, backlog()?, known_at);
    } else if !is_written && redis.is_none() {
        count_unbooked(&*counters, backlog()?, Timestamp(0));
    }
    let registry = Arc::new(HealthRegistry::from_saved(store.health.load_health().await?, compose::now()));
    let catalog = store.catalog.load().await?;
    for warning in catalog_warnings(&catalog, &[], compose::now()).iter().take(MAX_WARNINGS) {
        tracing::warn!("catalog: {warning}");
    }
    for name in &config.unread {
        tracing::warn!("the environment variable {name} is no setting; nothing reads it");
    }
    registry.configure(catalog.accounts().map(|account| &**account));
    let (queue, alerts) = compose::alerts(config, &store)?;
    let hedged = store.ledger.hedge_costs(compose::now()).await.unwrap_or_else(|fault| {
        tracing::warn!(%fault, "the cost of hedged attempts today is unknown; their caps start from zero");
        Vec::new()
    });
    let shared = compose::shared(config, &store, catalog, counters, queue, hedged);
    shared.traffic.configure(shared.catalog.load().accounts().map(|account| &**account));
    Ok(ServeComponents { store, shared, journal: Arc::new(journal), recovered, registry, alerts, ledger, redis })
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
        let upstream = UpstreamDispatch::new(Client::new(Arc::clone(&trust), Arc::clone(&shared.clock)), Arc::clone(&shared.clock));
        Ok(Worker::new(recorder, Arc::new(upstream))?)
    }
}

/// Cancels `stop` on SIGTERM or SIGINT; a second signal ends running requests, a third the process. Handlers are installed by the call, not when the task runs: the process may be signalled as
/// soon as its address is printed.
fn end_on_signal(stop: CancellationToken, shared: Arc<Shared>, stopped: CancellationToken) -> impl Future<Output = ()> {
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

/// Prints the addresses and first steps. Exactly two lines contain `curl `; both are complete commands.
fn announce(common: &Common, config: &Config, address: SocketAddr, console: Option<SocketAddr>, key: Option<&str>) {
    let scheme = if config.tls.is_some() { "https" } else { "http" };
    let data = config.data.display().to_string();
    if common.json {
        let url = format!("{scheme}://{address}");
        let admin_url = admin_url(config, console).unwrap_or_else(|| url.clone());
        let console = console.map(|address| address.to_string());
        output::json(&json!({
            "address": address.to_string(), "url": url, "console": console, "admin_url": admin_url, "key": key, "data": data,
        }));
        return;
    }
    output::line(&format!("tollgate {} serves on {scheme}://{address}", env!("CARGO_PKG_VERSION")));
    let admin = admin_url(config, console).unwrap_or_else(|| format!("{scheme}://{address}"));
    output::line(&format!("admin API: {admin}/admin/v1 (make a key for it: `tollgate admin-key create NAME`)"));
    let Some(key) = key else {
        output::line("keys: `tollgate key create NAME`");
        return;
    };
    output::line(&format!("data: {data}"));
    output::line(&format!("key for the echo channel (shown this once): {key}"));
    output::line("try it, on both protocols:");
    output::line(&format!(
        "curl -s {scheme}://{address}/v1/chat/completions -H 'authorization: Bearer {key}' -H 'content-type: application/json' \
         -d '{{\"model\":\"echo\",\"messages\":[{{\"role\":\"user\",\"content\":\"hello\"}}]}}'"
    ));
    output::line(&format!(
        "curl -s {scheme}://{address}/v1beta/models/echo:generateContent -H 'x-native-api-key: {key}' -H 'content-type: application/json' \
         -d '{{\"contents\":[{{\"parts\":[{{\"text\":\"hello\"}}]}}]}}'"
    ));
    output::line(
        "then describe your own channels in a file (`tollgate serve --catalog catalog.toml`), with keys of your own for them",
    );
}

/// URL of the admin API if it has a separate address.
fn admin_url(config: &Config, console: Option<SocketAddr>) -> Option<String> {
    let scheme = if config.console_tls.is_some() { "https" } else { "http" };
    console.map(|address| format!("{scheme}://{address}"))
}

fn cannot_listen(error: &ListenError) -> Failure {
    Failure::Machine(format!("{error}; choose another address with --listen, or stop the process that uses it"))
}

fn cannot_run(error: &RunError) -> Failure {
    match error {
        RunError::Tls(_) => Failure::invalid(error.to_string()),
        RunError::Core { .. } | RunError::Ended(_) => Failure::Machine(error.to_string()),
    }
}
