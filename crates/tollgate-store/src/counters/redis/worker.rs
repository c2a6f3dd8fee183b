//! The background task of counters in Redis: registers this node, sends changes, renews the registration, refreshes meters,
//! and keeps Redis in line with the database.
//!
//! Bounds: 200 subjects a message, one message in flight; 2 s for an answer; 0.5 s between connection attempts; heartbeats
//! every 10 s. Used meters are refreshed every second. Meters whose money any node has reserved or spent are refreshed ten
//! times a second, at most 1,000 at a time. Changes in the database are read every 30 s, in pages.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use redis::{Client, aio::MultiplexedConnection};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep, sleep_until, timeout};
use tokio_util::sync::CancellationToken;
use tollgate_core::{BudgetAlert, LimitRule, NanoUsd, Subject};

use super::{
    super::subjects::lock,
    connection::{self, RESPONSE_TIMEOUT, query},
    deltas::CounterDelta,
    lease::LeasePool,
    ledger_sync::{LedgerSync, SUBJECTS_PER_MESSAGE},
    script::{Disconnect, HeartbeatKind, NodeRegistration, RegistrationRequest, ScriptReply},
    state::{ConnectionState, RedisState},
};
use crate::{LedgerStore, RandomSource, Spending, StoreError};

const RETRY_INTERVAL: Duration = Duration::from_millis(500);
/// Longest time to join, including restoring data from the database and waiting for other nodes.
const JOIN_TIMEOUT: Duration = Duration::from_secs(90);
const FIRST_JOIN_TIMEOUT: Duration = Duration::from_secs(8);
/// Number of batches that are sent before the worker checks what else is due.
const BATCHES_AT_ONCE: usize = 16;
const REFRESH_INTERVAL: Duration = Duration::from_secs(1);
/// How often the meters that other nodes have changed are read.
const FOLLOW_INTERVAL: Duration = Duration::from_millis(100);
const MAX_FOLLOWED: usize = 1_000;
const HEARTBEAT_INTERVAL: Duration = Duration::from_secs(10);
pub(super) const REGISTRATION_TTL_MS: u64 = 60_000;
/// How long leases may be used after a heartbeat was sent. Well below the expiry of the registration, so that a clock of
/// Redis that runs fast or steps does not matter.
pub(super) const LEASE_TTL: Duration = Duration::from_secs(40);
const SYNC_INTERVAL: Duration = Duration::from_secs(30);
/// Limit of the budget alerts kept until they are taken.
const MAX_BUDGET_ALERTS: usize = 1_000;

/// Runs as long as the counters are used.
#[derive(Debug)]
pub struct RedisWorker {
    pub(super) state: Arc<RedisState>,
    pub(super) client: Client,
    pub(super) ledger: LedgerSync,
    /// Names this process in the message numbers, so that each message counts once.
    pub(super) process: String,
    /// Number of the last message.
    number: u64,
    /// Number of the last message that was answered.
    pub(super) answered: u64,
    /// A message that was not answered.
    pub(super) unanswered: Option<Vec<(Subject, CounterDelta)>>,
    /// Names this node over restarts.
    pub(super) identity: String,
    /// Consecutive times that another process has ended the registration.
    pub(super) evictions: u32,
    pub(super) generation: String,
}

pub(super) fn random_name(random: &RandomSource) -> String {
    hex::encode(random.bytes::<12>())
}

impl RedisWorker {
    pub(super) async fn start(
        state: Arc<RedisState>,
        ledger: Arc<dyn LedgerStore>,
        spending: Spending,
    ) -> Result<Self, StoreError> {
        let mut worker = Self {
            client: connection::client(&state.options.address)?,
            process: random_name(&state.options.random),
            ledger: LedgerSync::new(Arc::clone(&state), ledger, spending),
            number: 0,
            answered: 0,
            unanswered: None,
            identity: state.options.identity.clone(),
            evictions: 0,
            generation: String::new(),
            state,
        };
        match timeout(FIRST_JOIN_TIMEOUT, worker.join()).await {
            Ok(Ok(_)) => {}
            Ok(Err(why)) => tracing::warn!("Redis is unreachable, this node starts with its share of the limits: {why}"),
            Err(_) => {
                worker.state.joining_failed();
                tracing::warn!("Redis did not answer in time, this node starts with its share of the limits");
            }
        }
        Ok(worker)
    }

