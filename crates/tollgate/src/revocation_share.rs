//! Shares revoked keys with the other nodes through Redis, so that a node that has lost the database refuses them too.

use std::{sync::Arc, time::Duration};

use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tollgate_core::KeyId;
use tollgate_gateway::state::shared::Shared;
use tollgate_store::SharedRevocations;

const EXCHANGE_INTERVAL: Duration = Duration::from_secs(1);
/// Revoked keys that wait to be sent. Those that do not fit are known to nodes with a database all the same.
pub(crate) const QUEUE_CAPACITY: usize = 1_000;

/// Sends the keys of `revoked` and applies those of other nodes until `stop` is cancelled.
pub(crate) async fn watch(
    mut shared_keys: SharedRevocations,
    mut revoked: mpsc::Receiver<KeyId>,
    shared: Arc<Shared>,
    stop: CancellationToken,
) {
    loop {
        let mut ours = Vec::new();
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(EXCHANGE_INTERVAL) => {}
            Some(key) = revoked.recv() => ours.push(key),
        }
        while let Ok(key) = revoked.try_recv() {
            ours.push(key);
        }
        match shared_keys.exchange(ours).await {
            Ok(keys) => {
                for key in shared.revoke(keys) {
                    tracing::info!(key.id = %key, "another node reports that a key is revoked");
                }
            }
            Err(error) => tracing::debug!(%error, "exchanging revoked keys with other nodes failed"),
        }
    }
}
