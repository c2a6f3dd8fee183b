//! What was fetched lately: for a minute, and within a bound, so that the turns of one conversation do not fetch the
//! same picture again and again.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use tokio::time::Instant;
use tollgate_protocol::DownloadedMedia;

use crate::upstream::client::AddressPolicy;

/// How long a file is kept.
const KEPT: Duration = Duration::from_mins(1);
/// Bytes kept.
const MOST_BYTES: usize = 64 * 1024 * 1024;

/// Files by address, the oldest first.
#[derive(Default)]
pub(super) struct MediaCache(Mutex<VecDeque<CachedFile>>);

struct CachedFile {
    address: String,
    /// What may be reached by who fetched it: a private file is not handed to a channel that could not have it.
    reach: AddressPolicy,
    file: Arc<DownloadedMedia>,
    since: Instant,
}

impl CachedFile {
    fn bytes(&self) -> usize {
        self.address.len() + self.file.data.len()
    }
}

impl MediaCache {
    pub(super) fn find(&self, address: &str, reach: AddressPolicy, now: Instant) -> Option<Arc<DownloadedMedia>> {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.retain(|one| now.duration_since(one.since) < KEPT);
        kept.iter().find(|one| one.reach == reach && one.address == address).map(|one| Arc::clone(&one.file))
    }

    pub(super) fn keep(&self, address: &str, reach: AddressPolicy, file: &Arc<DownloadedMedia>, now: Instant) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.push_back(CachedFile { address: address.to_owned(), reach, file: Arc::clone(file), since: now });
        let mut bytes: usize = kept.iter().map(CachedFile::bytes).sum();
        while bytes > MOST_BYTES
            && let Some(oldest) = kept.pop_front()
        {
            bytes -= oldest.bytes();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(bytes: usize) -> Arc<DownloadedMedia> {
        Arc::new(DownloadedMedia { mime: "image/png".to_owned(), data: "A".repeat(bytes) })
    }

    #[test]
    fn files_are_kept_for_a_minute_and_for_those_who_could_have_fetched_them() {
        let (media_cache, now) = (MediaCache::default(), Instant::now());
        media_cache.keep("http://a/", AddressPolicy::Anywhere, &file(4), now);
        assert!(media_cache.find("http://a/", AddressPolicy::Anywhere, now + Duration::from_secs(59)).is_some());
        assert!(media_cache.find("http://a/", AddressPolicy::Public, now).is_none());
        assert!(media_cache.find("http://b/", AddressPolicy::Anywhere, now).is_none());
        assert!(media_cache.find("http://a/", AddressPolicy::Anywhere, now + KEPT).is_none());
    }

    #[test]
    fn the_oldest_goes_when_there_is_no_room() {
        let (media_cache, now) = (MediaCache::default(), Instant::now());
        for address in ["http://a/", "http://b/", "http://c/"] {
            media_cache.keep(address, AddressPolicy::Public, &file(MOST_BYTES / 2 - 100), now);
        }
        assert!(media_cache.find("http://a/", AddressPolicy::Public, now).is_none());
        assert!(
            media_cache.find("http://b/", AddressPolicy::Public, now).is_some()
                && media_cache.find("http://c/", AddressPolicy::Public, now).is_some()
        );
    }
}
