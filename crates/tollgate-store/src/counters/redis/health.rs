//! Account health between nodes: what cools or rests on one does on all. Told and heard about once a second.

use std::{collections::HashMap, time::Duration};

use redis::{Client, Script, aio::MultiplexedConnection};
use tokio::time::timeout;
use tollgate_core::{AccountHealth, AccountId, HealthState, Timestamp};

use super::{RedisAddress, link};
use crate::StoreError;

const ANSWER: Duration = Duration::from_secs(2);
/// How long a rest without an end is told on; probes look at such accounts as often.
const WITHOUT_END_MS: i64 = 600_000;

/// Where nodes tell each other of accounts.
#[derive(Debug)]
pub struct SharedHealth {
    client: Client,
    place: String,
    name: String,
    script: Script,
    link: Option<MultiplexedConnection>,
    /// What was heard of each account last: news is told once, so that a node that found an account well again may use it.
    heard: HashMap<AccountId, HealthState>,
}

impl SharedHealth {
    /// With the address and the namespace of the counters.
    ///
    /// # Errors
    /// When the address cannot be read.
    pub fn new(place: &RedisAddress, namespace: &str) -> Result<Self, StoreError> {
        Ok(Self {
            client: link::client(place)?,
            place: link::shown(&place.url),
            name: format!("tollgate:{{{namespace}}}:health"),
            script: Script::new(include_str!("health.lua")),
            link: None,
            heard: HashMap::new(),
        })
    }

    /// Tells what cools and rests here, and hears what does elsewhere and was not heard before.
    ///
    /// # Errors
    /// When Redis is away.
    pub async fn exchange(
        &mut self,
        ours: &[(AccountId, AccountHealth)],
        now: Timestamp,
    ) -> Result<Vec<(AccountId, AccountHealth)>, StoreError> {
        let place = self.place.clone();
        let away = |detail: String| StoreError::Unreachable { place, detail };
        let asked = timeout(ANSWER, self.ask(ours, now)).await;
        let known = match asked {
            Ok(Ok(known)) => known,
            Ok(Err(error)) => {
                self.link = None;
                return Err(away(error.to_string()));
            }
            Err(_) => {
                self.link = None;
                return Err(away("it did not answer in time".to_owned()));
            }
        };
        let mut news = Vec::new();
        for of in known.chunks_exact(2) {
            let (Some(account), Ok(health)) = (AccountId::parse(&of[0]), serde_json::from_str::<AccountHealth>(&of[1])) else {
                continue;
            };
            if self.heard.insert(account, health.state) != Some(health.state) {
                news.push((account, health));
            }
        }
        Ok(news)
    }

    async fn ask(&mut self, ours: &[(AccountId, AccountHealth)], now: Timestamp) -> redis::RedisResult<Vec<String>> {
        let mut link = match self.link.take() {
            Some(link) => link,
            None => link::connect(&self.client).await?,
        };
        let mut asked = self.script.prepare_invoke();
        asked.key(&self.name).arg(now.0);
        for (account, health) in ours {
            // Heard from there: it is not told back.
            if self.heard.get(account) == Some(&health.state) {
                continue;
            }
            let until = match health.state {
                HealthState::Cooling { until, .. } | HealthState::Resting { until: Some(until), .. } => until,
                HealthState::Resting { until: None, .. } => now.plus_ms(WITHOUT_END_MS),
                HealthState::Usable | HealthState::Probing { .. } => continue,
            };
            let known = serde_json::to_string(health).expect("health is JSON");
            asked.arg(account.to_string()).arg(until.0).arg(known);
        }
        let known = asked.invoke_async(&mut link).await?;
        self.link = Some(link);
        Ok(known)
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
    async fn the_later_end_is_heard_once_and_ends() {
        let Some(url) = redis("the_later_end_is_heard") else { return };
        let url = RedisAddress { url, ca: None };
        let name = namespace();
        let (mut one, mut other) = (SharedHealth::new(&url, &name).unwrap(), SharedHealth::new(&url, &name).unwrap());
        let account = AccountId::from_parts(NOON, [7; 10]);
        one.exchange(&[(account, cooling(5_000))], NOON).await.unwrap();
        assert_eq!(other.exchange(&[(account, cooling(3_000))], NOON).await.unwrap(), [(account, cooling(5_000))]);
        assert_eq!(other.exchange(&[], NOON).await.unwrap(), [], "it was heard; here the account may be well again");
        assert_eq!(one.exchange(&[(account, cooling(9_000))], NOON).await.unwrap(), [(account, cooling(9_000))]);
        assert_eq!(other.exchange(&[], NOON).await.unwrap(), [(account, cooling(9_000))]);
        let mut third = SharedHealth::new(&url, &name).unwrap();
        assert_eq!(third.exchange(&[], NOON.plus_ms(9_000)).await.unwrap(), [], "it is over");
        let rests = HealthState::Resting { why: tollgate_core::RestingReason::Refused, since: NOON, until: None };
        let rests = AccountHealth { state: rests, ..AccountHealth::default() };
        one.exchange(&[(account, rests)], NOON).await.unwrap();
        assert_eq!(third.exchange(&[], NOON.plus_ms(599_000)).await.unwrap(), [(account, rests)]);
    }
}
