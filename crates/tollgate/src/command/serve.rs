//! `serve`: from settings to a running gateway, and from SIGTERM to its end.

use std::{net::SocketAddr, sync::Arc};

use serde_json::json;
use tokio::{
    signal::unix::{SignalKind, signal},
    time::Instant,
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tollgate_core::Timestamp;
use tollgate_gateway::{
    background::{
        alerts::Alerts,
        probes::Probes,
        usage_writer::{UsageBacklog, UsageWriter, UsageWriterParts, replay},
    },
    path::Core,
    server::{Drained, ListenError, RunError, listen, run as run_cores},
    state::{health_registry::HealthRegistry, shared::Shared, usage_queue::UsageQueue, usage_recorder::UsageRecorder},
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
    console, database_watch,
    failure::Failure,
    first_start, health_share, ledger_watch, logging, output, retention, traffic_snapshot,
};

/// Serves until a signal ends it.
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

/// Everything that was put together for serving.
struct ServeComponents {
    store: Store,
    shared: Arc<Shared>,
    journal: Arc<Journal>,
    recovered: UnbookedRecords,
    registry: Arc<HealthRegistry>,
    /// Sends alerts, where there is a webhook.
    alerts: Option<Alerts>,
    /// How far the ledger had come when counting began.
    ledger: LedgerPosition,
    /// The work behind counting in Redis.
    counting: Option<RedisTasks>,
    /// The key of a first start, in clear text.
    new_key: Option<String>,
}

async fn serve(common: &Common, config: &Config) -> Result<(), Failure> {
    let mut put = put_together(config).await?;
    let listening = listen(&put.shared.settings).map_err(|error| cannot_listen(&error))?;
    let (stop_cores, stop_background) = (CancellationToken::new(), CancellationToken::new());
    let background = TaskTracker::new();
    if let Some(alerts) = put.alerts.take() {
        background.spawn(alerts.run(Arc::clone(&put.shared), stop_background.clone()));
    }
    watch(&background, config, &put, &stop_background);
    let ServeComponents { store, shared, journal, recovered, registry, alerts: _, ledger: _, counting, new_key } = put;
    let watching = background.spawn(database_watch::watch(
        store.clone(),
        Arc::clone(&shared),
        database_watch::DegradedLimits::of(config),
        stop_background.clone(),
        stop_cores.clone(),
    ));
    if let Some(RedisTasks { work, health }) = counting {
        background.spawn(work.run(stop_background.clone()));
        background.spawn(health_share::watch(health, Arc::clone(&registry), stop_background.clone()));
    }
    background.spawn(end_on_signal(stop_cores.clone()));
    let (queue, till) = UsageWriter::new(UsageWriterParts {
        usage: Arc::clone(&store.usage),
        health_store: Arc::clone(&store.health),
        journal: Arc::clone(&journal),
        registry: Arc::clone(&registry),
        shared: Arc::clone(&shared),
    });
    let stop_till = CancellationToken::new();
    let booking = background.spawn(till.run(recovered, stop_till.clone()));

    let console = console::start(config, &store, &shared, &registry, listening.address())?;
    announce(common, config, listening.address(), console.address, new_key.as_deref());
    let path = paths(Arc::clone(&shared), Arc::clone(&journal), queue, Arc::clone(&registry));
    let drained = run_cores(Arc::clone(&shared), listening, path, Arc::clone(&console.fallback), stop_cores.clone()).await;
    // The cores are gone, so every ticket is handed in: what is left is booked, then the rest may go.
    stop_cores.cancel();
    stop_till.cancel();
    // A till that panicked has finished nothing.
    let left = booking.await.unwrap_or_else(|_| UsageBacklog { waiting: journal.unbooked(), lost: journal.finish(&[]) });
    let open = shared.counters.open_reservations();
    if open > 0 {
        tracing::error!(holds = open, "holds were not given back by the requests that took them");
    }
    console.stop().await;
    stop_background.cancel();
    background.close();
    background.wait().await;
    if left.waiting > left.lost {
        let records = left.waiting - left.lost;
        tracing::warn!(records, "the database did not take the last records; they wait in the journal");
    }
    store.close().await;
    console.end();
    if let Ok(Err(failure)) = watching.await {
        return Err(failure);
    }
    ended(config, drained, left)
}

/// Starts what looks on in the background: catalog, accounts, ledger, traffic.
fn watch(background: &TaskTracker, config: &Config, put: &ServeComponents, stop: &CancellationToken) {
    if let Some(file) = &config.catalog_file {
        background.spawn(catalog_watch::watch_file(put.store.clone(), file.clone(), stop.clone()));
    }
    background.spawn(catalog_watch::watch_database(
        put.store.clone(),
        Arc::clone(&put.shared),
        Arc::clone(&put.registry),
        stop.clone(),
    ));
    background.spawn(
        Probes {
            shared: Arc::clone(&put.shared),
            registry: Arc::clone(&put.registry),
            saved: Arc::clone(&put.store.health),
            upstream: Arc::new(Client::new(Arc::new(Trust::default()))),
        }
        .run(stop.clone()),
    );
    background.spawn(ledger_watch::watch(put.store.clone(), Arc::clone(&put.shared), put.ledger, stop.clone()));
    background.spawn(retention::keep(put.store.clone(), config.number("usage.retention_days"), stop.clone()));
    background.spawn(traffic_snapshot::keep(Arc::clone(&put.shared), config.data.clone(), stop.clone()));
}

/// How serving ended.
fn ended(config: &Config, drained: Result<Drained, RunError>, left: UsageBacklog) -> Result<(), Failure> {
    match drained {
        _ if left.lost > 0 => Err(Failure::Machine(format!(
            "{} requests are lost: neither the database nor the journal in {} took their records; make room on its disk",
            left.lost,
            compose::journal_folder(&config.data).display()
        ))),
        Ok(Drained::Complete) => Ok(()),
        Ok(Drained::CutOff(count)) => {
            let limit = config.number("server.drain_timeout_ms");
            Err(Failure::Machine(format!("{count} answers were cut off after {limit} ms; server.drain_timeout_ms is the limit")))
        }
        Err(error) => Err(cannot_run(&error)),
    }
}

/// Stores, journal, catalog: in the order in which a fault of one must be known before the next is touched.
async fn put_together(config: &Config) -> Result<ServeComponents, Failure> {
    let store = database_watch::open(config, compose::access(config)).await?;
    let known_at = store.spending_known_at();
    let (journal, recovery) = compose::journal(config)?;
    for cut in &recovery.truncated {
        tracing::warn!(?cut, "the journal ended in the middle of an entry, as a kill leaves it");
    }
    if !recovery.stopped.is_empty() {
        tracing::warn!(
            requests = recovery.stopped.len(),
            "requests that the last process left in the middle are recorded as stopped"
        );
    }
    let mut new_key = None;
    match &config.catalog_file {
        // What can be written later is left for later.
        _ if known_at.is_some() => {}
        Some(file) => {
            catalog_watch::serve_file_first(&store, file).await?;
        }
        None if store.first_start => new_key = Some(first_start::make_echo(&store).await?),
        // A file that is served no more owns nothing.
        None => {
            let actor = Actor { door: ChangeOrigin::Gateway, name: "start without a catalog file".to_owned() };
            let released = store.catalog.apply(&[Change::ReleaseFile], &actor, compose::now()).await.map(drop);
            unless_away(released)?;
        }
    }
    // What the last process sold counts before anything more is sold.
    let is_booked = match known_at {
        None => unless_away(replay(&*store.usage, &journal, recovery.records).await.map(drop))?,
        Some(_) => true,
    };
    let backlog = || journal.backlog().map_err(|error| compose::journal_failure(&error));
    let recovered = backlog()?;
    let (counters, ledger, counting) = compose::counters(config, &store).await?;
    if let (Some(known_at), None) = (known_at, &counting) {
        count_unbooked(&*counters, backlog()?, known_at);
    } else if !is_booked && counting.is_none() {
        count_unbooked(&*counters, backlog()?, Timestamp(0));
    }
    let registry = Arc::new(HealthRegistry::from_saved(store.health.load_health().await?));
    let catalog = store.catalog.load().await?;
    registry.configure(catalog.accounts().map(|account| &**account));
    let (queue, alerts) = compose::alerts(config, &store)?;
    let hedged = store.ledger.hedged(compose::now()).await.unwrap_or_else(|fault| {
        tracing::warn!(%fault, "it is not known what second attempts have cost today; their caps begin anew");
        Vec::new()
    });
    let shared = compose::shared(config, &store, catalog, counters, queue, hedged);
    shared.traffic.configure(shared.catalog.load().accounts().map(|account| &**account));
    Ok(ServeComponents { store, shared, journal: Arc::new(journal), recovered, registry, alerts, ledger, counting, new_key })
}

/// Whether it was written. A database that can be read and takes no writes for now (it is full, or read only) does not keep
/// a gateway from starting: what is to be written waits, as while it serves.
fn unless_away(written: Result<(), StoreError>) -> Result<bool, StoreError> {
    match written {
        Err(fault) if fault.is_away() => {
            tracing::warn!("the database takes no writes; what is to be written waits: {fault}");
            Ok(false)
        }
        other => other.map(|()| true),
    }
}

/// Counts what was sold after the spending that is known was read, and is not booked yet. What ended just before that may
/// be counted twice, which errs on the side of the budget until the next start.
fn count_unbooked(counters: &dyn Counters, records: UnbookedRecords, known_at: Timestamp) {
    /// The till is at most so far behind while the database is there.
    const TILL_MS: i64 = 2_000;
    for record in records.flatten() {
        let ended = record.at.plus_ms(i64::try_from(record.duration_us / 1_000).unwrap_or(i64::MAX));
        if ended.plus_ms(TILL_MS) > known_at {
            let _ = counters.settle(&record, Instant::now());
        }
    }
}

/// Makes each core's path on the core's own thread.
fn paths(
    shared: Arc<Shared>,
    journal: Arc<Journal>,
    queue: UsageQueue,
    registry: Arc<HealthRegistry>,
) -> impl Fn(u16) -> Result<Core, Box<dyn std::error::Error + Send + Sync>> + Send + Sync + 'static {
    let trust = Arc::new(Trust::default());
    move |core| {
        let recorder = UsageRecorder::open(Arc::clone(&shared), &journal, core, queue.clone(), Arc::clone(&registry))?;
        let outside = UpstreamDispatch::new(Client::new(Arc::clone(&trust)), Arc::clone(&shared.clock));
        Ok(Core::new(recorder, Arc::new(outside))?)
    }
}

