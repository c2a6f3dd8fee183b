//! The price of a model: each entry of its schedule in a form of its own, and what its channels cost.

use std::sync::Arc;

use askama::Template;
use serde_json::{Map, Value, json};
use tollgate_core::MAX_PRICE_LIST_TIERS as MAX_TIERS;

use super::view::{CostRow, EntryRow, PricesObject, model_query};
use crate::{
    api_error::ApiError,
    dispatch::ApiCall,
    pages::{
        control::{ControlSection, Danger, FormView, check_typed_name, decimal},
        form::{FormData, FormState},
        format,
        layout::Layout,
        locale::Locale,
        operations,
        preferences::Toast,
        price_text::{self, KINDS},
        reply::{PageFailure, PageReply},
        request::{ApiPage, PageRequest, get, path_of},
    },
};

#[derive(Debug, Template)]
#[template(path = "pricing_model.html")]
struct ModelPricePage {
    layout: Layout,
    t: Locale,
    banner: Option<String>,
    query: String,
    form: FormView,
    danger: Option<Danger>,
    entries: Vec<EntryRow>,
    may_add: bool,
    /// Whether the price has no figure for output.
    has_no_output: bool,
    costs: Vec<CostRow>,
}

/// The prices of one model.
async fn read_prices(request: &PageRequest, model: &str) -> Result<PricesObject, ApiError> {
    if model.is_empty() {
        return Err(ApiError::no_path());
    }
    let found = request.read::<ApiPage<PricesObject>>(operations::LIST_PRICES, get(&[("model", model), ("limit", "1")])).await?;
    found.items.into_iter().next().ok_or_else(|| ApiError::not_found("model"))
}

pub(super) async fn show(request: Arc<PageRequest>) -> Result<PageReply, PageFailure> {
    let prices = read_prices(&request, request.query.value("model")).await?;
    let entries = price_text::entries(&prices.price);
    let now = crate::time::rfc3339(request.state.gateway.now());
    let in_force = price_text::in_force(&prices.price, &now);
    let chosen = match request.query.value("entry") {
        "new" => entries.len(),
        text => text.parse().unwrap_or_else(|_| entries.iter().position(|entry| Some(entry) == in_force).unwrap_or(0)),
    };
    let blank = json!({});
    let state = FormState::of(values(entries.get(chosen).unwrap_or(&blank), chosen, &prices));
    price_page(&request, &prices, &state)
}

fn price_page(request: &PageRequest, prices: &PricesObject, state: &FormState) -> Result<PageReply, PageFailure> {
    let t = request.t();
    let entries = price_text::entries(&prices.price);
    let chosen = state.value("entry").parse().unwrap_or(entries.len());
    let now = crate::time::rfc3339(request.state.gateway.now());
    let in_force = price_text::in_force(&prices.price, &now);
    let rows = entries.iter().enumerate().map(|(index, entry)| EntryRow {
        index,
        from: begin(entry).and_then(|at| format::beginning(t, at)),
        lines: price_text::lines(t, entry),
        is_in_force: Some(entry) == in_force,
        is_chosen: index == chosen,
    });
    let sections = sections(t, state, entries.get(chosen));
    let action = request.url(&format!("/pricing/model?{}&entry={chosen}", model_query(&prices.model)));
    let form = FormView::new(action, sections, t.say("form.save"))
        .hidden("model", &prices.model)
        .hidden("entry", state.value("entry"))
        .hidden("before", state.value("before"))
        .cancel(request.url("/pricing"));
    let danger = (!entries.is_empty()).then(|| {
        let about = t.say("pricing.remove_about").to_owned();
        let words = (t.say("pricing.remove"), about, t.say("pricing.remove"));
        Danger::new(t, state, request.url(&format!("/pricing/model/remove?{}", model_query(&prices.model))), words)
    });
    let template = ModelPricePage {
        layout: request.layout(prices.model.clone()).below("/pricing", t.say("nav.pricing")),
        t,
        banner: state.banner(),
        query: model_query(&prices.model),
        form,
        danger,
        may_add: chosen < entries.len(),
        entries: rows.collect(),
        has_no_output: prices.warning.is_some(),
        costs: prices.served_by.iter().map(|cost| CostRow::of(t, cost, &now)).collect(),
    };
    PageReply::page(state.status(), &template)
}

