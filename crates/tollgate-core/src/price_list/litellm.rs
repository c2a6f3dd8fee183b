//! LiteLLM's `model_prices_and_context_window.json`: figures in USD per token, by name. An entry is imported completely or not at
//! all: if it charges for something that a price cannot express, it is skipped with the reason. Refinements of a kind that is
//! expressed (cached audio, service tiers with uneven factors) are left out with a note.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::{
    ListedPrice, MAX_PRICE_LIST_ROWS, PriceList, PriceListFault, SkippedPrice,
    figures::{FIGURES, figure},
    too_many_rows,
};
use crate::{Multiplier, Price, PriceTier};

/// Names of figures, and the corresponding kinds of a price.
const KINDS: [(&str, &str); 10] = [
    ("input_cost_per_token", "input"),
    ("output_cost_per_token", "output"),
    ("cache_read_input_token_cost", "cache_read"),
    ("input_cost_per_token_cache_hit", "cache_read"),
    ("cache_creation_input_token_cost", "cache_write"),
    ("cache_creation_input_token_cost_above_1hr", "cache_write_1h"),
    ("output_cost_per_reasoning_token", "thinking"),
    ("input_cost_per_image_token", "image"),
    ("input_cost_per_audio_token", "audio"),
    ("input_cost_per_request", "per_request"),
];
/// Figures that refine a kind. Without them their tokens are priced as the kind.
const REFINEMENTS: [&str; 4] = [
    "cache_read_input_audio_token_cost",
    "cache_read_input_image_token_cost",
    "cache_creation_input_audio_token_cost",
    "cache_creation_input_token_cost_above_12hr",
];
/// Figures of services that are not part of a request for tokens, or that the gateway does not offer.
const OTHER_SERVICES: [&str; 7] = [
    "google_maps_grounding_cost_per_query",
    "code_interpreter_cost_per_session",
    "file_search_cost_per_1k_calls",
    "file_search_cost_per_gb_per_day",
    "vector_store_cost_per_gb_per_day",
    "computer_use_input_cost_per_1k_tokens",
    "computer_use_output_cost_per_1k_tokens",
];
/// Output with a separate figure besides text; ignored if the figure is the same.
const APART_OUTPUT: [&str; 2] = ["output_cost_per_audio_token", "output_cost_per_image_token"];
/// Service levels for which a price has a factor.
const FACTORS: [&str; 2] = ["priority", "flex"];
/// Service levels that requests through the gateway cannot have.
const OTHER_LEVELS: [&str; 4] = ["batches", "balanced", "ultrafast", "decisions"];
const SEARCH: &str = "search_context_cost_per_query";
const TIERED: &str = "tiered_pricing";
/// Modes of models that are called by chat completions or embeddings.
const MODES: [&str; 4] = ["chat", "completion", "responses", "embedding"];

pub(super) fn read(text: &str) -> Result<PriceList, Vec<PriceListFault>> {
    let fault = |error: serde_json::Error| {
        let message = format!("no list of LiteLLM: {error}");
        vec![PriceListFault { line: error.line() as u64, column: error.column() as u64, message }]
    };
    let entries: Map<String, Value> = serde_json::from_str(text).map_err(fault)?;
    if entries.len() > MAX_PRICE_LIST_ROWS {
        return Err(vec![too_many_rows()]);
    }
    let mut list = PriceList::default();
    for (name, entry) in entries.iter().filter(|(name, _)| *name != "sample_spec") {
        let provider = entry["litellm_provider"].as_str().map(provider_name);
        let plain = provider.and_then(|provider| name.strip_prefix(provider)?.strip_prefix('/'));
        let (provider, model) = (provider.map(str::to_owned), plain.unwrap_or(name).to_owned());
        match read_entry(entry) {
            Ok((price, notes)) => list.entries.push(ListedPrice { provider, model, price, notes }),
            Err(reason) => list.skipped.push(SkippedPrice { provider, model, reason }),
        }
    }
    Ok(list)
}

/// `vertex_ai-language-models` and `cohere_chat` are parts of one provider.
fn provider_name(name: &str) -> &str {
    let name = name.split_once('-').map_or(name, |(provider, _)| provider);
    name.strip_suffix("_chat").unwrap_or(name)
}

/// The figures of an entry, in nano-USD per million tokens by tier (0: base), service level (empty: standard) and kind.
type FiguresByTier<'a> = BTreeMap<(u64, &'a str, &'static str), i64>;

