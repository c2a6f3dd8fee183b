//! Reserving on the counters, for a request and for its attempts.

use tollgate_core::{LimitExceeded, Reservation, ReservationReceipt};

use super::{usage_guard::UsageGuard, worker::Worker};
use crate::refusal::Refusal;

/// Reserves on the counters; the inner error is the limit that was exceeded. `ahead` are reservations that later attempts of the
/// same request may need.
pub(crate) async fn reserve(
    worker: &Worker,
    reservation: &Reservation,
    ahead: &[Reservation],
    guard: &mut UsageGuard,
) -> Result<Result<ReservationReceipt, LimitExceeded>, Refusal> {
    // Before the first await: a request that is dropped here is still settled.
    guard.has_reservation = true;
    let shared = &worker.shared;
    shared.counters.reserve(reservation, ahead, shared.clock.instant()).await.map_err(|fault| {
        shared.metrics.store_error("take_hold");
        tracing::error!(%fault, "the counters did not answer");
        Refusal::Overloaded
    })
}
