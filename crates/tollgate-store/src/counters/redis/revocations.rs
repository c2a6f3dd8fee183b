//! Revoked keys shared by nodes, so that a node that has lost the database refuses them too. Exchanged about once a second.

use std::{collections::HashSet, time::Duration};

use redis::{Client, Script, aio::MultiplexedConnection};
use tokio::time::timeout;
use tollgate_core::KeyId;

use super::connection::{self, RESPONSE_TIMEOUT, RedisAddress};
use crate::StoreError;

/// Limit of the keys that are sent in one message, and of those kept to fill a Redis that has lost them.
const MAX_SENT: usize = 1_000;
const MAX_KNOWN: usize = 100_000;
/// Overlap of two queries: keys are read again from this long before the last answer, so that none is missed.
const OVERLAP_MS: i64 = 2_000;

/// The recently revoked keys of all nodes.
#[derive(Debug)]
pub struct SharedRevocations {
    client: Client,
    address: String,
    key: String,
    script: Script,
    keep: Duration,
    connection: Option<MultiplexedConnection>,
    /// The time up to which keys were received.
    received_ms: i64,
    known: HashSet<KeyId>,
    /// A key that Redis has, by which a loss of its data is noticed.
    present: Option<KeyId>,
    /// Keys to send.
    unsent: Vec<KeyId>,
}

impl SharedRevocations {
    /// `address` and `namespace` are those of the counters. Keys are shared for the time `keep`: as long as a node may serve
    /// without the database.
    ///
    /// # Errors
    /// When the address is invalid.
    pub fn new(address: &RedisAddress, namespace: &str, keep: Duration) -> Result<Self, StoreError> {
        Ok(Self {
            client: connection::client(address)?,
            address: connection::redacted(&address.url),
            key: format!("tollgate:{{{namespace}}}:revoked"),
            script: Script::new(include_str!("revocations.lua")),
            keep,
            connection: None,
            received_ms: 0,
            known: HashSet::new(),
            present: None,
            unsent: Vec::new(),
        })
    }

    /// Sends keys that are revoked, and returns those that other nodes sent and were not returned before.
    ///
    /// # Errors
    /// When Redis is unreachable; the keys are sent with the next exchange.
    pub async fn exchange(&mut self, revoked: impl IntoIterator<Item = KeyId>) -> Result<Vec<KeyId>, StoreError> {
        for key in revoked {
            if self.known.len() < MAX_KNOWN && self.known.insert(key) {
                self.unsent.push(key);
            }
        }
        let database = self.address.clone();
        let unreachable = |detail: String| StoreError::Unreachable { database, detail };
        let failed = match timeout(RESPONSE_TIMEOUT, self.send()).await {
            Ok(Ok(new)) => return Ok(new),
            Ok(Err(error)) => error.to_string(),
            Err(_) => "it did not answer in time".to_owned(),
        };
        self.connection = None;
        Err(unreachable(failed))
    }

    async fn send(&mut self) -> redis::RedisResult<Vec<KeyId>> {
        let mut connection = match self.connection.take() {
            Some(connection) => connection,
            None => connection::connect(&self.client).await?,
        };
        let mut invocation = self.script.prepare_invoke();
        invocation.key(&self.key).arg(self.received_ms - OVERLAP_MS).arg(u64::try_from(self.keep.as_millis()).unwrap_or(u64::MAX));
        invocation.arg(self.present.map_or_else(String::new, |key| key.to_string()));
        let sent = self.unsent.len().min(MAX_SENT);
        for key in &self.unsent[..sent] {
            invocation.arg(key.to_string());
        }
        let reply: Vec<String> = invocation.invoke_async(&mut connection).await?;
        self.connection = Some(connection);
        let [until, is_kept, keys @ ..] = reply.as_slice() else { return Ok(Vec::new()) };
        self.present =
            self.unsent.drain(..sent).next_back().or_else(|| keys.iter().find_map(|key| KeyId::parse(key))).or(self.present);
        self.received_ms = until.parse().unwrap_or(0);
        if is_kept == "0" {
            // Redis has lost its data.
            self.unsent = self.known.iter().copied().collect();
            self.present = None;
        }
        Ok(keys.iter().filter_map(|key| KeyId::parse(key)).filter(|key| self.remember(*key)).collect())
    }

    fn remember(&mut self, key: KeyId) -> bool {
        if self.known.len() >= MAX_KNOWN {
            return !self.known.contains(&key);
        }
        self.known.insert(key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        counters::conformance::{namespace, redis},
        samples::MIDNIGHT,
    };

    const DAY: Duration = Duration::from_hours(24);

    fn key(number: u8) -> KeyId {
        KeyId::from_parts(MIDNIGHT, [number; 10])
    }

    #[tokio::test]
    async fn revoked_key_reaches_other_nodes_once_also_those_that_start_later() {
        let Some(url) = redis("revoked_key_reaches_other_nodes") else { return };
        let (url, name) = (RedisAddress { url, ca: None }, namespace());
        let node = || SharedRevocations::new(&url, &name, DAY).unwrap();
        let (mut one, mut other) = (node(), node());
        assert_eq!(other.exchange([]).await.unwrap(), []);
        assert_eq!(one.exchange([key(1)]).await.unwrap(), [], "that key is its own");
        assert_eq!(other.exchange([key(2)]).await.unwrap(), [key(1)]);
        assert_eq!(other.exchange([]).await.unwrap(), []);
        assert_eq!(one.exchange([]).await.unwrap(), [key(2)]);
        let mut late = node().exchange([]).await.unwrap();
        late.sort_unstable();
        assert_eq!(late, [key(1), key(2)]);
    }

    #[tokio::test]
    async fn redis_that_lost_its_data_gets_the_keys_again() {
        let Some(url) = redis("redis_that_lost_revocations") else { return };
        let (url, name) = (RedisAddress { url, ca: None }, namespace());
        let mut one = SharedRevocations::new(&url, &name, DAY).unwrap();
        one.exchange([key(1)]).await.unwrap();
        let mut connection = ::redis::Client::open(url.url.as_str()).unwrap().get_multiplexed_async_connection().await.unwrap();
        let () = ::redis::cmd("DEL").arg(&one.key).query_async(&mut connection).await.unwrap();
        one.exchange([]).await.unwrap();
        one.exchange([]).await.unwrap();
        assert_eq!(SharedRevocations::new(&url, &name, DAY).unwrap().exchange([]).await.unwrap(), [key(1)]);
    }
}
