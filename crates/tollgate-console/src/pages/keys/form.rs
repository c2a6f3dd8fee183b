//! The form of a key: limits, budget, groups, price limit and expiry.

use serde_json::{Map, Value, json};
use tollgate_core::Timestamp;

use super::view::{self, KeyObject};
use crate::{
    api_error::ApiError,
    pages::{
        budgets,
        control::{self, Choice, Control, ControlKind, ControlSection, TYPED_NAME, limit_text},
        form::{FormData, FormState},
        groups::{self, PriceLimitObject},
        locale::Locale,
        protocols,
        reply::PageFailure,
    },
    time::{DAY_MS, rfc3339},
};

/// Fields that errors are shown beside.
const FIELDS: &[&str] = &[
    "name",
    "member",
    "count",
    "groups",
    "models",
    "models_deny",
    "protocols",
    "ip_allow",
    "expires",
    "rpm",
    "tpm",
    "concurrency",
    "price_limit",
    "max_input",
    "max_output",
    "min_margin",
    "tags",
    TYPED_NAME,
];
/// A chosen group of a key.
pub(super) const GROUP: &str = "group";
/// The day until whose end a key is valid.
pub(super) const EXPIRES: &str = "expires";
/// A period for which a key is valid from now on.
const VALID_FOR: &str = "valid_for";
const NEVER: &str = "never";

/// Selectable numbers of days for which a key is valid.
const VALID_DAYS: [i64; 4] = [7, 30, 90, 365];
/// Maximum number of groups with checkboxes; with more, names are typed.
const MAX_CHECKS: usize = 60;

/// What the form of a key asks for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    /// Members can limit only sale prices, because only operators see costs.
    pub(super) is_operator: bool,
    /// The names of groups are typed, in the order in which they are tried. Else they are chosen, see [`group_choice`].
    pub(super) names_groups: bool,
}

impl Shape {
    pub(super) const fn new(is_operator: bool) -> Self {
        Self { is_operator, names_groups: true }
    }
}

/// A group to choose from.
#[derive(Clone, Debug)]
pub(super) struct KnownGroup {
    pub(super) name: String,
    pub(super) label: String,
    pub(super) about: Option<String>,
}

/// The groups of a key, given with their labels, in the order in which they are tried; `None` if there are too many to choose
/// from. Chosen groups, such as those of a key that is duplicated, come first in their order, even if the reader may not
/// choose them.
pub(super) fn group_choice(t: Locale, state: &FormState, known: &[KnownGroup]) -> Option<Control> {
    let sent: Vec<String> =
        if state.has(GROUP) { state.all(GROUP).map(str::to_owned).collect() } else { typed_groups(state.value("groups")) };
    let choice = |group: &KnownGroup, is_chosen| Choice {
        value: group.name.clone(),
        label: group.label.clone(),
        about: group.about.clone(),
        is_chosen,
    };
    let chosen = sent.iter().map(|name| match known.iter().find(|group| group.name == *name) {
        Some(group) => choice(group, true),
        None => Choice { value: name.clone(), label: name.clone(), about: None, is_chosen: true },
    });
    let others = known.iter().filter(|group| !sent.contains(&group.name)).map(|group| choice(group, false));
    let choices: Vec<Choice> = chosen.chain(others).collect();
    (choices.len() <= MAX_CHECKS).then(|| Control {
        fault: state.fault("groups").map(str::to_owned),
        ..state.chosen(GROUP, t.say("keys.groups"), choices).hint(t.say("keys.groups_choose_hint")).ordered(t.say("form.move_up"))
    })
}

/// The same for members whose default group is not one of these: keys need a chosen group, and if there is none yet, it is the first.
pub(super) fn group_choice_without_default(t: Locale, state: &FormState, known: &[KnownGroup]) -> Option<Control> {
    let mut control = group_choice(t, state, known)?.hint(t.say("keys.groups_own_hint"));
    if let ControlKind::Checks(choices) = &mut control.kind
        && choices.iter().all(|choice| !choice.is_chosen)
        && let Some(first) = choices.first_mut()
    {
        first.is_chosen = true;
    }
    Some(control)
}

