//! The [`HealthHistoryStore`] in memory.

use std::{collections::BTreeMap, ops::RangeInclusive};

use async_trait::async_trait;
use tollgate_core::{AccountId, ChannelId, HealthTransition, Timestamp};

use super::MemoryStore;
use crate::{
    HealthHistoryStore, LastTest, NodeRun, RecordedTransition, StoreError, TransitionFilter,
    health_history::{NODE_GONE_MS, PRUNED_AT_ONCE, account_text},
};

/// A transition's channel, account, node and beginning.
type TransitionKey = (ChannelId, Option<AccountId>, String, Timestamp);

#[derive(Debug, Default)]
pub(super) struct MemoryHealthHistory {
    transitions: BTreeMap<TransitionKey, HealthTransition>,
    /// In order of node and time.
    runs: Vec<NodeRun>,
    tests: BTreeMap<AccountId, LastTest>,
}

#[async_trait]
impl HealthHistoryStore for MemoryStore {
    async fn record_transitions(&self, node: &str, transitions: &[HealthTransition]) -> Result<(), StoreError> {
        let key = |row: &HealthTransition| (row.channel, row.account, node.to_owned(), row.impairment.since);
        self.health_history.lock().await.transitions.extend(transitions.iter().map(|row| (key(row), *row)));
        Ok(())
    }

    async fn last_transitions(&self, node: &str) -> Result<Vec<HealthTransition>, StoreError> {
        let history = self.health_history.lock().await;
        let own = || history.transitions.iter().filter(|((_, _, seen_by, _), _)| seen_by == node).map(|(_, row)| *row);
        let ended: BTreeMap<_, _> =
            own().filter(|row| row.ended_at.is_some()).filter_map(|row| Some((row.account?, row))).collect();
        Ok(own().filter(|row| row.ended_at.is_none()).chain(ended.into_values()).collect())
    }

    async fn transitions(&self, filter: &TransitionFilter) -> Result<Vec<RecordedTransition>, StoreError> {
        let (state, history) = (self.catalog.lock().await, self.health_history.lock().await);
        let name = |id: String| state.rows.get(&id).map_or(id, |row| row.name.clone());
        let mut found: Vec<RecordedTransition> = history
            .transitions
            .iter()
            .filter(|((_, _, node, _), row)| filter.selects(node, row))
            .map(|((_, _, node, _), row)| RecordedTransition {
                node: node.clone(),
                channel_name: name(row.channel.to_string()),
                account_name: row.account.map(|account| name(account_text(Some(account)))),
                transition: *row,
            })
            .collect();
        if let Some(before) = &filter.before {
            found.retain(|row| row.position().key() < before.key());
        }
        found.sort_by(|a, b| b.position().key().cmp(&a.position().key()));
        found.truncate(filter.size());
        Ok(found)
    }

    async fn note_node(&self, node: &str, now: Timestamp) -> Result<(), StoreError> {
        let runs = &mut self.health_history.lock().await.runs;
        let goes_on = |run: &&mut NodeRun| run.node == node && run.seen_at >= now.plus_ms(-NODE_GONE_MS);
        match runs.iter_mut().find(goes_on) {
            Some(run) => run.seen_at = now,
            None => runs.push(NodeRun { node: node.to_owned(), since: now, seen_at: now }),
        }
        runs.sort_by(|one, other| (&one.node, one.since).cmp(&(&other.node, other.since)));
        Ok(())
    }

    async fn node_runs(&self) -> Result<Vec<NodeRun>, StoreError> {
        Ok(self.health_history.lock().await.runs.clone())
    }

    async fn prune_transitions(&self, before: Timestamp, max: u64) -> Result<u64, StoreError> {
        let MemoryHealthHistory { transitions, runs, .. } = &mut *self.health_history.lock().await;
        let mut ended: Vec<(Timestamp, TransitionKey)> =
            transitions.iter().filter_map(|(key, row)| Some((row.ended_at?, key.clone()))).collect();
        ended.sort();
        let excess = usize::try_from((transitions.len() as u64).saturating_sub(max)).unwrap_or(usize::MAX);
        let old = ended.iter().filter(|(at, _)| *at < before).count();
        let removed = old.max(excess).min(ended.len()).min(usize::try_from(PRUNED_AT_ONCE).unwrap_or(usize::MAX));
        for (_, key) in ended.into_iter().take(removed) {
            transitions.remove(&key);
        }
        let last_seen = |node: &String| runs.iter().filter(|run| run.node == *node).map(|run| run.seen_at).max();
        let has_vanished = |node: &String| last_seen(node).is_some_and(|seen| seen < before);
        transitions.retain(|(_, _, node, since), row| row.ended_at.is_some() || *since >= before || !has_vanished(node));
        runs.retain(|run| run.seen_at >= before);
        Ok(removed as u64)
    }

    async fn save_last_tests(&self, tests: &[(AccountId, LastTest)]) -> Result<(), StoreError> {
        let known = &mut self.health_history.lock().await.tests;
        for (account, test) in tests {
            if known.get(account).is_none_or(|before| before.at <= test.at) {
                known.insert(*account, LastTest { error: test.stored_error(), ..test.clone() });
            }
        }
        Ok(())
    }

    async fn last_tests(&self, accounts: RangeInclusive<AccountId>) -> Result<Vec<(AccountId, LastTest)>, StoreError> {
        if accounts.is_empty() {
            return Ok(Vec::new());
        }
        let history = self.health_history.lock().await;
        Ok(history.tests.range(accounts).map(|(account, test)| (*account, test.clone())).collect())
    }
}
