//! Labels of settings, and their descriptions in languages other than the English of their table. The texts are keyed by the name of the
//! setting.

use std::{collections::HashMap, sync::LazyLock};

use super::locale::{Language, Locale};

static ZH_CN: LazyLock<HashMap<String, String>> =
    LazyLock::new(|| serde_json::from_str(include_str!("../../locales/settings.zh-CN.json")).expect("a test reads the file"));

/// In English and Chinese.
static LABELS: LazyLock<HashMap<String, [String; 2]>> =
    LazyLock::new(|| serde_json::from_str(include_str!("../../locales/setting-labels.json")).expect("a test reads the file"));

/// The description of a setting.
pub(super) fn doc<'a>(t: Locale, name: &str, english: &'a str) -> &'a str {
    match t.language {
        Language::En => english,
        Language::ZhCn => ZH_CN.get(name).map_or(english, String::as_str),
    }
}

/// The label of a setting; its name if it has none.
pub(super) fn label(t: Locale, name: &str) -> String {
    let labels = LABELS.get(name).map(|[en, zh_cn]| match t.language {
        Language::En => en,
        Language::ZhCn => zh_cn,
    });
    labels.map_or_else(|| name.to_owned(), String::clone)
}

/// The names that have a description in every language.
pub fn described_settings() -> impl Iterator<Item = &'static str> {
    ZH_CN.keys().map(String::as_str)
}

/// The names that have a label.
pub fn labelled_settings() -> impl Iterator<Item = &'static str> {
    LABELS.keys().map(String::as_str)
}
