//! Query strings and percent-decoding for paths and keys.

use percent_encoding::percent_decode_str;

/// A query string, parsed on demand. The first parameter of a name counts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Query<'a>(&'a str);

impl<'a> Query<'a> {
    pub(crate) fn new(query: Option<&'a str>) -> Self {
        Self(query.unwrap_or_default())
    }

    /// The decoded value of a parameter; `None` when it is absent or cannot be decoded.
    pub(crate) fn get(self, name: &str) -> Option<String> {
        let (_, value) = self.pairs().find(|(key, _)| *key == name)?;
        decode(&value.replace('+', " "))
    }

    /// Whether a parameter is present, with or without a value.
    pub(crate) fn has(self, name: &str) -> bool {
        self.pairs().any(|(key, _)| key == name)
    }

    fn pairs(self) -> impl Iterator<Item = (&'a str, &'a str)> {
        self.0.split('&').filter(|pair| !pair.is_empty()).map(|pair| pair.split_once('=').unwrap_or((pair, "")))
    }
}

/// Percent-decodes once. `None` for a `%` without two hexadecimal digits (which the crate keeps as is), for invalid UTF-8 and
/// for control characters: no valid name or key contains them.
pub(super) fn decode(text: &str) -> Option<String> {
    if !text.contains('%') {
        return Some(text.to_owned());
    }
    let escapes_are_complete = text
        .split('%')
        .skip(1)
        .all(|rest| rest.as_bytes().first_chunk::<2>().is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit)));
    if !escapes_are_complete {
        return None;
    }
    let decoded = percent_decode_str(text).decode_utf8().ok()?;
    (!decoded.contains(char::is_control)).then(|| decoded.into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decoding_is_strict() {
        for (text, decoded) in [
            ("a/b:c", Some("a/b:c")),
            ("a%2Fb%3ac", Some("a/b:c")),
            ("%E2%82%AC", Some("€")),
            ("100%", None),
            ("%4", None),
            ("%zz", None),
            ("%+1", None),
            ("%ff%fe", None),
            ("a%00b", None),
            ("a%0ab", None),
            ("%2541", Some("%41")),
        ] {
            assert_eq!(decode(text).as_deref(), decoded, "{text}");
        }
    }

    #[test]
    fn the_first_parameter_of_a_name_counts() {
        let query = Query::new(Some("alt=sse&key=a%2Bb&key=second&flag&&x=1+2"));
        assert_eq!(query.get("alt").as_deref(), Some("sse"));
        assert_eq!(query.get("key").as_deref(), Some("a+b"));
        assert_eq!(query.get("x").as_deref(), Some("1 2"));
        assert!(query.has("flag") && !query.has("fla"));
        assert_eq!(Query::new(None).get("alt"), None);
    }
}
