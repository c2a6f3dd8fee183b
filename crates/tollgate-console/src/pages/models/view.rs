//! Data of the cards, tables and pages of models.

use serde_json::Value;

use super::{
    capability::Capabilities,
    document::{ModelOffer, SquareDocument, SquareEntry, SquareFigures},
    unit::TokenUnit,
};
use crate::pages::{
    format::{self, TimeText},
    locale::Locale,
    money::Amount,
    price_text, protocols,
};

/// A price of one kind of token, after the multiplier and before it if that differs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PriceText {
    pub(crate) label: &'static str,
    pub(crate) price: Amount,
    pub(crate) base: Option<Amount>,
}

/// The state of an offer: mark, word, and until when.
#[derive(Clone, Debug)]
pub(crate) struct StateText {
    pub(crate) tone: &'static str,
    pub(crate) icon: &'static str,
    pub(crate) word: &'static str,
    pub(crate) since: Option<TimeText>,
    pub(crate) until: Option<TimeText>,
}

/// Availability over a period: figures, and a strip with a cell for each span of time.
#[derive(Debug)]
pub(crate) struct Availability {
    pub(crate) share: Option<String>,
    pub(crate) first_content: Option<String>,
    pub(crate) first_content_p95: Option<String>,
    pub(crate) speed: Option<String>,
    pub(crate) cells: Vec<StripCell>,
    pub(crate) width: usize,
    pub(crate) label: String,
}

/// A cell of a strip. Its height shows the same as its colour.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct StripCell {
    pub(crate) x: usize,
    pub(crate) y: u8,
    pub(crate) height: u8,
    pub(crate) class: &'static str,
}

