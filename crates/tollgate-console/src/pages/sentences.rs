//! English sentences of the gateway in the reader's language. The catalogues of all languages have them; a text is recognised by the English
//! one.

use super::locale::{Language, Locale, fill};

/// A text of a page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Said {
    pub(super) text: String,
    /// It is not in the reader's language.
    pub(super) is_english: bool,
}

impl Said {
    /// A text in the reader's language, or one of no language, such as a name.
    pub(super) fn new(text: impl Into<String>) -> Self {
        Self { text: text.into(), is_english: false }
    }

    pub(super) fn english(text: impl Into<String>) -> Self {
        Self { text: text.into(), is_english: true }
    }

    /// Several texts as one. It is in English if all of them are.
    pub(super) fn joined(texts: Vec<Self>, separator: &str) -> Self {
        let is_english = !texts.is_empty() && texts.iter().all(|said| said.is_english);
        let texts: Vec<String> = texts.into_iter().map(|said| said.text).collect();
        Self { text: texts.join(separator), is_english }
    }

    /// An English sentence in the reader's language, if it is one of these.
    pub(super) fn of(t: Locale, text: &str, sentences: impl Fn(Locale) -> Vec<&'static str>) -> Self {
        translated(t, text, sentences).map_or_else(|| Self::english(text), Self::new)
    }
}

/// An English text in the reader's language, if it is one of these sentences, with the same values.
pub(super) fn translated(t: Locale, text: &str, sentences: impl Fn(Locale) -> Vec<&'static str>) -> Option<String> {
    translated_with(t, text, sentences, |_, _| None)
}

/// The same. `say_value` says a value in the reader's language by its name; one that has no other text stays as it is.
pub(super) fn translated_with(
    t: Locale,
    text: &str,
    sentences: impl Fn(Locale) -> Vec<&'static str>,
    say_value: impl Fn(&str, &str) -> Option<String>,
) -> Option<String> {
    let english = sentences(Locale { language: Language::En, ..t });
    let (values, wanted) =
        english.into_iter().zip(sentences(t)).find_map(|(known, wanted)| Some((captured(known, text)?, wanted)))?;
    let said = |(name, value): (&'static str, &str)| (name, say_value(name, value).unwrap_or_else(|| value.to_owned()));
    let values: Vec<(&str, String)> = values.into_iter().map(said).collect();
    let values: Vec<(&str, &str)> = values.iter().map(|(name, value)| (*name, value.as_str())).collect();
    Some(fill(wanted, &values))
}

/// The values at the places of `{name}` in a sentence; `None` if the text is another one.
fn captured<'a>(sentence: &'static str, text: &'a str) -> Option<Vec<(&'static str, &'a str)>> {
    let mut parts = sentence.split('{');
    let mut rest = text.strip_prefix(parts.next()?)?;
    let mut parts = parts.peekable();
    let mut values = Vec::new();
    while let Some(part) = parts.next() {
        let (name, literal) = part.split_once('}')?;
        let at = if parts.peek().is_some() { rest.find(literal)? } else { rest.strip_suffix(literal)?.len() };
        values.push((name, &rest[..at]));
        rest = &rest[at + literal.len()..];
    }
    rest.is_empty().then_some(values)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sentences_are_recognized_as_a_whole() {
        assert_eq!(captured("{a} of {b} are on", "1 of 2 are on"), Some(vec![("a", "1"), ("b", "2")]));
        assert_eq!(captured("{a} of {b} are on", "1 of 2 are on; more"), None);
        assert_eq!(captured("plain", "plain"), Some(Vec::new()));
        assert_eq!(captured("plain", "plainer"), None);
        assert_eq!(captured("{a} free", "free"), None);
        assert_eq!(captured("x {a} x", "x x"), None);
    }
}
