//! The form of a key: limits, budget, groups, and until when it is valid.

use serde_json::{Map, Value, json};

use super::view::{self, KeyObject};
use crate::{
    api_error::ApiError,
    pages::{
        form::{FormData, FormField, FormState},
        locale::Locale,
        reply::PageFailure,
    },
};

/// Fields that errors are shown beside.
const FIELDS: &[&str] = &[
    "name",
    "member",
    "count",
    "groups",
    "models",
    "ip_allow",
    "expires",
    "rpm",
    "tpm",
    "concurrency",
    "budget_amount",
    "revoke_name",
];
const WINDOWS: [&str; 3] = ["month", "day", "total"];
const ACTIONS: [&str; 2] = ["block", "alert"];

#[derive(Debug)]
pub(super) struct KeyForm {
    pub(super) groups: FormField,
    pub(super) models: FormField,
    pub(super) ip_allow: FormField,
    pub(super) expires: FormField,
    pub(super) rpm: FormField,
    pub(super) tpm: FormField,
    pub(super) concurrency: FormField,
    pub(super) budget_amount: FormField,
    /// Value, label, whether it is chosen.
    pub(super) windows: Vec<(&'static str, &'static str, bool)>,
    pub(super) actions: Vec<(&'static str, &'static str, bool)>,
    /// Several budgets are changed with the command line.
    pub(super) has_several_budgets: bool,
}

impl KeyForm {
    pub(super) fn of(t: Locale, state: &FormState, has_several_budgets: bool) -> Self {
        let text = |name, label, hint| state.field(name, label).hint(hint).optional().max(10_000);
        let number = |name, label, hint| state.field(name, label).hint(hint).optional().numeric();
        let action = |word: &str| if word == "block" { t.say("budget.block") } else { t.say("budget.alert") };
        Self {
            groups: text("groups", t.say("keys.groups"), t.say("keys.groups_hint")),
            models: text("models", t.say("keys.models"), t.say("keys.models_hint")),
            ip_allow: text("ip_allow", t.say("keys.ip_allow"), t.say("keys.ip_allow_hint")),
            expires: state.field("expires", t.say("keys.expires")).kind("date").hint(t.say("keys.expires_hint")).optional(),
            rpm: number("rpm", t.say("keys.rpm"), t.say("keys.unlimited_hint")),
            tpm: number("tpm", t.say("keys.tpm"), t.say("keys.unlimited_hint")),
            concurrency: number("concurrency", t.say("keys.concurrency"), t.say("keys.unlimited_hint")),
            budget_amount: number("budget_amount", t.say("keys.budget"), t.say("keys.budget_hint")),
            windows: WINDOWS.map(|word| (word, view::window(t, word), state.value("budget_window") == word)).to_vec(),
            actions: ACTIONS.map(|word| (word, action(word), state.value("budget_action") == word)).to_vec(),
            has_several_budgets,
        }
    }
}

impl KeyForm {
    pub(super) fn has_fault(&self) -> bool {
        let Self { groups, models, ip_allow, expires, rpm, tpm, concurrency, budget_amount, .. } = self;
        [groups, models, ip_allow, expires, rpm, tpm, concurrency, budget_amount].iter().any(|field| field.has_fault())
    }
}

/// What the form of a key holds before it is changed.
pub(super) fn values(key: &KeyObject) -> FormData {
    let number = |limit: u64| if limit == 0 { String::new() } else { limit.to_string() };
    let budget = key.budgets().into_iter().next();
    let (amount, window, action) = budget.map(|budget| (budget.amount, budget.window, budget.action)).unwrap_or_default();
    // The day whose end is the key's.
    let expires = key.expires_at.as_deref().and_then(|at| at.get(..10)).unwrap_or_default();
    FormData::of(&[
        ("groups", &key.groups.join(", ")),
        ("models", &key.models.join(", ")),
        ("ip_allow", &key.ip_allow.join(", ")),
        ("expires", expires),
        ("rpm", &number(key.rpm)),
        ("tpm", &number(key.tpm)),
        ("concurrency", &number(key.concurrency)),
        ("budget_amount", &amount),
        ("budget_window", &window),
        ("budget_action", &action),
    ])
}