/// The time from which an entry is valid; none: always.
fn begin(entry: &Value) -> Option<&str> {
    entry["valid_from"].as_str()
}

/// The day of a time in RFC 3339, which the form shows.
fn day_of(at: &str) -> Option<&str> {
    at.get(..10)
}

/// The initial values of the form of an entry.
fn values(entry: &Value, index: usize, prices: &PricesObject) -> FormData {
    let mut pairs = vec![
        ("model".to_owned(), prices.model.clone()),
        ("entry".to_owned(), index.to_string()),
        ("before".to_owned(), prices.price.to_string()),
    ];
    let mut put = |name: String, value: &Value| {
        let text = match value {
            Value::String(text) => text.clone(),
            Value::Number(number) => number.to_string(),
            Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => return,
        };
        pairs.push((name, text));
    };
    for name in KINDS.into_iter().chain(["priority", "flex"]) {
        put(name.to_owned(), &entry[name]);
    }
    for (tier, price) in entry["tiers"].as_array().into_iter().flatten().enumerate() {
        for name in KINDS.into_iter().chain(["above"]) {
            put(format!("tier_{tier}_{name}"), &price[name]);
        }
    }
    let day = begin(entry).and_then(day_of).unwrap_or_default();
    pairs.push(("valid_from".to_owned(), day.to_owned()));
    pairs.push(("free".to_owned(), if entry["free"] == true { "true" } else { "" }.to_owned()));
    FormData::of_pairs(pairs)
}

/// Kinds of figures in the first part of the form.
const MAIN: usize = 4;

/// `held`: the entry as it is.
fn sections(t: Locale, state: &FormState, held: Option<&Value>) -> Vec<ControlSection> {
    let figure = |kind: &str| state.number(kind, price_text::label(t, kind));
    let mut main: Vec<_> = KINDS[..MAIN].iter().map(|kind| figure(kind)).collect();
    let hint = match held.and_then(begin).filter(|at| !format::is_midnight(at)).and_then(|at| format::time(t, at)) {
        Some(at) => t.say_with("pricing.valid_from_time", &[("time", &at.text)]),
        None => t.say("pricing.valid_from_hint").to_owned(),
    };
    main.push(state.typed("valid_from", t.say("pricing.valid_from"), "date").hint(hint));
    main.push(state.check("free", t.say("pricing.free")));
    let others = KINDS[MAIN..].iter().map(|kind| figure(kind)).collect();
    let factors = vec![
        state.number("priority", t.say("pricing.priority")).hint(t.say("pricing.factor_hint")),
        state.number("flex", t.say("pricing.flex")).hint(t.say("pricing.factor_hint")),
    ];
    let mut sections = vec![
        ControlSection::new("", main).about(t.say("pricing.per_million")),
        ControlSection::new(t.say("pricing.others"), others).about(t.say("pricing.others_about")).folded(),
        ControlSection::new(t.say("pricing.service_tiers"), factors).folded(),
    ];
    let tiers = (0..MAX_TIERS).filter(|tier| state.has(&format!("tier_{tier}_above"))).count();
    for tier in 0..(tiers + 1).min(MAX_TIERS) {
        let above = state.number(format!("tier_{tier}_above"), t.say("pricing.above")).hint(t.say("pricing.above_hint"));
        let mut controls = vec![above];
        controls.extend(KINDS.iter().map(|kind| state.number(format!("tier_{tier}_{kind}"), price_text::label(t, kind))));
        let title = if tier < tiers { t.say("pricing.tier") } else { t.say("pricing.new_tier") };
        sections.push(ControlSection::new(title, controls).folded());
    }
    sections
}