    /// Runs until cancelled; then sends the last changes and removes the registration.
    pub async fn run(mut self, stop: CancellationToken) {
        loop {
            let up = self.state.epoch().up();
            if let Some((epoch, connection, node)) = up {
                let ended = tokio::select! {
                    () = stop.cancelled() => break,
                    ended = self.serve(epoch, connection, node) => ended,
                };
                if matches!(ended, Disconnect::RegistrationLost) {
                    self.state.registration_lost();
                }
                self.state.connection_lost(epoch, &ended.to_string());
                continue;
            }
            let joined = tokio::select! {
                () = stop.cancelled() => break,
                joined = timeout(JOIN_TIMEOUT, self.join()) => joined,
            };
            match joined {
                Ok(Ok(nodes)) => tracing::info!(nodes, "counting in Redis"),
                Ok(Err(why)) => tracing::debug!("Redis cannot be joined: {why}"),
                Err(_) => {
                    self.state.joining_failed();
                    tracing::debug!("Redis cannot be joined in time");
                }
            }
            if self.state.epoch().up().is_none() {
                tokio::select! {
                    () = stop.cancelled() => break,
                    () = sleep(RETRY_INTERVAL) => {}
                }
            }
        }
        self.leave().await;
    }

    /// Returns all leases, sends the last changes, and removes the registration.
    async fn leave(&mut self) {
        let up = self.state.epoch().up();
        let Some((_, mut connection, node)) = up else { return };
        self.state.update_pending(|deltas| self.state.leases.return_all(deltas));
        if let Err(why) = self.flush(&mut connection, &node).await {
            tracing::warn!("the last requests were not counted in Redis, the database has them: {why}");
        }
        let mut command = redis::cmd("ZREM");
        command.arg(self.state.scripts.key("nodes")).arg(&node.node);
        // If this fails, the registration expires.
        let _ = timeout(RESPONSE_TIMEOUT, query::<i64>(&mut connection, &mut command)).await;
    }

    // === serving ===

    async fn serve(&mut self, number: u64, mut connection: MultiplexedConnection, node: NodeRegistration) -> Disconnect {
        let state = Arc::clone(&self.state);
        let mut refresh = interval(REFRESH_INTERVAL);
        refresh.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut follow = interval(FOLLOW_INTERVAL);
        follow.set_missed_tick_behavior(MissedTickBehavior::Delay);
        // The changes of the last minute come first.
        let mut followed_until = 0;
        let mut last_heartbeat = state.now();
        let mut next_sync = state.now();
        loop {
            let result = tokio::select! {
                biased;
                // Periodic work comes first, so that constant changes delay neither heartbeats nor meters.
                _ = refresh.tick() => self.refresh_and_renew(&mut connection, &node, &mut last_heartbeat).await,
                _ = follow.tick() => self.follow(&mut connection, &node, &mut followed_until).await,
                () = state.wake.notified() => self.flush_some(&mut connection, &node).await,
                () = state.ledger_changed.notified() => self.ledger.synchronise(&mut connection, &node, true).await,
                () = sleep_until(next_sync) => {
                    next_sync = state.now() + SYNC_INTERVAL;
                    self.ledger.synchronise(&mut connection, &node, false).await
                }
            };
            if let Err(ended) = result {
                return ended;
            }
            let epoch = state.epoch();
            if epoch.number != number || epoch.outage_share().is_some() {
                return Disconnect::ConnectionLost;
            }
        }
    }

    /// Sends pending deltas until there are none.
    pub(super) async fn flush(
        &mut self,
        connection: &mut MultiplexedConnection,
        node: &NodeRegistration,
    ) -> Result<(), Disconnect> {
        while self.send_batch(connection, node).await? {}
        Ok(())
    }

