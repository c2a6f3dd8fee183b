//! Remote media of one request: which URLs an attempt needs as bytes, and what was fetched so far.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use futures_util::future::join_all;
use tollgate_core::PlannedAttempt;
use tollgate_protocol::{FetchedMedia, pending_media};

use super::{RequestBodies, profile_of};
use crate::{
    condition::InFlightRequest,
    upstream::{
        client::AddressPolicy,
        media::{Allowance, FetchFault, MOST_ADDRESSES, MediaFetcher},
    },
};

/// Fetched media, kept separately for channels that may reach private addresses and those that may not.
pub(super) struct PrefetchedMedia {
    public: Mutex<FetchedMedia>,
    anywhere: Mutex<FetchedMedia>,
    allowance: Allowance,
}

impl PrefetchedMedia {
    pub(super) fn new(memory: Option<Arc<InFlightRequest>>) -> Self {
        Self { public: Mutex::default(), anywhere: Mutex::default(), allowance: Allowance::new(memory) }
    }

    /// The media fetched under an address policy, or the fetch faults.
    pub(super) fn of(&self, reach: AddressPolicy) -> MutexGuard<'_, FetchedMedia> {
        let media = match reach {
            AddressPolicy::Public => &self.public,
            AddressPolicy::Anywhere => &self.anywhere,
        };
        media.lock().unwrap_or_else(PoisonError::into_inner)
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
            let reach = AddressPolicy::of(channel);
            let found = self.fetch(fetcher, planned, reach).await;
            self.media.of(reach).extend(found);
            // Bodies encoded without the media are encoded again.
            self.encoded.lock().unwrap_or_else(PoisonError::into_inner).retain(|one| !one.unfetched);
        }
        self.untranslatable(channel, serves).is_empty()
    }

    async fn fetch(&self, fetcher: &MediaFetcher, planned: &PlannedAttempt, reach: AddressPolicy) -> FetchedMedia {
        let (channel, serves) = (&planned.channel, planned.mapping());
        let Ok(request) = self.decoded() else { return HashMap::new() };
        let wanted = pending_media(channel.protocol, request, &profile_of(channel, serves));
        let fetched: Vec<bool> = {
            let media = self.media.of(reach);
            wanted.iter().map(|address| media.contains_key(*address)).collect()
        };
        let (is_within_limit, allowance) = (wanted.len() <= MOST_ADDRESSES, &self.media.allowance);
        let missing = wanted.into_iter().zip(fetched).filter(|(_, fetched)| !fetched);
        let fetches = missing.map(|(address, _)| async move {
            let found = if is_within_limit { fetcher.fetch(address, reach, allowance).await } else { Err(FetchFault::TooMany) };
            (address.to_owned(), found.map_err(FetchFault::reason))
        });
        join_all(fetches).await.into_iter().collect()
    }
}
