//! Texts with names of the API between backticks, which pages show as code.

use url::Url;

/// A piece of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Piece<'a> {
    pub(crate) text: &'a str,
    pub(crate) is_code: bool,
}

/// The pieces of a text, in order. A backtick without a second one is part of the text.
pub(crate) fn pieces(text: &str) -> Vec<Piece<'_>> {
    let (mut found, mut rest) = (Vec::new(), text);
    while let Some((before, code, after)) = next_code(rest) {
        found.extend([Piece { text: before, is_code: false }, Piece { text: code, is_code: true }]);
        rest = after;
    }
    found.push(Piece { text: rest, is_code: false });
    found.retain(|piece| !piece.text.is_empty());
    found
}

/// A piece of an operator's text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Linked<'a> {
    pub(crate) text: &'a str,
    /// Whether the piece is a URL.
    pub(crate) is_link: bool,
}

/// The pieces of a text in which web addresses are links. Addresses with other schemes stay text.
pub(crate) fn linked(text: &str) -> Vec<Linked<'_>> {
    let mut found: Vec<Linked<'_>> = Vec::new();
    let mut begin = 0;
    for (at, _) in text.match_indices("http") {
        if at < begin {
            continue;
        }
        let rest = &text[at..];
        let end = rest.find(|c: char| c.is_whitespace() || "<>\"'()\u{3002}\u{ff0c}\u{ff09}".contains(c)).unwrap_or(rest.len());
        // Punctuation at the end of a sentence does not belong to its last address.
        let address = rest[..end].trim_end_matches(['.', ',', ';', ':', '!', '?']);
        let is_page = ["http://", "https://"].iter().any(|scheme| address.starts_with(scheme));
        if is_page && Url::parse(address).is_ok_and(|url| url.has_host()) {
            found.extend([Linked { text: &text[begin..at], is_link: false }, Linked { text: address, is_link: true }]);
            begin = at + address.len();
        }
    }
    found.push(Linked { text: &text[begin..], is_link: false });
    found.retain(|piece| !piece.text.is_empty());
    found
}

/// The first text between backticks, with the texts before and after it.
fn next_code(text: &str) -> Option<(&str, &str, &str)> {
    let (before, rest) = text.split_once('`')?;
    let (code, after) = rest.split_once('`')?;
    Some((before, code, after))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_between_backticks_is_code() {
        let shown = |text| pieces(text).iter().map(|piece| (piece.text, piece.is_code)).collect::<Vec<_>>();
        assert_eq!(shown("Send `a` and `<b>`."), [("Send ", false), ("a", true), (" and ", false), ("<b>", true), (".", false)]);
        assert_eq!(shown("`a`"), [("a", true)]);
        assert_eq!(shown("5` of rain"), [("5` of rain", false)]);
        assert_eq!(shown(""), []);
    }

    #[test]
    fn addresses_of_pages_are_links() {
        let links = |text| linked(text).iter().filter(|piece| piece.is_link).map(|piece| piece.text).collect::<Vec<_>>();
        assert_eq!(links("Away on Sunday, see https://status.example.com/a?b=c."), ["https://status.example.com/a?b=c"]);
        assert_eq!(links("(http://a.example) and https://b.example, or c"), ["http://a.example", "https://b.example"]);
        assert_eq!(links("\u{8be6}\u{89c1}https://a.example/x\u{3002}"), ["https://a.example/x"]);
        assert!(links("javascript:alert(1) http https:// httpx://a").is_empty());
        let text = "a https://a.example \"><script> b";
        assert_eq!(linked(text).iter().map(|piece| piece.text).collect::<String>(), text);
    }
}
