//! Connections to Redis: options, TLS, timeouts and plain commands.

use std::{fmt, time::Duration};

use redis::{AsyncConnectionConfig, Client, FromRedisValue, RedisResult, TlsCertificates, aio::MultiplexedConnection};
use tokio::time::{Instant, timeout};
use tollgate_core::Timestamp;

use crate::{RandomSource, StoreError};

pub(super) const RESPONSE_TIMEOUT: Duration = Duration::from_secs(2);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);
const CERTIFICATE: &[u8] = b"-----BEGIN CERTIFICATE-----";

/// Address and certificate authority of a Redis server.
#[derive(Clone)]
pub struct RedisAddress {
    /// `redis://…` or `rediss://…`, with user and password.
    pub url: String,
    /// Certificate authority for `rediss://`, as PEM; `None` uses the public ones.
    pub ca: Option<Vec<u8>>,
}

impl fmt::Debug for RedisAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("RedisAddress").field(&redacted(&self.url)).finish()
    }
}

/// Asks for the time.
pub async fn check(address: &RedisAddress) -> Result<Timestamp, StoreError> {
    let client = client(address)?;
    let unreachable = |detail: String| StoreError::Unreachable { database: redacted(&address.url), detail };
    let time = async {
        let mut connection = connect(&client).await?;
        query::<(i64, i64)>(&mut connection, &mut redis::cmd("TIME")).await
    };
    match timeout(RESPONSE_TIMEOUT, time).await {
        Ok(Ok((seconds, micros))) => Ok(Timestamp(seconds.saturating_mul(1_000_000).saturating_add(micros))),
        Ok(Err(error)) => Err(unreachable(error.to_string())),
        Err(_) => Err(unreachable("it did not answer in time".to_owned())),
    }
}

pub(super) fn client(address: &RedisAddress) -> Result<Client, StoreError> {
    let invalid = |detail: String| StoreError::BadRedisUrl { url: redacted(&address.url), detail };
    let client = match &address.ca {
        None => Client::open(address.url.as_str()),
        Some(ca) if !ca.windows(CERTIFICATE.len()).any(|part| part == CERTIFICATE) => {
            return Err(invalid("the PEM file of the certificate authority holds no certificate".to_owned()));
        }
        Some(ca) => {
            let certificates = TlsCertificates { client_tls: None, root_cert: Some(ca.clone()) };
            Client::build_with_tls(address.url.as_str(), certificates)
        }
    };
    client.map_err(|error| invalid(error.to_string()))
}

pub(super) fn redacted(url: &str) -> String {
    crate::options::without_password(url)
}

pub(super) async fn connect(client: &Client) -> RedisResult<MultiplexedConnection> {
    let config =
        AsyncConnectionConfig::new().set_connection_timeout(Some(CONNECT_TIMEOUT)).set_response_timeout(Some(RESPONSE_TIMEOUT));
    client.get_multiplexed_async_connection_with_config(&config).await
}

pub(super) async fn query<T: FromRedisValue>(connection: &mut MultiplexedConnection, command: &mut redis::Cmd) -> RedisResult<T> {
    command.query_async(connection).await
}

/// Options of the counters in Redis.
#[derive(Clone)]
pub struct RedisOptions {
    pub address: RedisAddress,
    /// Separates gateways that share a Redis; the same on all nodes of one gateway.
    pub namespace: String,
    /// Names this node, also after a restart; different on each node.
    pub identity: String,
    /// Name of this process if another process of its node still counts when it starts, and keeps its registration. `None`: the
    /// start ends all registrations of the node.
    pub beside: Option<String>,
    /// How long a reservation lives after its last renewal.
    pub reservation_ttl: Duration,
    /// Number of nodes to assume until Redis has been reached.
    pub nodes: u64,
    /// Source of node names and data generations.
    pub random: RandomSource,
    pub clock: fn() -> Timestamp,
    pub instant: fn() -> Instant,
}

impl fmt::Debug for RedisOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisOptions").field("namespace", &self.namespace).field("nodes", &self.nodes).finish_non_exhaustive()
    }
}