/// Ends serving when a signal comes. Signals are waited for from the call on, not only once the task runs: whoever was told
/// the address may end the process at once.
fn end_on_signal(stop: CancellationToken) -> impl Future<Output = ()> {
    let signals = (signal(SignalKind::terminate()), signal(SignalKind::interrupt()));
    async move {
        let (Ok(mut terminate), Ok(mut interrupt)) = signals else { return };
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
            () = stop.cancelled() => return,
        }
        tracing::info!("stopping: running answers go on, new requests are refused");
        stop.cancel();
    }
}

/// What a person who started it wants to know. Exactly two lines hold `curl `, and both work as they stand.
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
    output::line(&format!("key (shown this once): {key}"));
    output::line("try it, on both protocols:");
    output::line(&format!(
        "curl -s {scheme}://{address}/v1/chat/completions -H 'authorization: Bearer {key}' -H 'content-type: application/json' \
         -d '{{\"model\":\"echo\",\"messages\":[{{\"role\":\"user\",\"content\":\"hello\"}}]}}'"
    ));
    output::line(&format!(
        "curl -s {scheme}://{address}/v1beta/models/echo:generateContent -H 'x-native-api-key: {key}' -H 'content-type: application/json' \
         -d '{{\"contents\":[{{\"parts\":[{{\"text\":\"hello\"}}]}}]}}'"
    ));
    output::line("then describe your own channels in a file: `tollgate serve --catalog catalog.toml`");
}

/// Where the admin API is, when that is an address of its own.
fn admin_url(config: &Config, console: Option<SocketAddr>) -> Option<String> {
    let scheme = if config.console_tls.is_some() { "https" } else { "http" };
    console.map(|address| format!("{scheme}://{address}"))
}

fn cannot_listen(error: &ListenError) -> Failure {
    Failure::Machine(format!("{error}; choose another address with --listen, or stop whoever has it"))
}

fn cannot_run(error: &RunError) -> Failure {
    match error {
        RunError::Tls(_) => Failure::written(error.to_string()),
        RunError::Core { .. } | RunError::Ended(_) => Failure::Machine(error.to_string()),
    }
}
