//! The queue of alerts that requests and clocks observe: spent budgets, wrong clocks, implausible usage, sales below cost. Requests never
//! wait for it; the task that empties it lists alerts and sends messages about them.
//!
//! Bound: 256 entries. When the queue is full, an entry is dropped, counted and logged.

use moka::sync::Cache;
use tokio::sync::mpsc;
use tollgate_core::{
    AlertCondition, AlertRule, BudgetAlert, Catalog, ChannelId, NanoUsd, RequestId, Subject, Timestamp, UsageExcess, UsageRecord,
};

use super::metrics::Metrics;

/// Entries that may wait to be listed.
pub const QUEUE_CAPACITY: usize = 256;

/// Time between two alerts about the same thing, and how many things are remembered.
const REPEAT_AFTER_MS: i64 = 3_600_000;
const MAX_REMEMBERED: u64 = 4_096;

/// An irregularity in a request's money that an operator should check.
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
pub(crate) struct RecentAlerts(Cache<(AlertRule, String), Timestamp>);

impl Default for RecentAlerts {
    fn default() -> Self {
        Self(Cache::new(MAX_REMEMBERED))
    }
}

impl RecentAlerts {
    /// True the first time within an hour.
    fn is_new(&self, thing: (AlertRule, String), now: Timestamp) -> bool {
        let reported = self.0.entry(thing).or_insert_with_if(|| now, |last| now.ms_since(*last) >= REPEAT_AFTER_MS);
        reported.is_fresh()
    }
}

/// An alert observed by a request or a clock.
#[derive(Clone, Debug)]
pub enum ObservedAlert {
    /// A request has spent a budget that alerts and does not block.
    BudgetSpent {
        alert: BudgetAlert,
        /// Name of the budget's owner. `None` for members: the request path knows only their ids.
        name: Option<String>,
        request: RequestId,
    },
    Found(AlertCondition),
    /// The condition of this rule has ended on this node.
    Over(AlertRule),
}

/// The sending end of the queue. The default one has no receiver: alerts are only logged.
#[derive(Clone, Debug, Default)]
pub struct AlertQueue {
    sender: Option<mpsc::Sender<ObservedAlert>>,
    recent: RecentAlerts,
}

impl AlertQueue {
    /// A queue and its receiving end.
    #[must_use]
    pub fn new() -> (Self, mpsc::Receiver<ObservedAlert>) {
        let (sender, receiver) = mpsc::channel(QUEUE_CAPACITY);
        (Self { sender: Some(sender), ..Self::default() }, receiver)
    }

    /// Logs and queues that `request`, sent with the key named `key_name`, spent a budget. Never waits.
    pub(crate) fn enqueue(&self, request: RequestId, key_name: &str, alert: &BudgetAlert, catalog: &Catalog, metrics: &Metrics) {
        tracing::warn!(
            request.id = %request,
            budget.of = %alert.subject,
            budget.window = alert.budget.window.as_str(),
            budget.amount_nano_usd = alert.budget.amount.0,
            budget.spent_nano_usd = alert.spent.0,
            "a budget is spent; it alerts and does not block"
        );
        let name = match alert.subject {
            Subject::Key(_) => Some(key_name.to_owned()),
            Subject::Group(id) => catalog.groups.get(&id).map(|group| group.name.clone()),
            Subject::Channel(id) => catalog.channels.get(&id).map(|channel| channel.spec.name.clone()),
            Subject::Member(_) | Subject::Gateway => None,
        };
        self.push(ObservedAlert::BudgetSpent { alert: *alert, name, request }, metrics);
    }

    /// Queues an alert that the clock of this node is wrong, or the end of that alert (0).
    pub fn clock_skew(&self, seconds: i64, metrics: &Metrics) {
        let observed = if seconds == 0 {
            ObservedAlert::Over(AlertRule::ClockSkew)
        } else {
            let (amount, direction) = (seconds.unsigned_abs(), if seconds > 0 { "ahead of" } else { "behind" });
            let text = format!("the clock of a node is {amount} s {direction} that of Redis");
            ObservedAlert::Found(AlertCondition::new(AlertRule::ClockSkew, "", text).with("skew_s", &seconds))
        };
        self.push(observed, metrics);
    }

    /// Logs and queues an alert about a request's money, once an hour for each channel, or model and group. Never waits.
    pub(crate) fn enqueue_money(&self, record: &UsageRecord, alert: &MoneyAlert<'_>, now: Timestamp, metrics: &Metrics) {
        let condition = alert.condition(record);
        if !self.recent.is_new((condition.rule, condition.subject.clone()), now) {
            return;
        }
        let about = &condition.text;
        tracing::warn!(request.id = %record.id, about, "a request's money needs attention; the next of its kind is reported in an hour");
        self.push(ObservedAlert::Found(condition), metrics);
    }