fn read_entry(entry: &Value) -> Result<(Price, Vec<String>), String> {
    let members = entry.as_object().ok_or("it is no object")?;
    let mode = members.get("mode").and_then(Value::as_str);
    if let Some(mode) = mode.filter(|mode| !MODES.contains(mode)) {
        return Err(format!("the gateway does not serve the mode {mode}"));
    }
    let (mut figures, mut notes) = (FiguresByTier::new(), Vec::new());
    let mut web_search = None;
    for (key, value) in members {
        if value.is_null() || !(key.contains("cost") || key.contains("pricing")) {
            continue;
        }
        if key == SEARCH {
            web_search = search_price(value, &mut notes)?;
        } else if key == TIERED {
            tiered(value, &mut figures, &mut notes)?;
        } else {
            read_figure(key, value, members, &mut figures, &mut notes)?;
        }
    }
    let mut price = price_of(&figures, &mut notes);
    price.web_search = web_search;
    let embeds = mode == Some("embedding");
    if price.input.is_none() || (price.output.is_none() && !embeds) {
        return Err("it has no price per token".to_owned());
    }
    if embeds && price.output == Some(0) {
        price.output = None;
    }
    if (Price { web_search: None, ..price.clone() }).is_free() {
        return Err(
            "its price is 0, which LiteLLM also writes where a price is not known; set it by hand if the model is free".to_owned()
        );
    }
    Ok((price, notes))
}

fn read_figure<'a>(
    key: &'a str,
    value: &Value,
    members: &Map<String, Value>,
    figures: &mut FiguresByTier<'a>,
    notes: &mut Vec<String>,
) -> Result<(), String> {
    let (base, above, level) = parts(key);
    if OTHER_LEVELS.contains(&level) || OTHER_SERVICES.contains(&base) {
        return Ok(());
    }
    if APART_OUTPUT.contains(&base) && members.get("output_cost_per_token") == Some(value) {
        return Ok(());
    }
    let Some((_, kind)) = KINDS.iter().find(|(name, _)| *name == base) else {
        if REFINEMENTS.contains(&base) {
            if level.is_empty() && above == 0 {
                notes.push(format!("{key} is left out: these tokens count as others that are cached"));
            }
            return Ok(());
        }
        return Err(format!("a price cannot express {key}"));
    };
    if !level.is_empty() && !FACTORS.contains(&level) {
        return Err(format!("a price cannot express {key}"));
    }
    let shift = if *kind == "per_request" { 9 } else { 15 };
    let nano = nano_usd(key, value, shift, kind, notes)?;
    if let Some(other) = figures.insert((above, level, kind), nano).filter(|other| *other != nano) {
        return Err(format!("{key} and another name give two prices of {kind}: {nano} and {other} nano-USD"));
    }
    Ok(())
}

/// The name of a figure without its tier and service level, the tier's bound in tokens (0: base), and the level (empty: standard).
fn parts(key: &str) -> (&str, u64, &str) {
    let level =
        FACTORS.into_iter().chain(OTHER_LEVELS).find(|level| key.strip_suffix(level).is_some_and(|rest| rest.ends_with('_')));
    let rest = level.map_or(key, |level| &key[..key.len() - level.len() - 1]);
    let tier = rest.strip_suffix("k_tokens").and_then(|rest| {
        let (base, thousands) = rest.rsplit_once("_above_")?;
        Some((base, thousands.parse::<u64>().ok()?.checked_mul(1_000)?))
    });
    let (base, above) = tier.unwrap_or((rest, 0));
    (base, above, level.unwrap_or_default())
}

/// A figure times ten to the power of `shift`, rounded half up to a whole number; a note names a rounded figure.
fn nano_usd(key: &str, value: &Value, shift: i32, kind: &str, notes: &mut Vec<String>) -> Result<i64, String> {
    let number = value.as_f64().filter(|number| number.is_finite() && *number >= 0.0);
    let number = number.ok_or_else(|| format!("{key} is not a price: {value}"))?;
    // The shortest decimal that parses to this number is the figure written in the list.
    let text = format!("{number:e}");
    let (digits, rounded) = shifted(&text, shift).ok_or_else(|| format!("{key} is too large: {value}"))?;
    if figure(kind).is_some_and(|figure| digits > figure.max) {
        return Err(format!("{key} is too large: {value}"));
    }
    if rounded {
        notes.push(format!("{key} is rounded to whole nano-USD"));
    }
    Ok(digits)
}

