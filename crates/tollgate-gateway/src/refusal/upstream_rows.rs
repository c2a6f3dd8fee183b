//! Refusals for lack of a usable account, and after upstream failures.

use tollgate_core::{LimitLevel, MissingPrice, NanoUsd, NoRouteCause, PriceFigures, PriceKind};
use tollgate_protocol::{CONTEXT_EXCEEDED, ErrorStyle, Protocol, RefusedOutputLimit, names_context_limit};

use super::{
    Rejection, UpstreamFailure,
    redact::redact,
    refusal_row::{INVALID_REQUEST, RefusalRow, SERVER_ERROR, UNAVAILABLE_ERROR},
    text::{list_path, quoted, usd},
};
use crate::request::Head;

/// Seconds of E40 when no recovery time is known.
const UNKNOWN_RECOVERY_SECS: u32 = 30;

/// The message of Anthropic's API for a request that is too long for the model, by which its clients recognise that they must
/// shorten the conversation.
const TOO_LONG: &str = "prompt is too long";

/// Type of a 503 that is not caused by load. Claude Code repeats an `overloaded_error` regardless of the headers.
const NOT_OVERLOADED: &str = "api_error";

/// E40. Callers get `x-should-retry: false` if the cause lasts until an operator acts. A model without any configured account may be in
/// the middle of being set up, so its callers get a `Retry-After`.
pub(super) fn no_route(model: &str, cause: NoRouteCause, retry_after: Option<u32>, head: &Head) -> RefusalRow {
    let (model, from) = (quoted(model), head.from);
    let (scope, other, quote) = (scope(from), other_model(from), quote_id(head));
    if let Some(why) = needs_operator(cause) {
        let is_being_set_up = cause == NoRouteCause::NoneConfigured;
        let retries = if is_being_set_up { "Do not retry without limit" } else { "Retrying does not help" };
        let message = format!(
            "{scope}: model '{model}' has no usable upstream account, because {why}. {retries}: {other}, or {quote}, who must \
             change this."
        );
        let row = no_accounts(message, model, cause, from);
        return if is_being_set_up { row.retry(UNKNOWN_RECOVERY_SECS) } else { row.stop().messages_type(NOT_OVERLOADED) };
    }
    let message = format!(
        "{scope}: model '{model}' has no usable upstream account at the moment. Do not retry without limit: wait, or {other}. If \
         this lasts, {quote}, who finds the cause in the usage log."
    );
    no_accounts(message, model, cause, from).retry(retry_after.unwrap_or(UNKNOWN_RECOVERY_SECS))
}

/// Why the model stays without an account until the operator acts. `None` for causes that end by themselves.
fn needs_operator(cause: NoRouteCause) -> Option<&'static str> {
    match cause {
        NoRouteCause::NoneConfigured => Some("none is configured for it"),
        NoRouteCause::Disabled => Some("its accounts are disabled"),
        NoRouteCause::Credential => Some("the provider refused the credential of each of its accounts"),
        NoRouteCause::PriceLimit => Some("every channel is above a price limit"),
        NoRouteCause::NoPrice => Some("it has no price"),
        NoRouteCause::Concurrency | NoRouteCause::Cooldown | NoRouteCause::UpstreamRateLimited | NoRouteCause::UpstreamQuota => {
            None
        }
    }
}

/// E41.
pub(super) fn above_price_limit(model: &str, price: Option<&PriceFigures>, from: Protocol) -> RefusalRow {
    let model = quoted(model);
    let whose = match price.map(|price| price.level) {
        Some(LimitLevel::Group) => "this key's group",
        Some(LimitLevel::Request) => "this request",
        Some(LimitLevel::Key) | None => "this key",
    };
    let figures = price.map_or_else(String::new, |price| {
        let kind = match price.kind {
            PriceKind::Input => "input",
            PriceKind::Output => "output",
        };
        format!(" (limit {}, cheapest {} USD per 1M {kind} tokens)", usd(NanoUsd(price.limit)), usd(NanoUsd(price.price)))
    });
    let message = format!(
        "{}: every channel offering model '{model}' is above the channel price limit of {whose}{figures}. Raise the limit, or {}.",
        scope(from),
        other_model(from)
    );
    no_accounts(message, model, NoRouteCause::PriceLimit, from).stop().messages_type(NOT_OVERLOADED)
}

