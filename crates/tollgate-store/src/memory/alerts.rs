//! Alerts of the memory backend.

use std::collections::{BTreeMap, HashSet};

use async_trait::async_trait;
use tollgate_core::{AlertCondition, AlertDestinationId, AlertId, AlertRule, ExpiringKey, KeyStatus, Timestamp};

use super::MemoryStore;
use crate::{
    AdminKeySpec, Alert, AlertDestination, AlertDestinationSpec, AlertFilter, AlertMessage, AlertStore, ClaimedMessage,
    DestinationSecrets, KeySpec, MessageKind, MessageResult, MessageState, NotifiedDestination, PLAYGROUND_KEY_NAME, RowKind,
    StoreError,
    alerts::{ALERT_LIFE_MS, EVENT_LIFE_MS, MAX_ENDED_ALERTS, MAX_OPEN_ALERTS, detail_text},
};

#[derive(Debug, Default)]
pub(super) struct MemoryAlerts {
    alerts: BTreeMap<AlertId, Alert>,
    /// When each waiting message is due: alert, destination and kind.
    due: Vec<(AlertId, String, MessageKind, Timestamp)>,
    /// The node that evaluates the rules, and the time of its claim.
    evaluator: Option<(String, Timestamp)>,
}

impl MemoryAlerts {
    fn put_message(&mut self, id: AlertId, kind: MessageKind, destination: String, state: MessageState, now: Timestamp) {
        let Some(alert) = self.alerts.get_mut(&id) else { return };
        if state == MessageState::Waiting {
            self.due.push((id, destination.clone(), kind, now));
        }
        alert.messages.push(AlertMessage { destination, kind, state, attempts: 0, fault: String::new() });
    }

    /// Ends the events that were raised an hour ago.
    fn end_events(&mut self, now: Timestamp) {
        let raised_before = now.plus_ms(-EVENT_LIFE_MS);
        let open = self.alerts.values_mut().filter(|alert| alert.rule.is_event() && alert.ended_at.is_none());
        for alert in open.filter(|alert| alert.raised_at <= raised_before) {
            alert.ended_at = Some(now);
        }
    }

    fn message(&mut self, id: AlertId, destination: &str, kind: MessageKind) -> Option<&mut AlertMessage> {
        let messages = &mut self.alerts.get_mut(&id)?.messages;
        messages.iter_mut().find(|message| message.destination == destination && message.kind == kind)
    }
}

#[async_trait]
impl AlertStore for MemoryStore {
    async fn claim_evaluation(&self, node: &str, now: Timestamp, lease_ms: i64) -> Result<bool, StoreError> {
        let mut state = self.alerts.lock().await;
        let is_held =
            |(holder, at): &(String, Timestamp)| holder != node && *at > now.plus_ms(-lease_ms) && *at <= now.plus_ms(lease_ms);
        if state.evaluator.as_ref().is_some_and(is_held) {
            return Ok(false);
        }
        state.evaluator = Some((node.to_owned(), now));
        Ok(true)
    }

    async fn raise(
        &self,
        condition: &AlertCondition,
        node: &str,
        notified: &[NotifiedDestination],
        now: Timestamp,
    ) -> Result<Option<AlertId>, StoreError> {
        let mut state = self.alerts.lock().await;
        state.end_events(now);
        let mut open = state.alerts.values().filter(|alert| alert.rule == condition.rule && alert.ended_at.is_none());
        let count = i64::try_from(open.clone().count()).unwrap_or(i64::MAX);
        if count >= MAX_OPEN_ALERTS || open.any(|alert| alert.subject == condition.subject) {
            return Ok(None);
        }
        let id = AlertId::from_parts(now, self.random.bytes());
        let alert = Alert {
            id,
            rule: condition.rule,
            subject: condition.subject.clone(),
            node: node.to_owned(),
            text: condition.text.clone(),
            detail: detail_text(condition),
            raised_at: now,
            ended_at: None,
            messages: Vec::new(),
        };
        state.alerts.insert(id, alert);
        for (destination, message_state) in notified {
            state.put_message(id, MessageKind::Raised, destination.to_string(), *message_state, now);
        }
        Ok(Some(id))
    }

    async fn end(&self, rule: AlertRule, subject: &str, now: Timestamp) -> Result<bool, StoreError> {
        let mut state = self.alerts.lock().await;
        let is_it = |alert: &&mut Alert| alert.rule == rule && alert.subject == subject && alert.ended_at.is_none();
        let Some(alert) = state.alerts.values_mut().find(is_it) else { return Ok(false) };
        alert.ended_at = Some(now);
        let (id, messages) = (alert.id, alert.messages.clone());
        for message in messages {
            state.put_message(id, MessageKind::Ended, message.destination, MessageState::Waiting, now);
        }
        Ok(true)
    }

    async fn end_events(&self, now: Timestamp) -> Result<(), StoreError> {
        self.alerts.lock().await.end_events(now);
        Ok(())
    }

    async fn alerts(&self, filter: &AlertFilter) -> Result<Vec<Alert>, StoreError> {
        let state = self.alerts.lock().await;
        let wanted = |alert: &&Alert| {
            filter.is_open.is_none_or(|is_open| alert.ended_at.is_none() == is_open)
                && filter.rule.is_none_or(|rule| alert.rule == rule)
                && filter.before.is_none_or(|before| alert.id < before)
        };
        Ok(state.alerts.values().rev().filter(wanted).take(filter.limit.min(1_001) as usize).cloned().collect())
    }

