//! The criteria of the model square with their options, and how many models have each.

use tollgate_protocol::Protocol;

use super::{Found, MAX_PRICES, SquareFilter, costs_at_most, is_free, reads};
use crate::pages::{
    format,
    locale::Locale,
    models::{
        capability::{Capabilities, Capability},
        document::SquareEntry,
        view::tag,
    },
    protocols,
};

/// A criterion with its options.
#[derive(Debug)]
pub(crate) struct Facet {
    pub(crate) title: &'static str,
    pub(crate) kind: &'static str,
    pub(crate) name: &'static str,
    pub(crate) options: Vec<FacetOption>,
}

#[derive(Debug)]
pub(crate) struct FacetOption {
    pub(crate) value: String,
    pub(crate) label: String,
    pub(crate) count: usize,
    pub(crate) is_chosen: bool,
}

const TAGS: [&str; 3] = ["new", "deprecated", "limited"];
/// Context lengths to choose from; 0: any.
const MIN_CONTEXTS: [u64; 4] = [0, 128_000, 200_000, 1_000_000];

/// The models that are counted.
struct Offered<'a>(Vec<Found<'a>>);

impl Offered<'_> {
    fn option(&self, value: &str, label: &str, is_chosen: bool, has: impl Fn(Found<'_>) -> bool) -> FacetOption {
        let count = self.0.iter().filter(|found| has(**found)).count();
        FacetOption { value: value.to_owned(), label: label.to_owned(), count, is_chosen }
    }
}

fn facet(title: &'static str, kind: &'static str, name: &'static str, options: Vec<FacetOption>) -> Facet {
    Facet { title, kind, name, options }
}

fn is_among(chosen: &[String], value: &str) -> bool {
    chosen.iter().any(|known| known == value)
}

impl SquareFilter {
    /// The criteria in which the models differ; each option has the number of matching models.
    pub(crate) fn facets(&self, t: Locale, all: &[&SquareEntry], group: Option<&str>, known: &Capabilities) -> Vec<Facet> {
        let offered = Offered(all.iter().filter_map(|model| Some((*model, model.offer(group)?))).collect());
        let mut facets = self.kinds(t, &offered, known);
        facets.extend(self.bounds(t, &offered));
        facets.retain(|facet| facet.options.iter().any(|option| option.count > 0 || option.is_chosen));
        facets
    }

    /// Of which several can be chosen.
    fn kinds(&self, t: Locale, offered: &Offered<'_>, known: &Capabilities) -> Vec<Facet> {
        let mut vendors: Vec<&str> = offered.0.iter().filter_map(|(model, _)| model.vendor.as_deref()).collect();
        vendors.sort_unstable();
        vendors.dedup();
        let vendor = |vendor: &&str| {
            offered.option(vendor, vendor, is_among(&self.vendors, vendor), |(model, _)| model.vendor.as_deref() == Some(*vendor))
        };
        let protocol = |word: &str| {
            let label = protocols::label(t, word);
            offered.option(word, label, is_among(&self.protocols, word), |(_, offer)| offer.has_protocol(word))
        };
        let capability = |capability: Capability| {
            let is_chosen = is_among(&self.capabilities, capability.word());
            offered.option(capability.word(), capability.label(t), is_chosen, |(_, offer)| known.has(offer, capability))
        };
        let input = |(word, label): (&str, &'static str)| {
            offered.option(word, label, is_among(&self.inputs, word), |(model, _)| reads(model, word))
        };
        let inputs = [("image", t.say("modality.image")), ("audio", t.say("modality.audio")), ("video", t.say("modality.video"))];
        let marked = |word: &str| {
            let has = |(model, _): Found<'_>| model.tags.iter().any(|known| known == word);
            offered.option(word, tag(t, word).1, is_among(&self.tags, word), has)
        };
        vec![
            facet(t.say("facet.vendor"), "checkbox", "vendor", vendors.iter().map(vendor).collect()),
            facet(t.say("facet.protocol"), "checkbox", "protocol", Protocol::WORDS.map(protocol).into()),
            facet(t.say("facet.capability"), "checkbox", "can", Capability::ALL.map(capability).into()),
            facet(t.say("facet.input"), "checkbox", "input", inputs.map(input).into()),
            facet(t.say("facet.tag"), "checkbox", "tag", TAGS.map(marked).into()),
        ]
    }

    /// Of which one is chosen.
    fn bounds(&self, t: Locale, offered: &Offered<'_>) -> Vec<Facet> {
        let price = |most: u64| {
            let text = most.to_string();
            let label =
                if most == 0 { t.say("facet.any").to_owned() } else { format!("≤ {}", self.unit.show(t, "input", &text).text) };
            offered.option(&text, &label, self.max_price == most, |(_, offer)| costs_at_most(offer, most))
        };
        let context = |least: u64| {
            let label = if least == 0 { t.say("facet.any").to_owned() } else { format!("≥ {}", format::compact(t, least)) };
            let is_chosen = self.min_context == least;
            offered.option(&least.to_string(), &label, is_chosen, |(model, _)| model.context.unwrap_or(0) >= least)
        };
        let usable = offered.option("1", t.say("state.usable"), self.is_available, |(_, offer)| offer.state.now != "unavailable");
        let free = offered.option("1", t.say("price.free"), self.is_free, |(_, offer)| is_free(offer));
        vec![
            facet(t.say("facet.price"), "radio", "price", MAX_PRICES.map(price).into()),
            facet(t.say("facet.free"), "checkbox", "free", vec![free]),
            facet(t.say("facet.context"), "radio", "context", MIN_CONTEXTS.map(context).into()),
            facet(t.say("facet.available"), "checkbox", "available", vec![usable]),
        ]
    }
}