/// E42.
pub(super) fn no_price(model: &str, missing: Option<MissingPrice>, head: &Head) -> RefusalRow {
    let (model, from) = (quoted(model), head.from);
    if let Some(MissingPrice::CostOfOption(option)) = missing {
        let message = format!(
            "{}: no channel that offers model '{model}' has a price for {}, and a channel price limit of this key requires one. \
             Leave it out, {}, or {}.",
            scope(from),
            option.as_str(),
            other_model(from),
            quote_id(head)
        );
        return no_accounts(message, model, NoRouteCause::NoPrice, from).stop().messages_type(NOT_OVERLOADED);
    }
    let why = match missing {
        Some(MissingPrice::SaleForBoundedMoney) | None => "this key's use is bounded in money",
        // Callers never see costs, so a missing cost is not distinguished.
        Some(MissingPrice::SaleForPriceLimit | MissingPrice::CostForPriceLimit | MissingPrice::CostOfOption(_)) => {
            "a channel price limit of this key requires one"
        }
    };
    let message = format!(
        "{}: model '{model}' has no price, and {why}. The operator must set a price. Until then {}, or {}.",
        scope(from),
        other_model(from),
        quote_id(head)
    );
    no_accounts(message, model, NoRouteCause::NoPrice, from).stop().messages_type(NOT_OVERLOADED)
}

/// The advice to use another model. The list also contains the refused model, because it does not depend on accounts.
fn other_model(from: Protocol) -> String {
    format!("use another model that GET {} lists", list_path(from))
}

fn quote_id(head: &Head) -> String {
    format!("quote request id {} to the operator", head.request_id)
}

/// The common beginning of these messages. It names the caller's protocol, whichever upstream was tried.
fn scope(from: Protocol) -> String {
    let family = from.as_str();
    if from.spec().error_style == ErrorStyle::Gemini {
        format!("No available accounts exist for the native protocol family ({family})")
    } else {
        format!("No available accounts exist for the {family} protocol family")
    }
}

fn no_accounts(message: String, model: String, cause: NoRouteCause, from: Protocol) -> RefusalRow {
    RefusalRow::new(503, UNAVAILABLE_ERROR, "no_available_accounts", "UNAVAILABLE", "NO_AVAILABLE_ACCOUNTS", message)
        .metadata("family", from.as_str())
        .metadata("model", model)
        .metadata("cause", cause.as_str())
        .metadata("retryable", if cause.retryable() { "true" } else { "false" })
}

/// E50 to E60. `from` is the caller's protocol.
pub(super) fn failed(model: &str, failure: &UpstreamFailure, from: Protocol) -> RefusalRow {
    match failure {
        UpstreamFailure::Unreachable => {
            broken("upstream_unreachable", "UPSTREAM_UNREACHABLE", "The upstream provider could not be reached.").retry(5)
        }
        UpstreamFailure::TimedOut { limit_ms } => {
            timed_out(format!("The upstream provider did not answer within {}.", time(*limit_ms)))
        }
        UpstreamFailure::GatewayTimedOut { status } => {
            timed_out(format!("The upstream provider reported that its own server timed out (status {status})."))
        }
        UpstreamFailure::Rejected(rejection) => rejected(rejection, from),
        UpstreamFailure::AccountRefused => {
            let message = "The upstream provider refused the gateway's account. The operator has been informed.";
            broken("upstream_account_error", "UPSTREAM_ACCOUNT_ERROR", message).retry(10)
        }
        UpstreamFailure::RateLimited { retry_after } => rate_limited(model, retry_after.unwrap_or(5).clamp(1, 60)),
        UpstreamFailure::Failed { status } => {
            let message = format!("The upstream provider failed with status {status}.");
            broken("upstream_error", "UPSTREAM_ERROR", &message).retry(2)
        }
        UpstreamFailure::Overloaded { retry_after } => {
            let message = "The upstream provider is overloaded.";
            RefusalRow::unavailable("upstream_overloaded", "UPSTREAM_OVERLOADED", message).retry(retry_after.unwrap_or(5))
        }
        UpstreamFailure::BadResponse => {
            let message = "The upstream provider returned a response that could not be read.";
            broken("upstream_bad_response", "UPSTREAM_BAD_RESPONSE", message)
        }
        UpstreamFailure::StreamInterrupted => {
            let message = "The upstream provider's stream ended before the answer was complete.";
            broken("upstream_stream_interrupted", "UPSTREAM_STREAM_INTERRUPTED", message)
        }
        UpstreamFailure::StreamTooLong { limit_ms } => {
            timed_out(format!("The upstream provider's answer took longer than {}; it is incomplete.", time(*limit_ms)))
        }
        UpstreamFailure::StreamIdle { limit_ms } => {
            timed_out(format!("The upstream provider sent nothing for {}; the answer is incomplete.", time(*limit_ms)))
        }
    }
}

/// `120 s`, or `300 ms` when it is not a whole number of seconds.
fn time(ms: u64) -> String {
    if ms.is_multiple_of(1_000) { format!("{} s", ms / 1_000) } else { format!("{ms} ms") }
}

/// 502.
fn broken(code: &str, reason: &str, message: &str) -> RefusalRow {
    RefusalRow::new(502, SERVER_ERROR, code, "UNAVAILABLE", reason, message.to_owned())
}