    /// Sends a few batches of pending deltas. The rest wakes the worker again.
    async fn flush_some(&mut self, connection: &mut MultiplexedConnection, node: &NodeRegistration) -> Result<(), Disconnect> {
        for _ in 0..BATCHES_AT_ONCE {
            if !self.send_batch(connection, node).await? {
                return Ok(());
            }
        }
        self.state.wake.notify_one();
        Ok(())
    }

    /// Sends a batch of pending deltas, or repeats an unanswered one. Returns false if nothing is pending.
    async fn send_batch(&mut self, connection: &mut MultiplexedConnection, node: &NodeRegistration) -> Result<bool, Disconnect> {
        if self.unanswered.is_none() {
            let batch = self.next_batch();
            self.state.is_sending.store(!batch.is_empty(), Ordering::Release);
            if batch.is_empty() {
                return Ok(false);
            }
            self.number += 1;
            self.unanswered = Some(batch);
        }
        let Some(batch) = &self.unanswered else { return Ok(false) };
        let sent = self.state.now();
        let reply = self.settle(connection, node, batch).await?;
        self.state.record_redis_time(sent, reply.micros);
        self.answered = self.number;
        let batch = self.unanswered.take().unwrap_or_default();
        for (subject, delta) in &batch {
            self.state.own_rates.correct(*subject, delta, reply.micros);
        }
        self.record_reply(&reply, &batch);
        Ok(true)
    }

    async fn settle(
        &self,
        connection: &mut MultiplexedConnection,
        node: &NodeRegistration,
        batch: &[(Subject, CounterDelta)],
    ) -> Result<ScriptReply, Disconnect> {
        let now = (self.state.options.clock)();
        let settled = self.state.scripts.settle(connection, node, &self.process, self.number, batch, now);
        timeout(RESPONSE_TIMEOUT, settled).await.map_err(|_| Disconnect::Timeout)?
    }

    fn next_batch(&self) -> Vec<(Subject, CounterDelta)> {
        let mut pending = self.state.pending();
        let subjects: Vec<Subject> = pending.keys().copied().take(SUBJECTS_PER_MESSAGE).collect();
        let mut batch: Vec<(Subject, CounterDelta)> =
            subjects.into_iter().filter_map(|subject| pending.remove(&subject).map(|delta| (subject, delta))).collect();
        batch.retain(|(_, delta)| *delta != CounterDelta::default());
        batch
    }

    /// Stores the meters and the crossed budgets of a reply.
    fn record_reply(&self, reply: &ScriptReply, batch: &[(Subject, CounterDelta)]) {
        self.state.set_node_count(reply.nodes);
        self.state.meters.store(&reply.meters);
        let crossed = reply.crossed.iter().filter_map(|(meter, watch, spent)| {
            let (subject, delta) = batch.get(*meter)?;
            let watch = delta.watches.get(*watch)?;
            let (spender, spent) = watch.crossed_by(spent.0, delta.spent(watch.budget.window, watch.at))?;
            Some((BudgetAlert { subject: *subject, budget: watch.budget, spent: NanoUsd(spent) }, spender.clone()))
        });
        let mut alerts = lock(&self.state.budget_alerts);
        alerts.extend(crossed);
        alerts.truncate(MAX_BUDGET_ALERTS);
    }

    /// Refreshes meters, and sends a heartbeat when one is due.
    async fn refresh_and_renew(
        &mut self,
        connection: &mut MultiplexedConnection,
        node: &NodeRegistration,
        last_heartbeat: &mut Instant,
    ) -> Result<(), Disconnect> {
        self.refresh(connection, node).await?;
        let now = self.state.now();
        if now.saturating_duration_since(*last_heartbeat) < HEARTBEAT_INTERVAL {
            return Ok(());
        }
        *last_heartbeat = now;
        self.renew_registration(connection, node).await
    }

