//! Errors of the admin API: a status and the error object of the OpenAI API (`message`, `type`, `param`, `code`).

mod range;
mod refused;
mod registration;
mod several;

use std::fmt;

use http::StatusCode;
use serde_json::{Value, json};
use tollgate_store::{AdminScope, IdentityRefusal, StoreError, catalog_file::FileError};

pub(crate) use self::range::NumberRange;
use crate::{
    gateway_handle::KeyRefusal,
    response::{ApiResponse, InternalFailure},
};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ApiError {
    pub(crate) status: StatusCode,
    kind: &'static str,
    code: &'static str,
    param: Option<String>,
    /// The reason why the value is invalid, for pages, which say it in the reader's language.
    reason: Option<&'static str>,
    /// The whole numbers that the field takes, for pages, which name them.
    range: Option<NumberRange>,
    message: String,
    retry_after: Option<u32>,
    faults: Vec<FileError>,
    /// The error of each of several rows.
    rows: Vec<(String, Self)>,
    /// Further errors of the same body, for pages, which show each fault beside its field.
    others: Vec<Self>,
    cause: Option<InternalFailure>,
}

const INVALID: &str = "invalid_request_error";
/// Faults of a catalog file listed in `faults`.
pub(crate) const MAX_FAULTS: usize = 1_000;

impl ApiError {
    fn new(status: StatusCode, code: &'static str, message: impl Into<String>) -> Self {
        Self {
            status,
            kind: INVALID,
            code,
            param: None,
            reason: None,
            range: None,
            message: message.into(),
            retry_after: None,
            faults: Vec::new(),
            rows: Vec::new(),
            others: Vec::new(),
            cause: None,
        }
    }

    /// 400 for a field or parameter.
    pub(crate) fn invalid(code: &'static str, param: impl Into<String>, message: impl Into<String>) -> Self {
        Self { param: Some(param.into()), ..Self::new(StatusCode::BAD_REQUEST, code, message) }
    }

