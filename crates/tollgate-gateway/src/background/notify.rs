//! Sends messages about alerts to their destinations: webhooks, group chats and mail.
//!
//! Bounds: 10 s for a message (mail: 30 s), 64 KiB of an answer, or of everything that a mail server sends. Connections follow
//! the address policy of all outbound connections and follow no redirect. Faults never contain an address or an answer's text
//! beyond a code.

mod chat;
mod mail;

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use hmac::{Hmac, KeyInit as _, Mac as _};
use http::{HeaderMap, HeaderValue, Method, header::CONTENT_TYPE};
use http_body_util::{BodyExt as _, Limited};
use serde_json::{Map, Value, json};
use sha2::Sha256;
use tokio::time::timeout;
use tokio_util::task::TaskTracker;
use tollgate_core::Timestamp;
use tollgate_store::{AlertDestination, DestinationKind};
use url::Url;

use crate::upstream::{
    call::ConnectFault,
    client::{AddressPolicy, Trust, fetch},
};

const HTTP_LIMIT: Duration = Duration::from_secs(10);
const MAIL_LIMIT: Duration = Duration::from_secs(30);
const ANSWER_BYTES: usize = 64 * 1024;
const SIGNATURE: &str = "x-tollgate-signature";

/// A message about an alert.
#[derive(Clone, Debug)]
pub struct Notification {
    /// Id of the alert; empty in a test.
    pub id: String,
    /// The rule, or `test`.
    pub rule: String,
    /// `raised`, `ended` or `test`.
    pub state: &'static str,
    /// When the alert was raised, or ended.
    pub at: Timestamp,
    pub subject: String,
    pub node: String,
    /// One sentence without its full stop.
    pub text: String,
    pub detail: Map<String, Value>,
}

impl Notification {
    /// A test message, which shows that a destination can be reached.
    #[must_use]
    pub fn test(destination: &str, node: &str, at: Timestamp) -> Self {
        Self {
            id: String::new(),
            rule: "test".to_owned(),
            state: "test",
            at,
            subject: format!("destination {destination}"),
            node: node.to_owned(),
            text: format!("this is a test of the destination {destination}"),
            detail: Map::new(),
        }
    }

    /// One line for people.
    fn line(&self) -> String {
        let prefix = if self.state == "ended" { "over: " } else { "" };
        format!("[tollgate] {prefix}{}", self.text)
    }

    /// The JSON object of a webhook.
    fn object(&self) -> Value {
        json!({
            "event": self.rule, "state": self.state, "id": self.id, "at": self.at.to_string(), "subject": self.subject,
            "node": self.node, "text": self.text, "detail": self.detail,
        })
    }
}

/// A mail to one person.
#[derive(Clone, Copy, Debug)]
pub struct Mail<'a> {
    pub to: &'a str,
    pub subject: &'a str,
    pub body: &'a str,
    /// Part of the `Message-ID`: letters, digits, `-` and `_`.
    pub id: &'a str,
}

/// Sends messages.
#[derive(Debug)]
pub struct Notifier {
    trust: Arc<Trust>,
    tasks: TaskTracker,
}

impl Notifier {
    #[must_use]
    pub fn new(trust: Arc<Trust>) -> Self {
        Self { trust, tasks: TaskTracker::new() }
    }

    /// Sends a message. The error is a fault that may be shown to an operator.
    pub async fn send(&self, destination: &AlertDestination, message: &Notification, now: Timestamp) -> Result<(), String> {
        let limit = if destination.spec.kind == DestinationKind::Email { MAIL_LIMIT } else { HTTP_LIMIT };
        let sent = async {
            match destination.spec.kind {
                DestinationKind::Webhook => self.webhook(destination, message).await,
                DestinationKind::Slack => self.slack(destination, message).await,
                DestinationKind::Feishu => self.feishu(destination, message, now).await,
                DestinationKind::Dingtalk => self.dingtalk(destination, message, now).await,
                DestinationKind::Wecom => self.wecom(destination, message).await,
                DestinationKind::Telegram => self.telegram(destination, message).await,
                DestinationKind::Email => mail::send(destination, message, &self.trust).await,
            }
        };
        timeout(limit, sent).await.unwrap_or_else(|_| Err(format!("timed out after {} s", limit.as_secs())))
    }

    /// Sends a mail through the server of a destination of kind `email`, from its address. The error is a fault that may be shown to an
    /// operator.
    pub async fn send_mail(&self, destination: &AlertDestination, mail: &Mail<'_>) -> Result<(), String> {
        let sent = mail::send_to(destination, mail, &self.trust);
        timeout(MAIL_LIMIT, sent).await.unwrap_or_else(|_| Err(format!("timed out after {} s", MAIL_LIMIT.as_secs())))
    }

    async fn webhook(&self, destination: &AlertDestination, message: &Notification) -> Result<(), String> {
        let body = Bytes::from(message.object().to_string());
        let mut headers = HeaderMap::new();
        if let Some(secret) = &destination.secrets.secret {
            let signature = format!("sha256={}", hex::encode(mac(secret.as_bytes(), &body)));
            headers.insert(SIGNATURE, HeaderValue::try_from(signature).expect("hexadecimal digits are a valid header"));
        }
        self.post(destination, &address(destination)?, headers, body).await.map(drop)
    }

    /// Posts JSON and reads the answer.
    async fn post(&self, destination: &AlertDestination, url: &Url, mut headers: HeaderMap, body: Bytes) -> Result<Bytes, String> {
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        let reach = policy(destination);
        let answer = fetch::send(url, Method::POST, headers, body, reach, &self.trust, &self.tasks).await;
        let answer = answer.map_err(fault_text)?;
        if !(200..300).contains(&answer.status) {
            return Err(format!("status {}", answer.status));
        }
        let read = Limited::new(answer.body, ANSWER_BYTES).collect().await;
        read.map(http_body_util::Collected::to_bytes).map_err(|_| "the answer ended early, or has more than 64 KiB".to_owned())
    }
}

fn address(destination: &AlertDestination) -> Result<Url, String> {
    Url::parse(&destination.secrets.url).map_err(|_| "the address cannot be read".to_owned())
}

/// The text of a fault, with "destination" in place of "channel" in the text of [`ConnectFault`].
fn fault_text(fault: ConnectFault) -> String {
    if fault == ConnectFault::Denied { "address not allowed for this destination".to_owned() } else { fault.to_string() }
}

fn policy(destination: &AlertDestination) -> AddressPolicy {
    if destination.spec.private_network { AddressPolicy::Anywhere } else { AddressPolicy::Public }
}

fn mac(key: &[u8], message: &[u8]) -> Vec<u8> {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("HMAC takes keys of every length");
    mac.update(message);
    mac.finalize().into_bytes().to_vec()
}