fn typed_groups(text: &str) -> Vec<String> {
    parts(text).map(str::to_owned).collect()
}

/// The parts of a text with commas or lines.
fn parts(text: &str) -> impl Iterator<Item = &str> {
    text.split([',', '，', '\n']).map(str::trim).filter(|part| !part.is_empty())
}

/// Until when a key is valid: a day, or one of a few periods, which comes before the day.
pub(in crate::pages) fn expiry(t: Locale, state: &FormState) -> [Control; 2] {
    let days = VALID_DAYS.map(|days| {
        let label = if days == 365 {
            t.say("keys.valid_year").to_owned()
        } else {
            t.say_with("keys.valid_days", &[("days", &days.to_string())])
        };
        (days.to_string(), label)
    });
    let choices = [(String::new(), t.say("keys.valid_until_day").to_owned())].into_iter().chain(days);
    let choices = choices.chain([(NEVER.to_owned(), t.say("keys.valid_always").to_owned())]);
    [
        state.choice(VALID_FOR, t.say("keys.valid_for"), choices).hint(t.say("keys.valid_for_hint")),
        state.typed(EXPIRES, t.say("keys.expires"), "date").hint(t.say("keys.expires_hint")),
    ]
}

/// The end of a key as the admin API takes it; null: none.
pub(in crate::pages) fn expires_at(form: &FormData, now: Timestamp) -> Value {
    let end_of = |day: &str| json!(format!("{day}T23:59:59Z"));
    match form.value(VALID_FOR) {
        NEVER => Value::Null,
        "" => form.filled(EXPIRES).map_or(Value::Null, end_of),
        days => {
            // Any other number comes from a typed address, and is refused like an invalid day.
            let known = VALID_DAYS.into_iter().find(|known| known.to_string() == days);
            known.map_or_else(|| end_of(days), |days| end_of(&rfc3339(now.plus_ms(days * DAY_MS))[..10]))
        }
    }
}

/// Whether the form has another end than the key. It shows only the day: a key that ends earlier on it keeps its time.
pub(super) fn moves_end(form: &FormData, key: &KeyObject) -> bool {
    !form.value(VALID_FOR).is_empty() || form.filled(EXPIRES).unwrap_or_default() != last_day(key)
}

/// The UTC day on which a key ends; empty: none.
fn last_day(key: &KeyObject) -> &str {
    key.expires_at.as_deref().and_then(|at| at.get(..10)).unwrap_or_default()
}

/// The time of the day at which a key ends, unless that is the end of the day.
pub(super) fn time_of_end(key: &KeyObject) -> Option<&str> {
    key.expires_at.as_deref().and_then(|at| at.get(11..16)).filter(|time| *time != "23:59")
}

/// The controls of a key.
pub(super) fn section(t: Locale, state: &FormState, shape: Shape) -> ControlSection {
    let Shape { is_operator, names_groups } = shape;
    let text = |name, label, hint| state.text(name, label).hint(hint).max(10_000);
    let number = |name, label| state.number(name, label).hint(t.say("keys.unlimited_hint"));
    let groups = names_groups.then(|| text("groups", t.say("keys.groups"), t.say("keys.groups_hint")));
    let mut controls: Vec<Control> = groups.into_iter().chain(expiry(t, state)).collect();
    controls.extend([
        text("models", t.say("keys.models"), t.say("keys.models_hint")),
        text("models_deny", t.say("keys.models_deny"), t.say("keys.models_deny_hint")),
        text("ip_allow", t.say("keys.ip_allow"), t.say("keys.ip_allow_hint")),
        number("rpm", t.say("keys.rpm")),
        number("tpm", t.say("keys.tpm")),
        number("concurrency", t.say("keys.concurrency")),
        budgets::control(t, state),
    ]);
    controls.extend(more(t, state, is_operator));
    let offered = protocols::of_callers().map(|(protocol, _)| (protocol.as_str(), protocols::label(t, protocol.as_str())));
    controls.push(state.checks("protocols", t.say("keys.protocols"), offered).hint(t.say("keys.protocols_hint")));
    controls.push(text("tags", t.say("keys.tags"), t.say("keys.tags_hint")).wide());
    ControlSection::new("", controls)
}

