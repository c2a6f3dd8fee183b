//! The error table: status, codes and text of each refusal on each protocol, as documented in docs/errors.md. The text is the
//! same on all of them.

use tollgate_core::{FundsStatus, LimitExceeded, NoRouteCause, RateExceeded, RateKind, Subject, Timestamp, Window};
use tollgate_protocol::{ErrorStyle, FieldViolation, Malformed, MalformedKind, Problem, Protocol};

use super::{
    NotStored, PathHint, Refusal,
    refusal_row::{INVALID_REQUEST, RefusalRow, SERVER_ERROR},
    text::{list_path, masked, protocol_text, quoted, quoted_path, seconds_until, time, usd},
    upstream_rows as upstream,
};
use crate::request::Head;

impl Refusal {
    /// Status, codes and text in every protocol.
    #[must_use]
    pub fn problem(&self, head: &Head) -> Problem {
        let mut problem = self.row(head).0;
        problem.request_id = head.request_id.to_string();
        if head.from.spec().error_style == ErrorStyle::Anthropic {
            adapt_to_messages(&mut problem);
        }
        problem
    }

    #[expect(clippy::too_many_lines, reason = "a table: one row per refusal")]
    fn row(&self, head: &Head) -> RefusalRow {
        let key = || masked(head.presented_key.as_ref());
        match self {
            Self::KeyMissing => {
                let message = "No API key was sent. Put it in the header 'Authorization: Bearer <API_KEY>' (native protocol: \
                               'x-native-api-key: <API_KEY>').";
                RefusalRow::unauthenticated("missing_api_key", "API_KEY_MISSING", message.to_owned())
            }
            Self::KeyInvalid => {
                // LiteLLM as a client recognises a wrong key, among other bad requests, by this text.
                let message = match head.from.spec().error_style {
                    ErrorStyle::OpenAi | ErrorStyle::Anthropic => {
                        format!("Incorrect API key provided: {}. Send the complete service key.", key())
                    }
                    ErrorStyle::Gemini => format!("The API key {} is not valid. Send the complete service key.", key()),
                };
                RefusalRow::unauthenticated("invalid_api_key", "API_KEY_INVALID", message)
            }
            Self::KeyExpired(at) => {
                let message = format!("The API key {} expired on {}. Create a new one in the console.", key(), time(*at));
                RefusalRow::unauthenticated("api_key_expired", "API_KEY_EXPIRED", message)
            }
            Self::KeyDisabled => {
                let message = format!("The API key {} is disabled.", key());
                RefusalRow::unauthenticated("api_key_disabled", "API_KEY_DISABLED", message)
            }
            Self::AddressBlocked => {
                let message = match head.peer {
                    Some(peer) => format!("This API key may not be used from address {peer}."),
                    None => {
                        "This API key may not be used from an unknown address: the proxy before the gateway names none.".to_owned()
                    }
                };
                RefusalRow::denied("ip_not_allowed", "API_KEY_IP_ADDRESS_BLOCKED", message)
            }
            Self::Suspended => {
                let message = "The account of this API key is suspended.".to_owned();
                RefusalRow::denied("account_suspended", "CONSUMER_SUSPENDED", message)
            }
            Self::ProtocolBlocked { allowed } => {
                let allowed: Vec<&str> = allowed.iter().map(|protocol| protocol_text(*protocol)).collect();
                let message = format!("This API key may not be used with this protocol, only with {}.", allowed.join(", "));
                RefusalRow::denied("protocol_not_allowed", "API_KEY_SERVICE_BLOCKED", message)
            }
            Self::UnknownPath { hint } => unknown_path(hint.as_ref(), head),
            Self::MethodNotAllowed { allow } => method_not_allowed(allow, head),
            Self::UnknownVerb => {
                let message = format!(
                    "The path {} does not name a method. Append ':generateContent' (also: ':streamGenerateContent', \
                     ':countTokens', ':embedContent', ':batchEmbedContents').",
                    quoted(&head.path)
                );
                RefusalRow::not_found("unknown_url", "UNKNOWN_METHOD", message)
            }
            Self::ModelNotFound { model, .. } => model_not_found(model, head),
            Self::MethodUnsupported { model, supports } => method_unsupported(model, supports, head),
            Self::Malformed(fault) => malformed(fault, head.from),
            Self::Unsupported { fields, model, reason } => unsupported(fields, model, reason.as_deref(), head),
            Self::MediaType { sent } => {
                RefusalRow::media(format!("Content-Type '{}' is not supported; send application/json.", quoted(sent)))
            }
            Self::ContentEncoding { sent } => {
                RefusalRow::media(format!("Content-Encoding '{}' is not supported; use gzip or none.", quoted(sent)))
            }
            Self::BodyTooLarge { limit } => {
                let message = format!("The request body is larger than {limit} bytes.");
                RefusalRow::new(413, INVALID_REQUEST, "request_too_large", "INVALID_ARGUMENT", "REQUEST_TOO_LARGE", message)
            }
            Self::BodyUnreadable { fault } => {
                RefusalRow::invalid("invalid_json", "INVALID_JSON", format!("The request body is not valid JSON: {fault}."))
            }
            Self::InvalidValue { name, message } => {
                let violation = FieldViolation { field: (*name).to_owned(), description: message.clone() };
                RefusalRow::invalid("invalid_value", "INVALID_VALUE", message.clone()).param(name).violations(vec![violation])
            }
            Self::LimitExceeded(exceeded) => match &**exceeded {
                LimitExceeded::Rate(rate) => rate_exceeded(rate),
                LimitExceeded::Money(funds) => insufficient_funds(funds, head.arrived),
            },
            Self::WrongKeys { retry_after: secs } => RefusalRow::rate_limited(
                *secs,
                format!("Too many invalid API keys were sent from this address. Try again in {secs} s."),
            ),
            Self::NoRoute { model, cause: NoRouteCause::PriceLimit, price, .. } => {
                upstream::above_price_limit(model, price.as_ref(), head.from)
            }
            Self::NoRoute { model, cause: NoRouteCause::NoPrice, missing_price, .. } => {
                upstream::no_price(model, *missing_price, head)
            }
            Self::NoRoute { model, cause, retry_after, .. } => upstream::no_route(model, *cause, *retry_after, head),
            Self::Upstream { model, failure } => upstream::failed(model, failure, head.from),
            Self::ShuttingDown => RefusalRow::unavailable("shutting_down", "SHUTTING_DOWN", "The gateway is restarting.").retry(2),
            Self::Internal => {
                let message = format!("Internal error. Quote request id {} to the operator.", head.request_id);
                RefusalRow::new(500, SERVER_ERROR, "internal_error", "INTERNAL", "INTERNAL", message)
            }
            Self::Overloaded => {
                // Spread by the id's random part, so that refused callers do not all retry at the same moment.
                let secs = u32::from(head.request_id.uuid().as_bytes()[15] % 5) + 1;
                RefusalRow::unavailable("server_overloaded", "SERVER_OVERLOADED", "The gateway is overloaded.").retry(secs)
            }
            Self::CallerLeft => {
                let message = "The caller closed the connection.".to_owned();
                RefusalRow::new(499, INVALID_REQUEST, "client_closed_request", "CANCELLED", "CALLER_LEFT", message)
            }
            Self::TooSlow { secs } => {
                let message = format!("The request was not received within {secs} s.");
                RefusalRow::new(408, INVALID_REQUEST, "request_timeout", "DEADLINE_EXCEEDED", "REQUEST_TIMEOUT", message)
            }
            Self::HeadersTooLarge { limit } => {
                RefusalRow::head_too_large(431, format!("Request headers are larger than {limit} bytes."))
            }
            Self::TargetTooLong { limit } => {
                RefusalRow::head_too_large(414, format!("The request target is longer than {limit} bytes."))
            }
            Self::ContentPolicy => {
                // On native a blocked prompt is a 200; its body is written with the answer.
                let status = if head.from.spec().error_style == ErrorStyle::Gemini { 200 } else { 400 };
                let message = "The request was blocked by the content rules of this gateway.".to_owned();
                let code = "content_policy_violation";
                RefusalRow::new(status, INVALID_REQUEST, code, "INVALID_ARGUMENT", "CONTENT_POLICY", message).stop()
            }
            Self::KeyCheckUnavailable => {
                let message = "The service key cannot be checked at the moment.";
                RefusalRow::unavailable("key_check_unavailable", "KEY_CHECK_UNAVAILABLE", message).retry(5)
            }
            Self::NotStored(NotStored::Response(id)) => {
                let message = format!(
                    "The response '{}' is not stored: this gateway keeps no responses. Send the whole conversation in 'input', with \
                     'store': false and 'include': [\"reasoning.encrypted_content\"].",
                    quoted(id)
                );
                RefusalRow::not_found("response_not_found", "RESPONSE_NOT_FOUND", message)
            }
            Self::NotStored(NotStored::Conversations) => {
                let message = "Conversations are not stored by this gateway. Send the whole conversation in 'input'.";
                RefusalRow::not_found("unknown_url", "UNKNOWN_PATH", message.to_owned())
            }
            Self::UpgradeRequired => {
                let message = "This gateway speaks HTTP only; use POST /v1/responses.".to_owned();
                RefusalRow::new(426, INVALID_REQUEST, "upgrade_required", "FAILED_PRECONDITION", "UPGRADE_REQUIRED", message)
            }
        }
    }
}

