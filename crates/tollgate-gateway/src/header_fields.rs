//! The header fields of a request or of an upstream's answer.

use http::{HeaderMap, HeaderValue, header::AsHeaderName};

/// A map of header fields with a filter of the names that it may contain. Most of the fields that are looked up are absent
/// (`origin`, `expect`, `x-tollgate-tags`, `content-encoding`, …), and the filter shows that without computing a hash.
#[derive(Clone, Debug, Default)]
pub struct HeaderFields {
    map: HeaderMap,
    /// A bit for each name of the map ([`bit`]). Names share bits, so a set bit shows only that a field may be present.
    names: u64,
}

impl HeaderFields {
    /// The first value of a field. Names are in lower case, here and below.
    pub(crate) fn get<N: AsHeaderName + AsRef<str>>(&self, name: N) -> Option<&HeaderValue> {
        if self.may_have(name.as_ref()) { self.map.get(name) } else { None }
    }

    /// Every value of a field, in order.
    pub(crate) fn get_all<N: AsHeaderName + AsRef<str>>(&self, name: N) -> impl Iterator<Item = &HeaderValue> {
        let values = self.may_have(name.as_ref()).then(|| self.map.get_all(name));
        values.into_iter().flatten()
    }

    pub(crate) fn contains<N: AsHeaderName + AsRef<str>>(&self, name: N) -> bool {
        self.may_have(name.as_ref()) && self.map.contains_key(name)
    }

    pub(crate) fn len(&self) -> usize {
        self.map.len()
    }

    /// The underlying map of the fields.
    pub(crate) fn as_map(&self) -> &HeaderMap {
        &self.map
    }

    pub(crate) fn into_map(self) -> HeaderMap {
        self.map
    }

    /// Whether a field may be present; false if it is certainly absent.
    fn may_have(&self, name: &str) -> bool {
        debug_assert!(!name.bytes().any(|byte| byte.is_ascii_uppercase()), "'{name}' is in lower case");
        self.names & bit(name) != 0
    }
}

impl From<HeaderMap> for HeaderFields {
    fn from(map: HeaderMap) -> Self {
        let names = map.keys().fold(0, |names, name| names | bit(name.as_str()));
        Self { map, names }
    }
}

/// One of 64 bits, by length and first byte of a name.
fn bit(name: &str) -> u64 {
    let first = name.as_bytes().first().copied().unwrap_or_default();
    1 << ((usize::from(first) + 5 * name.len()) % 64)
}

#[cfg(test)]
impl HeaderFields {
    /// Adds a field to a request of a test.
    pub(crate) fn append(&mut self, name: &'static str, value: HeaderValue) {
        self.map.append(name, value);
        self.names |= bit(name);
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderName;

    use super::*;

    #[test]
    fn fields_are_found_as_in_the_map() {
        let names =
            ["host", "accept", "origin", "expect", "x-request-id", "x-tollgate-tags", "x-tollgate-trace", "traceparent", "a"];
        let mut map = HeaderMap::new();
        for name in &names[..5] {
            map.append(*name, HeaderValue::from_static("1"));
            map.append(*name, HeaderValue::from_static("2"));
        }
        let headers = HeaderFields::from(map.clone());
        for name in names {
            assert_eq!(headers.get(name), map.get(name), "{name}");
            assert_eq!(headers.contains(name), map.contains_key(name), "{name}");
            assert!(headers.get_all(name).eq(map.get_all(name)), "{name}");
            let known = HeaderName::from_static(name);
            assert_eq!(headers.get(&known), map.get(&known), "{name}");
        }
        assert!(HeaderFields::default().get("host").is_none());
    }

    #[test]
    fn common_fields_do_not_share_the_bits_of_rare_ones() {
        let common =
            ["host", "authorization", "content-type", "content-length", "accept", "user-agent", "accept-encoding", "connection"];
        let rare = [
            "origin",
            "expect",
            "transfer-encoding",
            "content-encoding",
            "x-request-id",
            "x-tollgate-tags",
            "x-tollgate-max-price",
        ];
        let used = common.iter().fold(0, |names, name| names | bit(name));
        for name in rare {
            assert_eq!(used & bit(name), 0, "{name}");
        }
    }
}
