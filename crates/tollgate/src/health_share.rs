//! Shares cooldowns between nodes through Redis: an account that cools or rests on one node does so on all, the later end wins,
//! and a passed test ends it on all. Measures this node's clock against that of Redis.

use std::{sync::Arc, time::Duration};

use tokio_util::sync::CancellationToken;
use tollgate_gateway::state::{health_registry::HealthRegistry, shared::Shared};
use tollgate_store::SharedHealth;

use crate::compose;

const EXCHANGE_INTERVAL: Duration = Duration::from_secs(1);
/// A larger difference of the clocks is reported.
pub(crate) const MAX_SKEW_US: i64 = 2_000_000;

/// Exchanges cooldowns until `stop` is cancelled. While Redis is unreachable, each node uses its own.
pub(crate) async fn watch(mut health: SharedHealth, registry: Arc<HealthRegistry>, shared: Arc<Shared>, stop: CancellationToken) {
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(EXCHANGE_INTERVAL) => {}
        }
        let passed = registry.take_ended();
        match health.exchange(&registry.resting(compose::now()), &passed, compose::now).await {
            Ok(update) => {
                report_skew(&shared, update.clock_skew_us);
                registry.merge(update.changed, compose::now());
                registry.end(update.ended);
            }
            Err(error) => {
                registry.put_back_ended(passed);
                tracing::debug!(%error, "exchanging account health with other nodes failed");
            }
        }
    }
}

/// Publishes the skew of the clock; logs and alerts when it begins and ends.
fn report_skew(shared: &Shared, micros: i64) {
    shared.metrics.clock_skew(micros);
    let before = shared.serving.clock_skew_s();
    let wrong = if micros.abs() > MAX_SKEW_US { micros } else { 0 };
    shared.serving.set_clock_skew(wrong);
    let now = shared.serving.clock_skew_s();
    if before.is_some() == now.is_some() {
        return;
    }
    let seconds = now.unwrap_or(0);
    if now.is_some() {
        tracing::error!(
            ahead_s = seconds,
            "the clock of this node differs from that of Redis; days, months and times of records are wrong until it is set"
        );
    } else {
        tracing::info!("the clock of this node agrees with that of Redis again");
    }
    shared.alerts.clock_skew(seconds, &shared.metrics);
}
