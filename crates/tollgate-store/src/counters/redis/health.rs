//! Account health shared by nodes: an account that cools or rests on one node does so on all, and a passed test ends that on
//! all. Exchanged about once a second. Times are sent as durations, to which Redis adds its own clock, because the clocks of
//! nodes may differ.

use std::collections::HashMap;

use redis::{Client, Script, aio::MultiplexedConnection};
use tokio::time::timeout;
use tollgate_core::{AccountHealth, AccountId, HealthState, Timestamp};

use super::connection::{self, RESPONSE_TIMEOUT, RedisAddress};
use crate::StoreError;

/// Time for which an open-ended rest stays shared. Probes test such accounts at the same interval.
const ENDLESS_REST_MS: i64 = 600_000;

/// The health of accounts on all nodes.
#[derive(Debug)]
pub struct SharedHealth {
    client: Client,
    address: String,
    key: String,
    script: Script,
    connection: Option<MultiplexedConnection>,
    /// The received state of each account. Each state is returned once, so that a node that finds the account usable again
    /// can use it.
    received: HashMap<AccountId, String>,
}

/// The health of accounts on the other nodes.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct SharedHealthUpdate {
    /// Accounts that cool or rest on another node, by this node's clock.
    pub changed: Vec<(AccountId, AccountHealth)>,
    /// Accounts whose rest a test ended, and when, by this node's clock.
    pub ended: Vec<(AccountId, Timestamp)>,
    /// How far this node's clock is ahead of that of Redis, in microseconds.
    pub clock_skew_us: i64,
}

impl SharedHealth {
    /// `address` and `namespace` are those of the counters.
    ///
    /// # Errors
    /// When the address is invalid.
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

    /// Sends the accounts that cool or rest on this node and those for which a test `passed`. Returns reports of other nodes
    /// that were not returned before.
    ///
    /// # Errors
    /// When Redis is unreachable.
    pub async fn exchange(
        &mut self,
        ours: &[(AccountId, AccountHealth)],
        passed: &[AccountId],
        clock: fn() -> Timestamp,
    ) -> Result<SharedHealthUpdate, StoreError> {
        let database = self.address.clone();
        let unreachable = |detail: String| StoreError::Unreachable { database, detail };
        let sent = clock();
        let (redis_us, shared) = match timeout(RESPONSE_TIMEOUT, self.send(ours, passed, sent)).await {
            Ok(Ok(reply)) => reply,
            Ok(Err(error)) => {
                self.connection = None;
                return Err(unreachable(error.to_string()));
            }
            Err(_) => {
                self.connection = None;
                return Err(unreachable("it did not answer in time".to_owned()));
            }
        };
        let now = clock();
        let half_way = sent.0 / 2 + now.0 / 2;
        let mut update = SharedHealthUpdate { clock_skew_us: half_way.saturating_sub(redis_us), ..SharedHealthUpdate::default() };
        for entry in shared.chunks_exact(5) {
            let [id, since_ms, ends_ms, health, stored] = entry else { continue };
            let (Some(account), Ok(since_ms)) = (AccountId::parse(id), since_ms.parse::<i64>()) else { continue };
            if self.received.insert(account, stored.clone()).as_ref() == Some(stored) {
                continue;
            }
            let since = now.plus_ms(since_ms.saturating_neg());
            if ends_ms.is_empty() {
                update.ended.push((account, since));
            } else if let (Ok(health), Ok(ends_ms)) = (serde_json::from_str(health), ends_ms.parse()) {
                update.changed.push((account, with_times(health, since, now.plus_ms(ends_ms))));
            }
        }
        Ok(update)
    }

    async fn send(
        &mut self,
        ours: &[(AccountId, AccountHealth)],
        passed: &[AccountId],
        now: Timestamp,
    ) -> redis::RedisResult<(i64, Vec<String>)> {
        let mut connection = match self.connection.take() {
            Some(connection) => connection,
            None => connection::connect(&self.client).await?,
        };
        let mut invocation = self.script.prepare_invoke();
        invocation.key(&self.key).arg(passed.len());
        for account in passed {
            invocation.arg(account.to_string());
        }
        for (account, health) in ours {
            let (since, ends_ms) = match health.state {
                HealthState::Cooling { until, since, .. } | HealthState::Resting { until: Some(until), since, .. } => {
                    (since, until.ms_since(now))
                }
                HealthState::Resting { until: None, since, .. } => (since, ENDLESS_REST_MS),
                HealthState::Usable | HealthState::Probing { .. } => continue,
            };
            let health = serde_json::to_string(health).expect("health has string keys only");
            invocation.arg(account.to_string()).arg(now.ms_since(since).max(0)).arg(ends_ms).arg(health);
        }
        let mut reply: Vec<String> = invocation.invoke_async(&mut connection).await?;
        self.connection = Some(connection);
        let shared = reply.split_off(reply.len().min(1));
        Ok((reply.first().and_then(|micros| micros.parse().ok()).unwrap_or(now.0), shared))
    }
}

