//! Options of a request that change its price: applied to the offer, or named where there is no price for it.

use tollgate_protocol::{FieldPath, RequestSummary};

use super::Offer;
use crate::money::UnpricedExtra;

const TIER_FIELDS: [&str; 2] = ["service_tier", "serviceTier"];
const SEARCH_FIELDS: [&str; 2] = ["web_search_options", "tools"];
const CACHE_FIELDS: [&str; 3] = ["cachedContent", "cached_content", "extra_body"];

/// Puts the price of the request's extras into the offer. Returns the fields that have none, in the caller's spelling.
pub(super) fn apply(offer: &mut Offer, summary: &RequestSummary) -> Vec<FieldPath> {
    if !summary.method.generates() {
        return Vec::new();
    }
    // A model without a price is a refusal of its own where money is limited.
    let Some(sale) = &offer.sale else { return Vec::new() };
    let (price, unpriced) = sale.with_extras(summary.extras);
    let is_free = price.is_free();
    offer.sale = Some(price);
    let mut names: Vec<&str> = Vec::new();
    for extra in unpriced {
        names.extend(match extra {
            UnpricedExtra::ServiceTier => TIER_FIELDS,
            UnpricedExtra::WebSearch => SEARCH_FIELDS,
        });
    }
    // Cached content is input of unknown size, at most the model's context.
    if summary.extras.cached_content && offer.model.spec.context.is_none() && !is_free {
        names.extend(CACHE_FIELDS);
    }
    summary.fields.iter().filter(|field| names.contains(&field.as_str())).cloned().collect()
}
