//! Filter and sort order of the model square. All of it is in the address.

mod facets;

use std::cmp::Ordering;

use tollgate_core::NanoUsd;
use url::form_urlencoded::Serializer;

use super::{
    capability::{Capabilities, Capability},
    document::{ModelOffer, SquareEntry},
    unit::TokenUnit,
};
use crate::pages::{form::FormData, locale::Locale};
pub(crate) use facets::Facet;

/// Prices per million input tokens to choose from, in USD; 0: any.
const MAX_PRICES: [u64; 4] = [0, 1, 5, 20];
/// Longest text of a search.
const MAX_SEARCH: usize = 200;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SquareSort {
    Popular,
    Price,
    Context,
    Newest,
    Fastest,
    Name,
}

impl SquareSort {
    pub(crate) const ALL: [Self; 6] = [Self::Popular, Self::Price, Self::Context, Self::Newest, Self::Fastest, Self::Name];

    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Popular => "popular",
            Self::Price => "price",
            Self::Context => "context",
            Self::Newest => "newest",
            Self::Fastest => "fastest",
            Self::Name => "name",
        }
    }

    fn label(self, t: Locale) -> &'static str {
        match self {
            Self::Popular => t.say("sort.popular"),
            Self::Price => t.say("sort.price"),
            Self::Context => t.say("sort.context"),
            Self::Newest => t.say("sort.newest"),
            Self::Fastest => t.say("sort.fastest"),
            Self::Name => t.say("sort.name"),
        }
    }
}

#[derive(Clone, Debug)]
pub(crate) struct SquareFilter {
    pub(crate) search: String,
    /// Empty: the first group that offers each model.
    pub(crate) group: String,
    vendors: Vec<String>,
    protocols: Vec<String>,
    inputs: Vec<String>,
    capabilities: Vec<String>,
    tags: Vec<String>,
    is_available: bool,
    is_free: bool,
    min_context: u64,
    /// Most USD per million input tokens; 0: any.
    max_price: u64,
    pub(crate) unit: TokenUnit,
    pub(crate) sort: SquareSort,
    pub(crate) is_table: bool,
}

/// A model with the offer whose price is shown.
type Found<'a> = (&'a SquareEntry, &'a ModelOffer);

impl SquareFilter {
    pub(crate) fn of(query: &FormData, unit: TokenUnit) -> Self {
        let all = |name: &str| query.all(name).filter(|value| !value.is_empty()).map(str::to_owned).collect::<Vec<_>>();
        Self {
            search: query.value("q").trim().chars().take(MAX_SEARCH).collect(),
            group: query.value("group").to_owned(),
            vendors: all("vendor"),
            protocols: all("protocol"),
            inputs: all("input"),
            capabilities: all("can"),
            tags: all("tag"),
            is_available: query.value("available") == "1",
            is_free: query.value("free") == "1",
            min_context: query.value("context").parse().unwrap_or(0),
            max_price: query.value("price").parse().unwrap_or(0),
            unit,
            sort: SquareSort::ALL.into_iter().find(|sort| sort.as_str() == query.value("sort")).unwrap_or(SquareSort::Popular),
            is_table: query.value("view") == "table",
        }
    }

    /// Whether the filter leaves anything out.
    pub(crate) fn is_set(&self) -> bool {
        !self.search.is_empty()
            || !self.vendors.is_empty()
            || !self.protocols.is_empty()
            || !self.inputs.is_empty()
            || !self.capabilities.is_empty()
            || !self.tags.is_empty()
            || self.max_price > 0
            || self.is_available
            || self.is_free
            || self.min_context > 0
    }

    /// The query of the same list as cards or as a table.
    pub(crate) fn query_of_view(&self, view: &str) -> String {
        self.query(view, None)
    }

    /// The query of the same list.
    pub(crate) fn query_of_list(&self) -> String {
        self.query(if self.is_table { "table" } else { "cards" }, None)
    }

    /// The query of the same list with prices for another number of tokens.
    pub(crate) fn query_of_unit(&self, unit: TokenUnit) -> String {
        self.query(if self.is_table { "table" } else { "cards" }, Some(unit))
    }

