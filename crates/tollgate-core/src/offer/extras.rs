//! Options of a request that change its price: they are applied to the offer, or named if they have no price.

use tollgate_protocol::{FieldPath, PriceEffect, Protocol, RequestExtras, RequestSummary, UnseenInput, price_effects};

use super::{ModelPurpose, Offer};
use crate::{
    Caller, Catalog, PriceLimit, SharedPrice, Timestamp, below_cost, estimate_input,
    money::{UnpricedExtra, has_price_effect},
    route::known_cost,
};

/// The sale price of a request with its options.
pub(super) struct PricedRequest {
    pub(super) sale: Option<SharedPrice>,
    /// The fields that have no price, in the caller's spelling.
    pub(super) unpriced: Vec<FieldPath>,
}

/// The price of an offer for a request with these `extras`.
pub(super) fn price(offer: &Offer, summary: &RequestSummary, extras: RequestExtras) -> PricedRequest {
    // Without a price there is nothing to add; admission refuses such a model if money is limited.
    let Some(sale) = &offer.sale else { return PricedRequest { sale: None, unpriced: Vec::new() } };
    let mut unpriced: Vec<PriceEffect> = Vec::new();
    // A request that may be served by another model or provider has no known price.
    unpriced.extend((extras.other_routes && !sale.is_free()).then_some(PriceEffect::OtherRoutes));
    if !summary.method.generates() {
        return PricedRequest { sale: Some(sale.clone()), unpriced: fields_with(&unpriced, summary).collect() };
    }
    let (price, without_price) = if has_price_effect(extras) {
        let (price, without_price) = sale.with_extras(extras);
        (price.into(), without_price)
    } else {
        (sale.clone(), Vec::new())
    };
    let is_free = price.is_free();
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
    // If the caller demands a search, name the field that demands it: agents offer searches with every request, so the tool can stay.
    let searches_only = unpriced.iter().all(|effect| matches!(effect, PriceEffect::WebSearch | PriceEffect::FoundInput));
    let is_demanded = searches_only && extras.own_search && summary.offered_searches.is_empty() && !extras.server_tools;
    let named = |field: FieldPath| if is_demanded && field == "tools" { "tool_choice".to_owned() } else { field };
    PricedRequest { sale: Some(price), unpriced: fields_with(&unpriced, summary).map(named).chain(files).collect() }
}

/// True if an upstream that performs the search has a price for it, or if neither group nor key limits the cost of a request.
pub(super) fn has_known_cost(
    catalog: &Catalog,
    caller: &Caller,
    offer: &Offer,
    priced: &PricedRequest,
    (from, summary, extras): (Protocol, &RequestSummary, RequestExtras),
    now: Timestamp,
) -> bool {
    let group = &offer.group;
    if !group.never_below_cost && ![group.price_limit, caller.key.price_limit].iter().flatten().any(PriceLimit::is_about_cost) {
        return true;
    }
    let sale = priced.sale.as_deref().map(|price| (price, offer.sale_multiplier));
    offer.candidates.iter().any(|served| {
        let Some(channel) = catalog.channel_at(served.channel).filter(|channel| channel.speaks(from, ModelPurpose::Generation))
        else {
            return false;
        };
        let Ok(cost) = known_cost(channel, served.mapping as usize, now, (from, extras)) else { return false };
        let is_covered = |multiplier| {
            let cost = Some((&**cost, multiplier));
            below_cost::exclusion(sale, cost, estimate_input(summary), true).is_none()
        };
        !group.never_below_cost || channel.accounts.iter().any(|account| is_covered(account.spec.cost_multiplier))
    })
}

/// The fields of a request that can have one of these effects.
fn fields_with(effects: &[PriceEffect], summary: &RequestSummary) -> impl Iterator<Item = FieldPath> {
    let has = |field: &&FieldPath| price_effects(field).iter().any(|effect| effects.contains(effect));
    // Most requests have no such effect, and looking up each field would take as long as the rest of the offer.
    let fields = if effects.is_empty() { &[][..] } else { &summary.fields };
    fields.iter().filter(has).cloned()
}