/// Rarely used controls.
fn more(t: Locale, state: &FormState, is_operator: bool) -> Vec<Control> {
    let modes = [
        ("", t.say("groups.no_limit")),
        ("priced_only", t.say("groups.priced_only")),
        ("ceiling", t.say("groups.ceiling")),
        ("min_margin", t.say("groups.min_margin")),
    ];
    let signatures = [("", t.say("keys.as_group")), ("true", t.say("keys.signatures_on")), ("false", t.say("keys.signatures_off"))];
    let modes = modes.into_iter().filter(|(mode, _)| is_operator || *mode != "min_margin");
    let mut controls = vec![
        state.choice("price_limit", t.say("groups.price_limit"), modes).hint(t.say("keys.price_limit_hint")),
        state.number("max_input", t.say("groups.max_input")).hint(t.say("groups.per_million")),
        state.number("max_output", t.say("groups.max_output")).hint(t.say("groups.per_million")),
    ];
    if is_operator {
        let prices = [("sale", t.say("groups.on_sale")), ("cost", t.say("groups.on_cost"))];
        controls.extend([
            state.number("min_margin", t.say("groups.min_margin_share")).hint(t.say("groups.min_margin_hint")),
            state.choice("limit_on", t.say("groups.limit_on"), prices),
        ]);
    }
    controls.push(state.choice("signatures_in_ids", t.say("keys.signatures"), signatures).hint(t.say("keys.signatures_hint")));
    let contents = [("false", t.say("keys.as_group")), ("true", t.say("keys.contents_on"))];
    controls.push(state.choice("log_contents", t.say("contents.title"), contents).hint(t.say("keys.contents_hint")));
    controls
}

/// The initial values of the form of a key.
pub(super) fn values(key: &KeyObject) -> FormData {
    let budgets = budgets::values(&key.budget);
    let limit = key.price_limit.as_ref();
    let bound = |of: fn(&PriceLimitObject) -> &Option<String>| limit.and_then(|limit| of(limit).as_deref()).unwrap_or_default();
    let signatures = key.signatures_in_ids.map(|is_on| is_on.to_string()).unwrap_or_default();
    let tags = view::tags_text(&key.tags, ", ");
    let (groups, models, models_deny, ip_allow) =
        (key.groups.join(", "), key.models.join(", "), key.models_deny.join(", "), key.ip_allow.join(", "));
    let (rpm, tpm, concurrency) = (limit_text(key.rpm), limit_text(key.tpm), limit_text(key.concurrency));
    let mut values = vec![
        ("groups", groups.as_str()),
        ("models", &models),
        ("models_deny", &models_deny),
        ("ip_allow", &ip_allow),
        (EXPIRES, last_day(key)),
        ("rpm", &rpm),
        ("tpm", &tpm),
        ("concurrency", &concurrency),
        ("price_limit", limit.map_or("", |limit| &limit.mode)),
        ("limit_on", limit.and_then(|limit| limit.on.as_deref()).unwrap_or("sale")),
        ("max_input", bound(|limit| &limit.max_input)),
        ("max_output", bound(|limit| &limit.max_output)),
        ("min_margin", bound(|limit| &limit.min_margin)),
        ("signatures_in_ids", &signatures),
        ("log_contents", if key.log_contents { "true" } else { "false" }),
        ("tags", &tags),
    ];
    values.extend(budgets.iter().map(|(field, amount)| (*field, amount.as_str())));
    values.extend(key.protocols.iter().map(|word| ("protocols", word.as_str())));
    FormData::of(&values)
}