    fn query(&self, view: &str, unit: Option<TokenUnit>) -> String {
        let mut query = Serializer::new(String::new());
        for (name, value) in [("q", &self.search), ("group", &self.group)] {
            if !value.is_empty() {
                query.append_pair(name, value);
            }
        }
        for (name, values) in [
            ("vendor", &self.vendors),
            ("protocol", &self.protocols),
            ("input", &self.inputs),
            ("can", &self.capabilities),
            ("tag", &self.tags),
        ] {
            query.extend_pairs(values.iter().map(|value| (name, value)));
        }
        for (name, is_set) in [("available", self.is_available), ("free", self.is_free)] {
            if is_set {
                query.append_pair(name, "1");
            }
        }
        if self.min_context > 0 {
            query.append_pair("context", &self.min_context.to_string());
        }
        if self.max_price > 0 {
            query.append_pair("price", &self.max_price.to_string());
        }
        query.append_pair("sort", self.sort.as_str()).append_pair("view", view);
        query.extend_pairs(unit.map(|unit| ("unit", unit.word())));
        query.finish()
    }

    pub(crate) fn sorts(&self, t: Locale) -> Vec<(&'static str, &'static str, bool)> {
        SquareSort::ALL.into_iter().map(|sort| (sort.as_str(), sort.label(t), sort == self.sort)).collect()
    }

    fn matches(&self, (model, offer): Found<'_>, known: &Capabilities) -> bool {
        self.matches_search(model)
            && (self.vendors.is_empty() || model.vendor.as_ref().is_some_and(|vendor| self.vendors.contains(vendor)))
            && self.protocols.iter().all(|protocol| offer.has_protocol(protocol))
            && self.inputs.iter().all(|input| reads(model, input))
            && self.capabilities.iter().all(|word| can(offer, word, known))
            && (self.tags.is_empty() || self.tags.iter().any(|tag| model.tags.contains(tag)))
            && costs_at_most(offer, self.max_price)
            && (!self.is_available || offer.state.now != "unavailable")
            && (!self.is_free || is_free(offer))
            && model.context.unwrap_or(0) >= self.min_context
    }

    fn matches_search(&self, model: &SquareEntry) -> bool {
        let search = self.search.to_lowercase();
        let texts = [Some(&model.id), model.display_name.as_ref(), model.vendor.as_ref(), model.description.as_ref()];
        search.split_whitespace().all(|word| texts.iter().flatten().any(|text| text.to_lowercase().contains(word)))
    }

    /// The models that match, in order.
    pub(crate) fn select<'a>(&self, all: &[&'a SquareEntry], group: Option<&str>, known: &Capabilities) -> Vec<&'a SquareEntry> {
        let offered = all.iter().filter_map(|model| Some((*model, model.offer(group)?)));
        let mut found: Vec<Found<'a>> = offered.filter(|found| self.matches(*found, known)).collect();
        found.sort_by(|one, other| self.compare(*one, *other).then_with(|| one.0.id.cmp(&other.0.id)));
        found.into_iter().map(|(model, _)| model).collect()
    }

    fn compare(&self, (one, one_offer): Found<'_>, (other, other_offer): Found<'_>) -> Ordering {
        // Models without the figure come last.
        match self.sort {
            SquareSort::Popular => known_first(one.popularity, other.popularity),
            SquareSort::Price => known_first(input_price(one_offer), input_price(other_offer)),
            SquareSort::Context => other.context.cmp(&one.context),
            SquareSort::Newest => other.added_at.cmp(&one.added_at),
            SquareSort::Fastest => {
                let speed = |offer: &ModelOffer| offer.day.output_tokens_per_s.unwrap_or(-1.0);
                speed(other_offer).total_cmp(&speed(one_offer))
            }
            SquareSort::Name => Ordering::Equal,
        }
    }
}

fn reads(model: &SquareEntry, modality: &str) -> bool {
    model.input_modalities.as_ref().is_some_and(|known| known.iter().any(|known| known == modality))
}

fn can(offer: &ModelOffer, word: &str, known: &Capabilities) -> bool {
    Capability::ALL.into_iter().any(|capability| capability.word() == word && known.has(offer, capability))
}

