//! Settings of the gateway and their defaults, as `docs/operating.md` lists them.

use std::{net::SocketAddr, path::PathBuf, time::Duration};

use http::HeaderValue;
use ipnet::IpNet;
use smallvec::SmallVec;
use tollgate_core::{AddressLists, Budget, Redaction};

use crate::state::request_log::LogSelection;

/// Time for which a reservation is kept after the longest possible request has ended.
const RESERVATION_GRACE: Duration = Duration::from_mins(1);

/// Budgets of the whole gateway: of the day, of the month and in total.
pub type GatewayBudgets = SmallVec<[Budget; 3]>;

/// Settings of the gateway. Those of listeners, certificates and caches are read at the start; the others can be replaced while it
/// runs ([`Shared::replace_settings`](crate::state::shared::Shared::replace_settings)).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    pub listen: SocketAddr,
    /// Threads of the model path, each with its own runtime and listening socket; 0: one per CPU core.
    pub cores: usize,
    /// Certificate and key; `None`: no TLS.
    pub tls: Option<TlsFiles>,
    pub http: HttpLimits,
    /// Limits of request bodies.
    pub bounds: Bounds,
    /// Bytes of bodies and answers in memory at once, over all cores; beyond, E63.
    pub body_memory_bytes: usize,
    pub upstream: UpstreamLimits,
    /// Addresses that outgoing connections may have.
    pub addresses: AddressLists,
    /// Budgets of the whole gateway, in sale prices.
    pub budgets: GatewayBudgets,
    /// The requests that are logged.
    pub logged: LogSelection,
    /// Unknown keys a minute from one address (IPv6: one /64) before further keys are refused without a lookup.
    pub wrong_keys_per_minute: u32,
    /// Requests a minute from one address for the feeds of the model square.
    pub square_requests_per_minute: u32,
    /// Cached keys, and as many cached unknown ones.
    pub key_cache_entries: u64,
    /// How long an unknown key is cached.
    pub wrong_key_memory: Duration,
    /// Access to `/metrics` on the model address.
    pub metrics: MetricsAccess,
    /// The origin of the console's pages, if they have an address of their own: browsers may send model requests from them.
    pub pages_origin: Option<HeaderValue>,
    /// Origins of other pages that may send requests of the model API.
    pub cors: CorsOrigins,
    /// Path at which a proxy serves the gateway, such as `/llm`, in case the proxy does not remove it; empty without one.
    pub base_path: String,
    /// How long a shutdown waits for requests in progress.
    pub drain: Duration,
    /// Whether the streams of a key end when it is revoked or disabled or its member suspended.
    pub end_revoked_streams: bool,
    pub contents: ContentSettings,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 8080)),
            cores: 0,
            tls: None,
            http: HttpLimits::default(),
            bounds: Bounds::default(),
            body_memory_bytes: 1024 * 1024 * 1024,
            upstream: UpstreamLimits::default(),
            addresses: AddressLists::default(),
            budgets: GatewayBudgets::new(),
            logged: LogSelection::default(),
            wrong_keys_per_minute: 600,
            square_requests_per_minute: 120,
            key_cache_entries: 100_000,
            wrong_key_memory: Duration::from_secs(10),
            metrics: MetricsAccess::Guarded,
            pages_origin: None,
            cors: CorsOrigins::default(),
            base_path: String::new(),
            drain: Duration::from_mins(10),
            end_revoked_streams: true,
            contents: ContentSettings::default(),
        }
    }
}

impl Settings {
    /// Lifetime of a reservation whose request was lost.
    #[must_use]
    pub fn reservation_ttl(&self) -> Duration {
        self.upstream.total + RESERVATION_GRACE
    }

    pub(crate) fn of_request(&self) -> RequestSettings {
        RequestSettings { bounds: self.bounds, upstream: self.upstream, budgets: self.budgets.clone() }
    }
}

/// The settings that a request keeps from its arrival to its end. A change applies to later requests.
#[derive(Clone, Debug, Default)]
pub struct RequestSettings {
    pub bounds: Bounds,
    pub upstream: UpstreamLimits,
    pub budgets: GatewayBudgets,
}

/// Origins of web pages in the form of the `Origin` header, such as `https://app.example.com`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CorsOrigins {
    Any,
    Of(Vec<HeaderValue>),
}

