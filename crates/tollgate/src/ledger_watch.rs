//! Tells the running gateway's counters of money that was posted by another process, such as `tollgate ledger top-up`.

use std::{sync::Arc, time::Duration};

use tokio_util::sync::CancellationToken;
use tollgate_gateway::state::shared::Shared;
use tollgate_store::{LedgerPosition, Store};

/// How often the ledger is looked at: a top-up counts within this time.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// Follows the ledger from a place on, until it is told to stop.
pub(crate) async fn watch(store: Store, shared: Arc<Shared>, mut place: LedgerPosition, stop: CancellationToken) {
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(POLL_INTERVAL) => {}
        }
        for (alert, spender) in shared.counters.take_budget_alerts() {
            shared.alert(spender.request, &spender.key, &alert);
        }
        match store.ledger.posted_since(place).await {
            Ok((posted, now)) => {
                for entry in posted {
                    shared.counters.record_posting(entry.member, entry.amount);
                    tracing::info!(
                        member.id = %entry.member,
                        kind = entry.kind.as_str(),
                        amount_nano_usd = entry.amount.0,
                        "money was posted"
                    );
                }
                place = now;
            }
            Err(fault) => {
                shared.metrics.store_error("read_ledger");
                tracing::debug!(%fault, "the ledger was not read");
            }
        }
    }
}
