//! The origin of a browser's request. Requests caused by pages of other origins are refused.

use http::{HeaderMap, Uri, header};
use url::Url;

/// The origin according to the headers `Sec-Fetch-Site` and `Origin`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RequestOrigin {
    Same,
    Other,
    /// Both headers are missing, as in requests of programs other than browsers.
    Unknown,
}

/// Compares the origin of a request with the host it is sent to, and with the console's own address. Only the host is compared: a
/// proxy may end TLS.
pub(crate) fn origin_of(headers: &HeaderMap, uri: &Uri, console: &Url) -> RequestOrigin {
    let text = |name: &str| headers.get(name).map(|value| value.to_str().unwrap_or("?"));
    let site = text("sec-fetch-site");
    if site.is_some_and(|site| site != "same-origin") {
        return RequestOrigin::Other;
    }
    let Some(origin) = text("origin") else {
        return if site.is_some() { RequestOrigin::Same } else { RequestOrigin::Unknown };
    };
    let host = uri.authority().map(http::uri::Authority::as_str).or_else(|| headers.get(header::HOST)?.to_str().ok());
    let is_host = |host: &str| origin.split_once("://").is_some_and(|(_, authority)| authority.eq_ignore_ascii_case(host));
    let is_console = origin.eq_ignore_ascii_case(&console.origin().ascii_serialization());
    if is_console || host.is_some_and(is_host) { RequestOrigin::Same } else { RequestOrigin::Other }
}

#[cfg(test)]
mod tests {
    use http::{HeaderName, HeaderValue};

    use super::*;

    fn judge(given: &[(&'static str, &'static str)]) -> RequestOrigin {
        let mut headers = HeaderMap::new();
        for (name, value) in given {
            headers.append(HeaderName::from_static(name), HeaderValue::from_static(value));
        }
        origin_of(&headers, &Uri::from_static("/admin/v1/session"), &Url::parse("https://console.example.com/").unwrap())
    }

    #[test]
    fn requests_from_other_origins_are_detected() {
        use RequestOrigin::{Other, Same, Unknown};
        for (headers, expected) in [
            (vec![], Unknown),
            (vec![("sec-fetch-site", "same-origin")], Same),
            (vec![("sec-fetch-site", "same-site")], Other),
            (vec![("sec-fetch-site", "cross-site")], Other),
            (vec![("sec-fetch-site", "none")], Other),
            (vec![("host", "gw:8080"), ("origin", "http://gw:8080")], Same),
            (vec![("host", "gw:8080"), ("origin", "https://GW:8080")], Same),
            (vec![("host", "gw:8080"), ("origin", "https://console.example.com")], Same),
            (vec![("host", "gw:8080"), ("origin", "http://gw:8081")], Other),
            (vec![("host", "gw:8080"), ("origin", "http://gw:8080.example.com")], Other),
            (vec![("host", "gw:8080"), ("origin", "http://evil.example.com")], Other),
            (vec![("host", "gw:8080"), ("origin", "null")], Other),
            (vec![("host", "gw:8080"), ("origin", "http://gw:8080"), ("sec-fetch-site", "cross-site")], Other),
        ] {
            assert_eq!(judge(&headers), expected, "{headers:?}");
        }
    }
}
