//! Descriptions of settings in languages other than the English of their table. The texts are keyed by the name of the setting, or of the
//! section.

use std::{collections::HashMap, sync::LazyLock};

use super::locale::{Language, Locale};

static ZH_CN: LazyLock<HashMap<String, String>> =
    LazyLock::new(|| serde_json::from_str(include_str!("../../locales/settings.zh-CN.json")).expect("a test reads the file"));

/// The description of a setting, or the title of a section.
pub(super) fn doc<'a>(t: Locale, name: &str, english: &'a str) -> &'a str {
    match t.language {
        Language::En => english,
        Language::ZhCn => ZH_CN.get(name).map_or(english, String::as_str),
    }
}

/// The names that have a text in every language.
pub fn described_settings() -> impl Iterator<Item = &'static str> {
    ZH_CN.keys().map(String::as_str)
}
