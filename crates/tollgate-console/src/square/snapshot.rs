//! The data of the feeds for all groups at one moment, computed for all requests together.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use tokio::time::timeout;
use tokio_util::task::TaskTracker;
use tollgate_core::{Catalog, GroupId, Revision, Timestamp};
use tollgate_store::{OfferChange, PriceChange, PriceHistoryPosition, Store, StoreError};

use super::{
    Feed,
    conditional::Representation,
    document::{OfferDocument, offer_document},
    offers::OffersPart,
    traffic::TrafficPart,
    viewer::{ViewKey, Viewer},
};
use crate::{api_error::ApiError, gateway_handle::GatewayHandle, state::ConsoleState};

/// How long a snapshot and its traffic are used, in milliseconds.
const SNAPSHOT_MS: i64 = 3_000;
const TRAFFIC_MS: i64 = 60_000;
/// Traffic that is older than this is not used, in milliseconds.
const STALE_TRAFFIC_MS: i64 = 600_000;
/// How long a model is new.
const NEW_DAYS: i64 = 14;
const DAY_MS: i64 = 86_400_000;
/// Longest time for one query and its wait for a permit; after it, the previous data are used.
const QUERY_TIMEOUT: Duration = Duration::from_secs(10);
/// Changes of offers and of prices that are read for the feed of changes.
const MAX_CHANGES: u32 = 1_000;
/// Representations that are kept with a snapshot, one for each set of groups and model patterns, and their bytes.
const MAX_REPRESENTATIONS: usize = 64;
const MAX_REPRESENTATION_BYTES: usize = 32 << 20;

/// The current snapshot, and the traffic that was read last.
#[derive(Debug, Default)]
pub(crate) struct Square {
    current: Mutex<Option<Arc<SquareSnapshot>>>,
    /// Held while the next one is made.
    refreshing: tokio::sync::Mutex<()>,
    traffic: Mutex<Option<Arc<TrafficPart>>>,
    /// Held while it is read.
    reading: tokio::sync::Mutex<()>,
    /// Reads the traffic while the previous data are shown. Nothing is lost if the gateway stops before it is done.
    tasks: TaskTracker,
}

/// The data of the feeds for all groups.
#[derive(Debug)]
pub(super) struct SquareSnapshot {
    pub(super) catalog: Arc<Catalog>,
    made_at: Timestamp,
    pub(super) offers: Arc<OffersPart>,
    pub(super) traffic: Arc<TrafficPart>,
    pub(super) history: Arc<HistoryPart>,
    /// Models that were added later are new.
    new_after: Timestamp,
    /// The document of each offer.
    documents: HashMap<GroupId, HashMap<String, OfferDocument>>,
    representations: Mutex<HashMap<(ViewKey, Feed), Arc<Representation>>>,
}

/// Changes of offers and prices up to a revision of the catalog.
#[derive(Debug, Default)]
pub(super) struct HistoryPart {
    revision: Revision,
    /// Newest first.
    pub(super) offers: Vec<(PriceHistoryPosition, OfferChange)>,
    /// Changes of sale prices, newest first.
    pub(super) prices: Vec<(PriceHistoryPosition, PriceChange)>,
    pub(super) offered_since: HashMap<(GroupId, String), Timestamp>,
}

impl HistoryPart {
    async fn read(store: &Store, revision: Revision) -> Result<Self, StoreError> {
        let offers = store.square.offer_changes(MAX_CHANGES).await?;
        let prices = store.square.sale_price_changes(MAX_CHANGES).await?;
        let since = store.square.offered_since().await?;
        let offered_since = since.into_iter().map(|offer| ((offer.group, offer.model), offer.since)).collect();
        Ok(Self { revision, offers, prices, offered_since })
    }
}

impl Square {
    fn current(&self) -> Option<Arc<SquareSnapshot>> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn traffic(&self) -> Option<Arc<TrafficPart>> {
        self.traffic.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// The snapshot for a request. One request at a time makes the next one; others use the last one meanwhile, if it is of the same
/// catalog.
pub(super) async fn snapshot(state: &Arc<ConsoleState>) -> Result<Arc<SquareSnapshot>, ApiError> {
    let (square, catalog) = (&state.square, state.gateway.catalog().await?);
    let is_usable = |last: &SquareSnapshot| last.catalog.revision == catalog.revision;
    let last = square.current().filter(|last| is_usable(last));
    if let Some(last) = last.as_ref().filter(|last| last.is_fresh(state.gateway.now())) {
        return Ok(Arc::clone(last));
    }
    let _refreshing = match (square.refreshing.try_lock(), last) {
        (Ok(refreshing), _) => refreshing,
        (Err(_), Some(last)) => return Ok(last),
        (Err(_), None) => square.refreshing.lock().await,
    };
    // Another request may have made it while this one waited.
    if let Some(made) = square.current().filter(|made| is_usable(made) && made.is_fresh(state.gateway.now())) {
        return Ok(made);
    }
    let made = Arc::new(make(state, catalog).await?);
    *square.current.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::clone(&made));
    Ok(made)
}

async fn make(state: &Arc<ConsoleState>, catalog: Arc<Catalog>) -> Result<SquareSnapshot, ApiError> {
    let (last, now) = (state.square.current(), state.gateway.now());
    let traffic = traffic(state, now).await;
    let history = match last.as_ref().map(|last| Arc::clone(&last.history)) {
        Some(history) if history.revision == catalog.revision => history,
        old => within(state, HistoryPart::read(&state.store, catalog.revision)).await.map(Arc::new).or(old).unwrap_or_default(),
    };
    let offers = last.filter(|last| last.catalog.revision == catalog.revision).map(|last| Arc::clone(&last.offers));
    let offers = offers.filter(|offers| offers.until.is_none_or(|until| until > now));
    let gateway = Arc::clone(&state.gateway);
    // Translating a request for each parameter takes a while for a large catalog.
    let made = tokio::task::spawn_blocking(move || {
        let offers = offers.unwrap_or_else(|| Arc::new(OffersPart::of(&catalog, now)));
        SquareSnapshot::new(catalog, now, (offers, traffic, history), &*gateway)
    });
    made.await.map_err(|_| ApiError::internal())
}

/// The traffic, read at most a minute ago. Traffic that was read a few minutes ago is still returned while it is being read again.
async fn traffic(state: &Arc<ConsoleState>, now: Timestamp) -> Arc<TrafficPart> {
    let last = state.square.traffic();
    let is_from = |ms| last.as_ref().filter(|last| is_within(ms, last.read_at, now));
    if let Some(last) = is_from(TRAFFIC_MS) {
        return Arc::clone(last);
    }
    if let Some(last) = is_from(STALE_TRAFFIC_MS) {
        let state = Arc::clone(state);
        state.square.tasks.clone().spawn(async move { read_traffic(&state, now).await });
        return Arc::clone(last);
    }
    read_traffic(state, now).await;
    state.square.traffic().unwrap_or_default()
}

/// Reads the traffic, unless it is being read.
async fn read_traffic(state: &ConsoleState, now: Timestamp) {
    let Ok(_reading) = state.square.reading.try_lock() else { return };
    if let Some(read) = within(state, TrafficPart::read(&*state.store.square, now)).await {
        *state.square.traffic.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::new(read));
    }
}

