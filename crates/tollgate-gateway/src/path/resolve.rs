//! Stage 4 of 11: resolve. In: caller and summary; out: the offer, the model with its group, prices and parameters for this
//! caller. E13 to E17 when it is not offered.

use std::sync::Arc;

use bytes::Bytes;
use tollgate_core::{Caller, Catalog, upstream_extras};
use tollgate_protocol::{RequestSummary, Target, codec, remove_fields};

use super::types::offered::OfferedRequest;
use crate::{in_place::boxed, refusal::Refusal, request::Head};

/// Resolves the model of a request. Unsupported fields are removed from the body if the model's row says to drop them.
pub(super) fn resolve(
    head: &Head,
    target: &Target,
    catalog: Arc<Catalog>,
    caller: Caller,
    body: Bytes,
    mut summary: RequestSummary,
) -> Result<Box<OfferedRequest>, Refusal> {
    let offer = tollgate_core::resolve(&catalog, &caller, &summary, head.from, head.arrived)
        .map_err(|reason| Refusal::not_offered(reason, &summary))?;
    if offer.drop_fields.is_empty() {
        summary.extras = upstream_extras(&catalog, &offer, head.from, &summary);
        return Ok(boxed(|| OfferedRequest { catalog, caller, offer, body, summary, original_body: None }));
    }
    let reduced = remove_fields(&body, &offer.drop_fields);
    // The summary's byte ranges refer to the body that is sent.
    let mut summary = codec(head.from).summarise(target, &reduced).map_err(Refusal::Malformed)?;
    summary.extras = upstream_extras(&catalog, &offer, head.from, &summary);
    Ok(boxed(|| OfferedRequest { catalog, caller, offer, body: reduced, summary, original_body: Some(body) }))
}