    /// 400: the body as a whole has the wrong type.
    pub(crate) fn wrong_body(message: String) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "invalid_type", message)
    }

    /// 400: a value of the right type that is not acceptable.
    pub(crate) fn value(param: &str, message: impl fmt::Display) -> Self {
        Self::invalid("invalid_value", param, format!("Invalid value for '{param}': {message}."))
    }

    /// Adds the faults of a catalog file, each with line and column.
    pub(crate) fn with_faults(self, faults: &[FileError]) -> Self {
        Self { faults: faults.to_vec(), ..self }
    }

    /// 400: the body is not valid JSON.
    pub(crate) fn no_json(fault: &str) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "invalid_json", format!("The request body is not valid JSON: {fault}."))
    }

    /// 401: no credential was sent.
    pub(crate) fn no_key() -> Self {
        let message = "No admin key was sent. Put it in the header 'Authorization: Bearer <ADMIN_KEY>'.";
        Self::new(StatusCode::UNAUTHORIZED, "missing_api_key", message)
    }

    /// 401: the same for every kind of wrong credential.
    pub(crate) fn wrong_key() -> Self {
        let message = "The admin key is not valid. Admin keys begin with 'tga-'; create one with `tollgate admin-key create`.";
        Self::new(StatusCode::UNAUTHORIZED, "invalid_api_key", message)
    }

    /// 401: the session has ended.
    pub(crate) fn no_session() -> Self {
        Self::new(StatusCode::UNAUTHORIZED, "session_ended", "The session has ended. Sign in again.")
    }

    /// 401: the same for unknown names, wrong passwords and suspended members.
    pub(crate) fn wrong_login() -> Self {
        Self::new(StatusCode::UNAUTHORIZED, "wrong_login", "The name or the password is wrong.")
    }

    /// 401: a one-time or recovery code.
    pub(crate) fn wrong_code() -> Self {
        Self::new(
            StatusCode::UNAUTHORIZED,
            "wrong_code",
            "The code is wrong, was used before, or is too old. Wait for the next one.",
        )
    }

    /// 401: the time between password and one-time code is over.
    pub(crate) fn no_challenge() -> Self {
        Self::new(StatusCode::UNAUTHORIZED, "challenge_ended", "The sign-in took too long. Begin again.")
    }

    /// 401: the same for unknown passkeys, wrong answers of authenticators and suspended members.
    pub(crate) fn wrong_passkey() -> Self {
        Self::new(
            StatusCode::UNAUTHORIZED,
            "wrong_passkey",
            "The passkey is not valid here: it is unknown, was removed, or is of another site.",
        )
    }

    /// 409: browsers offer no passkeys at the console's address.
    pub(crate) fn no_passkeys() -> Self {
        let message =
            "Browsers offer no passkeys at the address of this console: set console.url to one with https and a host name.";
        Self::conflict("no_passkeys", message)
    }

    /// 502: the OpenID provider did not answer as it should; the cause is in the log.
    pub(crate) fn oidc_failed() -> Self {
        let message = "The sign-in at the OpenID provider failed. The log has details under this request id.";
        Self { kind: "server_error", ..Self::new(StatusCode::BAD_GATEWAY, "oidc_failed", message) }
    }

    /// 502: a provider did not answer an operator's request as it should, with its words.
    pub(crate) fn upstream(message: &str) -> Self {
        Self {
            kind: "server_error",
            ..Self::new(StatusCode::BAD_GATEWAY, "upstream_failed", format!("The provider failed: {message}."))
        }
    }

    /// 401: the member did not complete the sign-in at the OpenID provider.
    pub(crate) fn oidc_refused() -> Self {
        Self::new(StatusCode::UNAUTHORIZED, "oidc_refused", "The OpenID provider did not complete the sign-in. Begin again.")
    }

    /// 403: the OpenID provider has identified the person, and the gateway does not admit that person.
    pub(crate) fn not_admitted() -> Self {
        Self::new(StatusCode::FORBIDDEN, "not_admitted", "This account may not sign in here. Ask an admin for an invite.")
    }

    /// 400: a one-time link or an invite that is not valid, for whatever reason.
    pub(crate) fn no_token(reason: IdentityRefusal) -> Self {
        Self::invalid("invalid_token", "token", sentence(&reason.to_string()))
    }

    /// 429: too many attempts to sign in.
    pub(crate) fn too_many_sign_ins(retry_after: u32) -> Self {
        let message = format!("Too many attempts to sign in. Try again in {retry_after} s.");
        let problem = Self::new(StatusCode::TOO_MANY_REQUESTS, "rate_limit_exceeded", message);
        Self { kind: "rate_limit_error", retry_after: Some(retry_after), ..problem }
    }

    /// 403: a write that a page of another origin may have caused.
    pub(crate) fn other_origin() -> Self {
        let message =
            "The request does not come from a page of this console. Behind a proxy, set console.url to the console's address.";
        Self::new(StatusCode::FORBIDDEN, "other_origin", message)
    }

    /// 403: a write of a session without its token.
    pub(crate) fn no_csrf_token() -> Self {
        let message = "The header 'x-csrf-token' does not have the session's token, which GET /admin/v1/me returns.";
        Self::new(StatusCode::FORBIDDEN, "wrong_csrf_token", message)
    }

    /// 409: something that only a member in a session can do.
    pub(crate) fn needs_session() -> Self {
        Self::new(StatusCode::CONFLICT, "needs_session", "This is for members who have signed in; an admin key has no session.")
    }

    /// 409: a change of the own login that a password would have to prove.
    pub(crate) fn no_password() -> Self {
        let message = "The member has no password and signs in at the OpenID provider. An admin makes a link that sets one: \
                       POST /admin/v1/members/{name}/password-link.";
        Self::conflict("no_password", message)
    }

    pub(crate) fn sign_in_again() -> Self {
        let message =
            "The member has no password that could be asked for again. Sign in again, and repeat this within ten minutes.";
        Self::conflict("sign_in_again", message)
    }

    /// 403: the principal's scope is too narrow.
    pub(crate) fn forbidden(what: &str, needed: AdminScope) -> Self {
        let code = if needed == AdminScope::Admin { "admin_only" } else { "operator_only" };
        let scope = needed.as_str();
        Self::new(
            StatusCode::FORBIDDEN,
            code,
            format!("{what} requires an admin key with scope '{scope}', or a member with that role."),
        )
    }

    /// 403: a group leaves changes of its keys to operators.
    pub(crate) fn no_self_service(group: &str) -> Self {
        let message =
            format!("Keys of the group '{group}' are made and changed by operators; ask one, or for self_service of the group.");
        Self::new(StatusCode::FORBIDDEN, "operator_only", message).because("no_self_service")
    }

    /// Names the parameter that the error is about.
    pub(crate) fn about(self, param: &str) -> Self {
        Self { param: Some(param.to_owned()), ..self }
    }

    /// The same about a field of a nested object.
    pub(crate) fn below(self, object: &str) -> Self {
        Self { param: self.param.map(|param| format!("{object}.{param}")), ..self }
    }

    /// 404: no such path.
    pub(crate) fn no_path() -> Self {
        Self::new(StatusCode::NOT_FOUND, "unknown_url", "Unknown path. All paths are listed in /admin/openapi.json.")
    }

    /// 404: no object of this kind. The requested name is not repeated, because a secret sent by mistake would get into logs and
    /// bug reports.
    pub(crate) fn not_found(kind: impl fmt::Display) -> Self {
        Self::new(StatusCode::NOT_FOUND, "not_found", format!("There is no {kind} with this name or id."))
    }

    /// As [`Self::not_found`], with the name that was probably meant.
    pub(crate) fn not_found_near(kind: &str, nearest: &str) -> Self {
        Self::new(StatusCode::NOT_FOUND, "not_found", format!("There is no {kind} with this name. Did you mean '{nearest}'?"))
    }

    /// 405.
    pub(crate) fn no_method() -> Self {
        Self::new(StatusCode::METHOD_NOT_ALLOWED, "method_not_supported", "This path does not take this method.")
    }

    /// 409.
    pub(crate) fn conflict(code: &'static str, message: impl Into<String>) -> Self {
        Self::new(StatusCode::CONFLICT, code, message)
    }

    /// 413.
    pub(crate) fn too_large(max: usize) -> Self {
        let message = format!("The request body is larger than {max} bytes.");
        Self::new(StatusCode::PAYLOAD_TOO_LARGE, "request_too_large", message)
    }

    /// 415.
    pub(crate) fn media_type(what: &str) -> Self {
        Self::new(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "unsupported_media_type",
            format!("{what} is not supported; send application/json."),
        )
    }

    /// 408.
    pub(crate) fn too_slow() -> Self {
        Self::new(StatusCode::REQUEST_TIMEOUT, "request_timeout", "The request was not received in time.")
    }

    /// 401: a caller sent no key.
    pub(crate) fn no_service_key() -> Self {
        let message = "No API key was sent. Put it in the header 'Authorization: Bearer <KEY>'.";
        Self::new(StatusCode::UNAUTHORIZED, "missing_api_key", message)
    }

    /// The answer to a service key that is refused, with the codes of model requests.
    pub(crate) fn service_key(refusal: KeyRefusal) -> Self {
        let unauthenticated = |code, message: &str| Self::new(StatusCode::UNAUTHORIZED, code, message);
        let denied = |code, message: &str| Self::new(StatusCode::FORBIDDEN, code, message);
        match refusal {
            KeyRefusal::Invalid => unauthenticated("invalid_api_key", "Incorrect API key provided. Send the complete service key."),
            KeyRefusal::Expired => unauthenticated("api_key_expired", "The API key has expired. Ask for a new one."),
            KeyRefusal::Disabled => unauthenticated("api_key_disabled", "The API key is disabled."),
            KeyRefusal::AddressBlocked => denied("ip_not_allowed", "This API key may not be used from this address."),
            KeyRefusal::Suspended => denied("account_suspended", "The account of this API key is suspended."),
            KeyRefusal::TooManyWrong(retry_after) => Self::too_many_failed_keys(retry_after),
            KeyRefusal::Unavailable => Self::overloaded("The API key cannot be checked at the moment."),
        }
    }

    /// 429: requests of the key or of its member about themselves are in progress.
    pub(crate) fn too_many_of_caller() -> Self {
        let message = "Too many requests of this key or its member about themselves are in progress. Wait for one to end.";
        let problem = Self::new(StatusCode::TOO_MANY_REQUESTS, "rate_limit_exceeded", message);
        Self { kind: "rate_limit_error", retry_after: Some(1), ..problem }
    }

    /// 429: an address asked for the feeds of the model square too often.
    pub(crate) fn too_many_of_address(retry_after: u32) -> Self {
        let message = format!("Too many requests for the model square came from this address. Try again in {retry_after} s.");
        let problem = Self::new(StatusCode::TOO_MANY_REQUESTS, "rate_limit_exceeded", message);
        Self { kind: "rate_limit_error", retry_after: Some(retry_after), ..problem }
    }

    /// 429: the address or the member has as many requests in progress as it may.
    pub(crate) fn too_many_at_once() -> Self {
        let message = "Too many of your requests are in progress at the same time. Wait for one to end.";
        let problem = Self::new(StatusCode::TOO_MANY_REQUESTS, "rate_limit_exceeded", message);
        Self { kind: "rate_limit_error", retry_after: Some(1), ..problem }
    }

    /// 429: too many wrong keys from one address.
    pub(crate) fn too_many_failed_keys(retry_after: u32) -> Self {
        let message = format!("Too many wrong keys came from this address. Try again in {retry_after} s.");
        let problem = Self::new(StatusCode::TOO_MANY_REQUESTS, "rate_limit_exceeded", message);
        Self { kind: "rate_limit_error", retry_after: Some(retry_after), ..problem }
    }

    /// 500; the cause is in the log.
    pub(crate) fn internal() -> Self {
        let message = "Internal error. The log has details under this request id.";
        Self { kind: "server_error", ..Self::new(StatusCode::INTERNAL_SERVER_ERROR, "internal_error", message) }
    }

    /// 503: a timeout, or too many concurrent requests.
    pub(crate) fn overloaded(message: &str) -> Self {
        let problem = Self::new(StatusCode::SERVICE_UNAVAILABLE, "server_overloaded", message);
        Self { kind: "service_unavailable_error", retry_after: Some(2), ..problem }
    }

    /// 503: the database is unreachable.
    fn no_database() -> Self {
        let message = "The database cannot be reached at the moment.";
        let problem = Self::new(StatusCode::SERVICE_UNAVAILABLE, "database_unavailable", message);
        Self { kind: "service_unavailable_error", retry_after: Some(5), ..problem }
    }

    pub(crate) fn answer(&self) -> ApiResponse {
        let mut error = json!({"message": self.message, "type": self.kind, "param": self.param, "code": self.code});
        if !self.faults.is_empty() {
            let show = |fault: &FileError| json!({"line": fault.line, "column": fault.column, "message": fault.message});
            error["faults"] = self.faults.iter().take(MAX_FAULTS).map(show).collect();
        }
        if !self.rows.is_empty() {
            error["rows"] = self.rows.iter().map(|(name, fault)| fault.of_row(name)).collect();
        }
        let mut response = ApiResponse::of(self.status, json!({"error": error})).with_cause(self.cause.clone());
        if self.status == StatusCode::UNAUTHORIZED {
            response = response.header("www-authenticate", "Bearer");
        }
        if let Some(secs) = self.retry_after {
            response = response.header("retry-after", &secs.to_string());
        }
        response
    }

    /// The error as one of several rows.
    fn of_row(&self, name: &str) -> Value {
        json!({"name": name, "message": self.message, "param": self.param, "code": self.code})
    }

    /// Error for a failure of the store. Failures that the client cannot correct are logged.
    pub(crate) fn store(error: &StoreError, file: Option<&str>) -> Self {
        if let StoreError::Refused(refused) = error {
            return Self::refused(refused, file);
        }
        if let StoreError::TooManyRecords { .. } = error {
            return Self::value("since", error);
        }
        if let StoreError::TooManyGroups { .. } = error {
            return Self::value("by", error);
        }
        let cause = Some(InternalFailure { fault: error.class(), message: error.to_string() });
        if error.is_unreachable() {
            tracing::warn!(%error, "admin API: the database is unreachable");
            return Self { cause, ..Self::no_database() };
        }
        tracing::error!(%error, "admin API: internal error");
        Self { cause, ..Self::internal() }
    }

    pub(crate) fn message(&self) -> &str {
        &self.message
    }

    pub(crate) const fn code(&self) -> &'static str {
        self.code
    }

    pub(crate) fn param(&self) -> Option<&str> {
        self.param.as_deref()
    }

    /// The faults of a catalog file.
    pub(crate) fn faults(&self) -> &[FileError] {
        &self.faults
    }

    /// The error of each of several rows.
    pub(crate) fn rows(&self) -> &[(String, Self)] {
        &self.rows
    }

    pub(crate) const fn reason(&self) -> Option<&'static str> {
        self.reason
    }

    /// Seconds after which the request may succeed.
    pub(crate) const fn retry_after(&self) -> Option<u32> {
        self.retry_after
    }

    pub(crate) const fn cause(&self) -> Option<&InternalFailure> {
        self.cause.as_ref()
    }

    pub(crate) fn because(self, reason: &'static str) -> Self {
        Self { reason: Some(reason), ..self }
    }

    /// Whether another request changed the same row, or created one of the same name, at the same time.
    pub(crate) fn is_race(&self) -> bool {
        self.is_stale() || self.code == "already_exists"
    }

    /// Whether the row was changed concurrently.
    pub(crate) fn is_stale(&self) -> bool {
        self.code == "revision_conflict"
    }
}

/// A message of the store as a sentence.
fn sentence(text: &str) -> String {
    let mut chars = text.chars();
    let first = chars.next().map(char::to_uppercase);
    format!("{}{}.", first.map(String::from_iter).unwrap_or_default(), chars.as_str())
}

impl From<StoreError> for ApiError {
    fn from(error: StoreError) -> Self {
        Self::store(&error, None)
    }
}

#[cfg(test)]
mod tests;
