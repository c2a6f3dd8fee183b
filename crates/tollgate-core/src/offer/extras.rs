//! Options of a request that change its price: applied to the offer, or named where there is no price for it.

use tollgate_protocol::{FieldPath, PriceEffect, RequestExtras, RequestSummary, UnseenInput, price_effects};

use super::Offer;
use crate::money::UnpricedExtra;

/// Puts the price of the request's `extras` into the offer. Returns the fields that have none, in the caller's spelling.
pub(super) fn apply(offer: &mut Offer, summary: &RequestSummary, extras: RequestExtras) -> Vec<FieldPath> {
    // A model without a price is a refusal of its own where money is limited.
    let Some(sale) = &offer.sale else { return Vec::new() };
    let mut unpriced: Vec<PriceEffect> = Vec::new();
    // The prices of another model or provider are not this model's.
    unpriced.extend((extras.other_routes && !sale.is_free()).then_some(PriceEffect::OtherRoutes));
    if !summary.method.generates() {
        return fields_with(&unpriced, summary).collect();
    }
    let (price, without_price) = sale.with_extras(extras);
    let is_free = price.is_free();
    offer.sale = Some(price);
    unpriced.extend(without_price.into_iter().map(|extra| match extra {
        UnpricedExtra::ServiceTier => PriceEffect::ServiceTier,
        UnpricedExtra::WebSearch => PriceEffect::WebSearch,
        UnpricedExtra::ServerTools => PriceEffect::ServerTools,
        UnpricedExtra::OutputMedia => PriceEffect::OutputMedia,
        UnpricedExtra::Surcharge => PriceEffect::Surcharge,
    }));
    let mut files = None;
    // Input that the body does not show is at most the model's context.
    if offer.model.spec.context.is_none() && !is_free {
        let UnseenInput { cached_content, files: _, tools, compaction } = extras.unseen;
        unpriced.extend(cached_content.then_some(PriceEffect::CachedContent));
        unpriced.extend(tools.then_some(PriceEffect::FoundInput));
        unpriced.extend(compaction.then_some(PriceEffect::Compaction));
        files.clone_from(&summary.first_file);
    }
    fields_with(&unpriced, summary).chain(files).collect()
}

/// The fields of a request that can have one of these effects.
fn fields_with(effects: &[PriceEffect], summary: &RequestSummary) -> impl Iterator<Item = FieldPath> {
    let has = |field: &&FieldPath| price_effects(field).iter().any(|effect| effects.contains(effect));
    // Most requests have none, and the look-up of each field takes as long as the rest of the offer.
    let fields = if effects.is_empty() { &[][..] } else { &summary.fields };
    fields.iter().filter(has).cloned()
}
