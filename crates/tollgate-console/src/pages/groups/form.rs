//! The form of a group.

use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::view::GroupObject;
use crate::{
    api_error::ApiError,
    pages::{
        budgets,
        control::{self, ControlSection, FaultPlace, decimal, limit_or_text, limit_text, names},
        form::{FormData, FormState},
        locale::Locale,
        reply::PageFailure,
    },
};

/// Channels that can be chosen with a click; the names of more are typed.
const MAX_CHECKS: usize = 60;
/// Longest text of the factors of models, in characters.
const MAX_FACTORS: usize = 30_000;

/// Longest description, in characters.
const MAX_DESCRIPTION: usize = 200;

/// The fields beside which faults are shown.
const PLACES: &[FaultPlace] = &[
    ("name", "name", "name"),
    ("already_exists", "name", "exists"),
    ("description", "description", "group_description"),
    ("channels", "channels", "unknown_channel"),
    ("models", "models", "model_pattern"),
    ("sale_multiplier", "sale_multiplier", "factor"),
    ("model_multipliers", "model_multipliers", "model_factors"),
    ("price_limit.max_input", "max_input", "amount"),
    ("price_limit.max_output", "max_output", "amount"),
    ("price_limit.min_margin", "min_margin", "margin"),
    ("price_limit", "price_limit", "price_limit"),
    ("price_limit_kind", "price_limit", "price_limit_kind"),
    ("hedge", "hedge", "amount"),
    ("rpm", "rpm", "limit"),
    ("tpm", "tpm", "limit"),
    ("concurrency", "concurrency", "limit"),
    ("nothing_left", "confirm", "nothing_left"),
    ("typed_name", "typed_name", "typed_name"),
];

const FLAGS: [&str; 4] = ["never_below_cost", "trace", "log_contents", "self_service"];

pub(super) fn refused(t: Locale, form: &FormData, error: ApiError) -> Result<FormState, PageFailure> {
    control::refused(t, form, error, PLACES)
}

/// The initial values for a new group.
pub(super) fn defaults() -> FormData {
    FormData::of(&[
        ("visibility", "public"),
        ("models", "*"),
        ("sale_multiplier", "1"),
        ("limit_on", "sale"),
        ("routing", "weighted"),
        ("translation", "strict"),
        ("stream_break", "delivered"),
    ])
}

/// The initial values for an existing group.
pub(super) fn values(group: &GroupObject) -> FormData {
    let mut pairs: Vec<(String, String)> = Vec::new();
    let mut put = |name: &str, value: &str| pairs.push((name.to_owned(), value.to_owned()));
    put("description", group.description.as_deref().unwrap_or_default());
    put("visibility", &group.visibility);
    for channel in &group.channels {
        put("channels", channel);
    }
    put("models", &group.models.join("\n"));
    put("sale_multiplier", &group.sale_multiplier);
    let own = group.model_multipliers.iter().map(|(pattern, factor)| format!("{pattern}: {factor}"));
    put("model_multipliers", &own.collect::<Vec<_>>().join("\n"));
    let limit = group.price_limit.as_ref();
    let bound = |text: Option<&String>| text.cloned().unwrap_or_default();
    put("price_limit", limit.map_or("", |limit| &limit.mode));
    put("limit_on", limit.and_then(|limit| limit.on.as_deref()).unwrap_or("sale"));
    put("max_input", &bound(limit.and_then(|limit| limit.max_input.as_ref())));
    put("max_output", &bound(limit.and_then(|limit| limit.max_output.as_ref())));
    put("min_margin", &bound(limit.and_then(|limit| limit.min_margin.as_ref())));
    for (name, limit) in [("rpm", group.rpm), ("tpm", group.tpm), ("concurrency", group.concurrency)] {
        put(name, &limit_text(limit));
    }
    for (field, amount) in budgets::values(&group.budget) {
        put(field, &amount);
    }
    put("routing", &group.routing);
    put("translation", &group.translation);
    put("stream_break", &group.stream_break);
    put("hedge", group.hedge["cost_cap"].as_str().unwrap_or_default());
    for (name, is_on) in FLAGS.into_iter().zip([group.never_below_cost, group.trace, group.log_contents, group.self_service]) {
        put(name, if is_on { "true" } else { "" });
    }
    FormData::of_pairs(pairs)
}

/// A channel that a group can have.
#[derive(Debug, Deserialize)]
pub(super) struct OfferableChannel {
    name: String,
    tags: Vec<String>,
}

/// The field with the tags whose channels are chosen when the form is sent.
pub(super) const TAGS: &str = "channel_tags";