    fn push(&self, observed: ObservedAlert, metrics: &Metrics) {
        let Some(queue) = &self.sender else { return };
        if queue.try_send(observed).is_err() {
            metrics.alert("lost");
            tracing::warn!("the alert queue is full; an alert is lost");
        }
    }
}

impl MoneyAlert<'_> {
    /// Repeated alerts have the same subject.
    fn condition(&self, record: &UsageRecord) -> AlertCondition {
        let model = record.model.as_deref().unwrap_or_default();
        let condition = match self {
            Self::UsageExcess { channel, name, excess } => {
                let text = format!("channel {name}: {}", excess.detail());
                let condition = AlertCondition::new(AlertRule::UsageExcess, format!("channel {channel}"), text);
                condition.with("channel", &name).with("tokens", &excess.tokens())
            }
            Self::SoldBelowCost { sale, cost } => {
                let group = record.group_name.as_deref().unwrap_or_default();
                let (sale, cost) = (sale.to_usd_string(), cost.to_usd_string());
                let text = format!("model {model} was sold for {sale} USD and cost {cost} USD");
                let condition = AlertCondition::new(AlertRule::SoldBelowCost, format!("group {group} model {model}"), text);
                let channel = record.attempts.last().map_or("", |last| last.channel_name.as_str());
                condition.with("group", &group).with("channel", &channel).with("sale", &sale).with("cost", &cost)
            }
        };
        condition.with("model", &model).with("request", &record.id)
    }
}

#[cfg(test)]
mod tests {
    use tollgate_core::{Budget, BudgetAction, Window};

    use super::*;
    use crate::{
        settings::Settings,
        testing::{shared, usage_record},
    };

    fn spent_alert() -> BudgetAlert {
        let budget = Budget { amount: NanoUsd(50_000_000_000), window: Window::Month, action: BudgetAction::Alert };
        BudgetAlert { subject: Subject::Key(usage_record("m").key), budget, spent: NanoUsd(50_000_000_001) }
    }

    #[tokio::test]
    async fn sale_below_cost_and_impossible_usage_are_reported_once_an_hour() {
        let shared = shared(Settings::default(), Catalog::default());
        let (queue, mut waiting) = AlertQueue::new();
        let record = usage_record("m");
        let excess = UsageExcess { reported_output: 1_000, output_bound: 69, ..UsageExcess::default() };
        let attempt = &record.attempts[0];
        let lying = MoneyAlert::UsageExcess { channel: attempt.channel, name: &attempt.channel_name, excess: &excess };
        let below = MoneyAlert::SoldBelowCost { sale: NanoUsd(10), cost: NanoUsd(2_000_000_000) };
        let mut found = |at| {
            queue.enqueue_money(&record, &lying, at, &shared.metrics);
            queue.enqueue_money(&record, &below, at, &shared.metrics);
            let mut conditions = Vec::new();
            while let Ok(ObservedAlert::Found(condition)) = waiting.try_recv() {
                conditions.push(condition);
            }
            conditions
        };
        let first = found(Timestamp(0));
        assert_eq!(first.iter().map(|it| it.rule).collect::<Vec<_>>(), [AlertRule::UsageExcess, AlertRule::SoldBelowCost]);
        assert!(first[0].detail.contains(&("tokens", "931".to_owned())), "{:?}", first[0]);
        assert!(first[1].text.contains("cost 2.00 USD") && first[1].detail.contains(&("model", "m".to_owned())), "{:?}", first[1]);
        assert!(found(Timestamp(0).plus_ms(REPEAT_AFTER_MS - 1)).is_empty(), "each once");
        assert_eq!(found(Timestamp(0).plus_ms(REPEAT_AFTER_MS)).len(), 2);
    }

    #[tokio::test]
    async fn alerts_beyond_the_queue_capacity_are_lost_and_counted() {
        let shared = shared(Settings::default(), Catalog::default());
        let (queue, _waiting) = AlertQueue::new();
        let record = usage_record("m");
        for _ in 0..QUEUE_CAPACITY + 3 {
            queue.enqueue(record.id, &record.key_name, &spent_alert(), &shared.catalog.load(), &shared.metrics);
        }
        assert!(shared.metrics.render().contains("tollgate_alerts_total{result=\"lost\"} 3"));
    }
}
