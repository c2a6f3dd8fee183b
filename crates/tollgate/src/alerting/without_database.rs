//! Alerts of this node while its database is unreachable, such as that of a journal that grows because of it. They cannot be
//! stored, so messages are sent directly; when the database is back, the alerts are stored as already sent.
//!
//! Bounds: 8 attempts for each destination, one at each evaluation. The end of an alert that began before an outage is sent after
//! the outage.

use std::collections::{HashMap, HashSet};

use futures_util::future::join_all;
use tollgate_core::{AlertCondition, AlertDestinationId, AlertRule, Timestamp};
use tollgate_gateway::{background::notify::Notifier, state::metrics::Metrics};
use tollgate_store::{AlertDestination, MessageKind};

use super::delivery::notification_without_id;

const MAX_ATTEMPTS: u32 = 8;

/// Rule and subject.
type AlertKey = (AlertRule, String);

#[derive(Debug, Default)]
pub(super) struct WithoutDatabase {
    /// The alerts that the database had when it was last read.
    stored: HashSet<AlertKey>,
    notified: HashMap<AlertKey, DirectAlert>,
}

#[derive(Debug)]
struct DirectAlert {
    condition: AlertCondition,
    found_at: Timestamp,
    attempts: u32,
    /// The destinations that have accepted the message.
    destinations: Vec<AlertDestinationId>,
}

fn key(condition: &AlertCondition) -> AlertKey {
    (condition.rule, condition.subject.clone())
}

impl WithoutDatabase {
    /// Records that the database is reachable and has these alerts of this node.
    pub(super) fn set_known(&mut self, open: &[AlertKey]) {
        self.stored = open.iter().cloned().collect();
    }

    /// The destinations that accepted the message about an alert which is not stored.
    pub(super) fn notified(&self, condition: &AlertCondition) -> Vec<AlertDestinationId> {
        self.notified.get(&key(condition)).map(|alert| alert.destinations.clone()).unwrap_or_default()
    }

    /// Drops an alert, because it is stored now.
    pub(super) fn forget(&mut self, condition: &AlertCondition) {
        self.notified.remove(&key(condition));
    }

    /// Sends messages about conditions that the rules of this node have found and the database does not have, and about their end.
    pub(super) async fn send_messages(
        &mut self,
        found: &[AlertCondition],
        destinations: &[AlertDestination],
        (node, notifier): (&str, &Notifier),
        metrics: &Metrics,
        now: Timestamp,
    ) {
        for condition in found.iter().filter(|condition| !self.stored.contains(&key(condition))) {
            let new = || {
                tracing::warn!(alert.rule = condition.rule.as_str(), "alert, not stored: {}", condition.text);
                DirectAlert { condition: condition.clone(), found_at: now, attempts: 0, destinations: Vec::new() }
            };
            self.notified.entry(key(condition)).or_insert_with(new);
        }
        let still: HashSet<AlertKey> = found.iter().map(key).collect();
        let (open, over): (HashMap<_, _>, HashMap<_, _>) = self.notified.drain().partition(|(key, _)| still.contains(key));
        self.notified = open;
        for alert in over.values() {
            let knows = |destination: &&AlertDestination| alert.destinations.contains(&destination.id);
            let message = notification_without_id(&alert.condition, MessageKind::Ended, node, now);
            let notified = destinations.iter().filter(knows).map(|destination| notifier.send(destination, &message, now));
            for result in join_all(notified).await {
                metrics.alert(if result.is_ok() { "sent" } else { "lost" });
            }
        }
        for alert in self.notified.values_mut().filter(|alert| alert.attempts < MAX_ATTEMPTS) {
            alert.attempts += 1;
            let message = notification_without_id(&alert.condition, MessageKind::Raised, node, alert.found_at);
            let known = &alert.destinations;
            let waits = |it: &&AlertDestination| it.spec.takes(alert.condition.rule) && !known.contains(&it.id);
            let waiting: Vec<&AlertDestination> = destinations.iter().filter(waits).collect();
            let sent = join_all(waiting.iter().map(|destination| notifier.send(destination, &message, now))).await;
            for (destination, result) in waiting.iter().zip(sent) {
                match result {
                    Ok(()) => {
                        metrics.alert("sent");
                        alert.destinations.push(destination.id);
                    }
                    Err(fault) if alert.attempts == MAX_ATTEMPTS => {
                        metrics.alert("lost");
                        let destination = &destination.spec.name;
                        tracing::error!(destination, fault, "a message about an alert could not be delivered");
                    }
                    Err(_) => {}
                }
            }
        }
    }
}
