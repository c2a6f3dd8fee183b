//! Sends the messages about alerts that the database holds. A message is sent by the node that claims it. If it is not accepted,
//! it is retried several times and then kept as failed.
//!
//! Bounds: 20 messages at once, each 8 attempts over about two hours.

use std::{path::Path, sync::Arc, time::Duration};

use futures_util::future::join_all;
use serde_json::Map;
use tokio::{sync::Notify, time::sleep};
use tokio_util::sync::CancellationToken;
use tollgate_core::{AlertCondition, Timestamp};
use tollgate_gateway::{
    background::notify::{Notification, Notifier},
    state::shared::Shared,
    upstream::client::Trust,
};
use tollgate_store::{
    Alert, AlertDestination, AlertDestinationSpec, AlertMessage, CONFIGURED_DESTINATION, ClaimedMessage, DestinationKind,
    DestinationSecrets, MessageKind, MessageResult, MessageState, Store, StoreError,
};

use crate::{
    compose,
    config::{self, Config},
    failure::Failure,
    last_fault::LastFault,
};

/// How often messages are looked for.
const TICK: Duration = Duration::from_secs(2);
/// A message that is not settled in this time is sent by another node. Longer than an attempt may take.
const CLAIM_MS: i64 = 120_000;
const MESSAGES_AT_ONCE: u32 = 20;
/// Waits after a failed attempt, in seconds.
pub(super) const WAITS_S: [i64; 7] = [5, 15, 60, 300, 900, 1_800, 3_600];

/// Sends messages.
pub(super) struct Delivery {
    pub(super) store: Store,
    pub(super) shared: Arc<Shared>,
    /// The destination that the settings have.
    pub(super) configured: Option<AlertDestination>,
    pub(super) notifier: Arc<Notifier>,
}

impl Delivery {
    /// Runs until `stop` is cancelled. `raised` is notified when there are messages.
    pub(super) async fn run(self, raised: Arc<Notify>, stop: CancellationToken) {
        let mut last_fault = LastFault::default();
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                () = sleep(TICK) => {}
                () = raised.notified() => {}
            }
            match stop.run_until_cancelled(self.deliver_all()).await {
                None => return,
                Some(result) => {
                    if let Some(fault) = last_fault.observe(&result) {
                        tracing::warn!(%fault, "messages about alerts were not sent; this is tried again");
                    }
                }
            }
        }
    }

    /// Sends everything that is due.
    async fn deliver_all(&self) -> Result<(), StoreError> {
        while self.deliver().await? == MESSAGES_AT_ONCE as usize {}
        Ok(())
    }

    /// Sends messages that are due, and returns how many there were.
    async fn deliver(&self) -> Result<usize, StoreError> {
        let now = compose::now();
        let claimed = self.store.alerts.claim_messages(now, now.plus_ms(CLAIM_MS), MESSAGES_AT_ONCE).await?;
        if claimed.is_empty() {
            return Ok(0);
        }
        let destinations = destinations(&self.store, self.configured.as_ref()).await?;
        // Each message is settled as soon as it is sent. If all were settled together, a slow destination could let the claims of the
        // others expire, and they would be sent twice.
        let settled = join_all(claimed.iter().map(async |message| {
            let result = self.send(message, &destinations).await?;
            self.store.alerts.settle_message(message, &result).await
        }));
        settled.await.into_iter().collect::<Result<(), StoreError>>()?;
        Ok(claimed.len())
    }

    async fn send(&self, message: &ClaimedMessage, destinations: &[AlertDestination]) -> Result<MessageResult, StoreError> {
        let known = destinations.iter().find(|it| it.id.to_string() == message.destination && it.spec.on);
        let Some(destination) = known else {
            // The destination may be in the settings of another node.
            let is_configured = message.destination == AlertDestination::configured_id().to_string();
            let gone = "the destination was removed or switched off".to_owned();
            return Ok(if is_configured {
                self.failed(CONFIGURED_DESTINATION, message, gone)
            } else {
                MessageResult::Failed(gone)
            });
        };
        let Some(alert) = self.store.alerts.alert(message.alert).await? else {
            return Ok(MessageResult::Failed("the alert was removed".to_owned()));
        };
        if message.kind == MessageKind::Ended && alert.messages.iter().any(|other| is_failed_beginning(other, message)) {
            return Ok(MessageResult::Failed("the destination does not know of the alert".to_owned()));
        }
        match self.notifier.send(destination, &notification(&alert, message.kind), compose::now()).await {
            Ok(()) => {
                self.shared.metrics.alert("sent");
                Ok(MessageResult::Sent)
            }
            Err(fault) => Ok(self.failed(&destination.spec.name, message, fault)),
        }
    }

    /// The result for a message that was not accepted: a retry, or failure after the last attempt.
    fn failed(&self, destination: &str, message: &ClaimedMessage, fault: String) -> MessageResult {
        let attempt = usize::try_from(message.attempts.max(1) - 1).unwrap_or(usize::MAX);
        if let Some(wait) = WAITS_S.get(attempt) {
            tracing::warn!(destination, fault, "a message about an alert was not accepted; it is sent again");
            return MessageResult::Retry(compose::now().plus_ms(wait * 1_000), fault);
        }
        self.shared.metrics.alert("lost");
        tracing::error!(destination, fault, "a message about an alert could not be delivered and is lost");
        MessageResult::Failed(fault)
    }
}