#[derive(Debug)]
pub(crate) struct ModelCard {
    pub(crate) id: String,
    /// The name as a path.
    pub(crate) link: String,
    pub(crate) title: Option<String>,
    pub(crate) vendor: Option<String>,
    pub(crate) initial: String,
    pub(crate) description: Option<String>,
    pub(crate) prices: Vec<PriceText>,
    /// The same as the columns of the table, those that are missing included.
    pub(crate) columns: Vec<(&'static str, Option<PriceText>)>,
    pub(crate) is_priced: bool,
    pub(crate) is_free: bool,
    /// Tone and label of each tag.
    pub(crate) tags: Vec<(&'static str, &'static str)>,
    pub(crate) protocols: Vec<(&'static str, &'static str)>,
    pub(crate) capabilities: Vec<&'static str>,
    pub(crate) context: Option<String>,
    pub(crate) max_output: Option<String>,
    pub(crate) state: StateText,
    pub(crate) day: Availability,
}

/// Facts of a model's page: label, text, exact text.
#[derive(Debug)]
pub(crate) struct ModelFacts {
    pub(crate) rows: Vec<(&'static str, String, String)>,
}

/// The price of a model in a group.
#[derive(Debug)]
pub(crate) struct OfferRow {
    pub(crate) group: String,
    /// What the group is for.
    pub(crate) about_group: Option<String>,
    pub(crate) multiplier: String,
    pub(crate) is_chosen: bool,
    pub(crate) is_priced: bool,
    pub(crate) is_free: bool,
    pub(crate) prices: Vec<PriceText>,
    pub(crate) tiers: Vec<TierRow>,
}

/// Prices of long prompts.
#[derive(Debug)]
pub(crate) struct TierRow {
    pub(crate) above: String,
    pub(crate) prices: Vec<PriceText>,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ParameterRow {
    pub(crate) names: Vec<String>,
    pub(crate) protocol: &'static str,
    pub(crate) tone: &'static str,
    pub(crate) icon: &'static str,
    pub(crate) word: &'static str,
}

pub(crate) const CELL: usize = 4;

impl Availability {
    /// Whether any cell had enough requests to show its availability.
    pub(crate) fn has_cells(&self) -> bool {
        self.cells.iter().any(|cell| cell.class != "idle")
    }
}

pub(crate) fn availability(t: Locale, figures: &SquareFigures) -> Availability {
    let cell = |(index, share): (usize, &Option<f64>)| {
        let (class, y, height) = match share {
            None => ("idle", 14, 2),
            Some(share) if *share >= 0.99 => ("up", 5, 11),
            Some(share) if *share >= 0.9 => ("part", 2, 14),
            Some(_) => ("down", 0, 16),
        };
        StripCell { x: index * CELL, y, height, class }
    };
    let share = figures.availability.map(format::percent);
    let label = match &share {
        Some(share) => t.say_with("availability.sentence", &[("share", share)]),
        None => t.say("availability.unknown").to_owned(),
    };
    let times = figures.first_content_ms.as_ref();
    Availability {
        share,
        first_content: times.map(|times| format::percentile_ms(t, times.p50)),
        first_content_p95: times.map(|times| format::percentile_ms(t, times.p95)),
        speed: figures.output_tokens_per_s.map(|speed| t.say_with("unit.tokens_per_s", &[("speed", &format!("{speed:.0}"))])),
        cells: figures.buckets.iter().enumerate().map(cell).collect(),
        width: (figures.buckets.len() * CELL).saturating_sub(1).max(1),
        label,
    }
}

pub(crate) fn state(t: Locale, offer: &ModelOffer) -> StateText {
    let (tone, icon, word) = match offer.state.now.as_str() {
        "available" => ("ok", "okc", t.say("state.available")),
        "degraded" => ("warn", "warn", t.say("state.degraded")),
        "unavailable" => ("bad", "badc", t.say("state.unavailable")),
        _ => ("off", "minus", t.say("state.unknown")),
    };
    let time = |at: &Option<String>| at.as_deref().and_then(|at| format::time(t, at));
    StateText { tone, icon, word, since: time(&offer.state.since), until: time(&offer.state.until) }
}

/// Kinds of tokens that every card shows.
const MAIN: [&str; 3] = ["input", "output", "cache_read"];
/// The other kinds, in the order of the price table.
const OTHERS: [&str; 8] =
    ["cache_write", "cache_write_1h", "thinking", "image", "audio", "per_request", "web_search", "server_tools"];

fn prices(t: Locale, unit: TokenUnit, price: &Value, base: &Value, kinds: &[&str]) -> Vec<PriceText> {
    let text = |kind: &&str| {
        let price = price[*kind].as_str()?;
        let base = base[*kind].as_str().filter(|base| *base != price);
        Some(PriceText {
            label: price_text::known_label(t, kind)?,
            price: unit.show(t, kind, price),
            base: base.map(|base| unit.show(t, kind, base)),
        })
    };
    kinds.iter().filter_map(text).collect()
}

impl ModelCard {
    /// `None` if the group does not offer the model.
    pub(crate) fn of(
        (t, unit): (Locale, TokenUnit),
        model: &SquareEntry,
        group: Option<&str>,
        capabilities: &Capabilities,
    ) -> Option<Self> {
        let offer = model.offer(group)?;
        let protocol = |offered: &super::document::SquareProtocol| {
            (protocols::tone(&offered.protocol), protocols::label(t, &offered.protocol))
        };
        let vendor = model.vendor.clone();
        let column =
            |kind: &'static str| (price_text::label(t, kind), prices(t, unit, &offer.price, &offer.base_price, &[kind]).pop());
        Some(Self {
            columns: MAIN.map(column).into(),
            link: path_of_name(&model.id),
            title: model.display_name.clone().filter(|name| *name != model.id),
            initial: vendor.as_ref().unwrap_or(&model.id).chars().next().map(|c| c.to_uppercase().to_string()).unwrap_or_default(),
            vendor,
            description: model.description.clone(),
            prices: prices(t, unit, &offer.price, &offer.base_price, &MAIN),
            is_priced: !offer.price.is_null(),
            is_free: offer.price["free"] == true,
            tags: model.tags.iter().map(|word| tag(t, word)).collect(),
            protocols: offer.protocols.iter().map(protocol).collect(),
            capabilities: capabilities.all(offer).map(|capability| capability.label(t)).collect(),
            context: model.context.map(|context| format::tokens(t, context)),
            max_output: model.max_output.map(|max| format::tokens(t, max)),
            state: state(t, offer),
            day: availability(t, &offer.day),
            id: model.id.clone(),
        })
    }
}

/// Tone and label of a tag.
pub(super) fn tag(t: Locale, word: &str) -> (&'static str, &'static str) {
    match word {
        "new" => ("ok", t.say("tag.new")),
        "deprecated" => ("warn", t.say("tag.deprecated")),
        _ => ("info", t.say("tag.limited")),
    }
}

/// A model's name as the end of a path: its slashes stay.
pub(crate) fn path_of_name(name: &str) -> String {
    let mut path = String::new();
    for byte in name.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~/:@".contains(&byte) {
            path.push(char::from(byte));
        } else {
            path.extend(url::form_urlencoded::byte_serialize(&[byte]).map(|encoded| if encoded == "+" { "%20" } else { encoded }));
        }
    }
    path
}

impl ModelFacts {
    pub(crate) fn of(t: Locale, model: &SquareEntry) -> Self {
        let mut facts = Vec::new();
        let mut add = |label: &'static str, text: Option<(String, String)>| {
            facts.extend(text.map(|(text, exact)| (label, text, exact)));
        };
        let tokens = |count: Option<u64>| count.map(|count| (format::tokens(t, count), format::integer(count)));
        let plain = |text: Option<String>| text.map(|text| (text, String::new()));
        let modalities = |known: &Option<Vec<String>>| {
            known.as_ref().map(|known| known.iter().map(|word| modality(t, word)).collect::<Vec<_>>().join(t.say("list.separator")))
        };
        add(t.say("facet.vendor"), plain(model.vendor.clone()));
        add(t.say("model.context"), tokens(model.context));
        add(t.say("model.max_output"), tokens(model.max_output));
        add(t.say("model.reads"), plain(modalities(&model.input_modalities)));
        add(t.say("model.writes"), plain(modalities(&model.output_modalities)));
        let added = model.added_at.as_deref().and_then(|at| format::date(t, at)).map(|at| at.text);
        add(t.say("model.added"), plain(added));
        Self { rows: facts }
    }
}