/// 504.
fn timed_out(message: String) -> RefusalRow {
    RefusalRow::new(504, SERVER_ERROR, "upstream_timeout", "DEADLINE_EXCEEDED", "UPSTREAM_TIMEOUT", message)
}

/// E54.
fn rate_limited(model: &str, secs: u32) -> RefusalRow {
    let message =
        format!("The upstream provider's rate limit is reached for the model '{}'. Try again in {secs} s.", quoted(model));
    RefusalRow::new(429, "rate_limit_error", "upstream_rate_limited", "RESOURCE_EXHAUSTED", "UPSTREAM_RATE_LIMITED", message)
        .retry(secs)
}

/// E52 with the upstream's message. A 404 that is not about something the request names is caused by the channel's base URL, not by the
/// request, and becomes 502.
fn rejected(rejection: &Rejection, from: Protocol) -> RefusalRow {
    let problem = &rejection.problem;
    let status = if problem.status == 404 && !is_about_request(rejection, from) { 502 } else { problem.status };
    let message = redact(problem.message.trim());
    let message = if message.is_empty() {
        format!("The upstream provider rejected the request with status {}.", problem.status)
    } else {
        message
    };
    let message = match refused_limit(rejection, &message, from) {
        Some(limit) => format!("{}: {message}", limit.in_messages_words()),
        None if is_unclear(rejection, &message, from) => format!("{TOO_LONG}: {message}"),
        None => message,
    };
    let native_status = match status {
        404 => "NOT_FOUND",
        502 => "UNAVAILABLE",
        _ => "INVALID_ARGUMENT",
    };
    let kind = if status == 502 { SERVER_ERROR } else { INVALID_REQUEST };
    let mut row = RefusalRow::new(status, kind, "upstream_rejected", native_status, "UPSTREAM_REJECTED", message);
    let own_words = &mut row.0;
    if problem.is_error_object && status != 502 {
        match rejection.protocol {
            Protocol::OpenAi | Protocol::Responses => {
                if let Some(kind) = &problem.kind {
                    own_words.openai.kind = redact(kind);
                }
                own_words.openai.code = problem.code.as_deref().map(redact);
                own_words.openai.param = problem.param.as_deref().map(redact);
            }
            Protocol::Gemini => {
                own_words.native.upstream_details = problem.details.iter().filter(|raw| harmless(raw)).cloned().collect();
            }
            Protocol::Anthropic => {
                own_words.anthropic.kind = problem.kind.as_deref().map(redact);
                own_words.anthropic.details = problem.details.iter().find(|raw| harmless(raw)).cloned();
            }
        }
    }
    if problem.context_exceeded {
        own_words.openai.code = Some(CONTEXT_EXCEEDED.to_owned());
    }
    row
}

/// True if the message of another provider says that the request is too long for the model in words that clients of the Messages API do
/// not recognise.
fn is_unclear(rejection: &Rejection, message: &str, from: Protocol) -> bool {
    is_foreign(rejection, from) && rejection.problem.context_exceeded && !names_context_limit(message)
}

/// The output limit that another provider refused, for clients of the Messages API: Claude Code repeats the request with a lower one.
fn refused_limit(rejection: &Rejection, message: &str, from: Protocol) -> Option<RefusedOutputLimit> {
    if is_foreign(rejection, from) && matches!(rejection.problem.status, 400 | 422) {
        RefusedOutputLimit::read(message)
    } else {
        None
    }
}

/// True if the message of another provider is sent to a client of the Messages API.
fn is_foreign(rejection: &Rejection, from: Protocol) -> bool {
    rejection.protocol != Protocol::Anthropic && from.spec().error_style == ErrorStyle::Anthropic
}

/// Whether a 404 is about something that the request names: a model, or another object of the provider, such as a file or a vector store.
/// Only requests of the upstream's own protocol can name the latter; a server that does not know the path answers without an error object,
/// or with a phrase.
fn is_about_request(rejection: &Rejection, from: Protocol) -> bool {
    let Rejection { protocol, problem } = rejection;
    problem.message.to_ascii_lowercase().contains("model")
        || problem.code.as_deref().is_some_and(|code| code.contains("model") || code.ends_with("_not_found"))
        || (*protocol == from && problem.is_error_object && !problem.from_intermediary && !problem.message.trim().is_empty())
}

/// Whether an upstream's detail can be forwarded unchanged. A detail with anything to redact is omitted, because raw JSON
/// cannot be edited word by word.
fn harmless(raw: &str) -> bool {
    // Type names look like hosts to the redaction and are the one place where a host is expected.
    let plain = raw.replace("type.googleapis.com/", "").replace("googleapis.com", "");
    redact(&plain) == plain
}
