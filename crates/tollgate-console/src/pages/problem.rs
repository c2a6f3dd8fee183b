//! Errors of the admin API in the reader's language, and the page that shows one.

use askama::Template;
use http::StatusCode;

use super::{
    control::FaultPlace,
    file_faults, format,
    layout::Layout,
    locale::Locale,
    reply::{PageFailure, PageReply},
    request::PageRequest,
};
use crate::{
    api_error::{ApiError, NumberRange},
    identity::password,
};

#[derive(Debug, Template)]
#[template(path = "problem.html")]
struct ProblemPage {
    layout: Layout,
    t: Locale,
    status: u16,
    title: &'static str,
    sentence: String,
    request_id: String,
    may_retry: bool,
    /// Whether the failed sign-in can be started again.
    may_sign_in: bool,
    /// If a form was sent that can be sent again: the script's message, because it keeps what was typed.
    form_kept: Option<&'static str>,
}

#[derive(Debug, Template)]
#[template(path = "parts/part_failed.html")]
struct FailedPart {
    icons: String,
    t: Locale,
    title: &'static str,
    text: String,
    request_id: String,
    /// Of the whole page.
    address: String,
}

/// An error as a sentence with what to do.
pub(crate) fn say(t: Locale, error: &ApiError) -> String {
    if error.reason() == Some("number_range")
        && let Some(range) = error.range()
    {
        return say_range(t, range);
    }
    if let Some(text) = error.reason().and_then(|reason| said(t, reason)) {
        return text.to_owned();
    }
    if !error.faults().is_empty() {
        return format::capital(&file_faults::say(t, error.faults()));
    }
    let text = match (error.code(), error.param(), error.reason()) {
        ("wrong_login", ..) => t.say("problem.wrong_login"),
        ("wrong_passkey", ..) => t.say("problem.wrong_passkey"),
        ("no_passkeys", ..) => t.say("problem.no_passkeys"),
        ("too_many_passkeys", ..) => t.say("problem.too_many_passkeys"),
        ("wrong_code", ..) | ("invalid_value" | "missing_required_parameter", Some("code"), _) => t.say("problem.wrong_code"),
        ("challenge_ended", ..) => t.say("problem.challenge_ended"),
        ("invalid_value", Some("challenge"), _) => t.say("problem.secret_ended"),
        ("session_ended" | "missing_api_key", ..) => t.say("problem.session_ended"),
        ("invalid_token", ..) | (_, Some("token"), _) => t.say("problem.link_invalid"),
        (_, _, Some("password_common")) => t.say("problem.password_common"),
        (_, _, Some("password_is_name")) => t.say("problem.password_is_name"),
        (_, Some("new_password"), _) => {
            let (min, max) = (password::MIN_CHARS.to_string(), password::MAX_CHARS.to_string());
            return t.say_with("problem.password_length", &[("min", &min), ("max", &max)]);
        }
        (_, Some("new_password_again"), _) => t.say("problem.password_again"),
        (_, _, Some("wrong_password")) | ("invalid_value" | "missing_required_parameter", Some("password"), _) => {
            t.say("problem.wrong_password")
        }
        ("owned_by_file", ..) => t.say("problem.of_file"),
        ("job_conflict", ..) => t.say("problem.job_conflict"),
        ("too_many_views", ..) => t.say("problem.too_many_views"),
        ("too_many_backups", ..) => t.say("problem.too_many_backups"),
        ("rows_refused", ..) => t.say("problem.rows_refused"),
        ("revision_conflict", ..) => t.say("problem.conflict"),
        ("idempotency_key_reused", ..) => t.say("problem.posted_already"),
        ("already_exists", ..) => t.say("problem.already_exists"),
        ("login_taken", ..) => t.say("problem.login_taken"),
        (_, Some("name"), _) => t.say("problem.member_name"),
        (_, Some("email"), _) => t.say("problem.email"),
        ("oidc_failed", ..) => t.say("problem.oidc_failed"),
        ("oidc_refused", ..) => t.say("problem.oidc_refused"),
        ("registration_off", ..) => t.say("problem.registration_off"),
        ("registration_closed", ..) => t.say("problem.registration_closed"),
        ("not_admitted", ..) => t.say("problem.not_admitted"),
        ("no_password", ..) => t.say("problem.no_password"),
        ("sign_in_again", ..) => t.say("problem.sign_in_again"),
        ("no_totp", ..) => t.say("problem.no_totp"),
        ("rate_limit_exceeded", ..) => {
            return too_many(t, error.retry_after().unwrap_or(1));
        }
        ("other_origin" | "wrong_csrf_token", ..) => t.say("problem.form_expired"),
        ("operator_only" | "admin_only", ..) => t.say("problem.role"),
        ("not_found" | "unknown_url", ..) => t.say("problem.not_found"),
        ("method_not_supported", ..) => t.say("problem.method"),
        ("request_too_large", ..) => t.say("problem.too_large"),
        ("unsupported_media_type", ..) => t.say("problem.media_type"),
        ("request_timeout", ..) => t.say("problem.too_slow"),
        ("server_overloaded", ..) => t.say("problem.overloaded"),
        ("database_unavailable", ..) => t.say("problem.no_database"),
        ("internal_error", ..) => t.say("problem.internal"),
        // No page causes other errors yet. Show the admin API's text for them.
        _ => error.message(),
    };
    text.to_owned()
}