/// The fields as the admin API takes them.
pub(super) fn body(form: &FormData, now: Timestamp) -> Map<String, Value> {
    let mut body = Map::new();
    for field in ["models", "models_deny", "ip_allow"] {
        body.insert(field.to_owned(), parts(form.value(field)).collect());
    }
    body.insert("groups".to_owned(), form.all(GROUP).chain(parts(form.value("groups"))).collect());
    body.insert("protocols".to_owned(), form.all("protocols").collect());
    // An entry that is not a pair is refused by the admin API, together with the other faults.
    let pair = |part: &str| {
        let (name, value) = part.split_once('=').unwrap_or((part, ""));
        (name.trim().to_owned(), Value::from(value.trim()))
    };
    body.insert("tags".to_owned(), Value::Object(parts(form.value("tags")).map(pair).collect()));
    for field in ["rpm", "tpm", "concurrency"] {
        body.insert(field.to_owned(), control::limit_or_text(form, field));
    }
    body.insert("expires_at".to_owned(), expires_at(form, now));
    body.extend(budgets::body(form).map(|budget| ("budget".to_owned(), budget)));
    // A form without fields for the price limit leaves it unchanged.
    if form.has("price_limit") {
        body.insert("price_limit".to_owned(), groups::price_limit(form));
    }
    if form.has("signatures_in_ids") {
        let signatures = form.filled("signatures_in_ids").map(|word| word == "true");
        body.insert("signatures_in_ids".to_owned(), json!(signatures));
    }
    if form.has("log_contents") {
        body.insert("log_contents".to_owned(), json!(form.value("log_contents") == "true"));
    }
    body
}

/// A form that was refused, with the fault beside the field that it is about.
pub(super) fn refused(t: Locale, form: &FormData, error: ApiError) -> Result<FormState, PageFailure> {
    FormState::refused_each(error, |error| refused_one(t, form, error))
}

fn refused_one(t: Locale, form: &FormData, error: ApiError) -> Result<FormState, PageFailure> {
    let error = budgets::placed(form, error);
    let whole = error.param().unwrap_or_default().to_owned();
    let param = whole.split(['.', '[']).next().unwrap_or_default();
    let (field, reason) = match param {
        "price_limit" => match whole.as_str() {
            "price_limit.max_input" => ("max_input", "amount"),
            "price_limit.max_output" => ("max_output", "amount"),
            "price_limit.min_margin" => ("min_margin", "margin"),
            _ => ("price_limit", "price_limit"),
        },
        "price_limit_kind" => ("price_limit", "price_limit_kind"),
        "name" => ("name", "key_name"),
        "member" => ("member", "unknown_member"),
        "groups" => ("groups", "unknown_group"),
        "models" => ("models", "model_pattern"),
        "models_deny" => ("models_deny", "model_pattern"),
        "tags" => ("tags", "key_tags"),
        "ip_allow" => ("ip_allow", "network"),
        "expires_at" => ("expires", "past"),
        "rpm" => ("rpm", "limit"),
        "tpm" => ("tpm", "limit"),
        "concurrency" => ("concurrency", "limit"),
        field if budgets::FIELDS.contains(&field) => return FormState::refused_at(t, form, &error, Some(field)),
        "count" if error.reason().is_none() => ("count", "whole_number"),
        _ if error.code() == "already_exists" => ("name", "key_exists"),
        _ => return FormState::refused(t, form, &error, FIELDS),
    };
    FormState::refused(t, form, &error.about(field).because(reason), FIELDS)
}

#[cfg(test)]
mod tests {
    use askama::Template as _;

    use super::*;

    /// 29 November 2026, 12:00 UTC.
    const NOW: Timestamp = Timestamp(1_795_953_600_000_000);

