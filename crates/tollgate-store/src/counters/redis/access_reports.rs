//! Revoked keys, blocked keys and suspended members, shared by nodes so that a node that has lost the database refuses them too.
//! Exchanged about once a second.

use std::{
    collections::{HashMap, HashSet},
    time::Duration,
};

use redis::{Client, Script, aio::MultiplexedConnection};
use tokio::time::timeout;
use tollgate_core::{Revision, Subject};

use super::connection::{self, RESPONSE_TIMEOUT, RedisAddress};
use crate::{StoreError, subject};

/// Maximum number of reports in one message, and of reports kept to restore a Redis that has lost them.
const MAX_SENT: usize = 1_000;
const MAX_KNOWN: usize = 100_000;
/// Overlap of two queries: reports are read again from this long before the last answer, so that none is missed.
const OVERLAP_MS: i64 = 2_000;

/// Whether a key or a member may be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AccessState {
    /// The key is revoked permanently.
    Revoked,
    /// The key is disabled, or the member suspended.
    Blocked,
    /// It was blocked and no longer is.
    Allowed,
}

impl AccessState {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Revoked => "revoked",
            Self::Blocked => "blocked",
            Self::Allowed => "allowed",
        }
    }

    fn parse(word: &str) -> Option<Self> {
        [Self::Revoked, Self::Blocked, Self::Allowed].into_iter().find(|state| state.as_str() == word)
    }
}

/// The state of a key or member as the database had it at a revision of the catalog.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AccessReport {
    /// A key or a member.
    pub subject: Subject,
    pub state: AccessState,
    pub revision: Revision,
}

impl AccessReport {
    /// Whether it replaces an older report about the same subject.
    fn replaces(&self, older: &Self) -> bool {
        older.state != AccessState::Revoked && (self.state == AccessState::Revoked || self.revision > older.revision)
    }
}

/// The recent reports of all nodes.
#[derive(Debug)]
pub struct SharedAccessReports {
    client: Client,
    address: String,
    /// The Redis keys of the ids by time, and of their states.
    keys: [String; 2],
    script: Script,
    keep: Duration,
    connection: Option<MultiplexedConnection>,
    /// The time up to which reports were received.
    received_ms: i64,
    known: HashMap<Subject, AccessReport>,
    /// A subject that Redis has a report about. If it is missing there, Redis has lost its data.
    present: Option<Subject>,
    /// Subjects whose known report is to be sent.
    unsent: HashSet<Subject>,
}

impl SharedAccessReports {
    /// `address` and `namespace` are those of the counters. Reports are shared for the time `keep`: as long as a node may serve
    /// without the database.
    ///
    /// # Errors
    /// When the address is invalid.
    pub fn new(address: &RedisAddress, namespace: &str, keep: Duration) -> Result<Self, StoreError> {
        Ok(Self {
            client: connection::client(address)?,
            address: connection::redacted(&address.url),
            keys: ["reports", "states"].map(|name| format!("tollgate:{{{namespace}}}:access:{name}")),
            script: Script::new(include_str!("access_reports.lua")),
            keep,
            connection: None,
            received_ms: 0,
            known: HashMap::new(),
            present: None,
            unsent: HashSet::new(),
        })
    }

