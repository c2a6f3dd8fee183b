//! Copies spending and balances from the database to Redis: everything if Redis holds no data, and afterwards what has
//! changed. One node at a time does it, under a lock in Redis.

use std::{collections::HashMap, sync::Arc, time::Duration};

use redis::aio::MultiplexedConnection;
use tokio::time::{sleep, timeout};
use tollgate_core::{MemberId, NanoUsd, RequestId, SpendTotals, Subject, Timestamp, Window};

use super::{
    connection::{RESPONSE_TIMEOUT, query},
    script::{Disconnect, NodeRegistration, SubjectSpending},
    state::RedisState,
    worker::REGISTRATION_TTL_MS,
};
use crate::{LedgerPosition, LedgerStore, Spending, SpendingChanges};

/// Longest wait for a page of changes from the database.
const PAGE_TIMEOUT: Duration = Duration::from_secs(10);
const MAX_PAGES: usize = 50;
/// Shortest time to wait for other nodes after a loss of data, in which they try to connect twice.
const MIN_GATHERING_MS: u64 = 1_200;
/// Longest time to wait for them, after which the registrations of stopped nodes have expired.
const MAX_GATHERING_MS: u64 = REGISTRATION_TTL_MS;
/// Limit of the requests whose ledger positions are read at once.
const REQUESTS_AT_ONCE: usize = 1_000;
const LOCK_TTL_MS: u64 = 60_000;
pub(super) const SUBJECTS_PER_MESSAGE: usize = 200;

/// Copies ledger totals from the database to Redis, up to a position.
#[derive(Debug)]
pub(super) struct LedgerSync {
    state: Arc<RedisState>,
    ledger: Arc<dyn LedgerStore>,
    /// Spending that was read and is still to be sent.
    unsent: Option<Spending>,
    /// Totals of groups and the gateway. Pages of changes have only additions to them.
    shared_totals: HashMap<Subject, SpendTotals>,
    /// The ledger position up to which changes were read.
    position: LedgerPosition,
}

impl LedgerSync {
    pub(super) fn new(state: Arc<RedisState>, ledger: Arc<dyn LedgerStore>, spending: Spending) -> Self {
        let position = LedgerPosition::default();
        let mut sync = Self { state, ledger, unsent: None, shared_totals: HashMap::new(), position };
        sync.start_from(&spending);
        sync.unsent = Some(spending);
        sync
    }

    fn start_from(&mut self, spending: &Spending) {
        let shared = spending.spent.iter().filter(|(subject, _)| matches!(subject, Subject::Group(_) | Subject::Gateway));
        self.shared_totals = shared.copied().collect();
        self.position = spending.ledger;
    }

    /// Restores a Redis without data from the database, or waits a moment if another node does so.
    pub(super) async fn restore(&mut self, connection: &mut MultiplexedConnection, node: &str) -> Result<(), Disconnect> {
        let lock = self.state.scripts.key("founding");
        if !acquire(connection, &lock, node).await? {
            sleep(Duration::from_millis(100)).await;
            return Ok(());
        }
        let restored = self.restore_locked(connection).await;
        let _ = query::<i64>(connection, redis::cmd("DEL").arg(&lock)).await;
        restored
    }

    async fn restore_locked(&mut self, connection: &mut MultiplexedConnection) -> Result<(), Disconnect> {
        let now = (self.state.options.clock)();
        let spending = self.ledger.spending(now).await.map_err(Disconnect::NoData)?;
        self.start_from(&spending);
        self.unsent = None;
        self.send(connection, &spending, now).await?;
        // The generation contains the ledger position, which other nodes compare with those of their own requests.
        let generation = format!("{}@{}", hex::encode(self.state.options.random.bytes::<12>()), spending.ledger.0);
        let min_ms = if spending.spent.is_empty() { 0 } else { MIN_GATHERING_MS };
        self.state.scripts.found(connection, &generation, min_ms, MAX_GATHERING_MS).await?;
        tracing::info!(subjects = spending.spent.len(), "Redis held no data of this gateway; restored spending from the database");
        Ok(())
    }

    /// The positions of those requests that are in the ledger of the database.
    pub(super) async fn positions(&self, requests: &[RequestId]) -> Result<Vec<(RequestId, LedgerPosition)>, Disconnect> {
        let mut positions = Vec::new();
        for requests in requests.chunks(REQUESTS_AT_ONCE) {
            positions.extend(self.ledger.positions(requests).await.map_err(Disconnect::NoData)?);
        }
        Ok(positions)
    }