fn modality(t: Locale, word: &str) -> &'static str {
    match word {
        "image" => t.say("modality.image"),
        "audio" => t.say("modality.audio"),
        "video" => t.say("modality.video"),
        "document" => t.say("modality.document"),
        _ => t.say("modality.text"),
    }
}

impl OfferRow {
    pub(crate) fn of((t, unit): (Locale, TokenUnit), document: &SquareDocument, offer: &ModelOffer, is_chosen: bool) -> Self {
        let kinds: Vec<&str> = MAIN.into_iter().chain(OTHERS).collect();
        let tier = |(index, tier): (usize, &Value)| TierRow {
            above: t.say_with("price.above", &[("tokens", &format::integer(tier["above"].as_u64().unwrap_or(0)))]),
            prices: prices(t, unit, tier, &offer.base_price["tiers"][index], &kinds),
        };
        let tiers = offer.price["tiers"].as_array();
        Self {
            group: offer.group.clone(),
            about_group: document.groups.iter().find(|group| group.name == offer.group).and_then(|group| group.description.clone()),
            multiplier: offer.multiplier.clone(),
            is_chosen,
            is_priced: !offer.price.is_null(),
            is_free: offer.price["free"] == true,
            prices: prices(t, unit, &offer.price, &offer.base_price, &kinds),
            tiers: tiers.into_iter().flatten().enumerate().map(tier).collect(),
        }
    }
}

