//! Prices of the admin API as pages show them: one figure for each kind of token.

use serde_json::Value;
use tollgate_core::{Multiplier, ScheduledPrice};
use tollgate_store::fields::FieldValue as _;

use super::{format, locale::Locale};

/// A figure of a price.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PriceFigure {
    pub(crate) label: &'static str,
    pub(crate) amount: String,
}

/// Kinds of figures, in the order of forms and lists.
pub(crate) const KINDS: [&str; 12] = [
    "input",
    "output",
    "cache_read",
    "cache_write",
    "cache_write_1h",
    "thinking",
    "image",
    "audio",
    "per_request",
    "web_search",
    "server_tools",
    "output_media",
];

/// The words for a kind of figures; `None` for an unknown kind.
pub(crate) fn known_label(t: Locale, kind: &str) -> Option<&'static str> {
    let label = match kind {
        "input" => t.say("price.input"),
        "output" => t.say("price.output"),
        "cache_read" => t.say("price.cache_read"),
        "cache_write" => t.say("price.cache_write"),
        "cache_write_1h" => t.say("price.cache_write_1h"),
        "thinking" => t.say("price.thinking"),
        "image" => t.say("price.image"),
        "audio" => t.say("price.audio"),
        // The router says `request`.
        "per_request" | "request" => t.say("price.per_request"),
        "web_search" => t.say("price.web_search"),
        "server_tools" => t.say("price.server_tools"),
        "output_media" => t.say("pricing.output_media"),
        _ => return None,
    };
    Some(label)
}

/// The words for a kind of figures, or the kind itself.
pub(crate) fn label(t: Locale, kind: &str) -> &str {
    known_label(t, kind).unwrap_or(kind)
}

/// The entry of a schedule that is in force, or the price itself. Entries are in the order of their times.
pub(crate) fn in_force<'a>(schedule: &'a Value, now: &str) -> Option<&'a Value> {
    let has_begun = |entry: &&Value| entry["valid_from"].as_str().is_none_or(|from| is_before(from, now));
    match schedule.as_array() {
        Some(entries) => entries.iter().rev().find(has_begun),
        None => Some(schedule).filter(|one| one.is_object()).filter(has_begun),
    }
}

fn is_before(one: &str, other: &str) -> bool {
    match (one.parse::<jiff::Timestamp>(), other.parse::<jiff::Timestamp>()) {
        (Ok(one), Ok(other)) => one <= other,
        _ => false,
    }
}

/// Whether a time is later than another.
pub(crate) fn is_after(one: &str, other: &str) -> bool {
    match (one.parse::<jiff::Timestamp>(), other.parse::<jiff::Timestamp>()) {
        (Ok(one), Ok(other)) => one > other,
        _ => false,
    }
}

fn lines_of(t: Locale, price: &Value, kinds: &[&str]) -> Vec<PriceFigure> {
    if price["free"] == true {
        return vec![PriceFigure { label: t.say("price.free"), amount: String::new() }];
    }
    let line = |kind: &&str| Some(PriceFigure { label: known_label(t, kind)?, amount: format::usd(price[*kind].as_str()?) });
    kinds.iter().filter_map(line).collect()
}

/// Every figure that a price has.
pub(crate) fn lines(t: Locale, price: &Value) -> Vec<PriceFigure> {
    lines_of(t, price, &KINDS)
}

/// The figures that people compare: input and output, else the first ones there are.
pub(crate) fn main_lines(t: Locale, price: &Value) -> Vec<PriceFigure> {
    let main = lines_of(t, price, &["input", "output"]);
    if main.is_empty() { lines(t, price).into_iter().take(2).collect() } else { main }
}

/// A figure compared with that of another price.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ComparedFigure {
    pub(crate) label: &'static str,
    pub(crate) amount: String,
    pub(crate) is_changed: bool,
    /// Whether only the other price has this figure.
    pub(crate) is_missing: bool,
}

/// The figures of a price, with those that differ from the other one and those that are only there.
pub(crate) fn compared(t: Locale, price: &Value, other: &Value) -> Vec<ComparedFigure> {
    let (ours, theirs) = (lines(t, price), lines(t, other));
    let is_same = |figure: &PriceFigure| theirs.contains(figure);
    let own = ours.iter().map(|figure| ComparedFigure {
        label: figure.label,
        amount: figure.amount.clone(),
        is_changed: !is_same(figure),
        is_missing: false,
    });
    // Free excludes other figures.
    let is_free = price["free"] == true || other["free"] == true;
    let is_there = |figure: &&PriceFigure| is_free || ours.iter().any(|our| our.label == figure.label);
    let gone = theirs.iter().filter(|figure| !is_there(figure)).map(|figure| ComparedFigure {
        label: figure.label,
        amount: figure.amount.clone(),
        is_changed: true,
        is_missing: true,
    });
    own.chain(gone).collect()
}

/// A price in one line.
pub(crate) fn sentence(t: Locale, price: &Value) -> String {
    if price.is_null() {
        return t.say("price.none").to_owned();
    }
    if price["free"] == true {
        return t.say("price.free").to_owned();
    }
    let lines: Vec<String> = lines(t, price).into_iter().map(|line| format!("{} {}", line.label, line.amount)).collect();
    lines.join(t.say("list.separator"))
}

/// A price after a factor; itself if it cannot be read.
pub(crate) fn times(price: &Value, factor: &str) -> Value {
    let read = ScheduledPrice::read(price).ok().zip(Multiplier::read(&factor.into()).ok());
    let times = |(scheduled, factor): (ScheduledPrice, Multiplier)| {
        let price = scheduled.price.times(factor).into();
        ScheduledPrice { price, ..scheduled }
    };
    read.map_or_else(|| price.clone(), |read| times(read).show())
}

/// Entries of a schedule: itself if it is one price.
pub(crate) fn entries(schedule: &Value) -> Vec<Value> {
    match schedule.as_array() {
        Some(entries) => entries.clone(),
        None if schedule.is_null() => Vec::new(),
        None => vec![schedule.clone()],
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn entry_in_force_is_the_last_that_has_begun() {
        let schedule = json!([{"input": "1"}, {"valid_from": "2030-01-01T00:00:00Z", "input": "2"}]);
        assert_eq!(in_force(&schedule, "2029-12-31T23:59:59Z").unwrap()["input"], "1");
        assert_eq!(in_force(&schedule, "2030-01-01T00:00:00Z").unwrap()["input"], "2");
        assert_eq!(in_force(&json!({"input": "3"}), "2030-01-01T00:00:00Z").unwrap()["input"], "3");
        assert_eq!(in_force(&Value::Null, "2030-01-01T00:00:00Z"), None);
    }

    #[test]
    fn factor_applies_to_every_figure() {
        let price = times(&json!({"input": "1", "output": "2.5"}), "0.5");
        assert_eq!((&price["input"], &price["output"]), (&json!("0.50"), &json!("1.25")));
    }

    #[test]
    fn price_sentence_names_the_figures_that_are_set() {
        assert_eq!(sentence(Locale::EN, &json!({"input": "1", "output": "2.5"})), "Input $1.00, Output $2.50");
        assert_eq!(sentence(Locale::EN, &Value::Null), "Not priced");
        assert_eq!(sentence(Locale::EN, &json!({"free": true})), "Free");
        assert_eq!(main_lines(Locale::EN, &json!({"per_request": "0.01"})).len(), 1);
    }
}