/// The fields as the admin API takes them.
pub(super) fn body(form: &FormData, with_budget: bool) -> Result<Map<String, Value>, ApiError> {
    let mut body = Map::new();
    for field in ["groups", "models", "ip_allow"] {
        let names = form.value(field).split([',', '，', '\n']).map(str::trim).filter(|name| !name.is_empty());
        body.insert(field.to_owned(), names.collect());
    }
    for field in ["rpm", "tpm", "concurrency"] {
        body.insert(field.to_owned(), whole_number(form, field)?.into());
    }
    let expires = form.filled("expires").map(|day| format!("{day}T23:59:59Z"));
    body.insert("expires_at".to_owned(), json!(expires));
    if with_budget {
        let budget = form.filled("budget_amount").map(|amount| {
            let amount = amount.trim_start_matches('$').replace(',', "");
            let word = |field: &str, default: &str| form.filled(field).unwrap_or(default).to_owned();
            json!({"amount": amount, "window": word("budget_window", "month"), "action": word("budget_action", "block")})
        });
        body.insert("budget".to_owned(), json!(budget));
    }
    Ok(body)
}

/// A limit; empty is unlimited.
pub(super) fn whole_number(form: &FormData, field: &str) -> Result<u64, ApiError> {
    let digits: String = form.value(field).chars().filter(|c| !c.is_whitespace() && *c != ',').collect();
    if digits.is_empty() {
        return Ok(0);
    }
    digits.parse().map_err(|_| ApiError::value(field, "expected a whole number"))
}

/// A form that was refused, with the fault beside the field that it is about.
pub(super) fn refused(t: Locale, form: &FormData, error: ApiError) -> Result<FormState, PageFailure> {
    let param = error.param().unwrap_or_default().split(['.', '[']).next().unwrap_or_default().to_owned();
    let (field, reason) = match param.as_str() {
        "name" => ("name", "key_name"),
        "member" => ("member", "unknown_member"),
        "groups" => ("groups", "unknown_group"),
        "models" => ("models", "model_pattern"),
        "ip_allow" => ("ip_allow", "network"),
        "expires_at" => ("expires", "past"),
        "rpm" => ("rpm", "whole_number"),
        "tpm" => ("tpm", "whole_number"),
        "concurrency" => ("concurrency", "whole_number"),
        "budget" => ("budget_amount", "amount"),
        "count" if error.reason().is_none() => ("count", "whole_number"),
        _ if error.code() == "already_exists" => ("name", "key_exists"),
        _ => return FormState::refused(t, form, &error, FIELDS),
    };
    FormState::refused(t, form, &error.about(field).because(reason), FIELDS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn form_becomes_the_body_of_the_admin_api() {
        let form = FormData::parse(
            b"groups=a,+b%EF%BC%8Cc&models=&ip_allow=10.0.0.0/8&rpm=1,000&tpm=+&concurrency=4&expires=2030-01-31&budget_amount=%2450&budget_window=day",
        );
        let expected = json!({
            "groups": ["a", "b", "c"], "models": [], "ip_allow": ["10.0.0.0/8"], "rpm": 1_000, "tpm": 0, "concurrency": 4,
            "expires_at": "2030-01-31T23:59:59Z", "budget": {"amount": "50", "window": "day", "action": "block"},
        });
        assert_eq!(Value::Object(body(&form, true).unwrap()), expected);
        let none = body(&FormData::default(), true).unwrap();
        assert_eq!((&none["expires_at"], &none["budget"], &none["rpm"]), (&Value::Null, &Value::Null, &json!(0)));
        assert!(!body(&form, false).unwrap().contains_key("budget"));
        for wrong in ["many", "-1", "1.5", "99999999999999999999"] {
            let form = FormData::of(&[("rpm", wrong)]);
            assert_eq!(body(&form, true).unwrap_err().param(), Some("rpm"), "{wrong}");
        }
    }

    #[test]
    fn faults_of_a_budget_are_beside_its_amount() {
        let error = ApiError::value("budget.amount", "expected an amount");
        let form = refused(Locale::En, &FormData::default(), error).unwrap();
        assert!(form.banner().is_none());
        assert!(form.field("budget_amount", "x").has_fault());
    }
}
