//! Query strings and percent-encoding, as far as paths and keys need them.

/// A query string, read on demand; the first parameter of a name counts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Query<'a>(&'a str);

impl<'a> Query<'a> {
    /// Behind the `?`.
    pub(crate) fn new(query: Option<&'a str>) -> Self {
        Self(query.unwrap_or_default())
    }

    /// The decoded value of a parameter; `None` when it is absent or cannot be decoded.
    pub(crate) fn get(self, name: &str) -> Option<String> {
        let (_, value) = self.pairs().find(|(key, _)| *key == name)?;
        decode(&value.replace('+', " "))
    }

    /// Whether a parameter is there, with or without a value.
    pub(crate) fn has(self, name: &str) -> bool {
        self.pairs().any(|(key, _)| key == name)
    }

    fn pairs(self) -> impl Iterator<Item = (&'a str, &'a str)> {
        self.0.split('&').filter(|pair| !pair.is_empty()).map(|pair| pair.split_once('=').unwrap_or((pair, "")))
    }
}

/// Percent-decodes once. `None` for a lone `%`, for bytes that are no UTF-8 and for control characters: no name of
/// ours has them, and what cannot be shown cannot be asked for.
pub(super) fn decode(text: &str) -> Option<String> {
    if !text.contains('%') {
        return Some(text.to_owned());
    }
    let mut out = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        if byte == b'%' {
            let (high, low) = (digit(bytes.next()?)?, digit(bytes.next()?)?);
            out.push(high << 4 | low);
        } else {
            out.push(byte);
        }
    }
    String::from_utf8(out).ok().filter(|text| !text.contains(char::is_control))
}

fn digit(byte: u8) -> Option<u8> {
    char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok())
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
