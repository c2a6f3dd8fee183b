//! Account health shared by nodes: an account that cools or rests on one node does so on all. Exchanged about once a second.

use std::collections::HashMap;

use redis::{Client, Script, aio::MultiplexedConnection};
use tokio::time::timeout;
use tollgate_core::{AccountHealth, AccountId, HealthState, Timestamp};

use super::connection::{self, RESPONSE_TIMEOUT, RedisAddress};
use crate::StoreError;

/// How long a rest without an end stays shared. Probes test such accounts at the same interval.
const ENDLESS_REST_MS: i64 = 600_000;

#[derive(Debug)]
pub struct SharedHealth {
    client: Client,
    address: String,
    key: String,
    script: Script,
    connection: Option<MultiplexedConnection>,
    /// The last state received of each account. A state is returned once, so that a node that finds the account usable again
    /// can use it.
    received: HashMap<AccountId, HealthState>,
}

impl SharedHealth {
    /// `address` and `namespace` are those of the counters.
    pub fn new(address: &RedisAddress, namespace: &str) -> Result<Self, StoreError> {
        Ok(Self {
            client: connection::client(address)?,
            address: connection::redacted(&address.url),
            key: format!("tollgate:{{{namespace}}}:health"),
            script: Script::new(include_str!("health.lua")),
            connection: None,
            received: HashMap::new(),
        })
    }

    /// Sends which accounts cool or rest on this node, and returns the states of other nodes that were not returned before.
    pub async fn exchange(
        &mut self,
        ours: &[(AccountId, AccountHealth)],
        now: Timestamp,
    ) -> Result<Vec<(AccountId, AccountHealth)>, StoreError> {
        let database = self.address.clone();
        let unreachable = |detail: String| StoreError::Unreachable { database, detail };
        let reply = timeout(RESPONSE_TIMEOUT, self.send(ours, now)).await;
        let reply = reply.map_err(|_| "it did not answer in time".to_owned());
        // A failed `send` has dropped the connection.
        let shared = reply.and_then(|sent| sent.map_err(|error| error.to_string())).map_err(unreachable)?;
        let mut changed = Vec::new();
        for entry in shared.chunks_exact(2) {
            let (Some(account), Ok(health)) = (AccountId::parse(&entry[0]), serde_json::from_str::<AccountHealth>(&entry[1]))
            else {
                continue;
            };
            if self.received.insert(account, health.state) != Some(health.state) {
                changed.push((account, health));
            }
        }
        Ok(changed)
    }

    async fn send(&mut self, ours: &[(AccountId, AccountHealth)], now: Timestamp) -> redis::RedisResult<Vec<String>> {
        let mut connection = match self.connection.take() {
            Some(connection) => connection,
            None => connection::connect(&self.client).await?,
        };
        let mut invocation = self.script.prepare_invoke();
        invocation.key(&self.key).arg(now.0);
        for (account, health) in ours {
            // Received from Redis: not sent back.
            if self.received.get(account) == Some(&health.state) {
                continue;
            }
            let until = match health.state {
                HealthState::Cooling { until, .. } | HealthState::Resting { until: Some(until), .. } => until,
                HealthState::Resting { until: None, .. } => now.plus_ms(ENDLESS_REST_MS),
                HealthState::Usable | HealthState::Probing { .. } => continue,
            };
            let health = serde_json::to_string(health).expect("health has string keys only");
            invocation.arg(account.to_string()).arg(until.0).arg(health);
        }
        let shared = invocation.invoke_async(&mut connection).await?;
        self.connection = Some(connection);
        Ok(shared)
    }
}

#[cfg(test)]
mod tests {
    use tollgate_core::CoolingReason;

    use super::*;
    use crate::{
        counters::conformance::{namespace, redis},
        samples::NOON,
    };

    fn cooling(until_ms: i64) -> AccountHealth {
        let state = HealthState::Cooling { until: NOON.plus_ms(until_ms), why: CoolingReason::ServerError, since: NOON };
        AccountHealth { state, ..AccountHealth::default() }
    }

    #[tokio::test]
    async fn later_end_wins_and_is_returned_once() {
        let Some(url) = redis("later_end_wins") else { return };
        let url = RedisAddress { url, ca: None };
        let name = namespace();
        let (mut one, mut other) = (SharedHealth::new(&url, &name).unwrap(), SharedHealth::new(&url, &name).unwrap());
        let account = AccountId::from_parts(NOON, [7; 10]);
        one.exchange(&[(account, cooling(5_000))], NOON).await.unwrap();
        assert_eq!(other.exchange(&[(account, cooling(3_000))], NOON).await.unwrap(), [(account, cooling(5_000))]);
        assert_eq!(other.exchange(&[], NOON).await.unwrap(), [], "returned already; the account may be usable again here");
        assert_eq!(one.exchange(&[(account, cooling(9_000))], NOON).await.unwrap(), [(account, cooling(9_000))]);
        assert_eq!(other.exchange(&[], NOON).await.unwrap(), [(account, cooling(9_000))]);
        let mut third = SharedHealth::new(&url, &name).unwrap();
        assert_eq!(third.exchange(&[], NOON.plus_ms(9_000)).await.unwrap(), [], "it has ended");
        let rests = HealthState::Resting { why: tollgate_core::RestingReason::Refused, since: NOON, until: None };
        let rests = AccountHealth { state: rests, ..AccountHealth::default() };
        one.exchange(&[(account, rests)], NOON).await.unwrap();
        assert_eq!(third.exchange(&[], NOON.plus_ms(599_000)).await.unwrap(), [(account, rests)]);
    }
}
