//! Checks every request head before routing: unambiguous framing, one well-formed host, and sizes within the limits.

use http::{HeaderMap, HeaderValue, Method, Uri, Version, header, request::Parts, uri::Authority};
use tollgate_core::ShortText;

use super::head_scan::Framing;
use crate::{
    header_fields::HeaderFields,
    refusal::{REQUEST_ID, Refusal},
    settings::HttpLimits,
};

/// Bytes of a header field besides name and value: `: ` and CRLF.
const FIELD_OVERHEAD: usize = 4;

pub(super) fn check(parts: &Parts, headers: &HeaderFields, framing: Framing, limits: &HttpLimits) -> Result<(), Refusal> {
    if framing == Framing::Ambiguous {
        return Err(invalid("content-length", "The length of the request body is stated in more than one way."));
    }
    let mut codings = headers.get_all(header::TRANSFER_ENCODING);
    if codings.next().is_some_and(|coding| !coding.as_bytes().eq_ignore_ascii_case(b"chunked")) || codings.next().is_some() {
        return Err(invalid("transfer-encoding", "The only Transfer-Encoding that is understood is chunked, once."));
    }
    if parts.method == Method::CONNECT {
        return Err(Refusal::MethodNotAllowed { allow: "GET, HEAD, POST" });
    }
    let target = parts.uri.path_and_query().map_or(0, |target| target.as_str().len());
    if target > limits.target_bytes {
        return Err(Refusal::TargetTooLong { limit: limits.target_bytes });
    }
    let bytes = headers.as_map().iter().map(|(name, value)| name.as_str().len() + value.len() + FIELD_OVERHEAD).sum::<usize>();
    if target + bytes > limits.header_bytes || headers.len() > limits.header_count {
        return Err(Refusal::HeadersTooLarge { limit: limits.header_bytes });
    }
    host(parts, headers)
}

/// HTTP/1.1 requires exactly one `Host`; HTTP/2 `:authority` or `Host`, equal if both are present. Optional in HTTP/1.0.
fn host(parts: &Parts, headers: &HeaderFields) -> Result<(), Refusal> {
    let mut hosts = headers.get_all(header::HOST);
    let first = hosts.next();
    if hosts.next().is_some() {
        return Err(invalid("host", "The request has more than one Host header."));
    }
    if first.is_some_and(|host| !well_formed(host)) {
        return Err(invalid("host", "The Host header is not a host name with an optional port."));
    }
    if parts.version == Version::HTTP_2 {
        return match (parts.uri.authority(), first) {
            (Some(authority), Some(host)) if !authority.as_str().as_bytes().eq_ignore_ascii_case(host.as_bytes()) => {
                Err(invalid("host", "The Host header and :authority name different hosts."))
            }
            (None, None) => Err(invalid("host", "The request names no host.")),
            _ => Ok(()),
        };
    }
    if first.is_none() && parts.version != Version::HTTP_10 {
        return Err(invalid("host", "The request has no Host header."));
    }
    Ok(())
}

/// True if the request names a loopback host. A web page whose own name resolves to loopback (DNS rebinding) sends that name instead.
#[must_use]
pub fn names_loopback(uri: &Uri, headers: &HeaderMap) -> bool {
    let header = || headers.get(header::HOST).and_then(|host| host.to_str().ok()?.parse::<Authority>().ok());
    let Some(authority) = uri.authority().cloned().or_else(header) else { return true };
    let host = authority.host().trim_start_matches('[').trim_end_matches(']');
    host.eq_ignore_ascii_case("localhost") || host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
}

fn well_formed(host: &HeaderValue) -> bool {
    is_plain(host.as_bytes()) || is_authority(host)
}

