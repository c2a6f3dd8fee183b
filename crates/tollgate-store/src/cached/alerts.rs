//! Alerts need the database: while it is unreachable no alert is raised, and messages wait.

use async_trait::async_trait;
use tollgate_core::{AlertCondition, AlertId, AlertRule, ExpiringKey, Timestamp};

use super::{CachedStore, QUERY_TIMEOUT};
use crate::{Alert, AlertDestination, AlertFilter, AlertStore, ClaimedMessage, MessageResult, NotifiedDestination, StoreError};

#[async_trait]
impl AlertStore for CachedStore {
    async fn claim_evaluation(&self, node: &str, now: Timestamp, lease_ms: i64) -> Result<bool, StoreError> {
        self.within(QUERY_TIMEOUT, self.sql()?.claim_evaluation(node, now, lease_ms)).await
    }

    async fn raise(
        &self,
        condition: &AlertCondition,
        node: &str,
        notified: &[NotifiedDestination],
        now: Timestamp,
    ) -> Result<Option<AlertId>, StoreError> {
        self.within(QUERY_TIMEOUT, self.sql()?.raise(condition, node, notified, now)).await
    }

    async fn end(&self, rule: AlertRule, subject: &str, now: Timestamp) -> Result<bool, StoreError> {
        self.within(QUERY_TIMEOUT, self.sql()?.end(rule, subject, now)).await
    }

    async fn end_events(&self, now: Timestamp) -> Result<(), StoreError> {
        self.within(QUERY_TIMEOUT, self.sql()?.end_events(now)).await
    }

    async fn alerts(&self, filter: &AlertFilter) -> Result<Vec<Alert>, StoreError> {
        self.within(QUERY_TIMEOUT, self.sql()?.alerts(filter)).await
    }

    async fn alert(&self, id: AlertId) -> Result<Option<Alert>, StoreError> {
        self.within(QUERY_TIMEOUT, self.sql()?.alert(id)).await
    }

    async fn open_alerts(&self, node: Option<&str>) -> Result<Vec<(AlertRule, String)>, StoreError> {
        self.within(QUERY_TIMEOUT, self.sql()?.open_alerts(node)).await
    }

    async fn claim_messages(&self, now: Timestamp, until: Timestamp, limit: u32) -> Result<Vec<ClaimedMessage>, StoreError> {
        self.within(QUERY_TIMEOUT, self.sql()?.claim_messages(now, until, limit)).await
    }

    async fn settle_message(&self, message: &ClaimedMessage, result: &MessageResult) -> Result<(), StoreError> {
        self.within(QUERY_TIMEOUT, self.sql()?.settle_message(message, result)).await
    }

    async fn prune_alerts(&self, now: Timestamp) -> Result<(), StoreError> {
        self.within(QUERY_TIMEOUT, self.sql()?.prune_alerts(now)).await
    }

    async fn destinations(&self) -> Result<Vec<AlertDestination>, StoreError> {
        self.within(QUERY_TIMEOUT, self.sql()?.destinations()).await
    }

    async fn expiring_keys(&self, now: Timestamp, before: Timestamp) -> Result<Vec<ExpiringKey>, StoreError> {
        self.within(QUERY_TIMEOUT, self.sql()?.expiring_keys(now, before)).await
    }
}