/// Adapts a refusal to Anthropic's clients: they repeat a 401 for minutes unless the answer forbids it, and do not know 422.
fn adapt_to_messages(problem: &mut Problem) {
    match problem.status {
        401 => problem.stop = true,
        422 => problem.status = 400,
        _ => {}
    }
}

/// The paths that callers can use, for callers of an API that has no counterpart.
const OFFERED: &str = "It has POST /v1/chat/completions, POST /v1/responses, POST /v1/embeddings, POST /v1/messages and GET \
                       /v1/models, and of the Gemini API GET /v1beta/models and POST /v1beta/models/{model}:generateContent.";

/// E10.
fn unknown_path(hint: Option<&PathHint>, head: &Head) -> RefusalRow {
    let hint = match hint {
        None => String::new(),
        Some(PathHint::Similar { path, base_url }) => {
            let base_url = base_url.map_or_else(String::new, |fault| format!(" {fault}"));
            format!(" Did you mean {}?{base_url}", quoted(path))
        }
        Some(PathHint::NotOffered(api)) => {
            let instead = api.instead.map_or_else(|| OFFERED.to_owned(), |instead| format!("Use {instead}."));
            format!(" This gateway does not offer {}. {instead}", api.name)
        }
    };
    let message = format!("Unknown path {} {}.{hint}", quoted(head.http_method.as_str()), quoted_path(&head.path));
    RefusalRow::not_found("unknown_url", "UNKNOWN_PATH", message)
}

