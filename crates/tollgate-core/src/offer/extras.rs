//! Options of a request that change its price: applied to the offer, or named where there is no price for it.

use tollgate_protocol::{FieldPath, ROUTING_FIELDS, RequestSummary, UnseenInput};

use super::Offer;
use crate::money::UnpricedExtra;

const TIER_FIELDS: [&str; 2] = ["service_tier", "serviceTier"];
const SEARCH_FIELDS: [&str; 5] = ["web_search_options", "tools", "plugins", "search_parameters", "enable_search"];
const TOOL_FIELDS: [&str; 4] = ["tools", "plugins", "google", "extra_body"];
const CACHE_FIELDS: [&str; 4] = ["cachedContent", "cached_content", "google", "extra_body"];

/// Puts the price of the request's extras into the offer. Returns the fields that have none, in the caller's spelling.
pub(super) fn apply(offer: &mut Offer, summary: &RequestSummary) -> Vec<FieldPath> {
    // A model without a price is a refusal of its own where money is limited.
    let Some(sale) = &offer.sale else { return Vec::new() };
    let mut names: Vec<&str> = Vec::new();
    // The prices of another model or provider are not this model's.
    if summary.extras.other_routes && !sale.is_free() {
        names.extend(ROUTING_FIELDS);
    }
    if !summary.method.generates() {
        return summary.fields.iter().filter(|field| names.contains(&field.as_str())).cloned().collect();
    }
    let (price, unpriced) = sale.with_extras(summary.extras);
    let is_free = price.is_free();
    offer.sale = Some(price);
    for extra in unpriced {
        names.extend(match extra {
            UnpricedExtra::ServiceTier => &TIER_FIELDS[..],
            UnpricedExtra::WebSearch => &SEARCH_FIELDS,
            UnpricedExtra::ServerTools => &TOOL_FIELDS,
        });
    }
    let mut files = None;
    // Input that the body does not show is at most the model's context.
    if offer.model.spec.context.is_none() && !is_free {
        let UnseenInput { cached_content, files: _, tools } = summary.extras.unseen;
        names.extend(cached_content.then_some(CACHE_FIELDS).into_iter().flatten());
        names.extend(tools.then_some(SEARCH_FIELDS).into_iter().flatten());
        files.clone_from(&summary.first_file);
    }
    let fields = summary.fields.iter().filter(|field| names.contains(&field.as_str())).cloned();
    fields.chain(files).collect()
}
