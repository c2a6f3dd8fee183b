//! Conversion between efforts, levels and token budgets of thinking (`docs/translation.md`, "Thinking"). The budget figures
//! are this gateway's own.

use super::{Located, Request};
use crate::{Protocol, neutral::compatibility::CompatibilityReport};

/// Efforts, lowest first, and the token budget equivalent to each. `max` means the model's maximum; its figure here is only
/// shown to callers.
const EFFORT_BUDGETS: [(&str, i64); 7] =
    [("none", 0), ("minimal", 512), ("low", 1_024), ("medium", 8_192), ("high", 24_576), ("xhigh", 32_768), ("max", 32_768)];

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ThinkingSetting<'a> {
    /// No depth given.
    Unspecified,
    Off(SettingSource<'a>),
    /// An effort other than `none`.
    Effort(&'a str, SettingSource<'a>),
    Budget(i64, SettingSource<'a>),
    /// The model chooses the depth.
    Auto,
}

/// The field the setting came from. It decides the terms in which adjustments are reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SettingSource<'a> {
    Effort(&'a str),
    Level(&'a str),
    /// A token budget at this path.
    Budget(&'a str),
}

impl SettingSource<'_> {
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
            value if value < 0 => ThinkingSetting::Auto,
            value => ThinkingSetting::Budget(value, SettingSource::Budget(path)),
        };
    }
    if thinking.adaptive.is_some() { ThinkingSetting::Auto } else { ThinkingSetting::Unspecified }
}

/// True when thoughts belong in the answer: requested explicitly, or implied by an effort (chat callers).
pub(crate) fn shows_thoughts(request: &Request) -> bool {
    let thinking = &request.params.thinking;
    let implied = || request.origin == Protocol::OpenAi && thinking.effort.as_ref().is_some_and(|effort| effort.value != "none");
    thinking.include.as_ref().map_or_else(implied, |include| include.value)
}

pub(crate) fn budget_of(effort: &str) -> i64 {
    EFFORT_BUDGETS.iter().find(|(word, _)| *word == effort).map_or(0, |(_, budget)| *budget)
}

pub(crate) const fn effort_of(budget: i64) -> &'static str {
    match budget {
        0 => "none",
        1..=1_024 => "low",
        1_025..=8_192 => "medium",
        _ => "high",
    }
}

pub(crate) fn is_effort(word: &str) -> bool {
    rank(word).is_some()
}

fn rank(word: &str) -> Option<usize> {
    EFFORT_BUDGETS.iter().position(|(known, _)| *known == word)
}

/// The nearest supported effort: the same, else the next higher, else the highest. The flag is true when it differs from
/// the requested one.
pub(crate) fn nearest<'a>(requested: &str, supported: &'a [String]) -> Option<(&'a str, bool)> {
    let thinking = || supported.iter().filter(|effort| *effort != "none");
    if let Some(same) = thinking().find(|effort| *effort == requested) {
        return Some((same, false));
    }
    let requested = rank(requested).unwrap_or(EFFORT_BUDGETS.len());
    let higher = thinking().find(|effort| rank(effort).is_some_and(|rank| rank > requested));
    higher.or_else(|| thinking().next_back()).map(|effort| (effort.as_str(), true))
}

/// The lowest supported effort other than `none`.
pub(crate) fn lowest(supported: &[String]) -> Option<&str> {
    supported.iter().find(|effort| *effort != "none").map(String::as_str)
}

/// The highest effort whose budget is at most `budget`; the lowest one if there is none.
pub(crate) fn effort_within(budget: i64) -> &'static str {
    let fitting = EFFORT_BUDGETS.iter().skip(1).take_while(|(_, figure)| *figure <= budget).last();
    fitting.map_or("minimal", |(word, _)| word)
}

/// The budget for an effort or a requested budget, clamped to `range`.
pub(crate) fn budget_in(setting: &ThinkingSetting<'_>, range: [u64; 2]) -> Option<i64> {
    let [low, high] = range.map(|bound| i64::try_from(bound).unwrap_or(i64::MAX));
    match setting {
        ThinkingSetting::Effort("xhigh" | "max", _) => Some(high),
        ThinkingSetting::Effort(word, _) => Some(budget_of(word).min(high).max(low)),
        ThinkingSetting::Budget(number, _) => Some((*number).min(high).max(low)),
        ThinkingSetting::Unspecified | ThinkingSetting::Off(_) | ThinkingSetting::Auto => None,
    }
}

/// Like [`budget_in`]. Clamping a budget that the caller gave is reported; clamping the figure of an effort is not.
pub(crate) fn budget_within(setting: &ThinkingSetting<'_>, range: [u64; 2], report: &mut CompatibilityReport<'_>) -> Option<i64> {
    let budget = budget_in(setting, range)?;
    if let ThinkingSetting::Budget(number, source) = setting
        && *number != budget
    {
        report.adjust(source.path(), &budget.to_string());
    }
    Some(budget)
}

/// The setting as an effort; `None` for a setting without depth.
pub(crate) fn as_effort<'a>(setting: &ThinkingSetting<'a>) -> Option<(&'a str, SettingSource<'a>)> {
    match setting {
        ThinkingSetting::Effort(word, source) => Some((word, *source)),
        ThinkingSetting::Budget(number, source) => Some((effort_of(*number), *source)),
        ThinkingSetting::Unspecified | ThinkingSetting::Off(_) | ThinkingSetting::Auto => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn efforts(words: &[&str]) -> Vec<String> {
        words.iter().map(|word| (*word).to_owned()).collect()
    }

    #[test]
    fn nearest_prefers_the_next_higher() {
        let supported = efforts(&["low", "high"]);
        assert_eq!(nearest("low", &supported), Some(("low", false)));
        assert_eq!(nearest("minimal", &supported), Some(("low", true)));
        assert_eq!(nearest("medium", &supported), Some(("high", true)));
        assert_eq!(nearest("max", &supported), Some(("high", true)));
        assert_eq!(nearest("low", &efforts(&["none"])), None);
    }

    #[test]
    fn budgets_map_to_efforts() {
        let efforts = [0, 1, 1_024, 1_025, 8_192, 8_193, 100_000].map(effort_of);
        assert_eq!(efforts, ["none", "low", "low", "medium", "medium", "high", "high"]);
    }

    #[test]
    fn effort_within_a_budget_is_never_higher() {
        let efforts = [0, 512, 1_023, 1_024, 8_191, 24_576, 32_768].map(effort_within);
        assert_eq!(efforts, ["minimal", "minimal", "minimal", "low", "low", "high", "max"]);
    }

    #[test]
    fn adjustments_are_reported_in_the_callers_terms() {
        assert_eq!(SettingSource::Effort("e").in_terms("low"), "low");
        assert_eq!(SettingSource::Level("l").in_terms("low"), "LOW");
        assert_eq!(SettingSource::Budget("b").in_terms("low"), "1024");
    }
}
