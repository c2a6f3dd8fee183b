//! Sends OTLP messages over HTTP: with timeouts, retries where the protocol permits them, and a bound on both.
//!
//! Bounds: 10 s per try, 5 tries, waits of 1 s doubling to 16 s, or as long as the collector requests, at most 60 s. Connections
//! follow the same address policy as all outbound connections. Redirects are not followed.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, header::CONTENT_TYPE};
use http_body_util::{BodyExt as _, Limited};
use tokio::time::{sleep, timeout};
use tokio_util::task::TaskTracker;
use url::Url;

use crate::{
    clock::CoreRng,
    state::shared::Shared,
    upstream::{
        client::{AddressPolicy, fetch},
        retry_after::stated_wait_ms,
    },
};

const PROTOBUF: HeaderValue = HeaderValue::from_static("application/x-protobuf");
const TRY_LIMIT: Duration = Duration::from_secs(10);
/// Number of tries of an export, including the first one.
pub(super) const MAX_TRIES: u32 = 5;
const FIRST_WAIT: Duration = Duration::from_secs(1);
const MAX_WAIT: Duration = Duration::from_secs(16);
/// Longest wait that a collector may ask for.
const MAX_STATED_WAIT: Duration = Duration::from_mins(1);
/// Bytes of an answer that are read.
const MAX_ANSWER_BYTES: usize = 64 * 1024;

/// A kind of telemetry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Signal {
    Traces,
    Metrics,
}

impl Signal {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Traces => "traces",
            Self::Metrics => "metrics",
        }
    }
}

/// An export that was given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ExportLost;

/// Why a try failed.
#[derive(Debug, PartialEq, Eq)]
struct FailedTry {
    class: String,
    retry: Retry,
}

/// Whether the same message may be sent again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Retry {
    Never,
    /// After the exporter's own wait.
    Later,
    /// After the time that the collector stated.
    After(Duration),
}

/// The collector, and how it is reached.
#[derive(Debug)]
pub(super) struct Exporter {
    endpoint: Url,
    headers: HeaderMap,
    reach: AddressPolicy,
    tasks: TaskTracker,
    shared: Arc<Shared>,
    random: CoreRng,
    /// Whether the last export was given up.
    is_failing: AtomicBool,
}

impl Exporter {
    /// `endpoint` is the collector's base URL; `headers` are sent with every message.
    pub(super) fn new(endpoint: Url, mut headers: HeaderMap, private_network: bool, shared: Arc<Shared>) -> Self {
        headers.insert(CONTENT_TYPE, PROTOBUF);
        let random = CoreRng::seeded(u64::try_from(shared.clock.now().0).unwrap_or(0));
        Self {
            endpoint,
            headers,
            reach: if private_network { AddressPolicy::Anywhere } else { AddressPolicy::Public },
            tasks: TaskTracker::new(),
            shared,
            random,
            is_failing: AtomicBool::new(false),
        }
    }

    /// Sends a message and returns the answer's body. At most `tries` times; a failure is counted and logged.
    pub(super) async fn export(&self, signal: Signal, message: &Bytes, tries: u32) -> Result<Bytes, ExportLost> {
        let url = url_of(&self.endpoint, signal);
        let mut wait = FIRST_WAIT;
        for number in 1.. {
            let FailedTry { class, retry } = match self.send(&url, message.clone()).await {
                Ok(answer) => {
                    self.shared.metrics.telemetry_export(signal.as_str(), "sent");
                    if self.is_failing.swap(false, Ordering::Relaxed) {
                        tracing::info!("telemetry reaches the collector again");
                    }
                    return Ok(answer);
                }
                Err(failed) => failed,
            };
            let pause = match retry {
                Retry::Later if number < tries => self.varied(wait),
                Retry::After(stated) if number < tries => stated,
                Retry::Never | Retry::Later | Retry::After(_) => {
                    self.lost(signal, &class);
                    break;
                }
            };
            tracing::debug!(signal = signal.as_str(), class, "the collector did not take telemetry; retrying");
            self.shared.metrics.telemetry_export(signal.as_str(), "retried");
            sleep(pause).await;
            wait = (wait * 2).min(MAX_WAIT);
        }
        Err(ExportLost)
    }

