//! Background: budgets that only alert tell somebody, by a webhook that the operator named. A request never waits for it:
//! what is told goes into a bounded queue, and is lost, counted and logged when that is full.
//!
//! Bounds: 256 alerts in the queue, one sent at a time, 10 s a try, 4 tries over half a minute. The address is reached
//! through the guard of all outbound connections, follows no redirect and is sent no credential but a signature.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use hmac::{Hmac, KeyInit as _, Mac as _};
use http::{HeaderMap, HeaderValue, Method, header::CONTENT_TYPE};
use serde_json::{Value, json};
use sha2::Sha256;
use tokio::{
    sync::mpsc,
    time::{sleep, timeout},
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tollgate_core::{BudgetAlert, Catalog, MemberId, RequestId, Subject, Timestamp};
use tollgate_store::{ListingStore, RowKind};
use url::Url;

use crate::{
    Shared,
    forward::{AddressPolicy, ConnectFault, Trust, fetch},
};

/// Alerts that wait.
const QUEUE: usize = 256;
/// Time for one try.
const LIMIT: Duration = Duration::from_secs(10);
/// Time for looking up a member's name.
const NAME_LIMIT: Duration = Duration::from_secs(2);
/// Waits between tries.
const WAITS: [Duration; 3] = [Duration::from_secs(1), Duration::from_secs(5), Duration::from_secs(25)];
const SIGNATURE: &str = "x-tollgate-signature";

/// Where alerts go.
#[derive(Clone, Debug)]
pub struct Webhook {
    /// `http` or `https`.
    pub url: Url,
    /// Signs the body; `None`: it is not signed.
    pub secret: Option<tollgate_core::Secret>,
    /// Whether it may stand at a loopback or private address.
    pub private_network: bool,
}

/// The requests' end of the queue; without a webhook alerts are logged only.
#[derive(Clone, Debug, Default)]
pub struct AlertQueue(Option<mpsc::Sender<QueuedAlert>>);

/// An alert that waits.
#[derive(Debug)]
struct QueuedAlert {
    said: Value,
    /// Whose name is looked up before it is sent: requests know their key's only.
    member: Option<MemberId>,
}

/// The other end.
#[derive(Debug)]
pub struct Alerts {
    webhook: Webhook,
    queue: mpsc::Receiver<QueuedAlert>,
    rows: Arc<dyn ListingStore>,
    trust: Trust,
    tasks: TaskTracker,
}

impl AlertQueue {
    /// Tells that a budget is spent: by which request, of a key of which name.
    pub fn enqueue(&self, shared: &Shared, request: RequestId, key: &str, crossed: &BudgetAlert) {
        tracing::warn!(
            request.id = %request,
            budget.of = %crossed.subject,
            budget.window = crossed.budget.window.as_str(),
            budget.amount_nano_usd = crossed.budget.amount.0,
            budget.spent_nano_usd = crossed.spent.0,
            "a budget is spent; it alerts and does not block"
        );
        let Some(queue) = &self.0 else { return };
        let said = told(request, key, crossed, &shared.catalog.load(), shared.clock.now());
        let member = if let Subject::Member(id) = crossed.subject { Some(id) } else { None };
        if queue.try_send(QueuedAlert { said, member }).is_err() {
            shared.metrics.alert("lost");
            tracing::warn!(request.id = %request, "too many alerts wait for the webhook; this one is lost");
        }
    }
}

impl Alerts {
    /// A queue and what empties it; members' names are looked up in `rows`.
    #[must_use]
    pub fn to(webhook: Webhook, rows: Arc<dyn ListingStore>) -> (AlertQueue, Self) {
        let (sender, queue) = mpsc::channel(QUEUE);
        (AlertQueue(Some(sender)), Self { webhook, queue, rows, trust: Trust::default(), tasks: TaskTracker::new() })
    }

    /// Sends what comes until `stop` is cancelled; what waits then is lost, and said so.
    pub async fn run(mut self, shared: Arc<Shared>, stop: CancellationToken) {
        loop {
            let told = tokio::select! {
                () = stop.cancelled() => break,
                told = self.queue.recv() => told,
            };
            let Some(told) = told else { break };
            let sent = tokio::select! {
                () = stop.cancelled() => false,
                sent = async { self.send(&self.body(told).await).await } => sent,
            };
            shared.metrics.alert(if sent { "sent" } else { "lost" });
        }
        self.queue.close();
        while self.queue.try_recv().is_ok() {
            shared.metrics.alert("lost");
            tracing::warn!("an alert was not sent before the end of the process");
        }
    }

    /// What is sent. Without a database a member stays without a name: the alert does not wait for it.
    async fn body(&self, told: QueuedAlert) -> Bytes {
        let QueuedAlert { mut said, member } = told;
        if let Some(id) = member {
            let found = timeout(NAME_LIMIT, self.rows.row(RowKind::Member, &id.to_string())).await;
            if let Ok(Ok(Some(row))) = found {
                said["name"] = row.name.into();
            }
        }
        Bytes::from(said.to_string())
    }

    async fn send(&self, body: &Bytes) -> bool {
        let mut waits = WAITS.into_iter();
        loop {
            let class = match timeout(LIMIT, self.post(body.clone())).await {
                Ok(Ok(200..300)) => return true,
                Ok(Ok(status)) => format!("status {status}"),
                Ok(Err(fault)) => fault.to_string(),
                Err(_) => "timed out".to_owned(),
            };
            let Some(wait) = waits.next() else {
                tracing::error!(class, "an alert did not reach the webhook and is lost");
                return false;
            };
            tracing::warn!(class, "the webhook did not take an alert; it is tried again");
            sleep(wait).await;
        }
    }

    async fn post(&self, body: Bytes) -> Result<u16, ConnectFault> {
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        if let Some(signature) = self.signature(&body) {
            headers.insert(SIGNATURE, signature);
        }
        let reach = if self.webhook.private_network { AddressPolicy::Anywhere } else { AddressPolicy::Public };
        let sent = fetch::Sent { method: Method::POST, headers, body };
        Ok(fetch::send(&self.webhook.url, sent, reach, &self.trust, &self.tasks).await?.status)
    }

    /// `sha256=` and the hex form of the body's HMAC.
    fn signature(&self, body: &[u8]) -> Option<HeaderValue> {
        let secret = self.webhook.secret.as_ref()?;
        let mut mac = Hmac::<Sha256>::new_from_slice(secret.expose().as_bytes()).expect("HMAC takes keys of every length");
        mac.update(body);
        HeaderValue::try_from(format!("sha256={}", hex::encode(mac.finalize().into_bytes()))).ok()
    }
}

/// What is told, as JSON.
fn told(request: RequestId, key: &str, crossed: &BudgetAlert, catalog: &Catalog, at: Timestamp) -> Value {
    let BudgetAlert { subject, budget, spent } = *crossed;
    let (kind, id, name) = match subject {
        Subject::Key(id) => ("key", Some(id.to_string()), Some(key.to_owned())),
        Subject::Member(id) => ("member", Some(id.to_string()), None),
        Subject::Group(id) => ("group", Some(id.to_string()), catalog.groups.get(&id).map(|group| group.name.clone())),
        Subject::Channel(id) => ("channel", Some(id.to_string()), catalog.channels.get(&id).map(|channel| channel.name.clone())),
        Subject::Gateway => ("gateway", None, None),
    };
    json!({
        "event": "budget_spent", "at": at.to_string(), "of": kind, "id": id, "name": name, "window": budget.window.as_str(),
        "amount_nano_usd": budget.amount, "amount_usd": budget.amount.to_usd_string(), "spent_nano_usd": spent,
        "spent_usd": spent.to_usd_string(), "request": request,
    })
}

#[cfg(test)]
mod tests;
