//! The form of a member.

use serde_json::{Map, Value};

use super::{
    groups::{self, MemberGroups},
    view::{MemberObject, role},
};
use crate::{
    api_error::ApiError,
    pages::{
        budgets,
        control::{self, ControlSection, FaultPlace, limit_or_text, limit_text},
        form::{FormData, FormState},
        locale::Locale,
        reply::PageFailure,
    },
};

/// The field that the member's name is typed into before all passkeys are removed.
pub(super) const PASSKEYS_NAME: &str = "passkeys_name";
/// The field that it is typed into before one-time codes are switched off.
pub(super) const CODES_NAME: &str = "codes_name";
/// The field for the own password before a link for a new one is made.
pub(super) const LINK_PASSWORD: &str = "link_password";
/// The field that it is typed into before the account of the OpenID provider is unlinked.
pub(super) const UNLINK_NAME: &str = "unlink_name";

const PLACES: &[FaultPlace] = &[
    ("name", "name", "name"),
    ("already_exists", "name", "exists"),
    ("groups", "groups", "unknown_group"),
    ("default_group", "default_group", "unknown_group"),
    ("rpm", "rpm", "limit"),
    ("tpm", "tpm", "limit"),
    ("concurrency", "concurrency", "limit"),
    ("last_admin", "role", "last_admin"),
    ("amount", "amount", "posting"),
    ("note", "note", ""),
    ("email", "email", ""),
    ("typed_name", "typed_name", "typed_name"),
    (PASSKEYS_NAME, PASSKEYS_NAME, "typed_name"),
    (CODES_NAME, CODES_NAME, "typed_name"),
    ("password", LINK_PASSWORD, "wrong_password"),
    (UNLINK_NAME, UNLINK_NAME, "typed_name"),
];

pub(super) fn refused(t: Locale, form: &FormData, error: ApiError) -> Result<FormState, PageFailure> {
    // An address that another member has is a fault of the field for the address.
    let error = if error.code() == "already_exists" && form.has("email") { error.about("email") } else { error };
    control::refused(t, form, error, PLACES)
}

pub(super) fn defaults() -> FormData {
    FormData::of(&[("role", "member"), ("status", "active"), ("billing", "postpaid")])
}

/// The initial values of the form.
pub(super) fn values(member: &MemberObject) -> FormData {
    let (rpm, tpm, concurrency) = (limit_text(member.rpm), limit_text(member.tpm), limit_text(member.concurrency));
    let budgets = budgets::values(&member.budget);
    let mut values = vec![
        ("role", member.role.as_str()),
        ("status", &member.status),
        ("default_group", member.default_group.as_deref().unwrap_or_default()),
        ("billing", &member.billing),
        ("rpm", &rpm),
        ("tpm", &tpm),
        ("concurrency", &concurrency),
    ];
    values.extend(member.groups.iter().map(|group| ("groups", group.as_str())));
    values.extend(budgets.iter().map(|(field, amount)| (*field, amount.as_str())));
    FormData::of(&values)
}

pub(super) fn roles(t: Locale) -> [(&'static str, &'static str); 3] {
    ["member", "operator", "admin"].map(|word| (word, role(t, word)))
}

pub(super) fn sections(t: Locale, state: &FormState, groups: &MemberGroups) -> Vec<ControlSection> {
    let statuses = [("active", t.say("key.active")), ("suspended", t.say("members.suspended"))];
    let billings = [("postpaid", t.say("members.postpaid_about")), ("prepaid", t.say("members.prepaid_about"))];
    let basics = vec![
        state.choice("role", t.say("members.role"), roles(t)),
        state.choice("status", t.say("models.state"), statuses),
        groups.private_control(t, state),
        groups.default_control(t, state),
        state.choice("billing", t.say("members.billing"), billings),
    ];
    let limits = vec![
        state.number("rpm", t.say("keys.rpm")).hint(t.say("keys.unlimited_hint")),
        state.number("tpm", t.say("keys.tpm")).hint(t.say("keys.unlimited_hint")),
        state.number("concurrency", t.say("keys.concurrency")).hint(t.say("keys.unlimited_hint")),
        budgets::control(t, state),
    ];
    let about = t.say("members.limits_about");
    vec![ControlSection::new("", basics), ControlSection::new(t.say("groups.limits"), limits).about(about)]
}

/// The fields as the admin API takes them.
pub(super) fn body(form: &FormData) -> Map<String, Value> {
    let mut body = Map::new();
    for word in ["role", "status", "billing"] {
        body.extend(form.filled(word).map(|value| (word.to_owned(), value.into())));
    }
    body.insert("groups".to_owned(), groups::chosen(form));
    body.insert("default_group".to_owned(), form.filled("default_group").map_or(Value::Null, Value::from));
    for limit in ["rpm", "tpm", "concurrency"] {
        body.insert(limit.to_owned(), limit_or_text(form, limit));
    }
    body.extend(budgets::body(form).map(|budget| ("budget".to_owned(), budget)));
    body
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn form_becomes_the_body_of_the_admin_api() {
        let form = FormData::parse(
            b"role=operator&status=active&billing=prepaid&groups=a&groups=b&default_group=&rpm=60&tpm=&concurrency=&budget_month_block=%2450&budget_day_alert=5",
        );
        let expected = json!({
            "role": "operator", "status": "active", "billing": "prepaid", "groups": ["a", "b"], "default_group": null, "rpm": 60,
            "tpm": 0, "concurrency": 0,
            "budget": [
                {"amount": "50", "window": "month", "action": "block"}, {"amount": "5", "window": "day", "action": "alert"}
            ],
        });
        assert_eq!(Value::Object(body(&form)), expected);
    }
}