/// Whether a message is the failed "raised" message to the same destination as `ended`.
fn is_failed_beginning(message: &AlertMessage, ended: &ClaimedMessage) -> bool {
    message.kind == MessageKind::Raised && message.destination == ended.destination && message.state == MessageState::Failed
}

/// Sends a test message. The error is the reason of the failure.
pub(crate) async fn send_test(destination: &AlertDestination, data: &Path, trust: &Arc<Trust>) -> Result<(), String> {
    let node = tollgate_store::node_identity(data).unwrap_or_default();
    let message = Notification::test(&destination.spec.name, &node, compose::now());
    Notifier::new(Arc::clone(trust)).send(destination, &message, compose::now()).await
}

/// The destinations of the database, and the one that the settings have.
pub(super) async fn destinations(
    store: &Store,
    configured: Option<&AlertDestination>,
) -> Result<Vec<AlertDestination>, StoreError> {
    let mut found = store.alerts.destinations().await?;
    found.extend(configured.cloned());
    Ok(found)
}

/// The destination of `alerts.webhook`, which gets the alerts of all rules.
pub(crate) fn configured_destination(config: &Config) -> Result<Option<AlertDestination>, Failure> {
    let Some(url) = &config.webhook else { return Ok(None) };
    let secret = match config.text("alerts.secret") {
        "" => None,
        text => Some(config::reference(text).map_err(|fault| Failure::invalid(format!("alerts.secret: {fault}")))?),
    };
    let spec = AlertDestinationSpec {
        name: CONFIGURED_DESTINATION.to_owned(),
        kind: DestinationKind::Webhook,
        private_network: config.flag("alerts.private_network"),
        has_secret: secret.is_some(),
        ..AlertDestinationSpec::default()
    };
    let secrets = DestinationSecrets { url: url.to_string(), secret };
    Ok(Some(AlertDestination { id: AlertDestination::configured_id(), spec, secrets }))
}

fn notification(alert: &Alert, kind: MessageKind) -> Notification {
    let detail = serde_json::from_str(&alert.detail).unwrap_or_else(|_| Map::new());
    let ended = alert.ended_at.filter(|_| kind == MessageKind::Ended);
    Notification {
        id: alert.id.to_string(),
        rule: alert.rule.as_str().to_owned(),
        state: kind.as_str(),
        at: ended.unwrap_or(alert.raised_at),
        subject: alert.subject.clone(),
        node: alert.node.clone(),
        text: alert.text.clone(),
        detail,
    }
}

/// A message about an alert that is not stored.
pub(super) fn notification_without_id(condition: &AlertCondition, kind: MessageKind, node: &str, at: Timestamp) -> Notification {
    Notification {
        id: String::new(),
        rule: condition.rule.as_str().to_owned(),
        state: kind.as_str(),
        at,
        subject: condition.subject.clone(),
        node: node.to_owned(),
        text: condition.text.clone(),
        detail: condition.detail.iter().map(|(name, value)| ((*name).to_owned(), value.clone().into())).collect(),
    }
}
