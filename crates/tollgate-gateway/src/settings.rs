//! Settings of the gateway, with the defaults the operating manual names.

use std::{net::SocketAddr, path::PathBuf, time::Duration};

use ipnet::IpNet;
use tollgate_core::Budget;

/// Everything the gateway is told at start.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Where model requests are served.
    pub listen: SocketAddr,
    /// Threads of the model path, each with a runtime and a listener of its own; 0: one per core.
    pub cores: usize,
    /// Certificate and key; `None`: plain text.
    pub tls: Option<TlsFiles>,
    /// Limits of connections and heads.
    pub http: HttpLimits,
    /// Limits of bodies.
    pub bounds: Bounds,
    /// Bytes of request bodies that are held at once, over all cores; beyond, E63.
    pub body_memory_bytes: usize,
    /// Limits towards upstreams that are the same for every channel.
    pub upstream: UpstreamLimits,
    /// Budgets of the whole gateway, on sale.
    pub budgets: Vec<Budget>,
    /// Wrong keys a minute from one address (IPv6: from one /64) before they are refused unseen.
    pub wrong_keys_per_minute: u32,
    /// Keys remembered, and as many wrong ones.
    pub key_cache_entries: u64,
    /// How long a wrong key is remembered.
    pub wrong_key_memory: Duration,
    /// Who may read `/metrics` on the model address.
    pub metrics: MetricsAccess,
    /// How long a shutdown waits for answers under way.
    pub drain: Duration,
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
            budgets: Vec::new(),
            wrong_keys_per_minute: 600,
            key_cache_entries: 100_000,
            wrong_key_memory: Duration::from_secs(10),
            metrics: MetricsAccess::Guarded,
            drain: Duration::from_mins(10),
        }
    }
}

/// Who may read `/metrics` on the model address.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MetricsAccess {
    /// Loopback peers; others as the console decides.
    #[default]
    Guarded,
    /// Everybody.
    Public,
    /// None: the console has a separate address.
    NotHere,
}

/// PEM files of the listener.
#[derive(Clone, Debug)]
pub struct TlsFiles {
    /// Certificate chain, leaf first.
    pub certificate: PathBuf,
    /// Private key.
    pub key: PathBuf,
}

/// Limits of connections and of request heads.
#[derive(Clone, Debug)]
pub struct HttpLimits {
    /// Connections at once, over all cores.
    pub connections: usize,
    /// Connections at once from one address (IPv6: from one /64); loopback has no bound of its own.
    pub connections_per_address: usize,
    /// Requests answered at once, over all cores; beyond, E63.
    pub requests: usize,
    /// From the first byte of a head to its end; also for a TLS handshake.
    pub header_timeout: Duration,
    /// How long a connection may idle between requests.
    pub idle_timeout: Duration,
    /// Bytes of a head.
    pub header_bytes: usize,
    /// Fields of a head.
    pub header_count: usize,
    /// Bytes of a request target.
    pub target_bytes: usize,
    /// Streams at once on an HTTP/2 connection.
    pub h2_streams: u32,
    /// Proxies that are believed when they say in `X-Forwarded-For` who called them.
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

/// Limits towards upstreams that are the same for every channel; the others are the channel's own.
#[derive(Clone, Copy, Debug)]
pub struct UpstreamLimits {
    /// Longest time for a request over all attempts, until its answer begins.
    pub total: Duration,
    /// Longest silence towards the caller of a stream.
    pub keep_alive: Duration,
}

impl Default for UpstreamLimits {
    fn default() -> Self {
        Self { total: Duration::from_mins(10), keep_alive: Duration::from_secs(15) }
    }
}

/// Limits of request bodies.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Bytes of a body, before and after decompression.
    pub body_bytes: usize,
    /// Longest silence between two pieces of a body.
    pub body_timeout: Duration,
}

impl Default for Bounds {
    fn default() -> Self {
        Self { body_bytes: 32 * 1024 * 1024, body_timeout: Duration::from_secs(30) }
    }
}
