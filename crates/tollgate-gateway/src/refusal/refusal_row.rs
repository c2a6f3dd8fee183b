//! One row of the error table.

use tollgate_protocol::{FieldViolation, GeminiErrorFields, OpenAiErrorFields, Problem, QuotaViolation};

pub(super) const INVALID_REQUEST: &str = "invalid_request_error";
pub(super) const SERVER_ERROR: &str = "server_error";
pub(super) const UNAVAILABLE_ERROR: &str = "service_unavailable_error";

/// A problem under construction: the members that every row has. The builder methods add the others.
pub(super) struct RefusalRow(pub(super) Problem);

impl RefusalRow {
    pub(super) fn new(status: u16, kind: &str, code: &str, native_status: &'static str, reason: &str, message: String) -> Self {
        Self(Problem {
            status,
            message,
            request_id: String::new(),
            openai: OpenAiErrorFields { kind: kind.to_owned(), code: Some(code.to_owned()), param: None },
            native: GeminiErrorFields { status: native_status, reason: reason.to_owned(), ..GeminiErrorFields::default() },
            retry_after: None,
            stop: false,
            ..Problem::default()
        })
    }

    pub(super) fn invalid(code: &str, reason: &str, message: String) -> Self {
        Self::new(400, INVALID_REQUEST, code, "INVALID_ARGUMENT", reason, message)
    }

    pub(super) fn unauthenticated(code: &str, reason: &str, message: String) -> Self {
        Self::new(401, INVALID_REQUEST, code, "UNAUTHENTICATED", reason, message)
    }

    pub(super) fn denied(code: &str, reason: &str, message: String) -> Self {
        Self::new(403, "permission_error", code, "PERMISSION_DENIED", reason, message)
    }

    pub(super) fn not_found(code: &str, reason: &str, message: String) -> Self {
        Self::new(404, INVALID_REQUEST, code, "NOT_FOUND", reason, message)
    }

    pub(super) fn media(message: String) -> Self {
        Self::new(415, INVALID_REQUEST, "unsupported_media_type", "INVALID_ARGUMENT", "UNSUPPORTED_MEDIA_TYPE", message)
    }

    pub(super) fn head_too_large(status: u16, message: String) -> Self {
        Self::new(status, INVALID_REQUEST, "header_too_large", "INVALID_ARGUMENT", "HEADER_TOO_LARGE", message)
    }

    pub(super) fn rate_limited(secs: u32, message: String) -> Self {
        Self::new(429, "rate_limit_error", "rate_limit_exceeded", "RESOURCE_EXHAUSTED", "RATE_LIMIT_EXCEEDED", message).retry(secs)
    }

    pub(super) fn unavailable(code: &str, reason: &str, message: &str) -> Self {
        Self::new(503, UNAVAILABLE_ERROR, code, "UNAVAILABLE", reason, message.to_owned())
    }

    pub(super) fn param(mut self, param: &str) -> Self {
        self.0.openai.param = Some(param.to_owned());
        self
    }

    /// Seconds to wait, clamped to 1 to 60, because the SDKs ignore longer waits.
    pub(super) fn retry(mut self, secs: u32) -> Self {
        self.0.retry_after = Some(secs.clamp(1, 60));
        self
    }

    /// The type in Anthropic's format, where it is not that of the status.
    pub(super) fn messages_type(mut self, kind: &str) -> Self {
        self.0.anthropic.kind = Some(kind.to_owned());
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

    pub(super) fn violations(mut self, violations: Vec<FieldViolation>) -> Self {
        self.0.native.violations = violations;
        self
    }

    /// Adds a `QuotaFailure` with the row's message.
    pub(super) fn quota(mut self, subject: &str) -> Self {
        self.0.native.quota.push(QuotaViolation { subject: subject.to_owned(), description: self.0.message.clone() });
        self
    }
}
