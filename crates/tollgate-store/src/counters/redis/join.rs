//! How a node joins: it registers, restores Redis if it has lost its data, reports all that the node has reserved and spent,
//! and then counts in Redis.
//!
//! When Redis has lost its data, the totals of the database lack spending that is not booked yet, and other nodes still serve from
//! their shares. So all nodes gather first. Until the others have arrived, each serves from its share. Then each pauses briefly
//! while it reports. Only when all have reported does any of them reserve from the restored meters. The others do not wait for a
//! node that has not arrived when its last registration expires, or that does not report within 10 s.

use std::{
    collections::HashSet,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use redis::aio::MultiplexedConnection;
use tokio::time::sleep;
use tollgate_core::RequestId;

use super::{
    connection, ledger_sync,
    script::{Disconnect, GatheringPhase, GatheringReply, HeartbeatKind, HeartbeatReply, NodeRegistration, RegistrationRequest},
    state::ConnectionState,
    worker::{LEASE_TTL, REGISTRATION_TTL_MS, RedisWorker, random_name},
};
use crate::LedgerPosition;

/// Interval at which a node polls whether the others have arrived.
const ARRIVAL_INTERVAL: Duration = Duration::from_millis(50);
/// Interval at which it polls whether they have reported. Its requests wait meanwhile.
const REPORT_INTERVAL: Duration = Duration::from_millis(10);
/// Times that another process may take this node's registration before it takes another name.
const MAX_EVICTIONS: u32 = 2;

impl RedisWorker {
    /// Connects, registers this node and reports to Redis. Returns the number of nodes. On failure the node continues with its
    /// share.
    pub(super) async fn join(&mut self) -> Result<u64, Disconnect> {
        let joined = self.try_join().await;
        if joined.is_err() {
            self.state.joining_failed();
        }
        joined
    }

    async fn try_join(&mut self) -> Result<u64, Disconnect> {
        let mut connection = connection::connect(&self.client).await?;
        let known_nodes = if self.generation.is_empty() { 1 } else { self.state.node_count() };
        let name = format!("{}{}", self.name_prefix(), random_name(&self.state.options.random));
        let mut sent = self.state.now();
        let mut reply = self.register(&mut connection, &name).await?;
        while reply.generation.is_empty() {
            self.ledger.restore(&mut connection, &name).await?;
            sent = self.state.now();
            reply = self.register(&mut connection, &name).await?;
        }
        let nodes = reply.nodes;
        let node = NodeRegistration { node: name, generation: reply.generation };
        let gathers = self.gather(&mut connection, &node, GatheringPhase::Arrived, known_nodes).await?;
        let included =
            if self.generation == node.generation { None } else { Some(self.included(&node.generation, gathers).await?) };
        self.note_eviction(included.is_some());
        let number = self.begin_epoch(included.as_ref());
        self.generation.clone_from(&node.generation);
        self.flush(&mut connection, &node).await?;
        self.gather(&mut connection, &node, GatheringPhase::Reported, known_nodes).await?;
        let mut epoch = self.state.epoch_mut();
        if epoch.number != number {
            return Err(Disconnect::ConnectionLost);
        }
        epoch.connection = ConnectionState::Up { connection, node };
        self.state.lease_clock().registered_until = Some(sent + LEASE_TTL);
        drop(epoch);
        self.state.joined.notify_waiters();
        // Wakes the worker for changes made since the flush.
        self.state.wake.notify_one();
        self.state.ledger_changed.notify_one();
        Ok(nodes)
    }

    /// The beginning of the names of this process's registrations.
    fn name_prefix(&self) -> String {
        format!("{}-{}-", self.identity, self.state.options.beside.as_deref().unwrap_or("0"))
    }

    /// The beginning of the names of the registrations that this one replaces: at a start all of the node, afterwards only its own,
    /// because another process of the node may have begun beside it.
    fn replaced_prefix(&self) -> String {
        if self.generation.is_empty() && self.state.options.beside.is_none() {
            format!("{}-", self.identity)
        } else {
            self.name_prefix()
        }
    }

    /// Registers this process; the registrations that it replaces end.
    async fn register(&self, connection: &mut MultiplexedConnection, node: &str) -> Result<HeartbeatReply, Disconnect> {
        let request = RegistrationRequest {
            node,
            ttl_ms: REGISTRATION_TTL_MS,
            kind: HeartbeatKind::New,
            prefix: &self.replaced_prefix(),
            process: &self.process,
            generation: &self.generation,
            answered: self.answered,
        };
        Ok(self.state.scripts.heartbeat(connection, &request).await?)
    }

    /// Waits until the other nodes have reached the same phase. False if they count in Redis already.
    async fn gather(
        &self,
        connection: &mut MultiplexedConnection,
        node: &NodeRegistration,
        phase: GatheringPhase,
        known_nodes: u64,
    ) -> Result<bool, Disconnect> {
        let interval = if phase == GatheringPhase::Arrived { ARRIVAL_INTERVAL } else { REPORT_INTERVAL };
        loop {
            match self.state.scripts.gather(connection, node, phase, known_nodes).await? {
                GatheringReply::Wait => sleep(interval).await,
                GatheringReply::Proceed => return Ok(true),
                GatheringReply::NoGathering => return Ok(false),
            }
        }
    }

    /// The latest requests of this node that the totals of this generation contain: those booked before they were restored. A
    /// node that joins later, when the others have synchronised Redis with the database, leaves out everything that is
    /// booked.
    async fn included(&self, generation: &str, gathers: bool) -> Result<HashSet<RequestId>, Disconnect> {
        let until = if gathers { ledger_sync::position_of(generation) } else { LedgerPosition(i64::MAX) };
        let booked = self.ledger.positions(&self.state.recent.ids()).await?;
        Ok(booked.into_iter().filter(|(_, position)| *position <= until).map(|(id, _)| id).collect())
    }

    /// Takes another name when another process keeps ending this node's registrations, because it runs on a copy of the
    /// data folder.
    fn note_eviction(&mut self, is_new_generation: bool) {
        let was_evicted = self.state.registration_lost.swap(false, Ordering::AcqRel) && !is_new_generation;
        self.evictions = if was_evicted { self.evictions + 1 } else { 0 };
        if self.evictions >= MAX_EVICTIONS {
            self.evictions = 0;
            self.identity = random_name(&self.state.options.random);
            tracing::error!(
                "another process registers as this node, because its data folder is a copy; each node needs a separate one"
            );
        }
    }

    /// Begins an epoch whose pending deltas hold all open reservations. If Redis kept its data, unsent spending stays
    /// pending. Otherwise the deltas hold the spending of the latest requests that the restored totals do not contain, and
    /// the rates of the current minute.
    fn begin_epoch(&mut self, included: Option<&HashSet<RequestId>>) -> u64 {
        let mut epoch = self.state.epoch_mut();
        let share = epoch.outage_share().map_or_else(|| self.state.new_outage_share(), Arc::clone);
        epoch.number += 1;
        epoch.connection = ConnectionState::Joining { share };
        let micros = self.state.redis_micros(self.state.now());
        let mut pending = self.state.pending();
        match included {
            None => {
                let unanswered = self.unanswered.iter_mut().flatten().map(|(_, delta)| delta);
                for delta in pending.values_mut().chain(unanswered) {
                    (delta.reserved, delta.running) = (0, 0);
                }
            }
            Some(included) => {
                let unanswered = self.unanswered.iter().flatten().map(|(subject, delta)| (subject, delta));
                for (subject, delta) in pending.iter().chain(unanswered) {
                    self.state.own_rates.correct(*subject, delta, micros);
                }
                *pending = self.state.recent.except(included);
                self.unanswered = None;
            }
        }
        for (subject, open) in self.state.reservations.as_deltas() {
            let delta = pending.entry(subject).or_default();
            delta.reserved = delta.reserved.saturating_add(open.reserved);
            delta.running = delta.running.saturating_add(open.running);
        }
        for (subject, windows) in self.state.own_rates.take(included.is_some(), micros) {
            pending.entry(subject).or_default().counted.push(windows);
        }
        epoch.number
    }
}