    #[test]
    fn period_comes_before_the_day() {
        let end = |form: &[u8]| expires_at(&FormData::parse(form), NOW);
        assert_eq!(end(b"expires=2030-01-31&valid_for="), json!("2030-01-31T23:59:59Z"));
        assert_eq!(end(b"expires=2030-01-31&valid_for=7"), json!("2026-12-06T23:59:59Z"));
        assert_eq!(end(b"valid_for=365"), json!("2027-11-29T23:59:59Z"));
        assert_eq!(end(b"expires=2030-01-31&valid_for=never"), Value::Null);
        assert_eq!(end(b"valid_for=x"), json!("xT23:59:59Z"), "the admin API refuses it");
    }

    #[test]
    fn end_of_a_key_is_moved_only_by_another_day() {
        let with_end = |expires_at: Value| {
            serde_json::from_value::<KeyObject>(json!({
                "id": "key_1", "name": "ci", "member": "ann", "prefix": "", "suffix": "", "state": "active", "owner": "database", "revision": 1,
                "groups": [], "models": [], "models_deny": [], "protocols": [], "tags": {}, "ip_allow": [], "expires_at": expires_at,
                "rpm": 0, "tpm": 0, "concurrency": 0, "budget": null, "previous_until": null, "created_at": "1970-01-01T00:00:00Z",
                "revoked_at": null,
            }))
            .unwrap()
        };
        let (early, never) = (with_end(json!("2026-12-05T10:30:00Z")), with_end(Value::Null));
        let moves = |key: &KeyObject, form: &[u8]| moves_end(&FormData::parse(form), key);
        assert_eq!((values(&early).value(EXPIRES), time_of_end(&early)), ("2026-12-05", Some("10:30")));
        assert!(!moves(&early, b"expires=2026-12-05&valid_for="));
        assert!(
            moves(&early, b"expires=2026-12-06") && moves(&early, b"expires=") && moves(&early, b"expires=2026-12-05&valid_for=7")
        );
        assert!(!moves(&never, b"expires=") && moves(&never, b"expires=2026-12-05") && time_of_end(&never).is_none());
        assert_eq!(time_of_end(&with_end(json!("2026-12-05T23:59:59Z"))), None);
    }

    #[test]
    fn chosen_groups_come_first_and_none_is_lost() {
        let group = |name: &str, label: &str| KnownGroup { name: name.to_owned(), label: label.to_owned(), about: None };
        let known =
            || vec![group("default", "default ×1"), KnownGroup { about: Some("quick".to_owned()), ..group("fast", "fast ×2") }];
        let choices = |form: &[u8]| {
            let state = FormState::of(FormData::parse(form));
            let ControlKind::Checks(choices) = group_choice(Locale::EN, &state, &known()).unwrap().kind else { panic!() };
            choices.into_iter().map(|choice| (choice.value, choice.label, choice.is_chosen)).collect::<Vec<_>>()
        };
        let choice = |name: &str, label: &str, is_chosen| (name.to_owned(), label.to_owned(), is_chosen);
        assert_eq!(choices(b""), [choice("default", "default ×1", false), choice("fast", "fast ×2", false)]);
        let copied = [choice("fast", "fast ×2", true), choice("gone", "gone", true), choice("default", "default ×1", false)];
        assert_eq!(choices(b"groups=fast,+gone"), copied);
        assert_eq!(choices(b"group=fast&group=gone"), copied);
        let many: Vec<KnownGroup> = (0..61).map(|number| group(&number.to_string(), "")).collect();
        assert!(group_choice(Locale::EN, &FormState::default(), &many).is_none());
        assert_eq!(body(&FormData::parse(b"group=a,+b&group=c"), NOW)["groups"], json!(["a, b", "c"]));
        let page = group_choice(Locale::EN, &FormState::default(), &known()).unwrap().render().unwrap();
        assert_eq!(page.matches("<span class=\"dim\">quick</span>").count(), 1, "{page}");
        let error = ApiError::value("groups", "x");
        let state = refused(Locale::EN, &FormData::parse(b"group=a"), error).unwrap();
        assert!(group_choice(Locale::EN, &state, &known()).unwrap().has_fault());
    }