/// The longest wait that is shown in seconds.
const LONGEST_IN_SECONDS: u32 = 90;

/// Too many attempts, and how long to wait.
fn too_many(t: Locale, wait_s: u32) -> String {
    if wait_s > LONGEST_IN_SECONDS {
        t.say_with("problem.too_many_minutes", &[("count", &wait_s.div_ceil(60).to_string())])
    } else {
        t.say_with("problem.too_many", &[("seconds", &wait_s.to_string())])
    }
}

/// The whole numbers that a field takes.
fn say_range(t: Locale, NumberRange { min, max, or_zero }: NumberRange) -> String {
    let text = |number: i64| {
        let digits = format::integer(number.unsigned_abs());
        if number < 0 { format!("−{digits}") } else { digits }
    };
    let (least, most) = (text(min), text(max));
    let values = [("min", least.as_str()), ("max", most.as_str())];
    match (or_zero, max) {
        (_, i64::MAX) => t.say_with("problem.number_least", &values),
        (true, _) => t.say_with("problem.number_or_zero", &values),
        (false, _) => t.say_with("problem.number_between", &values),
    }
}

/// The faults of several rows, by row. `places` has the reasons by parameter, as for a form.
pub(crate) fn rows(t: Locale, error: &ApiError, places: &[FaultPlace]) -> Vec<(String, String)> {
    let reason = |fault: &ApiError| {
        let param = fault.param().unwrap_or_default();
        let base = param.split(['.', '[']).next().unwrap_or_default();
        places.iter().find(|(known, ..)| *known == param || *known == base).map(|(_, _, reason)| *reason)
    };
    let said = |fault: &ApiError| match (fault.reason(), reason(fault)) {
        (None, Some(reason)) => say(t, &fault.clone().because(reason)),
        _ => say(t, fault),
    };
    error.rows().iter().map(|(name, fault)| (name.clone(), said(fault))).collect()
}

/// Why a service key is refused, for its holder.
pub(crate) fn say_of_service_key(t: Locale, error: &ApiError) -> String {
    match error.code() {
        "missing_api_key" => t.say("key_check.missing").to_owned(),
        "invalid_api_key" => t.say("key_check.invalid").to_owned(),
        "api_key_expired" => t.say("key_check.expired").to_owned(),
        "api_key_disabled" => t.say("key_check.disabled").to_owned(),
        "ip_not_allowed" => t.say("key_check.address").to_owned(),
        "account_suspended" => t.say("key_check.suspended").to_owned(),
        _ => say(t, error),
    }
}