/// E11.
fn method_not_allowed(allow: &str, head: &Head) -> RefusalRow {
    let (method, path) = (quoted(head.http_method.as_str()), quoted_path(&head.path));
    let fits = allow.split(',').next().unwrap_or(allow);
    // CONNECT has an authority and no path.
    let place = if head.path.is_empty() { String::new() } else { format!(" on {path}") };
    let message = format!("Method {method} is not allowed{place}; use {fits}.");
    RefusalRow::new(405, INVALID_REQUEST, "method_not_supported", "UNIMPLEMENTED", "METHOD_NOT_ALLOWED", message)
}

/// E13, and E14, which is byte-for-byte identical.
fn model_not_found(model: &str, head: &Head) -> RefusalRow {
    let model = quoted(model);
    let message = format!(
        "The model '{model}' does not exist or your group has no access to it. List the models you can use with GET {}.",
        list_path(head.from)
    );
    let row = RefusalRow::not_found("model_not_found", "MODEL_NOT_FOUND", message);
    let mut row = row.param("model").metadata("model", model.clone());
    row.0.native.resource = Some(("model", format!("models/{model}")));
    row
}

/// E15.
fn method_unsupported(model: &str, supports: &[&str], head: &Head) -> RefusalRow {
    let (model, supports) = (quoted(model), supports.join(", "));
    let list = list_path(head.from);
    let message = format!("The model '{model}' is not offered on this endpoint; it supports: {supports}. See GET {list}.");
    RefusalRow::not_found("model_not_supported_on_endpoint", "MODEL_METHOD_UNSUPPORTED", message)
        .param("model")
        .metadata("model", model)
}

/// E16, E18, E20, E21.
fn malformed(fault: &Malformed, from: Protocol) -> RefusalRow {
    let code = match fault.kind {
        MalformedKind::NotJson => return RefusalRow::invalid("invalid_json", "INVALID_JSON", fault.message.clone()),
        MalformedKind::Missing => "missing_required_parameter",
        MalformedKind::WrongType => "invalid_type",
        MalformedKind::InvalidValue => "invalid_value",
    };
    let mut row = RefusalRow::invalid(code, "INVALID_BODY", fault.message.clone());
    if from.spec().error_style != ErrorStyle::Gemini {
        row.0.openai.param = fault.violations.first().map(|first| first.field.clone());
    }
    row.violations(fault.violations.clone())
}