    async fn alert(&self, id: AlertId) -> Result<Option<Alert>, StoreError> {
        Ok(self.alerts.lock().await.alerts.get(&id).cloned())
    }

    async fn open_alerts(&self, node: Option<&str>) -> Result<Vec<(AlertRule, String)>, StoreError> {
        let state = self.alerts.lock().await;
        let open = state.alerts.values().filter(|alert| alert.ended_at.is_none() && node.is_none_or(|node| alert.node == node));
        Ok(open.map(|alert| (alert.rule, alert.subject.clone())).collect())
    }

    async fn claim_messages(&self, now: Timestamp, until: Timestamp, limit: u32) -> Result<Vec<ClaimedMessage>, StoreError> {
        let mut state = self.alerts.lock().await;
        let mut claimed = Vec::new();
        let is_raised = |it: &&(AlertId, String, MessageKind, Timestamp)| it.2 == MessageKind::Raised;
        let unknown: HashSet<(AlertId, String)> = state.due.iter().filter(is_raised).map(|it| (it.0, it.1.clone())).collect();
        let is_due = |it: &&mut (AlertId, String, MessageKind, Timestamp)| {
            it.3 <= now && (it.2 == MessageKind::Raised || !unknown.contains(&(it.0, it.1.clone())))
        };
        for (alert, destination, kind, due) in state.due.iter_mut().filter(is_due).take(limit as usize) {
            *due = until;
            claimed.push(ClaimedMessage { alert: *alert, destination: destination.clone(), kind: *kind, attempts: 0 });
        }
        for message in &mut claimed {
            if let Some(found) = state.message(message.alert, &message.destination, message.kind) {
                found.attempts += 1;
                message.attempts = found.attempts;
            }
        }
        Ok(claimed)
    }

    async fn settle_message(&self, message: &ClaimedMessage, result: &MessageResult) -> Result<(), StoreError> {
        let mut state = self.alerts.lock().await;
        let is_own = |found: &mut AlertMessage| found.attempts == message.attempts;
        if !state.message(message.alert, &message.destination, message.kind).is_some_and(is_own) {
            return Ok(());
        }
        let is_it = |it: &(AlertId, String, MessageKind, Timestamp)| {
            it.0 == message.alert && it.1 == message.destination && it.2 == message.kind
        };
        let (next, fault) = match result {
            MessageResult::Sent => (MessageState::Sent, ""),
            MessageResult::Retry(at, fault) => {
                state.due.iter_mut().filter(|it| is_it(it)).for_each(|it| it.3 = *at);
                (MessageState::Waiting, fault.as_str())
            }
            MessageResult::Failed(fault) => (MessageState::Failed, fault.as_str()),
        };
        if next != MessageState::Waiting {
            state.due.retain(|it| !is_it(it));
        }
        if let Some(found) = state.message(message.alert, &message.destination, message.kind) {
            found.state = next;
            fault.clone_into(&mut found.fault);
        }
        Ok(())
    }

    async fn prune_alerts(&self, now: Timestamp) -> Result<(), StoreError> {
        let mut state = self.alerts.lock().await;
        let ended = state.alerts.values().rev().filter(|alert| alert.ended_at.is_some());
        let newest: Vec<AlertId> =
            ended.map(|alert| alert.id).take(usize::try_from(MAX_ENDED_ALERTS).unwrap_or(usize::MAX)).collect();
        let oldest = now.plus_ms(-ALERT_LIFE_MS);
        state.alerts.retain(|id, alert| alert.ended_at.is_none_or(|at| at >= oldest && newest.contains(id)));
        let MemoryAlerts { alerts, due, .. } = &mut *state;
        due.retain(|message| alerts.contains_key(&message.0));
        Ok(())
    }

    async fn destinations(&self) -> Result<Vec<AlertDestination>, StoreError> {
        let state = self.catalog.lock().await;
        let rows = state.live().filter(|row| row.kind == RowKind::AlertDestination);
        rows.map(|row| {
            let id = AlertDestinationId::parse(&row.id).ok_or_else(|| row.broken("its id has another form"))?;
            let spec = row.read::<AlertDestinationSpec>()?;
            Ok(AlertDestination { id, spec, secrets: DestinationSecrets::open(row, &self.sealer)? })
        })
        .collect()
    }

    async fn expiring_keys(&self, now: Timestamp, before: Timestamp) -> Result<Vec<ExpiringKey>, StoreError> {
        let state = self.catalog.lock().await;
        let mut found = Vec::new();
        for row in state.live() {
            let expires_at = match row.kind {
                RowKind::Key => {
                    let spec = row.read::<KeySpec>()?;
                    spec.expires_at.filter(|_| spec.status != KeyStatus::Disabled)
                }
                RowKind::AdminKey => row.read::<AdminKeySpec>()?.expires_at,
                RowKind::Channel
                | RowKind::Account
                | RowKind::Model
                | RowKind::Group
                | RowKind::Member
                | RowKind::Setting
                | RowKind::AlertDestination => None,
            };
            if let Some(expires_at) = expires_at.filter(|at| *at > now && *at < before)
                && row.name != PLAYGROUND_KEY_NAME
            {
                found.push(ExpiringKey { id: row.id.clone(), name: row.name.clone(), expires_at });
            }
        }
        found.sort_by_key(|key| key.expires_at);
        found.truncate(1_001);
        Ok(found)
    }
}