    /// Releases expired reservations and unused leases, and reads the meters in use again, so that the share of this node in
    /// an outage starts from recent values.
    async fn refresh(&mut self, connection: &mut MultiplexedConnection, node: &NodeRegistration) -> Result<(), Disconnect> {
        let expired = self.state.reservations.remove_expired(self.state.now());
        if !expired.is_empty() {
            self.state.release_unused(&expired, &self.state.epoch());
        }
        self.sweep_leases();
        self.flush_some(connection, node).await?;
        let mut used = self.state.meters.take_used();
        for subject in self.state.leases.subjects(SUBJECTS_PER_MESSAGE) {
            if !used.contains(&subject) {
                used.push(subject);
            }
        }
        if used.is_empty() {
            // Shows new nodes, and whether Redis has lost its data.
            let reply = self.settle(connection, node, &[]).await?;
            self.record_reply(&reply, &[]);
        }
        self.read_meters(connection, node, &used).await
    }

    /// Reads the meters whose money any node has reserved or spent since it last did, so that this node's share in an outage
    /// starts from the spending of all nodes, including subjects that it has never served.
    async fn follow(
        &self,
        connection: &mut MultiplexedConnection,
        node: &NodeRegistration,
        until: &mut u64,
    ) -> Result<(), Disconnect> {
        // A single node has nothing to read, but the call also removes entries that are older than a minute.
        let is_alone = self.state.node_count() < 2;
        let most = if is_alone { 1 } else { MAX_FOLLOWED };
        let changes = self.state.scripts.changes(connection, node, *until, most);
        let (now, changed) = timeout(RESPONSE_TIMEOUT, changes).await.map_err(|_| Disconnect::Timeout)??;
        if is_alone {
            return Ok(());
        }
        self.read_meters(connection, node, &changed).await?;
        *until = now;
        Ok(())
    }

    async fn read_meters(
        &self,
        connection: &mut MultiplexedConnection,
        node: &NodeRegistration,
        subjects: &[Subject],
    ) -> Result<(), Disconnect> {
        for subjects in subjects.chunks(SUBJECTS_PER_MESSAGE) {
            let unchanged: Vec<_> = subjects.iter().map(|subject| (*subject, CounterDelta::default())).collect();
            // Reuses the number of the last message, so nothing counts again.
            let reply = self.settle(connection, node, &unchanged).await?;
            self.record_reply(&reply, &unchanged);
        }
        Ok(())
    }

    fn sweep_leases(&self) {
        let at = (self.state.options.clock)();
        let _epoch = self.state.epoch();
        let left = |subject: Subject, pool: &LeasePool| {
            let meter = self.state.meters.get(subject);
            let left = pool.rules.iter().filter_map(|rule| match rule {
                LimitRule::Budget(budget) => Some(budget.amount.0 - meter.spent.within(budget.window, at).0 - meter.reserved),
                LimitRule::Balance => Some(meter.balance - meter.reserved),
                LimitRule::Requests(_) | LimitRule::Tokens(_) | LimitRule::Concurrency(_) => None,
            });
            left.min()
        };
        let mut pending = self.state.pending();
        self.state.leases.sweep(self.state.now(), left, &mut pending);
    }

    async fn renew_registration(&self, connection: &mut MultiplexedConnection, node: &NodeRegistration) -> Result<(), Disconnect> {
        let sent = self.state.now();
        let scripts = &self.state.scripts;
        let request = RegistrationRequest {
            node: &node.node,
            ttl_ms: REGISTRATION_TTL_MS,
            kind: HeartbeatKind::Keep,
            prefix: "",
            process: &self.process,
            generation: &self.generation,
            answered: self.answered,
        };
        let reply = timeout(RESPONSE_TIMEOUT, scripts.heartbeat(connection, &request)).await.map_err(|_| Disconnect::Timeout)??;
        self.state.set_node_count(reply.nodes);
        if !reply.is_registered || reply.generation != node.generation {
            return Err(Disconnect::RegistrationLost);
        }
        let epoch = self.state.epoch();
        if matches!(&epoch.connection, ConnectionState::Up { node: current, .. } if current == node) {
            self.state.lease_clock().registered_until = Some(sent + LEASE_TTL);
        }
        Ok(())
    }
}
