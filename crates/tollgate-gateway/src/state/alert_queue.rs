//! The queue of alerts: spent budgets, wrong clocks, usage that cannot be, sales below cost. Requests add alerts;
//! [`Alerts`](crate::background::alerts::Alerts) sends them.
//!
//! Bound: 256 alerts. When the queue is full, an alert is dropped, counted and logged.

use moka::sync::Cache;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tollgate_core::{BudgetAlert, Catalog, ChannelId, MemberId, NanoUsd, RequestId, Subject, Timestamp, UsageExcess, UsageRecord};

use super::metrics::Metrics;

/// Alerts that may wait for the webhook.
pub(crate) const QUEUE_CAPACITY: usize = 256;

/// Time between two alerts about the same thing, and how many things are remembered.
const REPEAT_AFTER_MS: i64 = 3_600_000;
const MAX_REMEMBERED: u64 = 4_096;

/// Something about a request's money that an operator should look at.
#[derive(Clone, Copy, Debug)]
pub(crate) enum MoneyAlert<'a> {
    /// An upstream reported more than the request can account for.
    UsageExcess {
        channel: ChannelId,
        name: &'a str,
        excess: &'a UsageExcess,
    },
    SoldBelowCost {
        sale: NanoUsd,
        cost: NanoUsd,
    },
}

/// Alerts of the last hour, so that each thing is reported once an hour.
#[derive(Clone, Debug)]
pub(crate) struct RecentAlerts(Cache<String, Timestamp>);

impl Default for RecentAlerts {
    fn default() -> Self {
        Self(Cache::new(MAX_REMEMBERED))
    }
}

impl RecentAlerts {
    /// True the first time within an hour.
    fn is_new(&self, thing: String, now: Timestamp) -> bool {
        let reported = self.0.entry(thing).or_insert_with_if(|| now, |last| now.ms_since(*last) >= REPEAT_AFTER_MS);
        reported.is_fresh()
    }
}

/// The sending end of the queue. Without a webhook, alerts are only logged.
#[derive(Clone, Debug, Default)]
pub struct AlertQueue(Option<mpsc::Sender<QueuedAlert>>, RecentAlerts);

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
        (Self(Some(sender), RecentAlerts::default()), receiver)
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
        let body = || alert_body(request, key_name, alert, catalog, now);
        let member = if let Subject::Member(id) = alert.subject { Some(id) } else { None };
        self.push(body, member, metrics);
    }

    /// Queues the alert that the clock of this node is wrong, or right again (0).
    pub fn clock_skew(&self, seconds: i64, now: Timestamp, metrics: &Metrics) {
        self.push(|| json!({"event": "clock_skew", "at": now.to_string(), "skew_s": seconds}), None, metrics);
    }

    /// Logs and queues an alert about a request's money, once an hour for each channel, or model and group. Never waits.
    pub(crate) fn enqueue_money(&self, record: &UsageRecord, alert: &MoneyAlert<'_>, now: Timestamp, metrics: &Metrics) {
        if !self.1.is_new(alert.about(record), now) {
            return;
        }
        let about = alert.text(record);
        tracing::warn!(request.id = %record.id, about, "a request's money needs attention; the next of its kind is reported in an hour");
        self.push(|| alert.body(record, now), None, metrics);
    }

    fn push(&self, body: impl FnOnce() -> Value, member: Option<MemberId>, metrics: &Metrics) {
        let Some(queue) = &self.0 else { return };
        if queue.try_send(QueuedAlert { body: body(), member }).is_err() {
            metrics.alert("lost");
            tracing::warn!("the alert queue is full; an alert is lost");
        }
    }
}

impl MoneyAlert<'_> {
    /// Subject of the alert; repetitions have the same.
    fn about(&self, record: &UsageRecord) -> String {
        match self {
            Self::UsageExcess { channel, .. } => format!("usage_excess {channel}"),
            Self::SoldBelowCost { .. } => {
                let of = |name: &Option<String>| name.clone().unwrap_or_default();
                format!("sold_below_cost {} {}", of(&record.group_name), of(&record.model))
            }
        }
    }

    fn text(&self, record: &UsageRecord) -> String {
        match self {
            Self::UsageExcess { name, excess, .. } => format!("channel {name}: {}", excess.detail()),
            Self::SoldBelowCost { sale, cost } => {
                let model = record.model.as_deref().unwrap_or_default();
                format!("model {model} was sold for {} USD and cost {} USD", sale.to_usd_string(), cost.to_usd_string())
            }
        }
    }

    fn body(&self, record: &UsageRecord, at: Timestamp) -> Value {
        match self {
            Self::UsageExcess { channel, name, excess } => json!({
                "event": "usage_excess", "at": at.to_string(), "of": "channel", "id": channel, "name": name,
                "model": record.model, "tokens": excess.tokens(), "detail": excess.detail(), "request": record.id,
            }),
            Self::SoldBelowCost { sale, cost } => json!({
                "event": "sold_below_cost", "at": at.to_string(), "of": "group", "id": record.group, "name": record.group_name,
                "model": record.model, "channel": record.attempts.last().map(|last| &last.channel_name),
                "sale": sale.to_usd_string(), "cost": cost.to_usd_string(), "request": record.id,
            }),
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
        Subject::Channel(id) => {
            ("channel", Some(id.to_string()), catalog.channels.get(&id).map(|channel| channel.spec.name.clone()))
        }
        Subject::Gateway => ("gateway", None, None),
    };
    json!({
        "event": "budget_spent", "at": at.to_string(), "of": kind, "id": id, "name": name, "window": budget.window.as_str(),
        "amount": budget.amount.to_usd_string(), "spent": spent.to_usd_string(), "request": request,
    })
}