/// The same health with the times of this node's clock.
fn with_times(health: AccountHealth, since: Timestamp, until: Timestamp) -> AccountHealth {
    let state = match health.state {
        HealthState::Cooling { why, .. } => HealthState::Cooling { until, why, since },
        HealthState::Resting { why, until: None, .. } => HealthState::Resting { why, since, until: None },
        HealthState::Resting { why, until: Some(_), .. } => HealthState::Resting { why, since, until: Some(until) },
        state @ (HealthState::Usable | HealthState::Probing { .. }) => state,
    };
    AccountHealth { state, ..health }
}

#[cfg(test)]
mod tests {
    use tollgate_core::{CoolingReason, RestingReason};

    use super::*;
    use crate::{
        counters::conformance::{namespace, redis},
        samples::MIDNIGHT,
    };

    /// The clock of a node that is an hour ahead.
    fn ahead() -> Timestamp {
        at_midnight().plus_ms(3_600_000)
    }

    fn at_midnight() -> Timestamp {
        MIDNIGHT
    }

    fn cooling(now: Timestamp, for_ms: i64) -> AccountHealth {
        let state = HealthState::Cooling { until: now.plus_ms(for_ms), why: CoolingReason::ServerError, since: now };
        AccountHealth { state, ..AccountHealth::default() }
    }

    /// Milliseconds until the only account that changed is usable, by a clock.
    fn left(update: &SharedHealthUpdate, now: Timestamp) -> Option<i64> {
        let [(_, health)] = update.changed.as_slice() else { return None };
        let HealthState::Cooling { until, .. } = health.state else { panic!("{health:?}") };
        Some(until.ms_since(now))
    }

    #[tokio::test]
    async fn later_end_applies_and_is_returned_once_regardless_of_the_clocks() {
        let Some(url) = redis("later_end_wins") else { return };
        let url = RedisAddress { url, ca: None };
        let name = namespace();
        let (mut one, mut other) = (SharedHealth::new(&url, &name).unwrap(), SharedHealth::new(&url, &name).unwrap());
        let account = AccountId::from_parts(MIDNIGHT, [7; 10]);
        one.exchange(&[(account, cooling(ahead(), 50_000))], &[], ahead).await.unwrap();
        let seen = other.exchange(&[(account, cooling(MIDNIGHT, 30_000))], &[], at_midnight).await.unwrap();
        assert!((49_000..=50_000).contains(&left(&seen, MIDNIGHT).unwrap()), "{seen:?}");
        let again = other.exchange(&[], &[], at_midnight).await.unwrap();
        assert_eq!(left(&again, MIDNIGHT), None, "returned already; the account may be usable again here");
        one.exchange(&[(account, cooling(ahead(), 90_000))], &[], ahead).await.unwrap();
        let seen = other.exchange(&[], &[], at_midnight).await.unwrap();
        assert!((89_000..=90_000).contains(&left(&seen, MIDNIGHT).unwrap()), "{seen:?}");
        let skew = one.exchange(&[], &[], ahead).await.unwrap().clock_skew_us - seen.clock_skew_us;
        assert!((3_500_000_000..3_700_000_000).contains(&skew), "{skew}");
    }

    #[tokio::test]
    async fn passed_test_ends_a_rest_on_all_nodes_for_good() {
        let Some(url) = redis("passed_test_ends") else { return };
        let url = RedisAddress { url, ca: None };
        let name = namespace();
        let (mut one, mut other) = (SharedHealth::new(&url, &name).unwrap(), SharedHealth::new(&url, &name).unwrap());
        let account = AccountId::from_parts(MIDNIGHT, [7; 10]);
        // The clocks do not advance in this test, so a state that began now would begin again with each message.
        let state = HealthState::Resting { why: RestingReason::Refused, since: ahead().plus_ms(-60_000), until: None };
        let rests = AccountHealth { state, ..AccountHealth::default() };
        one.exchange(&[(account, rests)], &[], ahead).await.unwrap();
        assert_eq!(other.exchange(&[], &[], at_midnight).await.unwrap().changed.len(), 1);
        other.exchange(&[], &[account], at_midnight).await.unwrap();
        let seen = one.exchange(&[(account, rests)], &[], ahead).await.unwrap();
        assert_eq!((seen.changed.len(), seen.ended.len()), (0, 1), "{seen:?}");
        assert!(seen.ended[0].1 >= ahead().plus_ms(-2_000), "by the clock of the node: {seen:?}");
        let mut third = SharedHealth::new(&url, &name).unwrap();
        assert_eq!(third.exchange(&[], &[], at_midnight).await.unwrap().changed, [], "a node that starts now");
    }
}