    /// Sends reports of this node, and returns those that other nodes sent and were not returned before. A report that
    /// a key or member is allowed is sent only if it was reported as refused before.
    ///
    /// # Errors
    /// When Redis is unreachable; the reports are sent with the next exchange.
    pub async fn exchange(&mut self, ours: impl IntoIterator<Item = AccessReport>) -> Result<Vec<AccessReport>, StoreError> {
        for report in ours {
            // Until the first answer, the reports of other nodes are unknown.
            let is_news = report.state != AccessState::Allowed
                || self.received_ms == 0
                || self.known.get(&report.subject).is_some_and(|known| known.state == AccessState::Blocked);
            if is_news && self.known.len() < MAX_KNOWN && self.learn(report) {
                self.unsent.insert(report.subject);
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

    async fn send(&mut self) -> redis::RedisResult<Vec<AccessReport>> {
        let mut connection = match self.connection.take() {
            Some(connection) => connection,
            None => connection::connect(&self.client).await?,
        };
        let sent: Vec<AccessReport> =
            self.unsent.iter().filter_map(|subject| self.known.get(subject)).take(MAX_SENT).copied().collect();
        let mut invocation = self.script.prepare_invoke();
        invocation.key(&self.keys[0]).key(&self.keys[1]);
        invocation.arg(self.received_ms - OVERLAP_MS).arg(u64::try_from(self.keep.as_millis()).unwrap_or(u64::MAX));
        invocation.arg(self.present.map_or_else(String::new, subject::name));
        for report in &sent {
            invocation.arg(subject::name(report.subject)).arg(report.revision.0).arg(report.state.as_str());
        }
        let reply: Vec<String> = invocation.invoke_async(&mut connection).await?;
        self.connection = Some(connection);
        let [until, is_kept, reports @ ..] = reply.as_slice() else { return Ok(Vec::new()) };
        let reports: Vec<AccessReport> = reports.chunks_exact(3).filter_map(read).collect();
        for report in &sent {
            self.unsent.remove(&report.subject);
        }
        self.present = sent.last().or(reports.first()).map(|report| report.subject).or(self.present);
        self.received_ms = until.parse().unwrap_or(0);
        if is_kept == "0" {
            // Redis has lost its data.
            self.unsent = self.known.keys().copied().collect();
            self.present = None;
        }
        Ok(reports.into_iter().filter(|report| self.learn(*report)).collect())
    }

    /// Remembers a report; false if it contains nothing new.
    fn learn(&mut self, report: AccessReport) -> bool {
        match self.known.get(&report.subject) {
            Some(older) if !report.replaces(older) => return false,
            Some(older) if older.state == report.state => {
                self.known.insert(report.subject, report);
                return false;
            }
            None if self.known.len() >= MAX_KNOWN => return true,
            Some(_) | None => {}
        }
        self.known.insert(report.subject, report);
        true
    }
}

fn read(parts: &[String]) -> Option<AccessReport> {
    let [id, revision, state] = parts else { return None };
    Some(AccessReport {
        subject: subject::parse(id)?,
        state: AccessState::parse(state)?,
        revision: Revision(revision.parse().ok()?),
    })
}

#[cfg(test)]
mod tests {
    use tollgate_core::{KeyId, MemberId};

    use super::*;
    use crate::{
        counters::conformance::{namespace, redis},
        samples::MIDNIGHT,
    };

    const DAY: Duration = Duration::from_hours(24);

    fn key(number: u8) -> Subject {
        Subject::Key(KeyId::from_parts(MIDNIGHT, [number; 10]))
    }

    fn member(number: u8) -> Subject {
        Subject::Member(MemberId::from_parts(MIDNIGHT, [number; 10]))
    }

    fn report(subject: Subject, state: AccessState, revision: i64) -> AccessReport {
        AccessReport { subject, state, revision: Revision(revision) }
    }

    #[tokio::test]
    async fn revoked_key_is_reported_once_to_every_node_including_later_ones() {
        let Some(url) = redis("revoked_key_reaches_other_nodes") else { return };
        let (url, name) = (RedisAddress { url, ca: None }, namespace());
        let node = || SharedAccessReports::new(&url, &name, DAY).unwrap();
        let revoked = |number| report(key(number), AccessState::Revoked, 7);
        let (mut one, mut other) = (node(), node());
        assert_eq!(other.exchange([]).await.unwrap(), []);
        assert_eq!(one.exchange([revoked(1)]).await.unwrap(), [], "that key is its own");
        assert_eq!(other.exchange([revoked(2)]).await.unwrap(), [revoked(1)]);
        assert_eq!(other.exchange([]).await.unwrap(), []);
        assert_eq!(one.exchange([]).await.unwrap(), [revoked(2)]);
        let mut late = node().exchange([]).await.unwrap();
        late.sort_unstable_by_key(|report| report.subject);
        assert_eq!(late, [revoked(1), revoked(2)]);
    }

    #[tokio::test]
    async fn newest_access_state_applies_in_any_order_of_reports() {
        let Some(url) = redis("newest_access_state") else { return };
        let (url, name) = (RedisAddress { url, ca: None }, namespace());
        let node = || SharedAccessReports::new(&url, &name, DAY).unwrap();
        let (mut one, mut other) = (node(), node());
        for of in [key(1), member(1)] {
            let [blocked, allowed, again] = [(AccessState::Blocked, 5), (AccessState::Allowed, 6), (AccessState::Blocked, 8)]
                .map(|(state, revision)| report(of, state, revision));
            assert_eq!(one.exchange([blocked]).await.unwrap(), []);
            assert_eq!(other.exchange([]).await.unwrap(), [blocked]);
            one.exchange([allowed]).await.unwrap();
            assert_eq!(other.exchange([blocked]).await.unwrap(), [allowed], "a late report of an older revision");
            assert_eq!(one.exchange([]).await.unwrap(), []);
            one.exchange([again]).await.unwrap();
            let late = node().exchange([report(of, AccessState::Allowed, 7)]).await.unwrap();
            assert!(late.contains(&again), "{late:?}");
            assert_eq!(other.exchange([]).await.unwrap(), [again]);
        }
        let revoked = report(key(1), AccessState::Revoked, 9);
        one.exchange([revoked]).await.unwrap();
        one.exchange([report(key(1), AccessState::Allowed, 10)]).await.unwrap();
        assert_eq!(other.exchange([]).await.unwrap(), [revoked]);
        assert_eq!(other.exchange([report(key(9), AccessState::Allowed, 11)]).await.unwrap(), []);
        assert_eq!(node().exchange([]).await.unwrap().len(), 2, "the last key was not reported otherwise");
    }

    #[tokio::test]
    async fn reports_are_sent_again_after_redis_lost_its_data() {
        let Some(url) = redis("redis_that_lost_access_reports") else { return };
        let (url, name) = (RedisAddress { url, ca: None }, namespace());
        let reports = [report(key(1), AccessState::Revoked, 3), report(member(2), AccessState::Blocked, 4)];
        let mut one = SharedAccessReports::new(&url, &name, DAY).unwrap();
        one.exchange(reports).await.unwrap();
        let mut connection = ::redis::Client::open(url.url.as_str()).unwrap().get_multiplexed_async_connection().await.unwrap();
        let () = ::redis::cmd("DEL").arg(&one.keys[0]).arg(&one.keys[1]).query_async(&mut connection).await.unwrap();
        one.exchange([]).await.unwrap();
        one.exchange([]).await.unwrap();
        let mut received = SharedAccessReports::new(&url, &name, DAY).unwrap().exchange([]).await.unwrap();
        received.sort_unstable_by_key(|report| report.revision);
        assert_eq!(received, reports);
    }
}