    /// Sends the changes since the last synchronisation. `after_change` if the database has just changed: if another node
    /// holds the lock, it may have read the database before, so the synchronisation is repeated.
    pub(super) async fn synchronise(
        &mut self,
        connection: &mut MultiplexedConnection,
        node: &NodeRegistration,
        after_change: bool,
    ) -> Result<(), Disconnect> {
        let lock = self.state.scripts.key("reconciling");
        if !acquire(connection, &lock, &node.node).await? {
            if after_change {
                sleep(Duration::from_millis(50)).await;
                self.state.ledger_changed.notify_one();
            }
            return Ok(());
        }
        let sent = self.send_changes(connection).await;
        query::<i64>(connection, redis::cmd("DEL").arg(&lock)).await?;
        sent
    }

    async fn send_changes(&mut self, connection: &mut MultiplexedConnection) -> Result<(), Disconnect> {
        let now = (self.state.options.clock)();
        if let Some(spending) = self.unsent.take() {
            self.send_or_keep(connection, spending, now).await?;
        }
        for _ in 0..MAX_PAGES {
            let page = timeout(PAGE_TIMEOUT, self.ledger.spending_since(self.position, now)).await;
            // An unreachable database has no changes.
            let Ok(Ok(changes)) = page else { return Ok(()) };
            let (until, newest) = (changes.until, changes.ledger);
            let spending = self.apply(changes);
            // The page is not read again: until it is sent, `unsent` has it.
            self.position = until;
            self.send_or_keep(connection, spending, now).await?;
            if until >= newest {
                break;
            }
        }
        Ok(())
    }

    fn apply(&mut self, changes: SpendingChanges) -> Spending {
        let mut spent = changes.spent;
        for (subject, at, amount) in changes.added {
            let total = self.shared_totals.entry(subject).or_default();
            total.add(amount, at);
            if let Some(entry) = spent.iter_mut().find(|(known, _)| *known == subject) {
                entry.1 = *total;
            } else {
                spent.push((subject, *total));
            }
        }
        Spending { spent, balances: changes.balances, ledger: changes.ledger }
    }

    /// Sends spending; on failure it is kept in `unsent` for the next connection.
    async fn send_or_keep(
        &mut self,
        connection: &mut MultiplexedConnection,
        spending: Spending,
        now: Timestamp,
    ) -> Result<(), Disconnect> {
        let sent = self.send(connection, &spending, now).await;
        if sent.is_err() {
            self.unsent = Some(spending);
        }
        sent
    }

    async fn send(&self, connection: &mut MultiplexedConnection, spending: &Spending, now: Timestamp) -> Result<(), Disconnect> {
        let mut balances: HashMap<Subject, NanoUsd> = spending.balances.iter().map(by_subject).collect();
        let mut totals = Vec::with_capacity(spending.spent.len());
        for (subject, spent) in &spending.spent {
            let within = |window| spent.within(window, now).0;
            let total = within(Window::Total);
            // A balance is the postings minus the spending.
            let posted = balances.remove(subject).map(|balance| balance.0.saturating_add(total));
            totals.push(SubjectSpending {
                subject: *subject,
                day: within(Window::Day),
                month: within(Window::Month),
                total,
                posted,
            });
        }
        // Members that have spent nothing.
        totals.extend(balances.into_iter().map(|(subject, balance)| SubjectSpending {
            subject,
            day: 0,
            month: 0,
            total: 0,
            posted: Some(balance.0),
        }));
        for totals in totals.chunks(SUBJECTS_PER_MESSAGE) {
            let loaded = self.state.scripts.load(connection, totals, now, spending.ledger.0);
            timeout(RESPONSE_TIMEOUT, loaded).await.map_err(|_| Disconnect::Timeout)??;
        }
        Ok(())
    }
}

/// The ledger position up to which the totals of a generation were restored.
pub(super) fn position_of(generation: &str) -> LedgerPosition {
    LedgerPosition(generation.rsplit_once('@').and_then(|(_, position)| position.parse().ok()).unwrap_or(i64::MAX))
}

fn by_subject((member, balance): &(MemberId, NanoUsd)) -> (Subject, NanoUsd) {
    (Subject::Member(*member), *balance)
}

/// Acquires a lock in Redis; false if another node holds it.
async fn acquire(connection: &mut MultiplexedConnection, lock: &str, node: &str) -> Result<bool, Disconnect> {
    let mut command = redis::cmd("SET");
    command.arg(lock).arg(node).arg("NX").arg("PX").arg(LOCK_TTL_MS);
    Ok(query::<Option<String>>(connection, &mut command).await?.is_some())
}
