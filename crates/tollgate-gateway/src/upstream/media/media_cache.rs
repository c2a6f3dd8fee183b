//! Cache of downloaded media, bounded in age and size, so that consecutive turns of a conversation do not download the same
//! file again.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use tokio::time::Instant;
use tollgate_protocol::DownloadedMedia;

use crate::upstream::client::AddressPolicy;

/// How long a file is cached.
const MAX_AGE: Duration = Duration::from_mins(1);
/// Most bytes cached.
const MOST_BYTES: usize = 64 * 1024 * 1024;

/// Files by URL, oldest first.
#[derive(Default)]
pub(super) struct MediaCache(Mutex<VecDeque<CachedFile>>);

struct CachedFile {
    address: String,
    /// Policy under which the file was downloaded: a file from a private address is not served to a channel that could not
    /// reach it.
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
        kept.retain(|one| now.duration_since(one.since) < MAX_AGE);
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
    fn files_expire_and_are_separate_per_address_policy() {
        let (media_cache, now) = (MediaCache::default(), Instant::now());
        media_cache.keep("http://a/", AddressPolicy::Anywhere, &file(4), now);
        assert!(media_cache.find("http://a/", AddressPolicy::Anywhere, now + Duration::from_secs(59)).is_some());
        assert!(media_cache.find("http://a/", AddressPolicy::Public, now).is_none());
        assert!(media_cache.find("http://b/", AddressPolicy::Anywhere, now).is_none());
        assert!(media_cache.find("http://a/", AddressPolicy::Anywhere, now + MAX_AGE).is_none());
    }

    #[test]
    fn oldest_file_is_evicted_at_the_size_limit() {
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
