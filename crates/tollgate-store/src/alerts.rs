//! Alerts that rules have raised, open and ended, the messages about them, and the destinations of these messages.
//!
//! Several nodes share them: an alert that another node has raised is not raised again, and a node claims a message before it
//! sends it. If the node stops after its claim, another one sends the message.

use std::fmt;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use tollgate_core::{AlertCondition, AlertDestinationId, AlertId, AlertRule, ExpiringKey, Secret, Timestamp};
use uuid::Uuid;

use crate::{StoreError, credential, rows::CatalogRow, seal::Sealer};

/// Maximum number of open alerts of one rule; further ones are not raised.
pub const MAX_OPEN_ALERTS: i64 = 1_000;
/// Maximum number of ended alerts kept, and how long they are kept, in milliseconds: 90 days.
pub(crate) const MAX_ENDED_ALERTS: i64 = 10_000;
pub(crate) const ALERT_LIFE_MS: i64 = 90 * 86_400_000;
/// How long the alert of an event stays open, in milliseconds. While it is open, no other alert about the same subject is raised. A
/// little less than an hour, because gateways report each subject once an hour.
pub(crate) const EVENT_LIFE_MS: i64 = 59 * 60_000;
/// Name of the destination that the settings have. Its id is nil.
pub const CONFIGURED_DESTINATION: &str = "alerts.webhook";
/// Name of the service key that the playground of a member uses.
pub const PLAYGROUND_KEY_NAME: &str = "console-playground";
/// Maximum number of destinations.
pub const MAX_ALERT_DESTINATIONS: usize = 100;

/// Stores alerts, their messages and the claims of nodes on them.
#[async_trait]
pub trait AlertStore: Send + Sync + fmt::Debug {
    /// Claims the evaluation of the rules that do not concern a single node, and returns whether `node` now evaluates them. Another
    /// node takes over only after `lease_ms` without a claim: it may not know the findings of the present one, such as a channel
    /// that is down.
    async fn claim_evaluation(&self, node: &str, now: Timestamp, lease_ms: i64) -> Result<bool, StoreError>;

    /// Stores an alert and its messages. `None` if the rule already has an open alert about the subject, or [`MAX_OPEN_ALERTS`]
    /// open ones.
    async fn raise(
        &self,
        condition: &AlertCondition,
        node: &str,
        notified: &[NotifiedDestination],
        now: Timestamp,
    ) -> Result<Option<AlertId>, StoreError>;

    /// Ends the open alert of a rule about a subject, and stores a message for each destination that has one about its beginning.
    /// Returns false if there was no such alert.
    async fn end(&self, rule: AlertRule, subject: &str, now: Timestamp) -> Result<bool, StoreError>;

    /// Ends the alerts of [events](AlertRule::is_event) that were raised an hour ago, without messages.
    async fn end_events(&self, now: Timestamp) -> Result<(), StoreError>;

    /// Alerts, newest first, with their messages.
    async fn alerts(&self, filter: &AlertFilter) -> Result<Vec<Alert>, StoreError>;

    /// One alert with its messages.
    async fn alert(&self, id: AlertId) -> Result<Option<Alert>, StoreError>;

    /// The rules and subjects of all open alerts; with `node`, only of those that it raised.
    async fn open_alerts(&self, node: Option<&str>) -> Result<Vec<(AlertRule, String)>, StoreError>;

    /// Claims up to `limit` messages that are due. Unless a message is [settled](Self::settle_message) before, it is due again at
    /// `until`. The message about an alert's end is not due while the one about its beginning waits.
    async fn claim_messages(&self, now: Timestamp, until: Timestamp, limit: u32) -> Result<Vec<ClaimedMessage>, StoreError>;

    /// Records the result of sending a claimed message, unless the message was claimed again since.
    async fn settle_message(&self, message: &ClaimedMessage, result: &MessageResult) -> Result<(), StoreError>;

    /// Removes alerts that have been over for 90 days, and the oldest of more than 10,000.
    async fn prune_alerts(&self, now: Timestamp) -> Result<(), StoreError>;

    /// The destinations with their secrets in clear text.
    async fn destinations(&self) -> Result<Vec<AlertDestination>, StoreError>;

    /// Service keys and admin keys that are valid and expire before a time; at most 1,001. Keys of playgrounds are renewed by their pages
    /// and left out.
    async fn expiring_keys(&self, now: Timestamp, before: Timestamp) -> Result<Vec<ExpiringKey>, StoreError>;
}

/// A destination with the state of the message that the alert was raised; [`MessageState::Sent`] if that was sent already.
pub type NotifiedDestination = (AlertDestinationId, MessageState);

/// An alert with its messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Alert {
    pub id: AlertId,
    pub rule: AlertRule,
    pub subject: String,
    /// The node that raised it.
    pub node: String,
    pub text: String,
    /// A JSON object of texts.
    pub detail: String,
    pub raised_at: Timestamp,
    pub ended_at: Option<Timestamp>,
    pub messages: Vec<AlertMessage>,
}

