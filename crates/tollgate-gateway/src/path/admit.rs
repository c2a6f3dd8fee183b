//! Stage 5 of 11: admit. In: an offered request; out: a reservation of money, requests, tokens and concurrency, or E31 to E33.
//!
//! Token counts are limited first, in a separate window. Everything else is reserved in one step, or nothing is. Subjects without
//! limits are not counted. The usage guard settles the reservation however the request ends.

use tollgate_core::{
    AdmitInput, LimitExceeded, attempt_reservations, output_limit_field, reservation_for, token_counts_per_minute,
};
use tollgate_protocol::Method;

use super::types::{
    offered::{Admission, OfferedRequest, OutputLimit},
    reserve::reserve,
    usage_guard::UsageGuard,
    worker::Worker,
};
use crate::{refusal::Refusal, request::Head};

/// Reserves the request's maximum use, together with what its attempts may need on their channels, so that a shared counter
/// is called once.
///
/// `earlier` is the request's reservation under a previous catalog snapshot. Only the difference is reserved then: a release
/// travels to shared counters with the next batch of settlements, so releasing first would count the request twice for a moment
/// and refuse one that fits.
///
/// # Errors
/// E31, E32 or E33. Nothing is reserved then.
pub(super) async fn admit(
    worker: &Worker,
    head: &Head,
    offered: &OfferedRequest,
    earlier: Option<&Admission>,
    guard: &mut UsageGuard,
) -> Result<Admission, Refusal> {
    let OfferedRequest { catalog, caller, offer, summary, .. } = offered;
    let gateway = &head.settings.budgets;
    if summary.method == Method::CountTokens && earlier.is_none() {
        let limit = token_counts_per_minute(&caller.key, &offer.group);
        let counted = limit.map_or(Ok(()), |limit| worker.shared.traffic.token_counts.count(caller.key.id, limit));
        counted.map_err(|rate| Refusal::LimitExceeded(Box::new(LimitExceeded::Rate(rate))))?;
    }
    let input = AdmitInput { id: head.request_id, at: head.arrived, caller, offer, summary, from: head.from, gateway };
    let earlier_limit = earlier.and_then(|earlier| earlier.output_limit.clone());
    let Some(reservation) = reservation_for(&input) else {
        return Ok(Admission { reservation: None, output_limit: earlier_limit });
    };
    let refuse = |exceeded| Refusal::LimitExceeded(Box::new(exceeded));
    let output_tokens = if let Some(reserved) = earlier.and_then(|earlier| earlier.reservation.as_ref()) {
        match reservation.exceeding(reserved) {
            Some(remainder) => reserve(worker, &remainder, &[], guard).await?.map_err(refuse)?.output,
            None => reservation.output,
        }
    } else if earlier.is_some() {
        reserve(worker, &reservation, &[], guard).await?.map_err(refuse)?.output
    } else {
        let ahead = attempt_reservations(&input, catalog);
        let receipt = reserve(worker, &reservation, &ahead, guard).await?.map_err(refuse)?;
        guard.rates = receipt.rate_statuses;
        receipt.output
    };
    let limit = output_tokens.map(|tokens| OutputLimit { tokens, field: output_limit_field(summary, head.from) });
    let output_limit = [earlier_limit, limit].into_iter().flatten().min_by_key(|limit| limit.tokens);
    Ok(Admission { reservation: Some(reservation), output_limit })
}