/// Whether a host consists of letters, digits, dots and hyphens with an optional port, as nearly all do.
fn is_plain(host: &[u8]) -> bool {
    let name = host.iter().take_while(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-')).count();
    match host.split_at(name) {
        ([], _) => false,
        (_, []) => true,
        (_, [b':', port @ ..]) => {
            // The full check handles longer ports.
            let number = || port.iter().fold(0, |number, digit| 10 * number + u32::from(digit - b'0'));
            port.len() <= 5 && port.iter().all(u8::is_ascii_digit) && u16::try_from(number()).is_ok()
        }
        _ => false,
    }
}

fn is_authority(host: &HeaderValue) -> bool {
    let Some(authority) = host.to_str().ok().and_then(|text| text.parse::<Authority>().ok()) else { return false };
    let Some(rest) = authority.as_str().strip_prefix(authority.host()) else { return false };
    let port = rest.is_empty() || rest.strip_prefix(':').is_some_and(|port| port.is_empty() || port.parse::<u16>().is_ok());
    !authority.host().is_empty() && port
}

fn invalid(name: &'static str, message: &str) -> Refusal {
    Refusal::InvalidValue { name, message: message.to_owned() }
}

/// The caller's `x-request-id`: its visible ASCII characters, at most 128.
pub(super) fn client_request_id(headers: &HeaderFields) -> Option<ShortText> {
    const MAX_CHARS: usize = 128;
    let id = headers.get(REQUEST_ID)?;
    let shown = id
        .as_bytes()
        .iter()
        .filter(|byte| byte.is_ascii_graphic())
        .take(MAX_CHARS)
        .map(|byte| char::from(*byte))
        .collect::<String>();
    (!shown.is_empty()).then(|| shown.into())
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;

    fn parts(version: Version, target: &str, hosts: &[&str]) -> Parts {
        let mut request = Request::post(target).version(version);
        for host in hosts {
            request = request.header("host", *host);
        }
        request.body(()).unwrap().into_parts().0
    }

    fn checked(mut parts: Parts, framing: Framing, limits: &HttpLimits) -> Result<(), Refusal> {
        let headers = HeaderFields::from(std::mem::take(&mut parts.headers));
        check(&parts, &headers, framing, limits)
    }

    #[test]
    fn plain_hosts_are_a_subset_of_the_well_formed_ones() {
        for (host, plain) in [
            ("example.com", true),
            ("a-b.c:8080", true),
            ("127.0.0.1:", true),
            ("a:65535", true),
            ("a:65536", false),
            ("a:99999", false),
            ("a:080808", false),
            ("a:+1", false),
            (":1", false),
        ] {
            let value = HeaderValue::from_static(host);
            assert_eq!(is_plain(host.as_bytes()), plain, "{host}");
            assert!(!plain || is_authority(&value), "{host}");
        }
        for host in ["", "user@a", "a b", "a/b", "[::1]:80", "a_b", "a:b:1"] {
            assert!(!is_plain(host.as_bytes()), "{host}");
        }
    }

    #[test]
    fn host_is_checked() {
        for (version, target, hosts, good) in [
            (Version::HTTP_11, "/", &["example.com"][..], true),
            (Version::HTTP_11, "/", &["example.com:8080"], true),
            (Version::HTTP_11, "/", &["127.0.0.1:1"], true),
            (Version::HTTP_11, "/", &["[::1]:8080"], true),
            (Version::HTTP_11, "/", &[], false),
            (Version::HTTP_11, "/", &[""], false),
            (Version::HTTP_11, "/", &["a", "a"], false),
            (Version::HTTP_11, "/", &["a b c"], false),
            (Version::HTTP_11, "/", &["user@example.com"], false),
            (Version::HTTP_11, "/", &["example.com:99999"], false),
            (Version::HTTP_11, "/", &["example.com/path"], false),
            (Version::HTTP_10, "/", &[], true),
            (Version::HTTP_10, "/", &["a", "b"], false),
            (Version::HTTP_2, "http://example.com/", &[], true),
            (Version::HTTP_2, "http://example.com/", &["EXAMPLE.com"], true),
            (Version::HTTP_2, "http://example.com/", &["evil.example"], false),
            (Version::HTTP_2, "/", &["example.com"], true),
            (Version::HTTP_2, "/", &[], false),
        ] {
            let found = checked(parts(version, target, hosts), Framing::Plain, &HttpLimits::default());
            assert_eq!(found.is_ok(), good, "{version:?} {target} {hosts:?}: {found:?}");
        }
    }

    #[test]
    fn loopback_host_names_are_recognised() {
        for (hosts, loopback) in [
            (&["127.0.0.1:8080"][..], true),
            (&["LOCALHOST"], true),
            (&["[::1]:8080"], true),
            (&[], true),
            (&["metrics.example:8080"], false),
            (&["127.0.0.1.example"], false),
            (&["192.0.2.1"], false),
        ] {
            let head = parts(Version::HTTP_11, "/metrics", hosts);
            assert_eq!(names_loopback(&head.uri, &head.headers), loopback, "{hosts:?}");
        }
        let head = parts(Version::HTTP_2, "http://rebound.example/metrics", &[]);
        assert!(!names_loopback(&head.uri, &head.headers));
    }

    #[test]
    fn sizes_are_limited() {
        let limits = HttpLimits { target_bytes: 10, header_bytes: 100, header_count: 3, ..HttpLimits::default() };
        let id = |target: &str, fields: &[(&str, usize)]| {
            let mut parts = parts(Version::HTTP_11, target, &["x"]);
            for (name, length) in fields {
                parts.headers.append(http::HeaderName::from_bytes(name.as_bytes()).unwrap(), "v".repeat(*length).parse().unwrap());
            }
            checked(parts, Framing::Plain, &limits).err().map(|refusal| refusal.problem(&crate::testing::head("/")).status)
        };
        assert_eq!(id("/123456789", &[]), None);
        assert_eq!(id("/1234567890", &[]), Some(414));
        assert_eq!(id("/?34567890", &[]), None);
        assert_eq!(id("/?345678901", &[]), Some(414));
        assert_eq!(id("/", &[("a", 80)]), None);
        assert_eq!(id("/", &[("a", 90)]), Some(431));
        assert_eq!(id("/", &[("a", 1), ("b", 1), ("c", 1)]), Some(431));
    }

    #[test]
    fn ambiguous_framing_is_refused() {
        let refusal = checked(parts(Version::HTTP_11, "/", &["x"]), Framing::Ambiguous, &HttpLimits::default()).unwrap_err();
        assert!(matches!(refusal, Refusal::InvalidValue { name: "content-length", .. }));
    }

    #[test]
    fn client_request_id_is_truncated_and_cleaned() {
        let headers = |value: &[u8]| {
            let mut map = HeaderFields::default();
            map.append("x-request-id", HeaderValue::from_bytes(value).unwrap());
            map
        };
        assert_eq!(client_request_id(&headers(b"abc\t\xff\"1")).as_deref(), Some("abc\"1"));
        assert_eq!(client_request_id(&headers(&[b'x'; 500])).map(|id| id.len()), Some(128));
        assert_eq!(client_request_id(&headers(b" ")), None);
        assert_eq!(client_request_id(&HeaderFields::default()), None);
    }
}
