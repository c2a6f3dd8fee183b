//! Shares cooldowns between nodes through Redis: an account that cools or rests on one node does so on all; the later end wins.

use std::{sync::Arc, time::Duration};

use tokio_util::sync::CancellationToken;
use tollgate_gateway::state::health_registry::HealthRegistry;
use tollgate_store::SharedHealth;

use crate::compose;

const EXCHANGE_INTERVAL: Duration = Duration::from_secs(1);

/// Exchanges cooldowns until `stop` is cancelled. While Redis is unreachable, each node uses its own.
pub(crate) async fn watch(mut shared: SharedHealth, registry: Arc<HealthRegistry>, stop: CancellationToken) {
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(EXCHANGE_INTERVAL) => {}
        }
        let now = compose::now();
        match shared.exchange(&registry.resting(now), now).await {
            Ok(changes) => registry.merge(changes),
            Err(error) => tracing::debug!(%error, "exchanging account health with other nodes failed"),
        }
    }
}
