//! Requests from pages in browsers (CORS, <https://fetch.spec.whatwg.org/#http-cors-protocol>). Browsers send a preflight before a
//! request with a key, and let a page read the answer only if these headers allow it. If the console has its own address, its pages may
//! send every request to the model address. Pages of the origins in the settings may call the model API. Other origins get none of
//! these headers. Cookies are never allowed: the model API takes keys only.

use http::{HeaderMap, HeaderName, HeaderValue, Method, Response, StatusCode, header};

use crate::{
    header_fields::HeaderFields,
    ingress,
    response::{AnswerBody, whole},
    settings::{CorsOrigins, Settings},
};

/// Headers of answers that pages may read besides the safelisted ones of the Fetch standard.
const EXPOSED: &str = "x-request-id, request-id, retry-after, retry-after-ms, x-should-retry, x-tollgate-attempts, x-tollgate-cause, \
                       x-tollgate-dropped, x-tollgate-trace, x-ratelimit-limit-requests, x-ratelimit-remaining-requests, \
                       x-ratelimit-reset-requests, x-ratelimit-limit-tokens, x-ratelimit-remaining-tokens, x-ratelimit-reset-tokens, \
                       anthropic-ratelimit-requests-limit, anthropic-ratelimit-requests-remaining, \
                       anthropic-ratelimit-requests-reset, anthropic-ratelimit-tokens-limit, anthropic-ratelimit-tokens-remaining, \
                       anthropic-ratelimit-tokens-reset, www-authenticate, allow";
/// Seconds for which a browser may keep the answer to a preflight.
const MAX_AGE: &str = "600";
/// Longest list of header names in a preflight, in bytes. SDKs send about three hundred.
const MAX_NAMES_BYTES: usize = 2_048;
const REQUEST_METHOD: HeaderName = HeaderName::from_static("access-control-request-method");

/// The origin to allow for a request: that of its page, if it may read the answer, or any.
pub(super) fn allowed(path: &str, headers: &HeaderFields, settings: &Settings) -> Option<HeaderValue> {
    let origin = headers.get(header::ORIGIN)?;
    if settings.pages_origin.as_ref() == Some(origin) {
        return Some(origin.clone());
    }
    if !ingress::is_model_api(path) {
        return None;
    }
    match &settings.cors {
        CorsOrigins::Any => Some(HeaderValue::from_static("*")),
        CorsOrigins::Of(origins) => origins.contains(origin).then(|| origin.clone()),
    }
}

/// The answer to a preflight: whether a page may send a request.
pub(super) fn preflight(method: &Method, headers: &HeaderFields) -> Option<Response<AnswerBody>> {
    if method != Method::OPTIONS || !headers.contains(REQUEST_METHOD) {
        return None;
    }
    let mut response = Response::new(whole(bytes::Bytes::new()));
    *response.status_mut() = StatusCode::NO_CONTENT;
    let allowed = response.headers_mut();
    allowed.insert(header::ACCESS_CONTROL_ALLOW_METHODS, HeaderValue::from_static("GET, POST"));
    // All requested names are allowed: keys are in headers that differ by protocol, and SDKs add headers of their own.
    let asked = headers.get(header::ACCESS_CONTROL_REQUEST_HEADERS);
    if let Some(asked) = asked.filter(|asked| is_list_of_names(asked)) {
        allowed.insert(header::ACCESS_CONTROL_ALLOW_HEADERS, asked.clone());
    }
    allowed.insert(header::ACCESS_CONTROL_MAX_AGE, HeaderValue::from_static(MAX_AGE));
    allowed.insert(header::VARY, HeaderValue::from_static("access-control-request-headers"));
    Some(response)
}

/// Whether a value is a short list of names of headers.
fn is_list_of_names(value: &HeaderValue) -> bool {
    let is_name = |name: &[u8]| HeaderName::from_bytes(name.trim_ascii()).is_ok();
    value.len() <= MAX_NAMES_BYTES && value.as_bytes().split(|byte| *byte == b',').all(is_name)
}