/// Whether the price per million input tokens is at most so many USD; 0: any, models without a price included.
fn costs_at_most(offer: &ModelOffer, most: u64) -> bool {
    let most_nano = i64::try_from(most).unwrap_or(i64::MAX).saturating_mul(1_000_000_000);
    most == 0 || input_price(offer).is_some_and(|price| price <= most_nano)
}

fn is_free(offer: &ModelOffer) -> bool {
    offer.price["free"] == true
}

/// The price per million input tokens; a free model costs nothing.
fn input_price(offer: &ModelOffer) -> Option<i64> {
    if is_free(offer) {
        return Some(0);
    }
    NanoUsd::parse(offer.price["input"].as_str()?).ok().map(|price| price.0)
}

fn known_first<T: Ord>(one: Option<T>, other: Option<T>) -> Ordering {
    match (one, other) {
        (Some(one), Some(other)) => one.cmp(&other),
        (one, other) => other.is_some().cmp(&one.is_some()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::pages::models::document::example_offer;

    fn model(id: &str, vendor: &str, price: &str, context: u64) -> SquareEntry {
        let mut offer = example_offer();
        offer["price"] = if price == "free" { json!({"free": true}) } else { json!({"input": price}) };
        serde_json::from_value(json!({
            "id": id, "display_name": null, "vendor": vendor, "description": "Fast <b>and</b> small", "context": context,
            "max_output": null, "input_modalities": ["text", "image"], "output_modalities": null, "added_at": null,
            "tags": if id == "a" { json!(["new", "limited"]) } else { json!([]) },
            "popularity": null, "groups": [offer],
        }))
        .unwrap()
    }

    fn select(query: &str) -> Vec<String> {
        let models = [model("b", "Two", "3", 8_000), model("a", "One", "10", 200_000), model("c", "One", "free", 1_000_000)];
        let filter = SquareFilter::of(&FormData::parse(query.as_bytes()), TokenUnit::Million);
        filter
            .select(&models.iter().collect::<Vec<_>>(), None, &Capabilities::default())
            .into_iter()
            .map(|model| model.id.clone())
            .collect()
    }

    #[test]
    fn models_are_filtered_and_sorted_by_the_query() {
        assert_eq!(select(""), ["a", "b", "c"]);
        assert_eq!(select("sort=price"), ["c", "b", "a"]);
        assert_eq!(select("sort=context"), ["c", "a", "b"]);
        assert_eq!(select("vendor=One"), ["a", "c"]);
        assert_eq!(select("vendor=One&context=1000000"), ["c"]);
        assert_eq!(select("free=1"), ["c"]);
        assert_eq!(select("price=5"), ["b", "c"]);
        assert_eq!(select("can=tools"), Vec::<String>::new());
        assert_eq!(select("tag=new&tag=deprecated"), ["a"], "one of them is enough");
        assert_eq!(select("tag=deprecated"), Vec::<String>::new());
        assert_eq!(select("q=small+two"), ["b"]);
        assert_eq!(select("input=audio"), Vec::<String>::new());
        assert_eq!(select("protocol=openai&protocol=gemini"), Vec::<String>::new());
        assert_eq!(select("sort=%00&context=-1&group=unknown"), ["a", "b", "c"], "unknown values change nothing");
    }

    #[test]
    fn filter_options_have_counts_and_the_view_link_keeps_the_filters() {
        let models = [model("b", "Two", "3", 8_000), model("a", "One", "10", 200_000)];
        let filter = SquareFilter::of(&FormData::parse(b"vendor=One&q=a+b&available=1"), TokenUnit::Million);
        let facets = filter.facets(Locale::EN, &models.iter().collect::<Vec<_>>(), None, &Capabilities::default());
        let vendors: Vec<_> =
            facets[0].options.iter().map(|option| (option.label.as_str(), option.count, option.is_chosen)).collect();
        assert_eq!(vendors, [("One", 1, true), ("Two", 1, false)]);
        assert!(!facets.iter().any(|facet| facet.name == "free"), "no model has it");
        assert_eq!(filter.query_of_view("table"), "q=a+b&vendor=One&available=1&sort=popular&view=table");
    }
}
