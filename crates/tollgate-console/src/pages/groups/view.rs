//! Groups as the admin API answers them, and as pages show them.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

use crate::pages::{
    budgets,
    format::{self, TimeText},
    locale::Locale,
    money,
    price_text::{self, PriceFigure},
};

/// A group of the admin API.
#[derive(Debug, Deserialize)]
pub(super) struct GroupObject {
    pub(super) id: String,
    pub(super) name: String,
    pub(super) owner: String,
    pub(super) revision: u64,
    pub(super) created_at: String,
    pub(super) description: Option<String>,
    pub(super) visibility: String,
    pub(super) channels: Vec<String>,
    pub(super) models: Vec<String>,
    pub(super) sale_multiplier: String,
    /// Of models, by name or pattern.
    pub(super) model_multipliers: BTreeMap<String, String>,
    pub(super) translation: String,
    pub(super) stream_break: String,
    pub(super) price_limit: Option<PriceLimitObject>,
    pub(super) never_below_cost: bool,
    pub(super) routing: String,
    pub(super) hedge: Value,
    pub(super) trace: bool,
    pub(super) log_contents: bool,
    pub(super) self_service: bool,
    pub(super) rpm: u64,
    pub(super) tpm: u64,
    pub(super) concurrency: u64,
    pub(super) budget: Value,
    /// Only in the list, like the following fields.
    #[serde(default)]
    pub(super) member_count: Option<u64>,
    #[serde(default)]
    pub(super) key_count: Option<u64>,
    #[serde(default)]
    pub(super) default_key_count: Option<u64>,
    #[serde(default)]
    pub(super) model_count: Option<u64>,
}

#[derive(Debug, Default, Deserialize)]
pub(in crate::pages) struct PriceLimitObject {
    pub(in crate::pages) mode: String,
    #[serde(default)]
    pub(in crate::pages) max_input: Option<String>,
    #[serde(default)]
    pub(in crate::pages) max_output: Option<String>,
    #[serde(default)]
    pub(in crate::pages) min_margin: Option<String>,
    #[serde(default)]
    pub(in crate::pages) on: Option<String>,
}

/// Sums of usage.
#[derive(Debug, Deserialize)]
pub(super) struct GroupSpent {
    pub(super) of: String,
    pub(super) requests: u64,
    pub(super) sale: String,
}

#[derive(Debug)]
pub(super) struct GroupRow {
    pub(super) id: String,
    pub(super) name: String,
    pub(super) description: Option<String>,
    /// Whether new members have it by default.
    pub(super) is_default: bool,
    pub(super) is_public: bool,
    /// Members who were granted it; `None`: not known.
    pub(super) members: Option<String>,
    /// Keys that name it.
    pub(super) keys: Option<String>,
    /// Keys that have it because they name none.
    pub(super) default_keys: Option<String>,
    /// How many models it offers.
    pub(super) offered: Option<String>,
    pub(super) channel_count: String,
    pub(super) channels: String,
    /// Number of names and patterns of models.
    pub(super) patterns: String,
    /// Names and patterns; empty for all models.
    pub(super) models: String,
    pub(super) multiplier: String,
    /// Number of names and patterns with another multiplier.
    pub(super) exceptions: Option<String>,
    pub(super) price_limit: Vec<String>,
    /// The first limits and budgets.
    pub(super) limits: Vec<String>,
    /// The others, and their number.
    pub(super) more_limits: Option<(String, Vec<String>)>,
    pub(super) spent: String,
    pub(super) spent_exact: String,
    pub(super) requests: String,
}

/// Limits that a row of the list shows at once. One more is shown too, because it takes no more space than the number
/// would.
const SHOWN_LIMITS: usize = 2;