/// The parameters of an offer by protocol and by what happens to them, refused ones first.
pub(crate) fn parameters(t: Locale, document: &SquareDocument, offer: &ModelOffer) -> Vec<ParameterRow> {
    let mut rows = Vec::new();
    for offered in &offer.protocols {
        let Some(set) = document.parameter_sets.iter().find(|set| set.id == offered.parameters) else { continue };
        let protocol = protocols::label(t, &offered.protocol);
        let parts = |names: &[String]| names.iter().cloned().partition::<Vec<_>, _>(|name| set.partly.contains(name));
        let ((dropped_partly, dropped), (supported_partly, supported)) = (parts(&set.dropped), parts(&set.supported));
        for (names, tone, icon, word) in [
            (set.unsupported.clone(), "bad", "out", t.say("parameter.refused")),
            (dropped, "warn", "minus", t.say("parameter.dropped")),
            (dropped_partly, "warn", "minus", t.say("parameter.dropped_partly")),
            (supported_partly, "ok", "okc", t.say("parameter.supported_partly")),
            (supported, "ok", "okc", t.say("parameter.supported")),
        ] {
            if !names.is_empty() {
                rows.push(ParameterRow { names, protocol, tone, icon, word });
            }
        }
    }
    rows
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn base_price_is_shown_where_the_multiplier_changes_it() {
        let price = json!({"input": "2.16", "output": "12", "cache_read": null});
        let base = json!({"input": "2.4", "output": "12"});
        let shown = prices(Locale::EN, TokenUnit::Million, &price, &base, &MAIN);
        let shown: Vec<_> =
            shown.iter().map(|text| (text.price.text.as_str(), text.base.as_ref().map(|base| base.text.as_str()))).collect();
        assert_eq!(shown, [("$2.16", Some("$2.40")), ("$12.00", None)]);
        assert!(
            prices(Locale::EN, TokenUnit::Million, &Value::Null, &Value::Null, &MAIN).is_empty(),
            "a model without a price differs from a free one"
        );
    }

    #[test]
    fn availability_strip_distinguishes_no_traffic_from_failures() {
        let figures: SquareFigures = serde_json::from_value(json!({
            "availability": null, "first_content_ms": null, "output_tokens_per_s": null, "buckets": [null, 1.0, 0.95, 0.2],
        }))
        .unwrap();
        let strip = availability(Locale::EN, &figures);
        assert_eq!(strip.cells.iter().map(|cell| cell.class).collect::<Vec<_>>(), ["idle", "up", "part", "down"]);
        assert_eq!((strip.width, strip.cells[3].x, strip.share), (15, 12, None));
    }

    #[test]
    fn parameters_supported_by_some_channels_are_listed_separately() {
        let document: SquareDocument = serde_json::from_value(json!({
            "groups": [], "data": [], "parameter_sets": [{
                "id": "p1", "supported": ["seed", "tools"], "dropped": ["metadata", "user"], "unsupported": ["n"],
                "partly": ["seed", "metadata"],
            }],
        }))
        .unwrap();
        let offer = serde_json::from_value(super::super::document::example_offer()).unwrap();
        let rows: Vec<_> =
            parameters(Locale::EN, &document, &offer).into_iter().map(|row| (row.word, row.names.join(" "))).collect();
        let expected = [
            ("Refused", "n"),
            ("Left out", "user"),
            ("Left out on some channels", "metadata"),
            ("Supported on some channels", "seed"),
            ("Supported", "tools"),
        ];
        assert_eq!(rows, expected.map(|(word, names)| (word, names.to_owned())));
    }

    #[test]
    fn model_names_are_percent_encoded_in_paths() {
        assert_eq!(path_of_name("openai/gpt-x:free"), "openai/gpt-x:free");
        assert_eq!(path_of_name("a b?\"<script>#/../ü"), "a%20b%3F%22%3Cscript%3E%23/../%C3%BC");
    }
}
