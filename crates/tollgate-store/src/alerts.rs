//! Alerts: what a rule found and when it was over, the messages about it that wait for destinations, and the destinations.
//!
//! Several nodes share them: an alert that another node has raised is not raised again, and a message is claimed by the node that
//! sends it. A node that ends after its claim leaves the message to another one.

use std::fmt;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use tollgate_core::{AlertCondition, AlertDestinationId, AlertId, AlertRule, ExpiringKey, Secret, Timestamp};
use uuid::Uuid;

use crate::{StoreError, credential, rows::CatalogRow, seal::Sealer};

/// Alerts of a rule that are not over, at most: further ones are not raised.
pub const MAX_OPEN_ALERTS: i64 = 1_000;
/// Alerts that are over and kept, and how long they are kept, in milliseconds: 90 days.
pub(crate) const MAX_ENDED_ALERTS: i64 = 10_000;
pub(crate) const ALERT_LIFE_MS: i64 = 90 * 86_400_000;
/// How long the alert of an event is open, in milliseconds: while it is, another one about the same subject is not raised. A little
/// less than an hour, because gateways report each subject once an hour.
pub(crate) const EVENT_LIFE_MS: i64 = 59 * 60_000;
/// Name of the destination that the settings have. Its id is the nil one.
pub const CONFIGURED_DESTINATION: &str = "alerts.webhook";
/// Name of the key of a member's playground.
pub const PLAYGROUND_KEY_NAME: &str = "console-playground";
/// Destinations, at most.
pub const MAX_ALERT_DESTINATIONS: usize = 100;

#[async_trait]
pub trait AlertStore: Send + Sync + fmt::Debug {
    /// Whether `node` evaluates the rules that are not of a node. It does until it has not claimed that for `lease_ms`: what rules find
    /// on one node, such as a channel that is down, another one may not know.
    async fn claim_evaluation(&self, node: &str, now: Timestamp, lease_ms: i64) -> Result<bool, StoreError>;

    /// Stores an alert and its messages. `None` if the rule has an alert about the subject that is not over, or
    /// [`MAX_OPEN_ALERTS`].
    async fn raise(
        &self,
        condition: &AlertCondition,
        node: &str,
        told: &[ToldDestination],
        now: Timestamp,
    ) -> Result<Option<AlertId>, StoreError>;

    /// Ends the alert of a rule about a subject, and stores a message for each destination that has one about its beginning. Returns
    /// whether there was one.
    async fn end(&self, rule: AlertRule, subject: &str, now: Timestamp) -> Result<bool, StoreError>;

    /// Ends the alerts of [events](AlertRule::is_event) that were raised an hour ago, without messages.
    async fn end_events(&self, now: Timestamp) -> Result<(), StoreError>;

    /// Alerts, newest first, with their messages.
    async fn alerts(&self, filter: &AlertFilter) -> Result<Vec<Alert>, StoreError>;

    /// One alert with its messages.
    async fn alert(&self, id: AlertId) -> Result<Option<Alert>, StoreError>;

    /// The rules and subjects of all alerts that are not over; with `node`, only those it has raised.
    async fn open_alerts(&self, node: Option<&str>) -> Result<Vec<(AlertRule, String)>, StoreError>;

    /// Claims up to `limit` messages that are due. Unless a message is [settled](Self::settle_message) before, it is due again at
    /// `until`. That an alert is over waits until the destination was told that it was raised.
    async fn claim_messages(&self, now: Timestamp, until: Timestamp, limit: u32) -> Result<Vec<ClaimedMessage>, StoreError>;

    /// Records how the sending of a claimed message ended, unless it was claimed again since.
    async fn settle_message(&self, message: &ClaimedMessage, result: &MessageResult) -> Result<(), StoreError>;

    /// Removes alerts that have been over for 90 days, and the oldest of more than 10,000.
    async fn prune_alerts(&self, now: Timestamp) -> Result<(), StoreError>;

    /// The destinations with their secrets in clear text.
    async fn destinations(&self) -> Result<Vec<AlertDestination>, StoreError>;

    /// Service keys and admin keys that are valid and expire before a time; at most 1,001. Keys of playgrounds are renewed by their pages
    /// and left out.
    async fn expiring_keys(&self, now: Timestamp, before: Timestamp) -> Result<Vec<ExpiringKey>, StoreError>;
}

/// A destination that is told that an alert was raised; [`MessageState::Sent`]: it knows already.
pub type ToldDestination = (AlertDestinationId, MessageState);

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
    /// Why the last attempt failed; empty if it did not.
    pub fault: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MessageKind {
    Raised,
    Ended,
}

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
    /// With this one.
    pub attempts: i64,
}

/// How the sending of a message ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MessageResult {
    Sent,
    /// It is sent again at this time.
    Retry(Timestamp, String),
    Failed(String),
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AlertFilter {
    /// Only those that are over, or only those that are not.
    pub is_open: Option<bool>,
    pub rule: Option<AlertRule>,
    /// Only older ones than this.
    pub before: Option<AlertId>,
    /// Maximum number; capped at 1,001.
    pub limit: u32,
}

/// Where alerts are sent.
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
    /// Rules whose alerts it gets; empty: all.
    pub rules: Vec<String>,
    /// The address; `***` instead of what may be secret.
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
    /// Whether it gets alerts of this rule.
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
