//! Encodes a refusal as an HTTP response.

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode, header};
use tollgate_core::{LimitExceeded, RateStatus, RateStatuses, Timestamp};
use tollgate_protocol::{ErrorStyle, Problem, codec};

use super::{Refusal, UpstreamFailure, text::time};
use crate::{
    request::Head,
    response::{AnswerBody, whole},
};

/// The request's id, on every response.
pub(crate) const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
/// Repeats `metadata.cause` of E40 and E41.
pub(crate) const CAUSE: HeaderName = HeaderName::from_static("x-tollgate-cause");

const JSON: HeaderValue = HeaderValue::from_static("application/json; charset=utf-8");
const RETRY_AFTER_MS: HeaderName = HeaderName::from_static("retry-after-ms");
const SHOULD_RETRY: HeaderName = HeaderName::from_static("x-should-retry");

impl Refusal {
    /// The response. `problem` is the result of [`Refusal::problem`], passed in so that record and response agree.
    #[must_use]
    pub fn respond(&self, head: &Head, problem: &Problem) -> Response<AnswerBody> {
        let body = match (self, head.from.spec().error_style) {
            // A blocked prompt is a 200 on native (E67).
            (Self::ContentPolicy, ErrorStyle::Gemini) => {
                Bytes::from_static(br#"{"promptFeedback":{"blockReason":"PROHIBITED_CONTENT"}}"#)
            }
            _ => codec(head.from).encode_problem(problem),
        };
        let mut response = Response::new(whole(body));
        *response.status_mut() = StatusCode::from_u16(problem.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, JSON);
        put(headers, REQUEST_ID, &problem.request_id);
        if let Some(secs) = problem.retry_after {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(secs));
            if secs < 10 {
                headers.insert(RETRY_AFTER_MS, HeaderValue::from(secs * 1_000));
            }
        }
        if problem.stop {
            headers.insert(SHOULD_RETRY, HeaderValue::from_static("false"));
        }
        self.own_headers(headers, head, problem.status);
        response
    }

    /// The event stream that replaces the error status for a streaming caller, in protocols whose clients expect one. Codex shortens the
    /// conversation when a failed response says that the request is too long for the model; not every version does so on a status 400.
    pub(crate) fn stream(&self, head: &Head, problem: &Problem) -> Option<Bytes> {
        let Self::Upstream { model, failure: UpstreamFailure::Rejected(rejection) } = self else { return None };
        let seconds = head.arrived.seconds();
        rejection.problem.context_exceeded.then(|| codec(head.from).context_exceeded_stream(problem, model, seconds)).flatten()
    }

    /// The response as raw HTTP/1.1, for a connection whose request head could not be parsed. The connection is closed.
    pub(crate) fn raw(&self, head: &Head) -> Bytes {
        let problem = self.problem(head);
        let body = codec(head.from).encode_problem(&problem);
        let response = self.respond(head, &problem);
        let mut out = format!("HTTP/1.1 {}\r\n", response.status()).into_bytes();
        for (name, value) in response.headers().iter().filter(|(name, _)| *name != header::CONNECTION) {
            for piece in [name.as_str().as_bytes(), b": ", value.as_bytes(), b"\r\n"] {
                out.extend_from_slice(piece);
            }
        }
        out.extend_from_slice(format!("content-length: {}\r\nconnection: close\r\n\r\n", body.len()).as_bytes());
        out.extend_from_slice(&body);
        out.into()
    }

    /// Headers specific to this refusal.
    fn own_headers(&self, headers: &mut HeaderMap, head: &Head, status: u16) {
        if status == 401 {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        if let Self::MethodNotAllowed { allow } = self {
            headers.insert(header::ALLOW, HeaderValue::from_static(allow));
        }
        if matches!(self, Self::UpgradeRequired) {
            headers.insert(header::UPGRADE, HeaderValue::from_static("HTTP/1.1"));
        }
        if let Self::NoRoute { cause, .. } = self {
            headers.insert(CAUSE, HeaderValue::from_static(cause.as_str()));
        }
        if let Self::LimitExceeded(exceeded) = self
            && let LimitExceeded::Rate(rate) = &**exceeded
        {
            write_rates(head.from.spec().error_style, head.arrived, &rate.rate_statuses, headers);
        }
        if self.closes() {
            headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
        }
    }

    /// Whether the connection is closed after the response because the rest of the request is not read.
    fn closes(&self) -> bool {
        matches!(
            self,
            Self::ShuttingDown
                | Self::BodyTooLarge { .. }
                | Self::TooSlow { .. }
                | Self::HeadersTooLarge { .. }
                | Self::TargetTooLong { .. }
        )
    }
}

/// Writes the headers of the rates that apply, as clients of the protocol read them: `x-ratelimit-*` (OpenAI, "Rate limits") or
/// `anthropic-ratelimit-*` (Anthropic, "Rate limits").
pub(crate) fn write_rates(style: ErrorStyle, now: Timestamp, rates: &RateStatuses, headers: &mut HeaderMap) {
    const REQUESTS: [&str; 3] = ["x-ratelimit-limit-requests", "x-ratelimit-remaining-requests", "x-ratelimit-reset-requests"];
    const TOKENS: [&str; 3] = ["x-ratelimit-limit-tokens", "x-ratelimit-remaining-tokens", "x-ratelimit-reset-tokens"];
    const ANTHROPIC_REQUESTS: [&str; 3] =
        ["anthropic-ratelimit-requests-limit", "anthropic-ratelimit-requests-remaining", "anthropic-ratelimit-requests-reset"];
    const ANTHROPIC_TOKENS: [&str; 3] =
        ["anthropic-ratelimit-tokens-limit", "anthropic-ratelimit-tokens-remaining", "anthropic-ratelimit-tokens-reset"];
    let is_anthropic = style == ErrorStyle::Anthropic;
    let (requests, tokens) = if is_anthropic { (ANTHROPIC_REQUESTS, ANTHROPIC_TOKENS) } else { (REQUESTS, TOKENS) };
    for (names, rate) in [(requests, rates.requests), (tokens, rates.tokens)] {
        let Some(RateStatus { limit, used, reset_ms }) = rate else { continue };
        let [limit_name, remaining_name, reset_name] = names.map(HeaderName::from_static);
        headers.insert(limit_name, HeaderValue::from(limit));
        headers.insert(remaining_name, HeaderValue::from(limit.saturating_sub(used)));
        // A point in time, in whole seconds, rounded up.
        let end = || time(now.plus_ms(i64::try_from(reset_ms).unwrap_or(i64::MAX / 2_000).saturating_add(999)));
        put(headers, reset_name, &if is_anthropic { end() } else { duration(reset_ms) });
    }
}

/// `120ms`, `1s`, `6m0s`: the format clients parse.
fn duration(ms: u64) -> String {
    let secs = ms.div_ceil(1_000);
    match (ms, secs) {
        (0..1_000, _) => format!("{ms}ms"),
        (_, 0..60) => format!("{secs}s"),
        _ => format!("{}m{}s", secs / 60, secs % 60),
    }
}

fn put(headers: &mut HeaderMap, name: HeaderName, value: &str) {
    if let Ok(value) = HeaderValue::from_str(value) {
        headers.insert(name, value);
    }
}

#[cfg(test)]
mod tests {
    use super::duration;

    #[test]
    fn reset_durations_have_the_format_clients_parse() {
        assert_eq!([0, 120, 999, 1_000, 59_000, 360_000].map(duration), ["0ms", "120ms", "999ms", "1s", "59s", "6m0s"]);
    }
}
