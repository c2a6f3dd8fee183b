//! Preferences of the request's member: how pages are shown, and when to notify the member about their budgets and balance.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use tollgate_core::NanoUsd;
use tollgate_store::{
    AdminScope, Change, IdentityChange, LoginMember, MemberPreferences,
    fields::{FieldValue as _, Kind, Object, WriteMode},
};

use super::{
    request_context::RequestContext,
    route::{Method, Needs, Resource, ResponseSchema, Route, handler},
    schema::both,
};
use crate::{api_error::ApiError, response::ApiResponse};

pub(crate) const LANGUAGES: &[&str] = &["en", "zh-CN"];
pub(crate) const THEMES: &[&str] = &["light", "dark"];

/// Longer than the longest name.
pub(crate) const MAX_TIME_ZONE: usize = 64;
const TIME_ZONE: Kind = Kind::Text { min: 1, max: MAX_TIME_ZONE };

const PERCENTS: Kind = Kind::List { of: &Kind::Integer { min: 1, max: 100 }, max: 10 };
const BALANCE: Kind = Kind::Usd { min: 0, max: i64::MAX };

static PREFERENCES: Object = Object::of(
    "Preferences",
    &[
        both("language", Kind::Word(LANGUAGES), "Language of pages; null: the browser's.").or_null(),
        both("theme", Kind::Word(THEMES), "Theme of pages; null: the system's.").or_null(),
        both("time_zone", TIME_ZONE, "IANA name of the zone in which pages show times; null: the browser's.").or_null(),
        both("notice_percents", PERCENTS, "Percentages of the member's budgets at which the member is notified; null: 80 and 100.")
            .or_null(),
        both("notice_balance", BALANCE, "Prepaid balance in USD below which the member is notified; 0: never; null: 1.").or_null(),
        both("notice_mail", Kind::Flag, "Whether the member is notified by mail, too, if the gateway sends mails to members."),
    ],
);

const RESOURCE: Resource = Resource { tag: "session", needs: Needs::Scope(AdminScope::Member) };

pub(super) static ROUTES: &[Route] = &[
    RESOURCE
        .route(
            Method::Get,
            "/admin/v1/me/preferences",
            "get_preferences",
            "The preferences of the member of this request for pages.",
            handler!(show),
        )
        .returns(ResponseSchema::Object(&PREFERENCES)),
    RESOURCE
        .route(
            Method::Patch,
            "/admin/v1/me/preferences",
            "change_preferences",
            "Changes the fields that are sent; the others are unchanged.",
            handler!(change),
        )
        .takes(&PREFERENCES, WriteMode::Update)
        .returns(ResponseSchema::Object(&PREFERENCES)),
];

/// The member of a request; admin keys without one have no preferences.
pub(super) async fn own(context: &RequestContext) -> Result<LoginMember, ApiError> {
    let (id, _) = context.principal.member().ok_or_else(no_member)?;
    context.state.store.identity.login(id).await?.ok_or_else(no_member)
}

fn no_member() -> ApiError {
    ApiError::conflict("needs_session", "Preferences belong to a member: sign in, or use an admin key of a member.")
}

fn answer(preferences: &MemberPreferences) -> ApiResponse {
    ApiResponse::ok(json!({
        "language": preferences.language, "theme": preferences.theme, "time_zone": preferences.time_zone,
        "notice_percents": preferences.notice_percents, "notice_balance": preferences.notice_balance,
        "notice_mail": preferences.notice_mail,
    }))
}

async fn show(context: RequestContext) -> Result<ApiResponse, ApiError> {
    Ok(answer(&own(&context).await?.login.preferences))
}

async fn change(context: RequestContext) -> Result<ApiResponse, ApiError> {
    let LoginMember { name: member, login, .. } = own(&context).await?;
    let mut preferences = login.preferences;
    if let Some(zone) = context.body.text("time_zone").filter(|zone| !is_time_zone(zone)) {
        return Err(ApiError::value(
            "time_zone",
            format!("no time zone is called '{zone}'; expected a name such as Europe/Berlin"),
        ));
    }
    let kept =
        [("language", &mut preferences.language), ("theme", &mut preferences.theme), ("time_zone", &mut preferences.time_zone)];
    for (name, kept) in kept {
        if let Some(value) = context.body.0.get(name) {
            *kept = value.as_str().map(str::to_owned);
        }
    }
    if let Some(value) = context.body.0.get("notice_percents") {
        preferences.notice_percents = value.as_array().map(|percents| {
            let numbers = percents.iter().filter_map(Value::as_u64).filter_map(|percent| u32::try_from(percent).ok());
            numbers.collect::<BTreeSet<u32>>().into_iter().collect()
        });
    }
    if let Some(value) = context.body.0.get("notice_balance") {
        let amount = (!value.is_null()).then(|| NanoUsd::read(value)).transpose();
        let amount = amount.map_err(|fault| ApiError::value("notice_balance", fault))?;
        preferences.notice_balance = amount.map(NanoUsd::to_usd_string);
    }
    if context.body.has("notice_mail") {
        preferences.notice_mail = context.body.flag("notice_mail");
    }
    let change = IdentityChange::SetPreferences { member, preferences: preferences.clone() };
    context.apply(&[Change::Identity(Box::new(change))]).await?;
    Ok(answer(&preferences))
}

/// Whether a time zone has this name. On a machine without a time zone database, every well-formed name is accepted, because
/// browsers have their own database.
#[must_use]
pub fn is_time_zone(name: &str) -> bool {
    let is_name = name.len() <= MAX_TIME_ZONE
        && name.starts_with(|first: char| first.is_ascii_alphabetic())
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_+-/".contains(&byte));
    is_name && (time_zones().next().is_none() || jiff::tz::db().get(name).is_ok())
}

/// Names of time zones that this machine knows.
pub(crate) fn time_zones() -> impl Iterator<Item = String> {
    jiff::tz::db().available().map(|name| name.as_str().to_owned())
}

/// The choice in the body; `None` for an unknown or empty word.
pub(crate) fn choice(known: &[&str], word: &str) -> Value {
    known.iter().find(|one| **one == word).map_or(Value::Null, |one| Value::from(*one))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_iana_time_zone_names_are_accepted() {
        assert!(["UTC", "Europe/Berlin", "America/Argentina/Buenos_Aires", "Etc/GMT+5"].into_iter().all(is_time_zone));
        assert!(!["", "+01:00", "../etc/passwd", "Europe/Berlin\"", "\u{4e0a}\u{6d77}"].into_iter().any(is_time_zone));
    }
}