/// Lets pages of this origin read an answer.
pub(super) fn allow(headers: &mut HeaderMap, origin: HeaderValue) {
    headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
    headers.insert(header::ACCESS_CONTROL_EXPOSE_HEADERS, HeaderValue::from_static(EXPOSED));
    headers.append(header::VARY, HeaderValue::from_static("origin"));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(fields: &[(&'static str, &str)]) -> HeaderFields {
        let fields = fields.iter().map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_str(value).unwrap()));
        HeaderFields::from(fields.collect::<HeaderMap>())
    }

    fn settings(pages: Option<&'static str>, origins: CorsOrigins) -> Settings {
        Settings { pages_origin: pages.map(HeaderValue::from_static), cors: origins, ..Settings::default() }
    }

    fn check(settings: &Settings, path: &str, origin: &str, expected: Option<&str>) {
        let allowed = allowed(path, &fields(&[("origin", origin)]), settings);
        assert_eq!(allowed.as_ref().map(|value| value.to_str().unwrap()), expected, "{path} {origin}");
    }

    #[test]
    fn only_the_console_origin_is_allowed_by_default() {
        let console = settings(Some("https://console.example.com"), CorsOrigins::default());
        for path in ["/v1/chat/completions", "/models.json"] {
            check(&console, path, "https://console.example.com", Some("https://console.example.com"));
            for other in ["https://evil.example.com", "null", "https://console.example.com.evil.example.com", "*", ""] {
                check(&console, path, other, None);
            }
        }
        assert!(allowed("/v1/messages", &fields(&[]), &console).is_none());
        check(&settings(None, CorsOrigins::default()), "/v1/messages", "https://console.example.com", None);
    }

    #[test]
    fn configured_origins_are_allowed_only_for_the_model_api() {
        let origins = ["https://app.example.com", "http://localhost:3000"].map(HeaderValue::from_static);
        let listed = settings(Some("https://console.example.com"), CorsOrigins::Of(origins.to_vec()));
        for path in
            ["/v1/chat/completions", "/v1beta/models/m:generateContent", "/v1alpha/models", "/v1/key", "/v1/no/such/path", "/v1"]
        {
            check(&listed, path, "https://app.example.com", Some("https://app.example.com"));
            check(&listed, path, "http://localhost:3000", Some("http://localhost:3000"));
            check(&listed, path, "https://console.example.com", Some("https://console.example.com"));
            for other in
                ["https://app.example.com:8443", "http://app.example.com", "https://APP.example.com", "http://localhost", "null"]
            {
                check(&listed, path, other, None);
            }
        }
        for path in ["/", "/admin/v1/keys", "/admin", "/login", "/metrics", "/v10/chat", "/models", "/healthz"] {
            check(&listed, path, "https://app.example.com", None);
            check(&settings(None, CorsOrigins::Any), path, "https://app.example.com", None);
        }
        for origin in ["https://app.example.com", "null"] {
            check(&settings(None, CorsOrigins::Any), "/v1/models", origin, Some("*"));
        }
        assert!(allowed("/v1/models", &fields(&[]), &settings(None, CorsOrigins::Any)).is_none());
    }

    #[test]
    fn preflight_requests_are_answered_and_other_requests_are_not() {
        let asked = [("access-control-request-method", "POST"), ("access-control-request-headers", "x-api-key, content-type")];
        let response = preflight(&Method::OPTIONS, &fields(&asked)).unwrap();
        assert_eq!(response.status(), StatusCode::NO_CONTENT);
        assert_eq!(response.headers()["access-control-allow-headers"], "x-api-key, content-type");
        let is_asked = |method, named| preflight(method, &fields(named)).is_some();
        assert!(!is_asked(&Method::OPTIONS, &[]) && !is_asked(&Method::POST, &asked));
    }

    #[test]
    fn only_short_valid_header_lists_are_echoed() {
        let names = "x-stainless-lang,".repeat(200);
        for wrong in [names.as_str(), "a b", "x-api-key, ", "x\t\u{e9}", "<script>", "x:y"] {
            let asked = [("access-control-request-method", "POST"), ("access-control-request-headers", wrong)];
            let response = preflight(&Method::OPTIONS, &fields(&asked)).unwrap();
            assert!(!response.headers().contains_key("access-control-allow-headers"), "{wrong}");
        }
    }
}
