//! The form of a key: limits, budget, groups, and until when it is valid.

use serde_json::{Map, Value, json};

use super::view::{self, KeyObject};
use crate::{
    api_error::ApiError,
    pages::{
        control::{self, ControlSection, TYPED_NAME, limit_text},
        form::{FormData, FormState},
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
    TYPED_NAME,
];
const WINDOWS: [&str; 3] = ["month", "day", "total"];
const ACTIONS: [&str; 2] = ["block", "alert"];

/// The controls of a key. Several budgets are changed with the command line.
pub(super) fn section(t: Locale, state: &FormState, has_several_budgets: bool) -> ControlSection {
    let text = |name, label, hint| state.text(name, label).hint(hint).max(10_000);
    let number = |name, label| state.number(name, label).hint(t.say("keys.unlimited_hint"));
    let action = |word: &'static str| (word, if word == "block" { t.say("budget.block") } else { t.say("budget.alert") });
    let mut controls = vec![
        text("groups", t.say("keys.groups"), t.say("keys.groups_hint")),
        text("models", t.say("keys.models"), t.say("keys.models_hint")),
        state.typed("expires", t.say("keys.expires"), "date").hint(t.say("keys.expires_hint")),
        text("ip_allow", t.say("keys.ip_allow"), t.say("keys.ip_allow_hint")),
        number("rpm", t.say("keys.rpm")),
        number("tpm", t.say("keys.tpm")),
        number("concurrency", t.say("keys.concurrency")),
    ];
    if !has_several_budgets {
        controls.extend([
            state.number("budget_amount", t.say("keys.budget")).hint(t.say("keys.budget_hint")),
            state.choice("budget_window", t.say("keys.budget_window"), WINDOWS.map(|word| (word, view::window(t, word)))),
            state.choice("budget_action", t.say("keys.budget_action"), ACTIONS.map(action)),
        ]);
    }
    let about = has_several_budgets.then(|| t.say("keys.several_budgets").to_owned());
    ControlSection { about, ..ControlSection::new("", controls) }
}

/// What the form of a key holds before it is changed.
pub(super) fn values(key: &KeyObject) -> FormData {
    let budget = key.budgets().into_iter().next();
    let (amount, window, action) = budget.map(|budget| (budget.amount, budget.window, budget.action)).unwrap_or_default();
    // The day whose end is the key's.
    let expires = key.expires_at.as_deref().and_then(|at| at.get(..10)).unwrap_or_default();
    FormData::of(&[
        ("groups", &key.groups.join(", ")),
        ("models", &key.models.join(", ")),
        ("ip_allow", &key.ip_allow.join(", ")),
        ("expires", expires),
        ("rpm", &limit_text(key.rpm)),
        ("tpm", &limit_text(key.tpm)),
        ("concurrency", &limit_text(key.concurrency)),
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
        body.insert(field.to_owned(), control::whole_number(form, field)?.into());
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
        let form = refused(Locale::EN, &FormData::default(), error).unwrap();
        assert!(form.banner().is_none());
        assert!(form.number("budget_amount", "x").has_fault());
    }
}
