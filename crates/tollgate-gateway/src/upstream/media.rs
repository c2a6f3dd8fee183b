//! Downloads media that a caller references by URL, for upstreams that accept only inline bytes and channels that enable
//! it.
//!
//! Limits: `http` and `https` only, public addresses only, also of redirects and on channels of private networks, 3 redirects, 20 MiB and
//! 10 s per URL, 16 URLs and 32 MiB per request, 64 concurrent downloads, of which a key has its share. Files are cached for 60 s, up to
//! 64 MiB. The media type is detected from the bytes; the `Content-Type` of the server is ignored.

mod sniff;

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use http::header::{CONTENT_ENCODING, LOCATION};
use http_body::Body as _;
use http_body_util::BodyExt as _;
use moka::{policy::EvictionPolicy, sync::Cache};
use tokio::time::{Instant, timeout_at};
use tokio_util::task::TaskTracker;
use tollgate_protocol::DownloadedMedia;
use url::Url;

use self::sniff::mime_of;
use crate::{
    clock::Clock,
    state::shares::{Bound, FairPermit, FairSemaphore, InFlightRequest, TooManyWaiting},
    upstream::{
        call::ConnectFault,
        client::{AddressPolicy, Trust, fetch},
    },
};

/// Most URLs of one request.
pub(crate) const MAX_ADDRESSES: usize = 16;
/// Largest file, in bytes.
const MAX_BYTES: usize = 20 * 1024 * 1024;
/// All files of one request together, in bytes.
const MAX_REQUEST_BYTES: usize = 32 * 1024 * 1024;
/// Longest download of one URL, including redirects and the wait for a permit.
const LIMIT: Duration = Duration::from_secs(10);
/// Concurrent downloads, over all cores.
pub(crate) const MAX_AT_ONCE: usize = 64;
/// Downloads that wait for one of them, over all cores.
pub(crate) const MAX_WAITING: usize = 4_096;
/// Most redirects followed.
const MAX_REDIRECTS: usize = 3;
/// Bytes of all cached files.
const CACHE_BYTES: u64 = 64 * 1024 * 1024;
/// How long a file is cached, so that consecutive turns of a conversation do not download it again.
const CACHE_AGE: Duration = Duration::from_mins(1);

/// Downloaded files by address, and when each was downloaded.
type MediaCache = Cache<String, (Instant, Arc<DownloadedMedia>)>;

/// Downloads media; one instance per process.
pub(crate) struct MediaFetcher {
    /// Set only by tests, whose servers are on loopback.
    anywhere: AtomicBool,
    trust: Arc<Trust>,
    tasks: TaskTracker,
    downloads: Arc<FairSemaphore>,
    cache: MediaCache,
    clock: Arc<dyn Clock>,
}

/// The message for every fault, because different messages would let callers scan networks.
const NOT_FETCHED: &str = "the address could not be fetched: it must be a public one, of an image, audio, video or PDF of at most \
                           20 MiB, 32 MiB together";

/// Why a download failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FetchFault {
    /// The URL is not allowed, not reachable, or timed out; the text is for the log. Callers do not see which, since the
    /// difference would let them scan the gateway's network.
    Unreachable(&'static str),
    /// Larger than the limit per file or per request.
    TooLarge,
    UnknownType,
    /// More than [`MAX_ADDRESSES`] URLs.
    TooMany,
    /// A limit of this gateway is reached, independent of the URL: memory, permits for downloads, file descriptors. The text
    /// is for the log. The request is refused with E63.
    OwnLimit(&'static str),
}

impl FetchFault {
    /// The text in the caller's error message, in parentheses.
    pub(crate) const fn reason(self) -> &'static str {
        match self {
            Self::Unreachable(_) | Self::OwnLimit(_) | Self::TooLarge | Self::UnknownType => NOT_FETCHED,
            Self::TooMany => "at most 16 remote addresses",
        }
    }

    /// The class in the log.
    const fn class(self) -> &'static str {
        match self {
            Self::Unreachable(class) | Self::OwnLimit(class) => class,
            Self::TooLarge => "too large",
            Self::UnknownType => "unknown type",
            Self::TooMany => "too many addresses",
        }
    }
}