/// The form with the channels of the chosen tags among its channels.
pub(super) fn with_tagged(form: &FormData, channels: &[OfferableChannel]) -> FormData {
    let is_tagged = |channel: &&OfferableChannel| form.all(TAGS).any(|wanted| channel.tags.iter().any(|tag| tag == wanted));
    let known: Vec<&str> = form.all("channels").flat_map(|sent| sent.split(['\n', '\r'])).map(str::trim).collect();
    let added = channels.iter().filter(is_tagged).filter(|channel| !known.contains(&channel.name.as_str()));
    let added = added.map(|channel| ("channels".to_owned(), channel.name.clone()));
    let kept = form.pairs().filter(|(name, _)| *name != TAGS).map(|(name, value)| (name.to_owned(), value.to_owned()));
    FormData::of_pairs(kept.chain(added).collect())
}

pub(super) fn sections(
    t: Locale,
    state: &FormState,
    group: Option<&GroupObject>,
    channels: &[OfferableChannel],
) -> Vec<ControlSection> {
    let mut basics = Vec::new();
    if group.is_none() {
        basics.push(state.text("name", t.say("keys.name")).hint(t.say("groups.name_hint")).max(100).required().focus());
    }
    let description = state.text("description", t.say("groups.description")).hint(t.say("groups.description_hint"));
    basics.push(description.max(MAX_DESCRIPTION).wide());
    let visibility = [("public", t.say("groups.public")), ("private", t.say("groups.private"))];
    basics.push(state.choice("visibility", t.say("groups.visibility"), visibility).hint(t.say("groups.visibility_hint")));
    let mut sections = vec![ControlSection::new("", basics), offered(t, state, channels), prices(t, state)];
    sections.push(limits(t, state));
    sections.push(behaviour(t, state));
    if state.fault("confirm").is_some() || state.has("confirm") {
        let confirm = state.check("confirm", t.say("groups.confirm")).wide();
        sections.insert(0, ControlSection::new(t.say("groups.confirm_title"), vec![confirm]));
    }
    sections
}

fn offered(t: Locale, state: &FormState, channels: &[OfferableChannel]) -> ControlSection {
    let of_group = if channels.len() <= MAX_CHECKS {
        let names = channels.iter().map(|channel| (channel.name.as_str(), channel.name.as_str()));
        state.checks("channels", t.say("groups.channels"), names)
    } else {
        let typed = FormState::of(FormData::of(&[("channels", &state.all("channels").collect::<Vec<_>>().join("\n"))]));
        typed.area("channels", t.say("groups.channels"), 4)
    };
    let models = state.area("models", t.say("groups.models"), 4).hint(t.say("groups.models_hint"));
    let mut tags: Vec<&str> = channels.iter().flat_map(|channel| &channel.tags).map(String::as_str).collect();
    tags.sort_unstable();
    tags.dedup();
    // Most gateways have no tags.
    let of_tags = (!tags.is_empty()).then(|| {
        let tags = tags.into_iter().map(|tag| (tag, tag));
        state.checks(TAGS, t.say("groups.channel_tags"), tags).hint(t.say("groups.channel_tags_hint"))
    });
    let controls = std::iter::once(of_group).chain(of_tags).chain([models]);
    ControlSection::new(t.say("groups.offered"), controls.collect())
}

fn prices(t: Locale, state: &FormState) -> ControlSection {
    let modes = [
        ("", t.say("groups.no_limit")),
        ("priced_only", t.say("groups.priced_only")),
        ("ceiling", t.say("groups.ceiling")),
        ("min_margin", t.say("groups.min_margin")),
    ];
    let on = [("sale", t.say("groups.on_sale")), ("cost", t.say("groups.on_cost"))];
    let controls = vec![
        state.number("sale_multiplier", t.say("groups.multiplier")).hint(t.say("groups.multiplier_hint")),
        state
            .area("model_multipliers", t.say("groups.model_multipliers"), 3)
            .max(MAX_FACTORS)
            .hint(t.say("groups.model_multipliers_hint")),
        state.choice("price_limit", t.say("groups.price_limit"), modes).hint(t.say("groups.price_limit_hint")),
        state.number("max_input", t.say("groups.max_input")).hint(t.say("groups.per_million")),
        state.number("max_output", t.say("groups.max_output")).hint(t.say("groups.per_million")),
        state.number("min_margin", t.say("groups.min_margin_share")).hint(t.say("groups.min_margin_hint")),
        state.choice("limit_on", t.say("groups.limit_on"), on),
        state.check("never_below_cost", t.say("groups.never_below_cost")).hint(t.say("groups.never_below_cost_hint")).wide(),
    ];
    ControlSection::new(t.say("groups.prices"), controls)
}