    #[test]
    fn without_the_default_group_the_first_one_is_chosen() {
        let known: Vec<KnownGroup> =
            ["a", "b"].map(|name| KnownGroup { name: name.to_owned(), label: name.to_owned(), about: None }).into();
        let chosen = |form: &[u8]| {
            let state = FormState::of(FormData::parse(form));
            let ControlKind::Checks(choices) = group_choice_without_default(Locale::EN, &state, &known).unwrap().kind else {
                panic!()
            };
            choices.into_iter().map(|choice| (choice.value, choice.is_chosen)).collect::<Vec<_>>()
        };
        assert_eq!(chosen(b""), [("a".to_owned(), true), ("b".to_owned(), false)]);
        assert_eq!(chosen(b"group=b"), [("b".to_owned(), true), ("a".to_owned(), false)]);
    }

    #[test]
    fn form_becomes_the_body_of_the_admin_api() {
        let form = FormData::parse(
            b"groups=a,+b%EF%BC%8Cc&models=&ip_allow=10.0.0.0/8&rpm=1,000&tpm=+&concurrency=4&expires=2030-01-31&budget_day_block=%2450&budget_month_block=&models_deny=o1-*&protocols=openai&protocols=responses&tags=team%3Dsearch,cost%3Da%3D1,x",
        );
        let expected = json!({
            "groups": ["a", "b", "c"], "models": [], "models_deny": ["o1-*"], "protocols": ["openai", "responses"],
            "tags": {"team": "search", "cost": "a=1", "x": ""}, "ip_allow": ["10.0.0.0/8"], "rpm": 1_000, "tpm": 0, "concurrency": 4,
            "expires_at": "2030-01-31T23:59:59Z", "budget": {"amount": "50", "window": "day", "action": "block"},
        });
        assert_eq!(Value::Object(body(&form, NOW)), expected);
        let none = body(&FormData::default(), NOW);
        assert_eq!((&none["expires_at"], &none["rpm"]), (&Value::Null, &json!(0)));
        assert!(!none.contains_key("budget"));
        let more =
            FormData::parse(b"price_limit=ceiling&max_input=2&max_output=&min_margin=0.1&limit_on=cost&signatures_in_ids=false");
        let more = body(&more, NOW);
        assert_eq!(more["price_limit"], json!({"mode": "ceiling", "on": "cost", "max_input": "2"}));
        assert_eq!(more["signatures_in_ids"], json!(false));
        assert!(!none.contains_key("price_limit") && !none.contains_key("signatures_in_ids"));
        for wrong in ["many", "-1", "1.5", "99999999999999999999"] {
            let form = FormData::of(&[("rpm", wrong)]);
            assert_eq!(body(&form, NOW)["rpm"], json!(wrong), "the admin API refuses it");
        }
    }

    #[test]
    fn all_invalid_fields_are_reported_together() {
        let errors = vec![ApiError::value("rpm", "x"), ApiError::value("ip_allow[0]", "x"), ApiError::value("budget.amount", "x")];
        let form = refused(Locale::EN, &FormData::default(), ApiError::first_of(errors).unwrap_err()).unwrap();
        for field in ["rpm", "ip_allow", "budget_month_block"] {
            assert!(form.text(field, "x").has_fault(), "{field}");
        }
        assert!(!form.text("tpm", "x").has_fault() && form.banner().is_none());
    }

    #[test]
    fn each_budget_error_is_shown_beside_its_amount() {
        let sent = FormData::of(&[("budget_month_alert", "5"), ("budget_day_block", "much"), ("budget_total_block", "-1")]);
        let errors = [1, 2].map(|number| ApiError::value(&format!("budget[{number}].amount"), "expected an amount"));
        let form = refused(Locale::EN, &sent, ApiError::first_of(errors.to_vec()).unwrap_err()).unwrap();
        assert!(form.banner().is_none());
        let faulty = budgets::FIELDS.map(|field| form.fault(field).is_some());
        assert_eq!(faulty, [false, false, true, false, true, false]);
    }
}