/// A number such as `1.25e-6` times ten to the power of `shift`, rounded half up, and whether it was rounded.
fn shifted(text: &str, shift: i32) -> Option<(i64, bool)> {
    let (mantissa, exponent) = text.split_once('e')?;
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let digits: i128 = format!("{whole}{fraction}").parse().ok()?;
    let power = exponent.parse::<i32>().ok()? - i32::try_from(fraction.len()).ok()? + shift;
    if digits == 0 {
        return Some((0, false));
    }
    let scale = |power: i32| 10i128.checked_pow(power.unsigned_abs());
    if power >= 0 {
        return Some((i64::try_from(digits.checked_mul(scale(power)?)?).ok()?, false));
    }
    // Smaller than any digit that is kept.
    let Some(scale) = scale(power) else { return Some((0, true)) };
    let rounded = (digits + scale / 2).div_euclid(scale);
    Some((i64::try_from(rounded).ok()?, digits % scale != 0))
}

/// The price of a web search, if it does not depend on how much is searched.
fn search_price(value: &Value, notes: &mut Vec<String>) -> Result<Option<i64>, String> {
    let sizes = value.as_object().ok_or_else(|| format!("{SEARCH} is not a price: {value}"))?;
    let mut prices = Vec::new();
    for size in sizes.values() {
        prices.push(nano_usd(SEARCH, size, 9, "web_search", notes)?);
    }
    prices.dedup();
    if let [price] = prices[..] {
        return Ok(Some(price));
    }
    notes.push(format!("{SEARCH} is left out: it depends on the size of the search"));
    Ok(None)
}

/// Tiers as a list of ranges: `[{"range": [0, 32000], "input_cost_per_token": …}, …]`.
fn tiered<'a>(value: &'a Value, figures: &mut FiguresByTier<'a>, notes: &mut Vec<String>) -> Result<(), String> {
    let unknown = || format!("{TIERED} has an unknown shape");
    let mut next = 0;
    for tier in value.as_array().ok_or_else(unknown)? {
        let tier = tier.as_object().ok_or_else(unknown)?;
        let bound = |at: usize| {
            let bound = tier.get("range")?.as_array()?.get(at)?.as_f64()?;
            // Bounds are whole numbers of tokens, far below the largest integer that a 64-bit float holds exactly.
            format!("{bound}").parse::<u64>().ok()
        };
        let (from, to) = bound(0).zip(bound(1)).ok_or_else(unknown)?;
        if from != next || to <= from {
            return Err(format!("{TIERED} has a gap or an overlap at {from} tokens"));
        }
        next = to;
        for (key, value) in tier.iter().filter(|(key, _)| *key != "range") {
            let kind = KINDS.iter().find(|(name, _)| name == key).map(|(_, kind)| *kind);
            let kind = kind.ok_or_else(|| format!("a price cannot express {TIERED} with {key}"))?;
            let nano = nano_usd(key, value, 15, kind, notes)?;
            if figures.insert((from, "", kind), nano).is_some_and(|other| other != nano) {
                return Err(format!("{TIERED} and {key} give two prices of {kind}"));
            }
        }
    }
    Ok(())
}

fn price_of(figures: &FiguresByTier<'_>, notes: &mut Vec<String>) -> Price {
    let list = |above: u64| {
        let mut price = Price::default();
        for figure in FIGURES {
            if let Some(nano) = figures.get(&(above, "", figure.name)) {
                (figure.set)(&mut price, *nano);
            }
        }
        price
    };
    let mut bounds: Vec<u64> = figures.keys().filter(|(above, level, _)| *above > 0 && level.is_empty()).map(|key| key.0).collect();
    bounds.dedup();
    let tiers = bounds.into_iter().map(|above| PriceTier { above, price: list(above) }).collect();
    let mut price = Price { tiers, ..list(0) };
    let [priority, flex] = FACTORS.map(|level| factor(figures, level, notes));
    (price.priority, price.flex) = (priority, flex);
    price
}

/// The factor of a service level, if it is the same for every kind that has a price of this level.
fn factor(figures: &FiguresByTier<'_>, level: &str, notes: &mut Vec<String>) -> Option<Multiplier> {
    let of_level = || figures.iter().filter(|((_, of, _), _)| *of == level);
    let factors = of_level().map(|((above, _, kind), nano)| {
        let base = i128::from(*figures.get(&(*above, "", kind))?);
        let scaled = i128::from(*nano) * 1_000_000;
        (base > 0 && scaled % base == 0).then(|| i64::try_from(scaled / base).ok().map(Multiplier)).flatten()
    });
    let mut factors: Vec<Option<Multiplier>> = factors.collect();
    factors.dedup();
    match factors[..] {
        [] => None,
        [Some(factor)] => Some(factor),
        _ => {
            notes.push(format!("the service tier {level} is left out: its factor differs between kinds of tokens"));
            None
        }
    }
}

#[cfg(test)]
mod tests;