fn limits(t: Locale, state: &FormState) -> ControlSection {
    let controls = vec![
        state.number("rpm", t.say("keys.rpm")).hint(t.say("keys.unlimited_hint")),
        state.number("tpm", t.say("keys.tpm")).hint(t.say("keys.unlimited_hint")),
        state.number("concurrency", t.say("keys.concurrency")).hint(t.say("keys.unlimited_hint")),
        budgets::control(t, state),
    ];
    ControlSection::new(t.say("groups.limits"), controls).folded()
}

fn behaviour(t: Locale, state: &FormState) -> ControlSection {
    let routing =
        [("weighted", t.say("groups.weighted")), ("cheapest", t.say("groups.cheapest")), ("fastest", t.say("groups.fastest"))];
    let translation = [("lenient", t.say("groups.lenient")), ("strict", t.say("groups.strict"))];
    let stream_break = [
        ("provider_usage", t.say("groups.break_usage")),
        ("delivered", t.say("groups.break_delivered")),
        ("none_if_empty", t.say("groups.break_none")),
    ];
    let controls = vec![
        state.choice("routing", t.say("groups.routing"), routing),
        state.choice("translation", t.say("groups.translation"), translation),
        state.choice("stream_break", t.say("groups.stream_break"), stream_break),
        state.number("hedge", t.say("groups.hedge")).hint(t.say("groups.hedge_hint")),
        state.check("trace", t.say("groups.trace")).wide(),
        state.check("log_contents", t.say("groups.log_contents")).wide(),
        state.check("self_service", t.say("groups.self_service")).wide(),
    ];
    ControlSection::new(t.say("groups.behaviour"), controls).folded()
}

/// The fields as the admin API takes them.
pub(super) fn body(form: &FormData) -> Map<String, Value> {
    let mut body = Map::new();
    // One list of checks, or lines.
    let channels: Vec<&str> = form.all("channels").flat_map(|sent| sent.split(['\n', '\r'])).map(str::trim).collect();
    if form.has("description") {
        body.insert("description".to_owned(), form.filled("description").map_or(Value::Null, Value::from));
    }
    body.insert("channels".to_owned(), channels.into_iter().filter(|name| !name.is_empty()).collect());
    body.insert("models".to_owned(), names(form, "models").into_iter().collect());
    for word in ["visibility", "routing", "translation", "stream_break"] {
        body.extend(form.filled(word).map(|value| (word.to_owned(), value.into())));
    }
    body.insert("sale_multiplier".to_owned(), form.filled("sale_multiplier").map_or_else(|| "1".to_owned(), decimal).into());
    // The admin API refuses lines that are not factors, together with the other faults.
    let factors = form.value("model_multipliers");
    body.insert("model_multipliers".to_owned(), model_multipliers(factors).unwrap_or_else(|_| factors.into()));
    body.insert("price_limit".to_owned(), price_limit(form));
    for limit in ["rpm", "tpm", "concurrency"] {
        body.insert(limit.to_owned(), limit_or_text(form, limit));
    }
    body.extend(budgets::body(form).map(|budget| ("budget".to_owned(), budget)));
    let hedge = form.filled("hedge").map(|cap| json!({"cost_cap": decimal(cap)}));
    body.insert("hedge".to_owned(), json!(hedge));
    for flag in FLAGS {
        body.insert(flag.to_owned(), (form.value(flag) == "true").into());
    }
    body
}

/// The factors of models, one on each line. Names may have colons.
fn model_multipliers(text: &str) -> Result<Value, ApiError> {
    let mut own = Map::new();
    for line in text.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let fault = || ApiError::value("model_multipliers", "expected MODEL: FACTOR on each line, each model once");
        let (model, factor) = line.rsplit_once([':', '：', '=']).ok_or_else(fault)?;
        if own.insert(model.trim().to_owned(), decimal(factor.trim()).into()).is_some() {
            return Err(fault());
        }
    }
    Ok(Value::Object(own))
}

/// Checks that bounds of a price limit come with a kind of limit. Without it they would be dropped silently.
pub(in crate::pages) fn check_price_limit(form: &FormData) -> Result<(), ApiError> {
    let has_bound = ["max_input", "max_output", "min_margin"].iter().any(|bound| form.filled(bound).is_some());
    if has_bound && form.has("price_limit") && form.filled("price_limit").is_none() {
        return Err(ApiError::value("price_limit_kind", "expected a kind of limit for the bounds"));
    }
    Ok(())
}

