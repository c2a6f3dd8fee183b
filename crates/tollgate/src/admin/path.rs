//! Paths and queries of the admin API, encoded.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ApiPath(String);

impl ApiPath {
    /// `/admin/v1/` followed by these segments, percent-encoded.
    pub(crate) fn of(segments: &[&str]) -> Self {
        let segments: Vec<String> = segments.iter().map(|segment| percent_encode(segment)).collect();
        Self(format!("/admin/v1/{}", segments.join("/")))
    }

    pub(crate) fn with(mut self, name: &str, value: &str) -> Self {
        self.0.push(if self.0.contains('?') { '&' } else { '?' });
        self.0.push_str(name);
        self.0.push('=');
        self.0.push_str(&percent_encode(value));
        self
    }

    pub(crate) fn maybe(self, name: &str, value: Option<&str>) -> Self {
        match value {
            Some(value) => self.with(name, value),
            None => self,
        }
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

/// Bytes encoded in a path segment or a query value: all but RFC 3986 "unreserved".
const RESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'~').remove(b'.');

fn percent_encode(text: &str) -> String {
    // A segment of dots alone is encoded too: proxies resolve `.` and `..`.
    if text.bytes().all(|byte| byte == b'.') {
        return "%2E".repeat(text.len());
    }
    utf8_percent_encode(text, RESERVED).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segments_and_values_are_encoded() {
        let target = ApiPath::of(&["channels", "a/b ü", "accounts", ".."]).with("after", "x&y=1").maybe("limit", None);
        assert_eq!(target.as_str(), "/admin/v1/channels/a%2Fb%20%C3%BC/accounts/%2E%2E?after=x%26y%3D1");
        assert_eq!(ApiPath::of(&["prices", "gpt-4.1"]).with("a", "b").with("c", "d").as_str(), "/admin/v1/prices/gpt-4.1?a=b&c=d");
    }
}