impl From<ConnectFault> for FetchFault {
    fn from(fault: ConnectFault) -> Self {
        Self::Unreachable(match fault {
            ConnectFault::BadUrl | ConnectFault::BadHeader => "bad address",
            ConnectFault::Resolve => "name not resolved",
            ConnectFault::Denied => "address not allowed for this channel",
            ConnectFault::Unlisted(why) => why.as_str(),
            ConnectFault::Tls(_) | ConnectFault::CaFile | ConnectFault::ClientCertificate => "TLS handshake failed",
            ConnectFault::TimedOut => "not in time",
            ConnectFault::Refused | ConnectFault::Proxy | ConnectFault::Closed => "connection refused or lost",
            ConnectFault::AllTaken => return Self::OwnLimit("all connections are in use"),
            ConnectFault::OwnLimit => return Self::OwnLimit("no file descriptor left"),
        })
    }
}

/// The bytes that a request may still download.
pub(crate) struct Allowance {
    left: AtomicUsize,
    memory: Option<Arc<InFlightRequest>>,
}

impl Allowance {
    /// Downloaded bytes are counted in `memory` with the request's body.
    pub(crate) const fn new(memory: Option<Arc<InFlightRequest>>) -> Self {
        Self { left: AtomicUsize::new(MAX_REQUEST_BYTES), memory }
    }

    /// A permit to download until `by`, within the share of the request's key.
    async fn acquire(&self, downloads: &Arc<FairSemaphore>, by: Instant) -> Result<FairPermit, FetchFault> {
        let share = self.memory.as_ref().and_then(|memory| memory.share());
        let holders = share.map(|share| share.holders());
        let permit = timeout_at(by, downloads.acquire(holders.as_ref().map_or(&[], |holders| holders))).await;
        permit
            .map_err(|_| FetchFault::OwnLimit("no download ended in time"))?
            .map_err(|TooManyWaiting| FetchFault::OwnLimit("too many downloads wait"))
    }

    fn take(&self, bytes: usize) -> Result<(), FetchFault> {
        let taken = |left: usize| left.checked_sub(bytes);
        self.left.fetch_update(Ordering::AcqRel, Ordering::Acquire, taken).map_err(|_| FetchFault::TooLarge)?;
        match &self.memory {
            // In memory twice as base64: the cached file and the request body built from it.
            Some(memory) => {
                memory.reserve_bytes(bytes.saturating_mul(8) / 3).map_err(|_| FetchFault::OwnLimit("memory limit for bodies"))
            }
            None => Ok(()),
        }
    }
}

impl fmt::Debug for MediaFetcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MediaFetcher").finish_non_exhaustive()
    }
}

impl MediaFetcher {
    pub(crate) fn new(clock: Arc<dyn Clock>, trust: Arc<Trust>) -> Self {
        let bytes = |key: &String, (_, file): &(Instant, Arc<DownloadedMedia>)| {
            u32::try_from(key.len() + file.data.len()).unwrap_or(u32::MAX)
        };
        let cache = Cache::builder().eviction_policy(EvictionPolicy::lru()).weigher(bytes).max_capacity(CACHE_BYTES).build();
        Self {
            anywhere: AtomicBool::new(false),
            trust,
            tasks: TaskTracker::new(),
            downloads: FairSemaphore::new(Bound::Media, MAX_AT_ONCE, MAX_WAITING),
            cache,
            clock,
        }
    }

    /// Only public addresses, even if the channel may reach private ones: the caller chooses the address.
    fn reach(&self) -> AddressPolicy {
        if self.anywhere.load(Ordering::Relaxed) { AddressPolicy::Anywhere } else { AddressPolicy::Public }
    }

