//! Alerts of a running gateway: evaluates the rules, and stores the beginning and the end of alerts. Rules about all nodes are
//! evaluated by one node at a time. [`delivery`] sends the messages.
//!
//! Bounds: at most 256 alerts observed by requests and clock checks wait while the database is unreachable; the budgets of at most
//! 1,000 keys are evaluated each time.

mod delivery;
mod evaluation;
mod member_notices;
mod without_database;

use std::{
    collections::VecDeque,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use tokio::{
    sync::{Notify, mpsc},
    time::{sleep, timeout},
};
use tokio_util::sync::CancellationToken;
use tollgate_core::{AlertCondition, AlertRule, Subject, Timestamp, alert_changes, budget_condition};
use tollgate_gateway::{
    background::notify::Notifier,
    state::alert_queue::{ObservedAlert, QUEUE_CAPACITY},
};
use tollgate_store::{AlertDestination, MessageState, NotifiedDestination, ObjectScope, RowKind, StoreError};

use crate::{compose, config::Config, last_fault::LastFault, live_settings::LiveSettings};
use delivery::Delivery;
pub(crate) use delivery::{configured_destination, send_test};
use evaluation::Evaluation;
pub(crate) use evaluation::Sources;
use member_notices::MemberNotices;
use without_database::WithoutDatabase;

/// How often the task checks whether something is due.
const TICK: Duration = Duration::from_secs(2);
/// How often the rules are evaluated, and how often those that read a lot of data.
const EVALUATE_MS: i64 = 10_000;
const EVALUATE_SLOWLY_MS: i64 = 60_000;
const PRUNE_MS: i64 = 3_600_000;
/// A node that has not evaluated the rules about all nodes for this time counts as stopped, and another one takes over.
const LEASE_MS: i64 = 45_000;
/// Longest time at the end of the process to store observed alerts.
const LAST_LIMIT: Duration = Duration::from_secs(2);
/// Rules that each node evaluates.
const OF_NODE: [AlertRule; 3] = [AlertRule::JournalGrowing, AlertRule::CertificateExpiring, AlertRule::BackupFailed];

/// Inputs of the task.
pub(crate) struct Alerting {
    pub(crate) settings: Arc<LiveSettings>,
    pub(crate) sources: Sources,
    /// Alerts that requests and clock checks observe.
    pub(crate) observed: mpsc::Receiver<ObservedAlert>,
    /// The destination that the settings have.
    pub(crate) configured: Option<AlertDestination>,
}

/// The last time of each periodic step.
#[derive(Default)]
struct Schedule {
    evaluated: Option<Timestamp>,
    slowly: Option<Timestamp>,
    pruned: Option<Timestamp>,
}

fn is_due(last: &mut Option<Timestamp>, interval_ms: i64, now: Timestamp) -> bool {
    let due = last.is_none_or(|last| !(0..interval_ms).contains(&now.ms_since(last)));
    if due {
        *last = Some(now);
    }
    due
}

impl Alerting {
    /// Evaluates rules until `left` is cancelled; stores observed alerts and sends messages until `stop` is.
    pub(crate) async fn run(self, left: CancellationToken, stop: CancellationToken) {
        let Self { settings, sources, observed, configured } = self;
        let notifier = Arc::new(Notifier::new(Arc::clone(&sources.shared.trust)));
        let raised = Arc::new(Notify::new());
        let delivery = Delivery {
            store: sources.store.clone(),
            shared: Arc::clone(&sources.shared),
            configured: configured.clone(),
            notifier: Arc::clone(&notifier),
        };
        let leads = Arc::new(AtomicBool::new(false));
        let notices = MemberNotices {
            sources: sources.clone(),
            settings: Arc::clone(&settings),
            notifier: Arc::clone(&notifier),
            leads: Arc::clone(&leads),
        };
        let watch = Watch {
            evaluation: Evaluation::new(sources.clone()),
            sources,
            configured,
            notifier,
            raised: Arc::clone(&raised),
            waiting: VecDeque::new(),
            destinations: Vec::new(),
            offline: WithoutDatabase::default(),
            schedule: Schedule::default(),
            leads,
            left,
        };
        tokio::join!(watch.run(settings, observed, stop.clone()), delivery.run(raised, stop.clone()), notices.run(stop));
    }
}

/// Evaluates rules.
struct Watch {
    sources: Sources,
    configured: Option<AlertDestination>,
    notifier: Arc<Notifier>,
    /// Wakes the delivery when there are messages.
    raised: Arc<Notify>,
    evaluation: Evaluation,
    /// Observed alerts that are not stored yet.
    waiting: VecDeque<ObservedAlert>,
    /// The destinations as they were last read.
    destinations: Vec<AlertDestination>,
    offline: WithoutDatabase,
    schedule: Schedule,
    /// Whether this node evaluates the rules about all nodes.
    leads: Arc<AtomicBool>,
    /// Cancelled when another process evaluates the rules of this node.
    left: CancellationToken,
}

impl Watch {
    async fn run(mut self, settings: Arc<LiveSettings>, mut observed: mpsc::Receiver<ObservedAlert>, stop: CancellationToken) {
        let mut changes = settings.subscribe();
        let mut last_fault = LastFault::default();
        loop {
            tokio::select! {
                () = stop.cancelled() => break,
                () = sleep(TICK) => {}
                Some(observed) = observed.recv() => self.keep(observed),
                Ok(()) = changes.changed() => self.schedule = Schedule::default(),
            }
            let config = Arc::clone(&changes.borrow_and_update());
            let worked = stop.run_until_cancelled(self.work(&config)).await;
            if self.left.is_cancelled() || matches!(worked, Some(Err(_))) {
                self.leads.store(false, Ordering::Relaxed);
            }
            match worked {
                None => break,
                Some(result) => {
                    if let Some(fault) = last_fault.observe(&result) {
                        tracing::warn!(%fault, "alerts were not evaluated; this is tried again");
                    }
                }
            }
        }
        observed.close();
        while let Ok(observed) = observed.try_recv() {
            self.keep(observed);
        }
        // Only recorded here: another process sends the messages.
        let _ = timeout(LAST_LIMIT, self.record_waiting(compose::now())).await;
        for _ in self.waiting {
            self.sources.shared.metrics.alert("lost");
            tracing::warn!("an alert was not stored before the end of the process");
        }
    }

    /// Keeps an observed alert until it is stored.
    fn keep(&mut self, observed: ObservedAlert) {
        if self.waiting.len() < QUEUE_CAPACITY {
            self.waiting.push_back(observed);
        } else {
            self.sources.shared.metrics.alert("lost");
            tracing::warn!("too many alerts wait for the database; an alert is lost");
        }
    }

    async fn work(&mut self, config: &Config) -> Result<(), StoreError> {
        let now = compose::now();
        if !self.left.is_cancelled() && is_due(&mut self.schedule.evaluated, EVALUATE_MS, now) {
            self.evaluate(config, now).await?;
        }
        self.record_waiting(now).await
    }

    async fn record_waiting(&mut self, now: Timestamp) -> Result<(), StoreError> {
        while let Some(observed) = self.waiting.front().cloned() {
            self.record(observed, now).await?;
            self.waiting.pop_front();
        }
        Ok(())
    }

    async fn evaluate(&mut self, config: &Config, now: Timestamp) -> Result<(), StoreError> {
        let found = self.evaluation.of_node(config, now).await;
        // Runs at every evaluation, even without the database, because a gap would lose the time since which a channel is down.
        let down = self.evaluation.channels_down(config, now);
        if let Err(fault) = self.evaluate_node(&found, now).await {
            if fault.is_unreachable() {
                let Self { offline, destinations, sources, notifier, .. } = self;
                offline.send_messages(&found, destinations, (&sources.node, notifier), &sources.shared.metrics, now).await;
            }
            return Err(fault);
        }
        let leads = self.sources.store.alerts.claim_evaluation(&self.sources.node, now, LEASE_MS).await?;
        self.leads.store(leads, Ordering::Relaxed);
        if !leads {
            return Ok(());
        }
        let mut rules = vec![
            AlertRule::ChannelDown,
            AlertRule::ErrorShare,
            AlertRule::NegativeMargin,
            AlertRule::UnpricedModel,
            AlertRule::Budget,
        ];
        let mut found = down;
        found.extend(self.evaluation.of_traffic(config, now).await?);
        found.extend(self.evaluation.of_catalog(config, now));
        let slowly = is_due(&mut self.schedule.slowly, EVALUATE_SLOWLY_MS, now);
        let budgets = self.evaluation.of_budgets(config, slowly, now).await?;
        found.extend(budgets.found.iter().cloned());
        if slowly {
            rules.extend([AlertRule::BalanceLow, AlertRule::KeyExpiring, AlertRule::ExportLate]);
            found.extend(self.evaluation.of_balances(config).await?);
            found.extend(self.evaluation.of_keys(config, now).await?);
            found.extend(self.evaluation.of_exports(config, now).await?);
            self.sources.store.alerts.end_events(now).await?;
        }
        let open = self.sources.store.alerts.open_alerts(None).await?;
        let remains = |rule, subject: &str| rule == AlertRule::Budget && !budgets.is_over(subject);
        self.apply(&open, found, &rules, remains, now).await?;
        if is_due(&mut self.schedule.pruned, PRUNE_MS, now) {
            self.sources.store.alerts.prune_alerts(now).await?;
        }
        Ok(())
    }

    /// Applies the findings of the rules about this node.
    async fn evaluate_node(&mut self, found: &[AlertCondition], now: Timestamp) -> Result<(), StoreError> {
        self.destinations = delivery::destinations(&self.sources.store, self.configured.as_ref()).await?;
        let open = self.sources.store.alerts.open_alerts(Some(&self.sources.node)).await?;
        self.offline.set_known(&open);
        // After a restart it is unknown whether backups fail until one is due.
        let is_unknown = self.sources.backups.is_unknown();
        self.apply(&open, found.to_vec(), &OF_NODE, |rule, _| rule == AlertRule::BackupFailed && is_unknown, now).await
    }

    /// Raises and ends the alerts of these rules according to the conditions found.
    async fn apply(
        &mut self,
        open: &[(AlertRule, String)],
        found: Vec<AlertCondition>,
        rules: &[AlertRule],
        remains: impl Fn(AlertRule, &str) -> bool,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        let changes = alert_changes(open, found, rules, remains);
        for condition in changes.raised {
            self.raise(&condition, now).await?;
        }
        for (rule, subject) in changes.ended {
            self.end(rule, &subject, now).await?;
        }
        Ok(())
    }

    async fn raise(&mut self, condition: &AlertCondition, now: Timestamp) -> Result<(), StoreError> {
        let takers = self.destinations.iter().filter(|destination| destination.spec.takes(condition.rule) && !condition.is_quiet);
        let known = self.offline.notified(condition);
        let state = |id| if known.contains(&id) { MessageState::Sent } else { MessageState::Waiting };
        let notified: Vec<NotifiedDestination> = takers.map(|destination| (destination.id, state(destination.id))).collect();
        if let Some(id) = self.sources.store.alerts.raise(condition, &self.sources.node, &notified, now).await? {
            tracing::warn!(alert.id = %id, alert.rule = condition.rule.as_str(), "alert: {}", condition.text);
            self.raised.notify_one();
        }
        self.offline.forget(condition);
        Ok(())
    }

    async fn end(&self, rule: AlertRule, subject: &str, now: Timestamp) -> Result<(), StoreError> {
        if self.sources.store.alerts.end(rule, subject, now).await? {
            tracing::info!(alert.rule = rule.as_str(), alert.subject = subject, "an alert is over");
            self.raised.notify_one();
        }
        Ok(())
    }

    /// Stores an alert that a request or a clock check observed.
    async fn record(&mut self, observed: ObservedAlert, now: Timestamp) -> Result<(), StoreError> {
        let of_node = format!("node {}", self.sources.node);
        match observed {
            ObservedAlert::Over(rule) => self.end(rule, &of_node, now).await,
            ObservedAlert::Found(mut condition) => {
                if condition.rule.is_of_node() {
                    condition.subject = of_node;
                }
                self.raise(&condition, now).await
            }
            ObservedAlert::BudgetSpent { alert, name, request } => {
                let name = match (name, alert.subject) {
                    (Some(name), _) => name,
                    (None, Subject::Member(id)) => self.member_name(&id.to_string()).await?,
                    (None, _) => String::new(),
                };
                // The request counts for the day and month of its arrival.
                let condition = budget_condition(&alert.subject, &name, &alert.budget, alert.spent, 100, request.time());
                self.raise(&condition.with("request", &request), now).await
            }
        }
    }

    /// Name of a member; the id if the member was removed.
    async fn member_name(&self, id: &str) -> Result<String, StoreError> {
        let row = self.sources.store.listing.row(RowKind::Member, id, ObjectScope::Everything).await?;
        Ok(row.map_or_else(|| id.to_owned(), |row| row.name))
    }
}
