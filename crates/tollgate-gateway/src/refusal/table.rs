//! The error table: each refusal's status, codes and text on both protocols (error reference, B1 to B8).

use tollgate_core::Window;
use tollgate_protocol::{Malformed, MalformedKind, NativeFace, OpenAiFace, Problem, Protocol, QuotaViolation, Violation};

use super::{
    BudgetSubject, LimitSubject, Limited, RateLimit, Refusal, Spent,
    text::{masked, quoted, time, usd},
    upstream,
};
use crate::Head;

pub(super) const INVALID_REQUEST: &str = "invalid_request_error";
pub(super) const SERVER_ERROR: &str = "server_error";
pub(super) const UNAVAILABLE_ERROR: &str = "service_unavailable_error";

/// A problem with the members every row has; the rest is filled in by the builder methods below.
pub(super) struct Row(Problem);

impl Row {
    pub(super) fn new(
        status: u16,
        kind: &str,
        code: Option<&str>,
        native_status: &'static str,
        reason: &str,
        message: String,
    ) -> Self {
        Self(Problem {
            status,
            message,
            request_id: String::new(),
            openai: OpenAiFace { kind: kind.to_owned(), code: code.map(str::to_owned), param: None },
            native: NativeFace { status: native_status, reason: reason.to_owned(), ..NativeFace::default() },
            retry_after: None,
            stop: false,
        })
    }

    /// 400 with the request's own fault.
    fn invalid(code: &str, reason: &str, message: String) -> Self {
        Self::new(400, INVALID_REQUEST, Some(code), "INVALID_ARGUMENT", reason, message)
    }

    fn param(mut self, param: impl Into<String>) -> Self {
        self.0.openai.param = Some(param.into());
        self
    }

    /// Seconds to wait, held between 1 and 60: more is ignored or taken for "never" by the SDKs.
    pub(super) fn retry(mut self, secs: u32) -> Self {
        self.0.retry_after = Some(secs.clamp(1, 60));
        self
    }

    pub(super) fn stop(mut self) -> Self {
        self.0.stop = true;
        self
    }

    pub(super) fn metadata(mut self, key: &'static str, value: impl Into<String>) -> Self {
        self.0.native.metadata.push((key, value.into()));
        self
    }

    /// The members, for the one row that takes them from an upstream.
    pub(super) fn problem(&mut self) -> &mut Problem {
        &mut self.0
    }

    fn violations(mut self, violations: Vec<Violation>) -> Self {
        self.0.native.violations = violations;
        self
    }

    fn quota(mut self, subject: &str, description: &str) -> Self {
        self.0.native.quota.push(QuotaViolation { subject: subject.to_owned(), description: description.to_owned() });
        self
    }
}

impl Refusal {
    /// The answer a caller gets, in both protocols' words.
    #[must_use]
    pub fn problem(&self, head: &Head) -> Problem {
        let mut problem = self.row(head).0;
        problem.request_id = head.request_id.to_string();
        problem
    }

    fn row(&self, head: &Head) -> Row {
        match self {
            Self::KeyMissing
            | Self::KeyInvalid
            | Self::KeyExpired(_)
            | Self::KeyDisabled
            | Self::AddressBlocked
            | Self::Suspended => self.key_row(head),
            Self::UnknownPath { .. } | Self::MethodNotAllowed { .. } | Self::UnknownVerb => self.path_row(head),
            Self::ModelNotFound { model, .. } => model_not_found(model, head),
            Self::MethodUnsupported { model, supports } => method_unsupported(model, supports, head),
            Self::Malformed(fault) => malformed(fault, head.from),
            Self::Unsupported { fields, model, reason } => unsupported(fields, model, reason.as_deref(), head),
            Self::MediaType { .. }
            | Self::ContentEncoding { .. }
            | Self::BodyTooLarge { .. }
            | Self::BodyUnreadable { .. }
            | Self::InvalidValue { .. } => self.body_row(),
            Self::RateLimited(limit) => rate_limited(limit),
            Self::WrongKeys { retry_after } => {
                let message = format!("Too many invalid API keys were sent from this address. Try again in {retry_after} s.");
                Row::new(429, "rate_limit_error", Some("rate_limit_exceeded"), "RESOURCE_EXHAUSTED", "RATE_LIMIT_EXCEEDED", message)
                    .retry(*retry_after)
            }
            Self::Spent(spent) => spent_row(spent, head),
            Self::TooDear(subject) => too_dear(*subject),
            Self::NoRoute { model, cause, too_dear: true, price, .. } => {
                upstream::too_dear(model, *cause, price.as_ref(), head.from)
            }
            Self::NoRoute { model, cause, retry_after, .. } => upstream::no_route(model, *cause, *retry_after, head.from),
            Self::Upstream { model, failure } => upstream::upstream(model, failure),
            Self::ShuttingDown
            | Self::Internal
            | Self::Overloaded
            | Self::CallerLeft
            | Self::TooSlow { .. }
            | Self::HeadersTooLarge { .. }
            | Self::TargetTooLong { .. }
            | Self::ContentPolicy
            | Self::KeyCheckUnavailable => self.gateway_row(head),
        }
    }