impl Default for CorsOrigins {
    /// No origins.
    fn default() -> Self {
        Self::Of(Vec::new())
    }
}

/// Access to `/metrics` on the model address.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MetricsAccess {
    /// Served to loopback peers; other requests go to the console, which checks access.
    #[default]
    Guarded,
    Public,
    /// Not served on the model address (E10): the console listens on its own.
    OnConsoleAddress,
}

/// Whether, and how much of, the contents of requests is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContentSettings {
    /// Whether contents are stored at all, for the groups and keys that ask for it.
    pub store: bool,
    /// Maximum number of bytes of a body and of an answer.
    pub max_bytes: usize,
    /// Maximum compressed size of all stored contents, in bytes.
    pub total_bytes: u64,
    /// Texts that are replaced before contents are stored.
    pub redact: Option<Redaction>,
}

impl Default for ContentSettings {
    fn default() -> Self {
        Self { store: false, max_bytes: 256 * 1024, total_bytes: 1 << 30, redact: None }
    }
}

/// PEM files of the listener.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFiles {
    /// Certificate chain, leaf first.
    pub certificate: PathBuf,
    pub key: PathBuf,
}

/// Limits of connections and of request heads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpLimits {
    /// Concurrent connections, over all cores.
    pub connections: usize,
    /// Concurrent connections from one address (IPv6: one /64). Loopback is exempt.
    pub connections_per_address: usize,
    /// Concurrent requests, over all cores; beyond, E63.
    pub requests: usize,
    /// Time from the first byte of a head to its end; also for a TLS handshake.
    pub header_timeout: Duration,
    /// Longest idle time between two requests of a connection.
    pub idle_timeout: Duration,
    pub header_bytes: usize,
    pub header_count: usize,
    pub target_bytes: usize,
    /// Concurrent streams on an HTTP/2 connection.
    pub h2_streams: u32,
    /// Proxies whose `X-Forwarded-For` is trusted.
    pub trusted_proxies: Vec<IpNet>,
}

impl Default for HttpLimits {
    fn default() -> Self {
        Self {
            connections: 20_000,
            connections_per_address: 4_096,
            requests: 16_384,
            header_timeout: Duration::from_secs(10),
            idle_timeout: Duration::from_mins(1),
            header_bytes: 64 * 1024,
            header_count: 100,
            target_bytes: 8 * 1024,
            h2_streams: 256,
            trusted_proxies: Vec::new(),
        }
    }
}

/// Upstream limits that apply to every channel; the others are settings of the channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UpstreamLimits {
    /// Longest time over all attempts of a request until its answer begins.
    pub total: Duration,
    /// Longest silence on a stream to the caller before a keep-alive comment is sent.
    pub keep_alive: Duration,
    /// Longest wait for the first content of a stream whose upstream is alive; then the status 200 is sent without content. Zero: no
    /// limit.
    pub answer_after: Duration,
    /// Longest time for which a stream, once begun, may send pings or comments but no content.
    pub stall: Duration,
}

impl UpstreamLimits {
    /// Longest wait for the first content of a stream whose upstream is alive; then the status is sent without it. `None`: no limit.
    pub(crate) fn answer_after(&self) -> Option<Duration> {
        (!self.answer_after.is_zero()).then_some(self.answer_after)
    }
}

impl Default for UpstreamLimits {
    fn default() -> Self {
        Self {
            total: Duration::from_mins(10),
            keep_alive: Duration::from_secs(10),
            answer_after: Duration::from_secs(30),
            stall: Duration::from_mins(30),
        }
    }
}

/// Limits of request bodies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Bytes of a body, before and after decompression.
    pub body_bytes: usize,
    /// Longest time between two chunks of a body.
    pub body_timeout: Duration,
    /// Longest time for a whole body.
    pub body_total_timeout: Duration,
    /// Minimum average rate, in bytes per second, at which a caller sends a body and reads a complete answer. A caller may be
    /// behind it for `body_timeout`, or the idle timeout of the connection; 0: no minimum.
    pub min_rate: u64,
}

impl Default for Bounds {
    fn default() -> Self {
        Self {
            body_bytes: 32 * 1024 * 1024,
            body_timeout: Duration::from_secs(30),
            body_total_timeout: Duration::from_mins(10),
            min_rate: 8 * 1024,
        }
    }
}
