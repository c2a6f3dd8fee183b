//! How much a model thinks: efforts, levels and budgets, one into the other (translation reference, section 2.1, table
//! "Effort ↔ thinking"). The budget figures are this gateway's own.

use super::{Located, Request};
use crate::{Protocol, neutral::compatibility::CompatibilityReport};

/// Efforts, lowest first, and the budget that stands for each, in tokens. `max` stands for a model's maximum; its figure
/// here is only the one shown to callers.
const TABLE: [(&str, i64); 7] =
    [("none", 0), ("minimal", 512), ("low", 1_024), ("medium", 8_192), ("high", 24_576), ("xhigh", 32_768), ("max", 32_768)];

/// What the caller wants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ThinkingSetting<'a> {
    /// Nothing was said about depth.
    Unspecified,
    /// No thinking.
    Off(SettingSource<'a>),
    /// This effort (a word of the table other than `none`).
    Effort(&'a str, SettingSource<'a>),
    /// This many tokens.
    Budget(i64, SettingSource<'a>),
    /// The model decides.
    Open,
}

/// In whose terms the caller spoke, and where.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SettingSource<'a> {
    /// An effort word at this path.
    Effort(&'a str),
    /// A level name at this path.
    Level(&'a str),
    /// A number of tokens at this path.
    Budget(&'a str),
}

impl SettingSource<'_> {
    /// The caller's path.
    pub(crate) const fn path(&self) -> &str {
        match self {
            Self::Effort(path) | Self::Level(path) | Self::Budget(path) => path,
        }
    }

    /// An effort in the caller's terms.
    pub(crate) fn in_terms(&self, effort: &str) -> String {
        match self {
            Self::Effort(_) => effort.to_owned(),
            Self::Level(_) => effort.to_ascii_uppercase(),
            Self::Budget(_) => budget_of(effort).to_string(),
        }
    }
}

/// Reads the caller's setting out of a request.
pub(crate) fn thinking_setting(request: &Request) -> ThinkingSetting<'_> {
    let thinking = &request.params.thinking;
    if let Some(Located { value, path }) = &thinking.effort {
        return if value == "none" {
            ThinkingSetting::Off(SettingSource::Effort(path))
        } else {
            ThinkingSetting::Effort(value, SettingSource::Effort(path))
        };
    }
    if let Some(Located { value, path }) = &thinking.level {
        return ThinkingSetting::Effort(value, SettingSource::Level(path));
    }
    if let Some(Located { value, path }) = &thinking.budget {
        return match *value {
            0 => ThinkingSetting::Off(SettingSource::Budget(path)),
            value if value < 0 => ThinkingSetting::Open,
            value => ThinkingSetting::Budget(value, SettingSource::Budget(path)),
        };
    }
    if thinking.adaptive.is_some() { ThinkingSetting::Open } else { ThinkingSetting::Unspecified }
}

/// Whether the caller wants to see thoughts: asked for, or (chat callers) implied by an effort.
pub(crate) fn shows_thoughts(request: &Request) -> bool {
    let thinking = &request.params.thinking;
    let implied = || request.origin == Protocol::OpenAi && thinking.effort.as_ref().is_some_and(|effort| effort.value != "none");
    thinking.include.as_ref().map_or_else(implied, |include| include.value)
}

/// The budget that stands for an effort.
pub(crate) fn budget_of(effort: &str) -> i64 {
    TABLE.iter().find(|(word, _)| *word == effort).map_or(0, |(_, budget)| *budget)
}

/// The effort that stands for a budget (the table's column "back").
pub(crate) const fn effort_of(budget: i64) -> &'static str {
    match budget {
        0 => "none",
        1..=1_024 => "low",
        1_025..=8_192 => "medium",
        _ => "high",
    }
}

/// Whether a word is in the table.
pub(crate) fn is_effort(word: &str) -> bool {
    rank(word).is_some()
}

fn rank(word: &str) -> Option<usize> {
    TABLE.iter().position(|(known, _)| *known == word)
}

/// The word of `offered` that comes nearest: the same, else the next higher, else the highest. The flag says whether
/// another than the wanted one had to be taken.
pub(crate) fn nearest<'a>(wanted: &str, offered: &'a [String]) -> Option<(&'a str, bool)> {
    let thinking = || offered.iter().filter(|word| *word != "none");
    if let Some(same) = thinking().find(|word| *word == wanted) {
        return Some((same, false));
    }
    let wanted = rank(wanted).unwrap_or(TABLE.len());
    let higher = thinking().find(|word| rank(word).is_some_and(|rank| rank > wanted));
    higher.or_else(|| thinking().next_back()).map(|word| (word.as_str(), true))
}

/// The lowest word that still thinks.
pub(crate) fn lowest(offered: &[String]) -> Option<&str> {
    offered.iter().find(|word| *word != "none").map(String::as_str)
}

/// A budget for an effort or a wished number, within `range`. A number of the caller's own that had to be changed is
/// reported; the table's figures are ours to clip.
pub(crate) fn budget_within(setting: &ThinkingSetting<'_>, range: [u64; 2], report: &mut CompatibilityReport<'_>) -> Option<i64> {
    let [low, high] = range.map(|bound| i64::try_from(bound).unwrap_or(i64::MAX));
    match setting {
        ThinkingSetting::Effort("xhigh" | "max", _) => Some(high),
        ThinkingSetting::Effort(word, _) => Some(budget_of(word).min(high).max(low)),
        ThinkingSetting::Budget(number, source) => {
            let clipped = (*number).min(high).max(low);
            if clipped != *number {
                report.adjust(source.path(), &clipped.to_string());
            }
            Some(clipped)
        }
        ThinkingSetting::Unspecified | ThinkingSetting::Off(_) | ThinkingSetting::Open => None,
    }
}

/// The setting as an effort of the table: `None` where no effort follows from it.
pub(crate) fn as_effort<'a>(setting: &ThinkingSetting<'a>) -> Option<(&'a str, SettingSource<'a>)> {
    match setting {
        ThinkingSetting::Effort(word, source) => Some((word, *source)),
        ThinkingSetting::Budget(number, source) => Some((effort_of(*number), *source)),
        ThinkingSetting::Unspecified | ThinkingSetting::Off(_) | ThinkingSetting::Open => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(words: &[&str]) -> Vec<String> {
        words.iter().map(|word| (*word).to_owned()).collect()
    }

    #[test]
    fn nearest_prefers_the_next_higher() {
        let offered = words(&["low", "high"]);
        assert_eq!(nearest("low", &offered), Some(("low", false)));
        assert_eq!(nearest("minimal", &offered), Some(("low", true)));
        assert_eq!(nearest("medium", &offered), Some(("high", true)));
        assert_eq!(nearest("max", &offered), Some(("high", true)));
        assert_eq!(nearest("low", &words(&["none"])), None);
    }

    #[test]
    fn budgets_go_back_to_efforts() {
        let back = [0, 1, 1_024, 1_025, 8_192, 8_193, 100_000].map(effort_of);
        assert_eq!(back, ["none", "low", "low", "medium", "medium", "high", "high"]);
    }

    #[test]
    fn callers_hear_their_own_terms() {
        assert_eq!(SettingSource::Effort("e").in_terms("low"), "low");
        assert_eq!(SettingSource::Level("l").in_terms("low"), "LOW");
        assert_eq!(SettingSource::Budget("b").in_terms("low"), "1024");
    }
}