    /// B1.
    fn key_row(&self, head: &Head) -> Row {
        let unauthenticated =
            |code, reason, message| Row::new(401, INVALID_REQUEST, Some(code), "UNAUTHENTICATED", reason, message);
        let denied = |code, reason, message| Row::new(403, "permission_error", Some(code), "PERMISSION_DENIED", reason, message);
        let key = masked(head.presented_key.as_ref());
        match self {
            Self::KeyMissing => unauthenticated(
                "missing_api_key",
                "API_KEY_MISSING",
                "No API key was sent. Put it in the header 'Authorization: Bearer <API_KEY>' (native protocol: 'x-native-api-key: \
                 <API_KEY>')."
                    .to_owned(),
            ),
            Self::KeyExpired(at) => unauthenticated(
                "api_key_expired",
                "API_KEY_EXPIRED",
                format!("The API key {key} expired on {}. Create a new one in the console.", time(*at)),
            ),
            Self::KeyDisabled => unauthenticated("api_key_disabled", "API_KEY_DISABLED", format!("The API key {key} is disabled.")),
            Self::AddressBlocked => denied(
                "ip_not_allowed",
                "API_KEY_IP_ADDRESS_BLOCKED",
                format!("This API key may not be used from address {}.", head.peer),
            ),
            Self::Suspended => {
                denied("account_suspended", "CONSUMER_SUSPENDED", "The account of this API key is suspended.".to_owned())
            }
            _ => unauthenticated(
                "invalid_api_key",
                "API_KEY_INVALID",
                format!("The API key {key} is not valid. Send the complete service key."),
            ),
        }
    }

    /// B2.
    fn path_row(&self, head: &Head) -> Row {
        let path = quoted(&head.path);
        match self {
            Self::MethodNotAllowed { allow } => Row::new(
                405,
                INVALID_REQUEST,
                Some("method_not_supported"),
                "UNIMPLEMENTED",
                "METHOD_NOT_ALLOWED",
                format!("Method {} is not allowed on {path}; use {}.", quoted(head.http_method.as_str()), first_method(allow)),
            ),
            Self::UnknownVerb => Row::new(
                404,
                INVALID_REQUEST,
                Some("unknown_url"),
                "NOT_FOUND",
                "UNKNOWN_METHOD",
                format!(
                    "The path {path} does not name a method. Append ':generateContent' (also: ':streamGenerateContent', \
                     ':countTokens', ':embedContent', ':batchEmbedContents')."
                ),
            ),
            Self::UnknownPath { hint } => {
                let hint = hint.as_deref().map_or_else(String::new, |hint| format!(" Did you mean {}?", quoted(hint)));
                let message = format!("Unknown path {} {path}.{hint}", quoted(head.http_method.as_str()));
                Row::new(404, INVALID_REQUEST, Some("unknown_url"), "NOT_FOUND", "UNKNOWN_PATH", message)
            }
            _ => Self::Internal.gateway_row(head),
        }
    }

    /// B4, what is refused before the body is looked into.
    fn body_row(&self) -> Row {
        let media = |message| {
            Row::new(415, INVALID_REQUEST, Some("unsupported_media_type"), "INVALID_ARGUMENT", "UNSUPPORTED_MEDIA_TYPE", message)
        };
        match self {
            Self::MediaType { sent } => media(format!("Content-Type '{}' is not supported; send application/json.", quoted(sent))),
            Self::ContentEncoding { sent } => {
                media(format!("Content-Encoding '{}' is not supported; use gzip or none.", quoted(sent)))
            }
            Self::BodyTooLarge { limit } => Row::new(
                413,
                INVALID_REQUEST,
                Some("request_too_large"),
                "INVALID_ARGUMENT",
                "REQUEST_TOO_LARGE",
                format!("The request body is larger than {limit} bytes."),
            ),
            Self::InvalidValue { name, message } => Row::invalid("invalid_value", "INVALID_VALUE", message.clone())
                .param(*name)
                .violations(vec![Violation { field: (*name).to_owned(), description: message.clone() }]),
            Self::BodyUnreadable { fault } => {
                Row::invalid("invalid_json", "INVALID_JSON", format!("The request body is not valid JSON: {fault}."))
            }
            _ => Row::invalid("invalid_json", "INVALID_JSON", "The request body is not valid JSON.".to_owned()),
        }
    }

