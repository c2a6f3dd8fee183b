//! Applies ledger postings by other processes, such as `tollgate ledger top-up`, to the counters of the running gateway.

use std::{sync::Arc, time::Duration};

use tokio_util::sync::CancellationToken;
use tollgate_gateway::state::shared::Shared;
use tollgate_store::{LedgerPosition, Store};

/// Interval of ledger queries: a top-up counts after this time at most.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// Follows the ledger from `position` until `stop` is cancelled.
pub(crate) async fn watch(store: Store, shared: Arc<Shared>, mut position: LedgerPosition, stop: CancellationToken) {
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(POLL_INTERVAL) => {}
        }
        for (alert, spender) in shared.counters.take_budget_alerts() {
            shared.alert(spender.request, &spender.key, &alert);
        }
        match store.ledger.posted_since(position).await {
            Ok((posted, latest)) => {
                for entry in posted {
                    shared.counters.record_posting(entry.member, entry.amount);
                    tracing::info!(
                        member.id = %entry.member,
                        kind = entry.kind.as_str(),
                        amount_nano_usd = entry.amount.0,
                        "ledger posting applied"
                    );
                }
                position = latest;
            }
            Err(fault) => {
                shared.metrics.store_error("read_ledger");
                tracing::debug!(%fault, "reading the ledger failed");
            }
        }
    }
}