/// A message about an alert to a destination.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AlertMessage {
    pub destination: String,
    pub kind: MessageKind,
    pub state: MessageState,
    pub attempts: i64,
    /// Why the last attempt failed; empty if it succeeded.
    pub fault: String,
}

/// The event that a message reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MessageKind {
    Raised,
    Ended,
}

/// The delivery of a message; a failed one is not retried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MessageState {
    Waiting,
    Sent,
    Failed,
}

impl MessageKind {
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Raised => "raised",
            Self::Ended => "ended",
        }
    }

    pub(crate) fn parse(word: &str) -> Option<Self> {
        [Self::Raised, Self::Ended].into_iter().find(|kind| kind.as_str() == word)
    }
}

impl MessageState {
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Sent => "sent",
            Self::Failed => "failed",
        }
    }

    pub(crate) fn parse(word: &str) -> Option<Self> {
        [Self::Waiting, Self::Sent, Self::Failed].into_iter().find(|state| state.as_str() == word)
    }
}

/// A message that this node sends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClaimedMessage {
    pub alert: AlertId,
    /// Id of the destination, which may have been removed.
    pub destination: String,
    pub kind: MessageKind,
    /// Attempts to send the message, this one included.
    pub attempts: i64,
}

/// The result of sending a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MessageResult {
    Sent,
    /// It is sent again at this time.
    Retry(Timestamp, String),
    Failed(String),
}

/// Selects alerts, newest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AlertFilter {
    /// Only open alerts (`true`), or only ended ones (`false`).
    pub is_open: Option<bool>,
    pub rule: Option<AlertRule>,
    /// Only alerts older than this one.
    pub before: Option<AlertId>,
    /// Maximum number; capped at 1,001.
    pub limit: u32,
}

/// A destination of alerts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DestinationKind {
    #[default]
    Webhook,
    Slack,
    Feishu,
    Dingtalk,
    Wecom,
    Telegram,
    Email,
}

/// A destination without its secrets.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct AlertDestinationSpec {
    pub name: String,
    pub kind: DestinationKind,
    pub on: bool,
    /// Rules whose alerts are sent to it; empty: all.
    pub rules: Vec<String>,
    /// The address, with `***` in place of parts that may be secret.
    pub url: String,
    pub private_network: bool,
    /// Whether a secret is stored.
    pub has_secret: bool,
    /// Mail: the sender.
    pub from: String,
    /// Mail: recipients. Telegram: the chat.
    pub to: Vec<String>,
}

impl Default for AlertDestinationSpec {
    fn default() -> Self {
        Self {
            name: String::new(),
            kind: DestinationKind::default(),
            on: true,
            rules: Vec::new(),
            url: String::new(),
            private_network: false,
            has_secret: false,
            from: String::new(),
            to: Vec::new(),
        }
    }
}

impl AlertDestinationSpec {
    /// Whether alerts of this rule are sent to it.
    #[must_use]
    pub fn takes(&self, rule: AlertRule) -> bool {
        self.on && (self.rules.is_empty() || self.rules.iter().any(|word| word == rule.as_str()))
    }
}

/// The secrets of a destination: its whole address, and the secret that signs messages, logs in to the mail server
/// or is the token of a bot.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DestinationSecrets {
    pub url: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret: Option<String>,
}

impl fmt::Debug for DestinationSecrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("DestinationSecrets(…)")
    }
}

/// A destination, ready to send to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AlertDestination {
    pub id: AlertDestinationId,
    pub spec: AlertDestinationSpec,
    pub secrets: DestinationSecrets,
}

impl AlertDestination {
    /// The id of the destination that the settings have.
    #[must_use]
    pub const fn configured_id() -> AlertDestinationId {
        AlertDestinationId::from_uuid(Uuid::nil())
    }
}

impl DestinationSecrets {
    /// The text that is sealed.
    pub(crate) fn to_secret(&self) -> Secret {
        Secret::new(serde_json::to_string(self).expect("texts are valid JSON"))
    }

    /// The secrets of a stored row.
    pub(crate) fn open(row: &CatalogRow, sealer: &Sealer) -> Result<Self, StoreError> {
        match credential::open(row, sealer)? {
            Some(secret) => serde_json::from_str(secret.expose()).map_err(|_| row.broken("its secrets cannot be understood")),
            None => Ok(Self::default()),
        }
    }
}

/// The facts of a condition as a JSON object.
pub(crate) fn detail_text(condition: &AlertCondition) -> String {
    let members = condition.detail.iter().map(|(name, value)| ((*name).to_owned(), value.clone().into()));
    serde_json::Value::Object(members.collect()).to_string()
}
