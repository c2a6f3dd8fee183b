//! Several nodes: an account that cools or rests on one does so on all, the later end winning.

use std::{sync::Arc, time::Duration};

use tokio_util::sync::CancellationToken;
use tollgate_gateway::state::health_registry::HealthRegistry;
use tollgate_store::SharedHealth;

use crate::compose;

const EVERY: Duration = Duration::from_secs(1);

/// Tells and hears until it is told to stop. While Redis is away each node knows what it learned itself.
pub(crate) async fn watch(mut shared: SharedHealth, registry: Arc<HealthRegistry>, stop: CancellationToken) {
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(EVERY) => {}
        }
        let now = compose::now();
        match shared.exchange(&registry.resting(now), now).await {
            Ok(news) => registry.merge(news),
            Err(error) => tracing::debug!(%error, "what other nodes know of accounts was not heard"),
        }
    }
}
