//! Addresses of upstreams and proxies: which are accepted, and which of them are private.

use url::Url;

/// The host of a base URL, if it is a loopback or private address or a name of this machine.
#[must_use]
pub fn private_host(base_url: &str) -> Option<String> {
    let url = Url::parse(base_url).ok()?;
    let is_private = match url.host()? {
        url::Host::Ipv4(address) => !tollgate_core::is_public(address.into()),
        url::Host::Ipv6(address) => !tollgate_core::is_public(std::net::IpAddr::from(address).to_canonical()),
        url::Host::Domain(name) => {
            // The host of a scheme such as `smtp` is a name even where it is written as an address.
            let is_private = |address: std::net::IpAddr| !tollgate_core::is_public(address.to_canonical());
            let name = name.trim_end_matches('.');
            name.parse().is_ok_and(is_private)
                || name.eq_ignore_ascii_case("localhost")
                || name.to_ascii_lowercase().ends_with(".localhost")
        }
    };
    is_private.then(|| url.host_str().unwrap_or_default().to_owned())
}

/// Checks that an address has one of these schemes and a host, and no query, fragment, dot segments or port 0; where `https` is among
/// the schemes, also no credentials. The error is the end of a sentence.
pub(super) fn check_url(text: &str, schemes: &[&str]) -> Result<(), String> {
    let url = Url::parse(text).map_err(|error| format!("is not an address: {error}"))?;
    if !schemes.contains(&url.scheme()) {
        return Err(format!("must begin with {}://", schemes.join(":// or ")));
    }
    if url.host_str().is_none_or(str::is_empty) {
        return Err("has no host".to_owned());
    }
    if url.port() == Some(0) {
        return Err("must not use port 0".to_owned());
    }
    if schemes.contains(&"https") && (!url.username().is_empty() || url.password().is_some()) {
        return Err("must not contain a user name or password; the credential belongs to an account".to_owned());
    }
    if url.query().is_some() || url.fragment().is_some() {
        return Err("must not have a query or fragment".to_owned());
    }
    // Checked as written: parsing resolves the segments, so that requests would go to another address than the one shown.
    let path = text.split_once("://").map_or(text, |(_, rest)| rest).split_once(['/', '\\']).map_or("", |(_, path)| path);
    if path.split(['/', '\\']).any(is_dots) {
        return Err("must not have the segments . and ..; write the address without them".to_owned());
    }
    Ok(())
}

/// Whether a segment of a path is `.` or `..`, also percent-encoded, as servers decode it.
pub(super) fn is_dots(segment: &str) -> bool {
    let plain = segment.to_ascii_lowercase().replace("%2e", ".");
    plain == "." || plain == ".."
}

#[cfg(test)]
mod tests {
    use super::*;

    fn url(text: &str) -> Option<String> {
        check_url(text, &["http", "https"]).err()
    }

    #[test]
    fn base_url_is_an_http_address_and_nothing_more() {
        assert_eq!(url("http://127.0.0.1:4010/v1"), None);
        assert_eq!(url("https://api.openai.com/v1"), None);
        for bad in ["", "http://x:0/v1", "api.openai.com/v1", "ftp://x/v1", "https://me:secret@x/v1", "https://x/v1?key=1"] {
            assert!(url(bad).is_some(), "{bad}");
        }
        assert!(!url("https://me:secret@x/v1").unwrap().contains("secret"));
    }

    #[test]
    fn private_host_is_detected_in_every_notation() {
        for (url, host) in [
            ("http://127.0.0.1:1/", "127.0.0.1"),
            ("http://2852039166/", "169.254.169.254"),
            ("http://0x7f.1/", "127.0.0.1"),
            ("http://[::ffff:10.0.0.1]/v1", "[::ffff:a00:1]"),
            ("http://[fd00:ec2::254]/", "[fd00:ec2::254]"),
            ("http://localhost:11434/v1", "localhost"),
            ("http://LOCALHOST./v1", "localhost."),
            ("http://vllm.localhost/v1", "vllm.localhost"),
            ("smtp://127.0.0.1:25", "127.0.0.1"),
            ("smtps://me@[::1]:465", "[::1]"),
        ] {
            assert_eq!(private_host(url).as_deref(), Some(host), "{url}");
        }
        for url in ["https://api.example.com/v1", "http://8.8.8.8/v1", "smtp://8.8.8.8", "", "localhost"] {
            assert_eq!(private_host(url), None, "{url}");
        }
    }

    #[test]
    fn base_url_has_no_dot_segments() {
        for good in ["https://x/v1", "https://x/a..b/v1", "https://x/...", "https://x"] {
            assert_eq!(url(good), None, "{good}");
        }
        for bad in ["https://x/v1/..", "https://x/../v1", "https://x/a/./v1", "https://x/%2e%2E/v1", "https://x\\..\\v1"] {
            assert!(url(bad).is_some_and(|fault| fault.contains("segments")), "{bad}");
        }
    }
}