    /// Counts an export that the end of the process cuts off.
    pub(super) fn cut_off(&self, signal: Signal) -> ExportLost {
        self.shared.metrics.telemetry_export(signal.as_str(), "lost");
        ExportLost
    }

    /// Logs the first of several exports that are given up.
    fn lost(&self, signal: Signal, class: &str) {
        self.shared.metrics.telemetry_export(signal.as_str(), "lost");
        if !self.is_failing.swap(true, Ordering::Relaxed) {
            let host = self.endpoint.host_str().unwrap_or_default();
            tracing::warn!(signal = signal.as_str(), class, host, "telemetry cannot be exported and is lost");
        }
    }

    /// Between half of a wait and all of it, so that nodes do not retry at the same moment.
    fn varied(&self, wait: Duration) -> Duration {
        let half = wait / 2;
        half + half.mul_f64(f64::from(self.random.next_u32()) / f64::from(u32::MAX))
    }

    async fn send(&self, url: &Url, message: Bytes) -> Result<Bytes, FailedTry> {
        let exchange = async {
            let sent =
                fetch::send(url, Method::POST, self.headers.clone(), message, self.reach, &self.shared.trust, &self.tasks).await;
            let answer = sent.map_err(|fault| FailedTry { class: fault.to_string(), retry: Retry::Later })?;
            let body = Limited::new(answer.body, MAX_ANSWER_BYTES).collect().await;
            match answer.status {
                // The collector has accepted the message, even if the body of its answer cannot be read.
                200..300 => Ok(body.map(http_body_util::Collected::to_bytes).unwrap_or_default()),
                status => Err(refused(status, stated_wait_ms(&answer.headers, self.shared.clock.now()))),
            }
        };
        let timed_out = || FailedTry { class: "timed out".to_owned(), retry: Retry::Later };
        timeout(TRY_LIMIT, exchange).await.unwrap_or_else(|_| Err(timed_out()))
    }
}

/// Whether to send a message again after a status other than success. OTLP permits it after four statuses.
fn refused(status: u16, stated_ms: Option<i64>) -> FailedTry {
    let stated = stated_ms.map(|ms| Duration::from_millis(u64::try_from(ms).unwrap_or(0)).min(MAX_STATED_WAIT));
    let retry = match status {
        429 | 502 | 503 | 504 => stated.map_or(Retry::Later, Retry::After),
        _ => Retry::Never,
    };
    FailedTry { class: format!("status {status}"), retry }
}

/// The address of a signal below the collector's base URL.
fn url_of(endpoint: &Url, signal: Signal) -> Url {
    let mut url = endpoint.clone();
    url.set_path(&format!("{}/v1/{}", endpoint.path().trim_end_matches('/'), signal.as_str()));
    url
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_have_paths_below_the_endpoint() {
        for (endpoint, url) in [
            ("http://127.0.0.1:4318", "http://127.0.0.1:4318/v1/traces"),
            ("https://otel.example.com/team/otlp/", "https://otel.example.com/team/otlp/v1/traces"),
        ] {
            assert_eq!(url_of(&Url::parse(endpoint).unwrap(), Signal::Traces).as_str(), url);
        }
    }

    #[test]
    fn only_transient_refusals_are_retried() {
        let seconds = Duration::from_secs;
        for (status, stated, retry) in [
            (429, Some(3_000), Retry::After(seconds(3))),
            (503, None, Retry::Later),
            (502, Some(-5), Retry::After(seconds(0))),
            (504, Some(86_400_000), Retry::After(seconds(60))),
            (500, Some(3_000), Retry::Never),
            (400, None, Retry::Never),
            (401, None, Retry::Never),
            (302, None, Retry::Never),
        ] {
            assert_eq!(refused(status, stated), FailedTry { class: format!("status {status}"), retry }, "{status}");
        }
    }
}