/// The result of a query; `None` if it failed or took too long. Callers' questions and the square have one query at a time together.
async fn within<T>(state: &ConsoleState, query: impl Future<Output = Result<T, StoreError>>) -> Option<T> {
    let permitted = async {
        // The semaphore is never closed.
        let _permit = state.caller_permits.acquire().await;
        query.await
    };
    match timeout(QUERY_TIMEOUT, permitted).await {
        Ok(Ok(read)) => Some(read),
        Ok(Err(fault)) => {
            tracing::debug!(%fault, "the model square shows what it read before");
            None
        }
        Err(_) => {
            tracing::warn!("a query of the model square took longer than 10 s; it shows what it read before");
            None
        }
    }
}

/// The time after which models are new: two weeks ago, but not before the end of the first day, on which a gateway is set up.
fn new_after(added: impl Iterator<Item = Timestamp>, now: Timestamp) -> Timestamp {
    let first_day = added.min().map_or(now, |first| first.plus_ms(DAY_MS));
    first_day.max(now.plus_ms(-NEW_DAYS * DAY_MS))
}

/// Whether a time lies less than so many milliseconds back. The clock may have been put back since.
fn is_within(ms: i64, at: Timestamp, now: Timestamp) -> bool {
    (0..ms).contains(&now.ms_since(at))
}

impl SquareSnapshot {
    fn new(
        catalog: Arc<Catalog>,
        now: Timestamp,
        (offers, traffic, history): (Arc<OffersPart>, Arc<TrafficPart>, Arc<HistoryPart>),
        gateway: &dyn GatewayHandle,
    ) -> Self {
        let mut documents: HashMap<GroupId, HashMap<String, OfferDocument>> = HashMap::new();
        for offer in &offers.offers {
            let state = traffic.state(offer.group.id, &offer.model.spec.name, offer.state(gateway));
            let document = offer_document(offer, state, &traffic);
            documents.entry(offer.group.id).or_default().insert(offer.model.spec.name.clone(), document);
        }
        let new_after = new_after(history.offered_since.values().copied(), now);
        Self { catalog, made_at: now, offers, traffic, history, new_after, documents, representations: Mutex::default() }
    }

    /// Whether a model that was added at this time is new.
    pub(super) fn is_new(&self, added: Timestamp) -> bool {
        added > self.new_after
    }

    fn is_fresh(&self, now: Timestamp) -> bool {
        is_within(SNAPSHOT_MS, self.made_at, now) && self.offers.until.is_none_or(|until| until > now)
    }

    /// The document of a model in a group.
    pub(super) fn document(&self, group: GroupId, model: &str) -> Option<&OfferDocument> {
        self.documents.get(&group)?.get(model)
    }

    /// The representation for a viewer, made once for all viewers who see the same.
    pub(super) fn represent(&self, viewer: &Viewer, feed: Feed, make: impl FnOnce() -> Arc<Representation>) -> Arc<Representation> {
        let key = (viewer.key(), feed);
        let known = || self.representations.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(representation) = known().get(&key) {
            return Arc::clone(representation);
        }
        let made = make();
        let mut known = known();
        let bytes: usize = known.values().map(|kept| kept.body().len()).sum();
        if known.len() >= MAX_REPRESENTATIONS || bytes + made.body().len() > MAX_REPRESENTATION_BYTES {
            known.clear();
        }
        known.insert(key, Arc::clone(&made));
        made
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp(1_795_000_000_000_000);

    #[test]
    fn models_of_the_first_day_are_not_new() {
        let at = |days: i64| NOW.plus_ms(days * DAY_MS);
        let after = |added: &[i64]| new_after(added.iter().map(|days| at(*days)), NOW);
        assert_eq!(after(&[-400, -3]), at(-14), "two weeks");
        assert_eq!(after(&[-5, -3]), at(-4), "the first day ended four days ago");
        assert_eq!(after(&[]), NOW);
    }
}