/// The first limits, and the others with their number.
fn split_limits(t: Locale, mut limits: Vec<String>) -> (Vec<String>, Option<(String, Vec<String>)>) {
    if limits.len() <= SHOWN_LIMITS + 1 {
        return (limits, None);
    }
    let more = limits.split_off(SHOWN_LIMITS);
    let label = t.say_with("groups.more_limits", &[("count", &more.len().to_string())]);
    (limits, Some((label, more)))
}

/// Limits and budgets, one on a line; empty without any.
pub(super) fn limits(t: Locale, group: &GroupObject) -> Vec<String> {
    let mut lines = budgets::limit_lines(t, (group.rpm, group.tpm, group.concurrency));
    lines.extend(budgets::lines(t, &group.budget));
    lines
}

/// The conditions of a price limit, one bound on a line.
pub(in crate::pages) fn price_limit_lines(t: Locale, limit: &PriceLimitObject) -> Vec<String> {
    match limit.mode.as_str() {
        "ceiling" => {
            let input =
                limit.max_input.as_deref().map(|price| t.say_with("groups.input_at_most", &[("price", &format::usd(price))]));
            let output =
                limit.max_output.as_deref().map(|price| t.say_with("groups.output_at_most", &[("price", &format::usd(price))]));
            input.into_iter().chain(output).collect()
        }
        "min_margin" => {
            let margin = limit.min_margin.as_deref().and_then(|margin| margin.parse::<f64>().ok()).unwrap_or(0.0);
            vec![t.say_with("groups.margin_is", &[("margin", &format::percent(margin))])]
        }
        _ => vec![t.say("groups.priced_only").to_owned()],
    }
}

fn exceptions(t: Locale, group: &GroupObject) -> Option<String> {
    let count = group.model_multipliers.len();
    (count > 0).then(|| t.say_count("groups.exception", "groups.exceptions", u64::try_from(count).unwrap_or(u64::MAX)))
}

impl GroupRow {
    pub(super) fn of(t: Locale, group: &GroupObject, spent: Option<&GroupSpent>, is_default: bool) -> Self {
        let sale = spent.map_or("0", |spent| spent.sale.as_str());
        let count = |names: &[String]| format::integer(u64::try_from(names.len()).unwrap_or(u64::MAX));
        let has_all_models = group.models.iter().all(|pattern| pattern == "*");
        let (limits, more_limits) = split_limits(t, limits(t, group));
        Self {
            is_default,
            id: group.id.clone(),
            name: group.name.clone(),
            description: group.description.clone(),
            is_public: group.visibility == "public",
            members: group.member_count.map(format::integer),
            keys: group.key_count.map(format::integer),
            default_keys: group
                .default_key_count
                .filter(|count| *count > 0)
                .map(|count| t.say_with("groups.by_default", &[("count", &format::integer(count))])),
            offered: group.model_count.map(|count| t.say_count("groups.model", "groups.model_count", count)),
            channel_count: count(&group.channels),
            channels: group.channels.join(t.say("list.separator")),
            patterns: t.say_count("groups.pattern", "groups.patterns", u64::try_from(group.models.len()).unwrap_or(u64::MAX)),
            models: if has_all_models { String::new() } else { group.models.join(t.say("list.separator")) },
            multiplier: group.sale_multiplier.clone(),
            exceptions: exceptions(t, group),
            price_limit: group.price_limit.as_ref().map(|limit| price_limit_lines(t, limit)).unwrap_or_default(),
            limits,
            more_limits,
            spent: money::short(t, sale).text,
            spent_exact: format::usd(sale),
            requests: format::integer(spent.map_or(0, |spent| spent.requests)),
        }
    }
}

/// The facts beside the form of a group.
#[derive(Debug)]
pub(super) struct GroupDetail {
    pub(super) id: String,
    pub(super) is_of_file: bool,
    pub(super) created: Option<TimeText>,
    pub(super) spent: String,
    pub(super) spent_exact: String,
    pub(super) requests: String,
}

