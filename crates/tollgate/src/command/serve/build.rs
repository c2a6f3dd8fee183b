//! Builds the parts of a gateway before it listens: opens store, journal and counters, counts and books the records that the last process
//! left, and loads catalog, health and settings.

use std::sync::Arc;

use tollgate_console::ScheduledBackups;
use tollgate_core::{Catalog, Timestamp, catalog_warnings};
use tollgate_gateway::{
    background::{content_writer::ContentWriter, usage_writer::replay},
    state::{alert_queue::AlertQueue, health_registry::HealthRegistry},
};
use tollgate_store::{
    Actor, Change, ChangeOrigin, Counters, Journal, JournalFolder, LedgerPosition, Store, StoreError, StoreUrl, UnbookedRecords,
};

use super::{Senders, ServeComponents};
use crate::{
    address_lists,
    alerting::{self, Alerting, Sources},
    catalog_watch,
    compose::{self, Outlets, RedisTasks},
    config::Config,
    database_watch,
    failure::Failure,
    first_start, key_watch,
    live_settings::{self, LiveSettings},
    logging, telemetry,
    upgrade::taking_over::TakeOver,
};

/// Warnings about the catalog that are logged at the start; `check --catalog` has all of them.
const MAX_WARNINGS: usize = 10;

/// Like [`build_components`]. In an upgrade, a failure is reported to the running process, which then continues.
pub(super) async fn build_components_or_give_up(config: &Config, taken: &mut Option<TakeOver>) -> Result<ServeComponents, Failure> {
    let built = build_components(config, taken.as_mut()).await;
    if let (Err(failure), Some(taken)) = (&built, taken) {
        taken.give_up(failure);
    }
    built
}

/// Opens store and journal and loads the catalog, in the order in which failures must be detected.
pub(super) async fn build_components(config: &Config, mut taken: Option<&mut TakeOver>) -> Result<ServeComponents, Failure> {
    let store = match taken.as_deref_mut() {
        None => database_watch::open(config, compose::access(config)).await?,
        Some(taken) => compose::open_locked(config, compose::access(config), taken.lock.take()).await?,
    };
    let known_at = store.spending_known_at();
    if taken.is_some() && known_at.is_some() {
        return Err(Failure::Unreachable("the database is unreachable: the running gateway keeps serving".to_owned()));
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
    // While the database is unreachable, writes are deferred.
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

/// Applies the catalog file, creates the first rows, or records that no file owns rows.
async fn write_catalog_at_start(config: &Config, store: &Store) -> Result<(), Failure> {
    if let Some(file) = &config.catalog_file {
        catalog_watch::serve_file_at_start(store, file).await?;
    } else if first_start::is_due(store).await? {
        first_start::create_echo(store).await?;
    } else {
        let actor = Actor::local(ChangeOrigin::Gateway, "start without a catalog file");
        let released = store.catalog.apply(&[Change::ReleaseFile], &actor, compose::now()).await.map(drop);
        unless_unavailable(released)?;
    }
    Ok(())
}

/// Journal and counters, with the records that the last process has left.
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
    let (contents, content_writer) = ContentWriter::new();
    let outlets = Outlets { alerts: queue, request_log, traces, contents };
    let shared = compose::shared(&in_force, &store, catalog, counters, outlets, hedged);
    shared.counters.set_reservation_ttl(compose::reservation_ttl(&in_force));
    let catalog = shared.catalog.load_full();
    shared.traffic.configure(catalog.channels.values().map(|channel| &**channel));
    let settings = LiveSettings::new(config.clone(), in_force, &catalog, Arc::clone(&shared), Arc::clone(&journal));
    let settings = Arc::new(settings);
    let sources = Sources {
        store: store.clone(),
        shared: Arc::clone(&shared),
        registry: Arc::clone(&registry),
        journal: Arc::clone(&journal),
        node: node.clone(),
        position: ledger,
        backups: ScheduledBackups::new(matches!(compose::store_url(config)?, StoreUrl::Sqlite(_))),
    };
    let alerting = Alerting { settings: Arc::clone(&settings), sources, observed, configured };
    let (records, senders) = (Arc::default(), Senders { alerting, telemetry, contents: content_writer, log });
    Ok(ServeComponents { store, shared, journal, folder, settings, recovered, registry, records, node, senders, ledger, redis })
}

/// Logs the warnings about the catalog and the environment.
fn warn_of(catalog: &Catalog, config: &Config) {
    let (with_stored, _) = config.with_stored(&catalog.stored_settings);
    let mut warnings = address_lists::warnings(catalog, &with_stored);
    warnings.extend(catalog_warnings(catalog, &[], compose::now()));
    for warning in warnings.iter().take(MAX_WARNINGS) {
        tracing::warn!("catalog: {warning}");
    }
    for name in &config.unread {
        tracing::warn!("the environment variable {name} is not a setting and has no effect");
    }
}

/// Whether a write succeeded. A database that is readable but refuses writes for now (full, or read-only) does not prevent a start:
/// writes are deferred, as while serving.
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