/// The price limit of a group or key.
pub(in crate::pages) fn price_limit(form: &FormData) -> Value {
    let Some(mode) = form.filled("price_limit") else { return Value::Null };
    let mut limit = json!({"mode": mode, "on": form.filled("limit_on").unwrap_or("sale")});
    // Bounds of another mode stay in the form and are not sent.
    let bounds: &[&str] = match mode {
        "ceiling" => &["max_input", "max_output"],
        "min_margin" => &["min_margin"],
        _ => &[],
    };
    for bound in bounds {
        if let Some(value) = form.filled(bound) {
            limit[*bound] = decimal(value).into();
        }
    }
    limit
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn form_becomes_the_body_of_the_admin_api() {
        let form = FormData::parse(
            b"description=+For+a+team+&visibility=private&channels=a&channels=b&models=gpt-*%0D%0Acl*&sale_multiplier=1.25\
              &model_multipliers=gpt-*:%200.9%0D%0A%0D%0Aa:free%20:%200&price_limit=ceiling&max_input=%241.5\
              &max_output=&min_margin=0.2&limit_on=cost&rpm=1,000&tpm=&concurrency=&budget_day_block=50&budget_day_alert=40&hedge=1&trace=true",
        );
        let expected = json!({
            "description": "For a team", "visibility": "private", "channels": ["a", "b"], "models": ["gpt-*", "cl*"], "sale_multiplier": "1.25",
            "model_multipliers": {"gpt-*": "0.9", "a:free": "0"}, "price_limit": {"mode": "ceiling", "on": "cost", "max_input": "1.5"}, "rpm": 1_000, "tpm": 0, "concurrency": 0,
            "budget": [
                {"amount": "50", "window": "day", "action": "block"}, {"amount": "40", "window": "day", "action": "alert"}
            ],
            "hedge": {"cost_cap": "1"},
            "never_below_cost": false, "trace": true, "log_contents": false, "self_service": false,
        });
        assert_eq!(Value::Object(body(&form)), expected);
    }

    #[test]
    fn channels_with_a_chosen_tag_are_added_once() {
        let channels: Vec<OfferableChannel> = serde_json::from_value(json!([
            {"name": "a", "tags": ["eu"]}, {"name": "b", "tags": ["eu", "us"]}, {"name": "c", "tags": ["us"]}, {"name": "d", "tags": []},
        ]))
        .unwrap();
        let chosen = |form: &str| {
            let form = with_tagged(&FormData::parse(form.as_bytes()), &channels);
            assert!(!form.has(TAGS));
            form.all("channels").map(str::to_owned).collect::<Vec<_>>()
        };
        assert_eq!(chosen("channels=a&channels=d&channel_tags=eu"), ["a", "d", "b"]);
        assert_eq!(chosen("channels=a%0D%0Ad&channel_tags=us"), ["a\r\nd", "b", "c"], "typed names stay");
        assert!(chosen("channel_tags=nowhere").is_empty());
        let sections = |channels: &[OfferableChannel]| offered(Locale::EN, &FormState::default(), channels).controls.len();
        assert_eq!((sections(&channels), sections(&channels[3..])), (3, 2), "without tags no field is shown");
    }

    #[test]
    fn malformed_or_duplicate_model_factor_lines_are_refused() {
        for text in ["gpt-fast", "gpt-*: 1\ngpt-*: 2"] {
            assert_eq!(model_multipliers(text).unwrap_err().param(), Some("model_multipliers"), "{text}");
        }
        assert_eq!(model_multipliers(" \r\n").unwrap(), json!({}));
    }

    #[test]
    fn price_limit_sends_only_the_bounds_of_its_mode() {
        let form = FormData::parse(b"price_limit=min_margin&max_input=3&min_margin=0.1");
        assert_eq!(price_limit(&form), json!({"mode": "min_margin", "on": "sale", "min_margin": "0.1"}));
        assert_eq!(price_limit(&FormData::parse(b"max_input=3")), Value::Null);
        let is_refused = |form: &[u8]| check_price_limit(&FormData::parse(form)).is_err();
        let forms: [&[u8]; 4] =
            [b"price_limit=&max_input=3", b"price_limit=&min_margin=1", b"price_limit=&max_input=", b"max_input=3"];
        assert_eq!(forms.map(is_refused), [true, true, false, false], "bounds are not dropped");
        assert!(!is_refused(b"price_limit=ceiling&max_input=3"));
    }
}
