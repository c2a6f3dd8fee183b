//! Paths and queries of the admin API, encoded.

/// A path with its query.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ApiPath(String);

impl ApiPath {
    /// `/admin/v1/` and these parts, each whole however many slashes it has.
    pub(crate) fn of(parts: &[&str]) -> Self {
        let parts: Vec<String> = parts.iter().map(|part| encoded(part)).collect();
        Self(format!("/admin/v1/{}", parts.join("/")))
    }

    /// With a parameter.
    pub(crate) fn with(mut self, name: &str, value: &str) -> Self {
        self.0.push(if self.0.contains('?') { '&' } else { '?' });
        self.0.push_str(name);
        self.0.push('=');
        self.0.push_str(&encoded(value));
        self
    }

    /// With a parameter that may be left out.
    pub(crate) fn maybe(self, name: &str, value: Option<&str>) -> Self {
        match value {
            Some(value) => self.with(name, value),
            None => self,
        }
    }

    /// As it stands in a request.
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

fn encoded(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'~' => out.push(char::from(byte)),
            // Dots are dots, but not where a part would be nothing but them: a proxy would take it for a way up.
            b'.' if text.bytes().any(|byte| byte != b'.') => out.push('.'),
            byte => {
                out.push('%');
                for digit in [byte >> 4, byte & 15] {
                    out.push(char::from_digit(u32::from(digit), 16).expect("four bits are a digit").to_ascii_uppercase());
                }
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_stay_whole_whatever_they_hold() {
        let target = ApiPath::of(&["channels", "a/b ü", "accounts", ".."]).with("after", "x&y=1").maybe("limit", None);
        assert_eq!(target.as_str(), "/admin/v1/channels/a%2Fb%20%C3%BC/accounts/%2E%2E?after=x%26y%3D1");
        assert_eq!(ApiPath::of(&["prices", "gpt-4.1"]).with("a", "b").with("c", "d").as_str(), "/admin/v1/prices/gpt-4.1?a=b&c=d");
    }
}