/// An entry of the schedule as the admin API takes it. The form has only the day of its time: one that is not changed keeps the time of
/// the held entry.
fn entry(form: &FormData, held: Option<&Value>) -> Result<Value, ApiError> {
    let mut entry = Map::new();
    if let Some(day) = form.filled("valid_from") {
        let kept = held.and_then(begin).filter(|at| day_of(at) == Some(day));
        entry.insert("valid_from".to_owned(), kept.map_or_else(|| format!("{day}T00:00:00Z"), str::to_owned).into());
    }
    if form.value("free") == "true" {
        entry.insert("free".to_owned(), true.into());
        return Ok(entry.into());
    }
    for name in KINDS.into_iter().chain(["priority", "flex"]) {
        entry.extend(form.filled(name).map(|value| (name.to_owned(), decimal(value).into())));
    }
    let mut tiers = Vec::new();
    for tier in 0..MAX_TIERS {
        let Some(above) = form.filled(&format!("tier_{tier}_above")) else { continue };
        let field = format!("tier_{tier}_above");
        let above: u64 =
            decimal(above).parse().map_err(|_| ApiError::value(&field, "expected a whole number").because("whole_number"))?;
        let mut price = Map::from_iter([("above".to_owned(), above.into())]);
        for kind in KINDS {
            price.extend(form.filled(&format!("tier_{tier}_{kind}")).map(|value| (kind.to_owned(), decimal(value).into())));
        }
        tiers.push(Value::Object(price));
    }
    if !tiers.is_empty() {
        entry.insert("tiers".to_owned(), tiers.into());
    }
    Ok(entry.into())
}

/// The schedule with an entry replaced, or one more, in the order of their times.
fn schedule(before: &Value, index: usize, entry: Value) -> Value {
    let mut entries = price_text::entries(before);
    match entries.get_mut(index) {
        Some(known) => *known = entry,
        None => entries.push(entry),
    }
    let from = |entry: &Value| entry["valid_from"].as_str().unwrap_or_default().to_owned();
    entries.sort_by_key(from);
    if entries.len() == 1 { entries.remove(0) } else { entries.into() }
}

pub(super) async fn save(request: Arc<PageRequest>) -> Result<PageReply, PageFailure> {
    let form = &request.form;
    let prices = read_prices(&request, form.value("model")).await?;
    let (index, held) = (form.value("entry").parse().unwrap_or(usize::MAX), prices.price.to_string());
    let entries = price_text::entries(&prices.price);
    let sent = match entry(form, entries.get(index)) {
        Ok(_) if form.value("before") != held => {
            Err(ApiError::conflict("revision_conflict", "The price was changed concurrently; load the page again."))
        }
        Ok(entry) => {
            let body = Map::from_iter([("price".to_owned(), schedule(&prices.price, index, entry))]);
            let call = ApiCall { body, path: path_of(&[("model", &prices.model)]), ..ApiCall::default() };
            request.call(operations::SET_PRICE, call).await
        }
        Err(error) => Err(error),
    };
    match sent {
        Ok(_) => {
            let to = request.url(&format!("/pricing/model?{}", model_query(&prices.model)));
            Ok(PageReply::redirect(&to).toast(Toast::Saved))
        }
        Err(error) => price_page(&request, &prices, &refused(request.t(), form, error)?),
    }
}

/// The fault beside the figure that it is about.
fn refused(t: Locale, form: &FormData, error: ApiError) -> Result<FormState, PageFailure> {
    let param = error.param().unwrap_or_default().to_owned();
    let field = field_of(&param);
    let reason = match field.rsplit('_').next() {
        Some("from") => "day",
        _ if matches!(field.as_str(), "priority" | "flex") => "factor",
        _ => "amount",
    };
    let known = form.has(&field) || KINDS.contains(&field.as_str());
    let error = if known && error.reason().is_none() { error.because(reason) } else { error };
    FormState::refused_at(t, form, &error, known.then_some(field.as_str()))
}

/// The field of a parameter such as `price[1].tiers[0].input`.
fn field_of(param: &str) -> String {
    let rest = param.strip_prefix("price").unwrap_or(param);
    let rest = if rest.starts_with('[') { rest.split_once(']').map_or("", |(_, rest)| rest) } else { rest };
    let rest = rest.trim_start_matches('.');
    match rest.strip_prefix("tiers[").and_then(|rest| rest.split_once("].")) {
        Some((tier, kind)) => format!("tier_{tier}_{kind}"),
        None => rest.to_owned(),
    }
}

