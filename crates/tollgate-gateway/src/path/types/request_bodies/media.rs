//! Remote media of one request: the URLs that an attempt needs as bytes, and the media fetched so far.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use futures_util::future::join_all;
use tollgate_core::{PlannedAttempt, upstream_profile};
use tollgate_protocol::{FetchedMedia, pending_media};

use super::RequestBodies;
use crate::{
    state::shares::InFlightRequest,
    upstream::media::{Allowance, FetchFault, MAX_ADDRESSES, MediaFetcher},
};

/// Media fetched for a request. The networks that a channel may reach do not matter, because the caller names the addresses.
pub(super) struct PrefetchedMedia {
    media: Mutex<FetchedMedia>,
    /// A file could not be fetched because of a limit of this gateway.
    is_at_own_limit: AtomicBool,
    allowance: Allowance,
}

impl PrefetchedMedia {
    pub(super) fn new(memory: Option<Arc<InFlightRequest>>) -> Self {
        Self { media: Mutex::default(), is_at_own_limit: AtomicBool::new(false), allowance: Allowance::new(memory) }
    }

    pub(super) fn is_at_own_limit(&self) -> bool {
        self.is_at_own_limit.load(Ordering::Acquire)
    }

    /// The media fetched so far, or the fetch faults.
    pub(super) fn so_far(&self) -> MutexGuard<'_, FetchedMedia> {
        self.media.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl RequestBodies<'_> {
    /// Fetches the media that an attempt needs and that is not fetched yet. `false` when the request cannot be translated for
    /// this attempt.
    pub(crate) async fn fetch_media(&self, fetcher: &MediaFetcher, planned: &PlannedAttempt) -> bool {
        if planned.protocol == self.from {
            return true;
        }
        let (channel, serves) = (&planned.channel, planned.mapping());
        if self.encoded_for(channel, serves).unfetched {
            let found = self.fetch(fetcher, planned).await;
            self.media.so_far().extend(found);
            // Bodies encoded without the media are encoded again.
            self.encoded.lock().unwrap_or_else(PoisonError::into_inner).retain(|one| !one.unfetched);
        }
        self.untranslatable(channel, serves).is_empty()
    }

    async fn fetch(&self, fetcher: &MediaFetcher, planned: &PlannedAttempt) -> FetchedMedia {
        let (channel, serves) = (&planned.channel, planned.mapping());
        let Ok(request) = self.decoded() else { return HashMap::new() };
        let wanted = pending_media(channel.upstream_protocol(self.summary.method), request, &upstream_profile(channel, serves));
        let fetched: Vec<bool> = {
            let media = self.media.so_far();
            wanted.iter().map(|address| media.contains_key(*address)).collect()
        };
        let (is_within_limit, allowance) = (wanted.len() <= MAX_ADDRESSES, &self.media.allowance);
        let missing = wanted.into_iter().zip(fetched).filter(|(_, fetched)| !fetched);
        let fetches = missing.map(|(address, _)| async move {
            let found = if is_within_limit { fetcher.fetch(address, allowance).await } else { Err(FetchFault::TooMany) };
            if matches!(found, Err(FetchFault::OwnLimit(_))) {
                self.media.is_at_own_limit.store(true, Ordering::Release);
            }
            (address.to_owned(), found.map_err(FetchFault::reason))
        });
        join_all(fetches).await.into_iter().collect()
    }
}
