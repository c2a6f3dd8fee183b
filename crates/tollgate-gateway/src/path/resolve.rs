//! Stage 4 of 11: resolve. In: caller and summary; out: the offer, that is the model as this caller gets it: group, prices
//! and parameters. E13 to E17 when the model is not offered like this.

use std::sync::Arc;

use bytes::Bytes;
use tollgate_core::{Caller, Catalog};
use tollgate_protocol::{RequestSummary, Target, codec, remove_fields};

use super::types::offered::OfferedRequest;
use crate::{refusal::Refusal, request::Head};

/// Resolves the model a request names. Fields that the model does not take, and that its row says to drop, are removed from
/// the body.
pub(super) fn resolve(
    head: &Head,
    target: &Target,
    catalog: Arc<Catalog>,
    caller: Caller,
    body: Bytes,
    summary: RequestSummary,
) -> Result<OfferedRequest, Refusal> {
    let offer = tollgate_core::resolve(&catalog, &caller, &summary, head.from, head.arrived)
        .map_err(|reason| Refusal::not_offered(reason, &summary))?;
    if offer.drop_fields.is_empty() {
        return Ok(OfferedRequest { catalog, caller, offer, body, summary, original_body: None });
    }
    let reduced = remove_fields(&body, &offer.drop_fields);
    // The summary's byte ranges refer to the body that is sent.
    let summary = codec(head.from).summarise(target, &reduced).map_err(Refusal::Malformed)?;
    Ok(OfferedRequest { catalog, caller, offer, body: reduced, summary, original_body: Some(body) })
}