/// E17.
fn unsupported(fields: &[String], model: &str, reason: Option<&str>, head: &Head) -> RefusalRow {
    let names = fields.iter().map(|field| format!("'{}'", quoted(field))).collect::<Vec<_>>().join(", ");
    let (verb, noun) = if fields.len() == 1 { ("is", "parameter") } else { ("are", "parameters") };
    let reason = reason.map_or_else(String::new, |reason| format!(" ({reason})"));
    let enough = match head.path.rsplit(['/', ':']).next() {
        Some("embedContent") => "'content' alone is",
        Some("batchEmbedContents") => "'requests' alone is",
        Some("embeddings") => "'model' and 'input' alone are",
        Some("count_tokens") => "'model' and 'messages' alone are",
        Some(_) | None => head.from.spec().essential_fields,
    };
    let message = format!(
        "Unsupported parameter: {names} {verb} not supported with the model '{}'{reason}. Remove the unsupported {noun}; {enough} \
         enough to verify the call.",
        quoted(model)
    );
    let violation = |field: &String| FieldViolation { field: field.clone(), description: "Unsupported parameter.".to_owned() };
    let violations = fields.iter().map(violation).collect();
    let mut row = RefusalRow::invalid("unsupported_parameter", "UNSUPPORTED_PARAMETER", message).violations(violations);
    row.0.openai.param = fields.first().cloned();
    row.0.anthropic.details = fields.iter().any(|field| field == "thread").then(|| NO_THREADS.to_owned());
    row
}

/// Tells the tool runners of Anthropic's SDKs that the server keeps no conversations; they then send the whole conversation.
const NO_THREADS: &str = r#"{"error_code":"thread_unsupported_request","unsupported":["thread"]}"#;

/// E31.
fn rate_exceeded(rate: &RateExceeded) -> RefusalRow {
    let what = match rate.kind {
        RateKind::Requests => "requests per minute",
        RateKind::Tokens => "tokens per minute",
        RateKind::Concurrency => "concurrent requests",
    };
    let subject = match rate.subject {
        Subject::Key(_) => "key",
        Subject::Member(_) => "member",
        // Channels and the gateway as a whole have no rates.
        Subject::Group(_) | Subject::Channel(_) | Subject::Gateway => "group",
    };
    let secs = u32::try_from(rate.wait_ms.div_ceil(1_000)).unwrap_or(u32::MAX).clamp(1, 60);
    let message = format!("Rate limit reached for {what}: limit {}, used {}. Try again in {secs} s.", rate.limit, rate.used);
    RefusalRow::rate_limited(secs, message).quota(subject)
}

/// E32, or E33 when something is left, for a request that arrived at `at`.
fn insufficient_funds(funds: &FundsStatus, at: Timestamp) -> RefusalRow {
    let (owner, subject) = match funds.subject {
        Subject::Key(_) => ("of this API key", "key"),
        Subject::Member(_) => ("of this API key's member", "member"),
        Subject::Group(_) => ("of this API key's group", "group"),
        // A channel's budget excludes the channel; it never refuses a caller.
        Subject::Gateway | Subject::Channel(_) => ("of this gateway", "gateway"),
    };
    let renews_at = funds.budget.and_then(|budget| budget.window.ends(at));
    let message = if funds.left.0 > 0 {
        let what = if funds.budget.is_some() { "budget" } else { "balance" };
        format!("The estimated cost of this request exceeds the remaining {what} {owner}.")
    } else {
        let (what, figures) = match funds.budget {
            None => ("balance", format!("{} USD left", usd(funds.left))),
            Some(budget) => {
                let what = match budget.window {
                    Window::Day => "daily budget",
                    Window::Month => "monthly budget",
                    Window::Total => "budget",
                };
                (what, format!("{} of {} USD", usd(funds.spent), usd(budget.amount)))
            }
        };
        let then = match renews_at {
            Some(at) => format!("; it renews on {}.", time(at)),
            None => ". Ask the operator to raise it.".to_owned(),
        };
        // Callers must not learn the total spending of all callers.
        let figures = if funds.subject == Subject::Gateway { String::new() } else { format!(" ({figures})") };
        format!("The {what} {owner} is spent{figures}{then}")
    };
    let (code, reason) = ("insufficient_quota", "RESOURCE_QUOTA_EXCEEDED");
    let row = RefusalRow::new(429, code, code, "RESOURCE_EXHAUSTED", reason, message).stop().quota(subject);
    let secs = renews_at.filter(|_| funds.left.0 <= 0).map(|renews_at| seconds_until(renews_at, at));
    match secs {
        Some(secs) if secs <= 60 => row.retry(secs),
        Some(_) | None => row,
    }
}