    /// B8.
    fn gateway_row(&self, head: &Head) -> Row {
        let unavailable =
            |code, reason, message: &str| Row::new(503, UNAVAILABLE_ERROR, Some(code), "UNAVAILABLE", reason, message.to_owned());
        let too_large = |status, message| {
            Row::new(status, INVALID_REQUEST, Some("header_too_large"), "INVALID_ARGUMENT", "HEADER_TOO_LARGE", message)
        };
        match self {
            Self::ShuttingDown => unavailable("shutting_down", "SHUTTING_DOWN", "The gateway is restarting.").retry(2),
            Self::KeyCheckUnavailable => {
                unavailable("key_check_unavailable", "KEY_CHECK_UNAVAILABLE", "The service key cannot be checked at the moment.")
                    .retry(5)
            }
            Self::Overloaded => {
                // Spread by the id's random end, so that refused callers do not come back together.
                let secs = u32::from(head.request_id.uuid().as_bytes()[15] % 5) + 1;
                unavailable("server_overloaded", "SERVER_OVERLOADED", "The gateway is overloaded.").retry(secs)
            }
            Self::CallerLeft => Row::new(
                499,
                INVALID_REQUEST,
                Some("client_closed_request"),
                "CANCELLED",
                "CALLER_LEFT",
                "The caller closed the connection.".to_owned(),
            ),
            Self::TooSlow { secs } => Row::new(
                408,
                INVALID_REQUEST,
                Some("request_timeout"),
                "DEADLINE_EXCEEDED",
                "REQUEST_TIMEOUT",
                format!("The request was not received within {secs} s."),
            ),
            Self::HeadersTooLarge { limit } => too_large(431, format!("Request headers are larger than {limit} bytes.")),
            Self::TargetTooLong { limit } => too_large(414, format!("The request target is longer than {limit} bytes.")),
            Self::ContentPolicy => Row::new(
                if head.from == Protocol::Gemini { 200 } else { 400 },
                INVALID_REQUEST,
                Some("content_policy_violation"),
                "INVALID_ARGUMENT",
                "CONTENT_POLICY",
                "The request was blocked by the content rules of this gateway.".to_owned(),
            )
            .stop(),
            _ => Row::new(
                500,
                SERVER_ERROR,
                Some("internal_error"),
                "INTERNAL",
                "INTERNAL",
                format!("Internal error. Quote request id {} to the operator.", head.request_id),
            ),
        }
    }
}

fn first_method(allow: &str) -> &str {
    allow.split(',').next().unwrap_or(allow)
}

/// The list a caller is pointed to; the only word that differs between the protocols' messages.
fn list_path(from: Protocol) -> &'static str {
    if from == Protocol::Gemini { "/v1beta/models" } else { "/v1/models" }
}

/// E13, and E14 byte for byte the same.
fn model_not_found(model: &str, head: &Head) -> Row {
    let model = quoted(model);
    let message = format!(
        "The model '{model}' does not exist or your group has no access to it. List the models you can use with GET {}.",
        list_path(head.from)
    );
    let mut row = Row::new(404, INVALID_REQUEST, Some("model_not_found"), "NOT_FOUND", "MODEL_NOT_FOUND", message)
        .param("model")
        .metadata("model", model.clone());
    row.0.native.resource = Some(("model", format!("models/{model}")));
    row
}

/// E15.
fn method_unsupported(model: &str, supports: &[&str], head: &Head) -> Row {
    let model = quoted(model);
    let message = format!(
        "The model '{model}' is not offered on this endpoint; it supports: {}. See GET {}.",
        supports.join(", "),
        list_path(head.from)
    );
    Row::new(404, INVALID_REQUEST, Some("model_not_supported_on_endpoint"), "NOT_FOUND", "MODEL_METHOD_UNSUPPORTED", message)
        .param("model")
        .metadata("model", model)
}

/// E16, E18, E20, E21.
fn malformed(fault: &Malformed, from: Protocol) -> Row {
    let code = match fault.kind {
        MalformedKind::NotJson => return Row::invalid("invalid_json", "INVALID_JSON", fault.message.clone()),
        MalformedKind::Missing => "missing_required_parameter",
        MalformedKind::WrongType => "invalid_type",
        MalformedKind::InvalidValue => "invalid_value",
    };
    let mut row = Row::invalid(code, "INVALID_BODY", fault.message.clone());
    if from != Protocol::Gemini {
        row.0.openai.param = fault.violations.first().map(|first| first.field.clone());
    }
    row.violations(fault.violations.clone())
}

