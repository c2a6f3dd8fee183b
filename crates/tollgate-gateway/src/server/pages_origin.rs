//! Cross-origin headers for the console's pages if the console has an address of its own: its playground sends model requests from the
//! browser. Browsers send a preflight request first, and let a page read the answer only with these headers. Other origins get none.

use http::{HeaderMap, HeaderName, HeaderValue, Method, Response, StatusCode, header, request::Parts};

use crate::response::{AnswerBody, whole};

/// Headers of answers that the playground shows.
const EXPOSED: &str = "x-request-id, retry-after, x-tollgate-attempts, x-tollgate-cause, x-tollgate-dropped, x-tollgate-trace";
/// Seconds for which a browser may cache the answer to a preflight request.
const MAX_AGE: &str = "600";
const REQUEST_METHOD: HeaderName = HeaderName::from_static("access-control-request-method");

/// The origin of a request, if it is that of the console's pages.
pub(super) fn of(headers: &HeaderMap, pages: Option<&HeaderValue>) -> Option<HeaderValue> {
    let origin = headers.get(header::ORIGIN)?;
    pages.filter(|pages| *pages == origin).cloned()
}

/// The answer to a preflight request, with which a browser asks whether a page may send a request.
pub(super) fn preflight(parts: &Parts) -> Option<Response<AnswerBody>> {
    if parts.method != Method::OPTIONS || !parts.headers.contains_key(REQUEST_METHOD) {
        return None;
    }
    let mut response = Response::new(whole(bytes::Bytes::new()));
    *response.status_mut() = StatusCode::NO_CONTENT;
    let headers = response.headers_mut();
    headers.insert(header::ACCESS_CONTROL_ALLOW_METHODS, HeaderValue::from_static("GET, POST"));
    // Allow the requested headers: keys are in headers that differ by protocol.
    if let Some(asked) = parts.headers.get(header::ACCESS_CONTROL_REQUEST_HEADERS) {
        headers.insert(header::ACCESS_CONTROL_ALLOW_HEADERS, asked.clone());
    }
    headers.insert(header::ACCESS_CONTROL_MAX_AGE, HeaderValue::from_static(MAX_AGE));
    Some(response)
}

/// Lets pages of this origin read an answer.
pub(super) fn allow(headers: &mut HeaderMap, origin: HeaderValue) {
    headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
    headers.insert(header::ACCESS_CONTROL_EXPOSE_HEADERS, HeaderValue::from_static(EXPOSED));
    headers.append(header::VARY, HeaderValue::from_static("origin"));
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;

    fn parts(method: &str, headers: &[(&'static str, &str)]) -> Parts {
        let request =
            headers.iter().fold(Request::builder().method(method), |request, (name, value)| request.header(*name, *value));
        request.body(()).unwrap().into_parts().0
    }

    #[test]
    fn only_the_origin_of_the_pages_is_known() {
        let pages = HeaderValue::from_static("https://console.example.com");
        let asked = |origin: &str| of(&parts("POST", &[("origin", origin)]).headers, Some(&pages)).is_some();
        assert!(asked("https://console.example.com"));
        for other in ["https://evil.example.com", "null", "https://console.example.com.evil.example.com", "*"] {
            assert!(!asked(other), "{other}");
        }
        assert!(of(&HeaderMap::new(), Some(&pages)).is_none());
        assert!(of(&parts("POST", &[("origin", "https://console.example.com")]).headers, None).is_none());
    }

    #[test]
    fn browsers_that_ask_are_answered_and_other_requests_are_not() {
        let asked = [("access-control-request-method", "POST"), ("access-control-request-headers", "x-api-key, content-type")];
        let response = preflight(&parts("OPTIONS", &asked)).unwrap();
        assert_eq!(response.status(), StatusCode::NO_CONTENT);
        assert_eq!(response.headers()["access-control-allow-headers"], "x-api-key, content-type");
        assert!(preflight(&parts("OPTIONS", &[])).is_none() && preflight(&parts("POST", &asked)).is_none());
    }
}
