//! Records the health of accounts and channels over time: transitions into states in which they get no requests, each as one row
//! with its reason, its beginning and its end. Changes arrive through a bounded queue that requests never wait for; every second
//! they are written, and all accounts and channels are compared with the catalog and with spent budgets.
//!
//! Bounds: 1,024 changes in the queue; 10,000 rows that wait for the database, beyond which the oldest are left out.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use tokio::time::{Instant, MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;
use tollgate_core::{
    Account, Catalog, Channel, ChannelBudget, HealthCondition, HealthHistory, HealthState, HealthTransition, ImpairedState,
    Subject, Timestamp, TransitionCause, account_condition,
};
use tollgate_store::HealthHistoryStore;

use crate::state::{
    health_records::{ChangeReceiver, HealthChange, HealthRecords},
    health_registry::HealthRegistry,
    runtime_state::budget_of,
    shared::Shared,
};

/// How often rows are written and all accounts are compared.
const TICK: Duration = Duration::from_secs(1);
/// How often the node records that it runs. A node that has not done so for longer counts as stopped.
const NODE_INTERVAL: Duration = Duration::from_mins(1);
/// Rows that wait for the database.
const MAX_WAITING: usize = 10_000;
/// Rows written at once.
const BATCH: usize = 500;

/// Records the states of accounts and channels that this node observes.
#[derive(Debug)]
pub struct HealthRecorder {
    pub shared: Arc<Shared>,
    pub registry: Arc<HealthRegistry>,
    pub store: Arc<dyn HealthHistoryStore>,
    pub records: Arc<HealthRecords>,
    /// Name of this node.
    pub node: String,
}

impl HealthRecorder {
    /// Records until `stop` is cancelled. Must run inside a runtime.
    pub async fn run(self, stop: CancellationToken) {
        let mut changes = self.registry.changes.follow();
        let mut ticks = interval(TICK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        if stop.run_until_cancelled(self.restore()).await.is_none() {
            return;
        }
        let (mut waiting, mut noted_at) = (VecDeque::new(), None);
        loop {
            tokio::select! {
                // Changes first: the comparison would find the same transitions without their cause.
                biased;
                Some(change) = changes.changes.recv() => self.record(&change, &mut waiting),
                () = stop.cancelled() => break,
                _ = ticks.tick() => {
                    self.compare(&changes, &mut waiting);
                    self.write(&mut waiting).await;
                    self.note_node(&mut noted_at).await;
                }
            }
        }
        self.write(&mut waiting).await;
    }

    /// Reads the earlier records of this node. Repeated until the database answers.
    async fn restore(&self) {
        loop {
            match self.store.last_transitions(&self.node).await {
                Ok(recorded) => {
                    *self.records.lock() = HealthHistory::restore(recorded);
                    return;
                }
                Err(fault) => {
                    self.shared.metrics.store_error("last_transitions");
                    tracing::debug!(%fault, "the recorded health of accounts cannot be read");
                    tokio::time::sleep(TICK).await;
                }
            }
        }
    }

    fn record(&self, change: &HealthChange, waiting: &mut VecDeque<HealthTransition>) {
        let catalog = self.shared.catalog.load();
        let Some((channel, account)) = catalog.account(change.account) else { return };
        let HealthChange { state, cause, at, .. } = *change;
        let mut history = self.records.lock();
        let mut rows = record_account(&mut history, channel, account, &state, cause, at);
        if !rows.is_empty() {
            rows.extend(history.record_channel(channel, self.budget(channel, at), cause, at));
        }
        drop(history);
        queue(waiting, rows);
    }

    /// Compares the recorded states with every account and channel of the catalog. Differences are changes by an operator, or changes
    /// that found no space in the queue.
    fn compare(&self, changes: &ChangeReceiver, waiting: &mut VecDeque<HealthTransition>) {
        let cause = if changes.take_missed() { TransitionCause::Request } else { TransitionCause::Operator };
        let (catalog, now) = (self.shared.catalog.load_full(), self.shared.clock.now());
        let mut rows = Vec::new();
        for channel in catalog.channels.values() {
            // Locked for one channel at a time, so that requests can read standings in between.
            let mut history = self.records.lock();
            for account in &channel.accounts {
                let state = self.registry.state_of_all(account.id);
                rows.extend(record_account(&mut history, channel, account, &state, cause, now));
            }
            rows.extend(history.record_channel(channel, self.budget(channel, now), cause, now));
        }
        rows.extend(self.retain(&catalog, now));
        queue(waiting, rows);
    }

    /// Ends the transitions of accounts and channels that the catalog no longer has.
    fn retain(&self, catalog: &Catalog, now: Timestamp) -> Vec<HealthTransition> {
        let exists = |channel, account: Option<_>| {
            let found = catalog.channels.get(&channel);
            found.is_some_and(|channel| account.is_none_or(|id| channel.accounts.iter().any(|account| account.id == id)))
        };
        self.records.lock().retain(exists, now)
    }

    fn budget(&self, channel: &Channel, now: Timestamp) -> ChannelBudget {
        let spent = |window| self.shared.counters.spent(Subject::Channel(channel.id), window, now);
        budget_of(channel, now, |budget| spent(budget.window))
    }

    /// Writes the waiting rows. Rows that cannot be written remain queued.
    async fn write(&self, waiting: &mut VecDeque<HealthTransition>) {
        while !waiting.is_empty() {
            let batch: Vec<HealthTransition> = waiting.iter().take(BATCH).copied().collect();
            if let Err(fault) = self.store.record_transitions(&self.node, &batch).await {
                self.shared.metrics.store_error("record_transitions");
                tracing::debug!(%fault, rows = waiting.len(), "health transitions wait for the database");
                return;
            }
            waiting.drain(..batch.len());
        }
    }

    async fn note_node(&self, noted_at: &mut Option<Instant>) {
        let now = self.shared.clock.instant();
        if noted_at.is_some_and(|at| now.saturating_duration_since(at) < NODE_INTERVAL) {
            return;
        }
        match self.store.note_node(&self.node, self.shared.clock.now()).await {
            Ok(()) => *noted_at = Some(now),
            Err(fault) => {
                self.shared.metrics.store_error("note_node");
                tracing::debug!(%fault, "that this node runs cannot be noted");
            }
        }
    }
}

fn record_account(
    history: &mut HealthHistory,
    channel: &Channel,
    account: &Account,
    state: &HealthState,
    cause: TransitionCause,
    now: Timestamp,
) -> Vec<HealthTransition> {
    let condition = account_condition(channel, account, state, now);
    // Only operators switch accounts and channels on and off, whatever triggered the comparison.
    let is_switch = matches!(condition, HealthCondition::Impaired(impairment) if impairment.state == ImpairedState::Off);
    history.record(channel, account, condition, if is_switch { TransitionCause::Operator } else { cause }, now)
}

/// Appends rows; beyond the limit the oldest are dropped.
fn queue(waiting: &mut VecDeque<HealthTransition>, rows: Vec<HealthTransition>) {
    waiting.extend(rows);
    let excess = waiting.len().saturating_sub(MAX_WAITING);
    if excess > 0 {
        waiting.drain(..excess);
        tracing::warn!(left_out = excess, "health transitions were left out: the database takes none");
    }
}

#[cfg(test)]
mod tests;