/// The text for a reason in a form about rows.
fn said(t: Locale, reason: &str) -> Option<&'static str> {
    Some(match reason {
        "amount" => t.say("problem.amount"),
        "base_url" => t.say("problem.base_url"),
        "ca_file" => t.say("problem.ca_file"),
        "client_certificate" => t.say("problem.client_certificate"),
        "client_key" => t.say("problem.client_key"),
        "passkey_exists" => t.say("passkeys.exists"),
        "passkey_ended" => t.say("problem.passkey_ended"),
        "passkey_refused" => t.say("problem.passkey_refused"),
        "several_keys" => t.say("problem.several_keys"),
        "private_address" => t.say("problem.private_address"),
        "private_address_for_admins" => t.say("problem.private_address_for_admins"),
        "credential" => t.say("problem.credential"),
        "http_url" => t.say("problem.http_url"),
        "image" => t.say("problem.image"),
        "line" => t.say("problem.line"),
        "rate" => t.say("problem.rate"),
        "headers" => t.say("problem.headers"),
        "multiplier" => t.say("problem.multiplier"),
        "networks" => t.say("problem.networks"),
        "number_range" => t.say("problem.number_range"),
        "origins" => t.say("problem.origins"),
        "proxy" => t.say("problem.proxy"),
        "proxy_lines" => t.say("problem.proxy_lines"),
        "row_exists" => t.say("problem.row_exists"),
        "row_name" => t.say("problem.row_name"),
        "day" => t.say("problem.day"),
        "exists" => t.say("problem.exists"),
        "factor" => t.say("problem.factor"),
        "job_gone" => t.say("problem.job_gone"),
        "key_exists" => t.say("problem.key_exists"),
        "key_name" => t.say("problem.key_name"),
        "last_admin" => t.say("problem.last_admin"),
        "limit" => t.say("problem.limit"),
        "margin" => t.say("problem.margin"),
        "member_needed" => t.say("problem.member_needed"),
        "group_description" => t.say("problem.group_description"),
        "model_factors" => t.say("problem.model_factors"),
        "key_tags" => t.say("problem.key_tags"),
        "model_pattern" => t.say("problem.model_pattern"),
        "name" => t.say("problem.name"),
        "network" => t.say("problem.network"),
        "no_self_service" => t.say("problem.no_self_service"),
        "no_group" => t.say("problem.no_group"),
        "no_list" => t.say("problem.no_list"),
        "nothing_filled" => t.say("problem.nothing_filled"),
        "nothing_left" => t.say("problem.nothing_left"),
        "nothing_left_of_group" => t.say("problem.nothing_left_of_group"),
        "nothing_picked" => t.say("problem.nothing_picked"),
        "past" => t.say("problem.past"),
        "percents" => t.say("problem.percents"),
        "posting" => t.say("problem.posting"),
        "key_replaced" => t.say("problem.key_replaced"),
        "price_limit" => t.say("problem.price_limit"),
        "price_limit_kind" => t.say("problem.price_limit_kind"),
        "statuses" => t.say("problem.statuses"),
        "tags" => t.say("problem.tags"),
        "time_zone" => t.say("problem.time_zone"),
        "too_many_keys" => t.say("problem.too_many_keys"),
        "typed_count" => t.say("problem.typed_count"),
        "typed_name" => t.say("problem.typed_name"),
        "unknown_channel" => t.say("problem.unknown_channel"),
        "unknown_group" => t.say("problem.unknown_group"),
        "unknown_key" => t.say("problem.unknown_key"),
        "unknown_member" => t.say("problem.unknown_member"),
        "whole_number" => t.say("problem.whole_number"),
        _ => return parameter_fault(t, reason),
    })
}