/// E17.
fn unsupported(fields: &[String], model: &str, reason: Option<&str>, head: &Head) -> Row {
    let names = fields.iter().map(|field| format!("'{}'", quoted(field))).collect::<Vec<_>>().join(", ");
    let (verb, noun) = if fields.len() == 1 { ("is", "parameter") } else { ("are", "parameters") };
    let reason = reason.map_or_else(String::new, |reason| format!(" ({reason})"));
    let enough = match head.from {
        Protocol::Gemini => "'contents' alone is",
        Protocol::OpenAi | Protocol::Anthropic if head.path.ends_with("/embeddings") => "'model' and 'input' alone are",
        Protocol::OpenAi | Protocol::Anthropic => "'model' and 'messages' alone are",
    };
    let message = format!(
        "Unsupported parameter: {names} {verb} not supported with the model '{}'{reason}. Remove the unsupported {noun}; {enough} \
         enough to verify the call.",
        quoted(model)
    );
    let mut row = Row::invalid("unsupported_parameter", "UNSUPPORTED_PARAMETER", message).violations(
        fields.iter().map(|field| Violation { field: field.clone(), description: "Unsupported parameter.".to_owned() }).collect(),
    );
    row.0.openai.param = fields.first().cloned();
    row
}

/// E31.
fn rate_limited(limit: &RateLimit) -> Row {
    let what = match limit.limited {
        Limited::Requests => "requests per minute",
        Limited::Tokens => "tokens per minute",
        Limited::Concurrency => "concurrent requests",
    };
    let subject = match limit.subject {
        LimitSubject::Key => "key",
        LimitSubject::Member => "member",
        LimitSubject::Group => "group",
        LimitSubject::Address => "address",
    };
    let secs = limit.retry_after.clamp(1, 60);
    let message = format!("Rate limit reached for {what}: limit {}, used {}. Try again in {secs} s.", limit.limit, limit.used);
    Row::new(429, "rate_limit_error", Some("rate_limit_exceeded"), "RESOURCE_EXHAUSTED", "RATE_LIMIT_EXCEEDED", message.clone())
        .retry(secs)
        .quota(subject, &message)
}

/// Whose money it is, in the words of messages and of `QuotaFailure`.
fn owner_of(subject: BudgetSubject) -> (&'static str, &'static str) {
    match subject {
        BudgetSubject::Key => ("of this API key", "key"),
        BudgetSubject::Member | BudgetSubject::Balance => ("of this API key's member", "member"),
        BudgetSubject::Group => ("of this API key's group", "group"),
    }
}

/// E32 and E33 share everything but the message.
fn out_of_money(subject: BudgetSubject, message: String) -> Row {
    let description = message.clone();
    Row::new(429, "insufficient_quota", Some("insufficient_quota"), "RESOURCE_EXHAUSTED", "RESOURCE_QUOTA_EXCEEDED", message)
        .stop()
        .quota(owner_of(subject).1, &description)
}

/// E32.
fn spent_row(spent: &Spent, head: &Head) -> Row {
    let (owner, _) = owner_of(spent.subject);
    let what = match (spent.subject, spent.window) {
        (BudgetSubject::Balance, _) => "balance",
        (_, Window::Day) => "daily budget",
        (_, Window::Month) => "monthly budget",
        (_, Window::Total) => "budget",
    };
    let figures = match spent.subject {
        BudgetSubject::Balance => format!(" ({} USD left)", usd(spent.amount)),
        BudgetSubject::Key | BudgetSubject::Member | BudgetSubject::Group => {
            format!(" ({} of {} USD)", usd(spent.spent), usd(spent.amount))
        }
    };
    let then = match spent.renews_at {
        Some(at) => format!("; it renews on {}.", time(at)),
        None => ". Ask the operator to raise it.".to_owned(),
    };
    let row = out_of_money(spent.subject, format!("The {what} {owner} is spent{figures}{then}"));
    let wait = spent
        .renews_at
        .map(|at| at.ms_since(head.arrived).max(0).unsigned_abs().div_ceil(1_000))
        .and_then(|secs| u32::try_from(secs).ok());
    match wait {
        Some(secs) if secs <= 60 => row.retry(secs),
        Some(_) | None => row,
    }
}

/// E33.
fn too_dear(subject: BudgetSubject) -> Row {
    let what = if subject == BudgetSubject::Balance { "balance" } else { "budget" };
    out_of_money(subject, format!("The estimated cost of this request exceeds the remaining {what} {}.", owner_of(subject).0))
}
