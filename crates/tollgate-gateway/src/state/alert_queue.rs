//! The queue of alerts about spent budgets. Requests add alerts; [`Alerts`](crate::background::alerts::Alerts) sends them.
//!
//! Bound: 256 alerts. When the queue is full, an alert is dropped, counted and logged.

use serde_json::{Value, json};
use tokio::sync::mpsc;
use tollgate_core::{BudgetAlert, Catalog, MemberId, RequestId, Subject, Timestamp};

use super::metrics::Metrics;

/// Alerts that may wait for the webhook.
pub(crate) const QUEUE_CAPACITY: usize = 256;

/// The sending end of the queue. Without a webhook, alerts are only logged.
#[derive(Clone, Debug, Default)]
pub struct AlertQueue(Option<mpsc::Sender<QueuedAlert>>);

/// An alert that waits to be sent.
#[derive(Debug)]
pub(crate) struct QueuedAlert {
    pub(crate) body: Value,
    /// Member whose name is added before sending. The request path knows only the member's id.
    pub(crate) member: Option<MemberId>,
}

impl AlertQueue {
    pub(crate) fn new() -> (Self, mpsc::Receiver<QueuedAlert>) {
        let (sender, receiver) = mpsc::channel(QUEUE_CAPACITY);
        (Self(Some(sender)), receiver)
    }

    /// Logs and queues the alert that `request`, sent with the key named `key_name`, spent a budget. Never waits.
    pub(crate) fn enqueue(
        &self,
        request: RequestId,
        key_name: &str,
        alert: &BudgetAlert,
        catalog: &Catalog,
        now: Timestamp,
        metrics: &Metrics,
    ) {
        tracing::warn!(
            request.id = %request,
            budget.of = %alert.subject,
            budget.window = alert.budget.window.as_str(),
            budget.amount_nano_usd = alert.budget.amount.0,
            budget.spent_nano_usd = alert.spent.0,
            "a budget is spent; it alerts and does not block"
        );
        let Some(queue) = &self.0 else { return };
        let body = alert_body(request, key_name, alert, catalog, now);
        let member = if let Subject::Member(id) = alert.subject { Some(id) } else { None };
        if queue.try_send(QueuedAlert { body, member }).is_err() {
            metrics.alert("lost");
            tracing::warn!(request.id = %request, "the alert queue is full; this alert is lost");
        }
    }
}

/// The webhook's body. Amounts are decimal strings in USD.
pub(crate) fn alert_body(request: RequestId, key_name: &str, alert: &BudgetAlert, catalog: &Catalog, at: Timestamp) -> Value {
    let BudgetAlert { subject, budget, spent } = *alert;
    let (kind, id, name) = match subject {
        Subject::Key(id) => ("key", Some(id.to_string()), Some(key_name.to_owned())),
        Subject::Member(id) => ("member", Some(id.to_string()), None),
        Subject::Group(id) => ("group", Some(id.to_string()), catalog.groups.get(&id).map(|group| group.name.clone())),
        Subject::Channel(id) => ("channel", Some(id.to_string()), catalog.channels.get(&id).map(|channel| channel.name.clone())),
        Subject::Gateway => ("gateway", None, None),
    };
    json!({
        "event": "budget_spent", "at": at.to_string(), "of": kind, "id": id, "name": name, "window": budget.window.as_str(),
        "amount": budget.amount.to_usd_string(), "spent": spent.to_usd_string(), "request": request,
    })
}