    #[cfg(test)]
    pub(crate) fn reach_anywhere(&self) {
        self.anywhere.store(true, Ordering::Relaxed);
    }

    fn keep(&self, key: String, file: &Arc<DownloadedMedia>) {
        self.cache.insert(key, (self.clock.instant(), Arc::clone(file)));
        // Evicts now, so that the cache does not exceed its bound until its next use.
        self.cache.run_pending_tasks();
    }

    /// Downloads a URL, or returns it from the cache.
    ///
    /// # Errors
    /// Why the download failed. It is logged without the URL, which may contain a secret.
    pub(crate) async fn fetch(&self, address: &str, allowance: &Allowance) -> Result<Arc<DownloadedMedia>, FetchFault> {
        if let Some((at, kept)) = self.cache.get(address)
            && self.clock.instant().saturating_duration_since(at) < CACHE_AGE
        {
            allowance.take(kept.data.len() / 4 * 3)?;
            return Ok(kept);
        }
        match self.download(address, allowance).await {
            Ok(fetched) => {
                let fetched = Arc::new(fetched);
                self.keep(address.to_owned(), &fetched);
                Ok(fetched)
            }
            Err(fault) => {
                tracing::info!(class = fault.class(), "remote media download failed");
                Err(fault)
            }
        }
    }

    async fn download(&self, address: &str, allowance: &Allowance) -> Result<DownloadedMedia, FetchFault> {
        let by = self.clock.instant() + LIMIT;
        let _permit = allowance.acquire(&self.downloads, by).await?;
        timeout_at(by, self.follow(address, allowance)).await.unwrap_or(Err(FetchFault::Unreachable("not in time")))
    }

    async fn follow(&self, address: &str, allowance: &Allowance) -> Result<DownloadedMedia, FetchFault> {
        const BAD: FetchFault = FetchFault::Unreachable("bad address");
        let mut url = Url::parse(address).map_err(|_| BAD)?;
        for _ in 0..=MAX_REDIRECTS {
            if !url.username().is_empty() || url.password().is_some() {
                return Err(BAD);
            }
            let got = fetch::get(&url, self.reach(), &self.trust, &self.tasks).await?;
            match got.status {
                200 => return read(got, allowance).await,
                301 | 302 | 303 | 307 | 308 => {
                    let next = got.headers.get(LOCATION).and_then(|next| next.to_str().ok()).ok_or(BAD)?;
                    let next = url.join(next).map_err(|_| BAD)?;
                    if url.scheme() == "https" && next.scheme() != "https" {
                        return Err(FetchFault::Unreachable("redirected out of TLS"));
                    }
                    url = next;
                }
                _ => return Err(FetchFault::Unreachable("the address answered with an error")),
            }
        }
        Err(FetchFault::Unreachable("too many redirects"))
    }
}

async fn read(mut got: fetch::FetchedResponse, allowance: &Allowance) -> Result<DownloadedMedia, FetchFault> {
    if got.headers.get(CONTENT_ENCODING).is_some_and(|encoding| !encoding.as_bytes().eq_ignore_ascii_case(b"identity")) {
        return Err(FetchFault::Unreachable("packed although it was not to be"));
    }
    if got.body.size_hint().lower() > MAX_BYTES as u64 {
        return Err(FetchFault::TooLarge);
    }
    let mut bytes = Vec::new();
    while let Some(frame) = got.body.frame().await {
        let frame = frame.map_err(|_| FetchFault::Unreachable("connection refused or lost"))?;
        let Ok(piece) = frame.into_data() else { continue };
        if bytes.len() + piece.len() > MAX_BYTES {
            return Err(FetchFault::TooLarge);
        }
        allowance.take(piece.len())?;
        bytes.extend_from_slice(&piece);
    }
    let mime = mime_of(&bytes).ok_or(FetchFault::UnknownType)?;
    Ok(DownloadedMedia { mime: mime.to_owned(), data: STANDARD.encode(&bytes) })
}

#[cfg(test)]
mod tests;
