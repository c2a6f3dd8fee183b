//! The expected rows.

use tollgate_core::{
    Budget, BudgetAction, FundsStatus, LimitLevel, MissingPrice, NanoUsd, PriceKind, PriceLimitOn, RateExceeded, RateKind,
    RateStatus, RateStatuses,
};
use tollgate_protocol::{FieldViolation, MalformedKind};

use super::*;

const INVALID: &str = "invalid_request_error";
const SERVER: &str = "server_error";
const UNAVAILABLE: &str = "service_unavailable_error";

type Face = (&'static str, Option<&'static str>, Option<&'static str>);

fn row(
    id: &'static str,
    refusal: Refusal,
    status: u16,
    openai: Face,
    native: (&'static str, &'static str),
    message: &'static str,
) -> RefusalRow {
    RefusalRow { id, refusal, status, openai, native, retry_after: None, stop: false, message }
}

impl RefusalRow {
    fn retry(mut self, secs: u32) -> Self {
        self.retry_after = Some(secs);
        self
    }

    fn stop(mut self) -> Self {
        self.stop = true;
        self
    }
}

fn m() -> String {
    "m".to_owned()
}

pub(super) fn no_route(cause: NoRouteCause) -> Refusal {
    let price = (cause == NoRouteCause::PriceLimit).then_some(PriceFigures {
        level: LimitLevel::Key,
        on: PriceLimitOn::Sale,
        kind: PriceKind::Input,
        limit: 1_500_000_000,
        price: 2_000_000_000,
    });
    let missing_price = (cause == NoRouteCause::NoPrice).then_some(MissingPrice::SaleForBoundedMoney);
    Refusal::NoRoute { model: m(), cause, retry_after: Some(12), price, missing_price }
}

pub(super) fn rate_limit() -> Refusal {
    let requests = Some(RateStatus { limit: 60, used: 60, reset_ms: 12_000 });
    let rate_statuses = RateStatuses { requests, tokens: None };
    let (subject, kind) = (Subject::Key(testing::key().id), RateKind::Requests);
    let rate = RateExceeded { subject, kind, limit: 60, used: 60, wait_ms: 11_500, rate_statuses };
    Refusal::LimitExceeded(Box::new(LimitExceeded::Rate(rate)))
}

/// A budget of 50 USD of which all but `left` is spent; without a window, a balance.
pub(super) fn spent(subject: Subject, window: Option<Window>, left: i64) -> Refusal {
    let amount = NanoUsd(50_000_000_000);
    let budget = window.map(|window| Budget { amount, window, action: BudgetAction::Block });
    Refusal::LimitExceeded(Box::new(LimitExceeded::Money(FundsStatus { subject, budget, spent: amount, left: NanoUsd(left) })))
}

fn malformed(kind: MalformedKind, message: &str, field: &str) -> Refusal {
    let violations = vec![FieldViolation { field: field.to_owned(), description: message.to_owned() }];
    let violations = if kind == MalformedKind::NotJson { Vec::new() } else { violations };
    Refusal::Malformed(Malformed { kind, message: message.to_owned(), violations })
}

fn upstream(failure: UpstreamFailure) -> Refusal {
    Refusal::Upstream { model: m(), failure }
}

pub(super) fn all() -> Vec<RefusalRow> {
    let mut rows = keys_and_paths();
    rows.extend(models_and_bodies());
    rows.extend(limits());
    rows.extend(upstreams());
    rows.extend(gateway());
    rows
}

#[expect(clippy::too_many_lines, reason = "a table")]
fn keys_and_paths() -> Vec<RefusalRow> {
    let unauthenticated = |reason| ("UNAUTHENTICATED", reason);
    let denied = |reason| ("PERMISSION_DENIED", reason);
    let path = |reason| ("NOT_FOUND", reason);
    let expired = Refusal::KeyExpired(Timestamp(1_793_491_200_000_000));
    let hint = Refusal::UnknownPath {
        hint: Some(PathHint::Similar { path: "/v1/chat/completions".to_owned(), base_url: Some("Your base URL lacks /v1.") }),
    };
    let not_offered = |name, instead| Refusal::UnknownPath { hint: Some(PathHint::NotOffered(ApiNotOffered { name, instead })) };
    vec![
        row(
            "E1",
            Refusal::KeyMissing,
            401,
            (INVALID, Some("missing_api_key"), None),
            unauthenticated("API_KEY_MISSING"),
            "No API key was sent. Put it in the header 'Authorization: Bearer <API_KEY>' (native protocol: 'x-native-api-key: <API_KEY>').",
        ),
        row(
            "E2",
            Refusal::KeyInvalid,
            401,
            (INVALID, Some("invalid_api_key"), None),
            unauthenticated("API_KEY_INVALID"),
            "{wrong key} Send the complete service key.",
        ),
        row(
            "E3",
            expired,
            401,
            (INVALID, Some("api_key_expired"), None),
            unauthenticated("API_KEY_EXPIRED"),
            "The API key abc***wxyz expired on 2026-11-01T00:00:00Z. Create a new one in the console.",
        ),
        row(
            "E4",
            Refusal::KeyDisabled,
            401,
            (INVALID, Some("api_key_disabled"), None),
            unauthenticated("API_KEY_DISABLED"),
            "The API key abc***wxyz is disabled.",
        ),
        row(
            "E5",
            Refusal::AddressBlocked,
            403,
            ("permission_error", Some("ip_not_allowed"), None),
            denied("API_KEY_IP_ADDRESS_BLOCKED"),
            "This API key may not be used from address 203.0.113.7.",
        ),
        row(
            "E6",
            Refusal::Suspended,
            403,
            ("permission_error", Some("account_suspended"), None),
            denied("CONSUMER_SUSPENDED"),
            "The account of this API key is suspended.",
        ),
        row(
            "E7",
            Refusal::ProtocolBlocked { allowed: vec![Protocol::Anthropic, Protocol::Responses] },
            403,
            ("permission_error", Some("protocol_not_allowed"), None),
            denied("API_KEY_SERVICE_BLOCKED"),
            "This API key may not be used with this protocol, only with Messages (/v1/messages), Responses (/v1/responses).",
        ),
        row(
            "E10",
            hint,
            404,
            (INVALID, Some("unknown_url"), None),
            path("UNKNOWN_PATH"),
            "Unknown path POST {path}. Did you mean /v1/chat/completions? Your base URL lacks /v1.",
        ),
        row(
            "E10",
            not_offered("the Assistants API", Some("POST /v1/chat/completions")),
            404,
            (INVALID, Some("unknown_url"), None),
            path("UNKNOWN_PATH"),
            "Unknown path POST {path}. This gateway does not offer the Assistants API. Use POST /v1/chat/completions.",
        ),
        row(
            "E10",
            not_offered("reranking", None),
            404,
            (INVALID, Some("unknown_url"), None),
            path("UNKNOWN_PATH"),
            "Unknown path POST {path}. This gateway does not offer reranking. It has POST /v1/chat/completions, POST /v1/responses, POST /v1/embeddings, POST /v1/messages and GET /v1/models, and of the Gemini API GET /v1beta/models and POST /v1beta/models/{model}:generateContent.",
        ),
        row(
            "E10",
            Refusal::UnknownPath { hint: None },
            404,
            (INVALID, Some("unknown_url"), None),
            path("UNKNOWN_PATH"),
            "Unknown path POST {path}.",
        ),
        row(
            "E11",
            Refusal::MethodNotAllowed { allow: "GET, HEAD" },
            405,
            (INVALID, Some("method_not_supported"), None),
            ("UNIMPLEMENTED", "METHOD_NOT_ALLOWED"),
            "Method POST is not allowed on {path}; use GET.",
        ),
        row(
            "E12",
            Refusal::UnknownVerb,
            404,
            (INVALID, Some("unknown_url"), None),
            path("UNKNOWN_METHOD"),
            "The path {path} does not name a method. Append ':generateContent' (also: ':streamGenerateContent', ':countTokens', ':embedContent', ':batchEmbedContents').",
        ),
        row(
            "E69",
            Refusal::NotStored(NotStored::Response("resp_1".to_owned())),
            404,
            (INVALID, Some("response_not_found"), None),
            path("RESPONSE_NOT_FOUND"),
            "The response 'resp_1' is not stored: this gateway keeps no responses. Send the whole conversation in 'input', with 'store': false and 'include': [\"reasoning.encrypted_content\"].",
        ),
        row(
            "E69",
            Refusal::NotStored(NotStored::Conversations),
            404,
            (INVALID, Some("unknown_url"), None),
            path("UNKNOWN_PATH"),
            "Conversations are not stored by this gateway. Send the whole conversation in 'input'.",
        ),
        row(
            "E70",
            Refusal::UpgradeRequired,
            426,
            (INVALID, Some("upgrade_required"), None),
            ("FAILED_PRECONDITION", "UPGRADE_REQUIRED"),
            "This gateway speaks HTTP only; use POST /v1/responses.",
        ),
    ]
}

fn models_and_bodies() -> Vec<RefusalRow> {
    let argument = |reason| ("INVALID_ARGUMENT", reason);
    let not_found = "The model 'm' does not exist or your group has no access to it. List the models you can use with GET {list}.";
    let unsupported = |fields: &[&str], reason: Option<&str>| Refusal::Unsupported {
        fields: fields.iter().map(|field| (*field).to_owned()).collect(),
        model: m(),
        reason: reason.map(str::to_owned),
    };
    let sent = |sent: &str| sent.to_owned();
    vec![
        row("E13", Refusal::ModelNotFound { model: m(), hidden: false }, 404, (INVALID, Some("model_not_found"), Some("model")), ("NOT_FOUND", "MODEL_NOT_FOUND"), not_found),
        row("E14", Refusal::ModelNotFound { model: m(), hidden: true }, 404, (INVALID, Some("model_not_found"), Some("model")), ("NOT_FOUND", "MODEL_NOT_FOUND"), not_found),
        row("E15", Refusal::MethodUnsupported { model: m(), supports: vec!["embedContent", "batchEmbedContents"] }, 404, (INVALID, Some("model_not_supported_on_endpoint"), Some("model")), ("NOT_FOUND", "MODEL_METHOD_UNSUPPORTED"), "The model 'm' is not offered on this endpoint; it supports: embedContent, batchEmbedContents. See GET {list}."),
        row("E17", unsupported(&["logit_bias"], None), 400, (INVALID, Some("unsupported_parameter"), Some("logit_bias")), argument("UNSUPPORTED_PARAMETER"), "Unsupported parameter: 'logit_bias' is not supported with the model 'm'. Remove the unsupported parameter; 'model' and 'messages' alone are enough to verify the call."),
        row("E17", unsupported(&["stop"], Some("at most 4 stop sequences")), 400, (INVALID, Some("unsupported_parameter"), Some("stop")), argument("UNSUPPORTED_PARAMETER"), "Unsupported parameter: 'stop' is not supported with the model 'm' (at most 4 stop sequences). Remove the unsupported parameter; 'model' and 'messages' alone are enough to verify the call."),
        row("E17", unsupported(&["a", "b"], None), 400, (INVALID, Some("unsupported_parameter"), Some("a")), argument("UNSUPPORTED_PARAMETER"), "Unsupported parameter: 'a', 'b' are not supported with the model 'm'. Remove the unsupported parameters; 'model' and 'messages' alone are enough to verify the call."),
        row("E18", malformed(MalformedKind::NotJson, "The request body is not valid JSON: expected ',' or '}' at line 3 column 7.", ""), 400, (INVALID, Some("invalid_json"), None), argument("INVALID_JSON"), "The request body is not valid JSON: expected ',' or '}' at line 3 column 7."),
        row("E18", Refusal::BodyUnreadable { fault: "its gzip encoding is broken" }, 400, (INVALID, Some("invalid_json"), None), argument("INVALID_JSON"), "The request body is not valid JSON: its gzip encoding is broken."),
        row("E19", Refusal::MediaType { sent: sent("text/plain") }, 415, (INVALID, Some("unsupported_media_type"), None), argument("UNSUPPORTED_MEDIA_TYPE"), "Content-Type 'text/plain' is not supported; send application/json."),
        row("E22", Refusal::BodyTooLarge { limit: 33_554_432 }, 413, (INVALID, Some("request_too_large"), None), argument("REQUEST_TOO_LARGE"), "The request body is larger than 33554432 bytes."),
        row("E23", Refusal::ContentEncoding { sent: sent("br") }, 415, (INVALID, Some("unsupported_media_type"), None), argument("UNSUPPORTED_MEDIA_TYPE"), "Content-Encoding 'br' is not supported; use gzip or none."),
    ]
    .into_iter()
    .chain(shapes())
    .collect()
}

/// E16 and E21, whose codes exist only on chat.
fn shapes() -> Vec<RefusalRow> {
    [
        ("E16", MalformedKind::Missing, "missing_required_parameter", "Missing required parameter: 'model'.", "model"),
        ("E21", MalformedKind::Missing, "missing_required_parameter", "Missing required parameter: 'messages'.", "messages"),
        (
            "E21",
            MalformedKind::WrongType,
            "invalid_type",
            "Invalid type for 'messages[0].role': expected a string.",
            "messages[0].role",
        ),
    ]
    .into_iter()
    .map(|(id, kind, code, message, field)| {
        row(
            id,
            malformed(kind, message, field),
            400,
            (INVALID, Some(code), Some(field)),
            ("INVALID_ARGUMENT", "INVALID_BODY"),
            message,
        )
    })
    .chain([row(
        "E21",
        Refusal::InvalidValue { name: "x-tollgate-max-price", message: "Cannot read it.".to_owned() },
        400,
        (INVALID, Some("invalid_value"), Some("x-tollgate-max-price")),
        ("INVALID_ARGUMENT", "INVALID_VALUE"),
        "Cannot read it.",
    )])
    .collect()
}

fn limits() -> Vec<RefusalRow> {
    let money: Face = ("insufficient_quota", Some("insufficient_quota"), None);
    let quota = ("RESOURCE_EXHAUSTED", "RESOURCE_QUOTA_EXCEEDED");
    let (key, member) = (Subject::Key(testing::key().id), Subject::Member(testing::key().member.id));
    vec![
        row(
            "E31",
            rate_limit(),
            429,
            ("rate_limit_error", Some("rate_limit_exceeded"), None),
            ("RESOURCE_EXHAUSTED", "RATE_LIMIT_EXCEEDED"),
            "Rate limit reached for requests per minute: limit 60, used 60. Try again in 12 s.",
        )
        .retry(12),
        row(
            "E31",
            Refusal::WrongKeys { retry_after: 9 },
            429,
            ("rate_limit_error", Some("rate_limit_exceeded"), None),
            ("RESOURCE_EXHAUSTED", "RATE_LIMIT_EXCEEDED"),
            "Too many invalid API keys were sent from this address. Try again in 9 s.",
        )
        .retry(9),
        row(
            "E32",
            spent(key, Some(Window::Month), 0),
            429,
            money,
            quota,
            "The monthly budget of this API key is spent (50.00 of 50.00 USD); it renews on 2026-12-01T00:00:00Z.",
        )
        .stop(),
        row(
            "E32",
            spent(member, None, -250_000_000),
            429,
            money,
            quota,
            "The balance of this API key's member is spent (-0.25 USD left). Ask the operator to raise it.",
        )
        .stop(),
        row(
            "E33",
            spent(key, Some(Window::Month), 1),
            429,
            money,
            quota,
            "The estimated cost of this request exceeds the remaining budget of this API key.",
        )
        .stop(),
    ]
}

fn upstreams() -> Vec<RefusalRow> {
    let none: Face = (UNAVAILABLE, Some("no_available_accounts"), None);
    let server = |code| (SERVER, Some(code), None);
    let unavailable = |reason| ("UNAVAILABLE", reason);
    let late: (Face, _) = (server("upstream_timeout"), ("DEADLINE_EXCEEDED", "UPSTREAM_TIMEOUT"));
    let rejected = Rejection {
        protocol: Protocol::Anthropic,
        problem: UpstreamProblem { status: 422, message: "temperature: too hot".to_owned(), ..UpstreamProblem::default() },
    };
    vec![
        row("E40", no_route(NoRouteCause::Cooldown), 503, none, unavailable("NO_AVAILABLE_ACCOUNTS"), "No available accounts exist for the {family}: model 'm' has no usable upstream account at the moment. Do not retry without limit: wait, or use another model that GET {list} lists. If this lasts, quote request id {request} to the operator, who finds the cause in the usage log.").retry(12),
        row("E40", no_route(NoRouteCause::NoneConfigured), 503, none, unavailable("NO_AVAILABLE_ACCOUNTS"), "No available accounts exist for the {family}: model 'm' has no usable upstream account, because none is configured for it. Do not retry without limit: use another model that GET {list} lists, or quote request id {request} to the operator, who must change this.").retry(30),
        row("E40", no_route(NoRouteCause::Disabled), 503, none, unavailable("NO_AVAILABLE_ACCOUNTS"), "No available accounts exist for the {family}: model 'm' has no usable upstream account, because its accounts are disabled. Retrying does not help: use another model that GET {list} lists, or quote request id {request} to the operator, who must change this.").stop(),
        row("E40", no_route(NoRouteCause::Credential), 503, none, unavailable("NO_AVAILABLE_ACCOUNTS"), "No available accounts exist for the {family}: model 'm' has no usable upstream account, because the provider refused the credential of each of its accounts. Retrying does not help: use another model that GET {list} lists, or quote request id {request} to the operator, who must change this.").stop(),
        row("E41", no_route(NoRouteCause::PriceLimit), 503, none, unavailable("NO_AVAILABLE_ACCOUNTS"), "No available accounts exist for the {family}: every channel offering model 'm' is above the channel price limit of this key (limit 1.50, cheapest 2.00 USD per 1M input tokens). Raise the limit, or use another model that GET {list} lists.").stop(),
        row("E42", no_route(NoRouteCause::NoPrice), 503, none, unavailable("NO_AVAILABLE_ACCOUNTS"), "No available accounts exist for the {family}: model 'm' has no price, and this key's use is bounded in money. The operator must set a price. Until then use another model that GET {list} lists, or quote request id {request} to the operator.").stop(),
        row("E50", upstream(UpstreamFailure::Unreachable), 502, server("upstream_unreachable"), unavailable("UPSTREAM_UNREACHABLE"), "The upstream provider could not be reached.").retry(5),
        row("E51", upstream(UpstreamFailure::TimedOut { limit_ms: 120_000 }), 504, late.0, late.1, "The upstream provider did not answer within 120 s."),
        row("E51", upstream(UpstreamFailure::TimedOut { limit_ms: 1_500 }), 504, late.0, late.1, "The upstream provider did not answer within 1500 ms."),
        row("E52", upstream(UpstreamFailure::Rejected(Box::new(rejected))), 422, (INVALID, Some("upstream_rejected"), None), ("INVALID_ARGUMENT", "UPSTREAM_REJECTED"), "temperature: too hot"),
        row("E53", upstream(UpstreamFailure::AccountRefused), 502, server("upstream_account_error"), unavailable("UPSTREAM_ACCOUNT_ERROR"), "The upstream provider refused the gateway's account. The operator has been informed.").retry(10),
        row("E54", upstream(UpstreamFailure::RateLimited { retry_after: None }), 429, ("rate_limit_error", Some("upstream_rate_limited"), None), ("RESOURCE_EXHAUSTED", "UPSTREAM_RATE_LIMITED"), "The upstream provider's rate limit is reached for the model 'm'. Try again in 5 s.").retry(5),
        row("E55", upstream(UpstreamFailure::Failed { status: 500 }), 502, server("upstream_error"), unavailable("UPSTREAM_ERROR"), "The upstream provider failed with status 500.").retry(2),
        row("E56", upstream(UpstreamFailure::Overloaded { retry_after: Some(20) }), 503, (UNAVAILABLE, Some("upstream_overloaded"), None), unavailable("UPSTREAM_OVERLOADED"), "The upstream provider is overloaded.").retry(20),
        row("E57", upstream(UpstreamFailure::GatewayTimedOut { status: 524 }), 504, late.0, late.1, "The upstream provider reported that its own server timed out (status 524)."),
        row("E58", upstream(UpstreamFailure::BadResponse), 502, server("upstream_bad_response"), unavailable("UPSTREAM_BAD_RESPONSE"), "The upstream provider returned a response that could not be read."),
        row("E59", upstream(UpstreamFailure::StreamInterrupted), 502, server("upstream_stream_interrupted"), unavailable("UPSTREAM_STREAM_INTERRUPTED"), "The upstream provider's stream ended before the answer was complete."),
        row(
            "E60",
            upstream(UpstreamFailure::StreamTooLong { limit_ms: 600_000 }),
            504,
            late.0,
            late.1,
            "The upstream provider's answer took longer than 600 s; it is incomplete.",
        ),
        row("E60", upstream(UpstreamFailure::StreamIdle { limit_ms: 90_000 }), 504, late.0, late.1, "The upstream provider sent nothing for 90 s; the answer is incomplete."),
    ]
}

#[expect(clippy::too_many_lines, reason = "a table")]
fn gateway() -> Vec<RefusalRow> {
    let unavailable = |reason| ("UNAVAILABLE", reason);
    let large: Face = (INVALID, Some("header_too_large"), None);
    vec![
        row(
            "E61",
            Refusal::ShuttingDown,
            503,
            (UNAVAILABLE, Some("shutting_down"), None),
            unavailable("SHUTTING_DOWN"),
            "The gateway is restarting.",
        )
        .retry(2),
        row(
            "E62",
            Refusal::Internal,
            500,
            (SERVER, Some("internal_error"), None),
            ("INTERNAL", "INTERNAL"),
            "Internal error. Quote request id req_01m7q5cqg0ew3re1r70w3ge1r7 to the operator.",
        ),
        row(
            "E63",
            Refusal::Overloaded,
            503,
            (UNAVAILABLE, Some("server_overloaded"), None),
            unavailable("SERVER_OVERLOADED"),
            "The gateway is overloaded.",
        )
        .retry(3),
        row(
            "E64",
            Refusal::CallerLeft,
            499,
            (INVALID, Some("client_closed_request"), None),
            ("CANCELLED", "CALLER_LEFT"),
            "The caller closed the connection.",
        ),
        row(
            "E65",
            Refusal::TooSlow { secs: 30 },
            408,
            (INVALID, Some("request_timeout"), None),
            ("DEADLINE_EXCEEDED", "REQUEST_TIMEOUT"),
            "The request was not received within 30 s.",
        ),
        row(
            "E66",
            Refusal::HeadersTooLarge { limit: 65_536 },
            431,
            large,
            ("INVALID_ARGUMENT", "HEADER_TOO_LARGE"),
            "Request headers are larger than 65536 bytes.",
        ),
        row(
            "E66",
            Refusal::TargetTooLong { limit: 8_192 },
            414,
            large,
            ("INVALID_ARGUMENT", "HEADER_TOO_LARGE"),
            "The request target is longer than 8192 bytes.",
        ),
        row(
            "E67",
            Refusal::ContentPolicy,
            400,
            (INVALID, Some("content_policy_violation"), None),
            ("", ""),
            "The request was blocked by the content rules of this gateway.",
        )
        .stop(),
        row(
            "E68",
            Refusal::KeyCheckUnavailable,
            503,
            (UNAVAILABLE, Some("key_check_unavailable"), None),
            unavailable("KEY_CHECK_UNAVAILABLE"),
            "The service key cannot be checked at the moment.",
        )
        .retry(5),
    ]
}