/// The text for a reason in a form about parameters or prices.
fn parameter_fault(t: Locale, reason: &str) -> Option<&'static str> {
    Some(match reason {
        "parameters" => t.say("problem.parameters"),
        "parameter_edits" => t.say("problem.parameter_edits"),
        "edit_parameter" => t.say("problem.edit_parameter"),
        "edit_to" => t.say("problem.edit_to"),
        "edit_bounds" => t.say("problem.edit_bounds"),
        "edit_value" => t.say("problem.edit_value"),
        _ => return None,
    })
}

fn title(t: Locale, status: StatusCode) -> &'static str {
    match status {
        StatusCode::FORBIDDEN => t.say("problem.title.forbidden"),
        StatusCode::NOT_FOUND => t.say("problem.title.not_found"),
        StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE => t.say("problem.title.busy"),
        // A provider failed, not the gateway.
        StatusCode::BAD_GATEWAY => t.say("problem.title.request"),
        status if status.is_client_error() => t.say("problem.title.request"),
        _ => t.say("problem.title.internal"),
    }
}

/// The error of a part of a page, shown in place of the part. Without a script its link loads the whole page.
pub(crate) fn part(request: &PageRequest, failure: &PageFailure) -> PageReply {
    let (internal, t) = (ApiError::internal(), request.t());
    let error = error_of(failure, &internal);
    let template = FailedPart {
        icons: request.layout(String::new()).icons(),
        t,
        title: title(t, error.status),
        text: say(t, error),
        request_id: request.meta.id.to_string(),
        address: request.url(&request.address),
    };
    let reply = PageReply::page(error.status, &template).unwrap_or_else(|_| PageReply::empty(error.status));
    finish(reply, error)
}

/// The error of a failure; an internal one if a template failed.
fn error_of<'a>(failure: &'a PageFailure, internal: &'a ApiError) -> &'a ApiError {
    match failure {
        PageFailure::Api(error) => error,
        PageFailure::Template(error) => {
            tracing::error!(%error, "a page cannot be rendered");
            internal
        }
    }
}

fn finish(reply: PageReply, error: &ApiError) -> PageReply {
    let reply = match error.retry_after() {
        Some(seconds) => reply.header("retry-after", &seconds.to_string()),
        None => reply,
    };
    reply.with_cause(error.cause().cloned())
}

/// The page for a failure.
pub(crate) fn page(request: &PageRequest, failure: &PageFailure) -> PageReply {
    let internal = ApiError::internal();
    let error = error_of(failure, &internal);
    let t = request.t();
    let may_sign_in =
        matches!(error.code(), "challenge_ended" | "oidc_failed" | "oidc_refused" | "not_admitted" | "registration_closed");
    // Forms that every page has, such as the one that signs out, belong to no page.
    let has_form = request.page_of_form.as_deref().is_some_and(|page| page != "/");
    let is_missing = error.status == StatusCode::NOT_FOUND;
    let template = ProblemPage {
        layout: request.layout(title(t, error.status)),
        t,
        status: error.status.as_u16(),
        title: title(t, error.status),
        sentence: say(t, error),
        request_id: request.meta.id.to_string(),
        may_sign_in,
        may_retry: error.status.is_server_error() || error.retry_after().is_some(),
        form_kept: (has_form && !is_missing && !may_sign_in).then(|| t.say("problem.form_kept")),
    };
    finish(PageReply::page(error.status, &template).unwrap_or_else(|_| PageReply::redirect(&request.url("/"))), error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_waits_are_said_in_minutes() {
        let waits = [1, 90, 91, 295].map(|wait_s| too_many(Locale::EN, wait_s));
        let ends: Vec<&str> = waits.iter().map(|text| text.strip_prefix("Too many attempts. Try again in ").unwrap()).collect();
        assert_eq!(ends, ["1 s.", "90 s.", "2 minutes.", "5 minutes."]);
    }
}