pub(super) async fn remove(request: Arc<PageRequest>) -> Result<PageReply, PageFailure> {
    let prices = read_prices(&request, request.query.value("model")).await?;
    let removed = match check_typed_name(&request.form, &prices.model) {
        Ok(()) => {
            let body = Map::from_iter([("price".to_owned(), Value::Null)]);
            let call = ApiCall { body, path: path_of(&[("model", &prices.model)]), ..ApiCall::default() };
            request.call(operations::SET_PRICE, call).await
        }
        Err(error) => Err(error),
    };
    match removed {
        Ok(_) => Ok(PageReply::redirect(&request.url("/pricing")).toast(Toast::Removed)),
        Err(error) => {
            let entries = price_text::entries(&prices.price);
            let held = values(entries.first().unwrap_or(&Value::Null), 0, &prices);
            let both = held.pairs().chain(request.form.pairs()).map(|(name, value)| (name.to_owned(), value.to_owned()));
            let form = FormData::of_pairs(both.collect());
            price_page(&request, &prices, &refused(request.t(), &form, error)?)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn form_becomes_an_entry_of_the_schedule() {
        let form = FormData::parse(
            b"input=%241.50&output=&cache_read=0.1&valid_from=2030-01-01&priority=2&tier_0_above=200,000&tier_0_input=3&tier_1_above=",
        );
        let expected = json!({
            "valid_from": "2030-01-01T00:00:00Z", "input": "1.50", "cache_read": "0.1", "priority": "2",
            "tiers": [{"above": 200_000, "input": "3"}],
        });
        assert_eq!(entry(&form, None).unwrap(), expected);
        assert_eq!(entry(&FormData::parse(b"free=true&input=1"), None).unwrap(), json!({"free": true}));
        assert_eq!(entry(&FormData::parse(b"tier_0_above=many"), None).unwrap_err().param(), Some("tier_0_above"));
    }

    #[test]
    fn time_of_an_entry_is_kept_unless_its_day_is_changed() {
        let held = json!({"input": "1", "valid_from": "2030-01-01T08:00:00Z"});
        let begins = |form: &[u8]| entry(&FormData::parse(form), Some(&held)).unwrap()["valid_from"].clone();
        assert_eq!(begins(b"input=2&valid_from=2030-01-01"), "2030-01-01T08:00:00Z");
        assert_eq!(begins(b"free=true&valid_from=2030-01-01"), "2030-01-01T08:00:00Z");
        assert_eq!(begins(b"input=2&valid_from=2030-01-02"), "2030-01-02T00:00:00Z");
        assert_eq!(begins(b"input=2&valid_from="), Value::Null);
    }

    /// The price of `model` with this number of tiers.
    fn with_tiers(count: u64) -> PricesObject {
        let tiers: Vec<Value> = (1..=count).map(|above| json!({"above": above, "input": above.to_string()})).collect();
        let prices = json!({
            "model": "m", "price": {"input": "1", "tiers": tiers}, "warning": null, "source": null, "imported_at": null,
            "sale_multiplier": "1", "served_by": [],
        });
        serde_json::from_value(prices).unwrap()
    }

    #[test]
    fn form_shows_as_many_tiers_as_a_price_may_have() {
        let full = with_tiers(16);
        let form = values(&full.price, 0, &full);
        assert_eq!(entry(&form, Some(&full.price)).unwrap(), full.price);
        assert_eq!(sections(Locale::EN, &FormState::of(form), Some(&full.price)).len(), 3 + 16);
        // Fields beyond the bound of a form would not be sent, and their tiers would be lost.
        assert!(values(&full.price, 0, &full).pairs().count() + 16 * KINDS.len() < 256);
    }

    #[test]
    fn other_schedule_entries_are_kept_and_sorted_by_time() {
        let before = json!([{"input": "1"}, {"valid_from": "2030-01-01T00:00:00Z", "input": "2"}]);
        let changed = schedule(&before, 0, json!({"input": "9"}));
        assert_eq!(changed, json!([{"input": "9"}, {"valid_from": "2030-01-01T00:00:00Z", "input": "2"}]));
        let more = schedule(&json!({"valid_from": "2031-01-01T00:00:00Z", "input": "3"}), 1, json!({"input": "1"}));
        assert_eq!(more[0], json!({"input": "1"}));
        assert_eq!(schedule(&Value::Null, 0, json!({"input": "1"})), json!({"input": "1"}));
    }

    #[test]
    fn error_paths_map_to_form_fields() {
        for (param, field) in [
            ("price.input", "input"),
            ("price[1].output", "output"),
            ("price[1].tiers[2].cache_read", "tier_2_cache_read"),
            ("price.tiers[0].above", "tier_0_above"),
            ("model", "model"),
        ] {
            assert_eq!(field_of(param), field, "{param}");
        }
    }
}
