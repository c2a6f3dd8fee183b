//! The languages of the console and their texts. The files are read once; a test compares their keys with each other and with the
//! keys used in templates and code.

use std::{collections::HashMap, sync::LazyLock};

use crate::currency::DisplayCurrency;

type Texts = HashMap<String, String>;

static EN: LazyLock<Texts> = LazyLock::new(|| parse(include_str!("../../locales/en.json")));
static ZH_CN: LazyLock<Texts> = LazyLock::new(|| parse(include_str!("../../locales/zh-CN.json")));

fn parse(file: &str) -> Texts {
    serde_json::from_str(file).expect("a test reads the files")
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Language {
    En,
    ZhCn,
}

impl Language {
    pub(crate) const ALL: [Self; 2] = [Self::En, Self::ZhCn];

    /// The language as browsers name it.
    pub(crate) const fn tag(self) -> &'static str {
        match self {
            Self::En => "en",
            Self::ZhCn => "zh-CN",
        }
    }

    /// The language in its own words.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::En => "English",
            Self::ZhCn => "简体中文",
        }
    }

    pub(crate) fn of_tag(tag: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|language| language.tag() == tag)
    }

    /// The best of the languages in `Accept-Language`.
    pub(crate) fn accepted(header: &str) -> Self {
        let mut best = (0.0_f32, Self::En);
        for entry in header.split(',').take(20) {
            let mut parts = entry.split(';').map(str::trim);
            let tag = parts.next().unwrap_or_default().to_ascii_lowercase();
            let quality = parts.find_map(|part| part.strip_prefix("q=")?.parse::<f32>().ok()).unwrap_or(1.0);
            let language = match tag.split('-').next() {
                Some("zh") => Self::ZhCn,
                Some("en") => Self::En,
                _ => continue,
            };
            if quality > best.0 {
                best = (quality, language);
            }
        }
        best.1
    }

    fn texts(self) -> &'static Texts {
        match self {
            Self::En => &EN,
            Self::ZhCn => &ZH_CN,
        }
    }
}

/// How a page speaks to its reader: the language, and the currency of amounts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Locale {
    pub(crate) language: Language,
    pub(crate) currency: DisplayCurrency,
}

impl Locale {
    #[cfg(test)]
    pub(crate) const EN: Self = Self { language: Language::En, currency: DisplayCurrency::USD };
    #[cfg(test)]
    pub(crate) const ZH_CN: Self = Self { language: Language::ZhCn, currency: DisplayCurrency::USD };

    /// The same language with another currency.
    pub(crate) const fn with_currency(self, currency: DisplayCurrency) -> Self {
        Self { currency, ..self }
    }

    pub(crate) const fn tag(self) -> &'static str {
        self.language.tag()
    }

    /// Chooses between the variants for the two languages.
    pub(crate) const fn choose<T: Copy>(self, en: T, zh_cn: T) -> T {
        match self.language {
            Language::En => en,
            Language::ZhCn => zh_cn,
        }
    }

    /// The text of a key. A missing text is shown as its key; a test excludes that.
    pub(crate) fn say(self, key: &'static str) -> &'static str {
        self.language.texts().get(key).map_or(key, String::as_str)
    }

    /// A text with each `{name}` replaced by its value. Placeholders within values are not replaced.
    pub(crate) fn say_with(self, key: &'static str, values: &[(&str, &str)]) -> String {
        fill(self.say(key), values)
    }

    /// A text for a number of things: `one` for exactly one, else `other`; `{count}` is the number.
    pub(crate) fn say_count(self, one: &'static str, other: &'static str, count: u64) -> String {
        let key = if count == 1 { one } else { other };
        self.say_with(key, &[("count", &super::format::integer(count))])
    }
}

/// The same for a text.
pub(super) fn fill(text: &str, values: &[(&str, &str)]) -> String {
    let (mut filled, mut rest) = (String::new(), text);
    while let Some((before, after)) = rest.split_once('{') {
        let Some((name, after)) = after.split_once('}') else { break };
        filled.push_str(before);
        filled.push_str(values.iter().find(|(known, _)| *known == name).map_or("", |(_, value)| value));
        rest = after;
    }
    filled.push_str(rest);
    filled
}

#[cfg(test)]
mod tests {
    use std::{
        collections::BTreeSet,
        fs,
        path::{Path, PathBuf},
    };

    use super::*;

    fn files(folder: &Path, found: &mut Vec<PathBuf>) {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                files(&path, found);
            } else {
                found.push(path);
            }
        }
    }

    /// The keys that templates and pages name: the quoted texts after `say(`, `say_with(` and `say_count(`.
    fn used() -> BTreeSet<String> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let mut paths = Vec::new();
        files(&root.join("templates"), &mut paths);
        files(&root.join("src/pages"), &mut paths);
        let mut keys = BTreeSet::new();
        for path in paths.iter().filter(|path| !path.ends_with("pages/locale.rs")) {
            let text = fs::read_to_string(path).unwrap();
            for call in ["say(", "say_with(", "say_count("] {
                for (at, _) in text.match_indices(call) {
                    let mut rest = text[at + call.len()..].trim_start();
                    let count = if call == "say_count(" { 2 } else { 1 };
                    for _ in 0..count {
                        let Some(key) = rest.strip_prefix('"').and_then(|rest| rest.split('"').next()) else { break };
                        keys.insert(key.to_owned());
                        rest = rest[key.len() + 2..].trim_start_matches([',', ' ', '\n']);
                    }
                }
            }
        }
        keys
    }

    /// The names in braces of a text.
    fn placeholders(text: &str) -> BTreeSet<&str> {
        text.split('{').skip(1).filter_map(|part| part.split_once('}').map(|(name, _)| name)).collect()
    }

    #[test]
    fn every_text_key_is_translated_and_used() {
        let used = used();
        assert!(used.len() > 100, "{}", used.len());
        for language in Language::ALL {
            let known: BTreeSet<String> = language.texts().keys().cloned().collect();
            let missing: Vec<_> = used.difference(&known).collect();
            let unused: Vec<_> = known.difference(&used).collect();
            assert!(missing.is_empty() && unused.is_empty(), "{language:?}: missing {missing:?}, unused {unused:?}");
        }
    }

    #[test]
    fn languages_have_the_same_placeholders() {
        for (key, text) in EN.iter() {
            let other = &ZH_CN[key];
            assert!(!text.trim().is_empty() && !other.trim().is_empty(), "{key}");
            assert_eq!(placeholders(text), placeholders(other), "{key}");
            assert!(!text.contains('<') && !other.contains('<'), "{key} holds markup");
        }
    }

    #[test]
    fn best_language_of_the_browser_is_chosen() {
        for (header, expected) in [
            ("", Language::En),
            ("de-DE,de", Language::En),
            ("zh", Language::ZhCn),
            ("zh-TW", Language::ZhCn),
            ("en;q=0.5, zh-CN;q=0.9", Language::ZhCn),
            ("en, zh-CN;q=0.9", Language::En),
            ("zh;q=0", Language::En),
            ("zh;q=x", Language::ZhCn),
            ("\u{fffd},;;q=1", Language::En),
        ] {
            assert_eq!(Language::accepted(header), expected, "{header}");
        }
    }

    #[test]
    fn placeholders_are_substituted_once() {
        assert_eq!(fill("a {b} c {d}", &[("b", "{d}"), ("d", "<i>")]), "a {d} c <i>");
        assert_eq!(fill("{x} {", &[]), " {");
    }
}
