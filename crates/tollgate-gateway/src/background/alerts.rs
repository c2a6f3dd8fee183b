//! Sends alerts about spent budgets to the operator's webhook. Requests do not wait for it: alerts go into a bounded queue,
//! and are dropped, counted and logged when it is full.
//!
//! Bounds: 256 queued alerts, one sent at a time, 10 s per attempt, 4 attempts over half a minute. Connections follow the
//! same address policy as all outbound connections, follow no redirect, and carry no credential but a signature.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use hmac::{Hmac, KeyInit as _, Mac as _};
use http::{HeaderMap, HeaderValue, Method, header::CONTENT_TYPE};
use sha2::Sha256;
use tokio::{
    sync::mpsc,
    time::{sleep, timeout},
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tollgate_store::{ListingStore, ObjectScope, RowKind};
use url::Url;

use crate::{
    state::{
        alert_queue::{AlertQueue, QueuedAlert},
        shared::Shared,
    },
    upstream::{
        call::ConnectFault,
        client::{AddressPolicy, Trust, fetch},
    },
};

const LIMIT: Duration = Duration::from_secs(10);
/// Timeout of the look-up of a member's name.
const NAME_LIMIT: Duration = Duration::from_secs(2);
const WAITS: [Duration; 3] = [Duration::from_secs(1), Duration::from_secs(5), Duration::from_secs(25)];
const SIGNATURE: &str = "x-tollgate-signature";

#[derive(Clone, Debug)]
pub struct Webhook {
    /// `http` or `https`.
    pub url: Url,
    /// Signs the body; `None` sends it unsigned.
    pub secret: Option<tollgate_core::Secret>,
    /// Whether loopback and private addresses are allowed.
    pub private_network: bool,
}

/// The receiving end of the alert queue.
#[derive(Debug)]
pub struct Alerts {
    webhook: Webhook,
    queue: mpsc::Receiver<QueuedAlert>,
    rows: Arc<dyn ListingStore>,
    trust: Trust,
    tasks: TaskTracker,
}

impl Alerts {
    /// A queue and its sender task. Members' names are looked up in `rows`.
    #[must_use]
    pub fn to(webhook: Webhook, rows: Arc<dyn ListingStore>) -> (AlertQueue, Self) {
        let (sender, queue) = AlertQueue::new();
        (sender, Self { webhook, queue, rows, trust: Trust::default(), tasks: TaskTracker::new() })
    }

    /// Sends alerts until `stop` is cancelled. Alerts still queued then are counted and logged as lost.
    pub async fn run(mut self, shared: Arc<Shared>, stop: CancellationToken) {
        loop {
            let alert = tokio::select! {
                () = stop.cancelled() => break,
                alert = self.queue.recv() => alert,
            };
            let Some(alert) = alert else { break };
            let sent = tokio::select! {
                () = stop.cancelled() => false,
                sent = async { self.send(&self.body(alert).await).await } => sent,
            };
            shared.metrics.alert(if sent { "sent" } else { "lost" });
        }
        self.queue.close();
        while self.queue.try_recv().is_ok() {
            shared.metrics.alert("lost");
            tracing::warn!("an alert was not sent before the end of the process");
        }
    }

    /// The request body. Without a database the member's name is left out.
    async fn body(&self, alert: QueuedAlert) -> Bytes {
        let QueuedAlert { mut body, member } = alert;
        if let Some(id) = member {
            let found = timeout(NAME_LIMIT, self.rows.row(RowKind::Member, &id.to_string(), ObjectScope::Everything)).await;
            if let Ok(Ok(Some(row))) = found {
                body["name"] = row.name.into();
            }
        }
        Bytes::from(body.to_string())
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
                tracing::error!(class, "an alert could not be delivered to the webhook and is lost");
                return false;
            };
            tracing::warn!(class, "the webhook did not accept an alert; retrying");
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
        let response = fetch::send(&self.webhook.url, Method::POST, headers, body, reach, &self.trust, &self.tasks);
        Ok(response.await?.status)
    }

    /// `sha256=` and the hex form of the body's HMAC.
    fn signature(&self, body: &[u8]) -> Option<HeaderValue> {
        let secret = self.webhook.secret.as_ref()?;
        let mut mac = Hmac::<Sha256>::new_from_slice(secret.expose().as_bytes()).expect("HMAC takes keys of every length");
        mac.update(body);
        HeaderValue::try_from(format!("sha256={}", hex::encode(mac.finalize().into_bytes()))).ok()
    }
}

#[cfg(test)]
mod tests;