impl GroupDetail {
    pub(super) fn of(t: Locale, group: &GroupObject, spent: Option<&GroupSpent>) -> Self {
        let sale = spent.map_or("0", |spent| spent.sale.as_str());
        Self {
            id: group.id.clone(),
            is_of_file: group.owner == "file",
            created: format::time(t, &group.created_at),
            spent: money::short(t, sale).text,
            spent_exact: format::usd(sale),
            requests: format::integer(spent.map_or(0, |spent| spent.requests)),
        }
    }
}

#[derive(Debug, Deserialize)]
pub(super) struct OfferAnswer {
    model: String,
    channels: Vec<String>,
    listed: bool,
    price: Value,
}

/// A model that a group would offer.
#[derive(Debug)]
pub(super) struct GroupOfferRow {
    pub(super) model: String,
    pub(super) channels: String,
    pub(super) is_listed: bool,
    pub(super) is_priced: bool,
    pub(super) price: Vec<PriceFigure>,
}

impl GroupOfferRow {
    pub(super) fn of(t: Locale, offer: OfferAnswer) -> Self {
        Self {
            channels: offer.channels.join(t.say("list.separator")),
            model: offer.model,
            is_listed: offer.listed,
            is_priced: !offer.price.is_null(),
            price: price_text::main_lines(t, &offer.price),
        }
    }
}

#[derive(Debug, Deserialize)]
pub(super) struct EffectsAnswer {
    #[serde(default)]
    pub(super) effects: Vec<EffectObject>,
}

/// A model whose accounts a price limit would exclude.
#[derive(Debug, Deserialize)]
pub(super) struct EffectObject {
    subject: String,
    name: String,
    model: String,
    nothing_left: bool,
    excluded: Vec<ExcludedObject>,
}

#[derive(Debug, Deserialize)]
struct ExcludedObject {
    channel: String,
    account: Option<String>,
    code: String,
    detail: Option<String>,
}

#[derive(Debug)]
pub(super) struct EffectRow {
    pub(super) model: String,
    pub(super) subject: String,
    pub(super) nothing_left: bool,
    pub(super) excluded: Vec<String>,
}

impl EffectRow {
    pub(super) fn of(t: Locale, effect: &EffectObject) -> Self {
        let subject = match effect.subject.as_str() {
            "key" => t.say_with("home.budget_of_key", &[("key", &effect.name)]),
            _ => effect.name.clone(),
        };
        let excluded = effect.excluded.iter().map(|it| {
            let account = it.account.as_deref().map(|account| format!(" / {account}")).unwrap_or_default();
            format!("{}{account}: {} {}", it.channel, it.code, it.detail.as_deref().unwrap_or_default())
        });
        Self { model: effect.model.clone(), subject, nothing_left: effect.nothing_left, excluded: excluded.collect() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn further_limits_of_a_group_are_folded() {
        let split = |count: usize| split_limits(Locale::EN, (0..count).map(|limit| limit.to_string()).collect());
        assert_eq!((split(0), split(3).0.len(), split(3).1), ((Vec::new(), None), 3, None));
        let (shown, more) = split(10);
        let (label, more) = more.unwrap();
        assert_eq!((shown.len(), label.as_str(), more.len(), more[0].as_str()), (2, "8 more", 8, "2"));
    }

    #[test]
    fn price_limits_are_described_in_words() {
        let limit = |json: &str| price_limit_lines(Locale::EN, &serde_json::from_str(json).unwrap());
        assert_eq!(limit(r#"{"mode":"ceiling","max_input":"1.5"}"#), ["input ≤ $1.50 per 1M"]);
        let both = limit(r#"{"mode":"ceiling","max_input":"1.5","max_output":"6"}"#);
        assert_eq!(both, ["input ≤ $1.50 per 1M", "output ≤ $6.00 per 1M"]);
        assert_eq!(limit(r#"{"mode":"min_margin","min_margin":"0.2"}"#), ["margin of at least 20.00 %"]);
        assert_eq!(limit(r#"{"mode":"priced_only"}"#), ["priced models only"]);
    }
}
