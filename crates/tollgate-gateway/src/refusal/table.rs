//! The error table: status, codes and text of each refusal on both protocols, as documented in docs/errors.md. One function
//! per row, grouped in files by topic. The text is the same on both protocols.

mod bodies;
mod gateway;
mod keys;
mod limits;
mod models;
mod paths;
mod upstream;

use tollgate_core::NoRouteCause;
use tollgate_protocol::{FieldViolation, GeminiErrorFields, OpenAiErrorFields, Problem, QuotaViolation};

use super::Refusal;
use crate::request::Head;

const INVALID_REQUEST: &str = "invalid_request_error";
const SERVER_ERROR: &str = "server_error";
const UNAVAILABLE_ERROR: &str = "service_unavailable_error";

/// A problem under construction: the members every row has. The builder methods add the others.
pub(super) struct RefusalRow(Problem);

impl RefusalRow {
    fn new(status: u16, kind: &str, code: Option<&str>, native_status: &'static str, reason: &str, message: String) -> Self {
        Self(Problem {
            status,
            message,
            request_id: String::new(),
            openai: OpenAiErrorFields { kind: kind.to_owned(), code: code.map(str::to_owned), param: None },
            native: GeminiErrorFields { status: native_status, reason: reason.to_owned(), ..GeminiErrorFields::default() },
            retry_after: None,
            stop: false,
        })
    }

    /// 400 for an invalid request.
    fn invalid(code: &str, reason: &str, message: String) -> Self {
        Self::new(400, INVALID_REQUEST, Some(code), "INVALID_ARGUMENT", reason, message)
    }

    fn param(mut self, param: impl Into<String>) -> Self {
        self.0.openai.param = Some(param.into());
        self
    }

    /// Seconds to wait, clamped to 1 to 60, because the SDKs ignore longer waits.
    fn retry(mut self, secs: u32) -> Self {
        self.0.retry_after = Some(secs.clamp(1, 60));
        self
    }

    fn stop(mut self) -> Self {
        self.0.stop = true;
        self
    }

    fn metadata(mut self, key: &'static str, value: impl Into<String>) -> Self {
        self.0.native.metadata.push((key, value.into()));
        self
    }

    fn violations(mut self, violations: Vec<FieldViolation>) -> Self {
        self.0.native.violations = violations;
        self
    }

    fn quota(mut self, subject: &str, description: &str) -> Self {
        self.0.native.quota.push(QuotaViolation { subject: subject.to_owned(), description: description.to_owned() });
        self
    }
}

impl Refusal {
    /// Status, codes and text in both protocols.
    #[must_use]
    pub fn problem(&self, head: &Head) -> Problem {
        let mut problem = self.row(head).0;
        problem.request_id = head.request_id.to_string();
        problem
    }

    fn row(&self, head: &Head) -> RefusalRow {
        match self {
            Self::KeyMissing => keys::missing(),
            Self::KeyInvalid => keys::invalid(head),
            Self::KeyExpired(at) => keys::expired(*at, head),
            Self::KeyDisabled => keys::disabled(head),
            Self::AddressBlocked => keys::address(head),
            Self::Suspended => keys::suspended(),
            Self::UnknownPath { hint } => paths::unknown(hint.as_ref(), head),
            Self::MethodNotAllowed { allow } => paths::method(allow, head),
            Self::UnknownVerb => paths::verb(head),
            Self::ModelNotFound { model, .. } => models::not_found(model, head),
            Self::MethodUnsupported { model, supports } => models::method_unsupported(model, supports, head),
            Self::Malformed(fault) => bodies::malformed(fault, head.from),
            Self::Unsupported { fields, model, reason } => bodies::unsupported(fields, model, reason.as_deref(), head),
            Self::MediaType { sent } => bodies::media_type(sent),
            Self::ContentEncoding { sent } => bodies::content_encoding(sent),
            Self::BodyTooLarge { limit } => bodies::too_large(*limit),
            Self::BodyUnreadable { fault } => bodies::unreadable(fault),
            Self::InvalidValue { name, message } => bodies::invalid_value(name, message),
            Self::RateLimited(limit) => limits::rate_limited(limit),
            Self::WrongKeys { retry_after } => limits::wrong_keys(*retry_after),
            Self::Spent(spent) => limits::spent(spent, head),
            Self::TooDear(subject) => limits::too_dear(*subject),
            Self::NoRoute { model, cause: NoRouteCause::PriceLimit, price, .. } => {
                upstream::too_dear(model, price.as_ref(), head.from)
            }
            Self::NoRoute { model, cause: NoRouteCause::NoPrice, missing_price, .. } => {
                upstream::no_price(model, *missing_price, head.from)
            }
            Self::NoRoute { model, cause, retry_after, .. } => upstream::no_route(model, *cause, *retry_after, head.from),
            Self::Upstream { model, failure } => upstream::failed(model, failure),
            Self::ShuttingDown => gateway::shutting_down(),
            Self::Internal => gateway::internal(head),
            Self::Overloaded => gateway::overloaded(head),
            Self::CallerLeft => gateway::caller_left(),
            Self::TooSlow { secs } => gateway::too_slow(*secs),
            Self::HeadersTooLarge { limit } => gateway::headers_too_large(*limit),
            Self::TargetTooLong { limit } => gateway::target_too_long(*limit),
            Self::ContentPolicy => gateway::content_policy(head),
            Self::KeyCheckUnavailable => gateway::key_check(),
        }
    }
}
